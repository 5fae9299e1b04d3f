/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/units.h"

enum { REDRAW_NS = 100000000 };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void progress_start(struct progress *p, const char *label, uint64_t total, bool quiet)
{
	*p = (struct progress){.label = label, .total = total, .start_ns = now_ns(), .on = !quiet && isatty(STDERR_FILENO)};
	p->drawn_ns = p->start_ns;
}

static void draw(struct progress *p, uint64_t now)
{
	char done[UNITS_TEXT_BYTES], total[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
	double seconds = (double)(now - p->start_ns) / 1e9;
	double per_s = seconds > 0 ? (double)p->done / seconds : 0;

	fprintf(stderr, "\r\033[K%s: %s", p->label, units_format_bytes(p->done, done));
	if (p->total)
		fprintf(stderr, " of %s (%u%%)", units_format_bytes(p->total, total),
		        (unsigned)(p->done >= p->total ? 100 : p->done * 100 / p->total));
	fprintf(stderr, ", %s/s", units_format_bytes((uint64_t)per_s, rate));
	if (p->total > p->done && per_s > 0)
		fprintf(stderr, ", %.0f s left", (double)(p->total - p->done) / per_s);
	fflush(stderr);
	p->drawn_ns = now;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->on)
		return;
	now = now_ns();
	if (now - p->drawn_ns >= REDRAW_NS)
		draw(p, now);
}

void progress_end(struct progress *p)
{
	if (p->on)
		fprintf(stderr, "\r\033[K");
	p->on = false;
}
