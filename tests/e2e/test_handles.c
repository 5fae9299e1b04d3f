/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several users of one store can do to each other: reads at once in a file whose layout takes several requests, files
 * that hold all memory while others read and inspect, calls in flight while the store is disconnected. A hang is a failure: alarm().
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "client/craton.h"
#include "tests/lib/store.h"

#define FAIL(...) \
	(fprintf(stderr, "test_handles:%d: ", __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define OK(expr) ((expr) < 0 ? FAIL("%s: %s", #expr, cr_error()) : (void)0)

enum { EXTENTS = 300, EXTENT_BYTES = 1000, READS = 12, IDLE = 12, BIG_BYTES = (10 << 20) + 777 };

static uint8_t byte_at(uint64_t i)
{
	uint64_t x = (i / 8 + 1) * 0x9e3779b97f4a7c15u;

	return (uint8_t)((x ^ x >> 31) >> i % 8 * 8);
}

static void expect(const uint8_t *got, uint64_t offset, size_t len, const char *what)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != byte_at(offset + i))
			FAIL("%s: other byte at %llu", what, (unsigned long long)(offset + i));
}

struct read {
	struct cr_op op;
	sem_t sem;
	uint8_t buf[5000];
};

static void wake(struct cr_op *op)
{
	sem_post(&((struct read *)op)->sem);
}

/* More extents than one layout reply holds, read at many places before anything of the layout is known. */
static void read_at_once(struct cr_store *store)
{
	static struct read reads[READS];
	uint64_t size = (uint64_t)EXTENTS * EXTENT_BYTES;
	uint8_t piece[EXTENT_BYTES];
	struct cr_file *f;

	OK(cr_mkdir(store, "/copies", 0755));
	OK(cr_policy_set(store, "/copies", "rs-1-2"));
	OK(cr_open(store, "/copies/f", CR_WRITE, 0644, &f));
	for (uint64_t at = 0; at < size; at += sizeof(piece)) {
		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = byte_at(at + i);
		if (cr_pwrite(f, piece, sizeof(piece), at) < 0 || cr_fsync(f) < 0)
			FAIL("write at %llu: %s", (unsigned long long)at, cr_error());
	}
	OK(cr_close(f));
	OK(cr_open(store, "/copies/f", CR_READ, 0, &f));
	for (int i = 0; i < READS; i++) {
		sem_init(&reads[i].sem, 0, 0);
		reads[i].op.done = wake;
		cr_pread_async(f, reads[i].buf, sizeof(reads[i].buf), (uint64_t)(READS - i) * size / READS - 3000,
			&reads[i].op);
	}
	for (int i = 0; i < READS; i++) {
		while (sem_wait(&reads[i].sem))
			;
		if (reads[i].op.result != (i ? 5000 : 3000))
			FAIL("read %d: %lld: %s", i, (long long)reads[i].op.result, reads[i].op.error);
		expect(reads[i].buf, (uint64_t)(READS - i) * size / READS - 3000, (size_t)reads[i].op.result,
			"extents");
		sem_destroy(&reads[i].sem);
	}
	OK(cr_close(f));
	printf("ok: %d reads at once over %d extents\n", READS, EXTENTS);
}

static int must_be_ok(const struct cr_chunk_info *c, void *user)
{
	*(int *)user += 1;
	return c->state == CR_CHUNK_OK ? 0 : -EIO;
}

static void write_big(struct cr_store *store, const uint8_t *big)
{
	time_t end = time(NULL) + 60;
	struct cr_file *f;

	do {
		if (time(NULL) > end)
			FAIL("/big could not be spread over all servers");
		OK(cr_open(store, "/big", CR_WRITE | CR_ATOMIC, 0644, &f));
		if (cr_pwrite(f, big, BIG_BYTES, 0) != BIG_BYTES)
			FAIL("pwrite: %s", cr_error());
		OK(cr_close(f));
	} while (!store_bears_two(store, "/big"));
}

/* Writers that hold all memory and do not go on must not keep others from theirs. */
static void read_beside_idle_writers(struct cr_store *store, struct store *s)
{
	uint8_t *big = malloc(BIG_BYTES), *got = malloc(BIG_BYTES);
	struct cr_file *idle[IDLE], *f;
	char path[32];
	int chunks = 0;

	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = byte_at(i);
	write_big(store, big);
	for (int i = 0; i < IDLE; i++) {
		snprintf(path, sizeof(path), "/idle-%d", i);
		OK(cr_open(store, path, CR_WRITE, 0644, &idle[i]));
		if (cr_pwrite(idle[i], big, (4 << 20) + 100, 0) < 0)
			FAIL("pwrite %s: %s", path, cr_error());
	}
	if (cr_inspect(store, "/big", 1, must_be_ok, &chunks) != 0 || chunks < 6)
		FAIL("inspect of %d chunks: %s", chunks, cr_error());
	printf("ok: inspected while %d writers stand still\n", IDLE);
	store_kill_chunkd(s, 1, SIGKILL);
	store_kill_chunkd(s, 3, SIGKILL);
	OK(cr_open(store, "/big", CR_READ, 0, &f));
	if (cr_pread(f, got, BIG_BYTES, 0) != BIG_BYTES)
		FAIL("pread: %s", cr_error());
	expect(got, 0, BIG_BYTES, "degraded");
	OK(cr_close(f));
	store_start_chunkd(s, 1);
	store_start_chunkd(s, 3);
	store_wait_up(s, 6);
	for (int i = 0; i < IDLE; i++) {
		OK(cr_close(idle[i]));
		snprintf(path, sizeof(path), "/idle-%d", i);
		OK(cr_open(store, path, CR_READ, 0, &f));
		if (cr_pread(f, got, BIG_BYTES, 0) != (4 << 20) + 100)
			FAIL("pread %s: %s", path, cr_error());
		expect(got, 0, (4 << 20) + 100, path);
		OK(cr_close(f));
	}
	printf("ok: degraded read beside them\n");
	free(big);
	free(got);
}

struct opener {
	struct cr_store *store;
	_Atomic int tid;
	struct cr_file *file;
};

static void *create_thread(void *arg)
{
	struct opener *o = arg;

	atomic_store(&o->tid, (int)syscall(SYS_gettid));
	cr_open(o->store, "/made", CR_WRITE | CR_ATOMIC, 0644, &o->file);
	return NULL;
}

static char thread_state(int tid)
{
	char path[64], line[256], *paren;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f || !fgets(line, sizeof(line), f) || !(paren = strrchr(line, ')')))
		FAIL("%s cannot be read", path);
	fclose(f);
	return paren[2];
}

/* From here on it answers nothing: a signal alone may find it answering still. */
static void pause_metad(struct store *s)
{
	int status;

	kill(s->metad, SIGSTOP);
	if (waitpid(s->metad, &status, WUNTRACED) != s->metad || !WIFSTOPPED(status))
		FAIL("metad does not stop: status %#x", (unsigned)status);
}

struct closer {
	struct cr_store *store;
	_Atomic int tid;
};

static void *disconnect_thread(void *arg)
{
	struct closer *c = arg;

	atomic_store(&c->tid, (int)syscall(SYS_gettid));
	cr_disconnect(c->store);
	return NULL;
}

static void count_done(struct cr_op *op)
{
	atomic_fetch_add((_Atomic int *)op->user, 1);
}

/*
 * A file that is opened while its store is being disconnected is given up, too. The open is under way when the disconnection begins: who
 * disconnects while another thread has yet to begin its call has nothing to expect.
 */
static void disconnect_while_opening(struct store *s, bool reading)
{
	struct cr_options options = {.config = s->conf};
	struct cr_stat st, made = {.mode = 0644};
	struct closer closer = {0};
	_Atomic int done = 0;
	struct cr_op op = {.done = count_done, .user = &done};
	struct cr_file *file;
	pthread_t thread;

	OK(cr_connect(&options, &closer.store));
	OK(cr_stat(closer.store, "/big", &st));
	pause_metad(s);
	if (reading)
		cr_open_async(closer.store, st.inode, CR_READ, &file, &st, &op);
	else
		cr_create_async(closer.store, CR_INODE_ROOT, "made", 0, &made, &file, &st, &op);
	if (pthread_create(&thread, NULL, disconnect_thread, &closer))
		FAIL("pthread_create");
	while (!atomic_load(&closer.tid) || thread_state(atomic_load(&closer.tid)) != 'S')
		sched_yield(); /* until it waits for the open */
	kill(s->metad, SIGCONT);
	pthread_join(thread, NULL);
	if (atomic_load(&done) != 1)
		FAIL("the open ended %d times", atomic_load(&done));
	printf("ok: disconnected while a file was being opened\n");
}

/* metad goes with the request to create a file in its hands. */
static void create_while_metad_restarts(struct cr_store *store, struct store *s)
{
	struct opener o = {.store = store};
	pthread_t opener;

	pause_metad(s);
	if (pthread_create(&opener, NULL, create_thread, &o))
		FAIL("pthread_create");
	while (!atomic_load(&o.tid) || thread_state(atomic_load(&o.tid)) != 'S')
		sched_yield();
	store_kill_metad(s, SIGKILL);
	store_start_metad(s);
	pthread_join(opener, NULL);
	if (!o.file)
		FAIL("a create that metad's restart interrupted was not tried again");
	OK(cr_close(o.file));
	printf("ok: created across a restart of metad\n");
}

static void write_piece(struct cr_file *f, uint64_t at, size_t len)
{
	uint8_t *piece = malloc(len);

	for (size_t i = 0; i < len; i++)
		piece[i] = byte_at(at + i);
	if (cr_pwrite(f, piece, len, at) != (ssize_t)len)
		FAIL("write at %llu: %s", (unsigned long long)at, cr_error());
	free(piece);
}

static void read_whole(struct cr_store *store, const char *path, size_t len)
{
	uint8_t *got = malloc(len + 1);
	struct cr_file *f;

	OK(cr_open(store, path, CR_READ, 0, &f));
	if (cr_pread(f, got, len + 1, 0) != (ssize_t)len)
		FAIL("%s does not have %zu bytes: %s", path, len, cr_error());
	expect(got, 0, len, path);
	OK(cr_close(f));
	free(got);
}

/* A file that exists is written on at its end; who comes later takes it over, and nothing of the earlier one is seen. */
static void append(struct cr_store *store)
{
	enum { A = 100000, B = 3000000, C = 17 };
	struct cr_file *one, *two;
	struct cr_stat st;

	OK(cr_open(store, "/log", CR_WRITE | CR_APPEND, 0644, &one));
	write_piece(one, 0, A);
	OK(cr_close(one));
	OK(cr_open(store, "/log", CR_WRITE | CR_APPEND, 0644, &one));
	write_piece(one, A, B);
	OK(cr_fsync(one));
	write_piece(one, A + B, C);
	OK(cr_open(store, "/log", CR_WRITE | CR_APPEND, 0644, &two));
	if (cr_fsync(one) != -ESTALE)
		FAIL("a writer that was taken over is not told so: %s", cr_error());
	cr_abort(one);
	write_piece(two, A + B, C);
	OK(cr_close(two));
	read_whole(store, "/log", A + B + C);
	OK(cr_stat(store, "/log", &st));
	if (!st.complete || st.size != A + B + C)
		FAIL("/log has %llu bytes", (unsigned long long)st.size);
	OK(cr_truncate(store, "/log", A));
	OK(cr_open(store, "/log", CR_WRITE | CR_APPEND, 0644, &one));
	write_piece(one, A, C);
	OK(cr_close(one));
	read_whole(store, "/log", A + C);
	printf("ok: appended, taken over, cut and appended\n");
}

static int count_chunk(const struct cr_chunk_info *c, void *user)
{
	(void)c;
	*(int *)user += 1;
	return 0;
}

/* With `tails` in the configuration a file that grows by little needs no chunk server, until it is larger than that. */
static void small_appends(struct store *s)
{
	enum { STEP = 1000, STEPS = 5, MUCH = 40000 };
	struct cr_options options = {0};
	struct cr_store *store;
	struct cr_file *f;
	char conf[600], line[512];
	int chunks = 0;
	FILE *in = fopen(s->conf, "r"), *out;

	snprintf(conf, sizeof(conf), "%s-tails", s->conf);
	out = fopen(conf, "w");
	if (!in || !out)
		FAIL("%s: %s", conf, strerror(errno));
	while (fgets(line, sizeof(line), in))
		fputs(line, out);
	fputs("tails = 32K\n", out);
	fclose(in);
	fclose(out);
	options.config = conf;
	OK(cr_connect(&options, &store));
	for (uint64_t i = 0; i < STEPS; i++) {
		OK(cr_open(store, "/small", CR_WRITE | CR_APPEND, 0644, &f));
		write_piece(f, i * STEP, STEP / 2);
		OK(cr_fsync(f));
		write_piece(f, i * STEP + STEP / 2, STEP / 2);
		OK(cr_close(f));
		read_whole(store, "/small", (i + 1) * STEP);
	}
	if (cr_inspect(store, "/small", 1, count_chunk, &chunks) != 0 || chunks)
		FAIL("%d chunks: %s", chunks, cr_error());
	OK(cr_open(store, "/small", CR_WRITE | CR_APPEND, 0644, &f));
	write_piece(f, STEPS * STEP, MUCH);
	OK(cr_fsync(f));
	write_piece(f, STEPS * STEP + MUCH, 1);
	OK(cr_close(f));
	read_whole(store, "/small", STEPS * STEP + MUCH + 1);
	if (cr_inspect(store, "/small", 1, count_chunk, &chunks) != 0 || !chunks)
		FAIL("%d chunks: %s", chunks, cr_error());
	cr_disconnect(store);
	printf("ok: small appends\n");
}

/* What is open stays readable, whatever becomes of its names. */
static void read_unlinked(struct cr_store *store)
{
	enum { LEN = 50000 };
	uint8_t *got = malloc(LEN);
	char value[8], list[64];
	struct cr_file *f;

	OK(cr_open(store, "/gone", CR_WRITE, 0644, &f));
	write_piece(f, 0, LEN);
	OK(cr_close(f));
	OK(cr_setxattr(store, "/gone", "user.who", "me", 2, CR_XATTR_CREATE));
	if (cr_getxattr(store, "/gone", "user.who", value, sizeof(value)) != 2 ||
		cr_listxattr(store, "/gone", list, sizeof(list)) != 9 || strcmp(list, "user.who") != 0)
		FAIL("attributes: %s", cr_error());
	if (cr_setxattr(store, "/gone", "user.who", "me", 2, CR_XATTR_CREATE) != -EEXIST ||
		cr_getxattr(store, "/gone", "user.none", value, sizeof(value)) != -ENODATA)
		FAIL("attributes that are and are not there: %s", cr_error());
	OK(cr_open(store, "/gone", CR_READ, 0, &f));
	OK(cr_unlink(store, "/gone"));
	if (cr_pread(f, got, LEN, 0) != LEN)
		FAIL("read after unlink: %s", cr_error());
	expect(got, 0, LEN, "unlinked");
	OK(cr_close(f));
	free(got);
	printf("ok: read after unlink\n");
}

int main(void)
{
	struct cr_options options = {.buffer_bytes = 64 << 20};
	struct cr_store *store;
	struct store s;

	alarm(240);
	setvbuf(stdout, NULL, _IOLBF, 0);
	store_up(&s, 6, NULL);
	options.config = s.conf;
	OK(cr_connect(&options, &store));
	read_at_once(store);
	read_beside_idle_writers(store, &s);
	create_while_metad_restarts(store, &s);
	append(store);
	small_appends(&s);
	read_unlinked(store);
	cr_disconnect(store);
	for (int i = 0; i < 8; i++)
		disconnect_while_opening(&s, i % 2);
	store_down(&s);
	printf("ok\n");
	return 0;
}
