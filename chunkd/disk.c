/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening: lock, superblock, segments, index; every row of the index takes its extent from the allocator, so that two rows that overlap
 * or point nowhere are found here and not by a reader. Free space is what is left.
 *
 * Formatting writes the superblock last: a directory without one, and without anything but what a crash leaves of an earlier attempt, is an
 * empty disk. One with segments but without a superblock, or with files of others, is never formatted over.
 */
#include "chunkd/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chunkd/put.h"
#include "chunkd/trailers.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/base/units.h"

enum { PATH_ROOM = 4096 + 64 };

#define LOG_SEGMENT_BYTES ((uint64_t)16 << 20)
#define LARGE_DISK_BYTES ((uint64_t)32 << 30)
#define SMALL_DISK_BYTES ((uint64_t)512 << 20)

struct pin {
	uint32_t count;
	bool dropping; /* its record is on the way */
	bool dropped;  /* durably: the extent goes back with the last unpin */
	struct alloc_extent extent;
};

/* ---- format ---- */

static uint64_t choose_segment_bytes(const struct disk_options *o, uint64_t capacity)
{
	uint64_t room = o->segment_bytes, file;

	if (!room && capacity >= LARGE_DISK_BYTES) {
		room = (uint64_t)1 << 30;
	} else if (!room && capacity >= SMALL_DISK_BYTES) {
		room = (uint64_t)64 << 20;
	} else if (!room) {
		/* Each size class needs a segment of its own: eight or more must fit. */
		room = FORMAT_SEGMENT_BYTES_MIN;
		while (room * 16 <= capacity)
			room *= 2;
	}
	/* Room for the trailers of a whole power of two of chunks: else one chunk fewer would fit, and of the largest none. */
	file = format_round(room + room / 128);
	return file < FORMAT_SEGMENT_BYTES_MIN    ? FORMAT_SEGMENT_BYTES_MIN
		: file > FORMAT_SEGMENT_BYTES_MAX ? FORMAT_SEGMENT_BYTES_MAX
						  : file;
}

static int make_dir(struct disk *d, const char *name, struct err *err)
{
	char path[PATH_ROOM];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", d->dir, name);
	rc = io_mkdir(d->io, path, 0700);
	if (rc < 0 && rc != ERR_EXIST)
		return err_set(err, rc, "cannot create %s: %s", path, err_text(rc));
	return 0;
}

static int write_superblock(struct disk *d, const struct format_superblock *sb, uint8_t bytes[FORMAT_SUPERBLOCK_BYTES])
{
	char path[PATH_ROOM];

	snprintf(path, sizeof(path), "%s/superblock", d->dir);
	format_superblock_encode(sb, bytes);
	return io_write_file(d->io, path, bytes, FORMAT_SUPERBLOCK_BYTES, 0600);
}

static int format_disk(struct disk *d, const struct disk_options *o, uint64_t capacity, struct err *err)
{
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
	int rc;

	if (make_dir(d, "segments", err) < 0 || make_dir(d, "index", err) < 0)
		return err->code;
	rc = io_sync_dir(d->io, d->dir);
	if (rc < 0)
		return err_set(err, rc, "cannot sync %s: %s", d->dir, err_text(rc));
	d->sb = (struct format_superblock){.cluster = o->cluster,
		.storage_class = FORMAT_CLASS_SSD,
		.segment_bytes = choose_segment_bytes(o, capacity),
		.created_ns = io_wall_ns(d->io)};
	io_random(d->io, d->sb.disk_uuid.bytes, sizeof(d->sb.disk_uuid.bytes));
	io_random(d->io, d->sb.secret, sizeof(d->sb.secret));
	if (capacity < ALLOC_CLASSES * d->sb.segment_bytes)
		return err_set(err, ERR_NOSPC, "%s: a capacity of %llu MiB is too small, at least %llu MiB are needed",
			d->dir, (unsigned long long)(capacity >> 20),
			(unsigned long long)((ALLOC_CLASSES * d->sb.segment_bytes >> 20) + 1));
	rc = write_superblock(d, &d->sb, bytes);
	if (rc < 0)
		return err_set(err, rc, "cannot write %s/superblock: %s", d->dir, err_text(rc));
	return 0;
}

static int no_superblock(struct disk *d, const struct disk_options *o, uint64_t capacity, struct err *err)
{
	struct disk_found found;
	int rc = disk__look(d->io, o, &found, err);

	if (rc)
		return rc;
	if (found.superblock)
		return err_set(err, ERR_CORRUPT, "%s/superblock is there and cannot be opened, as a link to what is not mounted: mount it, or restore the file", d->dir);
	return format_disk(d, o, capacity, err);
}

static int read_superblock(struct disk *d, const struct disk_options *o, uint64_t capacity, struct err *err)
{
	char path[PATH_ROOM], want[UUID_TEXT_BYTES], have[UUID_TEXT_BYTES], *bytes;
	size_t len;
	int rc;

	snprintf(path, sizeof(path), "%s/superblock", d->dir);
	rc = io_read_file(d->io, path, FORMAT_SUPERBLOCK_BYTES, &bytes, &len);
	if (rc == ERR_NOENT)
		return no_superblock(d, o, capacity, err);
	/* The last life may have ended behind the rename of a new superblock: metad is told only of what stays. */
	if (rc == 0) {
		rc = io_sync_dir(d->io, d->dir);
		if (rc < 0)
			mem_free(bytes);
	}
	if (rc < 0)
		return err_set(err, rc, "cannot read %s: %s", path, err_text(rc));
	rc = format_superblock_decode(slice_of(bytes, len), &d->sb, err);
	mem_free(bytes);
	if (rc < 0)
		return err_prefix(err, "%s", path);
	if (!uuid_equal(&d->sb.cluster, &o->cluster)) {
		uuid_format(&o->cluster, want);
		uuid_format(&d->sb.cluster, have);
		return err_set(err, ERR_WRONG_CLUSTER,
			"%s belongs to cluster %s, not to %s: use another directory, or the configuration of that cluster",
			d->dir, have, want);
	}
	return 0;
}

/* ---- opening ---- */

static int open_lock(struct disk *d, struct err *err)
{
	char path[PATH_ROOM];
	int rc, fd;

	snprintf(path, sizeof(path), "%s/lock", d->dir);
	rc = io_open(d->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &d->lock_fd);
	if (rc < 0)
		return err_set(err, rc, "cannot write in the disk directory %s: %s", d->dir, err_text(rc));
	rc = io_lock(d->io, d->lock_fd);
	if (rc < 0)
		return err_set(err, rc, "the disk %s is in use by another craton-chunkd, or its lock by another program (fuser %s, as root, names it): stop that one first", d->dir, path);
	rc = io_open(d->io, path, IO_OPEN_WRITE | IO_OPEN_DIRECT, 0, &fd);
	if (rc == 0) {
		io_close(d->io, fd);
	} else if (rc == ERR_INVAL || rc == ERR_OPNOTSUPP) {
		d->buffered = true;
		log_line(d->log, LOG_WARN, "no-direct-io",
			"disk=%s text=\"the file system has no O_DIRECT: slower, through the page cache\"", d->dir);
	} else {
		return err_set(err, rc, "cannot open %s: %s", path, err_text(rc));
	}
	return 0;
}

static int note_row(void *ctx, const struct index_row *row, struct err *err)
{
	struct disk *d = ctx;

	(void)err;
	if (d->load.count == d->load.cap) {
		d->load.cap = d->load.cap ? 2 * d->load.cap : 1024;
		d->load.extents = mem_realloc(d->load.extents, d->load.cap * sizeof(*d->load.extents));
	}
	d->load.extents[d->load.count++] = row->extent;
	return 0;
}

static int by_place(const void *va, const void *vb)
{
	const struct alloc_extent *a = va, *b = vb;

	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return a->first < b->first ? -1 : a->first > b->first;
}

/* In the order of their places: a million of them take a fraction of a second so, and several in the index's order. */
static int reserve_rows(struct disk *d, struct err *err)
{
	int rc = 0;

	if (d->load.count)
		qsort(d->load.extents, d->load.count, sizeof(*d->load.extents), by_place);
	for (size_t i = 0; i < d->load.count && rc == 0; i++) {
		const struct alloc_extent *x = &d->load.extents[i];

		rc = segments_reserve(d->segments, *x);
		if (rc < 0)
			err_set(err, ERR_CORRUPT,
				"the index of %s places a chunk in segment %u at %llu, where %s: run craton-chunkd "
				"--rebuild-index --disk %s",
				d->dir, x->segment, (unsigned long long)x->first * FORMAT_GRAIN_BYTES,
				rc == ERR_EXIST ? "another lies" : "no segment is", d->dir);
	}
	mem_free(d->load.extents);
	memset(&d->load, 0, sizeof(d->load));
	return rc < 0 ? ERR_CORRUPT : 0;
}

static int index_loaded(void *ctx, struct err *err)
{
	struct disk *d = ctx;
	int rc = verify_end(&d->verify, err);

	return rc < 0 ? rc : reserve_rows(d, err);
}

static int verify_row(void *ctx, const struct index_row *row, struct err *err)
{
	struct disk *d = ctx;

	return verify_chunk(&d->verify, row, err);
}

static void on_fatal(void *ctx, int code, const char *text)
{
	disk_fail(ctx, code, text);
}

static int open_parts(struct disk *d, const struct disk_options *o, uint64_t capacity, struct err *err)
{
	uint64_t log_bytes = o->log_segment_bytes ? o->log_segment_bytes : LOG_SEGMENT_BYTES;
	char path[PATH_ROOM];
	int rc;

	hmac_key_init(&d->trailer_key, d->sb.secret);
	snprintf(path, sizeof(path), "%s/index", d->dir);
	rc = segments_open(d->io,
		&(struct segments_options){.dir = d->dir,
			.segment_bytes = d->sb.segment_bytes,
			.capacity_bytes = capacity,
			.reserve_bytes = 4 * log_bytes,
			.buffered = d->buffered,
			.log = d->log,
			.on_fatal = on_fatal,
			.ctx = d},
		&d->segments, err);
	if (rc < 0)
		return rc;
	verify_init(&d->verify, d->io, d->segments, &d->trailer_key, d->log, d->dir, d->buffered);
	rc = index_open(d->io,
		&(struct index_options){.dir = path,
			.backend = o->backend,
			.log_segment_bytes = log_bytes,
			.buffered = d->buffered,
			.each = note_row,
			.loaded = index_loaded,
			.verify = verify_row,
			.on_fatal = on_fatal,
			.ctx = d},
		&d->index, err);
	verify_fini(&d->verify);
	if (rc == ERR_NOENT)
		return err_set(err, rc, "%s is missing: restore it, or run craton-chunkd --rebuild-index --disk %s",
			path, d->dir);
	return rc < 0 ? err_prefix(err, "the index of disk %s", d->dir) : 0;
}

static void ignore_closed(void *ctx)
{
	(void)ctx;
}

static void free_disk(struct disk *d)
{
	if (d->lock_fd >= 0)
		io_close(d->io, d->lock_fd);
	CHECK(d->pins.count == 0);
	map_fini(&d->pins);
	mem_free(d->load.extents);
	mem_free(d->dir);
	mem_free(d);
}

static struct disk *disk_new(struct io *io, const struct disk_options *o)
{
	struct disk *d = MEM_NEW(struct disk);

	d->io = io;
	d->dir = mem_strdup(o->dir);
	d->log = o->log;
	d->pool = o->pool;
	d->lock_fd = -1;
	map_init(&d->pins);
	sched_init(&d->sched, io, o->way);
	return d;
}

static int learn_capacity(const struct disk *d, const struct disk_options *o, uint64_t *ret_capacity, struct err *err)
{
	uint64_t total, left;
	int rc;

	*ret_capacity = o->capacity_bytes;
	if (o->capacity_bytes)
		return 0;
	rc = io_disk_space(d->io, d->dir, &total, &left);
	if (rc < 0)
		return err_set(err, rc, "cannot learn the size of %s: %s", d->dir, err_text(rc));
	*ret_capacity = total / 100 * 95;
	return 0;
}

/*
 * The lock is the first file: others' directories do not get it, nor is a lock that they have taken. A superblock that is missing is judged with the lock
 * held: another one may be making the disk.
 */
static int look_first(const struct disk_options *o, struct io *io, struct err *err)
{
	struct disk_found found;
	int rc = disk__look(io, o, &found, err);

	return found.superblock || (found.lock && rc != ERR_NOTEMPTY) ? 0 : rc;
}

int disk__superblock(struct io *io, const struct disk_options *o, struct format_superblock *ret_sb, struct err *err)
{
	struct disk *d = disk_new(io, o);
	uint64_t capacity;
	int rc = look_first(o, io, err);

	if (rc == 0)
		rc = open_lock(d, err);
	if (rc == 0)
		rc = learn_capacity(d, o, &capacity, err);
	if (rc == 0)
		rc = read_superblock(d, o, capacity, err);
	if (rc == 0)
		*ret_sb = d->sb;
	free_disk(d);
	return rc;
}

int disk_open(struct io *io, const struct disk_options *o, struct disk **ret_disk, struct err *err)
{
	struct disk *d = disk_new(io, o);
	struct err local;
	uint64_t capacity;
	int rc;

	err = err ? err : &local;
	rc = look_first(o, io, err);
	if (rc == 0)
		rc = open_lock(d, err);
	if (rc == 0)
		rc = learn_capacity(d, o, &capacity, err);
	if (rc == 0)
		rc = read_superblock(d, o, capacity, err);
	if (rc == 0)
		rc = open_parts(d, o, capacity, err);
	if (rc < 0) {
		if (d->segments)
			segments_close(d->segments, ignore_closed, NULL);
		free_disk(d);
		return rc;
	}
	d->trailers = trailer_cache_new();
	d->puts = puts_new(d);
	*ret_disk = d;
	return 0;
}

/* ---- closing: uploads, then the index, then the segments ---- */

static void segments_closed(void *ctx)
{
	struct disk *d = ctx;
	void (*closed)(void *ctx) = d->closed;
	void *closed_ctx = d->closed_ctx;

	free_disk(d);
	closed(closed_ctx);
}

static void index_closed(void *ctx)
{
	struct disk *d = ctx;

	d->index = NULL; /* a segment that is being made may still fail the disk */
	segments_close(d->segments, segments_closed, d);
}

/* When nothing is being written any more. */
static void close_index(struct disk *d)
{
	if (!d->closed || d->puts || d->identity.busy || d->drops)
		return;
	trailer_cache_free(d->trailers);
	index_close(d->index, index_closed, d);
}

static void puts_stopped(void *ctx)
{
	struct disk *d = ctx;

	d->puts = NULL;
	close_index(d);
}

void disk_close(struct disk *d, void (*closed)(void *ctx), void *ctx)
{
	d->closed = closed;
	d->closed_ctx = ctx;
	puts_close(d->puts, puts_stopped, d);
}

/* ---- failing, identity ---- */

void disk_fail(struct disk *d, int code, const char *what)
{
	if (d->failed)
		return;
	d->failed = code;
	snprintf(d->failed_text, sizeof(d->failed_text), "%s: %s", what, err_text(code));
	log_line(d->log, LOG_ERROR, "disk-failed", "disk=%u dir=%s error=%s text=\"%s\"", d->sb.disk, d->dir,
		err_name(code), what);
	if (d->index)
		index_doubt(d->index);
}

static void identity_run(struct io_op *op)
{
	struct disk *d = CONTAINER_OF(op, struct disk, identity.op);

	d->identity.code = write_superblock(d, &d->identity.sb, d->identity.bytes);
}

static void identity_done(struct io_op *op)
{
	struct disk *d = CONTAINER_OF(op, struct disk, identity.op);

	d->identity.busy = false;
	if (d->identity.code == 0)
		d->sb = d->identity.sb;
	else if (d->identity.code != ERR_NOSPC) /* a full file system harms nothing: the old superblock is there */
		disk_fail(d, d->identity.code, "writing the superblock failed");
	else if (d->identity.last_code != ERR_NOSPC)
		log_line(d->log, LOG_WARN, "superblock-not-written",
			"disk=%u dir=%s error=%s text=\"no uploads until the file system has some KiB free\"", d->sb.disk,
			d->dir, err_name(ERR_NOSPC));
	d->identity.last_code = d->identity.code;
	if (d->identity.done)
		d->identity.done(d->identity.ctx, d->identity.code);
	close_index(d);
}

void disk_forget_identity(struct disk *d)
{
	d->identity.done = NULL;
}

void disk_set_identity(
	struct disk *d, uint32_t number, uint64_t generation, void (*done)(void *ctx, int code), void *ctx)
{
	CHECK(!d->identity.busy);
	d->identity.busy = true;
	d->identity.sb = d->sb;
	d->identity.sb.disk = number;
	d->identity.sb.generation = generation;
	d->identity.done = done;
	d->identity.ctx = ctx;
	io_prep_offload(&d->identity.op, IO_LANE_FILE, identity_run, identity_done);
	io_submit(d->io, &d->identity.op);
}

/* ---- pins and drops ---- */

static uint64_t pin_key(const struct index_row *row)
{
	return (uint64_t)row->extent.segment << 32 | row->extent.first;
}

static struct pin *pin_get(struct disk *d, const struct index_row *row)
{
	struct pin *pin = map_get(&d->pins, pin_key(row));

	if (!pin) {
		pin = MEM_NEW(struct pin);
		pin->extent = row->extent;
		map_put(&d->pins, pin_key(row), pin);
	}
	return pin;
}

static void pin_settle(struct disk *d, struct pin *pin, const struct index_row *row)
{
	if (pin->count > 0 || pin->dropping)
		return;
	map_remove(&d->pins, pin_key(row));
	if (pin->dropped)
		segments_give(d->segments, pin->extent);
	mem_free(pin);
}

void disk_pin(struct disk *d, const struct index_row *row)
{
	pin_get(d, row)->count++;
}

void disk_unpin(struct disk *d, const struct index_row *row)
{
	struct pin *pin = map_get(&d->pins, pin_key(row));

	CHECK(pin && pin->count > 0);
	pin->count--;
	pin_settle(d, pin, row);
}

static void drop_done(struct index_change *change, int code)
{
	struct disk_drop *drop = CONTAINER_OF(change, struct disk_drop, change);
	struct disk *d = drop->disk;
	struct pin *pin = pin_get(d, &change->row);

	pin->dropping = false;
	pin->dropped = code == 0;
	SOMETIMES(chunkd_copy_dropped);
	pin_settle(d, pin, &change->row);
	drop->done(drop, code);
	d->drops--;
	close_index(d);
}

int disk_drop(struct disk *d, const struct copy_id *copy, struct disk_drop *drop)
{
	struct pin *pin;
	int rc;

	if (d->failed)
		return ERR_DISK_FAILED;
	rc = index_get(d->index, copy, &drop->change.row);
	if (rc < 0)
		return rc;
	pin = pin_get(d, &drop->change.row);
	if (pin->dropping)
		return ERR_BUSY;
	pin->dropping = true;
	d->drops++;
	trailer_cache_forget(d->trailers, copy);
	drop->disk = d;
	drop->change.done = drop_done;
	index_drop(d->index, &drop->change);
	return 0;
}
