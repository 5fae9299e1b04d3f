/* SPDX-License-Identifier: Apache-2.0 */
/* make_way: the samples of plan/way.h, and the word to the chunk servers of this host. */
#include "metad/core.h"

#include <stdlib.h>

/* Where the system keeps how long the thread of the loop was ready to run and did not: "ran waited slices", in ns. */
#define WAITED_PATH "/proc/thread-self/schedstat"

static uint64_t waited_ns(const struct make_way *w)
{
	char text[96], *end;
	int64_t n = w->waited_fd < 0 ? -1 : io_pread(w->word.io, w->waited_fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return w->counts.waited_ns;
	text[n] = 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10);
}

static void take_counts(const struct metad *md, struct plan_way_sample *ret_counts)
{
	struct rpc_stats rpc;

	rpc_server_get_stats(md->server, &rpc);
	*ret_counts = (struct plan_way_sample){
		.requests = rpc.requests,
		.waited_ns = waited_ns(&md->make_way),
		.entries = md->batcher.entries,
		.entries_ns = md->batcher.seconds.sum_ns,
	};
}

/* False: nobody hears it. Said once in the log, and tried again as long as it is to be said. */
static bool say(struct metad *md)
{
	int rc = io_word_say(&md->make_way.word), before = md->make_way.said_code;

	md->make_way.said_code = rc;
	if (rc < 0 && rc != before)
		log_line(md->options.log, LOG_WARN, "no-way", "path=%s error=%s text=\"bulk writes of this host do not make way for the metadata\"",
			md->options.way_path, err_name(rc));
	return rc == 0;
}

static void look_again(struct metad *md);

static void on_timer(struct io_op *timer)
{
	struct metad *md = CONTAINER_OF(timer, struct metad, make_way.timer);
	struct make_way *w = &md->make_way;
	uint64_t now_ns = io_now_ns(md->io);
	struct plan_way_sample now, sample;

	if (md->stopping || timer->result) {
		metad__maybe_stopped(md);
		return;
	}
	take_counts(md, &now);
	sample = (struct plan_way_sample){
		.took_ns = now_ns - w->counted_ns,
		.requests = now.requests - w->counts.requests,
		.waited_ns = now.waited_ns - w->counts.waited_ns,
		.entries = now.entries - w->counts.entries,
		.entries_ns = now.entries_ns - w->counts.entries_ns,
	};
	w->counts = now;
	w->counted_ns = now_ns;
	w->asks = plan_way_step(&w->way, now_ns, &sample) && say(md);
	w->asked_ns += w->asks ? sample.took_ns : 0;
	look_again(md);
}

static void look_again(struct metad *md)
{
	struct make_way *w = &md->make_way;

	io_prep_timer(&w->timer, io_now_ns(md->io) + (w->way.has_work ? PLAN_WAY_BUSY_NS : PLAN_WAY_IDLE_NS), on_timer);
	io_submit(md->io, &w->timer);
}

void metad__make_way_start(struct metad *md)
{
	struct make_way *w = &md->make_way;

	w->word = (struct io_word){.io = md->io, .fd = -1};
	w->waited_fd = -1;
	if (!md->options.way_path)
		return;
	if (io_open(md->io, WAITED_PATH, 0, 0, &w->waited_fd) < 0)
		w->waited_fd = -1;
	(void)io_word_open(&w->word, md->io, md->options.way_path); /* who wants to say it hears of it */
	take_counts(md, &w->counts);
	w->counted_ns = io_now_ns(md->io);
	look_again(md);
}

void metad__make_way_stop(struct metad *md)
{
	if (io_pending(&md->make_way.timer))
		io_cancel(md->io, &md->make_way.timer);
}

bool metad__make_way_idle(const struct metad *md)
{
	return !io_pending(&md->make_way.timer);
}

void metad__make_way_fini(struct metad *md)
{
	io_word_close(&md->make_way.word);
	if (md->make_way.waited_fd >= 0)
		io_close(md->io, md->make_way.waited_fd);
}
