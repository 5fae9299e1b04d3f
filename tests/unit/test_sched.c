/* SPDX-License-Identifier: Apache-2.0 */
/* A disk gets so many I/Os, and so many bytes, at once; the others follow in order, a class before the next. */
#include "chunkd/sched.h"

#include <string.h>
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "tests/lib/unit.h"

#define SECOND_NS 1000000000ull

enum { RATE = 16 << 20, MOST = 2 * SCHED_DEPTH, LARGE = 1 << 20, SMALL = 4096, TOO_LARGE = SCHED_BYTES + SMALL };

struct bed {
	struct sim *sim;
	struct io *host;
	struct sched sched;
	int fd;
	struct way way;
	uint8_t *memory; /* TOO_LARGE; all read into the same */
	struct bed_read {
		struct sched_op op;
		struct iovec iov;
		struct bed *bed;
	} reads[MOST];
	uint32_t added, done;
	int failure; /* of all of them */
	uint64_t bytes_now, most_bytes;
	uint32_t most_running;
	uint32_t order[MOST]; /* numbers of the reads, as they ended */
	uint64_t at_ns[MOST]; /* when they did */
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
	way_init(&b->way, b->host, "/way", RATE, 1 << 30, NULL);
	sched_init(&b->sched, b->host, &b->way);
}

static void bed_fini(struct bed *b)
{
	way_fini(&b->way);
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

	ck_assert_int_eq(op->io.result, b->failure ? b->failure : (int64_t)r->iov.iov_len);
	b->at_ns[r - b->reads] = sim_now_ns(b->sim);
	b->order[b->done++] = (uint32_t)(r - b->reads);
	look(b);
}

static void add_op(struct bed *b, enum sched_class class, enum io_kind kind, uint16_t flags, size_t bytes)
{
	struct bed_read *r = &b->reads[b->added++];

	r->bed = b;
	r->iov = (struct iovec){b->memory, bytes};
	r->op.done = read_done;
	if (kind == IO_READ)
		io_prep_read(&r->op.io, b->fd, &r->iov, 1, 0, sched_io_done);
	else
		io_prep_write(&r->op.io, b->fd, &r->iov, 1, 0, flags, sched_io_done);
	sched_submit(&b->sched, class, &r->op);
	look(b);
}

static void add(struct bed *b, enum sched_class class, size_t bytes)
{
	add_op(b, class, IO_READ, 0, bytes);
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

/* In the network that word says something else. */
START_TEST(test_late_disk)
{
	struct bed *b = MEM_NEW(struct bed);

	bed_init(b);
	sim_fault_after(b->host, SIM_FAULT_READ, 1, ERR_TIMEDOUT);
	b->failure = ERR_IO;
	add(b, SCHED_FOREGROUND, SMALL);
	run(b);
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

/* ---- bulk that makes way ---- */

static void pass(struct bed *b, uint64_t ns)
{
	sim_run(b->sim, all_done, &(struct bed){.added = 1}, sim_now_ns(b->sim) + ns);
}

static void ask(struct bed *b)
{
	pass(b, WAY_LOOK_NS); /* whatever was heard last is old */
	ck_assert_int_eq(io_word_say(&b->way.word), 0);
}

static void write_large(struct bed *b, int count)
{
	for (int i = 0; i < count; i++)
		add_op(b, SCHED_FOREGROUND, IO_WRITE, 0, LARGE);
}

START_TEST(test_bulk_makes_way)
{
	struct bed *b = MEM_NEW(struct bed);
	uint64_t each_ns = SECOND_NS * LARGE / RATE, start_ns;

	bed_init(b);
	ask(b);
	start_ns = sim_now_ns(b->sim);
	write_large(b, 5);
	ck_assert_uint_eq(sched_depth(&b->sched), 5);
	add(b, SCHED_FOREGROUND, LARGE);                                   /* 5: a read */
	add_op(b, SCHED_FOREGROUND, IO_WRITE, 0, SMALL);                   /* 6 */
	add_op(b, SCHED_FOREGROUND, IO_WRITE, 0, WAY_BULK_BYTES - SMALL);  /* 7 */
	add_op(b, SCHED_FOREGROUND, IO_WRITE, IO_DSYNC, LARGE);            /* 8: small files, gathered */
	run(b);
	for (int i = 0; i < 5; i++)
		ck_assert_uint_ge(b->at_ns[i], start_ns + (uint64_t)i * each_ns);
	ck_assert_uint_lt(b->at_ns[4], start_ns + 5 * each_ns);
	for (int i = 5; i < 9; i++)
		ck_assert_uint_lt(b->at_ns[i], start_ns + each_ns);
	ck_assert_uint_eq(b->sched.held_bytes, 5 * LARGE);
	bed_fini(b);
}
END_TEST

/* Nothing that was held is forgotten when nobody asks any more, or nobody did. */
START_TEST(test_bulk_goes_on_when_nobody_asks)
{
	struct bed *b = MEM_NEW(struct bed);
	uint64_t start_ns;

	bed_init(b);
	start_ns = sim_now_ns(b->sim);
	write_large(b, 8);
	run(b);
	ck_assert_uint_lt(sim_now_ns(b->sim), start_ns + WAY_LOOK_NS);
	ck_assert_uint_eq(b->sched.held_bytes, 0);
	ask(b);
	pass(b, WAY_HEARD_NS - 2 * WAY_LOOK_NS);
	start_ns = sim_now_ns(b->sim);
	write_large(b, 7);
	run(b);
	ck_assert_uint_ge(sim_now_ns(b->sim), start_ns + WAY_LOOK_NS);
	ck_assert_uint_lt(sim_now_ns(b->sim), start_ns + 4 * WAY_LOOK_NS);
	assert_in_order(b);
	bed_fini(b);
}
END_TEST

/* Repair goes on. */
START_TEST(test_repair_does_not_make_way)
{
	struct bed *b = MEM_NEW(struct bed);
	uint64_t start_ns;

	bed_init(b);
	ask(b);
	start_ns = sim_now_ns(b->sim);
	write_large(b, 5);
	for (int i = 0; i < 5; i++) {
		b->reads[b->added].op.passes = true;
		add_op(b, SCHED_FOREGROUND, IO_WRITE, 0, LARGE);
	}
	run(b);
	for (int i = 5; i < 10; i++)
		ck_assert_uint_lt(b->at_ns[i], start_ns + SECOND_NS * LARGE / RATE);
	ck_assert_uint_eq(b->sched.held_bytes, 5 * LARGE);
	bed_fini(b);
}
END_TEST

/* What is held lies in memory that others need, too: beyond the bound the oldest go on. */
START_TEST(test_what_is_held_is_bounded)
{
	enum { HELD_MOST = 4 };
	struct bed *b = MEM_NEW(struct bed);
	uint64_t start_ns;

	bed_init(b);
	b->way.most_held_bytes = HELD_MOST * LARGE;
	ask(b);
	start_ns = sim_now_ns(b->sim);
	for (int i = 0; i < 20; i++) {
		write_large(b, 1);
		ck_assert_uint_le(b->way.held_bytes, HELD_MOST * LARGE);
	}
	ck_assert_uint_eq(b->way.held_bytes, HELD_MOST * LARGE);
	/* Where other disks hold all there is, each keeps the one that its timer is for. */
	b->way.most_held_bytes = 0;
	write_large(b, 3);
	ck_assert_uint_eq(b->way.held_bytes, LARGE);
	ck_assert(io_pending(&b->sched.timer));
	run(b);
	assert_in_order(b);
	ck_assert(!io_pending(&b->sched.timer));
	ck_assert_uint_eq(b->way.held_bytes, 0);
	ck_assert_uint_ge(sim_now_ns(b->sim), start_ns + SECOND_NS * LARGE / RATE);
	bed_fini(b);
}
END_TEST

/* However much comes, none is late by more than a client takes for slow. */
START_TEST(test_no_write_is_held_for_long)
{
	struct bed *b = MEM_NEW(struct bed);
	uint64_t start_ns;

	bed_init(b);
	ask(b);
	start_ns = sim_now_ns(b->sim);
	write_large(b, 60);
	for (int i = 0; i < 4; i++) {
		pass(b, WAY_HOLD_NS / 4);
		ck_assert_int_eq(io_word_say(&b->way.word), 0);
	}
	run(b);
	assert_in_order(b);
	ck_assert_uint_ge(sim_now_ns(b->sim), start_ns + WAY_HOLD_NS);
	ck_assert_uint_lt(sim_now_ns(b->sim), start_ns + WAY_HOLD_NS + 2 * WAY_LOOK_NS);
	/* Nor for what was written faster than it should have been. */
	ck_assert_uint_le(b->sched.held_until_ns, sim_now_ns(b->sim) + WAY_HOLD_NS);
	bed_fini(b);
}
END_TEST

UNIT_MAIN("sched", test_bulk_makes_way, test_bulk_goes_on_when_nobody_asks, test_no_write_is_held_for_long, test_repair_does_not_make_way, test_what_is_held_is_bounded,
	test_bytes_are_bounded, test_count_is_bounded, test_late_disk, test_nothing_overtakes,
	test_larger_than_the_bound_runs_alone, test_classes_in_order)
