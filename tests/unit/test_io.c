// SPDX-License-Identifier: Apache-2.0
/* io: the contract of the loop, the same for every back end: sockets, timers, offload, posts, hooks, cancels. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "common/base/rng.h"
#include "common/io/io_real.h"
#include "tests/lib/io_world.h"
#include "tests/lib/unit.h"

/* ---- sockets ---- */

IO_TEST(test_echo)
{
	struct world_op send = {0}, recv = {0};
	char buf[16] = "";
	int client, server;

	world_connect(w, &client, &server);
	world_recv(w, &recv, server, buf, sizeof(buf), 0);
	world_send(w, &send, client, "hello", 5);
	ck_assert(io_pending(&send.op));
	WORLD_WAIT(w, &send, &recv);
	ck_assert_int_eq(send.op.result, 5);
	ck_assert_int_ge(recv.op.result, 1);
	while (recv.op.result < 5) {
		int64_t before = recv.op.result;

		world_recv(w, &recv, server, buf + before, 5 - (size_t)before, 0);
		WORLD_WAIT(w, &recv);
		ck_assert_int_gt(recv.op.result, 0);
		recv.op.result += before;
	}
	ck_assert_str_eq(buf, "hello");
	world_send(w, &send, server, buf, 5);
	world_recv(w, &recv, client, buf + 8, 5, IO_RECV_ALL);
	WORLD_WAIT(w, &send, &recv);
	ck_assert_int_eq(recv.op.result, 5);
	ck_assert_mem_eq(buf + 8, "hello", 5);
	io_close(w->io, client);
	io_close(w->io, server);
}

/* Pacing costs timers: within a host it is off, at both ends, where the kernel has anything else. */
static void assert_unpaced(int fd)
{
	char name[16] = "";
	socklen_t len = sizeof(name);

	ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	ck_assert_str_eq(name, "cubic");
}

static bool kernel_has_cubic(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), rc;

	ck_assert_int_ge(fd, 0);
	rc = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
	close(fd);
	return rc == 0;
}

IO_TEST(test_local_connections_are_not_paced)
{
	int client, server;

	if (!strcmp(io_backend_name(w->io), "sim"))
		return;
	if (!kernel_has_cubic()) {
		printf("skipped: this kernel has no cubic, or does not allow it\n");
		return;
	}
	world_connect(w, &client, &server);
	assert_unpaced(client);
	assert_unpaced(server);
	io_close(w->io, client);
	io_close(w->io, server);
}

enum { BIG = 8 << 20 };

/* 8 MiB in uneven pieces, more than any socket buffer holds: both sides must go on by themselves. */
IO_TEST(test_large_transfer)
{
	struct world_op send = {0}, recv = {0};
	uint8_t *out = mem_alloc(BIG), *in = mem_zalloc(BIG);
	struct rng rng;
	int client, server;

	rng_init(&rng, 1);
	rng_bytes(&rng, out, BIG);
	world_connect(w, &client, &server);
	send.iov[0] = (struct iovec){out, 13};
	send.iov[1] = (struct iovec){out + 13, 4 << 20};
	send.iov[2] = (struct iovec){out + 13 + (4 << 20), 0};
	send.iov[3] = (struct iovec){out + 13 + (4 << 20), (4 << 20) - 13};
	io_prep_send(&send.op, client, send.iov, 4, world_done);
	world_submit(w, &send);
	recv.iov[0] = (struct iovec){in, 1000};
	recv.iov[1] = (struct iovec){in + 1000, BIG - 1001};
	recv.iov[2] = (struct iovec){in + BIG - 1, 1};
	io_prep_recv(&recv.op, server, recv.iov, 3, IO_RECV_ALL, world_done);
	world_submit(w, &recv);
	WORLD_WAIT(w, &send, &recv);
	ck_assert_int_eq(send.op.result, BIG);
	ck_assert_int_eq(recv.op.result, BIG);
	ck_assert(memcmp(in, out, BIG) == 0);
	io_close(w->io, client);
	io_close(w->io, server);
	mem_free(out);
	mem_free(in);
}

/*
 * A payload that comes in drips, then a byte, then a payload again, and at last one that is broken off: none of them waits for bytes that
 * belong to what comes after it, whatever the loop asked the kernel to gather first.
 */
IO_TEST(test_payload_in_drips)
{
	static const size_t drips[] = {1, 70000, 200000, 29999, 300000, 1, 99999};
	enum { PAYLOAD = 700000 };
	struct world_op send = {0}, recv = {0};
	uint8_t *out = mem_alloc(PAYLOAD), *in = mem_zalloc(PAYLOAD);
	int client, server;
	struct rng rng;

	rng_init(&rng, 2);
	rng_bytes(&rng, out, PAYLOAD);
	world_connect(w, &client, &server);
	for (int round = 0; round < 2; round++) {
		size_t at = 0;

		memset(in, 0, PAYLOAD);
		world_recv(w, &recv, server, in, PAYLOAD, IO_RECV_ALL);
		for (size_t i = 0; i < ARRAY_COUNT(drips); i++) {
			ck_assert(io_pending(&recv.op));
			world_send(w, &send, client, out + at, drips[i]);
			WORLD_WAIT(w, &send);
			at += drips[i];
		}
		ck_assert_uint_eq(at, PAYLOAD);
		WORLD_WAIT(w, &recv);
		ck_assert_int_eq(recv.op.result, PAYLOAD);
		ck_assert(memcmp(in, out, PAYLOAD) == 0);
		/* One byte, by a receive that takes what there is, and by one that takes all. */
		for (int all = 0; all < 2; all++) {
			world_recv(w, &recv, server, in, 1, all ? IO_RECV_ALL : 0);
			world_send(w, &send, client, out, 1);
			WORLD_WAIT(w, &send, &recv);
			ck_assert_int_eq(recv.op.result, 1);
		}
	}
	world_recv(w, &recv, server, in, PAYLOAD, IO_RECV_ALL);
	world_send(w, &send, client, out, PAYLOAD / 2);
	WORLD_WAIT(w, &send);
	io_close(w->io, client);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, ERR_CONNRESET);
	io_close(w->io, server);
	mem_free(out);
	mem_free(in);
}

IO_TEST(test_peer_close)
{
	struct world_op send = {0}, recv = {0};
	char buf[8];
	int client, server;

	/* before the first byte: 0 */
	world_connect(w, &client, &server);
	world_recv(w, &recv, server, buf, sizeof(buf), IO_RECV_ALL);
	io_close(w->io, client);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, 0);
	io_close(w->io, server);

	/* in the middle of what was asked for: an error */
	world_connect(w, &client, &server);
	world_send(w, &send, client, "abc", 3);
	WORLD_WAIT(w, &send);
	io_close(w->io, client);
	world_recv(w, &recv, server, buf, sizeof(buf), IO_RECV_ALL);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, ERR_CONNRESET);
	io_close(w->io, server);

	/* what was sent before the close arrives */
	world_connect(w, &client, &server);
	world_send(w, &send, client, "abcdefgh", 8);
	WORLD_WAIT(w, &send);
	io_close(w->io, client);
	world_recv(w, &recv, server, buf, sizeof(buf), IO_RECV_ALL);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, 8);
	world_recv(w, &recv, server, buf, sizeof(buf), 0);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, 0);
	io_close(w->io, server);
}

IO_TEST(test_send_to_closed_peer)
{
	struct world_op send = {0};
	char byte = 0;
	int client, server, sends = 0;

	world_connect(w, &client, &server);
	io_close(w->io, server);
	do {
		world_send(w, &send, client, &byte, 1);
		WORLD_WAIT(w, &send);
	} while (send.op.result == 1 && ++sends < 100000);
	ck_assert_int_eq(send.op.result, ERR_CONNRESET);
	io_close(w->io, client);
}

IO_TEST(test_connect_refused)
{
	struct world_op connect = {0};
	struct io_addr bound;
	int listener;

	ck_assert_int_eq(io_listen(w->io, &w->addr, &listener, &bound, NULL), 0);
	io_close(w->io, listener);
	io_prep_connect(&connect.op, &bound, world_done);
	world_submit(w, &connect);
	ck_assert_int_eq(connect.done_count, 0);
	WORLD_WAIT(w, &connect);
	ck_assert_int_eq(connect.op.result, ERR_CONNREFUSED);
}

IO_TEST(test_listen_in_use)
{
	struct io_addr bound, again;
	struct err err = {0};
	int listener, other;

	ck_assert_int_eq(io_listen(w->io, &w->addr, &listener, &bound, NULL), 0);
	ck_assert_int_eq(io_listen(w->io, &bound, &other, &again, &err), ERR_ADDRINUSE);
	ck_assert_ptr_nonnull(strstr(err.text, "address in use"));
	io_close(w->io, listener);
	ck_assert_int_eq(io_listen(w->io, &bound, &other, &again, &err), 0);
	io_close(w->io, other);
}

IO_TEST(test_many_connections)
{
	enum { COUNT = 20 };
	struct world_op accepts[COUNT] = {0}, connects[COUNT] = {0};
	struct io_addr bound;
	int listener;

	ck_assert_int_eq(io_listen(w->io, &w->addr, &listener, &bound, NULL), 0);
	for (int i = 0; i < COUNT; i++) {
		io_prep_connect(&connects[i].op, &bound, world_done);
		world_submit(w, &connects[i]);
	}
	for (int i = 0; i < COUNT; i++) {
		io_prep_accept(&accepts[i].op, listener, world_done);
		world_submit(w, &accepts[i]);
		WORLD_WAIT(w, &accepts[i]);
		ck_assert_int_ge(accepts[i].op.result, 0);
		io_close(w->io, (int)accepts[i].op.result);
	}
	for (int i = 0; i < COUNT; i++) {
		WORLD_WAIT(w, &connects[i]);
		ck_assert_int_ge(connects[i].op.result, 0);
		io_close(w->io, (int)connects[i].op.result);
	}
	io_close(w->io, listener);
}

IO_TEST(test_shutdown_ends_pending)
{
	struct world_op send = {0}, recv = {0}, tick = {0};
	uint8_t *out = mem_zalloc(BIG);
	char buf[8];
	int client, server;

	world_connect(w, &client, &server);
	world_recv(w, &recv, client, buf, sizeof(buf), 0);
	world_send(w, &send, client, out, BIG); /* nobody reads */
	world_timer(w, &tick, 20000000);
	WORLD_WAIT(w, &tick);
	ck_assert_int_eq(send.done_count, 0);
	io_shutdown(w->io, client);
	WORLD_WAIT(w, &send, &recv);
	ck_assert(recv.op.result == 0 || recv.op.result == ERR_CONNRESET);
	ck_assert_int_eq(send.op.result, ERR_CONNRESET);
	io_close(w->io, client);
	io_close(w->io, server);
	mem_free(out);
}

/* ---- cancel ---- */

IO_TEST(test_cancel)
{
	struct world_op recv = {0}, accept = {0}, timer = {0}, tick = {0};
	struct io_addr bound;
	char buf[8];
	int client, server, listener;

	world_connect(w, &client, &server);
	ck_assert_int_eq(io_listen(w->io, &w->addr, &listener, &bound, NULL), 0);
	world_recv(w, &recv, client, buf, sizeof(buf), 0);
	io_prep_accept(&accept.op, listener, world_done);
	world_submit(w, &accept);
	world_timer(w, &timer, 3600000000000u);
	world_timer(w, &tick, 1000000);
	WORLD_WAIT(w, &tick);
	io_cancel(w->io, &recv.op);
	io_cancel(w->io, &accept.op);
	io_cancel(w->io, &timer.op);
	io_cancel(w->io, &timer.op);
	ck_assert_int_eq(recv.done_count + accept.done_count + timer.done_count, 0);
	ck_assert(io_pending(&recv.op) && io_pending(&accept.op) && io_pending(&timer.op));
	WORLD_WAIT(w, &recv, &accept, &timer);
	ck_assert_int_eq(recv.op.result, ERR_CANCELED);
	ck_assert_int_eq(accept.op.result, ERR_CANCELED);
	ck_assert_int_eq(timer.op.result, ERR_CANCELED);
	io_cancel(w->io, &recv.op); /* idle: nothing happens */

	/* before it went to the kernel, and the operation serves again at once */
	world_recv(w, &recv, client, buf, sizeof(buf), 0);
	io_cancel(w->io, &recv.op);
	WORLD_WAIT(w, &recv);
	ck_assert_int_eq(recv.op.result, ERR_CANCELED);
	world_recv(w, &recv, client, buf, 3, IO_RECV_ALL);
	world_send(w, &tick, server, "xyz", 3);
	WORLD_WAIT(w, &recv, &tick);
	ck_assert_int_eq(recv.op.result, 3);
	ck_assert_int_eq(recv.done_count, 1);
	io_close(w->io, client);
	io_close(w->io, server);
	io_close(w->io, listener);
}

/* ---- timers ---- */

IO_TEST(test_timers_in_order)
{
	enum { COUNT = 50 };
	struct world_op timers[COUNT] = {0};
	uint64_t start = io_clock_ns(w->io);

	/* Deadlines in mixed order, some equal: equal ones in order of submission. */
	for (int i = 0; i < COUNT; i++) {
		io_prep_timer(&timers[i].op, start + (uint64_t)(i * 7 % 10) * 1000000, world_done);
		world_submit(w, &timers[i]);
	}
	for (int i = 0; i < COUNT; i++)
		WORLD_WAIT(w, &timers[i]);
	ck_assert_uint_ge(io_clock_ns(w->io) - start, 9000000);
	ck_assert_uint_ge(io_now_ns(w->io) - start, 9000000);
	for (int i = 0; i < COUNT; i++) {
		for (int j = 0; j < COUNT; j++) {
			int a = i * 7 % 10, b = j * 7 % 10;

			if (a < b || (a == b && i < j))
				ck_assert_uint_lt(timers[i].done_at, timers[j].done_at);
		}
		ck_assert_int_eq(timers[i].op.result, 0);
		ck_assert_int_eq(timers[i].done_count, 1);
	}
}

struct repeating {
	struct io_op op;
	struct world *w;
	struct world_op *last;
	int left;
};

static void repeating_done(struct io_op *op)
{
	struct repeating *r = CONTAINER_OF(op, struct repeating, op);

	ck_assert_int_eq(op->result, 0);
	if (--r->left == 0) {
		world_timer(r->w, r->last, 0);
		return;
	}
	io_prep_timer(&r->op, io_now_ns(r->w->io), repeating_done);
	io_submit(r->w->io, &r->op);
}

/* An operation submits itself again in `done`, with a deadline that has passed. */
IO_TEST(test_resubmit_in_done)
{
	struct world_op last = {0};
	struct repeating r = {.w = w, .last = &last, .left = 100};

	io_prep_timer(&r.op, io_now_ns(w->io), repeating_done);
	io_submit(w->io, &r.op);
	WORLD_WAIT(w, &last);
	ck_assert_int_eq(r.left, 0);
}

/* ---- offload ---- */

struct work {
	struct world_op o;
	int ran;
	pthread_t thread;
};

static void work_run(struct io_op *op)
{
	struct work *work = CONTAINER_OF(CONTAINER_OF(op, struct world_op, op), struct work, o);

	work->ran++;
	work->thread = pthread_self();
}

IO_TEST(test_offload)
{
	enum { COUNT = 12 };
	struct work works[COUNT] = {0};

	for (int i = 0; i < COUNT; i++) {
		io_prep_offload(&works[i].o.op, (enum io_lane)(i % 3), work_run, world_done);
		world_submit(w, &works[i].o);
	}
	for (int i = 0; i < COUNT; i++) {
		WORLD_WAIT(w, &works[i].o);
		ck_assert_int_eq(works[i].ran, 1);
		ck_assert_int_eq(works[i].o.op.result, 0);
		if (!w->sim)
			ck_assert(!pthread_equal(works[i].thread, pthread_self()));
	}
	/* the KV lane has one worker */
	for (int i = 2; i < COUNT; i += 3)
		ck_assert(pthread_equal(works[i].thread, works[2].thread));
}

IO_TEST(test_offload_cancel)
{
	enum { COUNT = 20 };
	struct work works[COUNT] = {0};

	for (int i = 0; i < COUNT; i++) {
		io_prep_offload(&works[i].o.op, IO_LANE_KV, work_run, world_done);
		world_submit(w, &works[i].o);
	}
	for (int i = 0; i < COUNT; i++)
		io_cancel(w->io, &works[i].o.op);
	for (int i = 0; i < COUNT; i++) {
		WORLD_WAIT(w, &works[i].o);
		ck_assert_int_eq(works[i].ran, works[i].o.op.result == 0);
		ck_assert(works[i].o.op.result == 0 || works[i].o.op.result == ERR_CANCELED);
	}
}

/* ---- posts ---- */

enum { POSTERS = 3, POSTS = 200 };

struct posted {
	struct io_post post;
	struct poster *poster;
	int number;
};

struct poster {
	struct world *w;
	struct posted posts[POSTS];
	int next;
	struct world_op *last; /* a timer submitted by the last post */
};

static void posted_run(struct io_post *post)
{
	struct posted *p = CONTAINER_OF(post, struct posted, post);

	ck_assert_int_eq(p->number, p->poster->next);
	p->poster->next++;
	if (p->poster->next == POSTS)
		world_timer(p->poster->w, p->poster->last, 0);
}

static void *poster_main(void *ctx)
{
	struct poster *poster = ctx;

	for (int i = 0; i < POSTS; i++) {
		poster->posts[i] = (struct posted){.post.run = posted_run, .poster = poster, .number = i};
		io_post(poster->w->io, &poster->posts[i].post);
	}
	return NULL;
}

IO_TEST(test_post)
{
	struct poster *posters = mem_array(POSTERS, sizeof(*posters));
	struct world_op last[POSTERS] = {0};
	pthread_t threads[POSTERS];

	for (int i = 0; i < POSTERS; i++) {
		posters[i].w = w;
		posters[i].last = &last[i];
		if (w->sim)
			poster_main(&posters[i]);
		else
			ck_assert_int_eq(pthread_create(&threads[i], NULL, poster_main, &posters[i]), 0);
	}
	for (int i = 0; i < POSTERS; i++)
		WORLD_WAIT(w, &last[i]);
	for (int i = 0; i < POSTERS; i++) {
		if (!w->sim)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(posters[i].next, POSTS);
	}
	mem_free(posters);
}

static void *late_post(void *ctx)
{
	struct poster *poster = ctx;
	struct timespec nap = {.tv_nsec = 20000000};

	/* No condition to wait on: the loop should be asleep by now, and if it is not the test still holds. */
	nanosleep(&nap, NULL);
	poster->posts[0] = (struct posted){.post.run = posted_run, .poster = poster, .number = POSTS - 1};
	poster->next = POSTS - 1;
	io_post(poster->w->io, &poster->posts[0].post);
	return NULL;
}

IO_TEST(test_post_wakes_sleeper)
{
	struct poster *poster = mem_zalloc(sizeof(*poster));
	struct world_op last = {0};
	pthread_t thread;

	poster->w = w;
	poster->last = &last;
	if (w->sim) {
		late_post(poster);
	} else {
		ck_assert_int_eq(pthread_create(&thread, NULL, late_post, poster), 0);
	}
	WORLD_WAIT(w, &last);
	if (!w->sim)
		pthread_join(thread, NULL);
	mem_free(poster);
}

/* ---- turn hooks ---- */

struct gather {
	struct world *w;
	struct io_turn_hook hook, second;
	int gathered, runs, second_runs;
	struct world_op *last;
};

static void gather_run(struct io_turn_hook *hook)
{
	struct gather *g = CONTAINER_OF(hook, struct gather, hook);

	g->runs++;
	io_at_turn_end(g->w->io, &g->second); /* same turn */
}

static void gather_second(struct io_turn_hook *hook)
{
	struct gather *g = CONTAINER_OF(hook, struct gather, second);

	g->second_runs++;
	ck_assert_int_eq(g->second_runs, g->runs);
	world_timer(g->w, g->last, 0);
}

struct gather_post {
	struct io_post post;
	struct gather *g;
};

static void gather_post_run(struct io_post *post)
{
	struct gather *g = CONTAINER_OF(post, struct gather_post, post)->g;

	g->gathered++;
	io_at_turn_end(g->w->io, &g->hook);
}

IO_TEST(test_turn_hooks)
{
	struct gather g = {.w = w};
	struct gather_post posts[10];
	struct world_op last = {0};

	g.last = &last;
	io_turn_hook_init(&g.hook, gather_run);
	io_turn_hook_init(&g.second, gather_second);
	for (int i = 0; i < 10; i++) {
		posts[i] = (struct gather_post){.post.run = gather_post_run, .g = &g};
		io_post(w->io, &posts[i].post);
	}
	WORLD_WAIT(w, &last);
	ck_assert_int_eq(g.gathered, 10);
	ck_assert_int_eq(g.runs, 1);
	ck_assert_int_eq(g.second_runs, 1);

	/* added outside of a turn: the next one runs it; removed: never */
	io_at_turn_end(w->io, &g.hook);
	last.done_count = 0;
	WORLD_WAIT(w, &last);
	ck_assert_int_eq(g.runs, 2);
	io_at_turn_end(w->io, &g.hook);
	io_turn_hook_remove(w->io, &g.hook);
	world_timer(w, &last, 1000000);
	WORLD_WAIT(w, &last);
	ck_assert_int_eq(g.runs, 2);
}

/* ---- the rest ---- */

START_TEST(test_addr)
{
	static const char *const good[] = {"127.0.0.1:7000", "0.0.0.0:0", "[::1]:65535", "[fe80::1]:80"};
	static const char *const bad[] = {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
		"localhost:80", "::1:80", "[::1]", "[]:80", "[127.0.0.1]:80", "127.0.0.1:7x", "127.0.0.1: 7",
		"1.2.3:4"};
	struct io_addr addr;
	char text[IO_ADDR_TEXT_BYTES];

	for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
		ck_assert_int_eq(io_addr_parse(good[i], &addr), 0);
		ck_assert_str_eq(io_addr_format(&addr, text), good[i]);
	}
	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		ck_assert_msg(io_addr_parse(bad[i], &addr) == ERR_INVAL, "%s", bad[i]);
	ck_assert_int_eq(io_addr_parse("127.3.2.1:1", &addr), 0);
	ck_assert(io_addr_is_loopback(&addr));
	ck_assert_int_eq(io_addr_parse("[::1]:1", &addr), 0);
	ck_assert(io_addr_is_loopback(&addr));
	ck_assert_int_eq(io_addr_parse("10.0.0.1:1", &addr), 0);
	ck_assert(!io_addr_is_loopback(&addr));
}
END_TEST

IO_TEST(test_clock_and_random)
{
	uint64_t before = io_clock_ns(w->io);
	uint8_t a[32] = {0}, b[32] = {0};
	struct world_op tick = {0};

	world_timer(w, &tick, 2000000);
	WORLD_WAIT(w, &tick);
	ck_assert_uint_ge(io_clock_ns(w->io), before + 2000000);
	ck_assert_int_gt(io_wall_ns(w->io), 1600000000ll * 1000000000ll);
	io_random(w->io, a, sizeof(a));
	io_random(w->io, b, sizeof(b));
	ck_assert(memcmp(a, b, sizeof(a)) != 0);
	ck_assert_int_eq(io_is_simulated(w->io), w->sim != NULL);
}

static void send_signal(struct io_op *op)
{
	(void)op;
	raise(SIGTERM);
}

static void stop_by_signal(const char *backend)
{
	struct world w;
	struct io_op timer = {0};

	world_open(&w, backend);
	if (!w.io)
		return;
	ck_assert_int_eq(io_stop_on_signals(w.io), 0);
	io_prep_timer(&timer, io_clock_ns(w.io) + 1000000, send_signal);
	io_submit(w.io, &timer);
	ck_assert_int_eq(io_run(w.io), 0);
	ck_assert(!io_pending(&timer));
	/* one that comes while the loop does not run ends the next run at once */
	raise(SIGINT);
	ck_assert_int_eq(io_run(w.io), 0);
	world_close(&w);
}

START_TEST(test_stop_on_signal_uring)
{
	stop_by_signal("uring");
}
END_TEST

START_TEST(test_stop_on_signal_epoll)
{
	stop_by_signal("epoll");
}
END_TEST

START_TEST(test_backend_from_environment)
{
	struct err err = {0};
	struct io *io;

	setenv("CRATON_IO", "epoll", 1);
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &io, &err), 0);
	ck_assert_str_eq(io_backend_name(io), "epoll");
	io_free(io);
	setenv("CRATON_IO", "carrier-pigeon", 1);
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &io, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "carrier-pigeon"));
	unsetenv("CRATON_IO");
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &io, &err), 0);
	io_free(io);
}
END_TEST

/* As a container does it: io_uring_setup is forbidden by seccomp. Check gives each test a process of its own. */
/* TCP lets a socket connect to itself: what a reconnecting client meets when the port it wants is its own source port. */
START_TEST(test_connection_to_itself_is_refused)
	{
		struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t len = sizeof(sa);
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
		ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
		ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
		ck_assert_int_eq(io_sock_connected(fd), ERR_CONNREFUSED);
		close(fd);
	}
END_TEST

START_TEST(test_auto_without_uring)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_COUNT(rules), .filter = rules};
	struct err err = {0};
	struct io *io;

	if (getenv("CK_FORK") && !strcmp(getenv("CK_FORK"), "no"))
		return;
	unsetenv("CRATON_IO");
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_eq(io_new(IO_BACKEND_URING, &io, &err), ERR_PERM);
	ck_assert_ptr_nonnull(strstr(err.text, "use epoll"));
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &io, &err), 0);
	ck_assert_int_eq(err.code, 0);
	ck_assert_str_eq(io_backend_name(io), "epoll");
	io_free(io);
}
END_TEST

UNIT_MAIN("io", test_addr, test_connection_to_itself_is_refused, IO_TESTS(test_echo), IO_TESTS(test_large_transfer), IO_TESTS(test_local_connections_are_not_paced), IO_TESTS(test_payload_in_drips), IO_TESTS(test_peer_close),
	IO_TESTS(test_send_to_closed_peer), IO_TESTS(test_connect_refused), IO_TESTS(test_listen_in_use),
	IO_TESTS(test_many_connections), IO_TESTS(test_shutdown_ends_pending), IO_TESTS(test_cancel),
	IO_TESTS(test_timers_in_order), IO_TESTS(test_resubmit_in_done), IO_TESTS(test_offload),
	IO_TESTS(test_offload_cancel), IO_TESTS(test_post), IO_TESTS(test_post_wakes_sleeper),
	IO_TESTS(test_turn_hooks), IO_TESTS(test_clock_and_random), test_stop_on_signal_uring,
	test_stop_on_signal_epoll, test_backend_from_environment, test_auto_without_uring)
