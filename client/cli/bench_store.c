/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_store: bytes through libcraton as an application would move them: each stream is one file, written or read in pieces by the
 * asynchronous calls, IN_FLIGHT of them at a time, from and into memory that was touched before the clock starts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/bench.h"
#include "client/cli/process.h"
#include "common/base/mem.h"
#include "common/base/units.h"

enum { PIECE = 16 << 20, SOURCE_BYTES = 256 << 20, IN_FLIGHT = 8, SMALL_PIECE = 4 << 20 };
enum { RECLAIM_POLL_MS = 250, RECLAIM_MARGIN_MS = 10 * 60 * 1000 };

struct bench;

struct stream {
	struct bench *bench;
	struct cr_file *file;
	uint64_t size, next;
	uint32_t in_flight;
	struct cr_op ops[IN_FLIGHT], close;   /* close: writing only */
	uint8_t *bufs[IN_FLIGHT];             /* get only */
	bool done;
	bool published;                       /* writing: the file is there, under its name */
};

struct bench {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint8_t *source;                      /* put only */
	uint32_t piece, running;
	bool writing;
	int64_t failure;
	char error[256];
};

static void piece_done(struct cr_op *op);

/* With the lock held. */
static void start_pieces(struct stream *s)
{
	struct bench *b = s->bench;

	for (uint32_t i = 0; i < IN_FLIGHT && s->next < s->size && !b->failure; i++) {
		uint64_t at = s->next;
		size_t len = s->size - at < b->piece ? (size_t)(s->size - at) : b->piece;

		if (s->ops[i].user)
			continue;
		s->ops[i].user = s;
		s->ops[i].done = piece_done;
		s->next += len;
		s->in_flight++;
		if (b->writing)
			cr_pwrite_async(s->file, b->source + at % SOURCE_BYTES, len, at, &s->ops[i]);
		else
			cr_pread_async(s->file, s->bufs[i], len, at, &s->ops[i]);
	}
	/* Who waits for the last pieces alone may wait for ever: a block that is not full is committed when its file is closed. */
	if (b->writing && s->next == s->size && s->file && !b->failure) {
		s->close.user = s;
		s->close.done = piece_done;
		s->in_flight++;
		cr_close_async(s->file, &s->close);
		s->file = NULL;
	}
}

static void piece_done(struct cr_op *op)
{
	struct stream *s = op->user;
	struct bench *b = s->bench;

	pthread_mutex_lock(&b->lock);
	op->user = NULL;
	s->in_flight--;
	s->published |= op == &s->close && op->result >= 0;
	if (op->result < 0 && !b->failure) {
		b->failure = op->result;
		snprintf(b->error, sizeof(b->error), "%s", op->error);
	}
	if (bench_stopped() && !b->failure) {
		b->failure = -EINTR;
		snprintf(b->error, sizeof(b->error), "interrupted");
	}
	start_pieces(s);
	if (s->in_flight == 0 && !s->done) {
		s->done = true;
		b->running--;
		pthread_cond_signal(&b->cond);
	}
	pthread_mutex_unlock(&b->lock);
}

static void stream_path(char *path, size_t bytes, const char *dir, uint32_t i)
{
	snprintf(path, bytes, "%s/bench-%u", dir, i);
}

static int open_streams(struct cli *cli, struct bench *b, struct stream *streams, const char *dir, uint64_t bytes, uint32_t count)
{
	uint64_t each = bytes / count / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES;
	char path[CR_PATH_MAX];

	int r = b->writing ? cr_mkdir_parents(cli->store, dir, cli_dir_mode()) : 0;

	if (r < 0)
		return cli_fail_store(cli, r);
	for (uint32_t i = 0; i < count; i++) {
		struct stream *s = &streams[i];
		struct cr_stat st;

		stream_path(path, sizeof(path), dir, i);
		s->bench = b;
		s->size = i + 1 < count ? each : bytes - each * (count - 1);
		r = cr_open(cli->store, path, b->writing ? CR_WRITE | CR_ATOMIC : CR_READ, 0644, &s->file);
		if (r < 0)
			return cli_fail_store(cli, r);
		if (b->writing)
			continue;
		if (cr_fstat(s->file, &st) < 0 || st.size != s->size)
			return cli_fail(cli, "%s does not have %llu bytes; write it with: craton bench put --keep with the same --size and --streams",
			                path, (unsigned long long)s->size);
		for (int n = 0; n < IN_FLIGHT; n++) {
			s->bufs[n] = mem_aligned(4096, b->piece);
			memset(s->bufs[n], 1, b->piece);
		}
	}
	return CLI_OK;
}

/* What no policy could store is not begun: it would fill the disks first. */
static int check_room(struct cli *cli, uint64_t bytes)
{
	char wanted[UNITS_TEXT_BYTES], free_text[UNITS_TEXT_BYTES];
	struct cr_df df;

	if (cr_df(cli->store, &df) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (bytes <= df.free_bytes)
		return CLI_OK;
	return cli_fail(cli, "%s do not fit: all disks together have %s left; give a smaller --size, see `craton df`",
	                units_format_bytes(bytes, wanted), units_format_bytes(df.free_bytes, free_text));
}

static int close_streams(struct cli *cli, struct bench *b, struct stream *streams, uint32_t count, bool failed)
{
	int exit_code = CLI_OK;

	for (uint32_t i = 0; i < count; i++) {
		if (!streams[i].file)
			continue;
		if (failed && b->writing)
			cr_abort(streams[i].file);
		else if (cr_close(streams[i].file) < 0 && exit_code == CLI_OK)
			exit_code = cli_fail(cli, "%s", cr_error());
	}
	return exit_code;
}

/* Of a put that has failed: what it wrote, and its directory if nothing else is there. That it failed was said. */
static void leave_nothing(struct cli *cli, const struct stream *streams, const char *dir, uint32_t count)
{
	char path[CR_PATH_MAX];

	for (uint32_t i = 0; i < count && !cli->away; i++) {
		stream_path(path, sizeof(path), dir, i);
		if (streams[i].published)
			cr_unlink(cli->store, path);
	}
	if (!cli->away)
		cr_rmdir(cli->store, dir);
}

static int run(struct cli *cli, const char *dir, uint64_t bytes, uint32_t count, bool writing, struct bench_result *ret_result)
{
	struct bench b = {.writing = writing, .piece = count > 2 ? SMALL_PIECE : PIECE, .running = count};
	struct stream *streams = mem_array(count, sizeof(*streams));
	double start, cpu;
	int exit_code, closed;
	bool begun;

	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.cond, NULL);
	exit_code = writing ? check_room(cli, bytes) : CLI_OK;
	begun = exit_code == CLI_OK;
	if (begun)
		exit_code = open_streams(cli, &b, streams, dir, bytes, count);
	if (writing && exit_code == CLI_OK) /* takes its time */
		b.source = bench_random_memory(SOURCE_BYTES + PIECE);
	cpu = bench_self_cpu_s();
	start = bench_clock_s();
	if (exit_code == CLI_OK) {
		pthread_mutex_lock(&b.lock);
		for (uint32_t i = 0; i < count; i++) {
			start_pieces(&streams[i]);
			if (!streams[i].in_flight && !streams[i].done) { /* nothing to read */
				streams[i].done = true;
				b.running--;
			}
		}
		while (b.running)
			pthread_cond_wait(&b.cond, &b.lock);
		pthread_mutex_unlock(&b.lock);
		if (b.failure) {
			cli->away = cli_is_away((int)b.failure);
			exit_code = cli_fail(cli, "%s", b.error);
		}
	}
	closed = close_streams(cli, &b, streams, count, exit_code != CLI_OK);
	if (writing && begun && (exit_code != CLI_OK || closed != CLI_OK))
		leave_nothing(cli, streams, dir, count);
	*ret_result = (struct bench_result){bytes, bench_clock_s() - start, bench_self_cpu_s() - cpu};
	for (uint32_t i = 0; i < count; i++) /* not part of it: this memory is the application's, not the store's */
		for (int n = 0; n < IN_FLIGHT; n++)
			mem_free(streams[i].bufs[n]);
	pthread_cond_destroy(&b.cond);
	pthread_mutex_destroy(&b.lock);
	mem_free(b.source);
	mem_free(streams);
	return exit_code == CLI_OK ? closed : exit_code;
}

int bench_put(struct cli *cli, const char *dir, uint64_t bytes, uint32_t streams, struct bench_result *ret_result)
{
	return run(cli, dir, bytes, streams, true, ret_result);
}

int bench_get(struct cli *cli, const char *dir, uint64_t bytes, uint32_t streams, struct bench_result *ret_result)
{
	return run(cli, dir, bytes, streams, false, ret_result);
}

int bench_remove(struct cli *cli, const char *dir, uint32_t streams)
{
	char path[CR_PATH_MAX];

	for (uint32_t i = 0; i < streams; i++) {
		stream_path(path, sizeof(path), dir, i);
		if (cr_unlink(cli->store, path) < 0)
			return cli_fail(cli, "%s", cr_error());
	}
	return bench_leave(cli, dir);
}

int bench_leave(struct cli *cli, const char *dir)
{
	int r = cr_rmdir(cli->store, dir);

	return r < 0 && r != -ENOTEMPTY ? cli_fail(cli, "%s", cr_error()) : CLI_OK;
}

int bench_reclaim(struct cli *cli, const char *dir, uint32_t streams)
{
	struct cr_gc gc;
	uint64_t deadline = 0;
	int exit_code = bench_remove(cli, dir, streams);

	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_gc(cli->store, 1, &gc) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (!cli->json)
		printf("waiting for the space of the first write, %llu s or a little more\n", (unsigned long long)(gc.grace_ms / 1000));
	deadline = process_clock_ms() + gc.grace_ms + RECLAIM_MARGIN_MS;
	while (gc.pending_bytes || gc.files_waiting || gc.copies_waiting) {
		if (process_clock_ms() > deadline)
			return cli_fail(cli, "the space did not come back: %llu chunks still wait; look at craton gc status and craton status",
			                (unsigned long long)gc.copies_waiting);
		process_sleep_ms(RECLAIM_POLL_MS);
		if (bench_stopped())
			return cli_fail(cli, "interrupted");
		if (cr_gc(cli->store, 0, &gc) < 0)
			return cli_fail(cli, "%s", cr_error());
	}
	return CLI_OK;
}
