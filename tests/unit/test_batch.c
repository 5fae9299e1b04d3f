/* SPDX-License-Identifier: Apache-2.0 */
/* Which commands of a group share an entry. */
#include "tests/lib/metad_group.h"

static int applied;

static void on_applied(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)md, (void)arg, (void)res;
	ck_assert_int_eq(status, 0);
	applied++;
}

/* In a turn of its own. */
static void tick(struct metad *md)
{
	md->cmd.type = STATE_CMD_TICK;
	ck_assert(metad__submit(md, on_applied, NULL));
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 1000);
}

/* An entry costs each of a group a write: what comes while one is in flight shares the next, which goes beside it if it is worth that. */
START_TEST(test_few_entries)
{
	struct metad_bed *b;
	struct metad *md;
	uint64_t entries;

	open_group(25);
	b = wait_leader();
	metad_bed_silence(b, 1000);
	md = b->md;
	entries = md->batcher.entries;
	for (int i = 0; i < METAD_BATCH_WORTH; i++)
		tick(md);
	ck_assert_int_eq(md->batcher.in_flight, 1);
	ck_assert_int_eq(md->batcher.open->count, METAD_BATCH_WORTH - 1);
	tick(md);
	ck_assert_int_eq(md->batcher.in_flight, 2);
	tick(md);
	ck_assert_int_eq(md->batcher.in_flight, 2);
	ck_assert_int_eq(md->batcher.open->count, 1);
	metad_bed_silence(b, 1000);
	ck_assert_int_eq(applied, METAD_BATCH_WORTH + 2);
	ck_assert_int_eq(md->batcher.entries, entries + 3);
	close_group();
}
END_TEST

UNIT_MAIN("batch", test_few_entries)
