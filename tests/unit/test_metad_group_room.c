/* SPDX-License-Identifier: Apache-2.0 */
/* A group of which some have no room for more rows, or a table that takes none, or no more connections: who leads, what is refused, and what is said of it. */
#include "common/kv/kv_backend.h"
#include "tests/lib/metad_group.h"

enum { VALUE_BYTES = 30 << 10, NODES_WITH_VALUES_MAX = 4000, SETTLE_MS = 20 * 1000 };

static void fill(struct metad_bed *b, uint64_t left_bytes)
{
	sim_disk_leave(b->server_io, left_bytes);
}

static void settle(void)
{
	metad_bed_silence(wait_leader(), SETTLE_MS); /* ticks are committed, and letters say what follows from it */
}

static int rmdir_of(const char *path)
{
	Craton__RemoveRequest req = CRATON__REMOVE_REQUEST__INIT;

	group_session.unanswered = ++group_session.number;
	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.id = &group_session;
	req.directory = true;
	return bed_call(wait_leader(), &rpc_metad_remove, &req.base);
}

static uint32_t max_conns; /* of each metad; 0: as many as usual */

static void begin(uint64_t seed, const struct kv_backend *backend)
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	bed_count = METADS;
	memset(bed_gone, 0, sizeof(bed_gone));
	metad_bed_make_group(beds, METADS, sim, PORT);
	for (int i = 0; i < METADS; i++) {
		beds[i].options.backend = backend;
		beds[i].options.max_conns = max_conns;
		fill(&beds[i], UINT64_MAX);
		metad_bed_start(&beds[i]);
	}
	craton__request_id__init(&group_session);
	settle();
	ck_assert_int_eq(make_dir("before"), 0);
}

static const char *text_of(const Craton__StatusReply *status, const char *code)
{
	for (size_t i = 0; i < status->n_reasons; i++)
		if (strcmp(status->reasons[i]->code, code) == 0)
			return status->reasons[i]->text;
	return "";
}

/* The others have room: one of them leads, nothing is refused meanwhile, and the status names the one that has none. */
START_TEST(test_full_leader_hands_over)
{
	struct metad_bed *old, *next;
	char name[METAD_MEMBER_NAME_BYTES], path[16];

	for (uint64_t seed = 1; seed <= 5; seed++) {
		begin(seed, &kv_mem);
		old = wait_leader();
		fill(old, METAD_BED_MIB);
		for (int i = 0; i < 40; i++) {
			snprintf(path, sizeof(path), "d%d", i);
			ck_assert_int_eq(make_dir(path), 0);
			metad_bed_silence(wait_leader(), 500);
		}
		next = wait_leader();
		ck_assert_ptr_ne(old, next);
		ck_assert(!bed_has_reason(bed_status(next), "metadata-full"));
		metad__member_name(old->md, old->options.group.id, name);
		ck_assert_msg(strstr(text_of(bed_status(next), "metad-full"), name), "%s is not named: %s", name, text_of(bed_status(next), "metad-full"));
		settle();
		ck_assert_ptr_eq(wait_leader(), next);
		fill(old, UINT64_MAX);
		settle();
		settle();
		ck_assert(!bed_has_reason(bed_status(next), "metad-full"));
		check_equal();
		close_group();
	}
}
END_TEST

/* Rows that two of three cannot keep would end the group: growth is refused, though who leads has room. What removes goes on. */
START_TEST(test_most_are_full)
{
	struct metad_bed *l, *other;

	begin(7, &kv_mem);
	l = wait_leader();
	other = follower();
	fill(other, METAD_BED_MIB);
	settle();
	ck_assert_int_eq(make_dir("one is full"), 0);
	fill(third(l, other), METAD_BED_MIB);
	settle();
	ck_assert_int_eq(make_dir("two are full"), ERR_META_FULL);
	ck_assert(bed_has_reason(bed_status(wait_leader()), "metadata-full"));
	ck_assert_int_eq(rmdir_of("before"), 0);
	fill(other, UINT64_MAX);
	settle();
	settle();
	ck_assert_int_eq(make_dir("there is room again"), 0);
	ck_assert(!bed_has_reason(bed_status(wait_leader()), "metadata-full"));
	/* Nor may all depend on one that is full. */
	crash(third(l, other));
	fill(other, METAD_BED_MIB);
	settle();
	ck_assert_int_eq(make_dir("one is down, another is full"), ERR_META_FULL);
	ck_assert_int_eq(rmdir_of("one is full"), 0);
	fill(other, UINT64_MAX);
	restart(third(l, other));
	settle();
	settle();
	ck_assert_int_eq(make_dir("all are well"), 0);
	check_equal();
	close_group();
}
END_TEST

/* After it stood still a leader has heard nobody for long: that is no want of room. */
START_TEST(test_leader_stood_still)
{
	struct metad_bed *l, *other;

	begin(9, &kv_mem);
	l = wait_leader();
	other = follower();
	fill(other, METAD_BED_MIB);
	settle();
	l->md->ledger->has_room = false; /* as if it had looked just now */
	ck_assert_int_eq(make_dir("later"), 0);
	close_group();
}
END_TEST

/* ---- a table whose commits do not come back ---- */

static struct {
	struct io *io;
	void *store;
} opened[METADS];
static struct io *hung;
static uint64_t hung_until_ns;

static int hung_open(struct io *io, const struct kv_options *options, void **ret_store, uint64_t *ret_applied, struct err *err)
{
	int rc = kv_mem.open(io, options, ret_store, ret_applied, err);

	for (int i = 0; i < METADS; i++)
		if (beds[i].server_io == io) {
			opened[i].io = io;
			opened[i].store = *ret_store;
		}
	return rc;
}

static int hung_commit(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	uint64_t now_ns = sim_now_ns(sim);
	int rc, i = 0;

	while (i < METADS && opened[i].store != store)
		i++;
	if (i == METADS || opened[i].io != hung || now_ns >= hung_until_ns)
		return kv_mem.commit(store, table, applied, sync, err);
	sim_dir_stall(hung, "/metad", hung_until_ns - now_ns);
	rc = kv_mem.commit(store, table, applied, sync, err);
	sim_dir_stall(hung, "/metad", 0);
	return rc;
}

static int set_value(struct metad_bed *b, const char *path, const char *name)
{
	static uint8_t value[VALUE_BYTES];
	Craton__XattrSetRequest req = CRATON__XATTR_SET_REQUEST__INIT;

	group_session.unanswered = ++group_session.number;
	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.name = bed_text(name);
	req.value = bed_bytes(value, sizeof(value));
	req.id = &group_session;
	return bed_call(b, &rpc_metad_xattr_set, &req.base);
}

/* Its log answers, and it is heard, but its table takes nothing any more: another one leads soon, and says what was acknowledged. */
START_TEST(test_table_hangs)
{
	struct metad_bed *old, *next;
	char path[24];
	uint32_t made = 0;
	uint64_t began_ns, answered_ns = 0;
	struct kv_backend hangs;

	hangs = kv_mem;
	hangs.open = hung_open;
	hangs.commit = hung_commit;
	begin(11, &hangs);
	old = wait_leader();
	hung = old->server_io;
	began_ns = sim_now_ns(sim);
	hung_until_ns = began_ns + 600 * s_ns;
	for (; leader() == old && made < NODES_WITH_VALUES_MAX; made++) {
		snprintf(path, sizeof(path), "v%u", made);
		if (make_dir(path) || set_value(wait_leader(), path, "user.v"))
			break; /* it takes nothing any more, or has just handed over */
		answered_ns = sim_now_ns(sim);
	}
	next = wait_other_leader(old);
	ck_assert_uint_lt(answered_ns - began_ns, 60 * s_ns);
	ck_assert_uint_lt(sim_now_ns(sim) - answered_ns, 5 * s_ns);
	ck_assert_uint_gt(sim_now_ns(sim) - answered_ns, 5 * s_ns / 2); /* a commit that takes its time is no reason */
	ck_assert_uint_gt(made, 1000);
	for (uint32_t i = 0; i < made; i++) {
		snprintf(path, sizeof(path), "v%u", i);
		ck_assert_int_eq(lookup(next, path), 0);
	}
	ck_assert_int_eq(old->md->ill, LEDGER_ROWS_STAND);
	ck_assert_int_eq(make_dir("by the next one"), 0);
	metad_bed_silence(old, 700 * 1000);
	ck_assert_int_eq(old->md->ill, LEDGER_WELL);
	check_equal();
	close_group();
}
END_TEST

/* All connections that clients may have are taken: letters have their own. */
START_TEST(test_clients_leave_room_for_letters)
{
	struct metad_bed *old;

	max_conns = 1; /* that of the test's client */
	begin(13, &kv_mem);
	old = wait_leader();
	crash(old);
	ck_assert_ptr_ne(wait_leader(), old);
	ck_assert_int_eq(make_dir("by the next one"), 0);
	restart(old);
	check_equal();
	close_group();
	max_conns = 0;
}
END_TEST

UNIT_MAIN("metad_group_room", test_clients_leave_room_for_letters, test_full_leader_hands_over, test_most_are_full, test_leader_stood_still, test_table_hangs)
