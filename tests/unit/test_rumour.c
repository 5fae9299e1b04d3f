/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a copy that somebody found wrong, by what its own server says of it. */
#include "metad/plan/rumour.h"
#include "common/base/err.h"
#include "tests/lib/unit.h"

static struct rumours r;

static struct rumour *tell(uint64_t block, int status, uint64_t now_ms)
{
	struct rumour rumour = {.block = block, .index = 2, .disk = 3, .incarnation = 1, .status = status};

	(void)rumour_add(&r, &rumour, now_ms);
	return rumour_find(&r, block, 2, 1);
}

START_TEST(test_what_its_server_confirms_is_damage)
{
	static const int wrong[] = {ERR_CORRUPT, ERR_TRAILER_CORRUPT, ERR_NOENT};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct rumour *at = tell(7, ERR_CORRUPT, 1000);

		ck_assert(rumour_is_due(at, 1000));
		/* also of the last ones that there are: it is what was read */
		ck_assert_int_eq(rumour_answer(at, wrong[i], false, 1001), RUMOUR_DAMAGED);
		ck_assert_ptr_null(rumour_find(&r, 7, 2, 1));
	}
}
END_TEST

START_TEST(test_a_busy_server_is_asked_again)
{
	static const int busy[] = {ERR_AGAIN, ERR_OVERLOADED, ERR_STOPPED};
	struct rumour *at = tell(7, ERR_CORRUPT, 1000);

	for (size_t i = 0; i < sizeof(busy) / sizeof(busy[0]); i++) {
		ck_assert_int_eq(rumour_answer(at, busy[i], true, 1001), RUMOUR_WAITS);
		ck_assert(rumour_is_due(at, 1001));
	}
}
END_TEST

/* The whole disk may be gone for a moment, which only a write would notice. */
START_TEST(test_what_cannot_be_read_is_asked_again_later)
{
	struct rumour *at = tell(7, ERR_IO, 1000);
	uint64_t again_ms = 1500 + RUMOUR_UNREAD_MS;

	ck_assert_int_eq(rumour_answer(at, ERR_IO, true, 1500), RUMOUR_WAITS);
	ck_assert(!rumour_is_due(at, 1501));
	/* the heartbeat's answer was lost, and the same result comes again */
	ck_assert_int_eq(rumour_answer(at, ERR_IO, true, again_ms - 1), RUMOUR_WAITS);
	ck_assert(!rumour_is_due(at, again_ms - 1));
	ck_assert(rumour_is_due(at, again_ms));
	ck_assert_int_eq(rumour_answer(at, ERR_IO, true, again_ms), RUMOUR_DAMAGED);
	ck_assert_ptr_null(rumour_find(&r, 7, 2, 1));
	/* the disk is back meanwhile */
	at = tell(7, ERR_IO, 1000);
	ck_assert_int_eq(rumour_answer(at, ERR_IO, true, 1500), RUMOUR_WAITS);
	ck_assert_int_eq(rumour_answer(at, 0, true, again_ms), RUMOUR_ENDS);
	ck_assert_ptr_null(rumour_find(&r, 7, 2, 1));
}
END_TEST

START_TEST(test_the_last_ones_are_not_given_up)
{
	struct rumour *at = tell(7, ERR_IO, 1000);

	ck_assert_int_eq(rumour_answer(at, ERR_IO, false, 1500), RUMOUR_ENDS);
	at = tell(7, ERR_IO, 1000);
	ck_assert_int_eq(rumour_answer(at, ERR_IO, true, 1500), RUMOUR_WAITS);
	ck_assert_int_eq(rumour_answer(at, ERR_IO, false, 1500 + RUMOUR_UNREAD_MS), RUMOUR_ENDS);
	/* a disk that has failed says so in its state */
	at = tell(7, ERR_CORRUPT, 1000);
	ck_assert_int_eq(rumour_answer(at, ERR_DISK_FAILED, true, 1500), RUMOUR_ENDS);
	ck_assert_ptr_null(rumour_find(&r, 7, 2, 1));
}
END_TEST

/* In dispute is what somebody has read and found wrong, and its server has not. */
START_TEST(test_only_what_was_read_is_disputed)
{
	static const int unread[] = {ERR_IO, ERR_NOENT, ERR_TRAILER_CORRUPT};

	ck_assert_int_eq(rumour_answer(tell(7, ERR_CORRUPT, 1000), 0, true, 1001), RUMOUR_DISPUTED);
	for (size_t i = 0; i < sizeof(unread) / sizeof(unread[0]); i++)
		ck_assert_int_eq(rumour_answer(tell(7, unread[i], 1000), 0, true, 1001), RUMOUR_ENDS);
	/* one could not read it, another one has read something else: in either order */
	(void)tell(7, ERR_IO, 1000);
	ck_assert_int_eq(rumour_answer(tell(7, ERR_CORRUPT, 1000), 0, true, 1001), RUMOUR_DISPUTED);
	(void)tell(7, ERR_CORRUPT, 1000);
	ck_assert_int_eq(rumour_answer(tell(7, ERR_IO, 1000), 0, true, 1001), RUMOUR_DISPUTED);
}
END_TEST

START_TEST(test_no_more_than_there_is_room_for)
{
	struct rumour rumour = {.block = RUMOURS + 1, .index = 2, .disk = 3, .incarnation = 1, .status = ERR_CORRUPT};

	for (uint64_t block = 1; block <= RUMOURS; block++) {
		ck_assert_ptr_nonnull(tell(block, ERR_CORRUPT, 1000));
		ck_assert_ptr_nonnull(tell(block, ERR_CORRUPT, 1000)); /* takes no second place */
	}
	ck_assert(!rumour_add(&r, &rumour, 1000 + RUMOUR_LIFE_MS - 1));
	ck_assert(rumour_add(&r, &rumour, 1000 + RUMOUR_LIFE_MS)); /* nobody answers for that one */
	ck_assert_ptr_null(rumour_find(&r, 1, 2, 1));
	ck_assert_ptr_nonnull(rumour_find(&r, 2, 2, 1));
}
END_TEST

/* A whole disk that is gone makes as many as there are copies on it. */
START_TEST(test_what_waits_gives_way)
{
	struct rumour rumour = {.block = RUMOURS + 1, .index = 2, .disk = 3, .incarnation = 1, .status = ERR_IO};

	for (uint64_t block = 1; block <= RUMOURS; block++)
		ck_assert_int_eq(rumour_answer(tell(block, ERR_IO, 1000), ERR_IO, true, 1500), RUMOUR_WAITS);
	ck_assert(!rumour_add(&r, &rumour, 2000));
	/* A copy that is missing or wrong on a disk that works is not put off by a disk that is gone. */
	rumour.status = ERR_NOENT;
	ck_assert(rumour_add(&r, &rumour, 2000));
	ck_assert(rumour_is_due(rumour_find(&r, RUMOURS + 1, 2, 1), 2000));
	rumour.block++;
	rumour.status = ERR_CORRUPT;
	ck_assert(rumour_add(&r, &rumour, 2000));
}
END_TEST

UNIT_MAIN("rumour", test_what_its_server_confirms_is_damage, test_a_busy_server_is_asked_again,
	test_what_cannot_be_read_is_asked_again_later, test_the_last_ones_are_not_given_up,
	test_only_what_was_read_is_disputed, test_no_more_than_there_is_room_for, test_what_waits_gives_way)
