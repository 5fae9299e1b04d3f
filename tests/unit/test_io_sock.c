// SPDX-License-Identifier: Apache-2.0
/* io_sock: connections, the same for every back end: what is sent, received and ended, and how they are tuned. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/io/io_real.h"
#include "tests/lib/io_world.h"
#include "tests/lib/unit.h"

/* ---- bytes ---- */

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

struct holder {
	int fd;
};

static void *let_go(void *arg)
{
	struct holder *h = arg;

	nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
	close(h->fd);
	return NULL;
}

static void count_lines(void *ctx, enum log_level level, const char *line)
{
	ck_assert_int_eq(level, LOG_WARN);
	ck_assert_ptr_nonnull(strstr(line, "listen-waits"));
	ck_assert_ptr_nonnull(strstr(line, "address in use"));
	++*(int *)ctx;
}

/* A port that is held when a daemon starts, and let go soon: as of one that was killed. What it waits for is said once, at once. */
IO_TEST(test_listen_wait)
{
	struct io_addr bound, again;
	struct err err = {0};
	struct holder holder;
	pthread_t thread;
	int fd, lines = 0;
	const struct log log = {.write = count_lines, .ctx = &lines};

	if (w->sim)
		return; /* its sockets belong to one thread */
	ck_assert_int_eq(io_listen_wait(w->io, &w->addr, &log, &holder.fd, &bound, &err), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_go, &holder), 0);
	ck_assert_int_eq(lines, 0);
	ck_assert_int_eq(io_listen_wait(w->io, &bound, &log, &fd, &again, &err), 0);
	ck_assert_int_eq(lines, 1);
	ck_assert(memcmp(&again, &bound, sizeof(bound)) == 0 && err.code == 0 && !err.text[0]);
	pthread_join(thread, NULL);
	io_close(w->io, fd);
}

/* Who is told to stop waits no longer. */
IO_TEST(test_listen_wait_stops)
{
	struct io_addr bound, again;
	struct err err = {0};
	int holder, fd;

	if (w->sim)
		return;
	ck_assert_int_eq(io_listen(w->io, &w->addr, &holder, &bound, &err), 0);
	io_stop(w->io);
	ck_assert_int_eq(io_listen_wait(w->io, &bound, NULL, &fd, &again, &err), ERR_STOPPED);
	ck_assert_ptr_nonnull(strstr(err.text, "address in use"));
	io_close(w->io, holder);
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

/* ---- pacing: it costs timers, so within a host it is off ---- */

enum { CONGESTION_BYTES = 16 };

static bool set_congestion(int fd, const char *name)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

static void get_congestion(int fd, char name[CONGESTION_BYTES])
{
	socklen_t len = CONGESTION_BYTES;

	memset(name, 0, CONGESTION_BYTES);
	ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
}

static void assert_congestion(int fd, const char *wanted)
{
	char name[CONGESTION_BYTES];

	get_congestion(fd, name);
	ck_assert_str_eq(name, wanted);
}

static bool kernel_has(const char *name)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool has;

	ck_assert_int_ge(fd, 0);
	has = set_congestion(fd, name);
	close(fd);
	return has;
}

IO_TEST(test_local_connections_are_not_paced)
{
	char choice[CONGESTION_BYTES];
	int client = socket(AF_INET, SOCK_STREAM, 0), server;
	const char *wanted;

	get_congestion(client, choice);
	close(client);
	if (w->sim || !kernel_has("cubic"))
		return;
	wanted = strncmp(choice, "bbr", 3) == 0 ? "cubic" : choice;
	world_connect(w, &client, &server);
	assert_congestion(client, wanted);
	assert_congestion(server, wanted);
	io_close(w->io, client);
	io_close(w->io, server);
}

static bool raise_loopback(void)
{
	struct ifreq lo = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), rc;

	ck_assert_int_ge(fd, 0);
	rc = ioctl(fd, SIOCGIFFLAGS, &lo);
	lo.ifr_flags |= IFF_UP;
	rc = rc ? rc : ioctl(fd, SIOCSIFFLAGS, &lo);
	close(fd);
	return rc == 0;
}

/* A network of our own with this choice. False: we may not have one, or this kernel has no such choice. */
static bool enter_network(const char *choice)
{
	FILE *f;
	bool done;

	/* Not where the tests that follow would be in it, too. */
	if (getenv("CK_FORK") && !strcmp(getenv("CK_FORK"), "no"))
		return false;
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	f = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "w");
	if (!f)
		return false;
	done = fputs(choice, f) >= 0;
	done = fclose(f) == 0 && done;
	return done && raise_loopback();
}

static void assert_sockets_begin_as(const char *wanted)
{
	struct io_addr any = {.family = 4}, bound;
	int listener, client;
	struct err err = {0};
	struct io *io;

	ck_assert_int_eq(io_new(IO_BACKEND_EPOLL, &io, &err), 0);
	ck_assert_int_eq(io_listen(io, &any, &listener, &bound, &err), 0);
	assert_congestion(listener, wanted);
	client = io_sock_open(&bound, false);
	ck_assert_int_ge(client, 0);
	assert_congestion(client, wanted);
	close(client);
	io_close(io, listener);
	io_free(io);
}

/* A connection that bbr had for a moment is paced for ever: sockets are told before there is one. */
START_TEST(test_sockets_begin_unpaced)
{
	if (!kernel_has("cubic") || !enter_network("bbr"))
		printf("skipped: no network of our own with bbr, or no cubic\n");
	else
		assert_sockets_begin_as("cubic");
}
END_TEST

/* What does not pace is left alone from the first packet on, in which it may have something to say. */
START_TEST(test_sockets_begin_as_chosen)
{
	if (!enter_network("reno"))
		printf("skipped: no network of our own\n");
	else
		assert_sockets_begin_as("reno");
}
END_TEST

/* A connection of plain sockets, both told this choice. */
static void connect_plainly(const char *from, const char *to, const char *choice, int *ret_client, int *ret_server)
{
	struct sockaddr_in client = {.sin_family = AF_INET}, server = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(server);

	ck_assert_int_eq(inet_pton(AF_INET, from, &client.sin_addr), 1);
	ck_assert_int_eq(inet_pton(AF_INET, to, &server.sin_addr), 1);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&server, sizeof(server)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&server, &len), 0);
	*ret_client = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(*ret_client, (struct sockaddr *)&client, sizeof(client)), 0);
	ck_assert_int_eq(connect(*ret_client, (struct sockaddr *)&server, sizeof(server)), 0);
	*ret_server = accept(listener, NULL, NULL);
	ck_assert_int_ge(*ret_server, 0);
	close(listener);
	ck_assert(set_congestion(*ret_client, choice) && set_congestion(*ret_server, choice));
}

/* What a connection has when it is known where it leads: that pacing was taken off stands within the host; what a route chose stands. */
static void assert_after(const char *from, const char *to, const char *begun, const char *wanted)
{
	int client, server;

	connect_plainly(from, to, begun, &client, &server);
	ck_assert_int_eq(io_sock_connected(client), 0);
	assert_congestion(client, wanted);
	io_sock_accepted(server);
	assert_congestion(server, wanted);
	close(client);
	close(server);
}

START_TEST(test_pacing_by_path)
{
	if (!kernel_has("cubic") || !enter_network("bbr")) {
		printf("skipped: no network of our own with bbr, or no cubic\n");
		return;
	}
	assert_after("127.0.0.1", "127.0.0.1", "cubic", "cubic");
	assert_after("127.0.0.1", "127.0.0.2", "cubic", "bbr");
	assert_after("127.0.0.1", "127.0.0.2", "reno", "reno");
}
END_TEST

/* Where the system's choice does not pace nothing was taken off, and nothing comes back. */
START_TEST(test_no_pacing_by_path)
{
	if (!kernel_has("cubic") || !enter_network("reno")) {
		printf("skipped: no network of our own, or no cubic\n");
		return;
	}
	assert_after("127.0.0.1", "127.0.0.2", "cubic", "cubic");
}
END_TEST

/* ---- addresses ---- */

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

UNIT_MAIN("io_sock", IO_TESTS(test_large_transfer), IO_TESTS(test_payload_in_drips), IO_TESTS(test_peer_close),
	IO_TESTS(test_send_to_closed_peer), IO_TESTS(test_connect_refused), IO_TESTS(test_listen_in_use), IO_TESTS(test_listen_wait), IO_TESTS(test_listen_wait_stops),
	IO_TESTS(test_many_connections), IO_TESTS(test_shutdown_ends_pending),
	IO_TESTS(test_local_connections_are_not_paced), test_sockets_begin_unpaced,
	test_sockets_begin_as_chosen, test_pacing_by_path, test_no_pacing_by_path, test_addr,
	test_connection_to_itself_is_refused)
