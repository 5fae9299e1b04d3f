/* SPDX-License-Identifier: Apache-2.0 */
/* replica_log: short words for tests of one log of a replica (replica_bed.h), and a look at its files as they lie on the disk. One a program. */
#ifndef TESTS_LIB_REPLICA_LOG_H
#define TESTS_LIB_REPLICA_LOG_H

#include "tests/lib/no_leaks.h"
#include "tests/lib/replica_bed.h"

static struct replica_bed bed;
static const char segment_1[] = "/log/log-0000000000000001", meta_path[] = "/log/meta";

static inline void begin(void)
{
	bed_init(&bed, 7);
	bed_open(&bed);
	bed_save(&bed, 1, 1);
	bed_settle(&bed);
}

static inline void appends(int count, uint64_t term, size_t padding)
{
	for (int i = 0; i < count; i++) {
		bed_append(&bed, term, padding);
		bed_settle(&bed); /* a frame each */
	}
}

static inline void idle(void)
{
	bed_settle(&bed);
	bed_run_for(&bed, 1000000000); /* the mark is written */
}

static inline void expect_refused(int code, const char *text)
{
	ck_assert_int_eq(bed_try_open(&bed), code);
	ck_assert_msg(strstr(bed.err.text, text) != NULL, "%s", bed.err.text);
}

/* Files as they lie on the disk. */
static inline void get(const char *path, void *buf, size_t len, uint64_t offset)
{
	ck_assert_int_eq(sim_read_raw(bed.host, path, buf, len, offset), (int64_t)len);
}

static inline void put(const char *path, const void *buf, size_t len, uint64_t offset)
{
	int fd;

	ck_assert_int_eq(io_open(bed.host, path, IO_OPEN_WRITE, 0, &fd), 0);
	ck_assert_int_eq(io_pwrite(bed.host, fd, buf, len, offset), (int64_t)len);
	ck_assert_int_eq(io_fdatasync(bed.host, fd), 0);
	io_close(bed.host, fd);
}

/* The nth frame of segment 1 from 0, or with UINT32_MAX the last; its place. Frames here are one block long. */
static inline uint64_t find_frame(uint32_t n, struct wal_frame *ret_frame)
{
	static uint8_t block[WAL_FRAME_ALIGN];
	struct wal_frame f;
	uint64_t at = 0, found = 0;
	size_t bytes;

	memset(ret_frame, 0, sizeof(*ret_frame));
	for (uint32_t i = 0; i <= n && at < BED_SEGMENT_BYTES; i++, at += bytes) {
		get(segment_1, block, sizeof(block), at);
		if (wal_frame_peek(block, &f, &bytes))
			break;
		*ret_frame = f;
		found = at;
	}
	return found;
}

#endif
