/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and leases: what is asked for twice takes effect once, who was replaced cannot write, who is gone leaves nothing. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

static int mkdir_as(uint64_t session, uint64_t seq, uint64_t low, const char *path)
{
	int code;

	bed_as(b, session, seq, low);
	code = bed_mkdir(b, path, false);
	bed_as(b, 0, 0, 0);
	return code;
}

/* The state as a restart finds it: rows only. */
static void restart(void)
{
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
}

START_TEST(test_example)
{
	uint64_t session, inode;

	state_bed_open(b);
	session = bed_session(b);
	ck_assert_int_eq(mkdir_as(session, 1, 1, "a"), 0);
	inode = b->res.attr.inode;
	ck_assert_int_eq(mkdir_as(session, 1, 1, "a"), 0); /* again: what was said then */
	ck_assert_uint_eq(b->res.attr.inode, inode);
	ck_assert_uint_eq(b->res.parent, INODE_ROOT);
	restart();
	ck_assert_int_eq(mkdir_as(session, 1, 1, "a"), 0);
	ck_assert_uint_eq(b->res.attr.inode, inode);
	ck_assert_int_eq(mkdir_as(session, 2, 2, "a"), ERR_EXIST);
	ck_assert_int_eq(bed_end_session(b, session), 0);
	ck_assert_int_eq(mkdir_as(session, 3, 3, "b"), ERR_SESSION_LOST);
	ck_assert_int_eq(bed_lookup(b, "b"), ERR_NOENT);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_SESSION), 0);
	state_bed_close(b);
}
END_TEST

/* An answer of no must stay a no, though a later try would have worked: the client has been told. */
START_TEST(test_refusals_are_remembered)
{
	uint64_t session;

	state_bed_open(b);
	session = bed_session(b);
	ck_assert_int_eq(mkdir_as(session, 1, 1, "a/b"), ERR_NOENT);
	ck_assert_int_eq(bed_mkdir(b, "a", false), 0);
	ck_assert_int_eq(mkdir_as(session, 1, 1, "a/b"), ERR_NOENT);
	ck_assert_int_eq(bed_lookup(b, "a/b"), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_window)
{
	uint64_t session, digest;
	char path[16];

	state_bed_open(b);
	session = bed_session(b);
	for (uint64_t seq = 1; seq <= STATE_WINDOW; seq++) {
		snprintf(path, sizeof(path), "d%d", (int)seq);
		ck_assert_int_eq(mkdir_as(session, seq, 1, path), 0);
	}
	for (uint64_t seq = STATE_WINDOW; seq >= 1; seq--) { /* all of them are still known, in any order */
		snprintf(path, sizeof(path), "d%d", (int)seq);
		ck_assert_int_eq(mkdir_as(session, seq, 1, path), 0);
	}
	ck_assert_uint_eq(b->s.meta.dir_count, 1 + STATE_WINDOW);

	/* What the client says it has heard of is forgotten, and a late copy of it is refused: it is not done again. */
	ck_assert_int_eq(mkdir_as(session, STATE_WINDOW + 1, 11, "e"), 0);
	ck_assert_int_eq(bed_remove(b, "d3", true), 0);
	ck_assert_int_eq(mkdir_as(session, 3, 1, "d3"), ERR_RANGE);
	ck_assert_int_eq(bed_lookup(b, "d3"), ERR_NOENT);
	ck_assert_int_eq(mkdir_as(session, 12, 1, "d12"), 0);
	/* A number so far ahead that all before it is forgotten. */
	ck_assert_int_eq(mkdir_as(session, 100000, 100000, "f"), 0);
	ck_assert_int_eq(mkdir_as(session, 100000, 100000, "f"), 0);
	ck_assert_int_eq(mkdir_as(session, 12, 12, "d12"), ERR_RANGE);
	digest = state_bed_digest(b->kv);
	restart();
	ck_assert_int_eq(mkdir_as(session, 99999, 99990, "g"), ERR_RANGE);
	ck_assert_uint_eq(state_bed_digest(b->kv), digest);
	state_bed_close(b);
}
END_TEST

START_TEST(test_ids_are_never_used_again)
{
	uint64_t first;

	state_bed_open(b);
	first = bed_session(b);
	ck_assert_int_eq(bed_end_session(b, first), 0);
	ck_assert_int_eq(bed_end_session(b, first), ERR_SESSION_LOST);
	restart();
	ck_assert_uint_gt(bed_session(b), first);
	ck_assert_int_eq(mkdir_as(first, 1, 1, "a"), ERR_SESSION_LOST);
	state_bed_close(b);
}
END_TEST

/* A reply has all that the first one had: create's epoch and policy, a commit's news of its blocks. */
START_TEST(test_replies_are_whole)
{
	uint64_t session, first;
	struct state_result res;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	session = bed_session(b);
	bed_as(b, session, 1, 1);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	res = b->res;
	restart();
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	ck_assert_mem_eq(&b->res, &res, offsetof(struct state_result, blocks));
	ck_assert_uint_gt(res.epoch, 0);
	ck_assert_uint_eq(res.policy.id, EC_POLICY_DEFAULT);

	bed_as(b, session, 2, 2);
	bed_commit(b, res.attr.inode, res.epoch, true, 4 * STATE_BED_MIB);
	bed_block(b, first, 0, 4 * STATE_BED_MIB)->receipts[2].generation = 9;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 2);
	res = b->res;
	restart();
	bed_commit(b, res.attr.inode, 1, true, 4 * STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.count, 1);
	ck_assert_uint_eq(b->res.blocks[0].block, first);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 2);
	ck_assert_uint_eq(b->res.attr.size, 4 * STATE_BED_MIB);
	bed_as(b, 0, 0, 0);
	state_bed_close(b);
}
END_TEST

static uint64_t inode, epoch;

static void open_as(uint64_t session, uint64_t seq, const char *path, uint16_t type, bool hidden)
{
	bed_as(b, session, seq, seq);
	b->cmd.type = type;
	b->cmd.create = (struct state_cmd_create){
		.at = state_bed_path(path), .mode = 0644, .now_ns = ++b->now_ns, .hidden = hidden};
	ck_assert_int_eq(state_bed_run(b), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	bed_as(b, 0, 0, 0);
}

static int commit_block(uint64_t of_inode, uint64_t of_epoch, uint64_t block, uint64_t offset, bool complete)
{
	bed_commit(b, of_inode, of_epoch, complete, offset + STATE_BED_MIB);
	bed_block(b, block, offset, STATE_BED_MIB);
	return state_bed_run(b);
}

START_TEST(test_later_writer_takes_over)
{
	uint64_t one, two, first, old_epoch;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	one = bed_session(b);
	two = bed_session(b);
	open_as(one, 1, "f", STATE_CMD_CREATE, false);
	ck_assert_int_eq(commit_block(inode, epoch, first, 0, false), 0);
	old_epoch = epoch;
	open_as(two, 1, "f", STATE_CMD_OPEN_WRITE, false);
	ck_assert_uint_eq(b->res.attr.size, STATE_BED_MIB);
	ck_assert_uint_gt(epoch, old_epoch);
	ck_assert_int_eq(commit_block(inode, old_epoch, first + 1, STATE_BED_MIB, false), ERR_FENCED);
	ck_assert_int_eq(commit_block(inode, old_epoch, first + 1, STATE_BED_MIB, true), ERR_FENCED);
	ck_assert_int_eq(commit_block(inode, epoch, first + 2, STATE_BED_MIB, true), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_LEASE), 0); /* closed */
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)inode);
	ck_assert_uint_eq(b->inode.size, 2 * STATE_BED_MIB);
	ck_assert_int_eq(bed_end_session(b, one), 0); /* it holds nothing any more: nothing happens to the file */
	ck_assert_int_eq(bed_end_session(b, two), 0);
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)inode);
	ck_assert_uint_eq(b->inode.lease, 0);
	ck_assert(b->inode.flags & STATE_INODE_COMPLETE);

	/* Opened again, a complete file takes bytes again. */
	open_as(two = bed_session(b), 1, "f", STATE_CMD_OPEN_WRITE, false);
	ck_assert_int_eq(commit_block(inode, epoch, first + 3, 2 * STATE_BED_MIB, true), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_end_gives_leases_up)
{
	uint64_t one, first, hidden, hidden_epoch, named, named_epoch;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	one = bed_session(b);
	open_as(one, 1, "hidden", STATE_CMD_CREATE, true);
	hidden = inode;
	hidden_epoch = epoch;
	ck_assert_int_eq(commit_block(hidden, hidden_epoch, first, 0, false), 0);
	open_as(one, 2, "named", STATE_CMD_CREATE, false);
	named = inode;
	named_epoch = epoch;
	ck_assert_int_eq(commit_block(named, named_epoch, first + 1, 0, false), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_LEASE), 2);
	restart();
	ck_assert_int_eq(bed_end_session(b, one), 0);
	ck_assert(!b->res.more);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_LEASE), 0);
	ck_assert(bed_has_row(b, STATE_TABLE_GC, hidden));
	ck_assert(!bed_has_row(b, STATE_TABLE_GC, named));
	ck_assert_int_eq(bed_lookup(b, "named"), (int64_t)named);
	ck_assert_uint_eq(b->inode.size, STATE_BED_MIB);
	ck_assert_int_eq(commit_block(hidden, hidden_epoch, first + 2, STATE_BED_MIB, true), ERR_FENCED);
	ck_assert_int_eq(commit_block(named, named_epoch, first + 2, STATE_BED_MIB, true), ERR_FENCED);
	state_bed_close(b);
}
END_TEST

/* More than one command may change: the session refuses its client at once, and goes when the last lease has gone. */
START_TEST(test_end_in_steps)
{
	enum { FILES = STATE_END_LEASES * 2 + 5 };
	uint64_t one;
	char path[16];
	int ends = 0;
	bool more;

	state_bed_open(b);
	one = bed_session(b);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		open_as(one, (uint64_t)i + 1, path, STATE_CMD_CREATE, true);
	}
	do {
		ck_assert_int_eq(bed_end_session(b, one), 0);
		more = b->res.more;
		ends++;
		ck_assert_int_eq(mkdir_as(one, FILES + 1, FILES + 1, "x"), ERR_SESSION_LOST);
		restart();
	} while (more);
	ck_assert_int_eq(ends, 3);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC), FILES);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_SESSION), 0);
	state_bed_close(b);
}
END_TEST

/* Each lease is found where the last one was given up: of a hundred thousand files the end would take minutes else. */
START_TEST(test_end_is_linear)
{
	enum { FILES = 1000 };
	uint64_t one, passed;
	char path[16];

	state_bed_open(b);
	one = bed_session(b);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		open_as(one, (uint64_t)i + 1, path, STATE_CMD_CREATE, true);
	}
	passed = bed_passed_rows(b);
	do {
		ck_assert_int_eq(bed_end_session(b, one), 0);
	} while (b->res.more);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_LEASE), 0);
	ck_assert_uint_le(bed_passed_rows(b) - passed, 2 * FILES);
	state_bed_close(b);
}
END_TEST

/* A lease goes with its file, however that goes. */
START_TEST(test_lease_ends_with_its_file)
{
	uint64_t one;

	state_bed_open(b);
	one = bed_session(b);
	open_as(one, 1, "removed", STATE_CMD_CREATE, false);
	ck_assert_int_eq(bed_remove(b, "removed", false), 0);
	open_as(one, 2, "replaced", STATE_CMD_CREATE, false);
	ck_assert_int_eq(bed_create(b, "replaced", 0), 0);
	open_as(one, 3, "aborted", STATE_CMD_CREATE, true);
	b->cmd.type = STATE_CMD_ABORT;
	b->cmd.abort = (struct state_cmd_abort){.inode = inode, .epoch = epoch};
	ck_assert_int_eq(state_bed_run(b), 0);
	open_as(one, 4, "done", STATE_CMD_CREATE, true);
	bed_commit(b, inode, epoch, true, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_LEASE), 0);
	restart();
	ck_assert_int_eq(bed_end_session(b, one), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_orphans)
{
	uint64_t time_ms, file;

	state_bed_open(b);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	file = b->res.attr.inode;
	b->time_ms = time_ms = 5000;
	ck_assert_int_eq(bed_remove(b, "f", false), 0);
	ck_assert(bed_is_orphan(b, file));
	ck_assert(!bed_has_row(b, STATE_TABLE_GC, file));
	b->time_ms = 90000;
	b->cmd.type = STATE_CMD_RELEASE;
	b->cmd.release.count = 2;
	b->cmd.release.orphans[0].time_ms = time_ms + 1; /* not there: nothing happens */
	b->cmd.release.orphans[0].inode = file;
	b->cmd.release.orphans[1].time_ms = time_ms;
	b->cmd.release.orphans[1].inode = file;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(state_bed_run(b), 0); /* twice is once */
	ck_assert(bed_has_row(b, STATE_TABLE_GC, file));
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC), 1);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_ORPHAN), 0);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_session", test_example, test_refusals_are_remembered, test_window, test_ids_are_never_used_again,
	test_replies_are_whole, test_later_writer_takes_over, test_end_gives_leases_up, test_end_in_steps,
	test_end_is_linear, test_lease_ends_with_its_file, test_orphans)
