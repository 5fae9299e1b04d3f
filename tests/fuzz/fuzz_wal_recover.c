/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a log whose files were changed: a plain one, and that of a replica, with cuts, both of two segments, on a simulated disk. The input is a list of
 * changes: of bytes, pages, lengths and names; a frame or a slot may get the CRC that fits it.
 *
 * An open that fails says why, and has changed nothing. One that succeeds gives out entries without a gap, and the next one finds the same. They are as
 * they were written, unless a CRC was mended or a page put elsewhere. The last frame says that all were durable: where one other page was changed, none
 * of them is missing.
 */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "common/kv/wal_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const int fuzz_mutations; /* for fuzz_replay: a run takes a millisecond, ten with a sanitizer */
const int fuzz_mutations = 150;

enum {
	SEGMENT_BYTES = 1 << 20,
	DISK_BYTES = 16 << 20,
	PAGE = WAL_FRAME_ALIGN,
	FILES = 6, /* two segments, those that are ready or in the making, slots */
	ENTRIES = 90,
	ENTRY_MAX = 50000,
	CHANGES = 8,
	REPLICA = 3,
};

static const char folder[] = "/log";

struct image_file {
	char name[64];
	uint64_t bytes;
	uint8_t *data; /* room for a segment */
};

/* A log as it lies on the disk. */
struct image {
	uint32_t count;
	struct image_file files[FILES];
};

/* ---- a disk with a log ---- */

struct disk {
	struct sim *sim;
	struct io *host;
	struct wal *wal;
	bool group;
	bool forged;       /* entries may be anything */
	uint64_t from, to; /* what an open gave out */
	uint32_t crc;      /* of all that */
	uint32_t in_flight;
	struct wal_save save;
	bool closed;
};

static void disk_init(struct disk *d, bool group)
{
	*d = (struct disk){.sim = sim_new(&(struct sim_options){.seed = 1}), .group = group};
	d->host = sim_host_add(d->sim, "host", DISK_BYTES);
	CHECK(io_mkdir(d->host, folder, 0700) == 0);
}

static size_t entry_bytes(uint64_t index)
{
	static const size_t sizes[] = {20, 4000, ENTRY_MAX, 300, 9000};

	return sizes[index % 5];
}

static void entry_fill(uint64_t index, uint8_t *out)
{
	memset(out, (int)(index % 251), entry_bytes(index));
	memcpy(out, &index, sizeof(index));
}

static int on_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	static uint8_t want[ENTRY_MAX];
	struct disk *d = ctx;

	(void)err;
	CHECK(data.len > 0 && data.len <= LIMIT_LOG_ENTRY_BYTES);
	CHECK(!d->to || index == d->to + 1);
	d->from = d->to ? d->from : index;
	d->to = index;
	d->crc = crc32c_extend(d->crc, data.data, data.len);
	if (d->forged)
		return 0;
	CHECK(data.len == entry_bytes(index));
	entry_fill(index, want);
	CHECK(memcmp(data.data, want, data.len) == 0);
	return 0;
}

static void on_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	(void)code;
	(void)text;
	CHECK(!"nothing fails while the log is open");
}

static int open_log(struct disk *d, struct err *err)
{
	const struct wal_replica replica = {.cluster = "fuzzed", .replica = REPLICA};
	const struct wal_options options = {.dir = folder,
		.segment_bytes = SEGMENT_BYTES,
		.replica = d->group ? &replica : NULL,
		.on_fatal = on_fatal};

	d->from = d->to = 0;
	d->crc = 0;
	return wal_open(d->host, &options, 1, on_entry, d, &d->wal, err);
}

/* ---- files ---- */

static int file_open(struct disk *d, const char *name, uint32_t flags)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	CHECK(io_open(d->host, path, flags, 0600, &fd) == 0);
	return fd;
}

static void file_read(struct disk *d, struct image_file *f)
{
	int fd = file_open(d, f->name, 0);

	CHECK(io_size(d->host, fd, &f->bytes) == 0 && f->bytes <= SEGMENT_BYTES);
	CHECK(io_pread(d->host, fd, f->data, f->bytes, 0) == (int64_t)f->bytes);
	io_close(d->host, fd);
}

/* Whole if there was none of this length; else what differs. `now`: NULL, or as it is. */
static void file_write(struct disk *d, const struct image_file *now, const struct image_file *f)
{
	static const uint8_t zeros[PAGE];
	int fd = file_open(d, f->name, IO_OPEN_WRITE | IO_OPEN_CREATE);

	for (uint64_t at = 0, n; at < f->bytes; at += n) {
		n = f->bytes - at < PAGE ? f->bytes - at : PAGE;
		if (now ? memcmp(f->data + at, now->data + at, n) != 0
			: at + n == f->bytes || memcmp(f->data + at, zeros, n) != 0)
			CHECK(io_pwrite(d->host, fd, f->data + at, n, at) == (int64_t)n);
	}
	io_close(d->host, fd);
}

static void file_remove(struct disk *d, const struct image_file *f)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, f->name);
	CHECK(io_unlink(d->host, path) == 0);
}

static int add_name(void *ctx, const char *name)
{
	struct image *im = ctx;

	CHECK(im->count < FILES && strlen(name) < sizeof(im->files[0].name));
	strcpy(im->files[im->count++].name, name);
	return 0;
}

static void image_init(struct image *im)
{
	*im = (struct image){0};
	for (int i = 0; i < FILES; i++)
		im->files[i].data = mem_alloc(SEGMENT_BYTES);
}

static void image_read(struct disk *d, struct image *im)
{
	im->count = 0;
	CHECK(io_list_dir(d->host, folder, add_name, im) == 0);
	for (uint32_t i = 0; i < im->count; i++)
		file_read(d, &im->files[i]);
}

static void image_copy(struct image *to, const struct image *from)
{
	to->count = from->count;
	for (uint32_t i = 0; i < from->count; i++) {
		strcpy(to->files[i].name, from->files[i].name);
		to->files[i].bytes = from->files[i].bytes;
		memcpy(to->files[i].data, from->files[i].data, from->files[i].bytes);
	}
}

static struct image_file *image_find(struct image *im, const char *name)
{
	for (uint32_t i = 0; i < im->count; i++)
		if (strcmp(im->files[i].name, name) == 0)
			return &im->files[i];
	return NULL;
}

/* ---- a log is written ---- */

struct one_append {
	struct wal_append append;
	struct disk *disk;
	uint8_t data[ENTRY_MAX];
};

static void appended(struct wal_append *append, int code)
{
	struct one_append *a = CONTAINER_OF(append, struct one_append, append);

	CHECK(code == 0 || code == ERR_CANCELED);
	a->disk->in_flight--;
	mem_free(a);
}

static void append(struct disk *d, uint64_t term)
{
	struct one_append *a = MEM_NEW(struct one_append);
	uint64_t index = wal_next_index(d->wal);

	a->disk = d;
	entry_fill(index, a->data);
	a->append = (struct wal_append){.data = slice_of(a->data, entry_bytes(index)), .term = term, .done = appended};
	d->in_flight++;
	wal_submit(d->wal, &a->append);
}

static bool is_quiet(void *ctx)
{
	return ((struct disk *)ctx)->in_flight == 0;
}

static bool is_closed(void *ctx)
{
	return ((struct disk *)ctx)->closed;
}

static void run(struct disk *d, bool (*until)(void *ctx))
{
	CHECK(sim_run(d->sim, until, d, sim_now_ns(d->sim) + 60000000000u));
}

static void on_saved(struct wal_save *save, int code)
{
	CHECK(code == 0);
	CONTAINER_OF(save, struct disk, save)->in_flight--;
}

static void on_closed(void *ctx, int code)
{
	CHECK(code == 0);
	((struct disk *)ctx)->closed = true;
}

static void next_term(struct disk *d)
{
	d->save = (struct wal_save){.term = d->save.term + 1, .vote = REPLICA, .done = on_saved};
	d->in_flight++;
	wal_save(d->wal, &d->save);
	run(d, is_quiet);
}

/* In a group a new term cuts off three entries now and then, behind one that is committed. */
static void write_log(struct disk *d)
{
	struct err err = {0};
	uint64_t cut_at = 9;

	CHECK(open_log(d, &err) == 0);
	if (d->group)
		next_term(d);
	while (wal_next_index(d->wal) <= ENTRIES) {
		append(d, d->save.term);
		if (wal_next_index(d->wal) % 3)
			run(d, is_quiet);
		if (d->group && wal_next_index(d->wal) > cut_at) {
			wal_note_commit(d->wal, wal_next_index(d->wal) - 4);
			wal_cut(d->wal, wal_next_index(d->wal) - 3);
			next_term(d);
			cut_at += 9;
		}
	}
	run(d, is_quiet);
	wal_close(d->wal, on_closed, d);
	run(d, is_closed);
}

/* The image of a kind of log, and where its last frame is. */
static const struct image *written(bool group, uint32_t *ret_file, uint64_t *ret_page)
{
	static struct image images[2];
	static uint32_t files[2];
	static uint64_t pages[2];
	struct image *im = &images[group];
	uint64_t number = 0;
	struct wal_frame f;
	struct disk d;
	size_t bytes;

	if (!im->count) {
		image_init(im);
		disk_init(&d, group);
		write_log(&d);
		image_read(&d, im);
		sim_free(d.sim);
	}
	for (uint32_t i = 0; i < im->count && !pages[group]; i++)
		for (uint64_t at = 0; at < im->files[i].bytes; at += PAGE) {
			if (wal_frame_peek(im->files[i].data + at, &f, &bytes) || f.number < number)
				continue;
			number = f.number;
			files[group] = i;
			pages[group] = at / PAGE;
		}
	CHECK(pages[group]);
	*ret_file = files[group];
	*ret_page = pages[group];
	return im;
}

/* ---- changes ---- */

enum change {
	CHANGE_BYTE,
	CHANGE_BYTE_MENDED,
	CHANGE_ZEROS,
	CHANGE_TAIL,
	CHANGE_COPY,
	CHANGE_LENGTH,
	CHANGE_GONE,
	CHANGE_NAME,
	CHANGE_KINDS
};

struct changes {
	uint32_t count;
	bool forged;
	bool plain; /* none but of bytes, in pages that are not the last frame's */
};

/* Of the frame or, in a file that is no segment, the slot that begins here. */
static void mend_crc(const struct image_file *f, uint64_t at)
{
	uint64_t end = PAGE;
	struct rcursor r;
	struct wcursor w;

	rcursor_init(&r, f->data + at, PAGE);
	(void)rcursor_slice(&r, 8);
	if (strncmp(f->name, "log-", 4) == 0) {
		end = wal_frame_header_bytes((uint8_t)rcursor_u16(&r));
		(void)rcursor_u16(&r);
		end += rcursor_u32(&r);
	}
	if (at + end > f->bytes)
		return;
	wcursor_init(&w, f->data + at + 4, 4);
	wcursor_u32(&w, crc32c(f->data + at + 8, end - 8));
}

static void rename_file(struct image *im, struct image_file *f, uint8_t number)
{
	char name[64];

	snprintf(name, sizeof(name), "log-%016x", (unsigned)number);
	if (!image_find(im, name))
		strcpy(f->name, name);
}

static void change(struct image *im, struct rcursor *r, uint32_t last_file, uint64_t last_page, struct changes *c)
{
	enum change kind = rcursor_u8(r) % CHANGE_KINDS;
	uint32_t i = rcursor_u8(r);
	uint64_t page = rcursor_u16(r), offset = rcursor_u16(r) % PAGE, pages, at;
	uint8_t value = rcursor_u8(r);
	struct image_file *f;

	if (r->failed || !im->count)
		return;
	f = &im->files[i % im->count];
	pages = f->bytes / PAGE;
	if (!pages)
		return;
	page %= pages;
	at = page * PAGE;
	c->count++;
	c->plain = c->plain && kind < CHANGE_COPY && (i % im->count != last_file || page != last_page);
	switch (kind) {
	case CHANGE_BYTE_MENDED:
	case CHANGE_BYTE:
		f->data[at + offset] = value;
		if (kind == CHANGE_BYTE_MENDED) {
			mend_crc(f, at);
			c->forged = true;
		}
		break;
	case CHANGE_ZEROS:
		memset(f->data + at, 0, PAGE);
		break;
	case CHANGE_TAIL: /* as a write that was torn */
		memset(f->data + at + offset, value, PAGE - offset);
		break;
	case CHANGE_COPY:
		memmove(f->data + (page + 1 + value) % pages * PAGE, f->data + at, PAGE);
		c->forged = true;
		break;
	case CHANGE_LENGTH:
		f->bytes = at + (value % 2 ? offset : 0);
		break;
	case CHANGE_GONE:
		im->count--;
		for (uint32_t k = i % (im->count + 1); k < im->count; k++) {
			struct image_file other = im->files[k];

			im->files[k] = im->files[k + 1];
			im->files[k + 1] = other;
		}
		break;
	case CHANGE_NAME:
		rename_file(im, f, value % 8);
		break;
	default:
		break;
	}
}

/* ---- the open ---- */

/* A disk of its own for each kind of log, which stays: to make one takes longer than all that is tried on it. */
struct world {
	struct disk disk;
	struct image now; /* as it lies there */
};

static struct world *world_of(bool group)
{
	static struct world worlds[2];
	struct world *w = &worlds[group];

	if (!w->disk.sim) {
		disk_init(&w->disk, group);
		image_init(&w->now);
	}
	return w;
}

static void become(struct world *w, struct image *want)
{
	image_read(&w->disk, &w->now);
	for (uint32_t i = 0; i < w->now.count; i++) {
		const struct image_file *f = image_find(want, w->now.files[i].name);

		if (!f || f->bytes != w->now.files[i].bytes)
			file_remove(&w->disk, &w->now.files[i]);
	}
	for (uint32_t i = 0; i < want->count; i++) {
		struct image_file *now = image_find(&w->now, want->files[i].name);

		file_write(&w->disk, now && now->bytes == want->files[i].bytes ? now : NULL, &want->files[i]);
	}
}

static void check_unchanged(struct world *w, struct image *want)
{
	image_read(&w->disk, &w->now);
	CHECK(w->now.count == want->count);
	for (uint32_t i = 0; i < w->now.count; i++) {
		const struct image_file *f = &w->now.files[i], *of = image_find(want, f->name);

		CHECK(of && of->bytes == f->bytes && memcmp(of->data, f->data, f->bytes) == 0);
	}
}

static void try_open(bool group, struct image *changed, const struct changes *c)
{
	struct world *w = world_of(group);
	struct disk *d = &w->disk;
	struct err err = {0};
	uint64_t from, to;
	uint32_t crc;
	int rc;

	d->forged = c->forged;
	become(w, changed);
	rc = open_log(d, &err);
	if (rc) {
		CHECK(rc == err.code && err.text[0]);
		check_unchanged(w, changed);
		return;
	}
	from = d->from;
	to = d->to;
	crc = d->crc;
	CHECK(c->count > 1 || !c->plain || c->forged || (from == 1 && to == ENTRIES));
	wal_abandon(d->wal);
	CHECK(open_log(d, &err) == 0);
	CHECK(d->from == from && d->to == to && d->crc == crc);
	wal_abandon(d->wal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct image changed;
	struct changes c = {.plain = true};
	uint32_t last_file;
	uint64_t last_page;
	struct rcursor r;
	bool group;

	if (!changed.files[0].data) {
		/* windows and disks come and go: most of the time went into fresh pages for them */
		mallopt(M_MMAP_THRESHOLD, 16 << 20);
		mallopt(M_TRIM_THRESHOLD, 256 << 20);
		image_init(&changed);
	}
	rcursor_init(&r, data, size);
	group = rcursor_u8(&r) % 2;
	image_copy(&changed, written(group, &last_file, &last_page));
	for (int i = 0; i < CHANGES && rcursor_left(&r); i++)
		change(&changed, &r, last_file, last_page, &c);
	try_open(group, &changed, &c);
	return 0;
}
