/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader decides from its view of the group: who votes now, who may go, who takes over. */
#include "metad/ledger.h"
#include "tests/lib/unit.h"

/* Of metad-1, which leads, and so many others that are up and level. */
static struct ledger_view view_of(uint32_t count)
{
	struct ledger_view view = {.id = 1, .leader = 1, .role = RAFT_LEADER, .last = 100, .commit = 100, .count = count, .next_id = count + 1};

	for (uint32_t i = 0; i < count; i++)
		view.members[i] = (struct ledger_member){.id = i + 1, .voter = true, .state = LEDGER_MEMBER_UP, .match = 100, .answered = i ? 7 : UINT64_MAX};
	return view;
}

/* All of them, whoever votes; what is not known of one is not taken for granted. */
START_TEST(test_what_all_support)
{
	struct ledger_view view = view_of(4);

	ck_assert_uint_eq(ledger_supported(&view), 0);
	for (uint32_t i = 0; i < 4; i++)
		view.members[i].supports = 9;
	ck_assert_uint_eq(ledger_supported(&view), 9);
	view.members[3].voter = false;
	view.members[3].supports = 8;
	ck_assert_uint_eq(ledger_supported(&view), 8);
	view.members[3].supports = 0;
	ck_assert_uint_eq(ledger_supported(&view), 0);
	view.count = 0;
	ck_assert_uint_eq(ledger_supported(&view), 0);
}
END_TEST

START_TEST(test_who_votes_now)
{
	struct ledger_view view = view_of(4);

	ck_assert_uint_eq(ledger_promotes(&view, 90), 0);
	view.members[3].voter = false;
	view.members[3].match = 95;
	ck_assert_uint_eq(ledger_promotes(&view, 95), 4); /* it has what there was at the last look */
	ck_assert_uint_eq(ledger_promotes(&view, 96), 0);
	ck_assert_uint_eq(ledger_promotes(&view, UINT64_MAX), 0); /* there was no look yet */
	view.members[3].match = 0;
	ck_assert_uint_eq(ledger_promotes(&view, 0), 0); /* it has said nothing yet */
	view.members[3].match = 95;
	view.members[3].state = LEDGER_MEMBER_DOWN;
	ck_assert_uint_eq(ledger_promotes(&view, 95), 0);
	view.members[3].state = LEDGER_MEMBER_UP;
	view.changes = true;
	ck_assert_uint_eq(ledger_promotes(&view, 95), 0);
	view.changes = false;
	view.doubts = true; /* what it has may be wrong */
	ck_assert_uint_eq(ledger_promotes(&view, 95), 0);
	view.doubts = false;
	view.members[3].owes = true; /* it may be about to stop, as its rows are others */
	ck_assert_uint_eq(ledger_promotes(&view, 95), 0);
	view.members[3].owes = false;
	view.members[3].differs = 60; /* it is */
	ck_assert_uint_eq(ledger_promotes(&view, 95), 0);
	view.members[3].differs = 0;
	ck_assert_uint_eq(ledger_promotes(&view, 95), 4);
}
END_TEST

START_TEST(test_who_may_go)
{
	struct ledger_view view = view_of(3);

	ck_assert(ledger_bears(&view, RAFT_REMOVE, 2, 7, 100));
	view.members[2].answered = 6; /* before it was asked: it may be dead since, whatever its state */
	ck_assert(ledger_bears(&view, RAFT_REMOVE, 3, 7, 100));
	ck_assert(!ledger_bears(&view, RAFT_REMOVE, 2, 7, 100)); /* of metad-1 and -3 one answers */
	view.members[2].voter = false;
	ck_assert(ledger_bears(&view, RAFT_REMOVE, 3, 7, 100)); /* it does not count */
	ck_assert(ledger_bears(&view, RAFT_REMOVE, 2, 7, 100));
	view = view_of(3);
	view.members[2].match = 99; /* it answers, and its disk hangs */
	ck_assert(!ledger_bears(&view, RAFT_REMOVE, 2, 7, 100));
	ck_assert(ledger_bears(&view, RAFT_REMOVE, 3, 7, 100));
	view = view_of(5);
	view.members[3].answered = view.members[4].answered = 0;
	ck_assert(ledger_bears(&view, RAFT_REMOVE, 4, 7, 100));
	ck_assert(!ledger_bears(&view, RAFT_REMOVE, 2, 7, 100));
	ck_assert(!ledger_bears(&view, RAFT_REMOVE, 1, 7, 100)); /* nor can the leader go, whatever it hears from itself */
}
END_TEST

START_TEST(test_who_may_vote)
{
	struct ledger_view view = view_of(4);

	view.members[3].voter = false;
	ck_assert(ledger_bears(&view, RAFT_PROMOTE, 4, 7, 100));
	view.members[3].answered = 6;
	ck_assert(!ledger_bears(&view, RAFT_PROMOTE, 4, 7, 100));
	view.members[3].answered = 7;
	view.members[3].match = 99;
	ck_assert(!ledger_bears(&view, RAFT_PROMOTE, 4, 7, 100));
	view.members[3].match = 100;
	view.members[2].answered = 6;
	ck_assert(ledger_bears(&view, RAFT_PROMOTE, 4, 7, 100));
	view.members[1].answered = 6; /* two of four */
	ck_assert(!ledger_bears(&view, RAFT_PROMOTE, 4, 7, 100));
}
END_TEST

START_TEST(test_who_takes_over)
{
	struct ledger_view view = view_of(4);

	view.members[1].match = 80;
	view.members[3].voter = false;
	ck_assert_uint_eq(ledger_successor(&view), 3);
	view.members[2].state = LEDGER_MEMBER_DOWN;
	ck_assert_uint_eq(ledger_successor(&view), 2);
	view.members[1].state = LEDGER_MEMBER_UNKNOWN;
	ck_assert_uint_eq(ledger_successor(&view), 0);
}
END_TEST

/* Of a leader whose rows stand, or whose file system is full; the others are as a letter has said. */
START_TEST(test_who_relieves)
{
	struct ledger_view view = view_of(4);

	view.applied = 90;
	for (uint32_t i = 0; i < 4; i++) {
		view.members[i].room = RAFT_ROOM_SOME;
		view.members[i].applied = 90;
	}
	view.members[3].voter = false;
	ck_assert_uint_eq(ledger_relief(&view), 0); /* it is well */
	view.members[0].room = RAFT_ROOM_NONE;
	ck_assert_uint_ne(ledger_relief(&view), 0);
	view.members[1].room = RAFT_ROOM_UNSAID; /* an older build may be full, too */
	ck_assert_uint_eq(ledger_relief(&view), 3);
	view.members[2].match = 99; /* it would have to catch up first */
	ck_assert_uint_eq(ledger_relief(&view), 0);
	view.members[2].match = 100;
	view.members[2].differs = 50;
	ck_assert_uint_eq(ledger_relief(&view), 0);
	view.members[2].differs = 0;
	view.members[2].state = LEDGER_MEMBER_DOWN;
	ck_assert_uint_eq(ledger_relief(&view), 0);
	view.members[2].state = LEDGER_MEMBER_UP;
	view.stands = true;
	ck_assert_uint_eq(ledger_relief(&view), 0); /* theirs may stand, too */
	view.members[1].applied = 91;
	view.members[1].room = RAFT_ROOM_NONE; /* it can do more than one whose rows stand */
	ck_assert_uint_eq(ledger_relief(&view), 2);
	view.members[2].applied = 92;
	ck_assert_uint_eq(ledger_relief(&view), 3);
	view.members[1].applied = view.members[2].applied = 90;
	view.members[3].applied = 100;
	ck_assert_uint_eq(ledger_relief(&view), 0); /* a learner */
}
END_TEST

/* A majority must be up, and able to keep what is made. */
START_TEST(test_who_has_room)
{
	struct ledger_view view = view_of(4);

	view.members[3].voter = false;
	view.members[3].room = RAFT_ROOM_NONE;
	ck_assert(ledger_has_room(&view)); /* older builds do not say it */
	view.members[0].room = RAFT_ROOM_NONE;
	ck_assert(ledger_has_room(&view));
	view.members[2].state = LEDGER_MEMBER_DOWN;
	view.members[2].room = RAFT_ROOM_SOME;
	ck_assert(!ledger_has_room(&view));
	view.members[2].state = LEDGER_MEMBER_UP;
	ck_assert(ledger_has_room(&view));
	view.members[1].room = RAFT_ROOM_NONE;
	ck_assert(!ledger_has_room(&view));
}
END_TEST

UNIT_MAIN("ledger_members", test_who_relieves, test_who_has_room, test_what_all_support, test_who_votes_now, test_who_may_go, test_who_may_vote, test_who_takes_over)
