/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_floor: what the disks and one core allow if there were no network and no daemons. Stripe by stripe, STRIPES of them in flight:
 * encode and checksum k data cells into m parity cells, write all k+m with O_DIRECT into files that were fallocated and synced before
 * the clock starts; at the end one fdatasync a file; then once more, in place. Reading checks every unit; a rebuild reads the last k files, decodes the first one and
 * writes it anew, synced. STRIPES is where more of them make nothing faster: with four the store itself read faster than this floor, by a fifth.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/bench.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/io/io.h"

enum { CELL = LIMIT_CELL_BYTES, UNITS = CELL / LIMIT_UNIT_BYTES, STRIPES = 16, SOURCE_BYTES = 256 << 20 };
enum phase { PHASE_PUT, PHASE_GET, PHASE_REBUILD };

struct stripe;

struct cell_op {
	struct io_op io;
	struct iovec iov;
	struct stripe *stripe;
};

struct stripe {
	struct floor *floor;
	uint64_t number;
	uint32_t pending;
	bool writing;                         /* rebuild: reads are done */
	uint8_t *buf;                         /* k+m+1 cells */
	struct cell_op ops[LIMIT_WIDTH];
};

struct sync_op {
	struct io_op io;
	struct floor *floor;
};

struct floor {
	struct io *io;
	const char *dir;
	const struct ec_policy *policy;
	enum phase phase;
	uint64_t stripe_count, next, finished;
	uint8_t *source;
	uint32_t *crcs[LIMIT_WIDTH];          /* of every unit of every file, as written */
	int fds[LIMIT_WIDTH + 1];             /* the last one: where the rebuilt file goes */
	struct stripe stripes[STRIPES];
	struct sync_op syncs[LIMIT_WIDTH + 1];
	uint32_t syncing;
	int code;
};

static uint32_t width(const struct floor *f)
{
	return (uint32_t)f->policy->k + f->policy->m;
}

static uint8_t *cell(struct stripe *s, uint32_t i)
{
	return s->buf + (size_t)i * CELL;
}

static void cell_done(struct io_op *op);

static void start_cell(struct stripe *s, uint32_t op, int fd, void *data, bool write)
{
	struct cell_op *c = &s->ops[op];

	c->stripe = s;
	c->iov = (struct iovec){data, CELL};
	if (write)
		io_prep_write(&c->io, fd, &c->iov, 1, s->number * CELL, 0, cell_done);
	else
		io_prep_read(&c->io, fd, &c->iov, 1, s->number * CELL, cell_done);
	s->pending++;
	io_submit(s->floor->io, &c->io);
}

static void stripe_put(struct stripe *s)
{
	struct floor *f = s->floor;
	const uint8_t *data[LIMIT_K];
	uint8_t *parity[LIMIT_M];
	uint32_t *crcs[LIMIT_WIDTH];
	size_t lens[LIMIT_K];
	uint32_t k = f->policy->k;

	for (uint32_t i = 0; i < k; i++) {
		data[i] = f->source + (s->number * k + i) * CELL % SOURCE_BYTES;
		lens[i] = CELL;
	}
	for (uint32_t j = 0; j < f->policy->m; j++)
		parity[j] = cell(s, k + j);
	for (uint32_t i = 0; i < width(f); i++)
		crcs[i] = f->crcs[i] + s->number * UNITS;
	ec_encode(f->policy, CELL, data, lens, parity, crcs);
	for (uint32_t i = 0; i < width(f); i++)
		start_cell(s, i, f->fds[i], i < k ? (void *)(uintptr_t)data[i] : parity[i - k], true);
}

static void stripe_start(struct stripe *s)
{
	struct floor *f = s->floor;
	uint32_t first = f->phase == PHASE_REBUILD ? f->policy->m : 0; /* the last k files: parity too */

	if (f->next == f->stripe_count || f->code)
		return;
	s->number = f->next++;
	s->writing = false;
	if (f->phase == PHASE_PUT) {
		stripe_put(s);
		return;
	}
	for (uint32_t i = 0; i < f->policy->k; i++)
		start_cell(s, i, f->fds[first + i], cell(s, first + i), false);
}

static int check_cell(const struct floor *f, struct stripe *s, uint32_t index)
{
	uint32_t crcs[UNITS];

	ec_unit_crcs(cell(s, index), CELL, crcs);
	return memcmp(crcs, f->crcs[index] + s->number * UNITS, sizeof(crcs)) ? ERR_CORRUPT : ERR_OK;
}

/* All cells of the phase's reads are here. True: writes were started. */
static bool stripe_read(struct stripe *s)
{
	struct floor *f = s->floor;
	uint32_t first = f->phase == PHASE_REBUILD ? f->policy->m : 0, k = f->policy->k;
	const uint8_t *have[LIMIT_K];
	uint8_t have_idx[LIMIT_K], want = 0, *out = cell(s, 0);
	size_t lens[LIMIT_K];
	int r = ERR_OK;

	for (uint32_t i = 0; i < k && r == ERR_OK; i++) {
		have[i] = cell(s, first + i);
		have_idx[i] = (uint8_t)(first + i);
		lens[i] = CELL;
		r = check_cell(f, s, first + i);
	}
	if (r == ERR_OK && f->phase == PHASE_REBUILD) {
		r = ec_decode(f->policy, CELL, have_idx, have, lens, &want, 1, &out);
		if (r == ERR_OK)
			r = check_cell(f, s, 0);
		if (r == ERR_OK) {
			s->writing = true;
			start_cell(s, 0, f->fds[width(f)], out, true);
			return true;
		}
	}
	if (r < 0)
		f->code = r;
	return false;
}

static void start_syncs(struct floor *f);

static void cell_done(struct io_op *op)
{
	struct stripe *s = CONTAINER_OF(op, struct cell_op, io)->stripe;
	struct floor *f = s->floor;

	if (op->result != CELL && f->code == 0)
		f->code = op->result < 0 ? (int)op->result : ERR_IO;
	if (--s->pending)
		return;
	if (f->code == 0 && f->phase != PHASE_PUT && !s->writing && stripe_read(s))
		return;
	f->finished++;
	stripe_start(s);
	for (uint32_t i = 0; i < STRIPES; i++)
		if (f->stripes[i].pending)
			return;
	start_syncs(f);
}

static void sync_done(struct io_op *op)
{
	struct floor *f = CONTAINER_OF(op, struct sync_op, io)->floor;

	if (op->result < 0 && f->code == 0)
		f->code = (int)op->result;
	if (--f->syncing == 0)
		io_stop(f->io);
}

static void start_syncs(struct floor *f)
{
	uint32_t from = f->phase == PHASE_REBUILD ? width(f) : 0, to = f->phase == PHASE_PUT ? width(f) : width(f) + 1;

	if (f->phase == PHASE_GET || f->code) {
		io_stop(f->io);
		return;
	}
	f->syncing = to - from;
	for (uint32_t i = from; i < to; i++) {
		f->syncs[i].floor = f;
		io_prep_sync(&f->syncs[i].io, f->fds[i], sync_done);
		io_submit(f->io, &f->syncs[i].io);
	}
}

static int run_phase(struct floor *f, enum phase phase, uint64_t bytes, struct bench_result *ret_result)
{
	double cpu = bench_self_cpu_s(), start = bench_clock_s();
	int r;

	f->phase = phase;
	f->next = f->finished = 0;
	for (uint32_t i = 0; i < STRIPES; i++)
		stripe_start(&f->stripes[i]);
	r = io_run(f->io);
	if (r == 0)
		r = f->code;
	*ret_result = (struct bench_result){bytes, bench_clock_s() - start, bench_self_cpu_s() - cpu};
	return r;
}

static char *file_path(const struct floor *f, uint32_t i)
{
	return mem_printf("%s/craton-bench-floor-%d-%u", f->dir, (int)getpid(), i);
}

static int open_files(struct floor *f, struct err *err)
{
	uint64_t bytes = f->stripe_count * CELL;

	for (uint32_t i = 0; i <= width(f); i++) {
		char *path = file_path(f, i);
		uint32_t flags = IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE | IO_OPEN_DIRECT;
		int r = io_open(f->io, path, flags, 0600, &f->fds[i]);

		if (r == ERR_INVAL)
			err_set(err, r, "the file system of %s has no O_DIRECT; the floor is only defined with it", f->dir);
		else if (r < 0 || (r = io_allocate(f->io, f->fds[i], 0, bytes)) < 0 || (r = io_fdatasync(f->io, f->fds[i])) < 0)
			err_set(err, r, "cannot make %s with %llu bytes: %s", path, (unsigned long long)bytes, err_text(r));
		mem_free(path);
		if (r < 0)
			return r;
	}
	return ERR_OK;
}

static void close_files(struct floor *f)
{
	for (uint32_t i = 0; i <= width(f); i++) {
		char *path = file_path(f, i);

		if (f->fds[i] >= 0) {
			io_close(f->io, f->fds[i]);
			io_unlink(f->io, path);
		}
		mem_free(path);
	}
}

static int run_phases(struct floor *f, uint64_t bytes, struct bench_floor *ret)
{
	int r = run_phase(f, PHASE_PUT, bytes, &ret->put);

	if (r == ERR_OK)
		r = run_phase(f, PHASE_PUT, bytes, &ret->rewrite);
	if (r == ERR_OK)
		r = run_phase(f, PHASE_GET, bytes, &ret->get);
	if (r == ERR_OK)
		r = run_phase(f, PHASE_REBUILD, bytes / f->policy->k, &ret->rebuild);
	return r;
}

int bench_floor(const struct cli *cli, const char *dir, const struct ec_policy *policy, uint64_t bytes, struct bench_floor *ret_floor)
{
	struct floor *f = MEM_NEW(struct floor);
	size_t stripe_bytes;
	struct err err = {0};
	int r;

	f->dir = dir;
	f->policy = policy;
	f->stripe_count = (bytes + (uint64_t)policy->k * CELL - 1) / ((uint64_t)policy->k * CELL);
	bytes = f->stripe_count * policy->k * CELL;
	stripe_bytes = (size_t)(width(f) + 1) * CELL;
	for (uint32_t i = 0; i <= width(f); i++)
		f->fds[i] = -1;
	r = io_new(IO_BACKEND_AUTO, &f->io, &err);
	if (r < 0) {
		mem_free(f);
		return cli_fail(cli, "%s", err.text);
	}
	r = open_files(f, &err);
	f->source = r ? NULL : bench_random_memory(SOURCE_BYTES);
	for (uint32_t i = 0; i < width(f); i++) {
		f->crcs[i] = mem_array(f->stripe_count * UNITS, sizeof(uint32_t));
		memset(f->crcs[i], 0xff, f->stripe_count * UNITS * sizeof(uint32_t)); /* touched before the clock starts */
	}
	for (uint32_t i = 0; i < STRIPES; i++) {
		f->stripes[i].floor = f;
		f->stripes[i].buf = io_buffer_alloc(f->io, stripe_bytes);
	}
	if (r == ERR_OK)
		r = run_phases(f, bytes, ret_floor);
	if (r < 0 && !err.code)
		err_set(&err, r, "the floor failed in %s: %s", dir, err_text(r));
	close_files(f);
	for (uint32_t i = 0; i < STRIPES; i++)
		io_buffer_free(f->io, f->stripes[i].buf, stripe_bytes);
	for (uint32_t i = 0; i < width(f); i++)
		mem_free(f->crcs[i]);
	mem_free(f->source);
	io_free(f->io);
	mem_free(f);
	return r < 0 ? cli_fail(cli, "%s", err.text) : CLI_OK;
}
