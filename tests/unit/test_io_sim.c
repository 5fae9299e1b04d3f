// SPDX-License-Identifier: Apache-2.0
/* io_sim: what only the simulator has: cuts, crashes of hosts, and one seed that decides everything. Its disks: test_sim_disk.c. */
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "tests/lib/sim_world.h"
#include "tests/lib/unit.h"

/* ---- two hosts ---- */

struct pair {
	struct world a, b; /* one simulation, two loops */
	int listener, at_a, at_b;
	struct io_addr bound;
};

static void pair_open(struct pair *p, uint64_t seed)
{
	struct world_op accept = {0}, connect = {0};

	p->a = sim_world(seed);
	p->b = p->a;
	p->b.io = sim_host_add(p->a.sim, "host-2", 16 << 20);
	p->b.addr = sim_host_addr(p->b.io, 7000);
	ck_assert_int_eq(io_listen(p->b.io, &p->b.addr, &p->listener, &p->bound, NULL), 0);
	io_prep_accept(&accept.op, p->listener, world_done);
	world_submit(&p->b, &accept);
	io_prep_connect(&connect.op, &p->bound, world_done);
	world_submit(&p->a, &connect);
	WORLD_WAIT(&p->a, &accept, &connect);
	p->at_a = (int)connect.op.result;
	p->at_b = (int)accept.op.result;
	ck_assert_int_ge(p->at_a, 0);
	ck_assert_int_ge(p->at_b, 0);
	ck_assert_int_eq(accept.op.accept.peer.ip[3], 1);
}

/* What one sends vanishes, and it hears the other; neither connects, which takes an answer. */
START_TEST(test_cut_one_way)
{
	struct world_op send = {0}, recv = {0}, back = {0}, back_recv = {0}, connect = {0}, accept = {0};
	struct pair p;
	char buf[4], back_buf[4];

	pair_open(&p, 2);
	sim_cut_one_way(p.a.io, p.b.io);
	world_send(&p.a, &send, p.at_a, "ping", 4);
	world_recv(&p.b, &recv, p.at_b, buf, 4, IO_RECV_ALL);
	world_send(&p.b, &back, p.at_b, "pong", 4);
	world_recv(&p.a, &back_recv, p.at_a, back_buf, 4, IO_RECV_ALL);
	WORLD_WAIT(&p.a, &back_recv);
	ck_assert_mem_eq(back_buf, "pong", 4);
	run_for(&p.a, 30000000000);
	ck_assert_int_eq(recv.done_count, 0);
	sim_heal(p.a.io, p.b.io);
	WORLD_WAIT(&p.b, &recv);
	ck_assert_mem_eq(buf, "ping", 4);
	sim_cut_one_way(p.b.io, p.a.io);
	io_prep_connect(&connect.op, &p.bound, world_done);
	world_submit(&p.a, &connect);
	run_for(&p.a, 30000000000);
	ck_assert_int_eq(connect.done_count, 0);
	sim_heal(p.b.io, p.a.io);
	io_prep_accept(&accept.op, p.listener, world_done);
	world_submit(&p.b, &accept);
	WORLD_WAIT(&p.a, &connect, &accept);
	ck_assert_int_ge(connect.op.result, 0);
	sim_free(p.a.sim);
}
END_TEST

START_TEST(test_cut_and_heal)
{
	struct world_op send = {0}, recv = {0}, connect = {0}, accept = {0};
	struct pair p;
	char buf[4];

	pair_open(&p, 1);
	sim_cut(p.a.io, p.b.io);
	world_send(&p.a, &send, p.at_a, "ping", 4);
	world_recv(&p.b, &recv, p.at_b, buf, 4, IO_RECV_ALL);
	io_prep_connect(&connect.op, &p.bound, world_done);
	world_submit(&p.a, &connect);
	run_for(&p.a, 30000000000);
	ck_assert_int_eq(send.op.result, 4); /* it is in the socket's buffer */
	ck_assert_int_eq(recv.done_count, 0);
	ck_assert_int_eq(connect.done_count, 0);
	sim_heal(p.a.io, p.b.io);
	io_prep_accept(&accept.op, p.listener, world_done);
	world_submit(&p.b, &accept);
	WORLD_WAIT(&p.a, &recv, &connect, &accept);
	ck_assert_int_eq(recv.op.result, 4);
	ck_assert_mem_eq(buf, "ping", 4);
	ck_assert_int_ge(connect.op.result, 0);

	/* for ever: connecting ends with an error, a receive when its user cancels it */
	sim_cut(p.a.io, p.b.io);
	io_prep_connect(&connect.op, &p.bound, world_done);
	world_submit(&p.a, &connect);
	world_recv(&p.b, &recv, p.at_b, buf, 4, 0);
	WORLD_WAIT(&p.a, &connect);
	ck_assert_int_eq(connect.op.result, ERR_TIMEDOUT);
	io_cancel(p.b.io, &recv.op);
	WORLD_WAIT(&p.b, &recv);
	ck_assert_int_eq(recv.op.result, ERR_CANCELED);
	sim_free(p.a.sim);
}
END_TEST

START_TEST(test_crash_breaks_connections)
{
	struct world_op recv_a = {0}, recv_b = {0}, connect = {0}, accept = {0}, send = {0};
	struct pair p;
	char buf[4];

	pair_open(&p, 1);
	world_recv(&p.a, &recv_a, p.at_a, buf, 4, 0);
	world_recv(&p.b, &recv_b, p.at_b, buf, 4, 0);
	io_prep_accept(&accept.op, p.listener, world_done);
	world_submit(&p.b, &accept);
	run_for(&p.a, 1000000);
	sim_host_crash(p.b.io);
	ck_assert(!io_pending(&recv_b.op) && !io_pending(&accept.op));
	WORLD_WAIT(&p.a, &recv_a);
	ck_assert_int_eq(recv_a.op.result, ERR_CONNRESET);
	ck_assert_int_eq(recv_b.done_count + accept.done_count, 0);
	world_send(&p.a, &send, p.at_a, "x", 1);
	WORLD_WAIT(&p.a, &send);
	ck_assert_int_eq(send.op.result, ERR_CONNRESET);
	io_close(p.a.io, p.at_a);
	io_prep_connect(&connect.op, &p.bound, world_done);
	world_submit(&p.a, &connect);
	WORLD_WAIT(&p.a, &connect);
	ck_assert_int_eq(connect.op.result, ERR_CONNREFUSED);

	sim_host_restart(p.b.io);
	ck_assert_int_eq(io_listen(p.b.io, &p.b.addr, &p.listener, &p.bound, NULL), 0);
	io_prep_accept(&accept.op, p.listener, world_done);
	world_submit(&p.b, &accept);
	io_prep_connect(&connect.op, &p.bound, world_done);
	world_submit(&p.a, &connect);
	WORLD_WAIT(&p.a, &connect, &accept);
	ck_assert_int_ge(connect.op.result, 0);
	ck_assert_int_ge(accept.op.result, 0);
	sim_free(p.a.sim);
}
END_TEST

static void crash_own_host(struct io_op *op)
{
	struct world_op *o = CONTAINER_OF(op, struct world_op, op);

	o->done_count++;
	sim_host_crash(o->w->io);
}

/* A host may be crashed out of its own callback: nothing of it runs any more. */
START_TEST(test_crash_from_inside)
{
	struct world w = sim_world(1);
	struct world_op first = {0}, second = {0};
	uint64_t at = sim_now_ns(w.sim) + 1000;

	io_prep_timer(&first.op, at, crash_own_host);
	world_submit(&w, &first);
	io_prep_timer(&second.op, at, world_done);
	world_submit(&w, &second);
	run_for(&w, 1000000);
	ck_assert_int_eq(first.done_count, 1);
	ck_assert_int_eq(second.done_count, 0);
	ck_assert(!io_pending(&second.op));
	sim_host_restart(w.io);
	io_prep_timer(&second.op, 0, world_done);
	world_submit(&w, &second);
	WORLD_WAIT(&w, &second);
	ck_assert_int_eq(second.op.result, 0);
	sim_free(w.sim);
}
END_TEST

/* ---- determinism ---- */

struct text {
	char data[1 << 20];
	size_t len;
};

static void collect(void *ctx, const char *line)
{
	struct text *t = ctx;
	size_t len = strlen(line);

	ck_assert_uint_lt(t->len + len + 1, sizeof(t->data));
	memcpy(t->data + t->len, line, len);
	t->len += len;
	t->data[t->len++] = '\n';
}

/* Traffic, writes, crashes and cuts; returns the hash. */
static uint64_t scenario(uint64_t seed, struct text *text, uint64_t *ret_events)
{
	struct sim_options options = {.seed = seed, .transcript = text ? collect : NULL, .ctx = text};
	struct world_op sends[20] = {0}, recvs[20] = {0}, writes[20] = {0};
	uint8_t *out = mem_alloc(100000), *in = mem_zalloc(100000);
	struct pair p;
	uint64_t hash, secret;
	int fd;

	p.a = (struct world){.sim = sim_new(&options)};
	p.b = p.a;
	p.a.io = sim_host_add(p.a.sim, "alpha", 16 << 20);
	p.b.io = sim_host_add(p.a.sim, "beta", 16 << 20);
	p.a.addr = sim_host_addr(p.a.io, 0);
	{
		int client, server;

		world_connect(&p.a, &client, &server);
		fd = open_file(p.a.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);
		io_random(p.a.io, &secret, sizeof(secret));
		for (int i = 0; i < 100000; i++)
			out[i] = (uint8_t)(i * 31 + (int)(secret % 251));
		for (int i = 0; i < 20; i++) {
			world_recv(&p.a, &recvs[i], server, in, 5000, IO_RECV_ALL);
			start_write(&p.a, &writes[i], fd, out + i * 5000, 5000, sim_random(p.a.sim) % 100000, 0);
			world_send(&p.a, &sends[i], client, out + i * 5000, 5000);
		}
		for (int i = 0; i < 20; i++)
			WORLD_WAIT(&p.a, &recvs[i], &sends[i], &writes[i]);
		start_write(&p.a, &writes[0], fd, out, 100000, 0, 0);
		run_for(&p.a, sim_random(p.a.sim) % 300000);
		sim_host_crash(p.a.io);
		sim_host_restart(p.a.io);
		fd = -1;
		if (io_open(p.a.io, "/f", 0, 0, &fd) == 0) {
			int64_t n = io_pread(p.a.io, fd, in, 100000, 0);

			sim_note(p.a.sim, "left %lld %08x", (long long)n, crc32c(in, (size_t)n));
		}
	}
	hash = sim_event_hash(p.a.sim);
	*ret_events = sim_event_count(p.a.sim);
	sim_free(p.a.sim);
	mem_free(out);
	mem_free(in);
	return hash;
}

START_TEST(test_same_seed_same_hash)
{
	static struct text one, two;
	uint64_t events_one, events_two, other;

	for (uint64_t seed = 1; seed <= 5; seed++) {
		uint64_t hash;

		one.len = two.len = 0;
		hash = scenario(seed, &one, &events_one);
		ck_assert_uint_eq(hash, scenario(seed, &two, &events_two));
		ck_assert_uint_eq(events_one, events_two);
		ck_assert_uint_gt(events_one, 60);
		ck_assert_uint_eq(one.len, two.len);
		ck_assert(memcmp(one.data, two.data, one.len) == 0);
		ck_assert_uint_eq(hash, scenario(seed, NULL, &events_two)); /* telling changes nothing */
		ck_assert_uint_ne(hash, scenario(seed + 100, NULL, &other));
	}
}
END_TEST

START_TEST(test_hosts_have_their_own)
{
	struct world w = sim_world(1);
	struct io *other = sim_host_add(w.sim, "other", 1 << 20);
	uint64_t a, b;
	int64_t wall;

	io_random(w.io, &a, sizeof(a));
	io_random(other, &b, sizeof(b));
	ck_assert_uint_ne(a, b);
	wall = io_wall_ns(w.io);
	sim_wall_jump(other, -5000000000);
	ck_assert_int_eq(io_wall_ns(w.io), wall);
	ck_assert_int_eq(io_wall_ns(other), wall - 5000000000);
	io_close(other, open_file(other, "/x", IO_OPEN_WRITE | IO_OPEN_CREATE));
	ck_assert_int_eq(io_unlink(w.io, "/x"), ERR_NOENT);
	ck_assert_str_eq(io_backend_name(other), "sim");
	sim_free(w.sim);
}
END_TEST

/* Nothing left to happen, the limit of time, and the condition: the three ways out of sim_run. */
START_TEST(test_run_ends)
{
	struct world w = sim_world(1);
	struct world_op timer = {0};
	struct world_op *ops[] = {&timer, NULL};
	uint64_t start = sim_now_ns(w.sim);

	ck_assert(!sim_run(w.sim, world_all_done, ops, start + 1000));
	world_timer(&w, &timer, 5000);
	ck_assert(!sim_run(w.sim, world_all_done, ops, start + 1000));
	ck_assert_uint_eq(sim_now_ns(w.sim), start + 1000);
	ck_assert(sim_run(w.sim, world_all_done, ops, start + 1000000));
	ck_assert_uint_ge(sim_now_ns(w.sim), start + 5000);
	sim_free(w.sim);
}
END_TEST

/* ---- a disk of several that hangs ---- */

enum { CALLS_MAX = LIMIT_DISKS_PER_SERVER * LIMIT_DISK_CALLS };

struct call {
	struct world_op o;
	int fd;
};

static void call_run(struct io_op *op)
{
	struct call *call = CONTAINER_OF(CONTAINER_OF(op, struct world_op, op), struct call, o);

	ck_assert_int_eq(io_fdatasync(call->o.w->io, call->fd), 0);
}

static void call_submit(struct world *w, struct call *call, enum io_lane lane, int fd)
{
	*call = (struct call){.fd = fd};
	io_prep_offload(&call->o.op, lane, call_run, world_done);
	world_submit(w, &call->o);
}

/* All that the lane may have under way but one call are to a disk that hangs: the last one, to another, ends. */
static void stall_lane(struct world *w, enum io_lane lane, int calls, int hung_fd, int fd)
{
	static struct call hung[CALLS_MAX];
	uint64_t from_ns = sim_now_ns(w->sim);
	struct call call;

	sim_dir_stall(w->io, "/hung", 100ull * 1000000000);
	for (int i = 0; i < calls - 1; i++)
		call_submit(w, &hung[i], lane, hung_fd);
	call_submit(w, &call, lane, fd);
	WORLD_WAIT(w, &call.o);
	ck_assert_uint_lt(sim_now_ns(w->sim) - from_ns, 1000000000);
	ck_assert_int_eq(hung[0].o.done_count, 0);
	for (int i = 0; i < calls - 1; i++)
		WORLD_WAIT(w, &hung[i].o);
	ck_assert_uint_ge(sim_now_ns(w->sim) - from_ns, 100ull * 1000000000);
}

START_TEST(test_hung_disk_and_lanes)
{
	struct world w = sim_world(9);
	int hung_fd, fd;

	ck_assert_int_eq(io_mkdir(w.io, "/hung", 0755), 0);
	ck_assert_int_eq(io_mkdir(w.io, "/other", 0755), 0);
	ck_assert_int_eq(io_open(w.io, "/hung/f", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &hung_fd), 0);
	ck_assert_int_eq(io_open(w.io, "/other/f", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	stall_lane(&w, IO_LANE_FILE, CALLS_MAX, hung_fd, fd);
	stall_lane(&w, IO_LANE_KV, LIMIT_DISKS_PER_SERVER, hung_fd, fd);
	sim_free(w.sim);
}
END_TEST

static void work_run(struct io_op *op)
{
	(void)op;
}

static uint64_t work_took_ns(struct world *w)
{
	uint64_t from_ns = sim_now_ns(w->sim);
	struct world_op work = {0};

	io_prep_offload(&work.op, IO_LANE_CPU, work_run, world_done);
	world_submit(w, &work);
	WORLD_WAIT(w, &work);
	return sim_now_ns(w->sim) - from_ns;
}

START_TEST(test_work_that_gets_no_processor)
{
	struct world w = sim_world(1);

	sim_work_stall(w.io, 100ull * 1000000000);
	ck_assert_uint_ge(work_took_ns(&w), 100ull * 1000000000);
	ck_assert_uint_lt(work_took_ns(&w), 1000000000);
	sim_free(w.sim);
}
END_TEST

UNIT_MAIN("io_sim", test_work_that_gets_no_processor, test_hung_disk_and_lanes, test_cut_one_way, test_cut_and_heal, test_crash_breaks_connections, test_crash_from_inside, test_same_seed_same_hash,
	test_hosts_have_their_own, test_run_ends)
