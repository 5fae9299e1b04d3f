/* SPDX-License-Identifier: Apache-2.0 */
/* A group whose metads are replaced by a newer build, one after the other: it serves all the time, and its cluster version rises when the last one is. */
#include "tests/lib/metad_group.h"

enum { NEW = STATE_CLUSTER_VERSION, OLD = STATE_CLUSTER_VERSION - 1 };

/* ---- builds ---- */

static void open_group_of(uint64_t seed, const uint16_t supports[METADS])
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	bed_count = METADS;
	memset(bed_gone, 0, sizeof(bed_gone));
	metad_bed_make_group(beds, METADS, sim, PORT);
	for (int i = 0; i < METADS; i++) {
		beds[i].options.supports = supports[i];
		metad_bed_start(&beds[i]);
	}
}

static void replace(struct metad_bed *b, uint16_t supports)
{
	metad_bed_stop(b);
	b->options.supports = supports;
	metad_bed_start(b);
}

static uint16_t version_of(const struct metad_bed *b)
{
	return b->md->state.meta.version;
}

static uint16_t wanted;

static bool all_are_at(void *ctx)
{
	(void)ctx;
	for (int i = 0; i < bed_count; i++)
		if (is_up(&beds[i]) && version_of(&beds[i]) != wanted)
			return false;
	return true;
}

static void wait_version(uint16_t version)
{
	wanted = version;
	ck_assert(sim_run(sim, all_are_at, NULL, sim_now_ns(sim) + 60 * s_ns));
}

/* As it is some time after it was founded. */
static void open_old_group(uint64_t seed)
{
	open_group_of(seed, (const uint16_t[METADS]){OLD, OLD, OLD});
	wait_version(OLD);
}

/* It would have risen long ago. */
static void check_stays_at(uint16_t version)
{
	metad_bed_silence(wait_leader(), 10 * 1000);
	for (int i = 0; i < bed_count; i++)
		if (is_up(&beds[i]))
			ck_assert_uint_eq(version_of(&beds[i]), version);
}

/* ---- work: as a client does, asking again until it is done ---- */

static Craton__RequestId worker;

static bool is_passing(int status)
{
	return status == ERR_NOT_LEADER || status == ERR_STOPPED || status == ERR_AGAIN || status == ERR_CONNRESET || status == ERR_CONNREFUSED ||
		status == ERR_HOSTUNREACH;
}

static void work(void)
{
	char path[24];
	int status;

	if (!worker.session)
		ck_assert_int_eq(bed_open_session(wait_leader(), &worker), 0);
	worker.unanswered = ++worker.number;
	snprintf(path, sizeof(path), "work-%u", (unsigned)worker.number);
	while (is_passing(status = mkdir_as(wait_leader(), &worker, path)))
		metad_bed_silence(&beds[0], 50);
	ck_assert_int_eq(status, 0);
}

static void close_and_check(void)
{
	check_equal();
	close_group();
	worker.session = worker.number = 0;
}

/* ---- load: so many changes at once, all the time ---- */

enum { SLOTS = 16, FILL_NS = 50 * 1000 };
static struct slot {
	struct pending p;
	Craton__RequestId id;
	char path[24];
} slots[SLOTS];

static void open_slots(struct metad_bed *b)
{
	for (int i = 0; i < SLOTS; i++) {
		memset(&slots[i], 0, sizeof(slots[i]));
		ck_assert_int_eq(bed_open_session(b, &slots[i].id), 0);
		slots[i].p.done = true;
	}
}

static void fill(struct metad_bed *b, int i)
{
	struct slot *s = &slots[i];

	if (!s->p.done)
		return;
	ck_assert_int_eq(s->p.status, 0);
	s->p.done = false;
	s->id.unanswered = ++s->id.number;
	snprintf(s->path, sizeof(s->path), "load-%d-%u", i, (unsigned)s->id.number);
	craton__mkdir_request__init(&s->p.req);
	s->p.req.parent = INODE_ROOT;
	s->p.req.path = bed_text(s->path);
	s->p.req.id = &s->id;
	start_call(b, &s->p, &rpc_metad_mkdir, &s->p.req.base);
}

static void fill_slots(struct metad_bed *b)
{
	for (int i = 0; i < SLOTS; i++)
		fill(b, i);
}

static bool slots_are_done(void *ctx)
{
	(void)ctx;
	for (int i = 0; i < SLOTS; i++)
		if (!slots[i].p.done)
			return false;
	return true;
}

/* ---- tests ---- */

/* One after the other, leaders too. */
START_TEST(test_example)
{
	open_old_group(1);
	for (int done = 0; done < METADS; done++) {
		struct metad_bed *next = wait_leader();

		work();
		check_stays_at(OLD);
		for (int i = 0; next->options.supports != OLD; i++)
			next = &beds[i];
		replace(next, NEW);
	}
	wait_version(NEW);
	work();
	ck_assert_uint_eq(ask_members(0, NULL)->cluster_version, NEW);
	close_and_check();
}
END_TEST

/* While it rises entries are on their way all the time, and all are applied by everybody. */
static void rise_under_load(uint64_t seed)
{
	struct metad_bed *b, *last = NULL;

	open_old_group(seed);
	replace(wait_leader(), NEW);
	b = wait_leader();
	for (int i = 0; i < METADS; i++)
		if (beds[i].options.supports == OLD && &beds[i] != b)
			replace(last = &beds[i], NEW);
	ck_assert_int_eq(act(b, TRANSFER, number(last)), 0);
	metad_bed_silence(b, 1000);
	ck_assert_ptr_eq(wait_leader(), last);
	replace(b, NEW);
	b = wait_leader();
	open_slots(b);
	ck_assert_uint_eq(version_of(b), OLD);
	for (int i = 0; i < 100 * 1000 && version_of(b) == OLD; i++) {
		fill(b, i % SLOTS); /* one after the other, so that some are behind the entry that raises */
		sim_run(sim, metad_bed_never, NULL, sim_now_ns(sim) + FILL_NS);
	}
	ck_assert_uint_eq(version_of(b), NEW);
	ck_assert(sim_run(sim, slots_are_done, NULL, sim_now_ns(sim) + 10 * s_ns));
	fill_slots(b);
	ck_assert(sim_run(sim, slots_are_done, NULL, sim_now_ns(sim) + 10 * s_ns));
	wait_version(NEW);
	close_and_check();
}

START_TEST(test_rises_under_load)
{
	for (uint64_t seed = 80; seed < 84; seed++)
		rise_under_load(seed);
}
END_TEST

/* Who writes the first entry may not have heard all of them. */
START_TEST(test_founders_of_two_builds)
{
	for (int older = 0; older < METADS; older++) {
		uint16_t supports[METADS] = {NEW, NEW, NEW};

		supports[older] = OLD;
		open_group_of(40 + (uint64_t)older, supports);
		work();
		check_stays_at(OLD);
		replace(&beds[older], NEW);
		wait_version(NEW);
		close_and_check();
	}
}
END_TEST

/* Whoever is not heard may come back as the build that it was. */
START_TEST(test_one_is_down)
{
	open_old_group(3);
	work();
	crash(&beds[2]);
	replace(&beds[0], NEW);
	replace(&beds[1], NEW);
	check_stays_at(OLD);
	restart(&beds[2]); /* as it did */
	check_stays_at(OLD);
	work();
	/* The leader before heard that one's last words; this one has not. */
	metad_bed_stop(&beds[2]);
	replace(wait_leader(), NEW);
	check_stays_at(OLD);
	beds[2].options.supports = NEW;
	metad_bed_start(&beds[2]);
	wait_version(NEW);
	close_and_check();
}
END_TEST

/* A member that came later counts, too. */
START_TEST(test_member_that_was_added)
{
	const Craton__MembersReply *reply;

	open_old_group(4);
	add(start_joiner(OLD));
	for (int i = 0; i < METADS; i++)
		replace(&beds[i], NEW);
	check_stays_at(OLD);
	reply = ask_members(0, NULL);
	ck_assert_uint_eq(reply->cluster_version, OLD);
	ck_assert_uint_eq(reply->n_members, METADS + 1);
	for (size_t i = 0; i < reply->n_members; i++)
		ck_assert_uint_eq(reply->members[i]->supports, reply->members[i]->id == 4 ? OLD : NEW);
	replace(&beds[METADS], NEW);
	wait_version(NEW);
	close_and_check();
}
END_TEST

/* None comes that could not apply what is there. */
START_TEST(test_older_build_is_not_added)
{
	const Craton__MembersReply *reply;
	struct metad_bed *b;

	open_group_of(5, (const uint16_t[METADS]){NEW, NEW, NEW});
	wait_version(NEW);
	b = start_joiner(OLD);
	reply = ask_members(ADD, b);
	ck_assert_msg(strstr(reply->error, "of an older build, which supports cluster version") && strstr(reply->error, "start the build of the others"),
		"%s", reply->error);
	ck_assert_uint_eq(reply->n_members, METADS);
	replace(b, NEW);
	add(b);
	close_and_check();
}
END_TEST

static bool has_failed(void *ctx)
{
	return ((struct metad_bed *)ctx)->fatal != 0;
}

/* NULL: none has applied it yet. */
static struct metad_bed *raised_follower(void)
{
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != leader() && version_of(&beds[i]) == NEW)
			return &beds[i];
	return NULL;
}

static void check_stopped(int code, const char *text)
{
	ck_assert_int_eq(code, ERR_VERSION);
	ck_assert_msg(strstr(text, "use a newer binary"), "%s", text);
}

/* No crash takes it out of its table any more. */
static void keep_the_raise(struct metad_bed *b)
{
	struct kv *kv = b->md->state.kv;
	struct kv_stats stats;
	uint64_t before;

	kv_get_stats(kv, &stats);
	before = stats.commits;
	for (int tries = 0; stats.commits < before + 3; tries++) {
		ck_assert_int_lt(tries, 50);
		work();
		metad_bed_silence(&beds[0], 100);
		kv_get_stats(kv, &stats);
	}
}

/* A metad of a group that was just raised, or has gone on since, is replaced by the build before. True: its log has the raise, its table not yet. */
static bool comes_back(uint64_t seed, bool gone_on)
{
	struct metad_bed *b;
	struct err err = {0};
	bool by_log;

	open_old_group(seed);
	work();
	for (int i = 0; i < METADS; i++)
		replace(&beds[i], NEW);
	while (!(b = raised_follower()))
		metad_bed_silence(&beds[0], 1);
	if (gone_on)
		keep_the_raise(b);
	crash(b);
	b->options.supports = OLD;
	sim_host_restart(b->server_io);
	by_log = metad_bed_try_start(b, &err) == 0;
	if (by_log) {
		ck_assert(sim_run(sim, has_failed, b, sim_now_ns(sim) + 10 * s_ns));
		check_stopped(b->fatal, b->fatal_text);
		ck_assert_uint_eq(version_of(b), OLD);
		b->fatal = 0;
	} else {
		check_stopped(err.code, err.text);
	}
	work();
	crash(b);
	b->options.supports = NEW;
	restart(b);
	wait_version(NEW);
	close_and_check();
	return by_log;
}

/* It says what to do, and has applied nothing that it does not know. */
START_TEST(test_older_build_comes_back)
{
	int by_log = 0;

	for (uint64_t seed = 60; seed < 66; seed++)
		by_log += comes_back(seed, false);
	ck_assert_int_ge(by_log, 4);
	for (uint64_t seed = 66; seed < 72; seed++)
		ck_assert(!comes_back(seed, true));
}
END_TEST

/* Leaders die and are cut off while it rises: it has, in the end, and what was acknowledged is there. */
START_TEST(test_leaders_die)
{
	for (uint64_t seed = 20; seed < 32; seed++) {
		struct metad_bed *b;
		uint64_t ms;

		open_old_group(seed);
		work();
		for (int i = 0; i < METADS; i++)
			replace(&beds[i], NEW);
		ms = seed % 2 ? 0 : 10 * (seed - 20);
		for (int i = 0; ms == 0 && i < 20000 && !wait_leader()->md->raising_to; i++)
			metad_bed_silence(&beds[0], 1);
		metad_bed_silence(&beds[0], ms);
		b = wait_leader();
		if (seed % 4 < 2)
			crash(b);
		else
			cut_off(b, true);
		work();
		metad_bed_silence(wait_other_leader(b), 3000);
		if (seed % 4 < 2)
			restart(b);
		else
			cut_off(b, false);
		wait_version(NEW);
		work();
		close_and_check();
	}
}
END_TEST

UNIT_MAIN("metad_group_version", test_example, test_founders_of_two_builds, test_rises_under_load, test_one_is_down, test_member_that_was_added, test_older_build_is_not_added,
	test_older_build_comes_back, test_leaders_die)
