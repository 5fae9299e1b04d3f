// SPDX-License-Identifier: Apache-2.0
/*
 * io_real: the turn of a real loop.
 *
 * A turn: pending operations go to the kernel (one system call, which also waits if nothing else is due); then all
 * that is ready is delivered: kernel completions, cancels, workers' results, due timers; then posts; then the turn
 * hooks. What is submitted meanwhile goes to the kernel at the start of the next turn, so a `done` never runs inside
 * a submit and work gathers by itself.
 *
 * Waking: `is_asleep` is set under the lock only when nothing was posted, and only then does a poster write the
 * eventfd: a wake is never lost, and a busy loop is woken without system calls. A signal handler always writes it.
 */
#include "common/io/io_real.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "common/base/mem.h"

static struct io_real *io_real_of(struct io *io)
{
	return CONTAINER_OF(io, struct io_real, io);
}

int io__err(int os_errno)
{
	switch (os_errno) {
	case EDQUOT:
		return ERR_NOSPC;
	case ENODATA: /* a bad sector, past the page cache: the block layer's own word */
		return ERR_IO;
	case ENFILE:
		return ERR_MFILE;
	case ENOBUFS:
		return ERR_NOMEM;
	case ENETUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
		return ERR_HOSTUNREACH;
	case ECONNABORTED:
	case ENOTCONN:
		return ERR_CONNRESET;
	default:
		return err_from_errno(os_errno);
	}
}

/* ---- clock, entropy ---- */

static uint64_t io_real_read_clock(clockid_t id)
{
	struct timespec ts;

	CHECK(clock_gettime(id, &ts) == 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t io_real_now_ns(struct io *io)
{
	return io_real_of(io)->now_ns;
}

uint64_t io_real_clock_ns(struct io *io)
{
	(void)io;
	return io_real_read_clock(CLOCK_MONOTONIC);
}

int64_t io_real_wall_ns(struct io *io)
{
	(void)io;
	return (int64_t)io_real_read_clock(CLOCK_REALTIME);
}

void io_real_random(struct io *io, void *out, size_t len)
{
	uint8_t *p = out;

	(void)io;
	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		CHECK(n > 0 || errno == EINTR);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
}

/* ---- life ---- */

int io_real_init(
	struct io_real *r, const struct io_vtable *v, const struct io_real_ops *ops, int wake_flags, struct err *err)
{
	int fd = eventfd(0, EFD_CLOEXEC | wake_flags);

	if (fd < 0)
		return err_set(err, io__err(errno), "cannot make an eventfd: %s", strerror(errno));
	io__init(&r->io, v);
	r->ops = ops;
	r->now_ns = io_real_read_clock(CLOCK_MONOTONIC);
	r->wake_fd = fd;
	r->post_end = &r->post_first;
	io_heap_init(&r->timers);
	list_init(&r->pending);
	list_init(&r->ready);
	list_init(&r->finished);
	CHECK(pthread_mutex_init(&r->lock, NULL) == 0);
	r->pool = io_pool_new(r);
	return 0;
}

static struct io_real *_Atomic io_real_signaled;

void io_real_fini(struct io_real *r)
{
	CHECK(r->in_flight == 0);
	if (atomic_load(&io_real_signaled) == r)
		atomic_store(&io_real_signaled, NULL);
	io_pool_free(r->pool);
	mem_free(r->slow);
	io_heap_fini(&r->timers);
	pthread_mutex_destroy(&r->lock);
	close(r->wake_fd);
	r->io.magic = 0;
}

/* ---- operations ---- */

static struct io_heap_node *io_real_timer_node(struct io_op *op)
{
	return (struct io_heap_node *)op->slot;
}
_Static_assert(sizeof(struct io_heap_node) <= sizeof(((struct io_op *)0)->slot), "a timer's node fits the slot");

static bool io_real_is_slowed(const struct io_real *r, const struct io_op *op)
{
	return r->slow && (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC);
}

static void io_real_deliver(struct io_real *r, struct io_op *op)
{
	op->state &= (uint8_t)~IO_STATE_HELD;
	op->state |= IO_STATE_READY;
	list_push_back(&r->ready, &op->link);
}

void io_real_ready(struct io_real *r, struct io_op *op, int64_t result)
{
	CHECK((op->state & IO_STATE_SUBMITTED) && !(op->state & (IO_STATE_READY | IO_STATE_HELD)));
	op->result = result;
	if (io_real_is_slowed(r, op) && !(op->state & IO_STATE_CANCEL)) {
		uint64_t now_ns = io_real_read_clock(CLOCK_MONOTONIC);

		op->state |= IO_STATE_HELD;
		io_heap_insert(&r->timers, io_real_timer_node(op),
			now_ns + io_slow_delay_ns(r->slow, op, now_ns - op->slot[IO_SLOW_SLOT]));
		return;
	}
	io_real_deliver(r, op);
}

void io_real_submit(struct io *io, struct io_op *op)
{
	struct io_real *r = io_real_of(io);

	r->in_flight++;
	op->slot[0] = 0; /* bytes done so far */
	if (io_real_is_slowed(r, op))
		op->slot[IO_SLOW_SLOT] = io_real_read_clock(CLOCK_MONOTONIC);
	switch (op->kind) {
	case IO_TIMER:
		io_heap_insert(&r->timers, io_real_timer_node(op), op->timer.at_ns);
		break;
	case IO_OFFLOAD:
		op->state |= IO_STATE_KERNEL;
		io_pool_submit(r->pool, op);
		break;
	default:
		list_push_back(&r->pending, &op->link);
	}
}

void io_real_cancel(struct io *io, struct io_op *op)
{
	struct io_real *r = io_real_of(io);

	if (op->state & IO_STATE_HELD) {
		io_heap_remove(&r->timers, io_real_timer_node(op));
		io_real_deliver(r, op);
	} else if (op->kind == IO_TIMER) {
		io_heap_remove(&r->timers, io_real_timer_node(op));
		io_real_ready(r, op, ERR_CANCELED);
	} else if (op->kind == IO_OFFLOAD) {
		if (io_pool_withdraw(r->pool, op))
			io_real_ready(r, op, ERR_CANCELED);
	} else if (op->state & IO_STATE_KERNEL) {
		r->ops->cancel(r, op);
	} else {
		list_remove(&op->link);
		io_real_ready(r, op, ERR_CANCELED);
	}
}

/* ---- from other threads ---- */

static void io_real_wake(struct io_real *r)
{
	uint64_t one = 1;

	while (write(r->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void io_real_post(struct io *io, struct io_post *post)
{
	struct io_real *r = io_real_of(io);
	bool is_asleep;

	post->next = NULL;
	pthread_mutex_lock(&r->lock);
	*r->post_end = post;
	r->post_end = &post->next;
	is_asleep = r->is_asleep;
	r->is_asleep = false;
	pthread_mutex_unlock(&r->lock);
	if (is_asleep)
		io_real_wake(r);
}

void io_real_finished(struct io_real *r, struct io_op *op)
{
	bool is_asleep;

	pthread_mutex_lock(&r->lock);
	list_push_back(&r->finished, &op->link);
	is_asleep = r->is_asleep;
	r->is_asleep = false;
	pthread_mutex_unlock(&r->lock);
	if (is_asleep)
		io_real_wake(r);
}

/* Returns the posts; the workers' operations become ready. */
static struct io_post *io_real_take_posted(struct io_real *r)
{
	struct io_post *posts;
	struct list *n;

	pthread_mutex_lock(&r->lock);
	r->is_asleep = false;
	posts = r->post_first;
	r->post_first = NULL;
	r->post_end = &r->post_first;
	while ((n = list_pop_front(&r->finished))) {
		struct io_op *op = LIST_ENTRY(n, struct io_op, link);

		io_real_ready(r, op, op->result);
	}
	pthread_mutex_unlock(&r->lock);
	return posts;
}

/* ---- the turn ---- */

static uint64_t io_real_timeout_ns(struct io_real *r)
{
	struct io_heap_node *first;
	bool is_posted;
	uint64_t now;

	if (!list_empty(&r->ready) || !list_empty(&r->pending) || !list_empty(&r->io.hooks) || atomic_load(&r->stop))
		return 0;
	pthread_mutex_lock(&r->lock);
	is_posted = r->post_first || !list_empty(&r->finished);
	r->is_asleep = !is_posted;
	pthread_mutex_unlock(&r->lock);
	if (is_posted)
		return 0;
	first = io_heap_first(&r->timers);
	if (!first)
		return UINT64_MAX;
	now = io_real_read_clock(CLOCK_MONOTONIC);
	return first->key > now ? first->key - now : 0;
}

static void io_real_due_timers(struct io_real *r)
{
	struct io_heap_node *node;

	while ((node = io_heap_first(&r->timers)) && node->key <= r->now_ns) {
		struct io_op *op = CONTAINER_OF(node, struct io_op, slot);

		io_heap_remove(&r->timers, node);
		if (op->state & IO_STATE_HELD)
			io_real_deliver(r, op);
		else
			io_real_ready(r, op, 0);
	}
}

static void io_real_drain(struct io_real *r)
{
	struct list batch, *n;

	/* Only what is ready now: a `done` that makes others ready must not keep the turn from ending. */
	if (list_empty(&r->ready))
		return;
	list_insert_before(&r->ready, &batch);
	list_remove(&r->ready);
	while ((n = list_pop_front(&batch))) {
		r->in_flight--;
		io__complete(LIST_ENTRY(n, struct io_op, link), LIST_ENTRY(n, struct io_op, link)->result);
	}
}

static void io_real_run_posts(struct io_post *post)
{
	while (post) {
		struct io_post *next = post->next;

		post->run(post);
		post = next;
	}
}

int io_real_run(struct io *io)
{
	struct io_real *r = io_real_of(io);
	struct io_post *posts;
	int rc = 0;

	/* io_uring binds a ring to the thread that enables it, so the rule holds for all. */
	CHECK(!r->has_thread || pthread_equal(r->thread, pthread_self()));
	r->thread = pthread_self();
	r->has_thread = true;
	while (!rc && !atomic_load(&r->stop)) {
		rc = r->ops->flush(r);
		if (!rc)
			rc = r->ops->wait(r, io_real_timeout_ns(r));
		r->now_ns = io_real_read_clock(CLOCK_MONOTONIC);
		posts = io_real_take_posted(r);
		io_real_due_timers(r);
		io_real_drain(r);
		io_real_run_posts(posts);
		io__run_hooks(io);
	}
	atomic_store(&r->stop, false);
	return rc;
}

void io_real_stop(struct io *io)
{
	struct io_real *r = io_real_of(io);

	atomic_store(&r->stop, true);
	io_real_wake(r);
}

/* ---- signals ---- */

bool io_real_stopping(struct io *io)
{
	return atomic_load(&io_real_of(io)->stop);
}

static void io_real_on_signal(int signal_number)
{
	struct io_real *r = atomic_load(&io_real_signaled);
	int saved = errno;

	(void)signal_number;
	if (r)
		io_real_stop(&r->io);
	errno = saved;
}

int io_stop_on_signals(struct io *io)
{
	struct sigaction stop = {.sa_handler = io_real_on_signal, .sa_flags = SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	if (io->v->simulated)
		return ERR_OPNOTSUPP;
	CHECK(!atomic_load(&io_real_signaled));
	atomic_store(&io_real_signaled, io_real_of(io));
	sigemptyset(&stop.sa_mask);
	sigemptyset(&ignore.sa_mask);
	if (sigaction(SIGINT, &stop, NULL) || sigaction(SIGTERM, &stop, NULL) || sigaction(SIGPIPE, &ignore, NULL) ||
		sigaction(SIGXFSZ, &ignore, NULL)) /* a file at its limit is an error of the write */
		return io__err(errno);
	return 0;
}
