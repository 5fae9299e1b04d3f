/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pick.h"

#include "tests/lib/unit.h"

#define MS ((uint64_t)1000 * 1000)

/* rs-4-2 on disks and domains 1..6, all sealed within 10 ms. */
static struct pick_block healthy(void)
{
	struct pick_block b = {.k_data = 4, .m = 2, .chunk_count = 6, .chunks_total = 1000};

	for (uint8_t i = 0; i < 6; i++) {
		b.state[i] = PICK_SEALED;
		b.place[i] = (struct pick_place){i + 1u, i + 1u};
		b.age_ns[i] = 10 * MS;
	}
	return b;
}

static struct pick_result decide(const struct pick_block *b)
{
	struct pick_result r;

	pick_write(b, &r);
	return r;
}

START_TEST(test_all_sealed_is_committed)
{
	struct pick_block b = healthy();

	ck_assert_int_eq(decide(&b).action, PICK_COMMIT);
	/* A short block: data chunks that do not exist are not waited for. */
	b.k_data = 1;
	b.state[1] = b.state[2] = b.state[3] = PICK_ABSENT;
	ck_assert_int_eq(decide(&b).action, PICK_COMMIT);
	b.state[0] = PICK_SENDING;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
}
END_TEST

START_TEST(test_failed_goes_to_a_spare)
{
	struct pick_block b = healthy();

	b.state[2] = PICK_FAILED;
	b.spare_count = 2;
	b.spare[0] = (struct pick_place){1, 1};
	b.spare[1] = (struct pick_place){7, 7};
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	ck_assert_uint_eq(decide(&b).index, 2);
	ck_assert_uint_eq(decide(&b).spare, 1); /* the unused domain */
	b.spare_count = 1;
	ck_assert_uint_eq(decide(&b).spare, 0); /* better two in a domain than one missing */
	/* Never more than m in a domain. */
	b.place[1].domain = 1;
	ck_assert_int_eq(decide(&b).action, PICK_EXPOSED);
	b.spare_count = 0;
	b.place[1].domain = 2;
	ck_assert_int_eq(decide(&b).action, PICK_COMMIT);
}
END_TEST

START_TEST(test_too_few_is_allocated_anew)
{
	struct pick_block b = healthy();

	b.state[0] = b.state[5] = PICK_FAILED;
	ck_assert_uint_eq(pick_fewest(4, 2), 5);
	ck_assert_int_eq(decide(&b).action, PICK_REALLOCATE);
	b.state[5] = PICK_SENDING;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.state[5] = PICK_SEALED;
	ck_assert_int_eq(decide(&b).action, PICK_COMMIT); /* five of six: k' + m - 1 */
	ck_assert_uint_eq(pick_fewest(8, 3), 10);
	ck_assert_uint_eq(pick_fewest(10, 4), 12);
	ck_assert_uint_eq(pick_fewest(1, 2), 2);
}
END_TEST

START_TEST(test_late_chunk)
{
	struct pick_block b = healthy();

	b.state[3] = PICK_SENDING;
	b.age_ns[3] = 99 * MS;
	b.spare_count = 1;
	b.spare[0] = (struct pick_place){9, 9};
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	ck_assert_uint_eq(decide(&b).wait_ns, 1 * MS);
	b.age_ns[3] = 100 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	/* In a used domain: no. All others are there: the client goes on without it. */
	b.spare[0].domain = 1;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.age_ns[3] = 99 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	ck_assert_uint_eq(decide(&b).wait_ns, 1 * MS);
	b.age_ns[3] = 100 * MS;
	/* But only for one chunk in twenty, */
	b.chunks_left = 50;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.chunks_left = 49;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	/* and never below the fewest. */
	b.state[4] = PICK_LEFT;
	b.age_ns[3] = 100000 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	/* One that was left is needed after all: waited for, not sent anew. */
	b.state[3] = PICK_SEALED;
	ck_assert_int_eq(decide(&b).action, PICK_COMMIT);
	b.state[2] = PICK_FAILED;
	b.spare_count = 0;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	/* Slow peers make lateness later. */
	b = healthy();
	for (uint8_t i = 0; i < 6; i++)
		b.age_ns[i] = 200 * MS;
	b.state[3] = PICK_SENDING;
	b.age_ns[3] = 799 * MS;
	b.spare_count = 1;
	b.spare[0] = (struct pick_place){9, 9};
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.age_ns[3] = 800 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
}
END_TEST

/* One that is late is waited for where its block, with two chunks in a domain, could not be read without that domain. */
START_TEST(test_late_chunk_of_a_crowded_block)
{
	struct pick_block b = healthy();

	b.state[3] = PICK_SENDING;
	b.age_ns[3] = 100 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.place[3].domain = 6; /* its own domain may hold another one */
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.place[5] = (struct pick_place){7, 5};
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	ck_assert_uint_eq(decide(&b).wait_ns, 1000 * MS);
	b.pace[3] = PICK_PACE_SLOW;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	/* A fresh domain is taken as ever, a used one when it is long past due, that of a silent server never. */
	b.spare_count = 1;
	b.spare[0] = (struct pick_place){9, 9};
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	b.spare[0] = (struct pick_place){9, 1};
	b.still_ns[3] = 50 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	ck_assert_uint_eq(decide(&b).wait_ns, 950 * MS);
	b.age_ns[3] = 3000 * MS;
	b.still_ns[3] = 999 * MS; /* it has moved since */
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.still_ns[3] = 1000 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	b.pace[3] = PICK_PACE_PROBE; /* nobody waits for it */
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.pace[3] = PICK_PACE_WELL;
	b.spares_suspect = true;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.spare[0] = (struct pick_place){9, 9};
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.state[3] = PICK_FAILED;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	b.spare[0] = (struct pick_place){9, 5}; /* has two */
	ck_assert_int_eq(decide(&b).action, PICK_EXPOSED);
	/* One that was left is needed, but for a probe. */
	b.state[3] = PICK_LEFT;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.pace[3] = PICK_PACE_PROBE;
	ck_assert_int_eq(decide(&b).action, PICK_EXPOSED);
}
END_TEST

START_TEST(test_exposed_blocks_of_other_shapes)
{
	/* A short block, three copies: one less than two places is none; what it has not is in no domain. */
	struct pick_block b = healthy();

	b.k_data = 1;
	b.state[1] = b.state[2] = b.state[3] = PICK_ABSENT;
	b.place[1].domain = 5;
	b.state[5] = PICK_SENDING;
	b.age_ns[5] = 100 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.place[4] = (struct pick_place){7, 1};
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.state[5] = PICK_FAILED;
	ck_assert_int_eq(decide(&b).action, PICK_EXPOSED);
	/* rs-8-4 has one to spare, though each domain has two; without two, and with three in a domain, it has not. */
	b = (struct pick_block){.k_data = 8, .m = 4, .chunk_count = 12, .chunks_total = 1000};
	for (uint8_t i = 0; i < 12; i++) {
		b.state[i] = i ? PICK_SEALED : PICK_SENDING;
		b.place[i] = (struct pick_place){i + 1u, i / 2 + 1u};
		b.age_ns[i] = i ? 10 * MS : 1000 * MS;
	}
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.state[1] = PICK_LEFT;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.place[11].domain = 5;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	/* With one failed for good it would not have all its chunks elsewhere either. */
	b.spare_count = 1;
	b.spare[0] = (struct pick_place){20, 2};
	b.still_ns[0] = 1000 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	b.state[1] = PICK_FAILED;
	b.place[4].domain = b.place[5].domain = 2; /* has four */
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
}
END_TEST

/* rs-8-4: ten receipts suffice; without one chunk the block goes on when it is late, without two only after long. */
START_TEST(test_several_late_chunks)
{
	struct pick_block b = {.k_data = 8, .m = 4, .chunk_count = 12, .chunks_total = 1000};

	for (uint8_t i = 0; i < 12; i++) {
		b.state[i] = i < 2 ? PICK_SENDING : PICK_SEALED;
		b.place[i] = (struct pick_place){i + 1u, i + 1u};
		b.age_ns[i] = i < 2 ? 999 * MS : 10 * MS;
	}
	ck_assert_uint_eq(pick_fewest(8, 4), 10);
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.age_ns[0] = 1000 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.state[0] = PICK_LEFT;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
	b.age_ns[1] = 1000 * MS;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	b.state[2] = PICK_SENDING;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
}
END_TEST

START_TEST(test_slow_disks)
{
	struct pick_block b = healthy();

	/* A chunk that goes to a slow disk as a probe is waited for by nobody, and does not count as left. */
	b.state[3] = PICK_SENDING;
	b.age_ns[3] = 0;
	b.pace[3] = PICK_PACE_PROBE;
	b.chunks_left = 1000;
	b.spare_count = 1;
	b.spare[0] = (struct pick_place){9, 9};
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	/* One whose disk turned out to be slow goes to a fresh domain at once, or is left like that. */
	b.pace[3] = PICK_PACE_SLOW;
	ck_assert_int_eq(decide(&b).action, PICK_REPLACE);
	b.spare[0].domain = 1;
	ck_assert_int_eq(decide(&b).action, PICK_LEAVE);
	/* Not while another one is on its way. */
	b.state[2] = PICK_SENDING;
	ck_assert_int_eq(decide(&b).action, PICK_WAIT);
}
END_TEST

START_TEST(test_hedged_bytes_are_bounded)
{
	const uint64_t free_bytes = PICK_HEDGE_FREE_BYTES, gib = 1 << 30;

	ck_assert(pick_may_hedge(free_bytes, 0, 0));
	ck_assert(!pick_may_hedge(free_bytes, 1, 0));
	ck_assert(pick_may_hedge(1, gib / 10, gib));
	ck_assert(!pick_may_hedge(free_bytes, gib / 10 + 64, gib));
	ck_assert_uint_eq(pick_late_after_ns(1 * MS, PICK_HEDGE_MIN_NS), 10 * MS);
	ck_assert_uint_eq(pick_late_after_ns(3 * MS, PICK_HEDGE_MIN_NS), 12 * MS);
	ck_assert_uint_eq(pick_late_after_ns(0, PICK_HEDGE_MIN_NS), 1000 * MS);
}
END_TEST

/* rs-4-2, all data chunks needed. */
static bool row(const char *text, uint32_t avoid, uint32_t *ask, uint32_t *rebuild)
{
	uint8_t unit[LIMIT_WIDTH];

	for (int i = 0; i < 6; i++)
		unit[i] = text[i] == '.' ? PICK_UNIT_NONE
			: text[i] == 'P' ? PICK_UNIT_PENDING
			: text[i] == 'G' ? PICK_UNIT_GOOD
			: text[i] == 'B' ? PICK_UNIT_BAD
					 : PICK_UNIT_LATE;
	*ask = *rebuild = 0xdead;
	return pick_row(4, 2, unit, 0xf, avoid, ask, rebuild);
}

START_TEST(test_rows)
{
	uint32_t ask, rebuild;

	ck_assert(row("......", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask, 0xf);
	ck_assert_uint_eq(rebuild, 0);
	ck_assert(row("GGGG..", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask | rebuild, 0);
	/* One bad: one parity unit more. */
	ck_assert(row("GBGG..", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask, 1 << 4);
	ck_assert_uint_eq(rebuild, 1 << 1);
	ck_assert(row("GBGGP.", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask, 0);
	ck_assert(row("GBGBB.", 0, &ask, &rebuild) == false);
	/* Two avoided: both parity units instead; asked after all if these are bad. */
	ck_assert(row("......", 0x3, &ask, &rebuild));
	ck_assert_uint_eq(ask, 0x3c);
	ck_assert_uint_eq(rebuild, 0x3);
	ck_assert(row("..GGGB", 0x3, &ask, &rebuild));
	ck_assert_uint_eq(ask, 0x1);
	ck_assert_uint_eq(rebuild, 0x2);
	ck_assert(row("..GGBB", 0x3, &ask, &rebuild));
	ck_assert_uint_eq(ask, 0x3);
	ck_assert_uint_eq(rebuild, 0);
	/* A late one is rebuilt, or waited for if there is no other way. */
	ck_assert(row("GLGG..", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask, 1 << 4);
	ck_assert_uint_eq(rebuild, 1 << 1);
	ck_assert(row("GLGGBB", 0, &ask, &rebuild));
	ck_assert_uint_eq(ask | rebuild, 0);
}
END_TEST

UNIT_MAIN("pick", test_all_sealed_is_committed, test_failed_goes_to_a_spare, test_too_few_is_allocated_anew,
	test_late_chunk, test_late_chunk_of_a_crowded_block, test_exposed_blocks_of_other_shapes,
	test_several_late_chunks, test_slow_disks, test_hedged_bytes_are_bounded, test_rows)
