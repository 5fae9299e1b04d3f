/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk is asked to make way where there is work and who has it is short of what that needs; no longer than a while at once. */
#include "common/io/io_way.h"

#include "tests/lib/unit.h"

#define MS_NS (1000ull * 1000)

static const struct io_way_sample good = {.took_ns = 100 * MS_NS, .requests = 1000, .waited_ns = 5 * MS_NS, .entries = 100, .entries_ns = 20 * MS_NS};

static bool step(struct io_way_plan *way, uint64_t now_ms, struct io_way_sample sample)
{
	return io_way_step(way, now_ms * MS_NS, &sample);
}

static struct io_way_sample waited(uint64_t ns)
{
	struct io_way_sample s = good;

	s.waited_ns = ns;
	return s;
}

static struct io_way_sample logged(uint64_t mean_ns)
{
	struct io_way_sample s = good;

	s.entries_ns = s.entries * mean_ns;
	return s;
}

static struct io_way_sample asked_for(struct io_way_sample s, uint64_t requests)
{
	s.requests = requests;
	return s;
}

START_TEST(test_a_wait_for_the_processor)
{
	struct io_way_plan way = {0};

	ck_assert(!step(&way, 1000, good));
	ck_assert(!step(&way, 1100, waited(20 * MS_NS - 1)));
	ck_assert(step(&way, 1200, waited(20 * MS_NS)));
	ck_assert(way.has_work);
	ck_assert(!step(&(struct io_way_plan){0}, 1200, asked_for(waited(90 * MS_NS), 99)));
	ck_assert(step(&(struct io_way_plan){0}, 1200, asked_for(waited(90 * MS_NS), 100)));
}
END_TEST

START_TEST(test_a_slow_log)
{
	struct io_way_plan way = {0};

	ck_assert(!step(&way, 1000, logged(200 * 1000)));
	ck_assert(!step(&way, 1100, logged(IO_WAY_LOG_NS - 1)));
	ck_assert(!step(&way, 1100, asked_for(logged(5 * MS_NS), 99)));
	ck_assert(step(&way, 1200, logged(IO_WAY_LOG_FACTOR * 300 * 1000)));
}
END_TEST

/* What is slow for good is no reason, after a while. */
START_TEST(test_a_disk_that_was_always_slow)
{
	struct io_way_plan way = {0};
	unsigned asked = 0;

	for (uint64_t i = 0; i < 100; i++)
		ck_assert(!step(&way, i * 100, logged(8 * MS_NS)));
	way = (struct io_way_plan){.least_ns = MS_NS};
	for (uint64_t i = 0; i < 2000; i++)
		asked += step(&way, i * 100, logged(8 * MS_NS));
	ck_assert_uint_gt(asked, 0);
	for (uint64_t i = 2000; i < 3000; i++)
		ck_assert(!step(&way, i * 100, logged(8 * MS_NS)));
}
END_TEST

/* While bulk makes way nothing is short; it is asked all the same, and a new look is taken in the end. */
START_TEST(test_it_is_asked_for_a_while)
{
	struct io_way_plan way = {0};

	ck_assert(step(&way, 1000, waited(50 * MS_NS)));
	ck_assert(step(&way, 1100, good));
	ck_assert(step(&way, 10999, waited(50 * MS_NS)));
	ck_assert(!step(&way, 11000, good));
	ck_assert(step(&way, 11100, waited(50 * MS_NS)));
	/* no work: at once */
	ck_assert(!step(&way, 11200, asked_for(good, 99)));
	ck_assert(!way.has_work);
	ck_assert(!step(&way, 11300, good));
}
END_TEST

START_TEST(test_samples_that_say_nothing)
{
	struct io_way_plan way = {0};

	ck_assert(!step(&way, 1000, (struct io_way_sample){0}));
	ck_assert(!step(&way, 1000, (struct io_way_sample){.requests = 5000}));
	ck_assert(!step(&way, 1100, (struct io_way_sample){.took_ns = 100 * MS_NS, .requests = 5000}));
	ck_assert_uint_eq(way.least_ns, 0);
}
END_TEST

UNIT_MAIN("io_way", test_a_wait_for_the_processor, test_a_slow_log, test_a_disk_that_was_always_slow, test_it_is_asked_for_a_while,
	test_samples_that_say_nothing)
