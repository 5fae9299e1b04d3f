/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io/io_way.h"

#include <stdlib.h>

#define SECOND_NS (1000ull * 1000 * 1000)

/* Where the system keeps how long the thread of the loop was ready to run and did not: "ran waited slices", in ns. */
#define WAITED_PATH "/proc/thread-self/schedstat"

/* ---- the decision ---- */

static bool log_is_slow(struct io_way_plan *plan, const struct io_way_sample *s)
{
	uint64_t mean_ns;

	if (!s->entries)
		return false;
	mean_ns = s->entries_ns / s->entries;
	plan->least_ns += plan->least_ns / IO_WAY_FORGET;
	if (!plan->least_ns || mean_ns < plan->least_ns)
		plan->least_ns = mean_ns;
	return mean_ns >= IO_WAY_LOG_NS && mean_ns / IO_WAY_LOG_FACTOR >= plan->least_ns;
}

bool io_way_step(struct io_way_plan *plan, uint64_t now_ns, const struct io_way_sample *s)
{
	bool is_short = log_is_slow(plan, s) | (s->waited_ns >= s->took_ns / IO_WAY_WAITED);

	plan->has_work = s->took_ns && s->requests * SECOND_NS >= IO_WAY_REQUESTS * s->took_ns;
	if (!plan->has_work)
		plan->until_ns = 0;
	else if (is_short && now_ns >= plan->until_ns)
		plan->until_ns = now_ns + IO_WAY_ASK_NS;
	return now_ns < plan->until_ns;
}

/* ---- samples ---- */

static uint64_t waited_ns(const struct io_way *w)
{
	char text[96], *end;
	int64_t n = w->waited_fd < 0 ? -1 : io_pread(w->io, w->waited_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return w->counts.waited_ns;
	text[n] = 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10);
}

static void take_counts(struct io_way *w, struct io_way_sample *ret_counts)
{
	*ret_counts = (struct io_way_sample){.waited_ns = waited_ns(w)};
	w->o.count(w->o.ctx, ret_counts);
}

/* False: nobody hears it. Said once in the log, and tried again as long as it is to be said. */
static bool say(struct io_way *w)
{
	int rc = io_word_say(&w->word), before = w->said_code;

	w->said_code = rc;
	if (rc < 0 && rc != before)
		log_line(w->o.log, LOG_WARN, "no-way", "path=%s error=%s text=\"bulk writes of this host do not make way\"", w->o.path, err_name(rc));
	return rc == 0;
}

static void look_again(struct io_way *way);

static void on_timer(struct io_op *timer)
{
	struct io_way *w = CONTAINER_OF(timer, struct io_way, timer);
	uint64_t now_ns = io_now_ns(w->io);
	struct io_way_sample now, sample;

	if (w->stopping || timer->result) {
		w->o.stopped(w->o.ctx);
		return;
	}
	take_counts(w, &now);
	sample = (struct io_way_sample){
		.took_ns = now_ns - w->counted_ns,
		.requests = now.requests - w->counts.requests,
		.waited_ns = now.waited_ns - w->counts.waited_ns,
		.entries = now.entries - w->counts.entries,
		.entries_ns = now.entries_ns - w->counts.entries_ns,
	};
	w->counts = now;
	w->counted_ns = now_ns;
	w->asks = io_way_step(&w->plan, now_ns, &sample) && say(w);
	w->asked_ns += w->asks ? sample.took_ns : 0;
	look_again(w);
}

static void look_again(struct io_way *w)
{
	io_prep_timer(&w->timer, io_now_ns(w->io) + (w->plan.has_work ? IO_WAY_BUSY_NS : IO_WAY_IDLE_NS), on_timer);
	io_submit(w->io, &w->timer);
}

/* ---- life ---- */

void io_way_start(struct io_way *w, struct io *io, const struct io_way_options *options)
{
	*w = (struct io_way){.io = io, .o = *options, .word = {.io = io, .fd = -1}, .waited_fd = -1};
	if (!w->o.path)
		return;
	if (io_open(io, WAITED_PATH, 0, 0, &w->waited_fd) < 0)
		w->waited_fd = -1;
	(void)io_word_open(&w->word, io, w->o.path); /* who wants to say it hears of it */
	take_counts(w, &w->counts);
	w->counted_ns = io_now_ns(io);
	look_again(w);
}

void io_way_stop(struct io_way *w)
{
	w->stopping = true;
	if (io_pending(&w->timer))
		io_cancel(w->io, &w->timer);
}

bool io_way_idle(const struct io_way *w)
{
	return !io_pending(&w->timer);
}

void io_way_fini(struct io_way *w)
{
	if (!w->io)
		return;
	io_word_close(&w->word);
	if (w->waited_fd >= 0)
		io_close(w->io, w->waited_fd);
}
