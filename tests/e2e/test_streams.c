/* SPDX-License-Identifier: Apache-2.0 */
/* Many files at once within one budget of memory, under every policy, with files that are left half written; a store that fills up. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/craton.h"
#include "tests/lib/store.h"

#define FAIL(...) \
	(fprintf(stderr, "test_streams:%d: ", __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define OK(expr) ((expr) < 0 ? FAIL("%s: %s", #expr, cr_error()) : (void)0)

static const char *const policies[] = {"rs-4-2", "rs-6-3", "rs-8-3", "rs-8-4", "rs-10-4", "rs-9-6", "rs-1-2", "rs-4-2"};
enum { STREAMS = 8, FILE_BYTES = (40 << 20) + 12345, IDLE = 40 };
static struct cr_store *store;

static uint64_t word(int stream, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u + (uint64_t)stream * 0xbf58476d1ce4e5b9u;

	return x ^ x >> 29;
}

static void fill(uint8_t *buf, int stream, uint64_t offset, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(word(stream, (offset + i) / 8) >> (offset + i) % 8 * 8);
}

static void *stream_thread(void *arg)
{
	int n = (int)(intptr_t)arg;
	char dir[32], path[64];
	size_t piece = 300000 + (size_t)n * 123457;
	uint8_t *buf = malloc(piece), *expect = malloc(piece);
	struct cr_file *f;

	snprintf(dir, sizeof(dir), "/s%d", n);
	snprintf(path, sizeof(path), "%s/file", dir);
	OK(cr_mkdir(store, dir, 0755));
	OK(cr_policy_set(store, dir, policies[n]));
	OK(cr_open(store, path, CR_WRITE | (n % 2 ? CR_ATOMIC : 0), 0644, &f));
	for (uint64_t at = 0; at < FILE_BYTES; at += piece) {
		size_t len = FILE_BYTES - at < piece ? FILE_BYTES - at : piece;

		fill(buf, n, at, len);
		if (cr_pwrite(f, buf, len, at) != (ssize_t)len)
			FAIL("pwrite %s: %s", path, cr_error());
		if (at / piece % 40 == 39)
			OK(cr_fsync(f));
	}
	OK(cr_close(f));
	OK(cr_open(store, path, CR_READ, 0, &f));
	for (uint64_t at = 0; at < FILE_BYTES; at += piece) {
		size_t len = FILE_BYTES - at < piece ? FILE_BYTES - at : piece;

		if (cr_pread(f, buf, piece, at) != (ssize_t)len)
			FAIL("pread %s at %llu: %s", path, (unsigned long long)at, cr_error());
		fill(expect, n, at, len);
		if (memcmp(buf, expect, len) != 0)
			FAIL("%s at %llu: other bytes", path, (unsigned long long)at);
	}
	OK(cr_close(f));
	free(buf);
	free(expect);
	return NULL;
}

static void run_streams(void)
{
	pthread_t threads[STREAMS];

	for (int i = 0; i < STREAMS; i++)
		if (pthread_create(&threads[i], NULL, stream_thread, (void *)(intptr_t)i))
			FAIL("pthread_create");
	for (int i = 0; i < STREAMS; i++)
		pthread_join(threads[i], NULL);
}

static long peak_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Writes until there is no room: that write fails, cleanly, and what was there stays readable. */
static void fill_up(void)
{
	enum { PIECE = 8 << 20 };
	uint8_t *buf = malloc(PIECE);
	struct cr_file *f;
	ssize_t n = 0;
	uint64_t at = 0;

	fill(buf, 99, 0, PIECE);
	OK(cr_open(store, "/big", CR_WRITE, 0644, &f));
	while (at < (8ull << 30) && (n = cr_pwrite(f, buf, PIECE, at)) == PIECE)
		at += PIECE;
	if (n >= 0)
		n = cr_fsync(f);
	if (n != -ENOSPC)
		FAIL("a full store: %zd: %s", n, cr_error());
	printf("ok: %s\n", cr_error());
	if (cr_pwrite(f, buf, PIECE, at) != -ENOSPC || cr_close(f) != -ENOSPC)
		FAIL("the error does not stay");
	/* Names work as before, and a file that fits. */
	OK(cr_mkdir(store, "/still", 0755));
	free(buf);
}

int main(void)
{
	struct cr_options options = {0};
	struct cr_file *idle[IDLE];
	struct store s;
	uint8_t byte;

	store_up(&s, 6, "512M");
	options.config = s.conf;
	OK(cr_connect(&options, &store));
	/* Files that hold memory and wait for more from their writers must not stop the others. */
	for (int i = 0; i < IDLE; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/idle-%d", i);
		OK(cr_open(store, path, CR_WRITE, 0644, &idle[i]));
		if (cr_pwrite(idle[i], path, strlen(path), 0) < 0)
			FAIL("%s", cr_error());
	}
	run_streams();
	printf("ok: %d streams, %d files held open, peak %ld MiB\n", STREAMS, IDLE, peak_kib() >> 10);
	for (int i = 0; i < IDLE; i++) {
		char path[32], got[33];
		struct cr_file *f;

		snprintf(path, sizeof(path), "/idle-%d", i);
		OK(cr_close(idle[i]));
		OK(cr_open(store, path, CR_READ, 0, &f));
		if (cr_pread(f, got, sizeof(got), 0) != (ssize_t)strlen(path) || memcmp(got, path, strlen(path)) != 0)
			FAIL("%s: other bytes", path);
		OK(cr_close(f));
	}
	fill_up();
	OK(cr_open(store, "/s3/file", CR_READ, 0, &idle[0]));
	if (cr_pread(idle[0], &byte, 1, 5) != 1)
		FAIL("%s", cr_error());
	OK(cr_close(idle[0]));
	cr_disconnect(store);
	store_down(&s);
	return 0;
}
