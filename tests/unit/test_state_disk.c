/* SPDX-License-Identifier: Apache-2.0 */
/* Servers, disks and generations; entries that no replica may guess at; damaged rows. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

static void server(uint8_t uuid, const char *name)
{
	struct state_cmd_register *r = &b->cmd.register_;

	b->cmd.type = STATE_CMD_REGISTER;
	memset(r, 0, sizeof(*r));
	r->uuid.bytes[0] = uuid;
	r->name = slice_of(name, strlen(name));
	r->domain = r->name;
	r->address = slice_of("127.0.0.1:1", 11);
}

static void disk(uint8_t uuid, uint32_t number, uint64_t generation)
{
	struct state_cmd_register *r = &b->cmd.register_;
	struct state_register_disk *d = &r->disks[r->disk_count++];

	d->uuid.bytes[0] = uuid;
	d->disk = number;
	d->generation = generation;
	d->capacity_bytes = 1 << 30;
	d->path = slice_of("/d", 2);
}

/* Server `uuid` with one disk. */
static int one(uint8_t server_uuid, uint8_t disk_uuid, uint32_t number, uint64_t generation)
{
	server(server_uuid, server_uuid == 1 ? "s1" : "s2");
	disk(disk_uuid, number, generation);
	return state_bed_run(b);
}

static void confirm(uint32_t number, uint64_t generation, int code)
{
	b->cmd.type = STATE_CMD_CONFIRM;
	b->cmd.confirm = (struct state_cmd_confirm){.disk = number, .generation = generation};
	ck_assert_int_eq(state_bed_run(b), code);
}

static void down(uint32_t number)
{
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = number;
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* A server that is told another rack each time wears out no more than numbers: one that nothing is in any more is given again. */
START_TEST(test_domains_without_servers_are_given_again)
{
	char domain[16];

	state_bed_open(b);
	for (uint32_t i = 0; i < STATE_SERVERS + 10; i++) {
		server(1, "s1");
		disk(11, i ? 1 : 0, i);
		snprintf(domain, sizeof(domain), "rack-%u", i);
		b->cmd.register_.domain = slice_of(domain, strlen(domain));
		ck_assert_int_eq(state_bed_run(b), 0);
		ck_assert_str_eq(state_domain_at(&b->s, state_server_at(&b->s, 1)->domain)->name, domain);
		ck_assert_uint_eq(state_disk_at(&b->s, 1)->domain, state_server_at(&b->s, 1)->domain);
	}
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_DOMAIN), STATE_SERVERS - 1);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_DOMAIN_NAME), STATE_SERVERS - 1);
	/* and another server in the domain that is there */
	server(2, "s2");
	disk(12, 0, 0);
	b->cmd.register_.domain = slice_of(domain, strlen(domain));
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(state_server_at(&b->s, 2)->domain, state_server_at(&b->s, 1)->domain);
	state_bed_close(b);
}
END_TEST

START_TEST(test_each_registration_a_generation)
{
	state_bed_open(b);
	ck_assert_int_eq(one(1, 11, 0, 0), 0);
	ck_assert_uint_eq(b->res.server, 1);
	ck_assert_uint_eq(b->res.disks[0].disk, 1);
	ck_assert_uint_eq(b->res.disks[0].generation, 1);
	ck_assert(state_disk_counts(&b->s, 1));
	confirm(1, 1, 0);
	ck_assert_int_eq(one(1, 11, 1, 1), 0);
	ck_assert_uint_eq(b->res.disks[0].generation, 2);
	ck_assert_uint_eq(b->res.server, 1);
	/* the answer was lost before the disk stored it: it still says 1, which it has shown to know */
	ck_assert_int_eq(one(1, 11, 1, 1), 0);
	ck_assert_uint_eq(b->res.disks[0].generation, 3);
	confirm(1, 3, 0);
	/* older than what it has shown: an old image */
	ck_assert_int_eq(one(1, 11, 1, 2), ERR_GENERATION);
	ck_assert_int_eq(one(1, 11, 0, 0), ERR_GENERATION);
	ck_assert_int_eq(one(1, 11, 1, 4), ERR_GENERATION); /* from the future */
	ck_assert_uint_eq(state_disk_at(&b->s, 1)->generation, 3);
	confirm(1, 4, ERR_GENERATION);
	confirm(9, 1, ERR_NOENT);
	state_bed_close(b);
}
END_TEST

/* Its server was away, or metad: a disk that failed comes along, and nothing of what is known of it is lost. */
START_TEST(test_failed_disk_registers)
{
	const struct state_disk *row;
	uint64_t out_ms;

	state_bed_open(b);
	ck_assert_int_eq(one(1, 11, 0, 0), 0);
	confirm(1, 1, 0);
	b->cmd.type = STATE_CMD_DISK_FAILED;
	b->cmd.disk_failed = (struct state_cmd_disk_failed){.disk = 1, .generation = 1, .error = slice_of("it hangs", 8)};
	ck_assert_int_eq(state_bed_run(b), 0);
	b->cmd.type = STATE_CMD_TAKE_OUT;
	b->cmd.take_out.disk = 1;
	ck_assert_int_eq(state_bed_run(b), 0);
	out_ms = state_disk_at(&b->s, 1)->out_ms;
	b->time_ms += 1000;
	down(1);
	server(1, "s1");
	disk(11, 1, 1);
	b->cmd.register_.disks[0].failed = true;
	disk(12, 0, 0); /* a new one */
	disk(13, 0, 0);
	b->cmd.register_.disks[2].failed = true;
	ck_assert_int_eq(state_bed_run(b), 0);
	row = state_disk_at(&b->s, 1);
	ck_assert_uint_eq(row->generation, 2);
	ck_assert_uint_eq(row->state, STATE_DISK_FAILED);
	ck_assert(row->out && row->out_ms == out_ms);
	ck_assert_str_eq(row->error, "it hangs");
	ck_assert(!state_disk_counts(&b->s, 1) && state_disk_counts(&b->s, 2) && !state_disk_counts(&b->s, 3));
	ck_assert_uint_eq(state_disk_at(&b->s, 3)->state, STATE_DISK_DOWN);
	/* One that was up. */
	server(1, "s1");
	disk(12, 2, 1);
	b->cmd.register_.disks[0].failed = true;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(state_disk_at(&b->s, 2)->state, STATE_DISK_DOWN);
	ck_assert_uint_eq(state_disk_at(&b->s, 2)->down_ms, b->time_ms);
	/* Opened again: it is good. */
	ck_assert_int_eq(one(1, 11, 1, 2), 0);
	row = state_disk_at(&b->s, 1);
	ck_assert(row->state == STATE_DISK_UP && !row->out && !row->error[0]);
	state_bed_close(b);
}
END_TEST

START_TEST(test_never_stored_number)
{
	state_bed_open(b);
	ck_assert_int_eq(one(1, 11, 0, 0), 0);
	/* killed before its superblock knew its number: by its uuid it is the same disk */
	ck_assert_int_eq(one(1, 11, 0, 0), 0);
	ck_assert_uint_eq(b->res.disks[0].disk, 1);
	ck_assert_uint_eq(b->res.disks[0].generation, 2);
	state_bed_close(b);
}
END_TEST

START_TEST(test_disk_of_another_cluster)
{
	state_bed_open(b);
	ck_assert_int_eq(one(1, 11, 5, 1), ERR_WRONG_CLUSTER);
	ck_assert_ptr_null(state_server_at(&b->s, 1));
	ck_assert_int_eq(one(1, 11, 0, 0), 0);
	ck_assert_int_eq(one(1, 11, 2, 1), ERR_WRONG_CLUSTER);
	/* one bad disk does not keep the others out */
	server(1, "s1");
	disk(11, 1, 1);
	disk(12, 7, 1);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(b->res.disks[0].status, 0);
	ck_assert_int_eq(b->res.disks[1].status, ERR_WRONG_CLUSTER);
	state_bed_close(b);
}
END_TEST

START_TEST(test_same_disk_twice)
{
	state_bed_open(b);
	server(1, "s1");
	disk(11, 0, 0);
	disk(11, 0, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(b->res.disks[1].status, ERR_EXIST);
	ck_assert_uint_eq(b->s.meta.next_disk, 2);
	ck_assert_int_eq(one(2, 11, 1, 1), ERR_EXIST); /* a copy, at another server, while the first one serves */
	down(1);
	ck_assert_int_eq(one(2, 11, 1, 1), 0); /* moved */
	ck_assert_uint_eq(state_disk_at(&b->s, 1)->server, b->res.server);
	confirm(1, 2, 0);
	ck_assert_int_eq(one(1, 11, 1, 1), ERR_GENERATION); /* the original comes back */
	state_bed_close(b);
}
END_TEST

START_TEST(test_states)
{
	state_bed_open(b);
	server(1, "s1");
	disk(11, 0, 0);
	disk(12, 0, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	down(1);
	ck_assert(!state_disk_counts(&b->s, 1));
	ck_assert(!state_disk_counts(&b->s, 2));
	down(1);         /* again */
	server(1, "s1"); /* back with one of its disks */
	disk(11, 1, 1);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(state_disk_counts(&b->s, 1));
	ck_assert(!state_disk_counts(&b->s, 2));
	b->cmd.type = STATE_CMD_DISK_FAILED;
	b->cmd.disk_failed = (struct state_cmd_disk_failed){.disk = 1, .generation = 1, .error = slice_of("EIO", 3)};
	ck_assert_int_eq(state_bed_run(b), ERR_GENERATION); /* of the one before: news of yesterday */
	b->cmd.disk_failed.generation = 2;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(!state_disk_counts(&b->s, 1));
	ck_assert_str_eq(state_disk_at(&b->s, 1)->error, "EIO");
	ck_assert_int_eq(one(1, 11, 1, 2), 0); /* a restart heals what it can */
	ck_assert(state_disk_counts(&b->s, 1));
	ck_assert_str_eq(state_disk_at(&b->s, 1)->error, "");
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = 99;
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_token_keys_roll)
{
	state_bed_open(b);
	ck_assert_uint_eq(b->s.meta.token_keys[0].id, 1);
	ck_assert_uint_eq(b->s.meta.token_keys[1].id, 0);
	for (int i = 2; i <= 256; i++) {
		b->cmd.type = STATE_CMD_TOKEN_ROLL;
		memset(b->cmd.token_roll.salt, i, STATE_SALT_BYTES);
		ck_assert_int_eq(state_bed_run(b), 0);
		ck_assert_uint_eq(b->s.meta.token_keys[0].id, i == 256 ? 1 : i);
		ck_assert_uint_eq(b->s.meta.token_keys[1].id, i - 1);
	}
	state_bed_close(b);
}
END_TEST

/* ---- entries ---- */

static int apply_bytes(const uint8_t *bytes, size_t len, struct err *err)
{
	return state_apply(&b->s, slice_of(bytes, len), NULL, NULL, err);
}

START_TEST(test_unknown_entries_stop_the_replica)
{
	uint8_t bytes[256], copy[256];
	struct state_entry entry = {.cluster_version = STATE_CLUSTER_VERSION, .time_ms = 5, .count = 1};
	struct wcursor w;
	struct err err;

	state_bed_open(b);
	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	state_entry_encode(&entry, bytes);
	b->cmd.type = STATE_CMD_CONFIRM;
	b->cmd.confirm = (struct state_cmd_confirm){.disk = 1, .generation = 1};
	state_cmd_encode(&b->cmd, &w);
	ck_assert_int_eq(apply_bytes(bytes, w.len, &err), 0);

	memcpy(copy, bytes, sizeof(copy));
	copy[0] = 2; /* of another format */
	ck_assert_int_eq(apply_bytes(copy, w.len, &err), ERR_VERSION);
	memcpy(copy, bytes, sizeof(copy));
	copy[2] = 9; /* a later cluster version */
	ck_assert_int_eq(apply_bytes(copy, w.len, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "newer binary"));
	memcpy(copy, bytes, sizeof(copy));
	copy[STATE_ENTRY_HEADER_BYTES] = 200; /* an unknown command */
	ck_assert_int_eq(apply_bytes(copy, w.len, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "type 200"));
	for (size_t len = 0; len < w.len; len++)
		ck_assert_int_eq(apply_bytes(bytes, len, &err), ERR_CORRUPT);
	ck_assert_int_eq(apply_bytes(bytes, w.len + 1, &err), ERR_CORRUPT);
	state_bed_close(b);
}
END_TEST

/* No bytes, however wrong, get past the decoder with more than they hold. */
START_TEST(test_random_entries_do_no_harm)
{
	struct rng rng;
	struct err err;
	int applied = 0;

	rng_init(&rng, 3);
	state_bed_open(b);
	bed_disks(b, 6, 1);
	bed_reserve(b, 10);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	for (int i = 0; i < 20000; i++) {
		struct slice entry = b->log[rng_below(&rng, b->log_count)];
		uint8_t *bytes = mem_alloc(entry.len);
		int code;

		memcpy(bytes, entry.data, entry.len);
		for (uint64_t n = rng_between(&rng, 1, 4); n; n--)
			bytes[rng_below(&rng, entry.len)] = (uint8_t)rng_u64(&rng);
		code = state_apply(&b->s, slice_of(bytes, entry.len), NULL, NULL, &err);
		ck_assert(code == 0 || code == ERR_VERSION || code == ERR_CORRUPT);
		ck_assert_int_eq(b->s.fault.code, 0); /* the rows are as they must be */
		applied += code == 0;
		mem_free(bytes);
	}
	ck_assert_int_gt(applied, 100);
	b->log_count = 0; /* what was applied is in no log */
	state_close(&b->s);
	kv_abandon(b->kv);
	sim_free(b->sim);
}
END_TEST

static void put_disk(const struct state_disk *disk)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_number(&key, STATE_TABLE_DISK, 1);
	kv_put(b->kv, state_key_slice(&key), slice_of(value, state_disk_encode(disk, value)));
	state_close(&b->s);
}

/* Rows that a damaged disk, or a backup that somebody has made, gives: nothing is done with a number that leads nowhere. */
START_TEST(test_rows_that_name_nobody)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_disk disk, bad;
	struct state_server server;
	struct state_key key;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	disk = *state_disk_at(&b->s, 1);
	server = *state_server_at(&b->s, 1);
	bad = disk;
	bad.server = 1u << 30;
	put_disk(&bad);
	ck_assert_int_eq(state_open(&b->s, b->kv), ERR_CORRUPT);
	bad = disk;
	bad.domain = 7;
	put_disk(&bad);
	ck_assert_int_eq(state_open(&b->s, b->kv), ERR_CORRUPT);
	put_disk(&disk);
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	state_key_number(&key, STATE_TABLE_SERVER, STATE_SERVERS);
	kv_put(b->kv, state_key_slice(&key), slice_of(value, state_server_encode(&server, value)));
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), ERR_CORRUPT);
	for (size_t i = 0; i < b->log_count; i++)
		mem_free((void *)(uintptr_t)b->log[i].data);
	state_close(&b->s);
	kv_abandon(b->kv);
	sim_free(b->sim);
}
END_TEST

START_TEST(test_damaged_rows_stop_the_replica)
{
	struct state_cmd_mkdir mkdir = {.at = {.parent = INODE_ROOT, .path = slice_of("x", 1)}};
	struct state_entry entry = {.cluster_version = STATE_CLUSTER_VERSION, .time_ms = 5, .count = 1};
	struct state_key key;
	uint8_t bytes[256];
	struct wcursor w;
	struct err err;

	state_bed_open(b);
	state_key_id(&key, STATE_TABLE_INODE, INODE_ROOT);
	kv_put(b->kv, state_key_slice(&key), slice_of("\1garbage", 8));
	state_close(&b->s); /* which has directories in memory */
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	state_entry_encode(&entry, bytes);
	b->cmd.type = STATE_CMD_MKDIR;
	b->cmd.mkdir = mkdir;
	state_cmd_encode(&b->cmd, &w);
	ck_assert_int_eq(apply_bytes(bytes, w.len, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "inode 1 "));
	ck_assert_int_eq(state_failure(&b->s, &err), ERR_CORRUPT);
	for (size_t i = 0; i < b->log_count; i++)
		mem_free((void *)(uintptr_t)b->log[i].data);
	state_close(&b->s);
	kv_abandon(b->kv);
	sim_free(b->sim);
}
END_TEST

UNIT_MAIN("state_disk", test_domains_without_servers_are_given_again, test_each_registration_a_generation, test_failed_disk_registers,
	test_never_stored_number, test_disk_of_another_cluster, test_same_disk_twice, test_states, test_token_keys_roll,
	test_unknown_entries_stop_the_replica, test_random_entries_do_no_harm, test_rows_that_name_nobody, test_damaged_rows_stop_the_replica)
