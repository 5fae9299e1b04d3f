/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk servers are killed, or stop answering, in the middle of a put: it succeeds all the same, soon, and what it wrote is read back. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "client/craton.h"
#include "tests/lib/store.h"

#define FAIL(...) \
	(fprintf(stderr, "test_faults:%d: ", __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define OK(expr) ((expr) < 0 ? FAIL("%s: %s", #expr, cr_error()) : (void)0)

enum { FILE_BYTES = 96 << 20, PIECE = 1 << 20 };
static uint8_t *content, *got;
static struct store s;
static struct cr_store *store;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void strike(int a, int b, int signal)
{
	if (signal == SIGSTOP) {
		kill(s.chunkd[a], SIGSTOP);
		return;
	}
	store_kill_chunkd(&s, a, signal);
	store_kill_chunkd(&s, b, signal);
}

struct lost {
	uint32_t chunks, crowded; /* of blocks that cannot be read; those of blocks that were not spread as they should be */
};

static int count_stored(const struct cr_chunk_info *c, void *user)
{
	struct lost *lost = user;

	/* margin counts servers that are down as lost; the ones struck hold at most m chunks of a block, unless a third chunk went to one of them. */
	if (c->margin < 0) {
		lost->chunks++;
		lost->crowded += c->crowded;
		fprintf(stderr, "block %llu at %llu chunk %u on %s: state %u, crowded %u\n",
			(unsigned long long)c->block, (unsigned long long)c->file_offset, c->index, c->server_name,
			c->state, c->crowded);
	}
	return 0;
}

/* False: a chunk of a server that is alive was given up for lateness on this busy machine, and went to one that was struck. */
static bool put(const char *path, int a, int b, int signal, uint64_t when, double limit_s)
{
	double start = now_s();
	struct cr_file *f;
	struct lost lost = {0};

	OK(cr_open(store, path, CR_WRITE | CR_ATOMIC, 0644, &f));
	for (uint64_t at = 0; at < FILE_BYTES; at += PIECE) {
		if (at == when)
			strike(a, b, signal);
		if (cr_pwrite(f, content + at, PIECE, at) != PIECE)
			FAIL("pwrite %s: %s", path, cr_error());
	}
	OK(cr_close(f));
	if (now_s() - start > limit_s)
		FAIL("put %s took %.1f s", path, now_s() - start);
	if (signal == SIGKILL)
		OK(cr_inspect(store, path, 0, count_stored, &lost));
	if (lost.chunks > lost.crowded)
		FAIL("%s: %u chunks of blocks that are lost", path, lost.chunks - lost.crowded);
	return !lost.chunks;
}

static void get(const char *path, double limit_s)
{
	double start = now_s();
	struct cr_file *f;

	OK(cr_open(store, path, CR_READ, 0, &f));
	memset(got, 0, FILE_BYTES);
	for (uint64_t at = 0; at < FILE_BYTES; at += 3 * PIECE)
		if (cr_pread(f, got + at, 3 * PIECE, at) != 3 * PIECE)
			FAIL("pread %s at %llu: %s", path, (unsigned long long)at, cr_error());
	OK(cr_close(f));
	if (memcmp(got, content, FILE_BYTES) != 0)
		FAIL("%s: other bytes", path);
	if (now_s() - start > limit_s)
		FAIL("get %s took %.1f s", path, now_s() - start);
}

int main(void)
{
	struct cr_options options = {0};
	char path[32];

	content = malloc(FILE_BYTES);
	got = malloc(FILE_BYTES);
	for (uint64_t i = 0; i < FILE_BYTES; i += 8) {
		uint64_t x = (i + 8) * 0x9e3779b97f4a7c15u;

		x ^= x >> 29;
		memcpy(content + i, &x, 8);
	}
	store_up(&s, 6, NULL);
	options.config = s.conf;
	OK(cr_connect(&options, &store));
	for (int i = 0, again = 0; i < 3; i++) {
		int a = 2 * i, b = (2 * i + 3) % 6;
		bool spread;

		snprintf(path, sizeof(path), "/killed-%d", i);
		spread = put(path, a, b, SIGKILL, (uint64_t)(i * 21 + 1) << 20, 25);
		if (spread)
			get(path, 25);
		store_start_chunkd(&s, a);
		store_start_chunkd(&s, b);
		store_wait_up(&s, 6);
		get(path, 25);
		if (!spread) {
			if (++again > 3)
				FAIL("chunks of servers that are alive were given up in %d puts", again);
			i--;
			continue;
		}
		printf("ok: put while chunkd-%d and chunkd-%d were killed\n", a + 1, b + 1);
		fflush(stdout);
	}
	/* The deadline of a call is 30 s: nobody waits for that. */
	(void)put("/stopped", 3, -1, SIGSTOP, 30 << 20, 25);
	get("/stopped", 25);
	get("/killed-0", 25);
	kill(s.chunkd[3], SIGCONT);
	get("/stopped", 25);
	printf("ok: put and get while chunkd-4 did not answer\n");
	cr_disconnect(store);
	store_down(&s);
	free(content);
	free(got);
	return 0;
}
