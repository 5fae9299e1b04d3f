/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk server asks bulk of its host to make way while small chunks come and it is short of what they need (io_way.h). */
#include "chunkd/daemon.h"
#include "tests/lib/chunkd_bed.h"
#include "tests/lib/unit.h"

enum { SMALL_BYTES = 4096 };

static uint64_t next_block = 10;

/* One after the other: more than 1,000 small ones a second. */
static void put_for(uint64_t ms)
{
	uint64_t until_ns = sim_now_ns(b->m.sim) + ms * 1000000;

	while (sim_now_ns(b->m.sim) < until_ns) {
		struct token t = good_token(next_block, TOKEN_WRITE);

		ck_assert_int_eq(put_one(&t, copy_of(next_block), SMALL_BYTES, true), 0);
		next_block++;
	}
}

static void restart(const char *way_path, uint64_t way_bytes_per_s)
{
	stop_chunkd();
	b->way_path = way_path;
	b->way_bytes_per_s = way_bytes_per_s;
	b->capacity_bytes = 100 << 20;
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	ck_assert(!bed_beat(&b->m, 1, 0)); /* so that tokens of now are known to be */
}

START_TEST(test_small_chunks_that_wait_ask_for_way)
{
	struct io_word word;

	bed_open(1);
	metad_bed_say_waited(b->host, 1000);
	restart("/way", 32 << 20);
	ck_assert_int_eq(io_word_open(&word, b->host, "/way"), 0);
	put_for(1500);
	ck_assert(!io_word_heard(&word, UINT64_MAX));
	metad_bed_say_waited(b->host, 2000000000);
	put_for(1500);
	ck_assert(io_word_heard(&word, 300000000));
	ck_assert(b->chunkd->asks.asks && b->chunkd->asks.asked_ns);
	/* Who does not make way does not ask for it. */
	restart("/way", 0);
	metad_bed_say_waited(b->host, 1900000000000);
	put_for(1500);
	ck_assert(!io_word_heard(&word, 1200000000));
	io_word_close(&word);
	bed_close();
}
END_TEST

/* A log that takes far longer than it did. */
START_TEST(test_small_chunks_on_a_slow_disk_ask_for_way)
{
	bed_open(2);
	restart("/way", 32 << 20);
	put_for(1500);
	ck_assert(!b->chunkd->asks.asks);
	ck_assert_uint_gt(b->chunkd->asks.plan.least_ns, 0);
	b->chunkd->asks.plan.least_ns /= 8; /* as on a disk that was that much faster a moment ago */
	b->chunkd->asks.plan.until_ns = 0;
	sim_disk_slow(b->host, 2);
	put_for(1500);
	ck_assert(b->chunkd->asks.asks);
	bed_close();
}
END_TEST

UNIT_MAIN("chunkd_way", test_small_chunks_that_wait_ask_for_way, test_small_chunks_on_a_slow_disk_ask_for_way)
