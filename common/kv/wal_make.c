/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New segments of the log: files full of zeros.
 *
 *     log-new --a step of zeros, synced; again--> complete --renamed, directory synced--> log-N
 *
 * So a file with a segment's name is always complete, and writing frames into it never allocates blocks or changes its size, which makes a sync one
 * disk write. Each step is synced, for a disk empties its cache in one go, and other writes wait for that.
 *
 * The steps follow the log: while the segment written to goes from a quarter to three quarters, the next one goes from nothing to complete, two bytes
 * of zeros for each byte of log. 64 MiB of zeros as fast as a disk took them made entries wait for as long as that lasted, and each MiB at once for as
 * long as a disk needs for that; now it gets what the log is in need of, in steps as small as its pace allows, and those of an idle log wait. A log that is
 * opened further on than a quarter begins there, and has at least half of what is left of its segment. Where entries wait for a segment, or a restart does,
 * a step follows the other.
 *
 * A log that has one segment only, and so none to use again, takes the room of the next one when it is opened: others may fill the disk before it has
 * come near, and what frees space is a change that must be logged first.
 *
 * What an earlier life left under the name log-new is written over from its start: to truncate it would give the disk all of it to discard at once.
 */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/wal_private.h"
#include <stdio.h>

_Static_assert((int)WAL_MAKE_STEP_BYTES >= (int)WAL_FRAME_MAX_BYTES, "the first frame of a log fits its first step");

static const char new_name[] = "log-new";

static void new_path(const struct wal *wal, char path[WAL_PATH_BYTES])
{
	int n = snprintf(path, WAL_PATH_BYTES, "%s/%s", wal->dir, new_name);

	CHECK(n > 0 && n < WAL_PATH_BYTES);
}

void wal__make_from(struct wal *wal)
{
	uint64_t quarter = wal->segment_bytes / 4;

	wal->make_from = wal->offset > quarter ? wal->offset : quarter;
}

uint64_t wal__make_due(uint64_t offset, uint64_t from, uint64_t segment_bytes)
{
	uint64_t middle = from + (segment_bytes - from) / 2, end = segment_bytes / 4 * 3;

	if (end < middle)
		end = middle;
	if (offset <= from)
		return 0;
	return offset < end ? (offset - from) * segment_bytes / (end - from) : segment_bytes;
}

uint32_t wal__make_step_bytes(uint64_t made, uint64_t due)
{
	uint64_t behind = due > made ? due - made : 0, least = WAL_MAKE_STEP_LEAST_BYTES;

	if (behind >= WAL_MAKE_STEP_BYTES)
		return WAL_MAKE_STEP_BYTES;
	return (uint32_t)(behind > least ? (behind + least - 1) / least * least : least);
}

/* Its file, not longer than a segment; what is in it is nobody's. */
static int open_new(struct wal *wal, struct wal_segment *s, const char *path)
{
	uint64_t bytes = 0;
	int rc = io_open(wal->io, path, IO_OPEN_CREATE | wal->open_flags, 0600, &s->fd);

	s->made_bytes = 0;
	if (rc == 0)
		rc = io_size(wal->io, s->fd, &bytes);
	if (rc == 0 && bytes > wal->segment_bytes)
		rc = io_truncate(wal->io, s->fd, wal->segment_bytes);
	if (rc)
		return rc;
	rc = io_allocate(wal->io, s->fd, 0, wal->segment_bytes);
	return rc == ERR_OPNOTSUPP ? 0 : rc;
}

/* Nothing of it is left, so that others have its space: the next step begins anew. */
static int drop(struct wal *wal, struct wal_segment *s, const char *path, int rc)
{
	if (s->fd >= 0) {
		io_close(wal->io, s->fd);
		(void)io_unlink(wal->io, path); /* best effort */
	}
	s->fd = -1;
	s->made_bytes = 0;
	return rc;
}

void wal__make_room(struct wal *wal)
{
	struct wal_segment s = {.fd = -1};
	char path[WAL_PATH_BYTES];
	int rc;

	new_path(wal, path);
	rc = open_new(wal, &s, path);
	if (rc)
		(void)drop(wal, &s, path, rc);
	else
		io_close(wal->io, s.fd);
}

static int add_zeros(struct wal *wal, struct wal_segment *s, uint32_t step_bytes, const uint8_t *first, size_t first_bytes)
{
	uint64_t rest = wal->segment_bytes - s->made_bytes;
	size_t bytes = rest < step_bytes ? (size_t)rest : step_bytes;
	uint8_t *step = mem_aligned(IO_DIRECT_ALIGN, bytes);
	int64_t n;
	int rc;

	CHECK(first_bytes <= bytes);
	memset(step, 0, bytes);
	if (s->made_bytes == 0 && first_bytes)
		memcpy(step, first, first_bytes);
	n = io_pwrite(wal->io, s->fd, step, bytes, s->made_bytes);
	mem_free(step);
	rc = n < 0 ? (int)n : io_fdatasync(wal->io, s->fd);
	if (rc == 0)
		s->made_bytes += bytes;
	return rc;
}

int wal__make_step(struct wal *wal, struct wal_segment *s, uint32_t step_bytes, const uint8_t *first, size_t first_bytes)
{
	char path[WAL_PATH_BYTES];
	int rc = 0;

	new_path(wal, path);
	if (s->fd < 0)
		rc = open_new(wal, s, path);
	if (rc == 0)
		rc = add_zeros(wal, s, step_bytes, first, first_bytes);
	return rc ? drop(wal, s, path, rc) : 0;
}

bool wal__made(const struct wal *wal, const struct wal_segment *s)
{
	return s->made_bytes == wal->segment_bytes;
}

int wal__make_named(struct wal *wal, struct wal_segment *s, uint64_t number)
{
	char from[WAL_PATH_BYTES], to[WAL_PATH_BYTES];
	int rc;

	new_path(wal, from);
	wal__segment_path(wal, number, to);
	s->number = number;
	rc = io_rename(wal->io, from, to);
	if (rc)
		return drop(wal, s, from, rc);
	return io_sync_dir(wal->io, wal->dir);
}
