/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One upload is one state machine:
 *
 *   OPEN --seal--> WRITING --all writes done--> SYNCING --fdatasync--> INDEXING --record durable--> gone, chunk visible
 *     \--------------\-- error, drop, idle --> DEAD --nothing in flight--> gone, extent free
 *   OPEN --seal of a chunk of one small cell--> INDEXING --write and record durable--> gone, chunk visible
 *
 * and `ghost` uploads, of a copy that is sealed or being sealed: OPEN only, nothing is written, the seal compares.
 *
 * Invariants:
 *  1. The fdatasync of a seal is submitted after every write of the chunk, trailer included, has completed. (A chunk of one small
 *     cell is written with its trailer in one write that is itself durable, together with its neighbours: the same thing in one call.)
 *  2. The index record is submitted after that sync, that of a chunk of one small cell beside its write (index_put_beside); `done` of the
 *     seal comes after both are durable.
 *  3. The extent of an upload that ends without a seal is given back when no write on it is in flight, and only then.
 *  4. After a failed write, sync or record nothing succeeds: the disk is failed first, then the waiters hear of it. Extents of seals
 *     that failed after their writes are not given back: whether their records are durable is unknown until the next start.
 *  5. Bytes are checked against their CRCs before they are written: no damage on the way in is ever sealed.
 */
#include "chunkd/put.h"

#include <string.h>
#include "chunkd/disk.h"
#include "chunkd/gather.h"
#include "chunkd/put_check.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"

_Static_assert((int)PUT_UPLOADS_MAX < (int)INDEX_SEQUENCE_GAP, "seals under way take fewer numbers than a start skips");

#define IDLE_SCAN_NS (10000000000ull)

enum { FREE_UNITS = 4 }; /* uploads of so many at most, which small chunks have, are kept for reuse */

enum upload_state { OPEN, WRITING, SYNCING, INDEXING, DEAD };

struct upload {
	struct puts *puts;
	struct copy_id copy;
	uint8_t state;
	bool ghost;
	bool has_extent, waits_for_extent, in_map;
	int dead_code;
	uint8_t policy;
	uint64_t announced;
	uint64_t begun;                /* bytes of the cells that were begun */
	uint32_t receiving, in_flight; /* cells begun but not written; I/Os in the kernel */
	uint64_t active_ns;
	struct segment_wait extent;
	struct list held; /* cells that wait for the extent */
	struct put_cell *seal;
	struct segment_sync_wait sync;
	struct index_change change;
	struct upload *next; /* same hash */
	struct list link;    /* of all uploads of the disk, or free */
	size_t units;
	uint32_t crcs[]; /* masked, by unit; room for FREE_UNITS at least */
};

struct put_cell {
	struct sched_op op;
	struct iovec iov[2];
	struct gather_write together; /* in place of `op` where data and trailer are one small write */
	struct upload *upload;
	struct put_request request;
	struct bufpool_buf data, trailer;
	uint8_t *trailer_at; /* in `trailer`, or behind small data in `data` */
	uint32_t trailer_bytes;
	put_done_fn *done;
	void *ctx;
	struct list link; /* in upload->held, or free */
};

struct puts {
	struct disk *disk;
	struct map map; /* copy hash -> uploads, the of all states but DEAD */
	struct list all, free_cells, free_uploads;
	uint32_t count;
	struct gather gather;
	struct io_op timer;
	bool closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

/* ---- table of uploads ---- */

/* A copy has at most one open upload; beside it there may be one that is being sealed. */
static struct upload *find_upload(struct puts *p, const struct copy_id *copy, bool open)
{
	struct upload *u = map_get(&p->map, index_copy_hash(copy));

	while (u && !(index_copy_equal(&u->copy, copy) && (u->state == OPEN) == open))
		u = u->next;
	return u;
}

static void table_add(struct upload *u)
{
	uint64_t hash = index_copy_hash(&u->copy);

	u->next = map_get(&u->puts->map, hash);
	map_put(&u->puts->map, hash, u);
	u->in_map = true;
}

static void table_remove(struct upload *u)
{
	uint64_t hash = index_copy_hash(&u->copy);
	struct upload *head = map_get(&u->puts->map, hash), *at;

	if (!u->in_map)
		return;
	u->in_map = false;
	if (head != u) {
		for (at = head; at->next != u; at = at->next)
			;
		at->next = u->next;
	} else if (u->next) {
		map_put(&u->puts->map, hash, u->next);
	} else {
		map_remove(&u->puts->map, hash);
	}
}

static void close_when_idle(struct puts *p);

static struct upload *upload_new(struct puts *p, size_t units)
{
	size_t bytes = sizeof(struct upload) + (units < FREE_UNITS ? FREE_UNITS : units) * sizeof(uint32_t);
	struct list *n = units <= FREE_UNITS ? list_pop_front(&p->free_uploads) : NULL;
	struct upload *u = n ? LIST_ENTRY(n, struct upload, link) : mem_alloc(bytes);

	memset(u, 0, bytes);
	u->puts = p;
	u->units = units;
	list_init(&u->held);
	return u;
}

static void upload_give(struct upload *u)
{
	if (u->units <= FREE_UNITS)
		list_push_front(&u->puts->free_uploads, &u->link);
	else
		mem_free(u);
}

static void upload_free(struct upload *u)
{
	struct puts *p = u->puts;

	CHECK(list_empty(&u->held) && u->in_flight == 0 && u->receiving == 0);
	table_remove(u);
	list_remove(&u->link);
	p->count--;
	upload_give(u);
	close_when_idle(p);
}

/* ---- cells ---- */

static struct put_cell *cell_new(struct puts *p)
{
	struct list *n = list_pop_front(&p->free_cells);
	struct put_cell *c = n ? LIST_ENTRY(n, struct put_cell, link) : MEM_NEW(struct put_cell);

	c->data.data = c->trailer.data = c->trailer_at = NULL;
	c->trailer_bytes = 0;
	return c;
}

static void cell_free(struct puts *p, struct put_cell *c)
{
	bufpool_put(p->disk->pool, &c->data);
	bufpool_put(p->disk->pool, &c->trailer);
	c->upload = NULL;
	list_push_front(&p->free_cells, &c->link);
}

static void cell_finish(struct puts *p, struct put_cell *c, int code, const struct index_row *row)
{
	put_done_fn *done = c->done;
	void *ctx = c->ctx;

	cell_free(p, c);
	done(ctx, code, row);
}

/* ---- the end of an upload ---- */

static void settle_dead(struct upload *u)
{
	struct disk *d = u->puts->disk;

	if (u->in_flight || u->receiving)
		return;
	if (u->has_extent && !d->failed)
		segments_give(d->segments, u->extent.extent);
	upload_free(u);
}

/* The last word about a cell of a dead upload, which the callback must not see freed under us. */
static void finish_dead(struct upload *u, struct put_cell *c)
{
	u->in_flight++;
	cell_finish(u->puts, c, u->dead_code, NULL);
	u->in_flight--;
	settle_dead(u);
}

/* Cells that wait are failed; those in the kernel fail when they return. May free u. */
static void kill_upload(struct upload *u, int code)
{
	struct puts *p = u->puts;

	CHECK(u->state == OPEN || u->state == WRITING);
	u->state = DEAD;
	u->dead_code = code;
	u->seal = NULL;
	table_remove(u);
	if (u->waits_for_extent)
		segments_wait_cancel(&u->extent);
	u->waits_for_extent = false;
	u->in_flight++; /* keeps u while callbacks run */
	while (!list_empty(&u->held)) {
		struct put_cell *c = LIST_ENTRY(list_pop_front(&u->held), struct put_cell, link);

		cell_finish(p, c, code, NULL);
	}
	u->in_flight--;
	settle_dead(u);
}

/* ---- sealing ---- */

static void indexed(struct index_change *change, int code)
{
	struct upload *u = CONTAINER_OF(change, struct upload, change);
	struct puts *p = u->puts;
	struct alloc_extent whole = u->extent.extent, used = change->row.extent;
	struct index_row row = change->row;
	struct put_cell *c = u->seal;

	if (code < 0)
		disk_fail(p->disk, code, "writing the index failed");
	else if (whole.grains > used.grains)
		segments_give(p->disk->segments,
			(struct alloc_extent){whole.segment, whole.first + used.grains, whole.grains - used.grains});
	cell_finish(p, c, p->disk->failed ? ERR_DISK_FAILED : 0, p->disk->failed ? NULL : &row);
	upload_free(u);
}

static void synced(struct segment_sync_wait *wait, int code)
{
	struct upload *u = CONTAINER_OF(wait, struct upload, sync);
	struct puts *p = u->puts;
	struct put_cell *c = u->seal;

	if (code < 0 || p->disk->failed) {
		cell_finish(p, c, ERR_DISK_FAILED, NULL);
		upload_free(u);
		return;
	}
	u->state = INDEXING;
	u->change.done = indexed;
	index_put(p->disk->index, &u->change);
}

static void written_all(struct upload *u)
{
	CHECK(u->state == WRITING && u->in_flight == 0);
	u->state = SYNCING;
	u->sync.done = synced;
	segments_sync(u->puts->disk->segments, u->extent.extent.segment, &u->sync);
}

/* ---- writing ---- */

static void cell_written(struct put_cell *c, int result)
{
	struct upload *u = c->upload;
	struct puts *p = u->puts;

	u->in_flight--;
	u->active_ns = io_now_ns(p->disk->io);
	if (result < 0)
		disk_fail(p->disk, result, "a write failed");
	if (p->disk->failed && u->state != DEAD) {
		SOMETIMES(put_disk_failed);
		u->in_flight++;
		kill_upload(u, ERR_DISK_FAILED);
		u->in_flight--;
	}
	if (u->state == DEAD) {
		finish_dead(u, c);
		return;
	}
	u->in_flight++; /* keeps u while the callback runs: it may send the next cell, and even end the upload */
	if (c == u->seal)
		bufpool_put(p->disk->pool, &c->data);
	else
		cell_finish(p, c, 0, NULL);
	u->in_flight--;
	if (u->state == DEAD)
		settle_dead(u);
	else if (u->state == WRITING && u->in_flight == 0)
		written_all(u);
}

static void written_alone(struct sched_op *op)
{
	cell_written(CONTAINER_OF(op, struct put_cell, op), op->io.result < 0 ? (int)op->io.result : 0);
}

static void written_together(struct gather_write *w, int code)
{
	struct put_cell *c = CONTAINER_OF(w, struct put_cell, together);
	struct upload *u = c->upload;
	struct disk *d = u->puts->disk;

	u->in_flight--;
	if (code < 0)
		disk_fail(d, code, "a write failed");
	bufpool_put(d->pool, &c->data);
	index_written(d->index, &u->change, code);
}

static void make_trailer(struct put_cell *c)
{
	struct upload *u = c->upload;
	struct disk *d = u->puts->disk;
	struct index_row *row = &u->change.row;
	uint64_t data_bytes = format_round(c->request.length);
	struct format_trailer t = {
		.copy = u->copy,
		.policy = u->policy,
		.length = c->request.length,
		.block_length = c->request.block_length,
		.cell_bytes = c->request.cell_bytes,
		.chunk_crc = c->request.chunk_crc,
		.disk = d->sb.disk,
		.segment = u->extent.extent.segment,
		.offset = (uint64_t)u->extent.extent.first * FORMAT_GRAIN_BYTES,
		.sequence = index_next_sequence(d->index),
		.list = slice_of(u->crcs, (size_t)stripe_unit_count(c->request.length) * 4),
		.data_lists = c->request.data_lists,
	};

	format_trailer_encode(&t, &d->trailer_key, c->trailer_at);
	*row = (struct index_row){
		.copy = u->copy,
		.policy = u->policy,
		.extent = u->extent.extent,
		.length = (uint32_t)t.length,
		.cell_bytes = t.cell_bytes,
		.crc = t.chunk_crc,
		.sequence = t.sequence,
	};
	row->extent.grains = (uint32_t)((data_bytes + c->trailer_bytes) / FORMAT_GRAIN_BYTES);
	CHECK(row->extent.grains <= u->extent.extent.grains);
}

static bool is_one_write(const struct put_request *r)
{
	return r->seal && r->offset == 0 && r->len <= INDEX_BESIDE_BYTES;
}

static void issue_cell(struct put_cell *c)
{
	struct upload *u = c->upload;
	struct disk *d = u->puts->disk;
	uint64_t at = (uint64_t)u->extent.extent.first * FORMAT_GRAIN_BYTES;
	uint32_t padded = (uint32_t)format_round(c->request.len);
	int n = 0;

	if (c->request.len)
		c->iov[n++] = (struct iovec){c->data.data, padded};
	if (c->request.seal) {
		make_trailer(c);
		c->iov[n++] = (struct iovec){c->trailer_at, c->trailer_bytes};
	}
	if (n == 2 && c->trailer_at == c->data.data + padded)
		c->iov[--n - 1].iov_len += c->trailer_bytes;
	u->in_flight++;
	if (is_one_write(&c->request)) {
		c->together = (struct gather_write){.segment = u->extent.extent.segment,
			.offset = at,
			.iov = {c->iov[0], c->iov[1]},
			.iov_count = n,
			.done = written_together};
		u->state = INDEXING;
		u->change.done = indexed;
		gather_add(&u->puts->gather, &c->together);
		index_put_beside(d->index, &u->change);
		return;
	}
	at += c->request.len ? c->request.offset : format_round(c->request.length);
	io_prep_write(&c->op.io, segments_fd(d->segments, u->extent.extent.segment), c->iov, n, at, 0, sched_io_done);
	c->op.done = written_alone;
	c->op.passes = c->request.repairs;
	sched_submit(&d->sched, SCHED_FOREGROUND, &c->op); /* in turn: behind all others it would wait as long as there is load */
}

static void extent_there(struct segment_wait *wait, int code)
{
	struct upload *u = CONTAINER_OF(wait, struct upload, extent);

	u->waits_for_extent = false;
	if (code < 0) {
		kill_upload(u, u->puts->disk->failed ? ERR_DISK_FAILED : code);
		return;
	}
	u->has_extent = true;
	while (!list_empty(&u->held))
		issue_cell(LIST_ENTRY(list_pop_front(&u->held), struct put_cell, link));
}

/* ---- what arrives ---- */

static int upload_open(struct puts *p, const struct put_request *r, struct upload **ret_upload)
{
	struct disk *d = p->disk;
	struct upload *u = find_upload(p, &r->copy, true);
	size_t units = stripe_unit_count(r->announced_bytes), trailer;
	struct index_row row;
	int rc;

	trailer = format_trailer_bound(r->policy, r->copy.index, r->announced_bytes);
	if (trailer == 0)
		return ERR_INVAL;
	if (u) {
		SOMETIMES(put_upload_replaced);
		kill_upload(u, ERR_CANCELED);
	}
	if (p->count >= PUT_UPLOADS_MAX || !sched_has_room(&d->sched) || !index_has_room(d->index))
		return ERR_OVERLOADED;
	if (index_is_full(d->index))
		return ERR_NO_EXTENT;
	u = upload_new(p, units);
	u->copy = r->copy;
	u->policy = r->policy;
	u->announced = r->announced_bytes;
	u->ghost = find_upload(p, &r->copy, false) || index_get(d->index, &r->copy, &row) == 0;
	u->extent = (struct segment_wait){.class = alloc_class_of(r->announced_bytes),
		.grains = (uint32_t)((format_round(r->announced_bytes) + trailer) / FORMAT_GRAIN_BYTES),
		.done = extent_there};
	if (!u->ghost) {
		rc = segments_take(d->segments, &u->extent);
		if (rc < 0 && rc != ERR_AGAIN) {
			upload_give(u);
			return rc;
		}
		u->has_extent = rc == 0;
		u->waits_for_extent = rc < 0;
	}
	list_push_back(&p->all, &u->link);
	p->count++;
	u->active_ns = io_now_ns(d->io);
	table_add(u);
	*ret_upload = u;
	return 0;
}

/* For data and trailer of a cell, whatever it has of them; of a small one behind one another. */
static int take_memory(struct bufpool *pool, struct put_cell *c, uint32_t len, size_t trailer)
{
	size_t padded = format_round(len), both = padded + trailer;
	int rc = len ? bufpool_get(pool, BUFPOOL_PUT, both <= BUFPOOL_SMALL_BYTES ? both : len, &c->data) : 0;

	if (rc < 0 || !trailer)
		return rc;
	if (len && both <= BUFPOOL_SMALL_BYTES) {
		c->trailer_at = c->data.data + padded;
		return 0;
	}
	rc = bufpool_get(pool, BUFPOOL_PUT, trailer, &c->trailer);
	c->trailer_at = c->trailer.data;
	return rc;
}

int put_begin(struct puts *p, const struct put_request *r, struct put_cell **ret_cell)
{
	struct disk *d = p->disk;
	struct upload *u;
	struct put_cell *c;
	size_t trailer = 0;
	int rc = put_check_request(r);

	if (rc < 0)
		return rc;
	if (p->closing)
		return ERR_STOPPED;
	if (d->failed)
		return ERR_DISK_FAILED;
	if (r->seal)
		trailer = format_trailer_bytes((size_t)stripe_unit_count(r->length) * 4, r->data_lists.len);
	if (trailer > LIMIT_TRAILER_BYTES)
		return ERR_INVAL;
	if (r->offset == 0) {
		rc = upload_open(p, r, &u);
		if (rc < 0)
			return rc;
	} else {
		u = find_upload(p, &r->copy, true);
		if (!u)
			return ERR_NOENT;
		if (r->offset != u->begun || r->policy != u->policy)
			return r->offset > u->begun ? ERR_AGAIN : ERR_INVAL;
		/* The first cell's promise counts: the extent is as long as that. Later ones may know better, and be lower. */
		if (r->len > u->announced - r->offset)
			return ERR_INVAL;
	}
	c = cell_new(p);
	rc = take_memory(d->pool, c, r->len, trailer);
	if (rc < 0) {
		cell_free(p, c);
		if (r->offset == 0)
			kill_upload(u, rc);
		return rc;
	}
	c->trailer_bytes = (uint32_t)trailer;
	c->request = *r;
	c->upload = u;
	u->receiving++;
	u->begun += r->len;
	u->active_ns = io_now_ns(d->io);
	*ret_cell = c;
	return 0;
}

uint8_t *put_buffer(const struct put_cell *c)
{
	return c->data.data;
}

/* Checks the bytes and takes their list over. */
static int accept_bytes(struct put_cell *c)
{
	struct upload *u = c->upload;
	uint32_t len = c->request.len;
	int rc = len ? put_check_bytes(&c->request, c->data.data, u->crcs + c->request.offset / LIMIT_UNIT_BYTES) : 0;

	if (rc == 0 && len)
		memset(c->data.data + len, 0, format_round(len) - len);
	return rc;
}

/* Nothing of a ghost is written: its seal is answered from the index. */
static void write_ghost(struct put_cell *c)
{
	struct upload *u = c->upload;
	struct puts *p = u->puts;
	struct index_row row;
	int code;

	if (!c->request.seal) {
		cell_finish(p, c, 0, NULL);
		return;
	}
	code = index_get(p->disk->index, &u->copy, &row);
	if (code == ERR_NOENT)
		code = ERR_BUSY; /* being sealed, or that seal has just failed: the caller may try again */
	else if (code == 0 && (row.length != c->request.length || row.crc != c->request.chunk_crc))
		code = ERR_EXIST;
	u->in_flight++;
	cell_finish(p, c, code, code == 0 ? &row : NULL);
	u->in_flight--;
	if (u->state == DEAD)
		settle_dead(u);
	else
		kill_upload(u, ERR_CANCELED);
}

void put_write(struct put_cell *c, put_done_fn *done, void *ctx)
{
	struct upload *u = c->upload;
	struct puts *p = u->puts;
	int code;

	c->done = done;
	c->ctx = ctx;
	CHECK(u->receiving > 0);
	u->receiving--;
	u->active_ns = io_now_ns(p->disk->io);
	code = p->disk->failed ? ERR_DISK_FAILED : 0;
	if (code == 0 && u->state != DEAD)
		code = accept_bytes(c);
	/* A cell of the chunk that is still arriving (by another connection) is a cell that the seal overtook. */
	if (code == 0 && u->state != DEAD && c->request.seal)
		code = u->receiving ? ERR_INVAL : put_check_seal(&c->request, u->policy, u->crcs);
	if (code < 0 && u->state != DEAD) {
		u->in_flight++;
		kill_upload(u, code);
		u->in_flight--;
	}
	if (u->state == DEAD) {
		finish_dead(u, c);
		return;
	}
	if (u->ghost) {
		write_ghost(c);
		SOMETIMES(put_sealed_copy_again);
		return;
	}
	if (c->request.seal) {
		u->seal = c;
		u->state = WRITING;
	}
	if (u->has_extent)
		issue_cell(c);
	else
		list_push_back(&u->held, &c->link);
}

void put_abandon(struct put_cell *c)
{
	struct upload *u = c->upload;

	cell_free(u->puts, c);
	CHECK(u->receiving > 0);
	u->receiving--;
	/* The bytes of this cell are missing: nobody can go on behind them. */
	if (u->state == OPEN)
		kill_upload(u, ERR_CANCELED);
	else
		settle_dead(u);
}

int put_drop(struct puts *p, const struct copy_id *copy)
{
	struct upload *u = find_upload(p, copy, true);

	if (!u)
		return find_upload(p, copy, false) ? ERR_BUSY : ERR_NOENT;
	kill_upload(u, ERR_CANCELED);
	return 0;
}

uint32_t puts_count(const struct puts *p)
{
	return p->count;
}

/* ---- life ---- */

static void scan_idle(struct io_op *op)
{
	struct puts *p = CONTAINER_OF(op, struct puts, timer);
	uint64_t now = io_now_ns(p->disk->io);

	if (p->closing) {
		close_when_idle(p);
		return;
	}
	LIST_FOREACH_SAFE(it, &p->all) {
		struct upload *u = LIST_ENTRY(it, struct upload, link);

		if (u->state == OPEN && !u->receiving && !u->in_flight && list_empty(&u->held) &&
			now - u->active_ns > PUT_IDLE_MS * 1000000ull)
			kill_upload(u, ERR_CANCELED);
	}
	io_prep_timer(&p->timer, now + IDLE_SCAN_NS, scan_idle);
	io_submit(p->disk->io, &p->timer);
}

struct puts *puts_new(struct disk *disk)
{
	struct puts *p = MEM_NEW(struct puts);

	p->disk = disk;
	map_init(&p->map);
	list_init(&p->all);
	list_init(&p->free_cells);
	list_init(&p->free_uploads);
	gather_init(&p->gather, disk->io, &disk->sched, disk->segments);
	io_prep_timer(&p->timer, io_now_ns(disk->io) + IDLE_SCAN_NS, scan_idle);
	io_submit(disk->io, &p->timer);
	return p;
}

static void close_when_idle(struct puts *p)
{
	void (*closed)(void *ctx) = p->closed;
	void *ctx = p->closed_ctx;

	if (!p->closing || p->count || io_pending(&p->timer))
		return;
	while (!list_empty(&p->free_cells))
		mem_free(LIST_ENTRY(list_pop_front(&p->free_cells), struct put_cell, link));
	while (!list_empty(&p->free_uploads))
		mem_free(LIST_ENTRY(list_pop_front(&p->free_uploads), struct upload, link));
	gather_fini(&p->gather);
	map_fini(&p->map);
	mem_free(p);
	closed(ctx);
}

void puts_close(struct puts *p, void (*closed)(void *ctx), void *ctx)
{
	p->closed = closed;
	p->closed_ctx = ctx;
	LIST_FOREACH_SAFE(it, &p->all) {
		struct upload *u = LIST_ENTRY(it, struct upload, link);

		if (u->state == OPEN)
			kill_upload(u, ERR_STOPPED);
	}
	p->closing = true;
	io_cancel(p->disk->io, &p->timer);
	close_when_idle(p);
}
