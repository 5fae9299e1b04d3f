/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_latency: one file at a time, each written and fsynced, then each read, from and into memory that was touched before: how long one
 * takes, and above all how long the slowest take.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/bench.h"
#include "common/base/mem.h"

struct latency {
	struct cli *cli;
	const char *dir;
	uint64_t size;
	uint8_t *data;
};

static void file_path(const struct latency *l, uint32_t i, char path[CR_PATH_MAX])
{
	snprintf(path, CR_PATH_MAX, "%s/file-%u", l->dir, i);
}

static int put_one(const struct latency *l, uint32_t i)
{
	char path[CR_PATH_MAX];
	struct cr_file *file;
	ssize_t r;

	file_path(l, i, path);
	r = cr_open(l->cli->store, path, CR_WRITE, 0644, &file);
	if (r < 0)
		return cli_fail_store(l->cli, (int)r);
	r = cr_pwrite(file, l->data, l->size, 0);
	if (r == (ssize_t)l->size)
		r = cr_fsync(file);
	if (r != 0) {
		cli_fail_store(l->cli, (int)r);
		cr_abort(file);
		return CLI_FAILED;
	}
	r = cr_close(file);
	return r < 0 ? cli_fail_store(l->cli, (int)r) : CLI_OK;
}

static int get_one(const struct latency *l, uint32_t i)
{
	char path[CR_PATH_MAX];
	struct cr_file *file;
	ssize_t n;

	file_path(l, i, path);
	if (cr_open(l->cli->store, path, CR_READ, 0, &file) < 0)
		return cli_fail(l->cli, "%s", cr_error());
	n = cr_pread(file, l->data, l->size, 0);
	if (n != (ssize_t)l->size)
		cli_fail(l->cli, "%s", n < 0 ? cr_error() : "a file of the benchmark is too short");
	cr_close(file);
	return n == (ssize_t)l->size ? CLI_OK : CLI_FAILED;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void summarize(double *seconds, uint32_t count, struct bench_latency *ret)
{
	qsort(seconds, count, sizeof(*seconds), compare);
	*ret = (struct bench_latency){
		.count = count,
		.p50_ms = seconds[count / 2] * 1e3,
		.p90_ms = seconds[(uint64_t)count * 90 / 100] * 1e3,
		.p99_ms = seconds[(uint64_t)count * 99 / 100] * 1e3,
		.max_ms = seconds[count - 1] * 1e3,
	};
}

/* Over and over for settle_s, then `count` times, which count. */
static int measure(const struct latency *l, int (*one)(const struct latency *l, uint32_t i), uint32_t count, double settle_s,
                   struct bench_latency *ret)
{
	double *seconds = mem_array(count, sizeof(*seconds)), start = bench_clock_s();
	int exit_code = CLI_OK;

	for (uint32_t i = 0; exit_code == CLI_OK && !bench_stopped() && bench_clock_s() - start < settle_s; i++)
		exit_code = one(l, i % count);
	for (uint32_t i = 0; exit_code == CLI_OK && !bench_stopped() && i < count; i++) {
		start = bench_clock_s();
		exit_code = one(l, i);
		seconds[i] = bench_clock_s() - start;
	}
	if (bench_stopped() && exit_code == CLI_OK)
		exit_code = cli_fail(l->cli, "interrupted");
	if (exit_code == CLI_OK)
		summarize(seconds, count, ret);
	mem_free(seconds);
	return exit_code;
}

static int clean_up(const struct latency *l, uint32_t count)
{
	char path[CR_PATH_MAX];

	for (uint32_t i = 0; i < count; i++) {
		file_path(l, i, path);
		if (cr_unlink(l->cli->store, path) < 0)
			return cli_fail(l->cli, "%s", cr_error());
	}
	return bench_leave(l->cli, l->dir);
}

/* Of one that has failed: its files are numbered from 0 on without a gap. That it failed was said. */
static void leave_nothing(const struct latency *l)
{
	char path[CR_PATH_MAX];
	uint32_t i = 0;

	if (l->cli->away)
		return;
	do
		file_path(l, i++, path);
	while (cr_unlink(l->cli->store, path) == 0);
	cr_rmdir(l->cli->store, l->dir);
}

int bench_latency(struct cli *cli, const char *dir, uint64_t size, uint32_t count, double settle_s, bool keep,
                  struct bench_latency *ret_put, struct bench_latency *ret_get)
{
	struct latency l = {.cli = cli, .dir = dir, .size = size, .data = bench_random_memory(size)};
	int r = cr_mkdir_parents(cli->store, dir, cli_dir_mode()), exit_code = r < 0 ? cli_fail_store(cli, r) : CLI_OK;

	if (exit_code == CLI_OK)
		exit_code = measure(&l, put_one, count, settle_s, ret_put);
	if (exit_code == CLI_OK)
		exit_code = measure(&l, get_one, count, settle_s, ret_get);
	if (exit_code != CLI_OK)
		leave_nothing(&l);
	else if (!keep)
		exit_code = clean_up(&l, count);
	mem_free(l.data);
	return exit_code;
}
