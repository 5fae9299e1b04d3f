/* SPDX-License-Identifier: Apache-2.0 */
/* Metads whose rows are not those of the others: found, named, and gone, whoever leads; and nobody else ever is. */
#include "tests/lib/metad_group.h"

static bool is_raised(void *ctx)
{
	(void)ctx;
	for (int i = 0; i < bed_count; i++)
		if (is_up(&beds[i]) && beds[i].md->state.meta.version < STATE_CLUSTER_DIGEST)
			return false;
	return leader() != NULL;
}

static void open_raised_group(uint64_t seed)
{
	open_group(seed);
	ck_assert(sim_run(sim, is_raised, NULL, sim_now_ns(sim) + 60 * s_ns));
}

static int names;

/* So many entries, at least; as a client does that asks again. */
static void write_entries(int count)
{
	for (int i = 0; i < count; i++) {
		char path[24];
		int status;

		snprintf(path, sizeof(path), "n%d", names++);
		do {
			struct metad_bed *b = wait_leader();

			status = bed_mkdir(b, path);
			if (status) {
				b->session.session = b->session.number = 0;
				metad_bed_silence(b, 50);
			}
		} while (status && status != ERR_EXIST);
	}
}

/* A bit of what it keeps in memory of the meta row; it is written with the next entry. */
static void flip(struct metad_bed *b)
{
	b->md->state.meta.pending_bytes ^= 1 << 20;
}

static uint64_t agreed(const struct metad_bed *b)
{
	return b->md->ledger->digests.agreed;
}

static bool all_agree_again(void *ctx)
{
	for (int i = 0; i < bed_count; i++)
		if (!bed_gone[i] && (!is_up(&beds[i]) || agreed(&beds[i]) < *(const uint64_t *)ctx))
			return false;
	return true;
}

/* They have compared what they have now. */
static void check_compared(void)
{
	uint64_t index = ledger_applied(wait_leader()->md->ledger);

	write_entries(DIGEST_ENTRIES);
	ck_assert(sim_run(sim, all_agree_again, &index, sim_now_ns(sim) + 60 * s_ns));
}

static bool has_failed(void *ctx)
{
	return ((struct metad_bed *)ctx)->fatal != 0;
}

/* It has stopped for that, says so, and does not start again. */
static void check_gone(struct metad_bed *b)
{
	struct err err = {0};

	ck_assert(sim_run(sim, has_failed, b, sim_now_ns(sim) + 10 * s_ns));
	ck_assert_msg(b->fatal == ERR_CORRUPT, "%s", b->fatal_text);
	ck_assert_msg(strstr(b->fatal_text, "is not what they changed on most metads") && strstr(b->fatal_text, "craton meta remove metad-"), "%s",
		b->fatal_text);
	b->fatal = 0;
	crash(b);
	sim_host_restart(b->server_io);
	ck_assert_int_eq(metad_bed_try_start(b, &err), ERR_CORRUPT);
	ck_assert_str_eq(err.text, b->fatal_text);
	b->md = NULL;
}

static const Craton__MemberStatus *status_of(const struct metad_bed *whom)
{
	Craton__MembersRequest req = CRATON__MEMBERS_REQUEST__INIT;
	struct metad_bed *b = wait_leader();
	const Craton__MembersReply *reply;

	ck_assert_int_eq(bed_call(b, &rpc_metad_members, &req.base), 0);
	reply = (const Craton__MembersReply *)b->reply;
	for (size_t i = 0; i < reply->n_members; i++)
		if (reply->members[i]->id == whom->options.group.id)
			return reply->members[i];
	ck_abort();
}

static int lines; /* that say that rows differ */

static void count_lines(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level;
	lines += strstr(line, "rows-differ") != NULL;
}

static void forget(struct metad_bed *b)
{
	ck_assert_int_eq(b->fatal, 0);
	bed_gone[b - beds] = true;
}

/* ---- tests ---- */

START_TEST(test_example)
{
	const Craton__MemberStatus *status;
	struct metad_bed *b;
	uint64_t before;

	open_raised_group(1);
	for (int i = 0; i < METADS; i++)
		beds[i].log.write = count_lines;
	write_entries(10);
	check_compared();
	b = follower();
	before = ledger_applied(b->md->ledger);
	flip(b);
	write_entries(2 * DIGEST_ENTRIES);
	check_gone(b);
	status = status_of(b);
	ck_assert_int_eq(lines, 1);
	ck_assert_uint_le(status->same, before);
	ck_assert_uint_gt(status->differs, before);
	ck_assert_uint_le(status->differs, before + DIGEST_ENTRIES);
	ck_assert(bed_has_reason(bed_status(wait_leader()), "metad-differs"));
	ck_assert_int_eq(act(wait_leader(), REMOVE, number(b)), 0);
	forget(b);
	check_compared();
	check_equal();
	close_group();
}
END_TEST

/* It is the leader that goes, though it has asked. */
START_TEST(test_leader)
{
	struct metad_bed *b;

	open_raised_group(2);
	check_compared();
	b = wait_leader();
	flip(b);
	write_entries(2 * DIGEST_ENTRIES);
	check_gone(b);
	ck_assert_ptr_ne(wait_leader(), b);
	ck_assert_uint_gt(status_of(b)->differs, 0);
	forget(b);
	check_compared();
	check_equal();
	close_group();
}
END_TEST

/* What it must not forget has its room on a disk that others have filled. */
START_TEST(test_full_disk)
{
	struct metad_bed *b;
	struct digests *d;

	open_raised_group(9);
	check_compared();
	b = follower();
	d = &b->md->ledger->digests;
	d->own[d->round.index / DIGEST_ENTRIES % DIGESTS_KEPT].crc ^= 1; /* it looks before it writes its table again */
	sim_disk_full(b->server_io, true);
	check_gone(b);
	forget(b);
	check_compared();
	close_group();
}
END_TEST

/* With one of three down nobody knows who is right: that is said, and all goes on; the third decides. */
START_TEST(test_two_of_three)
{
	struct metad_bed *b, *wrong, *down;

	open_raised_group(3);
	check_compared();
	b = wait_leader();
	wrong = follower();
	down = third(b, wrong);
	crash(down);
	flip(wrong);
	write_entries(2 * DIGEST_ENTRIES);
	metad_bed_silence(b, 10 * 1000);
	ck_assert(!b->fatal && !wrong->fatal);
	ck_assert_uint_gt(status_of(b == wait_leader() ? wrong : b)->differs, 0);
	restart(down);
	check_gone(wrong);
	forget(wrong);
	check_compared();
	check_equal();
	close_group();
}
END_TEST

/* Each that comes to lead says it, also when it has led before. */
START_TEST(test_each_leader_says_it)
{
	struct metad_bed *b, *wrong;

	open_raised_group(8);
	check_compared();
	b = wait_leader();
	wrong = follower();
	crash(third(b, wrong));
	flip(wrong);
	for (int i = 0; i < METADS; i++)
		beds[i].log.write = count_lines;
	lines = 0;
	write_entries(2 * DIGEST_ENTRIES);
	metad_bed_silence(b, 10 * 1000);
	for (int led = 1; led <= 3; led++) {
		struct metad_bed *next = wait_leader() == b ? wrong : b;

		ck_assert_int_eq(lines, led);
		ck_assert_int_eq(act(wait_leader(), TRANSFER, number(next)), 0);
		ck_assert_ptr_eq(wait_leader(), next);
		metad_bed_silence(b, 10 * 1000);
	}
	close_group();
}
END_TEST

/* One that crashed: what it lacks by now is not in the log any more. */
static struct metad_bed *lag_behind(struct metad_bed *away)
{
	crash(away);
	write_entries(3000);
	ck_assert_uint_gt(wal_index(replica_log(wait_leader()->md->ledger->replica))->base_index, 1);
	return away;
}

static uint64_t installed(const struct metad_bed *b)
{
	return replica_counts(b->md->ledger->replica)->snapshots_installed;
}

static bool has_installed(void *ctx)
{
	return installed(ctx) > 0;
}

static void check_none_stopped(void)
{
	for (int i = 0; i < bed_count; i++)
		ck_assert_msg(!beds[i].fatal, "metad-%d: %s", i + 1, beds[i].fatal_text);
}

/* An operator has chosen. Who waits for rows goes first: it counts, and has nothing. */
static void take_out(struct metad_bed *b, struct metad_bed *trusted)
{
	int status = ERR_BUSY;

	for (int tries = 0; tries < 100 && status; tries++) {
		if (wait_leader() != trusted && act(wait_leader(), TRANSFER, number(trusted)) == 0)
			wait_other_leader(b);
		metad_bed_silence(b, 100);
		status = act(wait_leader(), REMOVE, number(b));
	}
	ck_assert_int_eq(status, 0);
	crash(b);
	forget(b);
}

/* Who leads has other rows than the only one that could say so: it gives them to nobody, and nobody is added, until an operator chooses. */
START_TEST(test_wrong_leader_gives_nothing)
{
	struct metad_bed *wrong, *right, *away, *joiner;

	open_raised_group(6);
	for (int i = 0; i < METADS; i++)
		beds[i].log.write = count_lines;
	check_compared();
	lines = 0;
	wrong = wait_leader();
	right = follower();
	away = third(wrong, right);
	flip(wrong);
	lag_behind(away);
	metad_bed_silence(right, 5 * 1000);
	ck_assert_ptr_eq(wait_leader(), wrong);
	ck_assert_uint_gt(status_of(right)->differs, 0);
	ck_assert_int_eq(lines, 1);
	restart(away);
	metad_bed_silence(right, 20 * 1000);
	check_none_stopped();
	ck_assert_uint_eq(installed(away), 0);
	joiner = start_joiner(0);
	ck_assert_ptr_nonnull(strstr(ask_members(ADD, joiner)->error, "which of them are right is not known"));
	crash(joiner);
	bed_gone[--bed_count] = true;
	take_out(away, right);
	take_out(wrong, right);
	write_entries(2 * DIGEST_ENTRIES);
	check_none_stopped();
	close_group();
}
END_TEST

/* Between two marks nobody knows yet that it is wrong: who gets its rows then says what it says, and is no second voice against the other one. */
START_TEST(test_wrong_leader_gave_before)
{
	struct metad_bed *wrong, *right, *away;

	open_raised_group(7);
	wrong = wait_leader();
	right = follower();
	away = lag_behind(third(wrong, right));
	ck_assert_ptr_eq(wait_leader(), wrong);
	for (int i = 0; i < DIGEST_ENTRIES && ledger_applied(wrong->md->ledger) % DIGEST_ENTRIES > DIGEST_ENTRIES / 2; i++)
		write_entries(1);
	flip(wrong);
	write_entries(2);
	restart(away);
	ck_assert(sim_run(sim, has_installed, away, sim_now_ns(sim) + 60 * s_ns));
	ck_assert_uint_eq(status_of(right)->differs, 0);
	write_entries(3 * DIGEST_ENTRIES);
	metad_bed_silence(right, 10 * 1000);
	check_none_stopped();
	ck_assert_uint_gt(status_of(wait_leader() == right ? wrong : right)->differs, 0);
	ck_assert_uint_eq(status_of(wait_leader() == wrong ? away : wrong)->differs != 0, wait_leader() == right);
	metad_bed_stop(away);
	metad_bed_start(away);
	write_entries(3 * DIGEST_ENTRIES);
	metad_bed_silence(right, 10 * 1000);
	check_none_stopped();
	take_out(away, right);
	take_out(wrong, right);
	close_group();
}
END_TEST

/* What was wrong was not in memory when power failed: who starts again has it in its rows, and is found. */
START_TEST(test_wrong_rows_stay_wrong)
{
	struct metad_bed *b;

	open_raised_group(4);
	check_compared();
	b = follower();
	cut_off(b, true);
	flip(b);
	cut_off(b, false);
	write_entries(20);
	metad_bed_stop(b);
	metad_bed_start(b);
	write_entries(2 * DIGEST_ENTRIES);
	check_gone(b);
	forget(b);
	check_equal();
	close_group();
}
END_TEST

/* Leaders die, tables take the place of logs, members come, and power fails everywhere: nobody is ever found. */
START_TEST(test_no_false_alarm)
{
	struct metad_bed *b, *away;

	open_raised_group(5);
	for (int round = 0; round < 6; round++) {
		b = wait_leader();
		crash(round % 2 ? b : follower());
		write_entries(100);
		for (int i = 0; i < bed_count; i++)
			if (!is_up(&beds[i]))
				restart(&beds[i]);
		write_entries(50);
	}
	check_compared();
	away = follower();
	crash(away);
	write_entries(3000);
	ck_assert_uint_gt(wal_index(replica_log(wait_leader()->md->ledger->replica))->base_index, 1);
	restart(away);
	check_equal();
	ck_assert_uint_ge(replica_counts(away->md->ledger->replica)->snapshots_installed, 1);
	check_compared();
	add(start_joiner(0));
	check_compared();
	for (int i = 0; i < bed_count; i++)
		crash(&beds[i]);
	for (int i = 0; i < bed_count; i++)
		restart(&beds[i]);
	check_compared();
	check_equal();
	close_group();
}
END_TEST

UNIT_MAIN("metad_group_digest", test_example, test_leader, test_full_disk, test_two_of_three, test_each_leader_says_it, test_wrong_leader_gives_nothing, test_wrong_leader_gave_before,
	test_wrong_rows_stay_wrong, test_no_false_alarm)
