/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a file. Extending one on the data path halves the speed, so a segment is allocated in one piece, synced under a temporary name
 * and renamed: a name in the directory is a usable segment, whatever crashed. At most one is being made at a time, on a file worker.
 * A class asks for its next one when half of its last is used or when it has less than AHEAD_BYTES free; a disk with little capacity
 * left makes them only on need, so that the last ones go to the class that wants them. When none can be made any more, for want of capacity or
 * of space on the file system, classes lend each other room: where an extent lies matters to who looks for one, never to who reads it.
 *
 * Failure. No space on the file system, or any other error while a file is made, is not an error of the disk. Where space is what is missing,
 * uploads get room of another class, and making is not tried again for RETRY_NS. After any other error, which may be over in a moment, they
 * are to come again (ERR_OVERLOADED) for SOON_NS: what is lent comes back late. When it fails again it lasts (no descriptors, a file system that has
 * become read-only): then no upload waits for a file any more, what is lent and what is left is all that the disk offers, and making is
 * tried again with the server's heartbeats, after pauses that double up to RETRY_MAX_NS. A failed sync is one of the disk, also of a file being made: what it would have made
 * durable may be lost, and the kernel may not say so twice. A file that got its name and whose directory was not synced would also keep
 * its number, which the next one made, of another class, would have too.
 */
#include "chunkd/segment.h"

#include <stdio.h>
#include <string.h>
#include "chunkd/format.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"

enum { PATH_ROOM = 4096 + 64 };

#define AHEAD_BYTES ((uint64_t)128 << 20)
#define RETRY_NS (2000000000ull)
#define SOON_NS (250000000ull)
#define RETRY_MAX_NS (60000000000ull)

static const char *const class_names[ALLOC_CLASSES] = {"small", "medium", "large"};

struct segment {
	struct segments *owner;
	uint32_t number;
	uint8_t class;
	int fd;
	struct list waiting, syncing; /* segment_sync_wait */
	struct io_op sync;
	struct io_turn_hook hook; /* starts a sync for all that joined in this turn */
};

struct segments {
	struct io *io;
	struct segments_options o;
	char *dir;
	struct alloc alloc;
	struct segment **table; /* by number; NULL where there is none */
	uint32_t table_count, made;
	uint32_t last[ALLOC_CLASSES]; /* newest segment of the class */
	bool has[ALLOC_CLASSES];
	struct list waiting[ALLOC_CLASSES];
	uint64_t retry_at_ns; /* making failed: not before */
	int make_code;        /* of the last try */
	uint32_t failures;    /* in a row, but for want of space */
	struct {
		struct io_op op;
		bool busy, sync_failed;
		uint8_t class;
		uint32_t number;
		int fd, code;
	} make;
	struct {
		struct io_op op;
		bool busy;
		uint64_t left;
		int code;
	} space;
	uint64_t space_left; /* of the file system, less the reserve, when last asked */
	void (*closed)(void *ctx);
	void *closed_ctx;
};

static void sync_start(struct io_turn_hook *hook);

static uint32_t segment_grains(const struct segments *s)
{
	return (uint32_t)(s->o.segment_bytes / FORMAT_GRAIN_BYTES);
}

static void file_name(char name[SEGMENT_NAME_BYTES], uint32_t number, uint8_t class)
{
	snprintf(name, SEGMENT_NAME_BYTES, "%08u-%s", number, class_names[class]);
}

static void add_segment(struct segments *s, uint32_t number, uint8_t class, int fd)
{
	struct segment *seg = MEM_NEW(struct segment);

	if (number >= s->table_count) {
		s->table = mem_realloc(s->table, (number + 1) * sizeof(*s->table));
		memset(s->table + s->table_count, 0, (number + 1 - s->table_count) * sizeof(*s->table));
		s->table_count = number + 1;
	}
	CHECK(!s->table[number]);
	seg->owner = s;
	seg->number = number;
	seg->class = class;
	seg->fd = fd;
	list_init(&seg->waiting);
	list_init(&seg->syncing);
	io_turn_hook_init(&seg->hook, sync_start);
	s->table[number] = seg;
	s->made++;
	s->last[class] = number;
	s->has[class] = true;
	alloc_add_segment(&s->alloc, number, class, segment_grains(s));
}

/* ---- opening ---- */

#define UNFINISHED "new-"

struct listing {
	struct segments *s;
	struct err *err;
};

bool segment_parse_name(const char *name, uint32_t *ret_number, enum alloc_class *ret_class)
{
	uint32_t number = 0;
	int i = 0;

	for (; i < 8; i++) {
		if (name[i] < '0' || name[i] > '9')
			return false;
		number = number * 10 + (uint32_t)(name[i] - '0');
	}
	if (name[i] != '-' || number >= SEGMENT_COUNT_MAX)
		return false;
	for (uint8_t class = 0; class < ALLOC_CLASSES; class ++) {
		if (strcmp(name + i + 1, class_names[class]) == 0) {
			*ret_number = number;
			*ret_class = (enum alloc_class) class;
			return true;
		}
	}
	return false;
}

static bool is_unfinished(const char *name)
{
	return strncmp(name, UNFINISHED, strlen(UNFINISHED)) == 0;
}

bool segment_has_name(const char *name)
{
	enum alloc_class class;
	uint32_t number;

	return segment_parse_name(is_unfinished(name) ? name + strlen(UNFINISHED) : name, &number, &class);
}

static int open_one(void *ctx, const char *name)
{
	struct listing *l = ctx;
	struct segments *s = l->s;
	char path[PATH_ROOM];
	uint64_t bytes;
	uint32_t number;
	enum alloc_class class;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/segments/%s", s->dir, name);
	if (is_unfinished(name))
		return io_unlink(s->io, path); /* a crash came before its rename: nothing lies in it */
	if (!segment_parse_name(name, &number, &class))
		return 0;
	if (number < s->table_count && s->table[number])
		return err_set(l->err, ERR_CORRUPT, "%s: two segment files have the number %u", path, number);
	rc = io_open(s->io, path, IO_OPEN_WRITE | (s->o.buffered ? 0 : IO_OPEN_DIRECT), 0, &fd);
	if (rc < 0)
		return err_set(l->err, rc, "cannot open %s: %s", path, err_text(rc));
	rc = io_size(s->io, fd, &bytes);
	if (rc < 0 || bytes != s->o.segment_bytes) {
		io_close(s->io, fd);
		return err_set(l->err, rc < 0 ? rc : ERR_CORRUPT,
			"%s has %llu bytes instead of %llu: something changed it", path, (unsigned long long)bytes,
			(unsigned long long)s->o.segment_bytes);
	}
	add_segment(s, number, class, fd);
	return 0;
}

/* Any thread. */
static int space_ask(struct segments *s, uint64_t *ret_left)
{
	uint64_t total, left;
	int rc = io_disk_space(s->io, s->dir, &total, &left);

	if (rc == 0)
		*ret_left = left > s->o.reserve_bytes ? left - s->o.reserve_bytes : 0;
	return rc;
}

static void free_all(struct segments *s)
{
	for (uint32_t i = 0; i < s->table_count; i++) {
		struct segment *seg = s->table[i];

		if (!seg)
			continue;
		CHECK(list_empty(&seg->waiting) && list_empty(&seg->syncing));
		io_turn_hook_remove(s->io, &seg->hook);
		io_close(s->io, seg->fd);
		mem_free(seg);
	}
	alloc_fini(&s->alloc);
	mem_free(s->table);
	mem_free(s->dir);
	mem_free(s);
}

int segments_open(
	struct io *io, const struct segments_options *options, struct segments **ret_segments, struct err *err)
{
	struct segments *s = MEM_NEW(struct segments);
	struct listing listing = {s, err};
	char path[PATH_ROOM];
	int rc;

	s->io = io;
	s->o = *options;
	s->dir = mem_strdup(options->dir);
	s->make.fd = -1;
	alloc_init(&s->alloc);
	for (int i = 0; i < ALLOC_CLASSES; i++)
		list_init(&s->waiting[i]);
	snprintf(path, sizeof(path), "%s/segments", s->dir);
	if (err)
		err->code = 0;
	rc = space_ask(s, &s->space_left);
	if (rc == 0)
		rc = io_list_dir(io, path, open_one, &listing);
	/* The last life may have ended behind a rename, before its sync. */
	if (rc == 0)
		rc = io_sync_dir(io, path);
	if (rc < 0) {
		if (err && err->code == 0)
			err_set(err, rc, "cannot read and sync %s: %s", path, err_text(rc));
		free_all(s);
		return rc;
	}
	*ret_segments = s;
	return 0;
}

static void close_when_idle(struct segments *s)
{
	void (*closed)(void *ctx) = s->closed;
	void *ctx = s->closed_ctx;

	if (s->make.busy || s->space.busy)
		return;
	free_all(s);
	closed(ctx);
}

void segments_close(struct segments *s, void (*closed)(void *ctx), void *ctx)
{
	for (int i = 0; i < ALLOC_CLASSES; i++)
		CHECK(list_empty(&s->waiting[i]));
	s->closed = closed;
	s->closed_ctx = ctx;
	close_when_idle(s);
}

int segments_reserve(struct segments *s, struct alloc_extent extent)
{
	return alloc_reserve(&s->alloc, extent);
}

/* ---- making files ---- */

static bool may_make(const struct segments *s)
{
	return (s->made + 1) * s->o.segment_bytes <= s->o.capacity_bytes && s->table_count < SEGMENT_COUNT_MAX;
}

/* It has failed again and again: nobody waits for it, nor counts on it. */
static bool is_stuck(const struct segments *s)
{
	return s->failures > 1;
}

static uint64_t pause_ns(const struct segments *s)
{
	uint32_t doubled = s->failures > 2 ? s->failures - 2 : 0;

	if (s->failures == 1)
		return SOON_NS;
	return doubled < 5 && RETRY_NS << doubled < RETRY_MAX_NS ? RETRY_NS << doubled : RETRY_MAX_NS;
}

/* On a file worker: reads options and writes s->make only. */
static void make_run(struct io_op *op)
{
	struct segments *s = CONTAINER_OF(op, struct segments, make.op);
	char name[SEGMENT_NAME_BYTES], dir[PATH_ROOM], temp[2 * PATH_ROOM], path[2 * PATH_ROOM];
	uint64_t left;
	int fd = -1, rc;

	file_name(name, s->make.number, s->make.class);
	snprintf(dir, sizeof(dir), "%s/segments", s->dir);
	snprintf(temp, sizeof(temp), "%s/" UNFINISHED "%s", dir, name);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	rc = space_ask(s, &left);
	if (rc == 0 && left < s->o.segment_bytes)
		rc = ERR_NOSPC;
	if (rc == 0)
		rc = io_open(s->io, temp,
			IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE | (s->o.buffered ? 0 : IO_OPEN_DIRECT), 0600,
			&fd);
	if (rc == 0)
		rc = io_allocate(s->io, fd, 0, s->o.segment_bytes);
	if (rc == 0) {
		rc = io_fdatasync(s->io, fd);
		s->make.sync_failed = rc < 0 && rc != ERR_NOSPC;
	}
	if (rc == 0)
		rc = io_rename(s->io, temp, path);
	if (rc == 0) {
		rc = io_sync_dir(s->io, dir);
		s->make.sync_failed = rc < 0;
		if (rc < 0)
			(void)io_unlink(s->io, path); /* if that fails too, the next start takes it as it is: whole */
	}
	if (rc < 0 && fd >= 0) {
		io_close(s->io, fd);
		(void)io_unlink(s->io, temp); /* the next try or the next start removes it as well */
		fd = -1;
	}
	s->make.fd = fd;
	s->make.code = rc;
}

static void make_done(struct io_op *op);

static void make_start(struct segments *s, enum alloc_class class)
{
	if (s->make.busy)
		return;
	s->make.busy = true;
	s->make.sync_failed = false;
	s->make.class = (uint8_t) class;
	s->make.number = s->table_count;
	io_prep_offload(&s->make.op, IO_LANE_FILE, make_run, make_done);
	io_submit(s->io, &s->make.op);
}

/*
 * No further segment is to be had: one of another class serves as well, if it has room. A greater one first: many small extents in a
 * segment of great ones do less harm than the other way round.
 */
static int borrow(struct segments *s, struct segment_wait *w)
{
	int rc = ERR_NO_EXTENT;

	for (int i = (int)w->class + 1; rc < 0 && i < ALLOC_CLASSES; i++)
		rc = alloc_borrow(&s->alloc, i, w->grains, &w->extent);
	for (int i = (int)w->class - 1; rc < 0 && i >= 0; i--)
		rc = alloc_borrow(&s->alloc, i, w->grains, &w->extent);
	if (rc < 0)
		SOMETIMES(segment_no_extent);
	return rc;
}

/* `code`: why no segment was made; 0, or how making one ended a moment ago. */
static int take_without(struct segments *s, struct segment_wait *w, int code)
{
	bool passes = code < 0 && code != ERR_NOSPC && may_make(s) && !is_stuck(s);

	return passes ? ERR_OVERLOADED : borrow(s, w);
}

static void serve_waiting(struct segments *s, enum alloc_class class, int code)
{
	struct list now;

	list_init(&now);
	while (!list_empty(&s->waiting[class]))
		list_push_back(&now, list_pop_front(&s->waiting[class]));
	while (!list_empty(&now)) {
		struct segment_wait *w = LIST_ENTRY(list_pop_front(&now), struct segment_wait, link);
		int rc = alloc_take(&s->alloc, class, w->grains, &w->extent);

		if (rc < 0 && code == 0 && may_make(s))
			list_push_back(&s->waiting[class], &w->link);
		else
			w->done(w, rc < 0 ? take_without(s, w, code) : 0);
	}
}

static void make_done(struct io_op *op)
{
	struct segments *s = CONTAINER_OF(op, struct segments, make.op);
	int code = s->make.code, class = s->make.class;

	s->make.busy = false;
	s->failures = code == 0 || code == ERR_NOSPC ? 0 : s->failures + 1;
	if (code == 0)
		add_segment(s, s->make.number, s->make.class, s->make.fd);
	else
		s->retry_at_ns = io_now_ns(s->io) + pause_ns(s);
	if (code != s->make_code && code < 0)
		log_line(s->o.log, LOG_WARN, "segment-not-made", "disk=%s class=%s error=%s", s->dir,
			class_names[class], err_name(code));
	s->make_code = code;
	if (s->make.sync_failed)
		s->o.on_fatal(s->o.ctx, code, "sync of a new segment failed");
	if (s->closed) {
		close_when_idle(s);
		return;
	}
	if (code == 0)
		s->space_left -= s->space_left < s->o.segment_bytes ? s->space_left : s->o.segment_bytes;
	else if (code == ERR_NOSPC)
		s->space_left = 0;
	for (int i = 0; i < ALLOC_CLASSES; i++) {
		/* After a failure nobody waits on; after a success those of the other classes wait for their own file. */
		if (code < 0 || i == class)
			serve_waiting(s, i, code);
	}
	for (int i = 0; i < ALLOC_CLASSES; i++) {
		if (list_empty(&s->waiting[i]))
			continue;
		if (may_make(s))
			make_start(s, i);
		else
			serve_waiting(s, i, 0);
	}
}

static void make_ahead(struct segments *s, enum alloc_class class)
{
	uint64_t left = s->o.capacity_bytes / s->o.segment_bytes - s->made;
	bool half = alloc_segment_free(&s->alloc, s->last[class]) < segment_grains(s) / 2;

	if (s->make.busy || !may_make(s) || left <= 2 * ALLOC_CLASSES || io_now_ns(s->io) < s->retry_at_ns)
		return;
	if (half || (class != ALLOC_SMALL && alloc_free_grains(&s->alloc, class) * FORMAT_GRAIN_BYTES < AHEAD_BYTES))
		make_start(s, class);
}

/* ---- extents ---- */

int segments_take(struct segments *s, struct segment_wait *w)
{
	int rc = alloc_take(&s->alloc, w->class, w->grains, &w->extent);

	if (rc == 0) {
		make_ahead(s, w->class);
		return 0;
	}
	if (w->grains > segment_grains(s))
		return ERR_NO_EXTENT;
	if (!may_make(s) || is_stuck(s) || io_now_ns(s->io) < s->retry_at_ns)
		return take_without(s, w, s->make_code);
	list_push_back(&s->waiting[w->class], &w->link);
	make_start(s, w->class);
	return ERR_AGAIN;
}

void segments_wait_cancel(struct segment_wait *w)
{
	if (list_linked(&w->link))
		list_remove(&w->link);
}

void segments_give(struct segments *s, struct alloc_extent extent)
{
	alloc_give(&s->alloc, extent);
}

bool segments_has(const struct segments *s, uint32_t segment)
{
	return segment < s->table_count && s->table[segment];
}

int segments_fd(const struct segments *s, uint32_t segment)
{
	CHECK(segments_has(s, segment));
	return s->table[segment]->fd;
}

void segments_name(const struct segments *s, uint32_t segment, char ret_name[SEGMENT_NAME_BYTES])
{
	char name[SEGMENT_NAME_BYTES];

	ret_name[0] = 0;
	if (!segments_has(s, segment))
		return;
	file_name(name, segment, s->table[segment]->class);
	snprintf(ret_name, SEGMENT_NAME_BYTES, "segments/%.20s", name);
}

/* ---- shared syncs ---- */

static void sync_done(struct io_op *op)
{
	struct segment *seg = CONTAINER_OF(op, struct segment, sync);
	struct segments *s = seg->owner;
	int code = op->result < 0 ? (int)op->result : 0;
	struct list now;
	char name[SEGMENT_NAME_BYTES], text[2 * SEGMENT_NAME_BYTES];

	list_init(&now);
	while (!list_empty(&seg->syncing))
		list_push_back(&now, list_pop_front(&seg->syncing));
	if (code < 0) {
		segments_name(s, seg->number, name);
		snprintf(text, sizeof(text), "sync of %s failed", name);
		s->o.on_fatal(s->o.ctx, code, text);
	}
	if (!list_empty(&seg->waiting))
		io_at_turn_end(s->io, &seg->hook);
	while (!list_empty(&now)) {
		struct segment_sync_wait *w = LIST_ENTRY(list_pop_front(&now), struct segment_sync_wait, link);

		w->done(w, code);
	}
}

static void sync_start(struct io_turn_hook *hook)
{
	struct segment *seg = CONTAINER_OF(hook, struct segment, hook);

	if (!list_empty(&seg->syncing) || io_pending(&seg->sync))
		return;
	while (!list_empty(&seg->waiting))
		list_push_back(&seg->syncing, list_pop_front(&seg->waiting));
	if (list_empty(&seg->syncing))
		return;
	io_prep_sync(&seg->sync, seg->fd, sync_done);
	io_submit(seg->owner->io, &seg->sync);
}

void segments_sync(struct segments *s, uint32_t segment, struct segment_sync_wait *w)
{
	struct segment *seg;

	CHECK(segments_has(s, segment));
	seg = s->table[segment];
	list_push_back(&seg->waiting, &w->link);
	io_at_turn_end(s->io, &seg->hook);
}

/* ---- figures ---- */

uint64_t segments_free_bytes(const struct segments *s, uint32_t size)
{
	uint64_t made = s->made * s->o.segment_bytes, more = 0, whole = alloc_fit_whole(&s->alloc, size, segment_grains(s));

	if (s->o.capacity_bytes > made && !is_stuck(s))
		more = s->o.capacity_bytes - made;
	if (more > s->space_left)
		more = s->space_left;
	return (alloc_fit_grains(&s->alloc, size) + more / s->o.segment_bytes * whole) * FORMAT_GRAIN_BYTES;
}

static void space_run(struct io_op *op)
{
	struct segments *s = CONTAINER_OF(op, struct segments, space.op);

	s->space.code = space_ask(s, &s->space.left);
}

static void space_done(struct io_op *op)
{
	struct segments *s = CONTAINER_OF(op, struct segments, space.op);

	s->space.busy = false;
	if (s->space.code == 0)
		s->space_left = s->space.left;
	if (s->closed)
		close_when_idle(s);
}

void segments_refresh(struct segments *s, bool makes)
{
	if (s->closed)
		return;
	if (makes && is_stuck(s) && may_make(s) && io_now_ns(s->io) >= s->retry_at_ns)
		make_start(s, s->make.class);
	if (s->space.busy)
		return;
	s->space.busy = true;
	io_prep_offload(&s->space.op, IO_LANE_FILE, space_run, space_done);
	io_submit(s->io, &s->space.op);
}

int segments_stuck(const struct segments *s)
{
	return is_stuck(s) ? s->make_code : 0;
}

uint64_t segments_capacity_bytes(const struct segments *s)
{
	return s->o.capacity_bytes;
}

uint64_t segments_made_bytes(const struct segments *s)
{
	return s->made * s->o.segment_bytes;
}
