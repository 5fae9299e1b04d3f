/* SPDX-License-Identifier: Apache-2.0 */
/* Who may speak for a server and its disks: registration, heartbeats, the keys that come with them. */
#include "tests/lib/metad_bed.h"
#include "tests/lib/unit.h"

static struct metad_bed bed, *const b = &bed;

START_TEST(test_registration)
{
	static const uint8_t other[32] = "not the secret";

	metad_bed_open_sim(b, 3);
	ck_assert_int_eq(bed_register(b, 1, other), ERR_ACCES);
	ck_assert_ptr_nonnull(strstr(((Craton__RegisterReply *)b->reply)->error, "secret"));
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_uint_eq(b->servers[1].generation, 1);
	ck_assert_uint_eq(b->heartbeat_ms, 1000);
	ck_assert(!bed_beat(b, 1, 0));
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_uint_eq(b->servers[1].generation, 2);
	ck_assert(!bed_beat(b, 1, 0));
	b->servers[1].generation = 1; /* an old image of it */
	ck_assert(bed_beat(b, 1, 0));
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), ERR_GENERATION);
	ck_assert_ptr_nonnull(strstr(((Craton__RegisterReply *)b->reply)->error, "old image"));
	b->servers[2].disk = 77;
	ck_assert_int_eq(bed_register(b, 2, b->options.secret), ERR_WRONG_CLUSTER);
	ck_assert_ptr_nonnull(strstr(((Craton__RegisterReply *)b->reply)->error, "do not empty it"));
	ck_assert_uint_eq(bed_refused(b, "secret"), 1);
	ck_assert_uint_eq(bed_refused(b, "registration"), 2);
	ck_assert(bed_has_reason(bed_status(b), "server-refused"));
	metad_bed_sleep(b, 121 * 1000);
	ck_assert(!bed_has_reason(bed_status(b), "server-refused"));
	metad_bed_close(b);
}
END_TEST

/* What ends metad is no refusal: a server that is told a text waits for a person to act. */
START_TEST(test_an_end_is_no_refusal)
{
	metad_bed_open_sim(b, 17);
	bed_register_all(b, 1);
	metad_bed_sleep(b, 1000); /* nothing else is to be written */
	sim_fault_after(b->server_io, SIM_FAULT_WRITE, 1, ERR_IO);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), ERR_IO);
	ck_assert_str_eq(((Craton__RegisterReply *)b->reply)->error, "");
	ck_assert_int_eq(b->fatal, ERR_IO);
	b->fatal = 0;
	metad_bed_close(b);
}
END_TEST

/* A disk's number, generation and even its server's uuid are no secrets; to speak for it takes the cluster's. */
START_TEST(test_nobody_speaks_for_another_ones_disk)
{
	Craton__HeartbeatRequest req = CRATON__HEARTBEAT_REQUEST__INIT;
	Craton__DiskBeat beat = CRATON__DISK_BEAT__INIT, *beats[] = {&beat};
	uint8_t uuid[16] = {2}, mac[32];

	metad_bed_open_sim(b, 13);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	req.server = b->servers[2].server;
	req.server_uuid = bed_bytes(uuid, sizeof(uuid));
	req.disks = beats;
	req.n_disks = 1;
	beat.disk = b->servers[2].disk;
	beat.generation = b->servers[2].generation;
	beat.failed = true;
	ck_assert_int_eq(bed_call(b, &rpc_metad_heartbeat, &req.base), ERR_ACCES);
	req.stopping = true;
	auth_heartbeat((const uint8_t *)"the secret of some other cluster", metad_bed_cluster.bytes, &req, mac);
	req.auth = bed_bytes(mac, sizeof(mac));
	ck_assert_int_eq(bed_call(b, &rpc_metad_heartbeat, &req.base), ERR_ACCES);
	ck_assert_str_eq(bed_status(b)->disks[1]->state, "up");
	ck_assert_uint_eq(bed_refused(b, "secret"), 2);
	metad_bed_close(b);
}
END_TEST

static struct rpc_peer *another_peer(void)
{
	struct rpc_peer_options o = {.addr = metad_addr(b->md),
		.self = {.cluster = metad_bed_cluster, .role = RPC_ROLE_CHUNKD, .name = "copy"},
		.conns = 1};

	return rpc_peer_new(b->client_io, &o);
}

/* Server 1's identity from another address. */
static int register_moved(void)
{
	struct metad_bed_registration g;

	metad_bed_registration(b, 1, b->options.secret, &g);
	strcpy(g.address, "127.0.0.1:9999");
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	return bed_call(b, &rpc_metad_register, &g.req.base);
}

/* Server `i` calls itself by the name of server 1. */
static int register_as_first(uint32_t i)
{
	struct metad_bed_registration g;

	metad_bed_registration(b, i, b->options.secret, &g);
	strcpy(g.name, "chunkd-1");
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	return bed_call(b, &rpc_metad_register, &g.req.base);
}

START_TEST(test_two_servers_of_one_name)
{
	metad_bed_open_sim(b, 16);
	bed_register_all(b, 1);
	ck_assert_int_eq(register_as_first(2), ERR_EXIST);
	ck_assert_ptr_nonnull(strstr(((Craton__RegisterReply *)b->reply)->error, "--name"));
	ck_assert_uint_eq(bed_status(b)->n_servers, 1);
	ck_assert_int_eq(register_as_first(1), 0); /* itself, again */
	metad_bed_sleep(b, 11 * 1000);
	ck_assert_int_eq(register_as_first(2), 0); /* the first one is down: this one replaces it */
	ck_assert_int_eq(register_as_first(1), ERR_EXIST);
	metad_bed_close(b);
}
END_TEST

/* Is a chunk of the block that was just allocated to lie on the disk, or a spare? */
static bool is_chosen(uint32_t disk, bool *ret_crowded)
{
	const Craton__Allocation *a = ((Craton__AllocateReply *)b->reply)->blocks[0];
	bool chosen = false;

	*ret_crowded = a->crowded;
	for (size_t i = 0; i < a->n_targets; i++)
		chosen |= a->targets[i]->disk == disk;
	for (size_t i = 0; i < a->n_spares; i++)
		chosen |= a->spares[i]->disk == disk;
	return chosen;
}

/* It may never be able to write its superblock: it takes no chunks before it has shown that it knows its generation. */
START_TEST(test_a_disk_that_has_not_reported_takes_no_chunks)
{
	enum { SERVERS = 6 };
	uint64_t inode, epoch;
	bool crowded;

	metad_bed_open_sim(b, 17);
	for (uint32_t i = 1; i <= SERVERS; i++)
		ck_assert_int_eq(bed_register(b, i, b->options.secret), 0);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_OVERLOADED); /* it asks again in a moment */
	bed_beat_all(b, SERVERS);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert(is_chosen(1, &crowded) && !crowded);
	metad_bed_restart(b); /* which has heard nobody yet, but knows who was heard */
	ck_assert_int_eq(bed_open_file(b, "g", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert(is_chosen(1, &crowded) && !crowded);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_OVERLOADED); /* rather than crowded */
	metad_bed_sleep(b, 2 * b->heartbeat_ms + 1);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0); /* but not for ever */
	ck_assert(!is_chosen(1, &crowded) && crowded);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0); /* nor again and again, if it registers again and again */
	ck_assert(!is_chosen(1, &crowded) && crowded);
	for (uint64_t ms = 0; ms < 100 * b->heartbeat_ms; ms += b->heartbeat_ms) {
		metad_bed_sleep(b, b->heartbeat_ms);
		for (uint32_t i = 2; i <= SERVERS; i++)
			ck_assert(!bed_beat(b, i, 0));
	}
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_OVERLOADED); /* that one was long ago */
	metad_bed_restart(b);
	ck_assert_int_eq(bed_open_file(b, "h", false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert(!is_chosen(1, &crowded) && crowded);
	ck_assert(!bed_beat(b, 1, 0));
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	ck_assert(is_chosen(1, &crowded) && !crowded);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_copied_server)
{
	struct rpc_peer *original;

	metad_bed_open_sim(b, 14);
	bed_register_all(b, 1);
	bed_beat_all(b, 1);
	original = b->peer;
	b->peer = another_peer();
	ck_assert_int_eq(register_moved(), ERR_EXIST);
	ck_assert_str_eq(bed_status(b)->servers[0]->address, "127.0.0.1:7101");
	ck_assert_uint_eq(bed_status(b)->disks[0]->generation, 1);
	/* from where it was, over a new connection: itself */
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	bed_beat_all(b, 1);
	/* killed, and started again on another port */
	rpc_peer_close(b->peer, metad_bed_set_done, b);
	metad_bed_wait(b);
	metad_bed_sleep(b, 100);
	b->peer = original;
	ck_assert_int_eq(register_moved(), 0);
	ck_assert_str_eq(bed_status(b)->servers[0]->address, "127.0.0.1:9999");
	metad_bed_close(b);
}
END_TEST

/* Where it was left without a word, as by a host that lost its power, the identity is free when it counts as down. */
START_TEST(test_server_moves_after_silence)
{
	struct rpc_peer *original;

	metad_bed_open_sim(b, 15);
	bed_register_all(b, 1);
	original = b->peer;
	b->peer = another_peer();
	ck_assert_int_eq(register_moved(), ERR_EXIST);
	metad_bed_sleep(b, 9000);
	ck_assert_int_eq(register_moved(), ERR_EXIST);
	metad_bed_sleep(b, 2000);
	ck_assert_int_eq(register_moved(), 0);
	rpc_peer_close(original, metad_bed_set_done, b);
	metad_bed_wait(b);
	metad_bed_close(b);
}
END_TEST

static int set(const char *name, const char *value)
{
	Craton__ConfigRequest req = CRATON__CONFIG_REQUEST__INIT;

	req.name = (char *)(uintptr_t)name;
	req.value = (char *)(uintptr_t)value;
	return bed_call(b, &rpc_metad_config, &req.base);
}

/* However long silence is borne, servers speak often: a setting that was made shorter takes nobody for down, neither who has not heard of it nor
 * for a leader that is new. */
START_TEST(test_a_shorter_silence)
{
	metad_bed_open_sim(b, 16);
	ck_assert_int_eq(set("server.dead_after", "1h"), 0);
	ck_assert_int_eq(set("server.down_after", "10m"), 0);
	bed_register_all(b, 1);
	bed_beat_all(b, 1);
	ck_assert_uint_le(b->heartbeat_ms, 1000);
	ck_assert_int_eq(set("server.down_after", "800ms"), 0);
	metad_bed_sleep(b, 1500);
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "up");
	metad_bed_restart(b);
	metad_bed_sleep(b, 1500);
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "up");
	bed_beat_all(b, 1);
	ck_assert_uint_eq(b->heartbeat_ms, 80);
	metad_bed_sleep(b, 700);
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "up");
	metad_bed_sleep(b, 700);
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "down");
	metad_bed_close(b);
}
END_TEST

START_TEST(test_token_keys_roll_by_the_day)
{
	uint8_t first;

	metad_bed_open_sim(b, 11);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_uint_eq(b->token_key_count, 1);
	first = b->token_keys[0].id;
	metad_bed_sleep(b, 24ull * 3600 * 1000 + 1000);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	ck_assert_uint_eq(b->token_key_count, 2);
	ck_assert_uint_eq(b->token_keys[1].id, first);
	metad_bed_close(b);
}
END_TEST

/* A block of a new file, of which each chunk lies on another disk; chunk *ret_index on disk 1. */
static uint64_t make_block(const char *path, uint32_t *ret_index, uint32_t *ret_incarnation)
{
	Craton__AllocateReply *reply;
	uint64_t inode, epoch, block;

	ck_assert_int_eq(bed_open_file(b, path, false, &inode, &epoch), 0);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), 0);
	reply = (Craton__AllocateReply *)b->reply;
	b->reply = NULL;
	block = reply->blocks[0]->block;
	*ret_index = *ret_incarnation = LIMIT_WIDTH;
	for (uint32_t i = 0; i < reply->blocks[0]->n_targets; i++)
		if (reply->blocks[0]->targets[i]->disk == 1) {
			*ret_index = i;
			*ret_incarnation = reply->blocks[0]->targets[i]->incarnation;
		}
	ck_assert_int_eq(bed_commit_one(b, inode, epoch, reply->blocks[0], 0, true, 0), 0);
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	ck_assert_uint_lt(*ret_index, LIMIT_WIDTH);
	return block;
}

static uint32_t given_up_lines;

static void note_given_up(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	if (!strstr(line, "disk-given-up"))
		return;
	ck_assert_int_eq(level, LOG_ERROR);
	ck_assert_ptr_nonnull(strstr(line, "disk=1 "));
	ck_assert_ptr_nonnull(strstr(line, "3 damaged chunks were found on it"));
	given_up_lines++;
}

/*
 * Damage that is confirmed again and again takes the disk out, over registrations of a server whose network was away, and whenever a day
 * begins; the registration after that, as after a repair of the disk, gives it a new chance.
 */
static void beat_for(int hours)
{
	for (int minutes = 0; minutes < hours * 60; minutes += 5) {
		metad_bed_sleep(b, 5 * 60 * 1000);
		bed_beat_all(b, 6);
	}
}

START_TEST(test_a_disk_that_damages)
{
	static const int hours[6] = {[1] = 24, [2] = 23, [3] = 5, [4] = 5}; /* the first three are forgotten, not the others */
	uint64_t block;
	uint32_t index, incarnation;

	metad_bed_open_sim(b, 17);
	bed_register_all(b, 6);
	bed_beat_all(b, 6);
	b->log.write = note_given_up;
	ck_assert_int_eq(set("disk.damage_limit", "3"), 0);
	ck_assert_int_eq(set("server.dead_after", "1h"), 0);
	ck_assert_int_eq(set("server.down_after", "10m"), 0);
	for (int i = 0; i < 6; i++) {
		char path[2] = {(char)('a' + i), 0};

		ck_assert_str_eq(bed_status(b)->disks[0]->state, "up");
		block = make_block(path, &index, &incarnation);
		bed_report(b, 1, block, index, incarnation);
		bed_tell_damaged(b, 1, block, index, incarnation);
		bed_beat_all(b, 6);
		beat_for(hours[i]);
		metad_bed_silence(b, 1000);
		if (i == 3)
			ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
		bed_beat_all(b, 6);
	}
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "failed");
	ck_assert_ptr_nonnull(strstr(bed_status(b)->disks[0]->error, "3 damaged chunks were found on it"));
	ck_assert_uint_eq(given_up_lines, 1);
	ck_assert_int_eq(bed_register(b, 1, b->options.secret), 0);
	metad_bed_silence(b, 5000);
	ck_assert_str_eq(bed_status(b)->disks[0]->state, "up");
	ck_assert_uint_eq(given_up_lines, 1);
	metad_bed_close(b);
}
END_TEST

/* A server whose directory was lost comes back as another one of its name; so does a disk, in its place. */
START_TEST(test_who_is_replaced_is_not_missed)
{
	struct metad_bed_registration g;
	char name[] = "chunkd-1";

	metad_bed_open_sim(b, 19);
	bed_register_all(b, 2);
	bed_beat(b, 1, BED_BEAT_STOPPING);
	ck_assert(bed_has_reason(bed_status(b), "server-down"));
	metad_bed_registration(b, 3, b->options.secret, &g);
	g.req.name = name;
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	ck_assert_int_eq(bed_call(b, &rpc_metad_register, &g.req.base), 0);
	ck_assert(!bed_has_reason(bed_status(b), "server-down"));
	/* the second one's disk */
	ck_assert(!bed_has_reason(bed_status(b), "disk-down"));
	metad_bed_registration(b, 2, b->options.secret, &g);
	g.disk_uuid[0] = 99;
	g.disk.disk = 0;
	g.disk.generation = 0;
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	ck_assert_int_eq(bed_call(b, &rpc_metad_register, &g.req.base), 0);
	ck_assert_uint_eq(bed_status(b)->n_disks, 4);
	ck_assert_str_eq(bed_status(b)->disks[1]->state, "down");
	ck_assert(!bed_has_reason(bed_status(b), "disk-down"));
	metad_bed_close(b);
}
END_TEST

/* Of what others write meanwhile nothing is on the disk that nobody serves. */
START_TEST(test_who_is_replaced_is_not_missed_amid_writes)
{
	struct metad_bed_registration g;
	uint32_t index, incarnation;
	char name[] = "chunkd-7", path[8];

	metad_bed_open_sim(b, 27);
	bed_register_all(b, 7);
	bed_beat_all(b, 7);
	bed_beat(b, 7, BED_BEAT_STOPPING);
	metad_bed_registration(b, 8, b->options.secret, &g);
	g.req.name = name;
	auth_register(b->options.secret, metad_bed_cluster.bytes, &g.req, g.mac);
	ck_assert_int_eq(bed_call(b, &rpc_metad_register, &g.req.base), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "%d", i);
		make_block(path, &index, &incarnation);
		ck_assert(!bed_has_reason(bed_status(b), "server-down"));
	}
	metad_bed_close(b);
}
END_TEST

UNIT_MAIN("handlers_disk", test_registration, test_who_is_replaced_is_not_missed, test_who_is_replaced_is_not_missed_amid_writes, test_an_end_is_no_refusal, test_nobody_speaks_for_another_ones_disk, test_two_servers_of_one_name, test_a_disk_that_has_not_reported_takes_no_chunks,
	test_copied_server, test_server_moves_after_silence, test_a_shorter_silence, test_token_keys_roll_by_the_day,
	test_a_disk_that_damages)
