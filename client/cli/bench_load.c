/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/bench_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/cli/bench.h"
#include "common/base/check.h"
#include "common/base/mem.h"

enum { TOOK_FIRST = 4096, TICKS_PER_US = 16 };

static void record(struct load *l, uint64_t ns)
{
	uint64_t ticks = ns * TICKS_PER_US / 1000;

	if (l->took_count == l->took_cap) {
		l->took_cap = l->took_cap ? 2 * l->took_cap : TOOK_FIRST;
		l->took_us_x16 = mem_realloc(l->took_us_x16, l->took_cap * sizeof(*l->took_us_x16));
	}
	l->took_us_x16[l->took_count++] = ticks > UINT32_MAX ? UINT32_MAX : (uint32_t)ticks;
}

static bool may_begin(struct load *l)
{
	if (l->stops && bench_stopped() && !l->err.code)
		err_set(&l->err, ERR_CANCELED, "interrupted");
	return !l->err.code;
}

static void stop_if_idle(struct load *l)
{
	if (l->active == 0)
		io_stop(l->io);
}

static void due(struct io_op *op)
{
	struct load_slot *slot = CONTAINER_OF(op, struct load_slot, due);
	bool begun = may_begin(slot->load) && slot->load->start(slot);

	if (begun)
		return;
	slot->load->active--;
	stop_if_idle(slot->load);
}

/* The number is taken now: the slot that comes next is for the operation that is due next. */
static void begin_when_due(struct load_slot *slot)
{
	struct load *l = slot->load;

	slot->number = l->next++;
	l->active++;
	slot->started_ns = l->began_ns + slot->number * 1000000000 / l->per_s;
	io_prep_timer(&slot->due, slot->started_ns, due);
	io_submit(l->io, &slot->due);
}

/* The slot's next operation, if there is one. */
static void begin(struct load_slot *slot)
{
	struct load *l = slot->load;

	if (!may_begin(l) || l->next == l->count)
		return;
	if (l->per_s) {
		begin_when_due(slot);
		return;
	}
	slot->number = l->next;
	slot->started_ns = io_clock_ns(l->io);
	if (!l->start(slot))
		return;
	l->next++;
	l->active++;
}

void load_done(struct load_slot *slot, int code, const char *text, uint64_t units)
{
	struct load *l = slot->load;

	CHECK(l->active > 0);
	l->active--;
	if (code < 0 && !l->err.code)
		err_set(&l->err, code, "%s", text);
	if (code >= 0) {
		record(l, io_clock_ns(l->io) - slot->started_ns);
		l->units += units;
	}
	begin(slot);
	stop_if_idle(l);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void summarize(struct load *l, struct load_result *r)
{
	uint64_t n = l->took_count;
	uint32_t *t = l->took_us_x16;

	r->count = n;
	r->units = l->units;
	if (n == 0)
		return;
	qsort(t, n, sizeof(*t), compare);
	r->p50_ns = (uint64_t)t[n / 2] * 1000 / TICKS_PER_US;
	r->p99_ns = (uint64_t)t[n - 1 - n / 100] * 1000 / TICKS_PER_US;
	r->max_ns = (uint64_t)t[n - 1] * 1000 / TICKS_PER_US;
}

int load_run(struct load *l, void *slots, size_t slot_bytes, uint32_t slot_count, struct load_result *ret_result)
{
	double cpu = bench_self_cpu_s(), server_cpu = l->server_cpu_s ? l->server_cpu_s(l->server) : 0, start = bench_clock_s();
	struct load_result r = {0};
	int code = 0;

	l->err = (struct err){0};
	l->next = l->units = l->took_count = 0;
	l->active = 0;
	l->began_ns = io_clock_ns(l->io);
	for (uint32_t i = 0; i < slot_count; i++) {
		struct load_slot *slot = (struct load_slot *)(void *)((uint8_t *)slots + i * slot_bytes);

		slot->load = l;
		begin(slot);
	}
	if (l->active)
		code = io_run(l->io);
	if (code < 0 && !l->err.code)
		err_set(&l->err, code, "the event loop ended: %s", err_text(code));
	r.seconds = bench_clock_s() - start;
	r.client_cpu_s = bench_self_cpu_s() - cpu;
	r.server_cpu_s = l->server_cpu_s ? l->server_cpu_s(l->server) - server_cpu : 0;
	r.begun = l->next;
	summarize(l, &r);
	mem_free(l->took_us_x16);
	l->took_us_x16 = NULL;
	l->took_cap = 0;
	*ret_result = r;
	return l->err.code;
}

static double per_op_us(double cpu_s, const struct load_result *r)
{
	return r->units ? cpu_s * 1e6 / (double)r->units : 0;
}

static void json_named(struct json *j, const char *name, const char *what, double value)
{
	char key[64];

	snprintf(key, sizeof(key), "%s_%s", name, what);
	json_f64(j, key, value);
}

void load_json(struct json *j, const char *name, const struct load_result *r)
{
	json_named(j, name, "per_s", (double)r->units / r->seconds);
	json_named(j, name, "count", (double)r->units);
	json_named(j, name, "p50_ms", (double)r->p50_ns / 1e6);
	json_named(j, name, "p99_ms", (double)r->p99_ns / 1e6);
	json_named(j, name, "max_ms", (double)r->max_ns / 1e6);
	json_named(j, name, "server_cpu_us", per_op_us(r->server_cpu_s, r));
	json_named(j, name, "client_cpu_us", per_op_us(r->client_cpu_s, r));
}

void load_print(const char *name, const struct load_result *r)
{
	printf("%-8s %10.0f /s  p50 %7.3f ms  p99 %7.3f ms  max %8.3f ms  CPU us each: server %6.2f  client %6.2f\n", name,
	       (double)r->units / r->seconds, (double)r->p50_ns / 1e6, (double)r->p99_ns / 1e6, (double)r->max_ns / 1e6,
	       per_op_us(r->server_cpu_s, r), per_op_us(r->client_cpu_s, r));
}
