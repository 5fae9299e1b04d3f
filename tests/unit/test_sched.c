/* SPDX-License-Identifier: Apache-2.0 */
/* A disk gets so many I/Os, and so many bytes, at once; the others follow in order, a class before the next. */
#include "chunkd/sched.h"

#include <string.h>
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "tests/lib/unit.h"

#define SECOND_NS 1000000000ull

enum { MOST = 2 * SCHED_DEPTH, LARGE = 1 << 20, SMALL = 4096, TOO_LARGE = SCHED_BYTES + SMALL };

struct bed {
	struct sim *sim;
	struct io *host;
	struct sched sched;
	int fd;
	uint8_t *memory; /* TOO_LARGE; all read into the same */
	struct bed_read {
		struct sched_op op;
		struct iovec iov;
		struct bed *bed;
	} reads[MOST];
	uint32_t added, done;
	uint64_t bytes_now, most_bytes;
	uint32_t most_running;
	uint32_t order[MOST]; /* numbers of the reads, as they ended */
};

static void bed_init(struct bed *b)
{
	memset(b, 0, sizeof(*b));
	/* All the same latency: what is given first ends first. */
	b->sim = sim_new(&(struct sim_options){.seed = 1, .disk_latency_min_ns = 1000, .disk_latency_max_ns = 1000});
	b->host = sim_host_add(b->sim, "chunkd-1", 64 << 20);
	ck_assert_int_eq(io_open(b->host, "/data", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &b->fd), 0);
	ck_assert_int_eq(io_allocate(b->host, b->fd, 0, TOO_LARGE), 0);
	b->memory = mem_alloc(TOO_LARGE);
	sched_init(&b->sched, b->host);
}

static void bed_fini(struct bed *b)
{
	io_close(b->host, b->fd);
	sim_free(b->sim);
	mem_free(b->memory);
	mem_free(b);
}

static void look(struct bed *b)
{
	b->most_running = b->sched.running > b->most_running ? b->sched.running : b->most_running;
	b->most_bytes = b->sched.running_bytes > b->most_bytes ? b->sched.running_bytes : b->most_bytes;
}

static void read_done(struct sched_op *op)
{
	struct bed_read *r = CONTAINER_OF(op, struct bed_read, op);
	struct bed *b = r->bed;

	ck_assert_int_eq(op->io.result, (int64_t)r->iov.iov_len);
	b->order[b->done++] = (uint32_t)(r - b->reads);
	look(b);
}

static void add(struct bed *b, enum sched_class class, size_t bytes)
{
	struct bed_read *r = &b->reads[b->added++];

	r->bed = b;
	r->iov = (struct iovec){b->memory, bytes};
	r->op.done = read_done;
	io_prep_read(&r->op.io, b->fd, &r->iov, 1, 0, sched_io_done);
	sched_submit(&b->sched, class, &r->op);
	look(b);
}

static bool all_done(void *ctx)
{
	struct bed *b = ctx;

	return b->done == b->added;
}

static void run(struct bed *b)
{
	ck_assert(sim_run(b->sim, all_done, b, sim_now_ns(b->sim) + 60 * SECOND_NS));
	ck_assert_uint_eq(sched_depth(&b->sched), 0);
	ck_assert_uint_eq(b->sched.running_bytes, 0);
}

static void assert_in_order(const struct bed *b)
{
	for (uint32_t i = 0; i < b->done; i++)
		ck_assert_uint_eq(b->order[i], i);
}

START_TEST(test_bytes_are_bounded)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	for (int i = 0; i < 20; i++)
		add(b, SCHED_FOREGROUND, LARGE);
	run(b);
	ck_assert_uint_eq(b->most_bytes, SCHED_BYTES);
	ck_assert_uint_eq(b->most_running, SCHED_BYTES / LARGE);
	assert_in_order(b);
	bed_fini(b);
}
END_TEST

START_TEST(test_count_is_bounded)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	for (int i = 0; i < MOST; i++)
		add(b, SCHED_FOREGROUND, SMALL);
	run(b);
	ck_assert_uint_eq(b->most_running, SCHED_DEPTH);
	bed_fini(b);
}
END_TEST

/* A small one does not go before a large one for which there is no place: that one might wait for ever. */
START_TEST(test_nothing_overtakes)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	for (int i = 0; i < 5; i++)
		add(b, SCHED_FOREGROUND, LARGE);
	add(b, SCHED_FOREGROUND, SMALL);
	ck_assert_uint_eq(b->sched.waiting, 2);
	run(b);
	assert_in_order(b);
	bed_fini(b);
}
END_TEST

START_TEST(test_larger_than_the_bound_runs_alone)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	add(b, SCHED_FOREGROUND, SMALL);
	add(b, SCHED_FOREGROUND, TOO_LARGE);
	add(b, SCHED_FOREGROUND, SMALL);
	run(b);
	ck_assert_uint_eq(b->most_bytes, TOO_LARGE);
	ck_assert_uint_eq(b->most_running, 1);
	assert_in_order(b);
	bed_fini(b);
}
END_TEST

START_TEST(test_classes_in_order)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	for (int i = 0; i < 4; i++)
		add(b, SCHED_REPAIR, LARGE);
	add(b, SCHED_SCRUB, LARGE);      /* 4 */
	add(b, SCHED_REPAIR, LARGE);     /* 5 */
	add(b, SCHED_FOREGROUND, LARGE); /* 6 */
	run(b);
	ck_assert_uint_eq(b->order[4], 6);
	ck_assert_uint_eq(b->order[5], 5);
	ck_assert_uint_eq(b->order[6], 4);
	bed_fini(b);
}
END_TEST

UNIT_MAIN("sched", test_bytes_are_bounded, test_count_is_bounded, test_nothing_overtakes,
	test_larger_than_the_bound_runs_alone, test_classes_in_order)
