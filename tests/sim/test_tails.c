/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One slow, stalled or silent chunk server: what single operations take, and that what makes them quick was really at work (the client's
 * counters). Chunks that are late: test_late.c.
 */
#include "client/pick.h"
#include "client/read_job.h"
#include "common/rpc/methods.h"
#include "common/rpc/peer_private.h"
#include "tests/sim/tails_bed.h"

/* Chunks of blocks two of which share a server. */
static unsigned crowded_chunks(struct bed *b, unsigned number)
{
	unsigned crowded = 0;
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.path = path};
	run_op(b, 0, CLIENT_INSPECT);
	for (uint64_t n = 0; n < b->op.count; n++)
		crowded += b->op.chunks[n].crowded;
	mem_free(b->op.chunks);
	return crowded;
}

static uint32_t slow_disk(struct bed *b)
{
	char name[16];
	size_t pos = 0;
	uint64_t key;
	void *value;

	snprintf(name, sizeof(name), "chunkd-%u", (unsigned)SLOW);
	while (map_next(&client_of(b, 0)->disks.disks, &pos, &key, &value))
		if (!strcmp(((struct disks_disk *)value)->server->name, name))
			return (uint32_t)key;
	return 0;
}

/* A disk that has no room for a chunk is one that new blocks go past for a while. Its server is no suspect. */
START_TEST(test_no_room_is_no_failure)
{
	struct bed *b = bed_new(7, 1);
	struct disks *disks = &client_of(b, 0)->disks;
	struct io *host = b->cluster->nodes[SLOW].io;
	uint64_t total, left;
	uint32_t disk, avoided[4];
	int fd;

	/* It has no segment yet, and metad hears a moment late that none can be made any more. */
	ck_assert_int_eq(io_disk_space(host, "/", &total, &left), 0);
	ck_assert_int_eq(io_open(host, "/in-the-way", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	ck_assert_int_eq(io_allocate(host, fd, 0, left - (1 << 20)), 0);
	for (unsigned i = 0; i < 10 && !disks_avoid_list(disks, UINT64_MAX, avoided, 4); i++)
		put(b, 0, i);
	disk = slow_disk(b);
	ck_assert(disks_without_room(disks, disk, UINT64_MAX));
	ck_assert_uint_eq(disks_avoid_list(disks, UINT64_MAX, avoided, 4), 1);
	ck_assert_uint_eq(avoided[0], disk);
	ck_assert(!disks_suspect(disks, disk) && !disks_avoided(disks, disk));
	io_close(host, fd);
	pass(b, DISKS_NO_ROOM_NS);
	ck_assert_uint_eq(disks_avoid_list(disks, UINT64_MAX, avoided, 4), 0);
	cluster_free(b->cluster);
}
END_TEST

/*
 * All spares lie with servers that have a chunk of the block. One that does not answer for a while is waited for, behind the commit if all others
 * are there; the place of two that are gone is taken in the end.
 */
START_TEST(test_silent_servers_and_no_fresh_domain)
{
	struct bed *b = bed_new_disks(6, 1, 2);
	struct client *c = client_of(b, 0);
	uint64_t took;

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10); /* all are connected */
	reach(b, SLOW, 1, false);
	took = put(b, 0, 0);
	ck_assert_msg(took < 5 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	pass(b, 4 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 1);
	reach(b, SLOW, 1, true);
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 0, 1), 0);
	ck_assert_uint_eq(crowded_chunks(b, 0), 0);
	reach(b, SLOW, 1, false);
	put(b, 0, 1);
	pass(b, 30 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 0); /* it is kept no longer: repair's */
	reach(b, SLOW, 1, true);
	pass(b, 5 * CLUSTER_S);
	reach(b, SLOW, 2, false);
	took = put(b, 0, 2);
	ck_assert_msg(took > 10 * CLUSTER_S && took < 12 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	reach(b, SLOW, 2, true);
	ck_assert_uint_gt(crowded_chunks(b, 2), 0); /* and repair takes them apart again */
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 2, 1), 0);
}
END_TEST

/* One of three does not answer for a while, and nobody else may have its chunks, which the block needs. */
START_TEST(test_a_starved_server_and_no_spare)
{
	struct bed *b = bed_new_disks(3, 1, 2);
	struct client *c = client_of(b, 0);

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10); /* all are connected */
	reach(b, SLOW, 1, false);
	b->op = (struct client_op){.path = "/f0", .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){
		.file = b->op.ret_file, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_WRITE);
	start_op(b, 0, CLIENT_CLOSE);
	pass(b, 9500 * CLUSTER_MS);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	reach(b, SLOW, 1, true);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	pass(b, 2 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 0, 1), 0);
}
END_TEST

/* One of three is gone: no allocation can do without it, and it is not given the same time again by each. */
START_TEST(test_a_gone_server_and_no_spare)
{
	struct bed *b = bed_new_disks(3, 1, 2);
	struct client *c = client_of(b, 0);
	uint64_t start;

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10);
	reach(b, SLOW, 1, false);
	start = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.path = "/f0", .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){
		.file = b->op.ret_file, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_WRITE);
	start_op(b, 0, CLIENT_CLOSE);
	sim_run(b->cluster->sim, is_done, b, start + 60 * CLUSTER_S);
	ck_assert(b->done);
	ck_assert_int_eq(b->op.err.code, ERR_TOO_FEW_CHUNKS);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start > 10 * CLUSTER_S && start < 20 * CLUSTER_S, "%llu ms", (unsigned long long)start / 1000000);
}
END_TEST

/* All have just started, and metad has not told them yet whom to believe. */
START_TEST(test_a_get_of_servers_that_are_not_ready)
{
	struct bed *b = bed_new(6, 1);
	struct io *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	struct client_file *f;

	client_of(b, 0)->timeout_ns = 15 * CLUSTER_S;
	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++) {
		sim_cut(b->cluster->nodes[i].io, metad_io);
		restart(b, i);
	}
	pass(b, 5 * CLUSTER_S); /* they are suspects no more */
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	pass(b, 8 * CLUSTER_S);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++)
		sim_heal(b->cluster->nodes[i].io, metad_io);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	ck_assert(memcmp(b->data, b->back, FILE_BYTES) == 0);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

/* They are busy, and fall silent then: the read takes no longer than one call may. */
START_TEST(test_a_get_of_busy_servers_that_fall_silent)
{
	struct bed *b = bed_new(6, 1);
	struct io *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	uint64_t start_ns, took_ns;
	struct client_file *f;

	client_of(b, 0)->timeout_ns = 16 * CLUSTER_S;
	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++) {
		sim_cut(b->cluster->nodes[i].io, metad_io);
		restart(b, i);
	}
	pass(b, 5 * CLUSTER_S);
	start_ns = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	pass(b, 10 * CLUSTER_S);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	reach(b, CLUSTER_CHUNKD, 6, false);
	until(b, is_done, b);
	took_ns = sim_now_ns(b->cluster->sim) - start_ns;
	ck_assert_int_ne(b->op.err.code, 0);
	ck_assert_msg(took_ns < 17 * CLUSTER_S, "%llu ms", (unsigned long long)took_ns / 1000000);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	cluster_free(b->cluster);
}
END_TEST

/* The caller has no patience: that they did not answer in that time says nothing about servers. */
START_TEST(test_a_get_without_time)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	size_t pos = 0;
	uint64_t disk;
	struct client_file *f;
	void *value;

	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	c->timeout_ns = CLUSTER_S / 2;
	reach(b, CLUSTER_CHUNKD, 6, false);
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	until(b, is_done, b);
	ck_assert_int_ne(b->op.err.code, 0);
	reach(b, CLUSTER_CHUNKD, 6, true);
	while (map_next(&c->disks.disks, &pos, &disk, &value))
		ck_assert_msg(!disks_suspect(&c->disks, (uint32_t)disk), "disk %u is taken for silent", (unsigned)disk);
	c->timeout_ns = 15 * CLUSTER_S;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_READ);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	cluster_free(b->cluster);
}
END_TEST

/* The node of the server that has chunk `index` of the file's only block. */
static unsigned node_of_chunk(struct bed *b, unsigned number, unsigned index)
{
	unsigned node = 0;
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.path = path};
	run_op(b, 0, CLIENT_INSPECT);
	for (uint64_t n = 0; n < b->op.count; n++)
		if (b->op.chunks[n].index == index)
			ck_assert_int_eq(sscanf(b->op.chunks[n].server_name, "chunkd-%u", &node), 1);
	mem_free(b->op.chunks);
	ck_assert_uint_gt(node, 0);
	return CLUSTER_CHUNKD + node - 1;
}

/* Two servers do not answer, no connection breaks, and what may be read twice is used up. */
START_TEST(test_gets_with_silent_servers)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t took;

	longest(b, put, 0, 4);
	longest(b, get, 0, 4);
	c->timeout_ns = 15 * CLUSTER_S;
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	reach(b, SLOW, 2, false);
	took = longest(b, get, 0, 4);
	ck_assert_msg(took < 8 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	ck_assert_uint_eq(c->bytes_hedged, 2 * PICK_HEDGE_FREE_BYTES); /* there was no choice */
}
END_TEST

struct middle {
	struct client *client;
	unsigned node; /* becomes that of a server some of whose bytes are here, and not all */
};

static bool is_amid_a_fetch(void *ctx)
{
	struct middle *m = ctx;

	for (uint32_t disk = 1; disk <= CLUSTER_CHUNKDS_MAX; disk++) {
		const struct disks_disk *d = disks_get(&m->client->disks, disk);

		if (!d || !d->server->peer)
			continue;
		LIST_FOREACH(it, &d->server->peer->conns)
			LIST_FOREACH(jt, &LIST_ENTRY(it, struct peer_conn, link)->calls) {
				const struct rpc_call *call = LIST_ENTRY(jt, struct rpc_call, link);
				const struct read_fetch *f = CONTAINER_OF(call, struct read_fetch, call);

				if (call->method != &rpc_chunkd_get || f->next == 0 || f->next == f->count)
					continue;
				ck_assert_int_eq(sscanf(d->server->name, "chunkd-%u", &m->node), 1);
				m->node += CLUSTER_CHUNKD - 1;
				return true;
			}
	}
	return false;
}

/* It begins to answer, and falls silent; what may be read twice is used up. */
START_TEST(test_a_server_falls_silent_amid_a_get)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct middle m = {.client = c};
	uint64_t start;

	put(b, 0, 0);
	get(b, 0, 0);
	c->timeout_ns = 15 * CLUSTER_S;
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){.file = b->op.ret_file, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	until(b, is_amid_a_fetch, &m);
	start = sim_now_ns(b->cluster->sim);
	reach(b, m.node, 1, false);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	ck_assert(memcmp(b->data, b->back, FILE_BYTES) == 0);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start < 5 * CLUSTER_S, "%llu ms", (unsigned long long)start / 1000000);
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

/* It answers nothing for a while but that it is there: it is not asked that without end. */
START_TEST(test_a_stalled_server_is_asked_seldom)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	unsigned node;

	put(b, 0, 0);
	get(b, 0, 0);
	node = node_of_chunk(b, 0, 0);
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	sim_disk_stall(b->cluster->nodes[node].io, 10 * CLUSTER_S);
	get(b, 0, 0);
	ck_assert_uint_ge(c->disks.checked, 2);
	ck_assert_uint_le(c->disks.checked, 10);
	ck_assert_uint_eq(disks_avoid_list(&c->disks, UINT64_MAX, (uint32_t[4]){0}, 4), 0);
}
END_TEST

/* What is rebuilt is checked by lists that each parity chunk has. */
START_TEST(test_lists_of_a_silent_server)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	unsigned lost, silent;
	uint64_t took;

	longest(b, put, 0, 4);
	longest(b, get, 0, 4);
	c->timeout_ns = 15 * CLUSTER_S;
	lost = node_of_chunk(b, 0, 0);
	silent = node_of_chunk(b, 0, 4);
	cluster_crash(b->cluster, lost);
	reach(b, silent, 1, false);
	took = get(b, 0, 0);
	ck_assert_msg(took < CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
}
END_TEST

START_TEST(test_puts_go_round_a_slow_disk)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t well = longest(b, put, 0, 40), ill;
	unsigned left;

	slow_down(b, FACTOR);
	longest(b, put, 100, 20); /* to notice */
	ill = longest(b, put, 200, 150);
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(c->disks.slowed, 1);
	ck_assert_uint_ge(c->disks.probed, 1); /* a hundredth of the blocks goes there all the same, */
	pass(b, 10 * CLUSTER_S);
	ck_assert_uint_ge(c->chunks_added, 1); /* is not waited for, and is whole in the end: added, or, */
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
	left = missing_chunks(b, 100, 20) + missing_chunks(b, 200, 150); /* where there was no memory to keep it, */
	ck_assert_uint_lt(left, c->chunks_added);
	sim_disk_slow(b->cluster->nodes[SLOW].io, 1);
	pass(b, REPAIRED_NS); /* it is rebuilt */
	ck_assert_uint_eq(missing_chunks(b, 100, 20) + missing_chunks(b, 200, 150), 0);
}
END_TEST

START_TEST(test_gets_go_round_a_slow_disk)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t well, ill;

	longest(b, put, 0, 60);
	well = longest(b, get, 0, 60);
	slow_down(b, FACTOR);
	longest(b, get, 0, 20);
	ck_assert_uint_ge(c->fetches_hedged, 1); /* before it was known: rebuilt from the others */
	ck_assert_uint_le(c->bytes_hedged, PICK_HEDGE_FREE_BYTES + c->bytes_read / 10);
	ill = longest(b, get, 0, 60);
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(c->disks.slowed, 1);
	ck_assert_uint_ge(c->disks.probed, 1);
	/* It recovers: probes notice. */
	slow_down(b, 1);
	for (int i = 0; i < 600 && disks_slow_list(&c->disks, (uint32_t[4]){0}, 4) > 0; i++)
		get(b, 0, (unsigned)i % 60);
	ck_assert_uint_eq(disks_slow_list(&c->disks, (uint32_t[4]){0}, 4), 0);
}
END_TEST

START_TEST(test_the_news_is_shared)
{
	struct bed *b = bed_new(6, 2);
	struct client *second = client_of(b, 1);
	uint64_t well = longest(b, put, 0, 30), ill = 0;

	slow_down(b, FACTOR);
	longest(b, put, 100, 40);
	ck_assert_uint_eq(client_of(b, 0)->disks.slowed, 1);
	/* It has never met the slow disk, and need not to know it: but for a probe, for which it does not wait. */
	for (unsigned i = 0; i < 20; i++) {
		uint64_t took = put(b, 1, 200 + i);

		ill = took > ill ? took : ill;
		put(b, 0, 300 + i); /* who knows goes on saying so */
	}
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(second->chunks_left, 0);
	ck_assert_uint_eq(second->disks.slowed, 0);
	/* Its word ends when nobody repeats it. */
	slow_down(b, 1);
	pass(b, 20 * CLUSTER_S);
	put(b, 1, 400);
	ck_assert_uint_eq(disks_avoid_list(&second->disks, UINT64_MAX, (uint32_t[4]){0}, 4), 0);
}
END_TEST

/*
 * Checksums of a data chunk lie in the parity chunks' trailers. With those damaged, what is rebuilt cannot be checked: the chunk itself is
 * there, on a disk that is avoided for being slow.
 */
START_TEST(test_a_slow_chunk_that_nobody_vouches_for)
{
	struct bed *b = bed_new(6, 1);
	char path[32], slow[16];
	unsigned on_slow = 0;

	longest(b, put, 0, 8);
	snprintf(slow, sizeof(slow), "chunkd-%u", SLOW - CLUSTER_CHUNKD + 1);
	for (unsigned i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		b->op = (struct client_op){.path = path};
		run_op(b, 0, CLIENT_INSPECT);
		for (uint64_t n = 0; n < b->op.count; n++) {
			const struct cr_chunk_info *c = &b->op.chunks[n];
			unsigned node;

			on_slow += c->index < 4 && strcmp(c->server_name, slow) == 0;
			if (c->index < 4)
				continue;
			ck_assert_int_eq(sscanf(c->server_name, "chunkd-%u", &node), 1);
			ck_assert_int_eq(sim_flip_bit(b->cluster->nodes[CLUSTER_CHUNKD + node - 1].io, c->segment,
						 c->trailer_offset, 3),
				0);
		}
		mem_free(b->op.chunks);
	}
	ck_assert_uint_gt(on_slow, 0);
	slow_down(b, FACTOR);
	longest(b, put, 100, 40);
	ck_assert_uint_eq(client_of(b, 0)->disks.slowed, 1);
	for (unsigned i = 0; i < 8; i++)
		get(b, 0, i);
}
END_TEST

UNIT_MAIN("tails", test_no_room_is_no_failure, test_silent_servers_and_no_fresh_domain,
	test_a_starved_server_and_no_spare, test_a_gone_server_and_no_spare, test_a_get_of_servers_that_are_not_ready,
	test_a_get_of_busy_servers_that_fall_silent, test_a_get_without_time, test_gets_with_silent_servers,
	test_a_server_falls_silent_amid_a_get, test_a_stalled_server_is_asked_seldom, test_lists_of_a_silent_server,
	test_puts_go_round_a_slow_disk, test_gets_go_round_a_slow_disk, test_the_news_is_shared,
	test_a_slow_chunk_that_nobody_vouches_for)
