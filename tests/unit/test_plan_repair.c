/* SPDX-License-Identifier: Apache-2.0 */
/* What is repaired first, where to, and when everything has to wait: facts in, commands out. */
#include "metad/plan/repair.h"
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;
static struct plan_repair *plan;
static struct rng rng;
static struct place_disk candidates[64];
static uint64_t silent_ms[64], free_bytes, first_block;
static uint32_t damaged[64], given_up;

static uint64_t env_silent(void *ctx, uint32_t server)
{
	(void)ctx;
	return silent_ms[server];
}

static uint64_t env_free(void *ctx, const struct state_disk *disk, uint64_t chunk_bytes)
{
	(void)ctx, (void)disk;
	return free_bytes >= chunk_bytes ? free_bytes : 0;
}

static uint32_t env_damaged(void *ctx, uint32_t disk)
{
	(void)ctx;
	return damaged[disk];
}

static void env_given_up(void *ctx, uint32_t disk)
{
	(void)ctx;
	given_up = disk;
}

/* `blocks` blocks of 16 MiB: chunk i of block j on disk (i + j * step) % disks + 1. */
static void begin(uint32_t disks, uint32_t per_domain, uint32_t blocks, uint32_t step)
{
	struct repair_env env = {
		.silent_ms = env_silent, .free_bytes = env_free, .damaged = env_damaged, .given_up = env_given_up};

	state_bed_open(b);
	bed_disks(b, disks, per_domain);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	first_block = bed_reserve(b, 128);
	for (uint32_t j = 0; j < blocks; j++) {
		struct state_commit_block *cb;

		bed_commit(b, b->res.attr.inode ? b->res.attr.inode : 2, 1, false, 0);
		cb = bed_block(b, first_block + j, (uint64_t)j * 16 * STATE_BED_MIB, 16 * STATE_BED_MIB);
		for (uint8_t i = 0; i < 6; i++)
			cb->receipts[i].disk = (i + j * step) % disks + 1;
		ck_assert_int_eq(state_bed_run(b), 0);
	}
	memset(silent_ms, 0, sizeof(silent_ms));
	free_bytes = 1ull << 40;
	rng_init(&rng, 1);
	plan = MEM_NEW(struct plan_repair);
	plan_repair_init(plan, &env, &rng, candidates);
}

static void finish(void)
{
	mem_free(plan);
	state_bed_close(b);
}

/* The next command that the plan names (in b->cmd), applied or not; 0: it rests. */
static uint16_t next_command(bool apply)
{
	struct plan_facts facts = {.state = &b->s, .now_ms = b->time_ms};

	for (int i = 0; i < 1000; i++) {
		enum plan_next next = plan->plan.step(&plan->plan, &facts, &b->cmd);

		if (next == PLAN_REST)
			return 0;
		if (next == PLAN_GO_ON)
			continue;
		if (apply)
			plan->plan.done(&plan->plan, state_bed_run(b), &b->res);
		return b->cmd.type;
	}
	ck_abort_msg("the plan does not come to rest");
}

static void down(uint32_t server)
{
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = server;
	ck_assert_int_eq(state_bed_run(b), 0);
}

static void pass(uint64_t ms)
{
	b->time_ms += ms;
	for (size_t i = 0; i < ARRAY_COUNT(silent_ms); i++) {
		const struct state_server *server = state_server_at(&b->s, (uint32_t)i);

		if (server && !server->up)
			silent_ms[i] += ms;
	}
}

/* The copy of the intent under way is sealed. */
static void publish(const struct state_intent *intent)
{
	uint64_t block = intent->block;
	uint8_t index = intent->index;

	ck_assert_int_eq(state_block_get(&b->s, block, &b->block), 0);
	b->cmd.type = STATE_CMD_LOCATION;
	b->cmd.sealed = (struct state_cmd_sealed){
		.block = block,
		.version = b->block.version,
		.crc = b->block.chunks[index].crc,
		.receipt = {.index = index, .disk = intent->disk, .incarnation = intent->incarnation, .generation = 1},
	};
	ck_assert_int_eq(state_bed_run(b), 0);
}

START_TEST(test_a_dead_server)
{
	uint32_t published = 0;

	begin(8, 1, 8, 1); /* each disk holds chunks of six blocks */
	ck_assert_uint_eq(next_command(true), 0);
	down(3);
	pass(599000);
	ck_assert_uint_eq(next_command(true), 0); /* down, not dead */
	pass(1000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	for (int round = 0; round < 100 && published < 6; round++) {
		while (next_command(true)) {
			ck_assert_uint_eq(b->cmd.type, STATE_CMD_INTENT);
			ck_assert_int_eq(b->res.status, 0);
			ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_LOST);
		}
		/* one for each target at most, and never on a disk that holds the block already */
		for (uint32_t i = 0; i < b->s.intent_count; i++)
			for (uint32_t j = 0; j < i; j++)
				ck_assert_uint_ne(b->s.intents[i].disk, b->s.intents[j].disk);
		ck_assert_uint_gt(b->s.intent_count, 0);
		publish(&b->s.intents[0]);
		published++;
		pass(2000);
	}
	ck_assert_uint_eq(published, 6);
	pass(2000);
	ck_assert_uint_eq(next_command(true), 0);
	for (uint32_t j = 0; j < 8; j++) {
		ck_assert_int_eq(state_block_get(&b->s, first_block + j, &b->block), 0);
		ck_assert(!b->block.crowded);
		for (uint8_t i = 0; i < 6; i++)
			ck_assert_uint_ne(b->block.chunks[i].disk, 3);
	}
	finish();
}
END_TEST

/* Another metad has led meanwhile: what this one knew, and put off, is void, and it looks at all blocks although nothing has changed. */
START_TEST(test_forgets)
{
	uint64_t began_ms;

	begin(8, 1, 8, 1);
	ck_assert_uint_eq(next_command(true), 0);
	began_ms = plan->walk_began_ms;
	pass(5000);
	ck_assert_uint_eq(next_command(true), 0);
	ck_assert_uint_eq(plan->walk_began_ms, began_ms);
	for (int i = 0; i < 20; i++)
		plan_repair_failed(plan, first_block, 3, b->time_ms);
	plan_repair_done(plan, first_block + 1, 77);
	ck_assert_uint_gt(plan->due_ms, 0);
	plan_repair_forget(plan);
	ck_assert_uint_eq(plan->due_ms, 0);
	ck_assert_uint_eq(next_command(true), 0);
	ck_assert_uint_gt(plan->walk_began_ms, began_ms);
	ck_assert_uint_eq(plan->failed_count, 20);
	ck_assert_uint_eq(plan->done_bytes, 77);
	finish();
}
END_TEST

static void maintenance(uint32_t server, uint64_t for_ms)
{
	b->cmd.type = STATE_CMD_MAINTENANCE;
	b->cmd.maintenance = (struct state_cmd_maintenance){.server = server, .for_ms = for_ms};
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* Server 3 registers with this disk alone. */
static void register_with(uint8_t uuid)
{
	struct state_cmd_register *r = &b->cmd.register_;

	b->cmd.type = STATE_CMD_REGISTER;
	memset(r, 0, sizeof(*r));
	r->uuid.bytes[0] = 3;
	r->name = slice_of("chunkd-3", 8);
	r->domain = slice_of("rack-2", 6);
	r->address = slice_of("127.0.0.1:1", 11);
	r->disk_count = 1;
	r->disks[0] = (struct state_register_disk){
		.uuid.bytes[0] = uuid, .capacity_bytes = 1ull << 40, .path = slice_of("/disk", 5)};
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* A disk that cannot be opened when its server starts: the server is up, and serves others. */
START_TEST(test_a_disk_that_stays_away)
{
	begin(8, 1, 8, 1);
	register_with(203);
	pass(300000);
	register_with(103); /* it was unplugged for a while */
	pass(599999);
	ck_assert_uint_eq(next_command(true), 0);
	register_with(203);
	pass(599999);
	ck_assert_uint_eq(next_command(true), 0);
	pass(1);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	ck_assert_int_eq(b->res.status, 0);
	pass(2000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_LOST);
	finish();
	/* what its server was silent for does not count against it: it may be plugged in a little later */
	begin(8, 1, 8, 1);
	down(3);
	pass(599999);
	register_with(203);
	pass(300000);
	register_with(203);
	pass(299999);
	ck_assert_uint_eq(next_command(true), 0);
	pass(1);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	finish();
}
END_TEST

/* Silent on purpose: nothing is rebuilt before the time is over and the server is dead from then on; nor does it get chunks. */
START_TEST(test_maintenance)
{
	begin(8, 1, 8, 1);
	maintenance(3, 3600 * 1000);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	while (next_command(true) == STATE_CMD_INTENT)
		ck_assert_uint_ne(b->cmd.intent.disk, 3);
	publish(&b->s.intents[0]);
	down(3);
	pass(3600 * 1000 - 1);
	ck_assert_uint_eq(next_command(true), 0);
	pass(599999);
	ck_assert_uint_eq(next_command(true), 0); /* over, and not back: silent from then on */
	pass(2);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	finish();
	/* a rack that is taken away on purpose is no mass of failures */
	begin(40, 2, 4, 1);
	maintenance(7, 3600 * 1000);
	maintenance(8, 3600 * 1000);
	down(7);
	down(8);
	ck_assert_uint_eq(repair_hold(&b->s, b->time_ms), 0);
	finish();
	/* ended by hand: it counts as silent since it is */
	begin(8, 1, 8, 1);
	maintenance(3, 3600 * 1000);
	down(3);
	pass(1800 * 1000);
	ck_assert_uint_eq(next_command(true), 0);
	maintenance(3, 0);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	finish();
}
END_TEST

START_TEST(test_least_margin_first)
{
	begin(12, 1, 2, 6); /* block 0 on disks 1-6, block 1 on 7-12 */
	for (uint8_t i = 0; i < 3; i++) {
		/* one chunk of block 0 is damaged, two of block 1 */
		uint32_t j = i ? 1 : 0;

		b->cmd.type = STATE_CMD_DAMAGED;
		b->cmd.damaged =
			(struct state_cmd_damaged){.block = first_block + j, .index = i, .disk = (i + j * 6u) % 12 + 1};
		ck_assert_int_eq(state_bed_run(b), 0);
	}
	ck_assert_uint_eq(next_command(false), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.block, first_block + 1);
	ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_DAMAGED);
	finish();
}
END_TEST

/* A file of one block, chunk 4 of which the session has left out; it may be able to bring it yet. */
static uint64_t write_short_block(uint64_t session, bool complete, uint64_t block)
{
	uint64_t inode, epoch;

	bed_as(b, session, 1, 1);
	ck_assert_int_eq(bed_create(b, complete ? "whole" : "part", 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	bed_as(b, session, 2, 2);
	bed_commit(b, inode, epoch, complete, 16 * STATE_BED_MIB);
	bed_drop_receipt(bed_block(b, block, 0, 16 * STATE_BED_MIB), 4);
	ck_assert_int_eq(state_bed_run(b), 0);
	bed_as(b, 0, 0, 0);
	return session;
}

static uint64_t write_short(uint64_t session, bool complete)
{
	return write_short_block(session, complete, first_block + 1);
}

static void wants_missing(void)
{
	pass(2 * REPAIR_WALK_REST_MS);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.index, 4);
	ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_MISSING);
}

static void wants_nothing(void)
{
	pass(2 * REPAIR_WALK_REST_MS);
	ck_assert_uint_eq(next_command(true), 0);
}

/* Two sessions, the second of which writes a short file, and ends. */
static uint64_t end_writer_beside_another(bool complete)
{
	uint64_t other, session;

	begin(8, 1, 1, 1);
	other = bed_session(b);
	pass(1);
	session = write_short(bed_session(b), complete);
	wants_nothing();
	ck_assert_int_eq(bed_end_session(b, session), 0);
	return other;
}

/* Nobody is left who could: it does not take the time that a writer has. */
START_TEST(test_missing_chunks_of_writers_that_are_gone)
{
	uint64_t other, session;

	/* of all sessions none is as old as the commit */
	begin(8, 1, 1, 1);
	session = write_short(bed_session(b), true);
	wants_nothing();
	(void)bed_session(b);
	wants_nothing();
	ck_assert_int_eq(bed_end_session(b, session), 0);
	wants_missing();
	finish();
	/* one is, but the file was given up, and it is not its own */
	end_writer_beside_another(false);
	wants_missing();
	finish();
	/* one is, and it may have been its own */
	other = end_writer_beside_another(true);
	wants_nothing();
	ck_assert_int_eq(bed_end_session(b, other), 0);
	wants_missing();
	finish();
}
END_TEST

static bool is_queued(uint64_t block)
{
	for (uint32_t i = 0; i < plan->queue_count; i++)
		if (plan->queue[i].block == block)
			return true;
	return false;
}

/* A walk that began when there was no session meets blocks of one that came later. */
START_TEST(test_writers_that_come_during_a_walk)
{
	struct plan_facts facts = {.state = &b->s};
	uint64_t session, block;

	begin(12, 1, REPAIR_ASKS, 6);
	for (uint32_t j = 0; j < REPAIR_ASKS; j++) {
		b->cmd.type = STATE_CMD_DAMAGED;
		b->cmd.damaged = (struct state_cmd_damaged){.block = first_block + j, .index = 0, .disk = j * 6u % 12 + 1};
		ck_assert_int_eq(state_bed_run(b), 0);
	}
	facts.now_ms = b->time_ms;
	ck_assert_int_eq(plan->plan.step(&plan->plan, &facts, &b->cmd), PLAN_GO_ON);
	ck_assert(plan->walking);
	pass(1);
	block = first_block + REPAIR_ASKS + 1;
	session = write_short_block(bed_session(b), true, block);
	facts.now_ms = b->time_ms;
	while (plan->walking)
		ck_assert_int_eq(plan->plan.step(&plan->plan, &facts, &b->cmd), PLAN_GO_ON);
	ck_assert_uint_eq(plan->queue_count, REPAIR_ASKS);
	ck_assert(!is_queued(block));
	/* its end is seen by the next one */
	ck_assert_int_eq(bed_end_session(b, session), 0);
	pass(2 * REPAIR_WALK_REST_MS);
	facts.now_ms = b->time_ms;
	do
		ck_assert_int_eq(plan->plan.step(&plan->plan, &facts, &b->cmd), PLAN_GO_ON);
	while (plan->walking);
	ck_assert(is_queued(block));
	finish();
}
END_TEST

START_TEST(test_disks_that_damage_again_and_again)
{
	uint16_t type;

	begin(8, 1, 1, 1);
	memset(damaged, 0, sizeof(damaged));
	damaged[3] = 99;
	ck_assert_uint_eq(next_command(true), 0);
	/* in two failure domains it is a fault of something else */
	damaged[3] = damaged[5] = 100;
	ck_assert_uint_eq(next_command(true), 0);
	damaged[5] = 99;
	ck_assert_uint_eq(next_command(true), STATE_CMD_DISK_FAILED);
	ck_assert_uint_eq(b->cmd.disk_failed.disk, 3);
	ck_assert_uint_eq(given_up, 3);
	ck_assert_ptr_nonnull(strstr(state_disk_at(&b->s, 3)->error, "100 damaged chunks"));
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	while (next_command(true) == STATE_CMD_INTENT)
		;
	/* nor is it one disk's when a second domain follows, however late in the day */
	damaged[5] = 100;
	pass(3600 * 1000 + 1);
	do /* nobody makes the chunk: its intent ends, and comes again */
		type = next_command(true);
	while (type == STATE_CMD_INTENT_END || type == STATE_CMD_INTENT);
	ck_assert_uint_eq(type, 0);
	ck_assert_uint_eq(state_disk_at(&b->s, 5)->state, STATE_DISK_UP);
	/* the day is over for the first one; the interval of domains is, too */
	damaged[3] = 0;
	ck_assert_uint_eq(next_command(true), STATE_CMD_DISK_FAILED);
	ck_assert_uint_eq(b->cmd.disk_failed.disk, 5);
	finish();
	/* switched off */
	begin(8, 1, 1, 1);
	b->cmd.type = STATE_CMD_CONFIG_SET;
	b->cmd.config_set = (struct state_cmd_config_set){.name = slice_of("disk.damage_limit", 17), .value = 0};
	ck_assert_int_eq(state_bed_run(b), 0);
	damaged[3] = 1000;
	ck_assert_uint_eq(next_command(true), 0);
	memset(damaged, 0, sizeof(damaged));
	finish();
}
END_TEST

START_TEST(test_missing_chunks_wait_for_their_writer)
{
	begin(8, 1, 1, 1);
	(void)write_short(bed_session(b), false);
	ck_assert_uint_eq(next_command(true), 0);
	pass(59999);
	ck_assert_uint_eq(next_command(true), 0);
	pass(1);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.index, 4);
	ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_MISSING);
	finish();
}
END_TEST

START_TEST(test_many_at_once_wait)
{
	begin(8, 1, 8, 1);
	down(3);
	pass(30000);
	down(4);
	pass(600000);
	ck_assert_uint_eq(next_command(true), 0);
	ck_assert_uint_gt(plan->held_until_ms, 0);
	/* an operator says that they are gone for good */
	b->cmd.type = STATE_CMD_CONFIG_SET;
	b->cmd.config_set = (struct state_cmd_config_set){.name = slice_of("repair.mass_hold", 16), .value = 0};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	finish();
}
END_TEST

START_TEST(test_the_hold_ends)
{
	begin(8, 1, 8, 1);
	down(3);
	down(4);
	pass(3600 * 1000 - 1);
	ck_assert_uint_eq(next_command(true), 0);
	pass(1);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	/* the other domain an hour later; what can be rebuilt is */
	while (next_command(true))
		ck_assert_uint_eq(b->cmd.type, STATE_CMD_INTENT);
	ck_assert_uint_gt(plan->out_waits_ms, b->time_ms);
	finish();
}
END_TEST

static void come_back_with(uint32_t server, const struct state_register_disk *disk)
{
	const struct state_server *row = state_server_at(&b->s, server);
	const char *domain = state_domain_at(&b->s, row->domain)->name;
	struct state_cmd_register *r = &b->cmd.register_;

	b->cmd.type = STATE_CMD_REGISTER;
	*r = (struct state_cmd_register){.uuid = row->uuid,
		.name = slice_of(row->name, strlen(row->name)),
		.address = slice_of(row->address, strlen(row->address)),
		.domain = slice_of(domain, strlen(domain)),
		.disk_count = 1};
	r->disks[0] = *disk;
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* The server registers another disk in the place of the one that it had. */
static void come_back_without(uint32_t server)
{
	come_back_with(server, &(struct state_register_disk){.uuid.bytes = {(uint8_t)server, 1}, .path = slice_of("/new", 4)});
}

static void come_back(uint32_t server)
{
	come_back_with(server, &(struct state_register_disk){.uuid = state_disk_at(&b->s, server)->uuid, .path = slice_of("/disk", 5)});
}

/* Their servers are up; it is the same fault. */
START_TEST(test_many_disks_left_out_at_once_wait)
{
	begin(8, 1, 8, 1);
	come_back_without(3);
	ck_assert_uint_eq(repair_hold(&b->s, b->time_ms), 0);
	pass(30000);
	come_back_without(4);
	ck_assert_uint_gt(repair_hold(&b->s, b->time_ms), 0);
	pass(600000);
	ck_assert_uint_eq(next_command(true), 0);
	pass(3600 * 1000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	finish();
	/* one of them, and one that is silent */
	begin(8, 1, 8, 1);
	down(3);
	come_back_without(4);
	ck_assert_uint_gt(repair_hold(&b->s, b->time_ms), 0);
	finish();
	/* what is out already is no news when its server comes back without it once more */
	begin(8, 1, 8, 1);
	come_back_without(3);
	pass(700000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	down(3);
	come_back_without(3);
	come_back_without(4);
	ck_assert_uint_eq(repair_hold(&b->s, b->time_ms), 0);
	finish();
}
END_TEST

/* Its server comes and goes more often than server.dead_after: the disk is away all the while. */
START_TEST(test_a_disk_left_out_again_and_again)
{
	begin(8, 1, 8, 1);
	down(3);
	pass(599000);
	come_back_without(3); /* now it is away on its own account */
	for (int i = 0; i < 2; i++) {
		pass(299000);
		ck_assert_uint_eq(next_command(true), 0);
		down(3);
		pass(1000);
		come_back_without(3);
	}
	ck_assert_uint_eq(next_command(true), STATE_CMD_TAKE_OUT);
	ck_assert_uint_eq(b->cmd.take_out.disk, 3);
	come_back(3); /* and what is here again begins anew */
	down(3);
	pass(300000);
	come_back_without(3);
	pass(599000);
	ck_assert_uint_eq(next_command(true), 0);
	finish();
}
END_TEST

START_TEST(test_two_one_after_the_other_do_not_wait)
{
	begin(8, 1, 8, 1);
	down(3);
	pass(REPAIR_MASS_WINDOW_MS + 1);
	down(4);
	ck_assert_uint_eq(repair_hold(&b->s, b->time_ms), 0);
	finish();
}
END_TEST

START_TEST(test_a_whole_domain_waits)
{
	begin(40, 2, 4, 1); /* 20 domains of two: two servers are a twentieth */
	down(7);
	down(9);
	ck_assert_uint_eq(repair_hold(&b->s, b->time_ms), 0);
	down(8);
	ck_assert_uint_gt(repair_hold(&b->s, b->time_ms), 0);
	finish();
}
END_TEST

START_TEST(test_crowded_blocks_spread)
{
	begin(3, 1, 0, 1); /* everything on three servers */
	bed_commit(b, 2, 1, false, 0);
	for (uint8_t i = 0; i < 6; i++) {
		struct state_commit_block *cb =
			i ? &b->cmd.commit.blocks[0] : bed_block(b, first_block, 0, 16 * STATE_BED_MIB);

		cb->receipts[i].disk = i % 3 + 1;
	}
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(next_command(true), 0); /* nowhere to go */
	bed_disks(b, 0, 1);
	/* a fourth server */
	b->cmd.type = STATE_CMD_REGISTER;
	memset(&b->cmd.register_, 0, sizeof(b->cmd.register_));
	b->cmd.register_.uuid.bytes[0] = 4;
	b->cmd.register_.name = b->cmd.register_.domain = slice_of("rack-9", 6);
	b->cmd.register_.address = slice_of("127.0.0.1:1", 11);
	b->cmd.register_.disk_count = 1;
	b->cmd.register_.disks[0] = (struct state_register_disk){
		.uuid.bytes[0] = 104, .capacity_bytes = 1ull << 40, .path = slice_of("/d", 2)};
	ck_assert_int_eq(state_bed_run(b), 0);
	pass(5000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.cause, STATE_CAUSE_SPREAD);
	ck_assert_uint_eq(b->cmd.intent.disk, 4);
	publish(&b->s.intents[0]);
	pass(5000);
	ck_assert_uint_eq(next_command(true), 0); /* every domain is used now: it stays crowded */
	finish();
}
END_TEST

START_TEST(test_full_disks_are_no_targets)
{
	begin(8, 1, 1, 1);
	free_bytes = 4 * STATE_BED_MIB - 1;
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(next_command(true), 0);
	ck_assert_uint_eq(plan->no_target, 1);
	free_bytes++;
	pass(REPAIR_RETRY_MS);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_ge(b->cmd.intent.disk, 7);
	finish();
}
END_TEST

START_TEST(test_a_target_dies)
{
	uint64_t block;

	begin(8, 1, 1, 1);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	block = b->cmd.intent.block;
	down(b->cmd.intent.disk);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT_END);
	ck_assert_ptr_null(state_intent_of(&b->s, block));
	pass(2000);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	/* one that failed is put off, longer each time */
	b->cmd.type = STATE_CMD_INTENT_END;
	b->cmd.intent_end = (struct state_cmd_intent_end){.block = block, .index = 0, .incarnation = 257};
	ck_assert_int_eq(state_bed_run(b), 0);
	plan_repair_failed(plan, block, 7, b->time_ms);
	pass(REPAIR_RETRY_MS - REPAIR_RETRY_MS / REPAIR_RETRY_EARLY);
	ck_assert_uint_eq(next_command(true), 0);
	pass(REPAIR_WALK_REST_MS);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_ne(b->cmd.intent.disk, 7);
	finish();
}
END_TEST

/* What failed at once is not tried again at once, and never later than was said. */
START_TEST(test_retries_spread)
{
	enum { BLOCKS = 64, EARLY_MS = REPAIR_RETRY_MS / REPAIR_RETRY_EARLY };
	uint32_t late = 0;

	begin(8, 1, 1, 1);
	for (uint64_t block = 1; block <= BLOCKS; block++) {
		const struct repair_put_off *f = &plan->put_off[block % ARRAY_COUNT(plan->put_off)][0];

		plan_repair_failed(plan, block, 7, b->time_ms);
		ck_assert_uint_eq(f->block, block);
		ck_assert_uint_le(f->until_ms, b->time_ms + REPAIR_RETRY_MS);
		ck_assert_uint_gt(f->until_ms, b->time_ms + REPAIR_RETRY_MS - EARLY_MS);
		late += f->until_ms > b->time_ms + REPAIR_RETRY_MS - EARLY_MS / 2;
	}
	ck_assert_uint_gt(late, BLOCKS / 8);
	ck_assert_uint_lt(late, BLOCKS - BLOCKS / 8);
	finish();
}
END_TEST

/* A rebuild that failed is tried again where it failed, if it can go nowhere else. */
START_TEST(test_the_only_target_failed)
{
	begin(6, 1, 1, 1);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	for (uint32_t n = 0; n < 3; n++) {
		ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
		ck_assert_uint_eq(b->cmd.intent.disk, 1);
		b->cmd.type = STATE_CMD_INTENT_END;
		b->cmd.intent_end = (struct state_cmd_intent_end){.block = first_block, .index = 0, .incarnation = 256 + n};
		ck_assert_int_eq(state_bed_run(b), 0);
		plan_repair_failed(plan, first_block, 1, b->time_ms);
		pass(((uint64_t)REPAIR_RETRY_MS << n) + REPAIR_WALK_REST_MS);
		ck_assert_uint_eq(plan->no_target, 0);
	}
	finish();
}
END_TEST

/* Each place is tried once before any is tried again: one that makes it is found among others that cannot. */
START_TEST(test_targets_that_failed_come_last)
{
	enum { TARGETS = 3 }; /* two without a chunk of it, and the one whose chunk is damaged */
	uint32_t tried[2 * TARGETS];

	begin(8, 1, 1, 1);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	for (uint32_t n = 0; n < ARRAY_COUNT(tried); n++) {
		ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
		tried[n] = b->cmd.intent.disk;
		b->cmd.type = STATE_CMD_INTENT_END;
		b->cmd.intent_end = (struct state_cmd_intent_end){.block = first_block, .index = 0, .incarnation = 256 + n};
		ck_assert_int_eq(state_bed_run(b), 0);
		plan_repair_failed(plan, first_block, tried[n], b->time_ms);
		pass(((uint64_t)REPAIR_RETRY_MS << n) + REPAIR_WALK_REST_MS);
		for (uint32_t i = n < TARGETS ? 0 : n - TARGETS + 1; i < n; i++)
			ck_assert_uint_ne(tried[i], tried[n]);
	}
	finish();
}
END_TEST

START_TEST(test_removed_files_are_left_alone)
{
	begin(8, 1, 1, 1);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(bed_remove(b, "f", false), 0);
	bed_release(b);
	ck_assert_uint_eq(next_command(true), 0);
	finish();
}
END_TEST

/* Unlinked, and perhaps open somewhere: whoever reads it wants it whole. */
START_TEST(test_open_files_without_a_name_are_repaired)
{
	begin(8, 1, 1, 1);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = first_block, .index = 0, .disk = 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(bed_remove(b, "f", false), 0);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.block, first_block);
	finish();
}
END_TEST

/* ---- more that cannot be begun than the queue holds ---- */

enum { MANY = REPAIR_QUEUE + 100 };

/* A file of `blocks` blocks that lack a chunk, from the block id `first` on. */
static void lacking(const char *path, uint64_t first, uint32_t blocks, uint64_t length)
{
	uint64_t inode;

	ck_assert_int_eq(bed_create(b, path, 0), 0);
	inode = b->res.attr.inode;
	for (uint32_t at = 0; at < blocks;) {
		bed_commit(b, inode, 1, false, 0);
		for (uint32_t i = 0; i < LIMIT_COMMIT_BLOCKS && at < blocks; i++, at++)
			bed_drop_receipt(bed_block(b, first + at, at * length, length), 5);
		ck_assert_int_eq(state_bed_run(b), 0);
	}
}

/* MANY blocks of 16 MiB, and one small one behind them, of no greater margin. */
static uint64_t begin_many(void)
{
	uint64_t first;

	begin(8, 1, 0, 1);
	first = bed_reserve(b, MANY + 1);
	lacking("many", first, MANY, 16 * STATE_BED_MIB);
	lacking("last", first + MANY, 1, STATE_BED_MIB);
	pass(60000);
	return first + MANY;
}

START_TEST(test_without_a_target_they_wait_outside)
{
	uint64_t last = begin_many();

	free_bytes = 4 * STATE_BED_MIB - 1;
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.block, last);
	ck_assert_uint_eq(plan->no_target, MANY);
	finish();
}
END_TEST

START_TEST(test_garbage_waits_outside)
{
	uint64_t last = begin_many();

	ck_assert_int_eq(bed_remove(b, "many", false), 0);
	bed_release(b);
	ck_assert_uint_eq(next_command(true), STATE_CMD_INTENT);
	ck_assert_uint_eq(b->cmd.intent.block, last);
	finish();
}
END_TEST

/* Each fails whenever it is tried: in the time that they are put off, others come to be tried. */
START_TEST(test_what_fails_waits_outside)
{
	uint64_t last = begin_many(), tried = 0;

	for (int n = 0; n < 20 * MANY && tried != last; n++) {
		uint16_t type = next_command(false);

		pass(type ? 50 : REPAIR_WALK_REST_MS);
		if (!type)
			continue;
		ck_assert_uint_eq(type, STATE_CMD_INTENT);
		tried = b->cmd.intent.block;
		plan_repair_failed(plan, tried, b->cmd.intent.disk, b->time_ms);
	}
	ck_assert_uint_eq(tried, last);
	finish();
}
END_TEST

UNIT_MAIN("plan_repair", test_a_dead_server, test_forgets, test_a_disk_that_stays_away, test_maintenance, test_least_margin_first,
	test_missing_chunks_wait_for_their_writer, test_missing_chunks_of_writers_that_are_gone, test_writers_that_come_during_a_walk,
	test_disks_that_damage_again_and_again, test_many_at_once_wait, test_many_disks_left_out_at_once_wait, test_a_disk_left_out_again_and_again, test_the_hold_ends,
	test_two_one_after_the_other_do_not_wait, test_a_whole_domain_waits, test_crowded_blocks_spread,
	test_full_disks_are_no_targets, test_a_target_dies, test_the_only_target_failed, test_targets_that_failed_come_last, test_retries_spread,
	test_removed_files_are_left_alone,
	test_open_files_without_a_name_are_repaired, test_without_a_target_they_wait_outside,
	test_garbage_waits_outside, test_what_fails_waits_outside)
