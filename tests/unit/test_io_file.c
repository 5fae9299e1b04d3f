// SPDX-License-Identifier: Apache-2.0
/* io: files, asynchronous and synchronous, and buffers; the same for every back end. */
#include <errno.h>
#include "common/base/rng.h"
#include "common/io/io_real.h"
#include "tests/lib/io_world.h"
#include "tests/lib/unit.h"

static char *path_of(struct world *w, const char *name)
{
	static char paths[4][128];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", w->dir, name);
	return path;
}

static int open_new(struct world *w, const char *name)
{
	int fd;

	ck_assert_int_eq(io_open(w->io, path_of(w, name), IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCL, 0644, &fd), 0);
	return fd;
}

static void read_at(struct world *w, struct world_op *o, int fd, void *buf, size_t len, uint64_t offset)
{
	o->iov[0] = (struct iovec){buf, len};
	io_prep_read(&o->op, fd, o->iov, 1, offset, world_done);
	world_submit(w, o);
}

static void write_at(
	struct world *w, struct world_op *o, int fd, const void *buf, size_t len, uint64_t offset, uint16_t flags)
{
	o->iov[0] = (struct iovec){(void *)buf, len};
	io_prep_write(&o->op, fd, o->iov, 1, offset, flags, world_done);
	world_submit(w, o);
}

IO_TEST(test_write_sync_read)
{
	struct world_op op = {0};
	char buf[64] = "";
	uint64_t bytes;
	int fd = open_new(w, "a");

	write_at(w, &op, fd, "hello world", 11, 0, 0);
	ck_assert_int_eq(op.done_count, 0);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 11);
	io_prep_sync(&op.op, fd, world_done);
	world_submit(w, &op);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 0);
	write_at(w, &op, fd, "WORLD", 5, 6, IO_DSYNC);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 5);

	read_at(w, &op, fd, buf, 5, 6);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 5);
	ck_assert_str_eq(buf, "WORLD");
	/* short only at the end of the file */
	read_at(w, &op, fd, buf, sizeof(buf), 3);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 8);
	ck_assert_mem_eq(buf, "lo WORLD", 8);
	read_at(w, &op, fd, buf, sizeof(buf), 100);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 0);
	ck_assert_int_eq(io_size(w->io, fd, &bytes), 0);
	ck_assert_uint_eq(bytes, 11);
	io_close(w->io, fd);
	op.op.magic = 0;
	read_at(w, &op, fd, buf, 1, 0);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, ERR_BADF);
}

IO_TEST(test_vectors)
{
	enum { COUNT = IO_IOV_MAX, EACH = 3000 };
	uint8_t *out = mem_alloc(COUNT * EACH), *in = mem_zalloc(COUNT * EACH);
	struct iovec iov[COUNT];
	struct world_op op = {0};
	struct rng rng;
	int fd = open_new(w, "v");

	rng_init(&rng, 2);
	rng_bytes(&rng, out, COUNT * EACH);
	for (int i = 0; i < COUNT; i++)
		iov[i] = (struct iovec){out + i * EACH, EACH};
	io_prep_write(&op.op, fd, iov, COUNT, 777, 0, world_done);
	world_submit(w, &op);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, COUNT * EACH);
	for (int i = 0; i < COUNT; i++)
		iov[i] = (struct iovec){in + i * EACH, EACH};
	io_prep_read(&op.op, fd, iov, COUNT, 777, world_done);
	world_submit(w, &op);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, COUNT * EACH);
	ck_assert(memcmp(in, out, COUNT * EACH) == 0);
	/* a hole reads as zeros */
	read_at(w, &op, fd, in, 777, 0);
	WORLD_WAIT(w, &op);
	for (int i = 0; i < 777; i++)
		ck_assert_int_eq(in[i], 0);
	io_close(w->io, fd);
	mem_free(in);
	mem_free(out);
}

/* More operations at once than the submission queue holds. */
IO_TEST(test_many_operations)
{
	enum { COUNT = 1500 };
	struct world_op *ops = mem_array(COUNT, sizeof(*ops));
	uint32_t *values = mem_array(COUNT, sizeof(*values));
	int fd = open_new(w, "m");

	for (uint32_t i = 0; i < COUNT; i++) {
		values[i] = i * 2654435761u;
		write_at(w, &ops[i], fd, &values[i], 4, i * 4, 0);
	}
	for (int i = 0; i < COUNT; i++) {
		WORLD_WAIT(w, &ops[i]);
		ck_assert_int_eq(ops[i].op.result, 4);
	}
	memset(values, 0, COUNT * sizeof(*values));
	for (uint32_t i = 0; i < COUNT; i++)
		read_at(w, &ops[i], fd, &values[i], 4, i * 4);
	for (uint32_t i = 0; i < COUNT; i++) {
		WORLD_WAIT(w, &ops[i]);
		ck_assert_int_eq(ops[i].op.result, 4);
		ck_assert_uint_eq(values[i], i * 2654435761u);
	}
	io_close(w->io, fd);
	mem_free(ops);
	mem_free(values);
}

/* I/O from buffers of io_buffer_alloc, whole and in part, aligned as O_DIRECT wants it. */
IO_TEST(test_buffers)
{
	enum { SMALL = 64 << 10, LARGE = 4 << 20 };
	uint8_t *small = io_buffer_alloc(w->io, SMALL), *large = io_buffer_alloc(w->io, LARGE);
	struct world_op op = {0};
	struct rng rng;
	int fd, rc;

	ck_assert_uint_eq((uintptr_t)small % IO_DIRECT_ALIGN, 0);
	ck_assert_uint_eq((uintptr_t)large % (2 << 20), 0);
	rc = io_open(w->io, path_of(w, "d"), IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_DIRECT, 0644, &fd);
	if (rc == ERR_INVAL) /* a file system without O_DIRECT */
		fd = open_new(w, "d2");
	else
		ck_assert_int_eq(rc, 0);
	rng_init(&rng, 3);
	rng_bytes(&rng, large, LARGE);
	write_at(w, &op, fd, large, LARGE, 0, IO_DSYNC);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, LARGE);
	read_at(w, &op, fd, small + 4096, SMALL - 4096, LARGE - (SMALL - 4096));
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, SMALL - 4096);
	ck_assert(memcmp(small + 4096, large + LARGE - (SMALL - 4096), SMALL - 4096) == 0);
	/* past the end, from an aligned place */
	read_at(w, &op, fd, small, SMALL, LARGE - 4096);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 4096);
	/* the end of a file need not be aligned */
	io_close(w->io, fd);
	ck_assert_int_eq(io_write_file(w->io, path_of(w, "odd"), large, 5000, 0600), 0);
	if (rc)
		rc = io_open(w->io, path_of(w, "odd"), 0, 0, &fd);
	else
		rc = io_open(w->io, path_of(w, "odd"), IO_OPEN_DIRECT, 0, &fd);
	ck_assert_int_eq(rc, 0);
	read_at(w, &op, fd, small, SMALL, 0);
	WORLD_WAIT(w, &op);
	ck_assert_int_eq(op.op.result, 5000);
	ck_assert(memcmp(small, large, 5000) == 0);
	ck_assert_int_eq(io_pread(w->io, fd, small, SMALL, 4096), 904);
	io_buffer_free(w->io, small, SMALL);
	io_buffer_free(w->io, large, LARGE);
	/* a freed one's place in the kernel's table serves again */
	for (int i = 0; i < 600; i++) {
		small = io_buffer_alloc(w->io, 4096);
		io_buffer_free(w->io, small, 4096);
	}
	io_close(w->io, fd);
}

IO_TEST(test_synchronous)
{
	char buf[16] = "";
	uint64_t bytes, total, unused;
	int fd = open_new(w, "s"), other;

	ck_assert_int_eq(io_open(w->io, path_of(w, "s"), IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCL, 0644, &other),
		ERR_EXIST);
	ck_assert_int_eq(io_open(w->io, path_of(w, "nothing"), 0, 0, &other), ERR_NOENT);
	ck_assert_int_eq(io_pwrite(w->io, fd, "0123456789", 10, 5), 10);
	ck_assert_int_eq(io_fdatasync(w->io, fd), 0);
	ck_assert_int_eq(io_pread(w->io, fd, buf, 16, 10), 5);
	ck_assert_mem_eq(buf, "56789", 5);
	ck_assert_int_eq(io_allocate(w->io, fd, 0, 100000), 0);
	ck_assert_int_eq(io_size(w->io, fd, &bytes), 0);
	ck_assert_uint_eq(bytes, 100000);
	ck_assert_int_eq(io_pread(w->io, fd, buf, 1, 99999), 1);
	ck_assert_int_eq(buf[0], 0);
	ck_assert_int_eq(io_pread(w->io, fd, buf, 10, 5), 10);
	ck_assert_mem_eq(buf, "0123456789", 10);
	ck_assert_int_eq(io_disk_space(w->io, w->dir, &total, &unused), 0);
	ck_assert_uint_gt(total, unused);
	io_close(w->io, fd);
	ck_assert_int_eq(io_open(w->io, path_of(w, "s"), IO_OPEN_WRITE | IO_OPEN_TRUNCATE, 0, &fd), 0);
	ck_assert_int_eq(io_size(w->io, fd, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	io_close(w->io, fd);
}

/* The end of a file goes, also within a block; what comes there later has nothing of it. */
IO_TEST(test_truncate)
{
	char *block = mem_alloc(10000);
	uint64_t bytes;
	int fd = open_new(w, "t"), other;

	memset(block, 'x', 10000);
	ck_assert_int_eq(io_pwrite(w->io, fd, block, 10000, 0), 10000);
	ck_assert_int_eq(io_truncate(w->io, fd, 10000), 0);
	ck_assert_int_eq(io_truncate(w->io, fd, 5000), 0);
	ck_assert_int_eq(io_size(w->io, fd, &bytes), 0);
	ck_assert_uint_eq(bytes, 5000);
	ck_assert_int_eq(io_pread(w->io, fd, block, 10000, 0), 5000);
	ck_assert_int_eq(io_pwrite(w->io, fd, "y", 1, 9000), 1);
	ck_assert_int_eq(io_pread(w->io, fd, block, 10000, 0), 9001);
	ck_assert(block[4999] == 'x' && block[5000] == 0 && block[8999] == 0 && block[9000] == 'y');
	ck_assert_int_eq(io_truncate(w->io, fd, 0), 0);
	ck_assert_int_eq(io_size(w->io, fd, &bytes), 0);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(io_open(w->io, path_of(w, "t"), 0, 0, &other), 0);
	ck_assert_int_lt(io_truncate(w->io, other, 0), 0);
	io_close(w->io, other);
	io_close(w->io, fd);
	mem_free(block);
}

struct names {
	char text[256];
};

static int collect(void *ctx, const char *name)
{
	struct names *n = ctx;

	strncat(n->text, name, sizeof(n->text) - strlen(n->text) - 1);
	strncat(n->text, " ", sizeof(n->text) - strlen(n->text) - 1);
	return 0;
}

static int refuse(void *ctx, const char *name)
{
	(void)ctx;
	return strcmp(name, "b") ? 0 : ERR_RANGE;
}

IO_TEST(test_names)
{
	struct names names = {0};

	io_close(w->io, open_new(w, "b"));
	io_close(w->io, open_new(w, "a"));
	io_close(w->io, open_new(w, "c"));
	io_close(w->io, open_new(w, "B"));
	ck_assert_int_eq(io_list_dir(w->io, w->dir, collect, &names), 0);
	ck_assert_str_eq(names.text, "B a b c ");
	ck_assert_int_eq(io_list_dir(w->io, w->dir, refuse, NULL), ERR_RANGE);
	ck_assert_int_eq(io_rename(w->io, path_of(w, "a"), path_of(w, "b")), 0);
	ck_assert_int_eq(io_rename(w->io, path_of(w, "a"), path_of(w, "x")), ERR_NOENT);
	ck_assert_int_eq(io_unlink(w->io, path_of(w, "c")), 0);
	ck_assert_int_eq(io_unlink(w->io, path_of(w, "c")), ERR_NOENT);
	ck_assert_int_eq(io_sync_dir(w->io, w->dir), 0);
	ck_assert_int_eq(io_sync_dir(w->io, path_of(w, "nothing")), ERR_NOENT);
	names = (struct names){0};
	ck_assert_int_eq(io_list_dir(w->io, w->dir, collect, &names), 0);
	ck_assert_str_eq(names.text, "B b ");
	ck_assert_int_eq(io_mkdir(w->io, w->dir, 0755), ERR_EXIST);
	ck_assert_int_eq(io_mkdir(w->io, path_of(w, "no/sub"), 0755), ERR_NOENT);
	ck_assert_int_eq(io_list_dir(w->io, path_of(w, "nothing"), collect, &names), ERR_NOENT);
	ck_assert_int_eq(io_list_dir(w->io, path_of(w, "b"), collect, &names), ERR_NOTDIR);
}

IO_TEST(test_lock)
{
	int fd = open_new(w, "lock"), other;

	ck_assert_int_eq(io_open(w->io, path_of(w, "lock"), IO_OPEN_WRITE, 0, &other), 0);
	ck_assert_int_eq(io_lock(w->io, fd), 0);
	ck_assert_int_eq(io_lock(w->io, other), ERR_BUSY);
	io_close(w->io, fd);
	ck_assert_int_eq(io_lock(w->io, other), 0);
	io_close(w->io, other);
}

IO_TEST(test_whole_files)
{
	char *big = mem_zalloc(10000), *text;
	size_t len;

	memset(big, 'x', 10000);
	ck_assert_int_eq(io_write_file(w->io, path_of(w, "f"), "one", 3, 0600), 0);
	ck_assert_int_eq(io_read_file(w->io, path_of(w, "f"), 100, &text, &len), 0);
	ck_assert_uint_eq(len, 3);
	ck_assert_str_eq(text, "one");
	mem_free(text);
	ck_assert_int_eq(io_write_file(w->io, path_of(w, "f"), big, 10000, 0600), 0);
	ck_assert_int_eq(io_read_file(w->io, path_of(w, "f"), 9999, &text, &len), ERR_FBIG);
	ck_assert_int_eq(io_read_file(w->io, path_of(w, "f"), 10000, &text, &len), 0);
	ck_assert_uint_eq(len, 10000);
	ck_assert_mem_eq(text, big, 10000);
	mem_free(text);
	ck_assert_int_eq(io_read_file(w->io, path_of(w, "nothing"), 100, &text, &len), ERR_NOENT);
	ck_assert_int_eq(io_write_file(w->io, path_of(w, "no/f"), "x", 1, 0600), ERR_NOENT);
	mem_free(big);
}

/* Past the page cache a bad sector is told in the block layer's own word, which elsewhere is that of an attribute that is not there. */
START_TEST(test_bad_sector_is_an_io_error)
{
	ck_assert_int_eq(io__err(ENODATA), ERR_IO);
	ck_assert_int_eq(io__err(EIO), ERR_IO);
}
END_TEST

UNIT_MAIN("io_file", test_bad_sector_is_an_io_error, IO_TESTS(test_write_sync_read), IO_TESTS(test_vectors), IO_TESTS(test_many_operations),
	IO_TESTS(test_buffers), IO_TESTS(test_synchronous), IO_TESTS(test_truncate), IO_TESTS(test_names), IO_TESTS(test_lock),
	IO_TESTS(test_whole_files))
