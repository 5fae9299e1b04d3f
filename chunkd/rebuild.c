/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   scan every grain of every segment for trailers -> of each place, and of each copy's whole ones, the highest seal sequence wins
 *   -> a new index in index.new -> the sequence it goes on from becomes a name -> index becomes index.old-N, index.new becomes index
 *
 * What the disk cannot read is stepped over. A trailer is believed when its MAC holds and it names the very segment and place it lies at.
 * Bytes of users may look like the head of one; the MAC is only computed where the head's own figures lead to where it lies, so that no
 * content makes the scan slow. A small chunk is written in one piece with its trailer, so that any crash may leave the one without the other: its bytes are read, too, and
 * where they are not whole only its place is kept from older ones. Of long ones, whose writes share a later sync, that is left to readers.
 */
#include "chunkd/rebuild.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chunkd/format.h"
#include "chunkd/index.h"
#include "chunkd/segment.h"
#include "chunkd/verify.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/code/hmac.h"

enum { PATH_ROOM = 4096 + 128, READ_BYTES = 1 << 20, OLD_MAX = 1000 };
enum { LEAP_CHANGES = 2 };
enum { FAILED_READS_MAX = 256 }; /* of a disk: more are no bad sectors but the disk, which would try at each further one for seconds */
/*
 * A trailer that could not be read may be read by the next rebuild. Whatever was sealed in between where it lies must be the newer one: sequences go
 * on so far behind the greatest one found, and behind what the rebuilds before went on from, of which perhaps no trailer is found and no index can be
 * read: each leaves a name. That is more than some hundred starts give, with 2^30 frames of the log each.
 */
static const uint64_t sequence_leap = (uint64_t)1 << 52;
#define LEFT_NAME "rebuilt-"
#define FRESH_NAME "index.new"
#define OLD_NAME "index.old"
#define UNFINISHED_NAME "index.unfinished"
enum { LEFT_DIGITS = 16 };

#define LOG_SEGMENT_BYTES ((uint64_t)16 << 20)

struct rebuild {
	struct io *io;
	struct rebuild_options o;
	char *dir;
	int lock_fd;
	struct format_superblock sb;
	struct hmac_key trailer_key;
	struct alloc alloc;
	struct index_row *rows; /* length 0: only its place is kept from older ones */
	size_t count, cap, kept, written;
	uint32_t segments;
	uint32_t unreadable; /* grains that were stepped over */
	uint32_t lost;       /* what looked like trailers, or small chunks, and could not be read whole */
	int64_t stepped_over; /* the last grain of this segment that was, in bytes; -1: none */
	uint32_t torn;       /* trailers of small chunks that are not there whole */
	uint64_t greatest;   /* sequence of all rows, or what an earlier rebuild went on from */
	uint8_t *data, *trailer, *small;
	struct index *index;
	struct index_change *changes;
	struct err err;
	char done_text[ERR_TEXT_BYTES];
};

static void finish(struct rebuild *r, int code, const char *text)
{
	struct rebuild_options o = r->o;
	char *copy = mem_strdup(text);

	if (r->lock_fd >= 0)
		io_close(r->io, r->lock_fd);
	alloc_fini(&r->alloc);
	mem_free(r->rows);
	mem_free(r->changes);
	mem_free(r->data);
	mem_free(r->trailer);
	mem_free(r->small);
	mem_free(r->dir);
	mem_free(r);
	o.done(o.ctx, code, copy);
	mem_free(copy);
}

/* ---- scanning ---- */

static void add_row(struct rebuild *r, const struct format_trailer *t, size_t trailer_bytes)
{
	if (t->sequence > r->greatest)
		r->greatest = t->sequence;
	if (r->count == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 1024;
		r->rows = mem_realloc(r->rows, r->cap * sizeof(*r->rows));
	}
	r->rows[r->count++] = (struct index_row){
		.copy = t->copy,
		.policy = t->policy,
		.extent = {t->segment, (uint32_t)(t->offset / FORMAT_GRAIN_BYTES),
			(uint32_t)((format_round(t->length) + trailer_bytes) / FORMAT_GRAIN_BYTES)},
		.length = (uint32_t)t->length,
		.cell_bytes = t->cell_bytes,
		.crc = t->chunk_crc,
		.sequence = t->sequence,
	};
}

/* Of the row that was added last. */
static int check_small(struct rebuild *r, int fd, const struct format_trailer *t)
{
	int64_t got = verify_read(r->io, fd, r->small, format_round(t->length), t->offset);

	if (got < (int64_t)t->length || !verify_is_whole(t, r->small)) {
		r->rows[r->count - 1].length = 0;
		r->torn++;
	}
	return got < 0 && !(got == ERR_IO && r->stepped_over >= (int64_t)t->offset) ? (int)got : 0; /* counted already */
}

/* A grain at `at` whose head looks like a trailer's of this place. */
static int try_trailer(struct rebuild *r, int fd, uint32_t segment, uint64_t at, size_t bytes)
{
	struct format_trailer t;
	int64_t got = io_pread(r->io, fd, r->trailer, bytes, at);

	if (got < 0)
		return (int)got;
	if (format_trailer_decode(slice_of(r->trailer, (size_t)got), &r->trailer_key, &t) < 0 || t.segment != segment ||
		t.offset + format_round(t.length) != at)
		return 0;
	add_row(r, &t, bytes);
	return t.length <= INDEX_BESIDE_BYTES ? check_small(r, fd, &t) : 0;
}

/* True: too many of them. */
static bool read_failed(struct rebuild *r, uint32_t *count)
{
	++*count;
	return r->unreadable + r->lost > FAILED_READS_MAX;
}

static int scan_bytes(struct rebuild *r, int fd, uint32_t segment, uint64_t at, int64_t count)
{
	for (int64_t i = 0; i + FORMAT_GRAIN_BYTES <= count; i += FORMAT_GRAIN_BYTES) {
		size_t bytes = format_trailer_peek(r->data + i, segment, at + (uint64_t)i);
		int rc = bytes ? try_trailer(r, fd, segment, at + (uint64_t)i, bytes) : 0;

		/* Its chunk is not known any more: metad will miss it. */
		if (rc < 0 && (rc != ERR_IO || read_failed(r, &r->lost)))
			return rc;
	}
	return 0;
}

/* Where the disk cannot read all of it: grain by grain. A bad sector costs the chunk whose trailer it is, and none beside it. */
static int scan_grains(struct rebuild *r, int fd, uint32_t segment, uint64_t at)
{
	int failed = 0;

	for (uint64_t end = at + READ_BYTES; !failed && at < end && at < r->sb.segment_bytes; at += FORMAT_GRAIN_BYTES) {
		int64_t got = io_pread(r->io, fd, r->data, FORMAT_GRAIN_BYTES, at);
		int rc = got < 0 ? (int)got : scan_bytes(r, fd, segment, at, got);

		if (got == ERR_IO)
			r->stepped_over = (int64_t)at;
		if (rc < 0 && (rc != ERR_IO || read_failed(r, &r->unreadable)))
			failed = rc;
	}
	return failed;
}

static int scan_file(struct rebuild *r, int fd, uint32_t segment)
{
	r->stepped_over = -1;
	for (uint64_t at = 0; at < r->sb.segment_bytes; at += READ_BYTES) {
		int64_t got = io_pread(r->io, fd, r->data, READ_BYTES, at);
		int rc = got == ERR_IO ? scan_grains(r, fd, segment, at) : got < 0 ? (int)got : scan_bytes(r, fd, segment, at, got);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int scan_name(void *ctx, const char *name)
{
	struct rebuild *r = ctx;
	enum alloc_class class;
	char path[2 * PATH_ROOM];
	uint64_t bytes;
	uint32_t number;
	const char *what = "read";
	int fd, rc;

	if (!segment_parse_name(name, &number, &class))
		return 0;
	snprintf(path, sizeof(path), "%s/segments/%s", r->dir, name);
	rc = io_open(r->io, path, 0, 0, &fd);
	if (rc == 0) {
		rc = io_size(r->io, fd, &bytes);
		if (rc == 0 && bytes != r->sb.segment_bytes)
			rc = ERR_CORRUPT;
		if (rc == 0)
			rc = scan_file(r, fd, number);
		if (rc == 0) {
			rc = io_fdatasync(r->io, fd); /* what a killed server has written, and was read, is durable from here on */
			what = "sync";
		}
		io_close(r->io, fd);
	}
	if (rc < 0)
		return err_set(&r->err, rc, "cannot %s %s: %s", what, path, err_text(rc));
	alloc_add_segment(&r->alloc, number, class, (uint32_t)(r->sb.segment_bytes / FORMAT_GRAIN_BYTES));
	r->segments++;
	return 0;
}

/* ---- sequences ---- */

/* `head`, and behind it this many of these digits; count 0: any number of them but none. */
static bool is_numbered(const char *name, const char *head, const char *digits, size_t count)
{
	size_t chars = strlen(head), rest;

	if (strncmp(name, head, chars) != 0)
		return false;
	rest = strlen(name + chars);
	return rest > 0 && (rest == count || count == 0) && strspn(name + chars, digits) == rest;
}

static bool is_left_name(const char *name)
{
	return is_numbered(name, LEFT_NAME, "0123456789abcdef", LEFT_DIGITS);
}

bool rebuild_leaves(const char *name)
{
	static const char digits[] = "0123456789";

	return is_left_name(name) || strcmp(name, FRESH_NAME) == 0 || is_numbered(name, OLD_NAME "-", digits, 0) ||
		is_numbered(name, UNFINISHED_NAME "-", digits, 0);
}

static int left_name(void *ctx, const char *name)
{
	struct rebuild *r = ctx;
	uint64_t sequence;

	if (!is_left_name(name))
		return 0;
	sequence = strtoull(name + strlen(LEFT_NAME), NULL, 16);
	if (sequence > r->greatest)
		r->greatest = sequence;
	return 0;
}

static uint64_t going_on_from(const struct rebuild *r)
{
	return r->greatest + sequence_leap;
}

/* Starts after it leap, too, by far less. */
static int check_room(struct rebuild *r)
{
	if (r->greatest < UINT64_MAX - 2 * sequence_leap)
		return 0;
	return err_set(&r->err, ERR_CORRUPT,
		"the sequences of the chunks in %s are used up, by a trailer or a name " LEFT_NAME
		"*: no rebuild leaves one like it. Format a fresh disk instead: its chunks are made again from the others",
		r->dir);
}

static int leave_name(struct rebuild *r)
{
	char path[PATH_ROOM];
	int fd, rc;

	snprintf(path, sizeof(path), "%s/" LEFT_NAME "%0*llx", r->dir, LEFT_DIGITS,
		(unsigned long long)going_on_from(r));
	rc = io_open(r->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd);
	if (rc == 0) {
		io_close(r->io, fd);
		rc = io_sync_dir(r->io, r->dir); /* before an index may be there that seals go on from */
	}
	return rc < 0 ? err_set(&r->err, rc, "cannot create %s: %s", path, err_text(rc)) : 0;
}

/* ---- choosing ---- */

static int by_copy_newest_first(const void *va, const void *vb)
{
	const struct index_row *a = va, *b = vb;
	uint8_t ka[INDEX_KEY_BYTES], kb[INDEX_KEY_BYTES];
	int c;

	index_key_encode(&a->copy, ka);
	index_key_encode(&b->copy, kb);
	c = memcmp(ka, kb, sizeof(ka));
	return c ? c : a->sequence > b->sequence ? -1 : a->sequence < b->sequence;
}

static int newest_first(const void *va, const void *vb)
{
	const struct index_row *a = va, *b = vb;

	return a->sequence > b->sequence ? -1 : a->sequence < b->sequence;
}

size_t rebuild_choose(struct index_row *rows, size_t count, struct alloc *alloc)
{
	const struct index_row *newest = NULL;
	size_t kept = 0;

	if (count == 0)
		return 0;
	qsort(rows, count, sizeof(*rows), by_copy_newest_first);
	for (size_t i = 0; i < count; i++) {
		if (rows[i].length == 0)
			continue;
		if (newest && index_copy_equal(&rows[i].copy, &newest->copy))
			rows[i].length = 0;
		else
			newest = &rows[i];
	}
	qsort(rows, count, sizeof(*rows), newest_first);
	for (size_t i = 0; i < count; i++)
		if (alloc_reserve(alloc, rows[i].extent) == 0 && rows[i].length)
			rows[kept++] = rows[i];
	return kept;
}

/* ---- the new index takes the old one's place ---- */

static int rename_away(struct rebuild *r, const char *from, const char *to_prefix, char to[2 * PATH_ROOM])
{
	char path[2 * PATH_ROOM], *text;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", r->dir, from);
	for (int i = 1; i < OLD_MAX; i++) {
		int rc;

		snprintf(to, 2 * PATH_ROOM, "%s/%s-%d", r->dir, to_prefix, i);
		/* A directory answers a read with another error than a name that is not there. */
		rc = io_read_file(r->io, to, 1, &text, &len);
		if (rc == 0)
			mem_free(text);
		if (rc != ERR_NOENT)
			continue;
		return io_rename(r->io, path, to);
	}
	return ERR_EXIST;
}

static void index_closed(void *ctx)
{
	struct rebuild *r = ctx;
	char fresh[PATH_ROOM], place[PATH_ROOM], old[2 * PATH_ROOM];
	int rc;

	snprintf(fresh, sizeof(fresh), "%s/" FRESH_NAME, r->dir);
	snprintf(place, sizeof(place), "%s/index", r->dir);
	rc = leave_name(r);
	if (rc < 0) {
		finish(r, rc, r->err.text);
		return;
	}
	rc = rename_away(r, "index", OLD_NAME, old);
	if (rc == ERR_NOENT) {
		old[0] = 0;
		rc = 0;
	}
	if (rc == 0)
		rc = io_rename(r->io, fresh, place);
	if (rc == 0)
		rc = io_sync_dir(r->io, r->dir);
	if (rc < 0)
		snprintf(r->done_text, sizeof(r->done_text), "cannot put the new index in place of %.200s: %s", place,
			err_text(rc));
	else
		snprintf(r->done_text, sizeof(r->done_text),
			"found %zu chunks in %u segments (left out: %zu older ones, %u small ones that are not there whole; %u grains and %u trailers or small chunks could not be read); the old index is in %.200s",
			r->kept, r->segments, r->count - r->kept - r->torn, r->torn, r->unreadable, r->lost, old);
	finish(r, rc, r->done_text);
}

static void row_written(struct index_change *change, int code)
{
	struct rebuild *r = change->owner;

	if (code < 0 && r->err.code == 0)
		err_set(&r->err, code, "cannot write the new index of %s: %s", r->dir, err_text(code));
	if (++r->written < r->kept + LEAP_CHANGES)
		return;
	if (r->err.code)
		finish(r, r->err.code,
			r->err.text); /* the index is left open: the process ends, and index.new counts for nothing */
	else
		index_close(r->index, index_closed, r);
}

static int no_row(void *ctx, const struct index_row *row, struct err *err)
{
	(void)ctx;
	return err_set(err, ERR_EXIST, "the new index already names chunk %llx", (unsigned long long)row->copy.block);
}

static int nothing_loaded(void *ctx, struct err *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

static void ignore_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	(void)code;
	(void)text; /* every change fails after it, which is told */
}

/* The index records the greatest sequence of what was ever put: one of no block is put, and dropped again. */
static struct index_row leap_row(const struct rebuild *r)
{
	return (struct index_row){
		.extent.grains = 2,
		.length = 1,
		.cell_bytes = LIMIT_UNIT_BYTES,
		.sequence = going_on_from(r),
	};
}

static int write_index(struct rebuild *r)
{
	struct index_options o = {
		.backend = r->o.backend,
		.log_segment_bytes = r->o.log_segment_bytes ? r->o.log_segment_bytes : LOG_SEGMENT_BYTES,
		.buffered = true,
		.each = no_row,
		.loaded = nothing_loaded,
		.on_fatal = ignore_fatal,
		.ctx = r,
	};
	char path[PATH_ROOM], away[2 * PATH_ROOM];
	int rc;

	snprintf(path, sizeof(path), "%s/" FRESH_NAME, r->dir);
	rc = io_mkdir(r->io, path, 0700);
	if (rc == ERR_EXIST) {
		/* Of an earlier attempt. */
		rc = rename_away(r, FRESH_NAME, UNFINISHED_NAME, away);
		if (rc == 0)
			rc = io_mkdir(r->io, path, 0700);
	}
	if (rc < 0)
		return err_set(&r->err, rc, "cannot create %s: %s", path, err_text(rc));
	o.dir = path;
	rc = index_open(r->io, &o, &r->index, &r->err);
	if (rc < 0)
		return rc;
	r->changes = mem_array(r->kept + LEAP_CHANGES, sizeof(*r->changes));
	for (size_t i = 0; i < r->kept + LEAP_CHANGES; i++) {
		r->changes[i].row = i < r->kept ? r->rows[i] : leap_row(r);
		r->changes[i].owner = r;
		r->changes[i].done = row_written;
		if (i <= r->kept)
			index_put(r->index, &r->changes[i]);
		else
			index_drop(r->index, &r->changes[i]);
	}
	return 0;
}

static int open_disk(struct rebuild *r)
{
	char path[PATH_ROOM], *bytes;
	size_t len;
	int rc;

	snprintf(path, sizeof(path), "%s/superblock", r->dir);
	rc = io_read_file(r->io, path, FORMAT_SUPERBLOCK_BYTES, &bytes, &len);
	if (rc < 0)
		return err_set(
			&r->err, rc, "cannot read %s: %s: is %s a disk of craton-chunkd?", path, err_text(rc), r->dir);
	rc = format_superblock_decode(slice_of(bytes, len), &r->sb, &r->err);
	mem_free(bytes);
	if (rc < 0)
		return err_prefix(&r->err, "%s", path);
	hmac_key_init(&r->trailer_key, r->sb.secret);
	snprintf(path, sizeof(path), "%s/lock", r->dir);
	rc = io_open(r->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &r->lock_fd);
	if (rc < 0)
		return err_set(&r->err, rc, "cannot write in %s: %s", r->dir, err_text(rc));
	rc = io_lock(r->io, r->lock_fd);
	if (rc < 0)
		return err_set(&r->err, rc, "the disk %s is in use: stop its craton-chunkd first", r->dir);
	return 0;
}

void rebuild_start(struct io *io, const struct rebuild_options *options)
{
	struct rebuild *r = MEM_NEW(struct rebuild);
	char path[PATH_ROOM];
	int rc;

	r->io = io;
	r->o = *options;
	r->dir = mem_strdup(options->dir);
	r->lock_fd = -1;
	alloc_init(&r->alloc);
	r->data = mem_aligned(FORMAT_GRAIN_BYTES, READ_BYTES);
	r->trailer = mem_aligned(FORMAT_GRAIN_BYTES, LIMIT_TRAILER_BYTES);
	r->small = mem_aligned(FORMAT_GRAIN_BYTES, INDEX_BESIDE_BYTES);
	rc = open_disk(r);
	if (rc == 0) {
		rc = io_list_dir(io, r->dir, left_name, r);
		if (rc < 0)
			err_set(&r->err, rc, "cannot read %s: %s", r->dir, err_text(rc));
	}
	if (rc == 0) {
		snprintf(path, sizeof(path), "%s/segments", r->dir);
		rc = io_list_dir(io, path, scan_name, r);
		if (rc < 0 && r->err.code == 0)
			err_set(&r->err, rc, "cannot read %s: %s", path, err_text(rc));
	}
	if (rc == 0)
		rc = check_room(r);
	if (rc == 0) {
		r->kept = rebuild_choose(r->rows, r->count, &r->alloc);
		rc = write_index(r);
	}
	if (rc < 0)
		finish(r, rc, r->err.text);
}
