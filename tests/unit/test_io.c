// SPDX-License-Identifier: Apache-2.0
/* io: the contract of the loop, the same for every back end: an example, cancels, timers, offload, posts, hooks. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "common/io/io_real.h"
#include "tests/lib/io_world.h"
#include "tests/lib/unit.h"

/* ---- an example: an echo ---- */

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

/* ---- operations that hang ---- */

enum { CALLS_MAX = LIMIT_DISKS_PER_SERVER * LIMIT_DISK_CALLS };

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static void nothing_run(struct io_op *op)
{
	(void)op;
}

static void held_run(struct io_op *op)
{
	(void)op;
	pthread_mutex_lock(&held_lock);
	pthread_mutex_unlock(&held_lock);
}

/* Threads of a burst end when nobody has needed them for a while; what comes then is done all the same. */
IO_TEST(test_idle_threads_end)
{
	enum { COUNT = 60 };
	static struct world_op held[COUNT];
	struct world_op last = {0};
	struct io_pool *pool = w->sim ? NULL : CONTAINER_OF(w->io, struct io_real, io)->pool;

	if (!pool)
		return;
	io_pool_end_idle_after(pool, 1000 * 1000);
	for (int burst = 0; burst < 3; burst++) {
		pthread_mutex_lock(&held_lock);
		for (int i = 0; i < COUNT; i++) {
			held[i] = (struct world_op){0};
			io_prep_offload(&held[i].op, IO_LANE_FILE, held_run, world_done);
			world_submit(w, &held[i]);
		}
		/* One that has just done its last of the burst before may not be idle yet: another was started in its place. */
		ck_assert_uint_ge(io_pool_threads(pool, IO_LANE_FILE), COUNT);
		ck_assert_uint_le(io_pool_threads(pool, IO_LANE_FILE), COUNT + IO_POOL_THREADS_KEPT);
		pthread_mutex_unlock(&held_lock);
		for (int i = 0; i < COUNT; i++)
			WORLD_WAIT(w, &held[i]);
		for (int i = 0; i < 30000 && io_pool_threads(pool, IO_LANE_FILE) > IO_POOL_THREADS_KEPT; i++)
			nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
		ck_assert_uint_eq(io_pool_threads(pool, IO_LANE_FILE), IO_POOL_THREADS_KEPT);
	}
	io_prep_offload(&last.op, IO_LANE_FILE, nothing_run, world_done);
	world_submit(w, &last);
	WORLD_WAIT(w, &last);
	ck_assert_uint_eq(io_pool_threads(pool, IO_LANE_FILE), IO_POOL_THREADS_KEPT);
}

/* All disks that a server may have hang but one: its calls end. */
static void lane_is_held(struct world *w, enum io_lane lane, int calls)
{
	static struct world_op held[CALLS_MAX];
	struct world_op last = {0};

	ck_assert_int_le(calls, CALLS_MAX);
	pthread_mutex_lock(&held_lock);
	for (int i = 0; i < calls - 1; i++) {
		held[i] = (struct world_op){0};
		io_prep_offload(&held[i].op, lane, held_run, world_done);
		world_submit(w, &held[i]);
	}
	io_prep_offload(&last.op, lane, nothing_run, world_done);
	world_submit(w, &last);
	WORLD_WAIT(w, &last);
	ck_assert_int_eq(held[0].done_count, 0);
	pthread_mutex_unlock(&held_lock);
	for (int i = 0; i < calls - 1; i++)
		WORLD_WAIT(w, &held[i]);
}

START_TEST(test_held_lanes)
{
	struct world w;

	world_open(&w, "epoll");
	lane_is_held(&w, IO_LANE_FILE, CALLS_MAX);
	lane_is_held(&w, IO_LANE_KV, LIMIT_DISKS_PER_SERVER);
	world_close(&w);
}
END_TEST

/* A page whose readers hang until it is let go; NULL where the kernel does not let us make one. */
static void *hung_page(int *ret_fd)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.range.len = 4096, .mode = UFFDIO_REGISTER_MODE_MISSING};
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(page, MAP_FAILED);
	reg.range.start = (uintptr_t)page;
	*ret_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (*ret_fd >= 0 && ioctl(*ret_fd, UFFDIO_API, &api) == 0 && ioctl(*ret_fd, UFFDIO_REGISTER, &reg) == 0)
		return page;
	printf("SKIP: no userfaultfd\n");
	munmap(page, 4096);
	return NULL;
}

static void hung_page_let_go(void *page, int fd)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)page, 4096}};

	ck_assert_int_eq(ioctl(fd, UFFDIO_ZEROPAGE, &zero), 0);
	close(fd);
}

/* As many writes as a disk may have, all hanging: a file elsewhere is written all the same. */
START_TEST(test_hung_writes_epoll)
{
	static struct world_op hung[LIMIT_DISK_IOS];
	struct world w;
	struct world_op write = {0};
	char path[128];
	int uffd, fd, other_fd;
	void *page = hung_page(&uffd);

	if (!page)
		return;
	world_open(&w, "epoll");
	snprintf(path, sizeof(path), "%s/file", w.dir);
	ck_assert_int_eq(io_open(w.io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	snprintf(path, sizeof(path), "%s/other", w.dir);
	ck_assert_int_eq(io_open(w.io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &other_fd), 0);
	for (int i = 0; i < LIMIT_DISK_IOS; i++) {
		hung[i] = (struct world_op){.iov = {{page, 1}}};
		io_prep_write(&hung[i].op, fd, hung[i].iov, 1, (uint64_t)i, 0, world_done);
		world_submit(&w, &hung[i]);
	}
	write.iov[0] = (struct iovec){path, 1};
	io_prep_write(&write.op, other_fd, write.iov, 1, 0, 0, world_done);
	world_submit(&w, &write);
	WORLD_WAIT(&w, &write);
	ck_assert_int_eq(write.op.result, 1);
	ck_assert_int_eq(hung[0].done_count, 0);
	hung_page_let_go(page, uffd);
	for (int i = 0; i < LIMIT_DISK_IOS; i++)
		WORLD_WAIT(&w, &hung[i]);
	munmap(page, 4096);
	io_close(w.io, fd);
	io_close(w.io, other_fd);
	world_close(&w);
}
END_TEST

/* The kernel's threads for files that block: all disks of a server may hang but one. */
START_TEST(test_uring_workers)
{
	struct world w;
	struct world_op tick = {0};
	unsigned workers[2] = {0, 0};
	char path[64], name[64];

	world_open(&w, "uring");
	if (!w.io)
		return;
	world_timer(&w, &tick, 0); /* the ring is bound to its thread by then */
	WORLD_WAIT(&w, &tick);
	for (int fd = 3; fd < 64; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		if (n < 0)
			continue;
		name[n] = 0;
		if (!strcmp(name, "anon_inode:[io_uring]"))
			ck_assert_int_eq(syscall(SYS_io_uring_register, fd, IORING_REGISTER_IOWQ_MAX_WORKERS, workers, 2), 0);
	}
	ck_assert_uint_eq(workers[0], LIMIT_DISKS_PER_SERVER * LIMIT_DISK_IOS);
	world_close(&w);
}
END_TEST

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

UNIT_MAIN("io", IO_TESTS(test_echo), IO_TESTS(test_cancel), IO_TESTS(test_timers_in_order),
	IO_TESTS(test_resubmit_in_done), IO_TESTS(test_offload), IO_TESTS(test_offload_cancel), IO_TESTS(test_idle_threads_end), IO_TESTS(test_post),
	test_held_lanes, test_hung_writes_epoll, test_uring_workers, IO_TESTS(test_post_wakes_sleeper), IO_TESTS(test_turn_hooks), IO_TESTS(test_clock_and_random),
	test_stop_on_signal_uring, test_stop_on_signal_epoll, test_backend_from_environment, test_auto_without_uring)
