/* SPDX-License-Identifier: Apache-2.0 */
/* wal_bed: a plain log on a simulated disk, as its segment files are made and removed. One a program. */
#ifndef TESTS_LIB_WAL_BED_H
#define TESTS_LIB_WAL_BED_H

#include <stdio.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "common/kv/wal_private.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum {
	ENTRY_BYTES = 240 << 10,
	TWO_STEPS = WAL_STEP_BYTES + (1 << 20),       /* segments of so many bytes */
	THREE_STEPS = 2 * WAL_STEP_BYTES + (1 << 20),
	DISK_BYTES = 256 << 20,
	NAME_BYTES = 64,
};
static const char log_dir[] = "/log", new_path[] = "/log/log-new";
static const uint64_t SECOND_NS = 1000000000;

struct bed {
	struct sim *sim;
	struct io *host;
	struct wal *wal;
	struct err err;
	uint64_t segment_bytes;
	uint64_t acknowledged, in_flight;
	uint64_t replayed_from, replayed_to; /* 0, 0: nothing */
	bool closed, stopped;
	uint32_t file_syncs, new_syncs, dir_syncs; /* of any file, of one that was opened as log-new, of directories */
};

static struct bed bed;
static uint8_t payload[ENTRY_BYTES];

static inline void on_synced(void *ctx, struct io *host, enum sim_sync kind, const char *path)
{
	(void)ctx;
	(void)host;
	bed.file_syncs += kind == SIM_SYNC_FILE;
	bed.new_syncs += kind == SIM_SYNC_FILE && strcmp(path, new_path) == 0;
	bed.dir_syncs += kind == SIM_SYNC_DIR;
}

static inline void bed_init(uint64_t seed, uint64_t segment_bytes)
{
	const struct sim_options options = {.seed = seed, .synced = on_synced};

	memset(&bed, 0, sizeof(bed));
	bed.segment_bytes = segment_bytes;
	bed.sim = sim_new(&options);
	bed.host = sim_host_add(bed.sim, "host", DISK_BYTES);
	ck_assert_int_eq(io_mkdir(bed.host, log_dir, 0700), 0);
	ck_assert_int_eq(io_sync_dir(bed.host, "/"), 0);
}

static inline void bed_fini(void)
{
	sim_free(bed.sim);
}

static inline int on_replay(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	(void)ctx;
	(void)err;
	if (bed.replayed_to)
		ck_assert_uint_eq(index, bed.replayed_to + 1);
	else
		bed.replayed_from = index;
	bed.replayed_to = index;
	ck_assert_uint_eq(data.len, ENTRY_BYTES);
	return 0;
}

static inline void on_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("%d: %s", code, text);
}

static inline void open_log(void)
{
	const struct wal_options options = {.dir = log_dir, .segment_bytes = bed.segment_bytes, .on_fatal = on_fatal};
	int rc;

	bed.replayed_from = bed.replayed_to = 0;
	rc = wal_open(bed.host, &options, 1, on_replay, NULL, &bed.wal, &bed.err);
	ck_assert_msg(rc == 0, "%s", bed.err.text);
}

static inline void on_done(struct wal_append *append, int code)
{
	ck_assert_int_eq(code, 0);
	bed.in_flight--;
	bed.acknowledged = append->index;
	mem_free(append);
}

static inline bool is_quiet(void *ctx)
{
	(void)ctx;
	return bed.in_flight == 0;
}

static inline void submit(void)
{
	struct wal_append *a = MEM_NEW(struct wal_append);

	a->data = slice_of(payload, ENTRY_BYTES);
	a->done = on_done;
	bed.in_flight++;
	wal_submit(bed.wal, a);
}

static inline void append(void)
{
	submit();
	ck_assert(sim_run(bed.sim, is_quiet, NULL, sim_now_ns(bed.sim) + 60 * SECOND_NS));
}

static inline void run_for(uint64_t ns)
{
	sim_run(bed.sim, NULL, NULL, sim_now_ns(bed.sim) + ns);
}

/* So many full segments, one full so far that the next one is made. */
static inline void fill(uint64_t segments)
{
	while (wal__last_live(bed.wal)->number <= segments || wal__make_due(bed.wal->offset, bed.wal->make_from, bed.segment_bytes) < bed.segment_bytes)
		append();
	run_for(SECOND_NS);
}

static inline uint64_t size_of(const char *path)
{
	uint64_t bytes;
	int fd;

	ck_assert_int_eq(io_open(bed.host, path, 0, 0, &fd), 0);
	ck_assert_int_eq(io_size(bed.host, fd, &bytes), 0);
	io_close(bed.host, fd);
	return bytes;
}

/* As where there was none for a second segment when the log was opened. */
static inline void no_room(void)
{
	ck_assert_int_eq(io_unlink(bed.host, new_path), 0);
	sim_disk_full(bed.host, true);
}

static inline bool is_there(const char *path)
{
	int fd, rc = io_open(bed.host, path, 0, 0, &fd);

	if (rc == 0)
		io_close(bed.host, fd);
	return rc == 0;
}

static inline void on_closed(void *ctx, int code)
{
	(void)ctx;
	ck_assert_int_eq(code, 0);
	bed.closed = true;
}

static inline bool is_closed(void *ctx)
{
	(void)ctx;
	return bed.closed;
}

static inline void close_log(void)
{
	bed.closed = false;
	wal_close(bed.wal, on_closed, NULL);
	ck_assert(sim_run(bed.sim, is_closed, NULL, sim_now_ns(bed.sim) + 60 * SECOND_NS));
}

static inline void make_file(const char *path, uint64_t bytes)
{
	int fd;

	ck_assert_int_eq(io_open(bed.host, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	if (bytes)
		ck_assert_int_eq(io_allocate(bed.host, fd, 0, bytes), 0);
	ck_assert_int_eq(io_fdatasync(bed.host, fd), 0);
	io_close(bed.host, fd);
	ck_assert_int_eq(io_sync_dir(bed.host, log_dir), 0);
}

static inline void stopped(void *ctx)
{
	(void)ctx;
	sim_host_crash(bed.host);
	bed.stopped = true;
}

static inline bool is_stopped(void *ctx)
{
	(void)ctx;
	return bed.stopped;
}

/* The host comes back, and the log opens with all that was acknowledged and not given up. */
static inline void come_back(enum sim_loss next_loss)
{
	if (sim_host_is_up(bed.host))
		sim_host_crash(bed.host);
	sim_host_restart(bed.host);
	sim_set_loss(bed.host, next_loss);
	bed.stopped = false;
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
}

#endif
