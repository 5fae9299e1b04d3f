/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that are late, as their servers stall: a spare is written elsewhere, or they are added after the commit; what they lie in is the caller's until then. */
#include "client/write.h"
#include "common/rpc/methods.h"
#include "tests/sim/tails_bed.h"

START_TEST(test_a_stalled_put_goes_to_a_fresh_domain)
{
	struct bed *b = bed_new(8, 1);
	struct client *c = client_of(b, 0);
	uint64_t most = 0;

	longest(b, put, 0, 20); /* five in a hundred may be left: of these */
	for (unsigned i = 0; i < 8; i++) {
		uint64_t took;

		sim_disk_stall(b->cluster->nodes[CLUSTER_CHUNKD + i].io, 3 * CLUSTER_S);
		took = put(b, 0, 100 + i);
		most = took > most ? took : most;
		pass(b, 5 * CLUSTER_S);
	}
	ck_assert_msg(most < CLUSTER_S, "a put took %llu ms", (unsigned long long)most / 1000000);
	ck_assert_uint_ge(c->chunks_replaced, 4); /* six of eight servers have a chunk */
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(missing_chunks(b, 100, 8), 0);
}
END_TEST

START_TEST(test_a_stalled_put_leaves_a_chunk_and_adds_it)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t took;

	longest(b, put, 0, 20);
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	took = put(b, 0, 100);
	ck_assert_msg(
		took >= 100 * CLUSTER_MS && took < 400 * CLUSTER_MS, "%llu ms", (unsigned long long)took / 1000000);
	ck_assert_uint_eq(c->chunks_left, 1); /* no domain is unused: it went on without */
	ck_assert_uint_eq(c->late_blocks, 1); /* and fsync and close did not wait */
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 1);
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(c->chunks_added, 1);
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 0);
}
END_TEST

/* Nanoseconds of a put out of the caller's own memory, which is the caller's again, and changes, as soon as the write is answered. */
static uint64_t put_in_place(struct bed *b, uint8_t *mine, size_t len, unsigned number)
{
	uint64_t start = sim_now_ns(b->cluster->sim);
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	for (size_t i = 0; i < len; i++)
		mine[i] = (uint8_t)(i * 31 + i / 251 + number);
	b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){.file = b->op.ret_file, .buf = mine, .len = len};
	run_op(b, 0, CLIENT_WRITE);
	memset(mine, 0xee, len);
	run_op(b, 0, CLIENT_CLOSE);
	return sim_now_ns(b->cluster->sim) - start;
}

/* One server after the other hangs: four of them have data of the block, and these lie in the caller's memory. */
START_TEST(test_what_is_late_is_added_out_of_the_callers_memory)
{
	static uint8_t mine[BLOCK_BYTES];
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);

	longest(b, put, 0, 150); /* five in a hundred may be left: of these */
	for (unsigned i = 0; i < 6; i++) {
		uint64_t took;

		sim_disk_stall(b->cluster->nodes[CLUSTER_CHUNKD + i].io, 3 * CLUSTER_S);
		took = put_in_place(b, mine, sizeof(mine), 200 + i);
		ck_assert_msg(took < CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
		pass(b, 5 * CLUSTER_S);
	}
	ck_assert_uint_eq(c->chunks_added, 6);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
	ck_assert_uint_eq(missing_chunks(b, 200, 6), 0);
}
END_TEST

/* Five servers, of which one has two chunks of each block: without a sixth chunk that one could not be lost. */
START_TEST(test_what_is_late_of_a_crowded_block_goes_elsewhere)
{
	struct bed *b = bed_new_disks(5, 1, 2);
	struct client *c = client_of(b, 0);
	unsigned moved = 0;

	longest(b, put, 0, 60);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t replaced = c->chunks_replaced, took;

		sim_disk_stall(b->cluster->nodes[CLUSTER_CHUNKD + i].io, 3 * CLUSTER_S);
		took = put(b, 0, 100 + i);
		ck_assert_msg(took < 3500 * CLUSTER_MS, "%llu ms", (unsigned long long)took / 1000000);
		ck_assert_uint_eq(exposed_files(b, 100 + i, 1), 0);
		if (c->chunks_replaced > replaced && took < 2 * CLUSTER_S)
			moved++;
		pass(b, 5 * CLUSTER_S);
	}
	ck_assert_uint_ge(moved, 1);
	ck_assert_uint_eq(c->chunks_left, 0);
}
END_TEST

static unsigned writes_left, late_seen;

/* The memory is the caller's again: nothing may be on its way out of it. */
static void in_place_done(struct client_op *op)
{
	ck_assert_msg(op->err.code == 0, "%s", op->err.text);
	LIST_FOREACH(it, &op->file->write->blocks)
		ck_assert(!write_block_borrows(LIST_ENTRY(it, struct write_block, link)));
	late_seen += ((const struct client *)op->user)->late_blocks;
	writes_left--;
}

static bool all_written(void *ctx)
{
	(void)ctx;
	return writes_left == 0;
}

/* So many files at once that their chunks fill the way to a server that is not reached: the last ones do not leave the caller's memory. */
START_TEST(test_what_leaves_the_callers_memory_is_waited_for)
{
	static uint8_t mine[BLOCK_BYTES];
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_op ops[WRITE_LATE_BLOCKS + 4];

	c->pool.max_pages *=
		WRITE_LATE_BLOCKS; /* memory for all that is late: cells are small here, and pages are not */
	longest(b, put, 0, 100);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		char path[32];

		snprintf(path, sizeof(path), "/in-place-%u", i);
		b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
		run_op(b, 0, CLIENT_OPEN);
		ops[i] = (struct client_op){.kind = CLIENT_WRITE,
			.done = in_place_done,
			.file = b->op.ret_file,
			.buf = mine,
			.len = BLOCK_BYTES,
			.user = c};
	}
	sim_cut(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[SLOW].io);
	late_seen = 0;
	writes_left = ARRAY_COUNT(ops);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++)
		client_start(c, &ops[i]);
	ck_assert(sim_run(b->cluster->sim, all_written, NULL, sim_now_ns(b->cluster->sim) + OP_LIMIT_NS));
	ck_assert_uint_ge(late_seen, 1);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		b->op = (struct client_op){.file = ops[i].file};
		run_op(b, 0, CLIENT_CLOSE);
	}
	sim_heal(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[SLOW].io);
	pass(b, 40 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
}
END_TEST

/* ---- commits that meet late chunks ---- */

static struct client_file *open_file(struct bed *b, const char *path)
{
	b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	return b->op.ret_file;
}

static void append(struct bed *b, struct client_file *f)
{
	b->op = (struct client_op){.file = f, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	b->op.offset = f->attr.size;
	run_op(b, 0, CLIENT_WRITE);
}

static void fsync_file(struct bed *b, struct client_file *f)
{
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_FSYNC);
}

static struct write_block *first_block(const struct client_file *f)
{
	return LIST_ENTRY(f->write->blocks.next, struct write_block, link);
}

static bool is_asking(void *ctx)
{
	const struct client_file *f = ctx;

	return f->write->commit && first_block(f)->state == WRITE_COMMITTING;
}

static bool is_answered(void *ctx)
{
	return !((const struct client_file *)ctx)->write->commit;
}

/* Disks that were found slow, and how many slow requests in a row were noted of the one with the most. */
static unsigned slow_disks(struct bed *b, unsigned *ret_most)
{
	struct disks *disks = &client_of(b, 0)->disks;
	unsigned count = 0;

	*ret_most = 0;
	for (unsigned id = 1; id <= 6; id++) {
		const struct pace *p = &disks_get(disks, id)->pace;

		count += p->slow;
		*ret_most = p->slow_in_row > *ret_most ? p->slow_in_row : *ret_most;
	}
	return count;
}

/* Three servers with two chunks each: nothing else will do than to wait. That the disks are slow is noted meanwhile, once a second. */
START_TEST(test_what_is_late_of_three_servers_is_waited_for)
{
	struct bed *b = bed_new_disks(3, 1, 2);
	struct client *c = client_of(b, 0);
	struct client_file *f;
	unsigned most;

	longest(b, put, 0, 20);
	ck_assert_uint_eq(slow_disks(b, &most), 0);
	f = open_file(b, "/f100");
	sim_disk_stall(b->cluster->nodes[SLOW].io, 4 * CLUSTER_S);
	append(b, f);
	b->op = (struct client_op){.file = f};
	start_op(b, 0, CLIENT_FSYNC);
	pass(b, 900 * CLUSTER_MS);
	ck_assert_uint_eq(slow_disks(b, &most), 0);
	ck_assert_uint_eq(most, 0);
	pass(b, 2600 * CLUSTER_MS);
	ck_assert(!b->done);
	ck_assert_uint_eq(slow_disks(b, &most), 2);
	ck_assert_uint_ge(most, 2);
	ck_assert_uint_le(most, 3);
	until(b, is_done, b);
	ck_assert_uint_eq(c->chunks_left, 0);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 0);
}
END_TEST

static uint64_t put_short(struct bed *b, unsigned number)
{
	uint64_t start = sim_now_ns(b->cluster->sim);
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.file = open_file(b, path), .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = 8000};
	run_op(b, 0, CLIENT_WRITE);
	run_op(b, 0, CLIENT_CLOSE);
	return sim_now_ns(b->cluster->sim) - start;
}

/* Three copies on two servers of which one is known to be slow: where nothing would lie there, it is tried after all. */
START_TEST(test_a_slow_server_is_tried_where_its_chunk_is_needed)
{
	struct bed *b = bed_new_policy(2, 1, 1, "rs-1-2");
	struct client *c = client_of(b, 0);

	longest(b, put, 0, 10);
	for (unsigned i = 0; i < 30; i++) {
		for (unsigned id = 1; id <= 2; id++)
			((struct disks_disk *)disks_get(&c->disks, id))->pace =
				(struct pace){.slow = id == 1 + i % 2, .probed_ns = sim_now_ns(b->cluster->sim)};
		put_short(b, 100 + i);
		ck_assert_uint_eq(exposed_files(b, 100 + i, 1), 0);
	}
}
END_TEST

/* Of three copies on two servers one of which is lost there is nothing better than two on the other: that is no reason to refuse them, or to wait. */
START_TEST(test_what_cannot_be_better_is_written)
{
	struct bed *b = bed_new_policy(2, 1, 1, "rs-1-2");

	longest(b, put, 0, 10);
	for (unsigned i = 0; i < 2; i++) {
		cluster_crash(b->cluster, CLUSTER_CHUNKD + i);
		for (unsigned j = 0; j < 3; j++)
			ck_assert_uint_lt(put_short(b, 100 + 3 * i + j), CLUSTER_S);
		ck_assert_uint_eq(exposed_files(b, 100 + 3 * i, 3), 3);
		cluster_start(b->cluster, CLUSTER_CHUNKD + i);
		until(b, all_registered, b->cluster);
		pass(b, 60 * CLUSTER_S);
	}
}
END_TEST

/* A server is lost, and another one late: what is late does not go to a lost one's spare, it is waited for. */
START_TEST(test_a_lost_and_a_late_server_expose_nothing)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	unsigned waited = 0;

	longest(b, put, 0, 10);
	for (unsigned i = 0; i < 6; i++) {
		unsigned lost = CLUSTER_CHUNKD + i, late = CLUSTER_CHUNKD + (i + 3) % 6;
		uint64_t took, replaced = c->chunks_replaced;

		cluster_crash(b->cluster, lost);
		sim_disk_stall(b->cluster->nodes[late].io, 3 * CLUSTER_S);
		took = put(b, 0, 100 + i);
		if (took >= 3 * CLUSTER_S) {
			waited++;
			ck_assert_uint_eq(c->chunks_replaced, replaced);
		}
		ck_assert_uint_eq(exposed_files(b, 100 + i, 1), 0);
		pass(b, 5 * CLUSTER_S);
		cluster_start(b->cluster, lost);
		until(b, all_registered, b->cluster);
		pass(b, 60 * CLUSTER_S);
	}
	ck_assert_uint_ge(waited, 1); /* where its spares were of that server and of a used one */
}
END_TEST

/* The late block, and the last of two others. */
static bool late_and_other_ready(void *ctx)
{
	const struct client_file *f = ctx;
	const struct write_block *last = LIST_ENTRY(f->write->blocks.prev, struct write_block, link);

	return first_block(f)->late && first_block(f)->state == WRITE_READY && last->state == WRITE_READY &&
		last->link.prev != &first_block(f)->link;
}

/* Its receipt is not in the request that is under way. */
START_TEST(test_what_comes_during_the_commit_is_added)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_file *f;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	sim_disk_stall(b->cluster->nodes[CLUSTER_METAD].io, 6 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->chunks_added, 0);
	ck_assert_uint_eq(c->late_blocks, 1);
	pass(b, CLUSTER_S);
	ck_assert_uint_eq(c->chunks_added, 1);
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(c->late_blocks, 0);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 0);
}
END_TEST

/* What a late block lacks when its commit was answered is the store's matter: nobody waits for another receipt. */
START_TEST(test_a_late_receipt_is_not_renewed)
{
	struct bed *b = bed_new(6, 1);
	struct io *client_io = b->cluster->nodes[b->cluster->first_client].io;
	struct io *slow_io = b->cluster->nodes[SLOW].io, *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	struct client *c = client_of(b, 0);
	struct client_file *f;
	uint64_t start;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(slow_io, 3 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->late_blocks, 1);
	sim_cut(client_io, metad_io);
	until(b, is_asking, f);
	restart(b, SLOW); /* its disk has a new generation when the receipt arrives */
	until(b, all_registered, b->cluster);
	sim_net_delay(slow_io, 3 * CLUSTER_S);
	for (uint8_t i = 0; i < 6;
		i++) { /* as if other requests had found it quick again: one that is known to be slow is left at once */
		const struct write_chunk *k = &first_block(f)->chunks[i];

		if (k->was_left)
			((struct disks_disk *)disks_get(&c->disks, k->target.disk))->pace = (struct pace){0};
	}
	sim_heal(client_io, metad_io);
	until(b, is_answered, f);
	ck_assert_uint_eq(c->chunks_added, 0);
	start = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start < 50 * CLUSTER_MS, "close took %llu ms", (unsigned long long)start / 1000000);
	ck_assert_uint_eq(c->late_blocks, 0);
}
END_TEST

/* A block that is part of the file is not tried again with others that are not. */
static bool is_committing(void *arg)
{
	const struct client_file *f = arg;

	return f->write->commit;
}

START_TEST(test_a_late_block_does_not_go_round_with_others)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_op ops[4];
	struct client_file *f;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->late_blocks, 1);
	pass(b, 2500 * CLUSTER_MS);
	/* One commit hangs; behind it the late block and another one get ready, whose receipts count no more. */
	sim_disk_stall(b->cluster->nodes[CLUSTER_METAD].io, 6 * CLUSTER_S);
	writes_left = ARRAY_COUNT(ops);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		ops[i] = (struct client_op){.kind = i % 2 ? CLIENT_FSYNC : CLIENT_WRITE, .file = f};
		ops[i].done = in_place_done;
		ops[i].user = c;
		if (i % 2 == 0) {
			ops[i].flags = CLIENT_WRITE_COPY;
			ops[i].buf = b->data;
			ops[i].len = FILE_BYTES;
			ops[i].offset = f->attr.size;
		}
		client_start(c, &ops[i]);
		if (i == 1)
			until(b, is_committing, f);
	}
	until(b, late_and_other_ready, f);
	for (unsigned i = 0; i < 6; i++)
		if (CLUSTER_CHUNKD + i != SLOW)
			restart(b, CLUSTER_CHUNKD + i);
	until(b, is_asking, f);
	ck_assert_uint_ge(c->late_blocks, 1);
	until(b, is_answered, f);
	ck_assert_int_gt(LIST_ENTRY(f->write->blocks.prev, struct write_block, link)->cures, 0);
	pass(b, 10 * CLUSTER_MS);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->chunks_added, 0);
	until(b, all_written, NULL);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

UNIT_MAIN("late", test_a_stalled_put_goes_to_a_fresh_domain, test_a_stalled_put_leaves_a_chunk_and_adds_it,
	test_what_is_late_of_a_crowded_block_goes_elsewhere, test_what_is_late_of_three_servers_is_waited_for,
	test_a_slow_server_is_tried_where_its_chunk_is_needed, test_what_cannot_be_better_is_written,
	test_a_lost_and_a_late_server_expose_nothing, test_what_is_late_is_added_out_of_the_callers_memory,
	test_what_leaves_the_callers_memory_is_waited_for,
	test_what_comes_during_the_commit_is_added, test_a_late_receipt_is_not_renewed,
	test_a_late_block_does_not_go_round_with_others)
