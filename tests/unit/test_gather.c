/* SPDX-License-Identifier: Apache-2.0 */
/* Small durable writes leave together: as few as their places allow, each where it belongs, durable when it is told. */
#include "chunkd/gather.h"

#include <stdio.h>
#include <string.h>
#include "chunkd/format.h"
#include "chunkd/segment.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND_NS 1000000000ull

enum { GRAIN = FORMAT_GRAIN_BYTES, MOST = 200, FILE_GRAINS = 1024 };

/* Of a segment, from its start on: outlives a crash. */
static uint8_t content[MOST * 2 * GRAIN] __attribute__((aligned(FORMAT_GRAIN_BYTES)));

struct bed {
	struct sim *sim;
	struct io *host;
	struct log log;
	struct segments *segments;
	struct sched sched;
	struct gather gather;
	struct segment_wait wait;
	struct bed_write {
		struct gather_write w;
		struct bed *bed;
		int code;
		bool done;
	} writes[MOST];
	uint32_t added, done, failed;
	uint32_t kernel_writes; /* durable ones */
	bool got;
};

static void no_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level, (void)line;
}

static void count_sync(void *ctx, struct io *host, enum sim_sync kind, const char *path)
{
	(void)host, (void)path;
	((struct bed *)ctx)->kernel_writes += kind == SIM_SYNC_WRITE;
}

static void no_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("%d: %s", code, text);
}

static void made(struct segment_wait *wait, int code)
{
	ck_assert_int_eq(code, 0);
	CONTAINER_OF(wait, struct bed, wait)->got = true;
}

static bool has_got(void *ctx)
{
	return ((struct bed *)ctx)->got;
}

static void open_segments(struct bed *b)
{
	struct segments_options o = {.dir = "/disk",
		.segment_bytes = 8 * MIB,
		.capacity_bytes = 64 * MIB,
		.log = &b->log,
		.on_fatal = no_fatal};
	struct err err = {0};

	ck_assert_msg(segments_open(b->host, &o, &b->segments, &err) == 0, "%s", err.text);
	sched_init(&b->sched, b->host, NULL);
	gather_init(&b->gather, b->host, &b->sched, b->segments);
}

static void bed_init(struct bed *b, uint64_t seed)
{
	memset(b, 0, sizeof(*b));
	b->log = (struct log){.min_level = LOG_ERROR, .write = no_log, .name = "test"};
	b->sim = sim_new(&(struct sim_options){.seed = seed, .synced = count_sync, .ctx = b});
	b->host = sim_host_add(b->sim, "chunkd-1", 128 * MIB);
	ck_assert_int_eq(io_mkdir(b->host, "/disk", 0700), 0);
	ck_assert_int_eq(io_mkdir(b->host, "/disk/segments", 0700), 0);
	ck_assert_int_eq(io_sync_dir(b->host, "/disk"), 0);
	ck_assert_int_eq(io_sync_dir(b->host, "/"), 0);
	open_segments(b);
	b->wait = (struct segment_wait){.class = ALLOC_SMALL, .grains = FILE_GRAINS, .done = made};
	ck_assert_int_eq(segments_take(b->segments, &b->wait), ERR_AGAIN);
	ck_assert(sim_run(b->sim, has_got, b, sim_now_ns(b->sim) + SECOND_NS));
	for (size_t i = 0; i < sizeof(content); i++)
		content[i] = (uint8_t)(i * 2654435761u >> 11);
	b->kernel_writes = 0;
}

static void bed_fini(struct bed *b)
{
	sim_free(b->sim);
	mem_free(b);
}

static void written(struct gather_write *w, int code)
{
	struct bed_write *bw = CONTAINER_OF(w, struct bed_write, w);

	ck_assert(!bw->done);
	bw->done = true;
	bw->code = code;
	bw->bed->done++;
	bw->bed->failed += code < 0;
}

/* Two grains at grain `at` of the segment, their bytes by place; from one or two pieces of memory. */
static void add(struct bed *b, uint32_t at, bool in_two)
{
	struct bed_write *bw = &b->writes[b->added++];
	uint8_t *data = content + (size_t)at * GRAIN;

	bw->bed = b;
	bw->w = (struct gather_write){
		.segment = b->wait.extent.segment, .offset = (uint64_t)at * GRAIN, .iov_count = 1, .done = written};
	bw->w.iov[0] = (struct iovec){data, 2 * GRAIN};
	if (in_two) {
		bw->w.iov[0].iov_len = GRAIN;
		bw->w.iov[1] = (struct iovec){data + GRAIN, GRAIN};
		bw->w.iov_count = 2;
	}
	gather_add(&b->gather, &bw->w);
	ck_assert_uint_eq(bw->done, false);
}

static bool all_done(void *ctx)
{
	struct bed *b = ctx;

	return b->done == b->added;
}

static void wait_all(struct bed *b)
{
	ck_assert(sim_run(b->sim, all_done, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
}

/* What was told durable is there after a power loss. */
static void check_after_crash(struct bed *b)
{
	char path[64], name[SEGMENT_NAME_BYTES];
	uint8_t *got = mem_alloc(2 * GRAIN);

	segments_name(b->segments, b->wait.extent.segment, name);
	snprintf(path, sizeof(path), "/disk/%s", name);
	sim_set_loss(b->host, SIM_LOSS_ALL);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	for (uint32_t i = 0; i < b->added; i++) {
		uint64_t at = b->writes[i].w.offset;

		if (b->writes[i].code < 0)
			continue;
		ck_assert_int_eq(sim_read_raw(b->host, path, got, 2 * GRAIN, at), 2 * GRAIN);
		ck_assert_mem_eq(got, content + at, 2 * GRAIN);
	}
	mem_free(got);
}

START_TEST(test_neighbours_are_one_write)
{
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 1);
	for (uint32_t i = 0; i < 30; i++)
		add(b, i * 14 % 60, i % 3 == 0); /* 0, 14, 28, 42, 56, 10 ...: in no order, without gaps */
	wait_all(b);
	ck_assert_uint_eq(b->failed, 0);
	ck_assert_uint_eq(b->kernel_writes, 1);
	check_after_crash(b);
	bed_fini(b);
}
END_TEST

START_TEST(test_gaps_and_length_cut)
{
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 2);
	for (uint32_t i = 0; i < IO_IOV_MAX + 6; i++)
		add(b, i * 2, false); /* more than one write may carry */
	for (uint32_t i = 0; i < 5; i++)
		add(b, 200 + i * 4, true); /* a gap before each */
	wait_all(b);
	ck_assert_uint_eq(b->failed, 0);
	ck_assert_uint_eq(b->kernel_writes, 2 + 5);
	check_after_crash(b);
	bed_fini(b);
}
END_TEST

static bool has_begun(void *ctx)
{
	return ((struct bed *)ctx)->sched.running > 0;
}

/* What gathers is work of this disk like what is in its queue: it counts in the depth, and against what is admitted. */
START_TEST(test_what_gathers_counts)
{
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 5);
	sim_disk_stall(b->host, SECOND_NS);
	for (uint32_t i = 0; i < 50; i++) {
		add(b, i * 2, false);
		ck_assert_uint_eq(sched_depth(&b->sched), i + 1);
	}
	b->sched.waiting = SCHED_QUEUE - 50;
	ck_assert(!sched_has_room(&b->sched));
	b->sched.waiting--;
	ck_assert(sched_has_room(&b->sched));
	b->sched.waiting = 0;
	ck_assert(sim_run(b->sim, has_begun, b, sim_now_ns(b->sim) + SECOND_NS / 2));
	ck_assert_uint_eq(sched_depth(&b->sched), 1); /* as one write */
	for (uint32_t i = 50; i < 60; i++) {
		add(b, i * 2 + 20, false);
		sim_run(b->sim, all_done, b, sim_now_ns(b->sim) + 1000000);
	}
	ck_assert_uint_eq(sched_depth(&b->sched), 1 + 10); /* and those that wait for the next round */
	wait_all(b);
	ck_assert_uint_eq(sched_depth(&b->sched), 0);
	check_after_crash(b);
	bed_fini(b);
}
END_TEST

/* While a round is on its way the rest gathers, and leaves as one. */
START_TEST(test_rounds)
{
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 3);
	sim_disk_stall(b->host, SECOND_NS);
	add(b, 0, false);
	ck_assert(sim_run(b->sim, has_begun, b, sim_now_ns(b->sim) + SECOND_NS / 2));
	for (uint32_t i = 1; i < 20; i++) {
		add(b, i * 2, false);
		sim_run(b->sim, all_done, b, sim_now_ns(b->sim) + 1000000);
		ck_assert_uint_eq(b->sched.running, 1);
	}
	ck_assert_uint_eq(b->done, 0);
	wait_all(b);
	ck_assert_uint_eq(b->kernel_writes, 2);
	check_after_crash(b);
	bed_fini(b);
}
END_TEST

/* A write that fails is told to each whose bytes were in it, and to nobody else. */
START_TEST(test_failed_write)
{
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 4);
	for (uint32_t i = 0; i < 8; i++)
		add(b, i * 2, i % 2);
	for (uint32_t i = 0; i < 8; i++)
		add(b, 100 + i * 2, i % 2);
	sim_fault_after(b->host, SIM_FAULT_WRITE, 2, ERR_IO);
	wait_all(b);
	ck_assert_uint_eq(b->failed, 8);
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_int_eq(b->writes[i].code, b->writes[i / 8 * 8].code);
	check_after_crash(b);
	bed_fini(b);
}
END_TEST

UNIT_MAIN("gather", test_neighbours_are_one_write, test_gaps_and_length_cut, test_what_gathers_counts, test_rounds,
	test_failed_write)
