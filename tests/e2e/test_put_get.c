/* SPDX-License-Identifier: Apache-2.0 */
/* put and get through libcraton against real processes: all sizes around the borders, lost servers, damaged chunk files, lost metad. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "client/craton.h"
#include "tests/lib/store.h"

#define FAIL(...) \
	(fprintf(stderr, "test_put_get:%d: ", __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define OK(expr) ((expr) < 0 ? FAIL("%s: %s", #expr, cr_error()) : (void)0)

static const uint64_t sizes[] = {
	0, 1, 16383, 16384, (1 << 20) + 1, 4 << 20, 16 << 20, (16 << 20) + 1, 100 * 1000 * 1000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
static uint8_t *content, *got;

static void fill(void)
{
	uint64_t x = 88172645463325252ull, n = sizes[SIZES - 1];

	content = malloc(n + 8);
	got = malloc(n + 8);
	for (uint64_t i = 0; i < n; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(content + i, &x, 8);
	}
}

/* A file of `size` bytes holds the first `size` of the content, but starts at another place for each size. */
static const uint8_t *bytes_of(uint64_t size)
{
	return content + (size == sizes[SIZES - 1] ? 0 : size % 4096);
}

static void put_in_pieces(struct cr_store *store, const char *path, uint64_t size, uint64_t piece, uint32_t flags)
{
	struct cr_file *f;

	OK(cr_open(store, path, CR_WRITE | flags, 0644, &f));
	for (uint64_t at = 0; at < size; at += piece) {
		uint64_t n = size - at < piece ? size - at : piece;

		if (cr_pwrite(f, bytes_of(size) + at, n, at) != (ssize_t)n)
			FAIL("pwrite %s: %s", path, cr_error());
	}
	OK(cr_close(f));
}

struct waiter {
	struct cr_op op;
	sem_t sem;
};

static void wake(struct cr_op *op)
{
	sem_post(&((struct waiter *)op)->sem);
}

static int64_t finish(struct waiter *w)
{
	sem_wait(&w->sem);
	sem_destroy(&w->sem);
	if (w->op.result < 0)
		FAIL("asynchronous call: %s", w->op.error);
	return w->op.result;
}

static void begin(struct waiter *w)
{
	w->op.done = wake;
	sem_init(&w->sem, 0, 0);
}

static void put_async(struct cr_store *store, const char *path, uint64_t size)
{
	struct waiter a, b, c;
	struct cr_file *f;
	uint64_t half = size / 2;

	OK(cr_open(store, path, CR_WRITE | CR_ATOMIC, 0644, &f));
	begin(&a);
	begin(&b);
	begin(&c);
	cr_pwrite_async(f, bytes_of(size), half, 0, &a.op);
	cr_pwrite_async(f, bytes_of(size) + half, size - half, half, &b.op);
	cr_close_async(f, &c.op);
	if (finish(&a) != (int64_t)half || finish(&b) != (int64_t)(size - half))
		FAIL("short asynchronous write");
	finish(&c);
}

static void get_whole(struct cr_store *store, const char *path, uint64_t size)
{
	struct cr_file *f;
	struct cr_stat st;

	OK(cr_open(store, path, CR_READ, 0, &f));
	OK(cr_fstat(f, &st));
	if (st.size != size || !st.complete)
		FAIL("%s: size %llu, complete %d", path, (unsigned long long)st.size, st.complete);
	memset(got, 0xa5, size + 8);
	ssize_t n = cr_pread(f, got, size + 8, 0);

	if (n != (ssize_t)size)
		FAIL("pread %s of %llu: %zd: %s", path, (unsigned long long)size, n, cr_error());
	if (memcmp(got, bytes_of(size), size) != 0)
		FAIL("%s: other bytes", path);
	if (got[size] != 0xa5)
		FAIL("%s: written past the end", path);
	OK(cr_close(f));
}

static void get_in_pieces(struct cr_store *store, const char *path, uint64_t size, uint64_t piece)
{
	struct cr_file *f;
	uint64_t at = 0;
	ssize_t n;

	OK(cr_open(store, path, CR_READ, 0, &f));
	while ((n = cr_pread(f, got, piece, at)) > 0) {
		if (at + (uint64_t)n > size || memcmp(got, bytes_of(size) + at, (size_t)n) != 0)
			FAIL("%s at %llu: other bytes", path, (unsigned long long)at);
		at += (uint64_t)n;
	}
	if (n < 0 || at != size)
		FAIL("%s: ended at %llu of %llu: %s", path, (unsigned long long)at, (unsigned long long)size,
			n < 0 ? cr_error() : "short");
	OK(cr_close(f));
}

static void get_at_random(struct cr_store *store, const char *path, uint64_t size, int count)
{
	struct cr_file *f;
	uint64_t x = 12345;

	OK(cr_open(store, path, CR_READ, 0, &f));
	for (int i = 0; i < count && size > 0; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		uint64_t at = (x >> 20) % size, len = 1 + (x >> 40) % (i % 3 ? 100000 : 5000000);
		uint64_t want = len < size - at ? len : size - at;

		if (cr_pread(f, got, len, at) != (ssize_t)want)
			FAIL("%s at %llu: %s", path, (unsigned long long)at, cr_error());
		if (memcmp(got, bytes_of(size) + at, want) != 0)
			FAIL("%s at %llu + %llu: other bytes", path, (unsigned long long)at, (unsigned long long)want);
	}
	OK(cr_close(f));
}

static void name_of(char path[64], const char *dir, uint64_t size)
{
	snprintf(path, 64, "/%s/f%llu", dir, (unsigned long long)size);
}

static void get_all(struct cr_store *store, const char *what)
{
	char path[64];

	for (int i = 0; i < SIZES; i++) {
		name_of(path, "sync", sizes[i]);
		get_whole(store, path, sizes[i]);
		name_of(path, "async", sizes[i]);
		get_whole(store, path, sizes[i]);
	}
	name_of(path, "sync", sizes[SIZES - 1]);
	get_in_pieces(store, path, sizes[SIZES - 1], 1000003);
	get_at_random(store, path, sizes[SIZES - 1], 60);
	printf("ok: read all: %s\n", what);
	fflush(stdout);
}

static void put_all(struct cr_store *store)
{
	char path[64];

	OK(cr_mkdir_parents(store, "/sync", 0755));
	OK(cr_mkdir_parents(store, "/async", 0755));
	for (int i = 0; i < SIZES; i++) {
		name_of(path, "sync", sizes[i]);
		put_in_pieces(store, path, sizes[i], 777777, 0);
		name_of(path, "async", sizes[i]);
		put_async(store, path, sizes[i]);
		printf("ok: put %llu\n", (unsigned long long)sizes[i]);
		fflush(stdout);
	}
}

/* Again, those that are not spread over all servers. */
static void spread_all(struct cr_store *store)
{
	time_t end = time(NULL) + 60;
	char path[64];

	for (int i = 0; i < SIZES; i++) {
		name_of(path, "sync", sizes[i]);
		while (sizes[i] && !store_bears_two(store, path)) {
			if (time(NULL) > end)
				FAIL("%s could not be spread over all servers", path);
			put_in_pieces(store, path, sizes[i], 777777, 0);
		}
		name_of(path, "async", sizes[i]);
		while (sizes[i] && !store_bears_two(store, path)) {
			if (time(NULL) > end)
				FAIL("%s could not be spread over all servers", path);
			put_async(store, path, sizes[i]);
		}
	}
}

/* ---- looking inside, damage ---- */

struct damage {
	char server[64], segment[256];
	uint64_t offset;
	uint32_t disk, unit;
	uint8_t index;
	uint64_t block;
	int seen, expected;
};

static int count_states(const struct cr_chunk_info *c, void *user)
{
	int *counts = user;

	counts[c->state]++;
	return 0;
}

static void expect_states(
	struct cr_store *store, const char *path, int verify, int ok, int missing, int down, int corrupt)
{
	int counts[4] = {0};

	OK(cr_inspect(store, path, verify, count_states, counts));
	if (counts[CR_CHUNK_OK] != ok || counts[CR_CHUNK_MISSING] != missing || counts[CR_CHUNK_DOWN] != down ||
		counts[CR_CHUNK_CORRUPT] != corrupt)
		FAIL("inspect %s: ok %d, missing %d, down %d, corrupt %d", path, counts[0], counts[1], counts[2],
			counts[3]);
}

static int pick_chunk(const struct cr_chunk_info *c, void *user)
{
	struct damage *d = user;

	if (c->index != d->index || d->seen++)
		return 0;
	snprintf(d->server, sizeof(d->server), "%s", c->server_name);
	snprintf(d->segment, sizeof(d->segment), "%s", c->segment);
	d->offset =
		d->unit == UINT32_MAX ? c->trailer_offset + 100 : c->segment_offset + (uint64_t)d->unit * 16384 + 77;
	d->block = c->block;
	return 0;
}

static void flip(
	struct cr_store *store, const struct store *s, const char *path, uint8_t index, uint32_t unit, struct damage *d)
{
	char file[1024];
	uint8_t b;
	int fd;

	*d = (struct damage){.index = index, .unit = unit};
	OK(cr_inspect(store, path, 0, pick_chunk, d));
	if (d->segment[0] == '/')
		snprintf(file, sizeof(file), "%s", d->segment);
	else
		snprintf(file, sizeof(file), "%s/%s/disk-1/%s", s->dir, d->server, d->segment);
	fd = open(file, O_RDWR);
	if (fd < 0 || pread(fd, &b, 1, (off_t)d->offset) != 1)
		FAIL("%s: %s", file, strerror(errno));
	b ^= 0x10;
	if (pwrite(fd, &b, 1, (off_t)d->offset) != 1 || fsync(fd) != 0 || close(fd) != 0)
		FAIL("%s: %s", file, strerror(errno));
}

static int check_damage(const struct cr_chunk_info *c, void *user)
{
	struct damage *d = user;

	for (int i = 0; i < 2; i++) {
		if (c->block != d[i].block || c->index != d[i].index)
			continue;
		if (d[i].unit == UINT32_MAX ? !c->bad_trailer || c->bad_unit_count
					    : c->bad_trailer || c->bad_unit_count != 1 || c->bad_units[0] != d[i].unit)
			FAIL("chunk %u: bad trailer %u, %u bad units", c->index, c->bad_trailer, c->bad_unit_count);
		d[i].seen = 100;
		return 0;
	}
	if (c->state != CR_CHUNK_OK)
		FAIL("chunk %u of block %llu is not right", c->index, (unsigned long long)c->block);
	return 0;
}

static void damage_and_read(struct cr_store *store, const struct store *s, const char *path, uint64_t size, uint8_t i0,
	uint32_t u0, uint8_t i1, uint32_t u1)
{
	struct damage d[2], back;

	flip(store, s, path, i0, u0, &d[0]);
	flip(store, s, path, i1, u1, &d[1]);
	get_whole(store, path, size);
	d[0].seen = d[1].seen = 0;
	OK(cr_inspect(store, path, 1, check_damage, d));
	if (d[0].seen != 100 || d[1].seen != 100)
		FAIL("inspect did not find the damage");
	/* The same bits again: all is well. */
	flip(store, s, path, i0, u0, &back);
	flip(store, s, path, i1, u1, &back);
	expect_states(store, path, 1, 6, 0, 0, 0);
}

static void test_damage(struct cr_store *store, const struct store *s)
{
	const char *path = "/sync/f16777216";
	uint64_t size = 16 << 20;
	struct damage d;
	struct cr_file *f;
	char *json;

	/* What is damaged here is to stay so. */
	OK(cr_config_json(store, "repair.enabled", "no", &json));
	free(json);
	expect_states(store, path, 1, 6, 0, 0, 0);
	damage_and_read(store, s, path, size, 0, 0, 1, 255);
	damage_and_read(store, s, path, size, 2, 7, 5, 7);
	damage_and_read(store, s, path, size, 3, UINT32_MAX, 0, 100);
	damage_and_read(store, s, path, size, 4, UINT32_MAX, 1, 3);
	printf("ok: damaged units and trailers are found and read around\n");
	/* Rows are rebuilt one by one: three chunks damaged, never in the same row. */
	flip(store, s, path, 0, 1, &d);
	flip(store, s, path, 1, 2, &d);
	flip(store, s, path, 2, 3, &d);
	get_whole(store, path, size);
	/* In the same row it is too much. */
	flip(store, s, path, 1, 1, &d);
	flip(store, s, path, 2, 1, &d);
	OK(cr_open(store, path, CR_READ, 0, &f));
	if (cr_pread(f, got, size, 0) != -EIO || !strstr(cr_error(), path))
		FAIL("three damaged units of a row: %s", cr_error());
	printf("ok: %s\n", cr_error());
	OK(cr_close(f));
	OK(cr_unlink(store, path));
	put_in_pieces(store, path, size, size, 0);
}

int main(void)
{
	struct store s;
	struct cr_store *store;
	struct cr_options options = {0};
	struct cr_file *f;
	char path[64];

	fill();
	store_up(&s, 6, NULL);
	options.config = s.conf;
	OK(cr_connect(&options, &store));
	put_all(store);
	get_all(store, "healthy");
	test_damage(store, &s);

	if (cr_open(store, "/nothing", CR_READ, 0, &f) != -ENOENT)
		FAIL("open of nothing: %s", cr_error());
	printf("ok: %s\n", cr_error());
	OK(cr_open(store, "/sync/gap", CR_WRITE, 0644, &f));
	if (cr_pwrite(f, content, 10, 5) != -EOPNOTSUPP)
		FAIL("write with a gap: %s", cr_error());
	cr_abort(f);

	spread_all(store);
	store_kill_chunkd(&s, 2, SIGKILL);
	get_all(store, "one server killed");
	put_in_pieces(store, "/sync/f16777217", (16 << 20) + 1, 1 << 20, 0);
	get_whole(store, "/sync/f16777217", (16 << 20) + 1);
	store_kill_chunkd(&s, 4, SIGKILL);
	get_all(store, "two servers killed");
	put_in_pieces(store, "/sync/f100000000", 100000000, 1 << 20, CR_ATOMIC);
	get_all(store, "written again with two servers killed");
	name_of(path, "async", 100000000);
	store_kill_chunkd(&s, 0, SIGKILL);
	OK(cr_open(store, path, CR_READ, 0, &f));
	if (cr_pread(f, got, 100000000, 0) != -EIO || !strstr(cr_error(), path))
		FAIL("three servers killed: %s", cr_error());
	printf("ok: %s\n", cr_error());
	OK(cr_close(f));
	store_start_chunkd(&s, 0);
	store_start_chunkd(&s, 2);
	store_start_chunkd(&s, 4);
	store_wait_up(&s, 6);
	get_all(store, "all servers started again");

	store_kill_metad(&s, SIGKILL);
	store_start_metad(&s);
	get_all(store, "metad killed and started again");
	put_all(store);
	get_all(store, "written again");
	cr_disconnect(store);
	store_down(&s);
	printf("ok\n");
	free(content);
	free(got);
	return 0;
}
