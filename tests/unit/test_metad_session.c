/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions as clients see them: retries over crashes, silence, forgeries, unlinked files that are open. */
#include "metad/core.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

static struct metad_bed bed, *const b = &bed;

static int mkdir_as(Craton__RequestId *id, uint64_t number, uint64_t unanswered, const char *path)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	id->number = number;
	id->unanswered = unanswered;
	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.id = id;
	return bed_call(b, &rpc_metad_mkdir, &req.base);
}

static int lookup(const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

static const Craton__SessionStatus *session_status(void)
{
	return bed_status(b)->sessions;
}

static void open_session(Craton__RequestId *ret_id)
{
	ck_assert_int_eq(bed_open_session(b, ret_id), 0);
}

START_TEST(test_example)
{
	Craton__RequestId id;

	metad_bed_open_sim(b, 1);
	open_session(&id);
	ck_assert_int_eq(mkdir_as(&id, 1, 1, "a"), 0);
	ck_assert_int_eq(mkdir_as(&id, 1, 1, "a"), 0);
	metad_bed_crash(b);
	ck_assert_int_eq(mkdir_as(&id, 1, 1, "a"), 0);
	ck_assert_int_eq(mkdir_as(&id, 2, 2, "a"), ERR_EXIST);
	ck_assert_uint_eq(session_status()->open, 1);
	metad_bed_close(b);
}
END_TEST

/* What no client of ours would send: refused before anything is logged, counted, shown. */
START_TEST(test_what_is_refused)
{
	Craton__MkdirRequest none = CRATON__MKDIR_REQUEST__INIT;
	Craton__RequestId id, forged, made_up = CRATON__REQUEST_ID__INIT;

	metad_bed_open_sim(b, 2);
	open_session(&id);
	forged = id;
	forged.secret ^= 1;
	ck_assert_int_eq(mkdir_as(&forged, 1, 1, "a"), ERR_PERM);
	ck_assert_int_eq(bed_renew(b, &forged, NULL, 0), ERR_PERM);
	made_up.session = 12345;
	ck_assert_int_eq(mkdir_as(&made_up, 1, 1, "a"), ERR_SESSION_LOST);
	ck_assert_int_eq(mkdir_as(&id, 0, 0, "a"), ERR_RANGE);
	ck_assert_int_eq(mkdir_as(&id, 1, 0, "a"), ERR_RANGE);
	ck_assert_int_eq(mkdir_as(&id, 1, 2, "a"), ERR_RANGE);
	ck_assert_int_eq(mkdir_as(&id, 65, 1, "a"), ERR_RANGE);
	ck_assert_int_eq(mkdir_as(&id, UINT64_MAX, 1, "a"), ERR_RANGE);
	none.parent = INODE_ROOT;
	none.path = bed_text("a");
	ck_assert_int_eq(bed_call_as_is(b, &rpc_metad_mkdir, &none.base), ERR_INVAL);
	ck_assert_int_eq(lookup("a"), ERR_NOENT);
	ck_assert_int_eq(mkdir_as(&id, 64, 1, "a"), 0);
	ck_assert_uint_eq(session_status()->forged, 2);
	ck_assert_uint_eq(session_status()->lost, 1);
	ck_assert_uint_eq(session_status()->out_of_window, 5);
	ck_assert_uint_eq(bed_refused(b, "session_forged"), 2);
	ck_assert_uint_eq(bed_refused(b, "session_out_of_window"), 5);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_silence_ends_a_session)
{
	Craton__RequestId quiet, loud;
	uint64_t inode, epoch;

	metad_bed_open_sim(b, 3);
	open_session(&quiet);
	open_session(&loud);
	b->session = quiet;
	ck_assert_int_eq(bed_open_file(b, "hidden", true, &inode, &epoch), 0);
	b->session.session = 0; /* nobody renews it from here on */
	for (int i = 0; i < 2; i++) {
		metad_bed_silence(b, 40 * 1000);
		ck_assert_int_eq(bed_renew(b, &loud, NULL, 0), 0);
		if (i == 0) /* a start of metad gives everybody the whole time anew */
			metad_bed_restart(b);
	}
	ck_assert_uint_eq(session_status()->open, 2);
	metad_bed_silence(b, 30 * 1000);
	ck_assert_int_eq(mkdir_as(&quiet, 2, 2, "a"), ERR_SESSION_LOST);
	ck_assert_int_eq(mkdir_as(&loud, 1, 1, "a"), 0);
	ck_assert_uint_eq(session_status()->open, 1);
	ck_assert_uint_eq(session_status()->expired, 1);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_FENCED); /* its file is being collected */
	metad_bed_close(b);
}
END_TEST

START_TEST(test_close)
{
	Craton__SessionCloseRequest req = CRATON__SESSION_CLOSE_REQUEST__INIT;
	Craton__RequestId id;
	uint64_t inode, epoch;
	char path[16];

	metad_bed_open_sim(b, 4);
	open_session(&id);
	b->session = id;
	for (int i = 0; i < STATE_END_LEASES + 10; i++) { /* more than one command gives up */
		snprintf(path, sizeof(path), "f%d", i);
		ck_assert_int_eq(bed_open_file(b, path, true, &inode, &epoch), 0);
	}
	b->session.session = 0;
	req.session = id.session;
	req.secret = id.secret + 1;
	ck_assert_int_eq(bed_call(b, &rpc_metad_session_close, &req.base), ERR_PERM);
	req.secret = id.secret;
	ck_assert_int_eq(bed_call(b, &rpc_metad_session_close, &req.base), 0);
	ck_assert_int_eq(bed_call(b, &rpc_metad_session_close, &req.base), ERR_SESSION_LOST);
	ck_assert_int_eq(bed_allocate(b, inode, epoch, 1), ERR_FENCED);
	ck_assert_uint_eq(session_status()->open, 0);
	metad_bed_close(b);
}
END_TEST

static void unlink_file(const char *path)
{
	Craton__RemoveRequest req = CRATON__REMOVE_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	ck_assert_int_eq(bed_call(b, &rpc_metad_remove, &req.base), 0);
}

static int layout(uint64_t inode)
{
	Craton__LayoutRequest req = CRATON__LAYOUT_REQUEST__INIT;

	req.inode = inode;
	req.length = 1;
	return bed_call(b, &rpc_metad_layout, &req.base);
}

/* A file that has lost its name is there as long as a client says that it has it open, and no longer. */
START_TEST(test_unlinked_but_open)
{
	uint64_t held, epoch, other;
	Craton__RequestId reader = CRATON__REQUEST_ID__INIT; /* without a session */

	metad_bed_open_sim(b, 5);
	ck_assert_int_eq(bed_open_file(b, "held", false, &held, &epoch), 0);
	ck_assert_int_eq(bed_open_file(b, "other", false, &other, &epoch), 0);
	unlink_file("held");
	unlink_file("other");
	for (int i = 0; i < 30; i++) {
		metad_bed_sleep(b, 10 * 1000);
		ck_assert_int_eq(bed_renew(b, &reader, &held, 1), 0);
		if (i == 12) /* the next metad knows nothing: it waits until it has been told */
			metad_bed_crash(b);
		ck_assert_int_eq(layout(held), 0);
	}
	ck_assert_int_eq(layout(other), ERR_STALE);
	ck_assert_uint_eq(session_status()->orphans, 1);
	metad_bed_sleep(b, 180 * 1000);
	ck_assert_int_eq(layout(held), ERR_STALE);
	ck_assert_uint_eq(session_status()->orphans, 0);
	metad_bed_close(b);
}
END_TEST

/* Whoever tells metad to hurry with what was removed takes no file from under a client that stands still for as long as its session lives. */
START_TEST(test_unlinked_but_open_in_a_hurry)
{
	Craton__GcRequest hurry = CRATON__GC_REQUEST__INIT;
	Craton__RequestId still, reader = CRATON__REQUEST_ID__INIT;
	uint64_t held, epoch;

	metad_bed_open_sim(b, 17);
	open_session(&still);
	ck_assert_int_eq(bed_renew(b, &still, NULL, 0), 0);
	ck_assert_int_eq(bed_open_file(b, "held", false, &held, &epoch), 0);
	unlink_file("held");
	hurry.start = true;
	ck_assert_int_eq(bed_call(b, &rpc_metad_gc, &hurry.base), 0);
	metad_bed_sleep(b, 40 * 1000); /* the session's client is stopped */
	ck_assert_int_eq(layout(held), 0);
	ck_assert_int_eq(bed_renew(b, &still, &held, 1), 0);
	metad_bed_sleep(b, 30 * 1000);
	ck_assert_int_eq(layout(held), 0);
	for (int i = 0; i < 4; i++) { /* it is open no more */
		ck_assert_int_eq(bed_renew(b, &still, NULL, 0), 0);
		metad_bed_sleep(b, 10 * 1000);
	}
	ck_assert_int_eq(layout(held), ERR_STALE);
	/* One that was not open, with a session that says so. */
	ck_assert_int_eq(bed_open_file(b, "held", false, &held, &epoch), 0);
	unlink_file("held");
	ck_assert_int_eq(bed_call(b, &rpc_metad_gc, &hurry.base), 0);
	metad_bed_sleep(b, 2 * 1000);
	ck_assert_int_eq(bed_renew(b, &still, NULL, 0), 0);
	ck_assert_int_eq(bed_renew(b, &reader, NULL, 0), 0);
	metad_bed_sleep(b, 20 * 1000);
	ck_assert_int_eq(layout(held), ERR_STALE);
	/* One that a client had open which only reads, as it said before the file lost its name: it stands still, or it is another one that says so. */
	ck_assert_int_eq(bed_open_file(b, "held", false, &held, &epoch), 0);
	ck_assert_int_eq(bed_renew(b, &reader, &held, 1), 0);
	metad_bed_sleep(b, 5);
	unlink_file("held");
	ck_assert_int_eq(bed_call(b, &rpc_metad_gc, &hurry.base), 0);
	metad_bed_sleep(b, 2 * 1000);
	ck_assert_int_eq(bed_renew(b, &still, NULL, 0), 0);
	metad_bed_sleep(b, 40 * 1000);
	ck_assert_int_eq(layout(held), 0);
	metad_bed_close(b);
}
END_TEST

static void on_unlinked(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	(void)call, (void)msg, (void)payload_len;
	ck_assert_int_eq(status, 0);
}

/* The client says that it has the file open while the entry that unlinks it is on its way to the log, and stands still from then on. */
START_TEST(test_unlinked_while_named)
{
	Craton__GcRequest hurry = CRATON__GC_REQUEST__INIT;
	Craton__RemoveRequest unlink = CRATON__REMOVE_REQUEST__INIT;
	struct rpc_call call = {.method = &rpc_metad_remove, .request = &unlink.base, .done = on_unlinked};
	Craton__RequestId still;
	uint64_t held, epoch;

	metad_bed_open_sim(b, 18);
	open_session(&still);
	ck_assert_int_eq(bed_open_file(b, "held", false, &held, &epoch), 0);
	b->session.unanswered = ++b->session.number;
	unlink.id = &b->session;
	unlink.parent = INODE_ROOT;
	unlink.path = bed_text("held");
	sim_disk_stall(b->server_io, 300 * 1000000ull);
	call.deadline_ns = io_clock_ns(b->client_io) + 60ull * 1000000000;
	rpc_call_start(b->peer, &call);
	metad_bed_silence(b, 100);
	ck_assert_int_eq(bed_renew(b, &still, &held, 1), 0);
	ck_assert(rpc_call_active(&call));
	metad_bed_silence(b, 1000);
	ck_assert(!rpc_call_active(&call));
	hurry.start = true;
	ck_assert_int_eq(bed_call(b, &rpc_metad_gc, &hurry.base), 0);
	metad_bed_sleep(b, 40 * 1000);
	ck_assert_int_eq(layout(held), 0);
	metad_bed_close(b);
}
END_TEST

static uint64_t orphans(void)
{
	return metad__count_rows(b->md, STATE_TABLE_ORPHAN);
}

static bool has_fewer(void *ctx)
{
	return orphans() < *(uint64_t *)ctx;
}

/* count files, of which `ret_inodes` gets the first `held`. */
static void remove_many(int count, uint64_t *ret_inodes, int held)
{
	uint64_t inode, epoch;
	char name[16];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(bed_open_file(b, name, false, &inode, &epoch), 0);
		unlink_file(name);
		if (i < held)
			ret_inodes[i] = inode;
	}
	ck_assert_uint_eq(orphans(), count);
}

/* Many files that nobody has open leave at once when they may. */
START_TEST(test_many_unlinked_files_leave)
{
	enum { FILES = 2000 };
	uint64_t fewer = FILES, begun;

	metad_bed_open_sim(b, 14);
	remove_many(FILES, NULL, 0);
	metad_bed_crash(b); /* the next metad lets go of nothing until it may have been told what is open, and then of all */
	metad_bed_sleep(b, LIMIT_SESSION_MS - 5000);
	ck_assert_uint_eq(orphans(), FILES);
	ck_assert(sim_run(b->sim, has_fewer, &fewer, sim_now_ns(b->sim) + 10 * 1000000000ull));
	begun = sim_now_ns(b->sim);
	fewer = 1;
	ck_assert(sim_run(b->sim, has_fewer, &fewer, begun + 200 * 1000000ull));
	metad_bed_close(b);
}
END_TEST

static void change(void)
{
	static unsigned number;
	uint64_t inode, epoch;
	char path[24];

	snprintf(path, sizeof(path), "beside%u", number++);
	ck_assert_int_eq(bed_open_file(b, path, false, &inode, &epoch), 0);
}

static void read_root(void)
{
	ck_assert_int_eq(bed_lookup_path(b, "", 0), 0);
}

static void leave_beside(uint64_t seed, void (*ask)(void))
{
	enum { FILES = 2000 };
	uint64_t fewer = FILES, begun, took_ns;

	metad_bed_open_sim(b, seed);
	remove_many(FILES, NULL, 0);
	metad_bed_crash(b);
	metad_bed_sleep(b, LIMIT_SESSION_MS - 5000);
	ck_assert(sim_run(b->sim, has_fewer, &fewer, sim_now_ns(b->sim) + 10 * 1000000000ull));
	begun = sim_now_ns(b->sim);
	while (orphans() && sim_now_ns(b->sim) < begun + 10 * 1000000000ull)
		ask();
	took_ns = sim_now_ns(b->sim) - begun;
	ck_assert_uint_gt(took_ns, FILES / STATE_RELEASE_MAX * 4 * 1000000ull);
	ck_assert_uint_lt(took_ns, FILES / STATE_RELEASE_MAX * 50 * 1000000ull);
	metad_bed_close(b);
}

/* While clients ask for something commands for what has left come one after the other, but not one upon the other. */
START_TEST(test_many_unlinked_files_leave_beside_changes)
{
	leave_beside(15, change);
}
END_TEST

START_TEST(test_many_unlinked_files_leave_beside_reads)
{
	leave_beside(16, read_root);
}
END_TEST

/* More than a step looks at are open: those behind them leave, and they when they are closed. */
START_TEST(test_many_unlinked_but_open)
{
	enum { HELD = PLAN_STEP_ROWS + 500, FILES = HELD + 700 };
	static uint64_t held[HELD];
	Craton__RequestId reader = CRATON__REQUEST_ID__INIT;

	metad_bed_open_sim(b, 15);
	remove_many(FILES, held, HELD);
	for (int i = 0; i < 12; i++) {
		ck_assert_int_eq(bed_renew(b, &reader, held, HELD), 0);
		metad_bed_sleep(b, 10 * 1000);
	}
	ck_assert_uint_eq(orphans(), HELD);
	for (int i = 0; i < 12; i++) {
		ck_assert_int_eq(bed_renew(b, &reader, held + 1, 1), 0);
		metad_bed_sleep(b, 10 * 1000);
	}
	ck_assert_uint_eq(orphans(), 1);
	ck_assert_int_eq(layout(held[1]), 0);
	metad_bed_sleep(b, 120 * 1000);
	ck_assert_uint_eq(orphans(), 0);
	metad_bed_close(b);
}
END_TEST

static size_t held_count(void)
{
	return b->md->sessions.held.count + b->md->sessions.held_before.count;
}

/* Who does not know the session's secret holds nothing; what was held is forgotten. */
START_TEST(test_who_may_hold)
{
	Craton__RequestId forged, reader = CRATON__REQUEST_ID__INIT;
	uint64_t inode, epoch;

	metad_bed_open_sim(b, 8);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	unlink_file("f");
	forged = b->session;
	forged.secret++;
	ck_assert_int_eq(bed_renew(b, &forged, &inode, 1), ERR_PERM);
	ck_assert_uint_eq(held_count(), 0);
	forged.session += 1000;
	ck_assert_int_eq(bed_renew(b, &forged, &inode, 1), ERR_SESSION_LOST);
	ck_assert_uint_eq(held_count(), 0);
	ck_assert_int_eq(bed_renew(b, &reader, &inode, 1), 0);
	ck_assert_uint_eq(held_count(), 1);
	metad_bed_sleep(b, 200 * 1000);
	ck_assert_uint_eq(held_count(), 0);
	metad_bed_close(b);
}
END_TEST

START_TEST(test_too_many_open_files)
{
	static uint64_t inodes[LIMIT_OPEN_FILES + 1];
	Craton__RequestId id;

	metad_bed_open_sim(b, 6);
	open_session(&id);
	ck_assert_int_eq(bed_renew(b, &id, inodes, LIMIT_OPEN_FILES), 0);
	ck_assert_int_eq(bed_renew(b, &id, inodes, LIMIT_OPEN_FILES + 1), ERR_MSGSIZE);
	metad_bed_close(b);
}
END_TEST

/* ---- a change, and a crash of metad at every moment of it ---- */

struct attempt {
	struct rpc_call call;
	int status;
	bool done;
};

static void attempt_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct attempt *a = CONTAINER_OF(call, struct attempt, call);

	(void)msg, (void)payload_len;
	a->status = status;
	a->done = true;
}

static bool attempt_is_done(void *ctx)
{
	return ((struct attempt *)ctx)->done;
}

static bool is_retried(int status)
{
	return status == ERR_CONNRESET || status == ERR_CONNREFUSED || status == ERR_TIMEDOUT || status == ERR_STOPPED;
}

/* Sends the rename, crashes metad after so many microseconds, sends it until it is answered. Rename twice would not work. */
static int rename_over_a_crash(Craton__RequestId *id, uint64_t number, uint64_t crash_us)
{
	Craton__RenameRequest req = CRATON__RENAME_REQUEST__INIT;
	struct attempt a;

	id->number = id->unanswered = number;
	req.from_parent = req.to_parent = INODE_ROOT;
	req.from_path = bed_text("from");
	req.to_path = bed_text("to");
	req.id = id;
	for (int i = 0; i < 20; i++) {
		a = (struct attempt){.call = {.method = &rpc_metad_rename, .request = &req.base, .done = attempt_done}};
		a.call.deadline_ns = io_clock_ns(b->client_io) + 5ull * 1000000000;
		rpc_call_start(b->peer, &a.call);
		if (i == 0) {
			sim_run(b->sim, attempt_is_done, &a, sim_now_ns(b->sim) + crash_us * 1000);
			metad_bed_crash(b);
		}
		ck_assert(sim_run(b->sim, attempt_is_done, &a, sim_now_ns(b->sim) + 60ull * 1000000000));
		if (!is_retried(a.status))
			return a.status;
	}
	return ERR_TIMEDOUT;
}

static int rmdir_as(Craton__RequestId *id, uint64_t number, const char *path)
{
	Craton__RemoveRequest req = CRATON__REMOVE_REQUEST__INIT;

	id->number = id->unanswered = number;
	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.directory = true;
	req.id = id;
	return bed_call(b, &rpc_metad_remove, &req.base);
}

START_TEST(test_once_over_crashes)
{
	Craton__RequestId id;

	metad_bed_open_sim(b, 7);
	open_session(&id);
	for (uint64_t i = 0; i < 60; i++) {
		uint64_t number = i * 3 + 1;

		ck_assert_int_eq(mkdir_as(&id, number, number, "from"), 0);
		ck_assert_int_eq(rename_over_a_crash(&id, number + 1, i * 20), 0);
		ck_assert_int_eq(lookup("to"), 0);
		ck_assert_int_eq(lookup("from"), ERR_NOENT);
		ck_assert_int_eq(rmdir_as(&id, number + 2, "to"), 0);
	}
	metad_bed_close(b);
}
END_TEST

UNIT_MAIN("metad_session", test_example, test_what_is_refused, test_silence_ends_a_session, test_close,
	test_unlinked_but_open, test_unlinked_but_open_in_a_hurry, test_unlinked_while_named, test_many_unlinked_files_leave, test_many_unlinked_files_leave_beside_changes, test_many_unlinked_files_leave_beside_reads, test_many_unlinked_but_open, test_who_may_hold, test_too_many_open_files, test_once_over_crashes)
