/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trailer is believed when its HMAC holds and it speaks of the very chunk and place that the index says: an intact trailer of an
 * earlier tenant of the extent does not pass. The cache is least recently used, bounded in bytes; entries of one hash are chained.
 */
#include "chunkd/trailers.h"

#include "chunkd/disk.h"
#include "common/base/check.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"

/* ---- reading ---- */

static void read_try(struct trailer_read *r);

bool trailer_is_of_row(const struct format_trailer *t, const struct index_row *row)
{
	return index_copy_equal(&t->copy, &row->copy) && t->length == row->length && t->chunk_crc == row->crc &&
		t->policy == row->policy && t->cell_bytes == row->cell_bytes && t->segment == row->extent.segment &&
		t->offset == index_row_offset(row) && t->sequence == row->sequence;
}

static void read_done(struct sched_op *op)
{
	struct trailer_read *r = CONTAINER_OF(op, struct trailer_read, op);
	int rc;

	if (op->io.result < 0) {
		r->done(r, (int)op->io.result);
		return;
	}
	rc = format_trailer_decode(slice_of(r->buf.data, (size_t)op->io.result), &r->disk->trailer_key, &r->trailer);
	if (rc == 0 && !trailer_is_of_row(&r->trailer, &r->row))
		rc = ERR_TRAILER_CORRUPT;
	r->done(r, rc);
}

static void read_again(struct bufpool_wait *wait)
{
	read_try(CONTAINER_OF(wait, struct trailer_read, wait));
}

static void read_try(struct trailer_read *r)
{
	uint32_t bytes = index_row_trailer_bytes(&r->row);

	if (bufpool_get(r->disk->pool, BUFPOOL_GET, bytes, &r->buf) < 0) {
		r->wait.run = read_again;
		bufpool_wait(r->disk->pool, BUFPOOL_GET, &r->wait);
		return;
	}
	r->iov = (struct iovec){r->buf.data, bytes};
	io_prep_read(&r->op.io, segments_fd(r->disk->segments, r->row.extent.segment), &r->iov, 1,
		index_row_offset(&r->row) + index_row_trailer_at(&r->row), sched_io_done);
	r->op.done = read_done;
	sched_submit(&r->disk->sched, SCHED_FOREGROUND, &r->op);
}

void trailer_read_start(struct disk *disk, const struct index_row *row, struct trailer_read *r)
{
	r->disk = disk;
	r->row = *row;
	r->buf.data = NULL;
	disk_pin(disk, row);
	read_try(r);
}

void trailer_read_end(struct trailer_read *r)
{
	bufpool_put(r->disk->pool, &r->buf);
	disk_unpin(r->disk, &r->row);
}

/* ---- cache ---- */

struct entry {
	struct copy_id copy;
	struct entry *next; /* same hash */
	struct list lru;
	size_t len;
	uint8_t list[];
};

struct trailer_cache {
	struct map map;
	struct list lru; /* oldest first */
	size_t bytes;
};

struct trailer_cache *trailer_cache_new(void)
{
	struct trailer_cache *c = MEM_NEW(struct trailer_cache);

	map_init(&c->map);
	list_init(&c->lru);
	return c;
}

static struct entry *find(struct trailer_cache *c, const struct copy_id *copy)
{
	struct entry *e = map_get(&c->map, index_copy_hash(copy));

	while (e && !index_copy_equal(&e->copy, copy))
		e = e->next;
	return e;
}

static void remove_entry(struct trailer_cache *c, struct entry *e)
{
	uint64_t hash = index_copy_hash(&e->copy);
	struct entry *head = map_get(&c->map, hash), *at;

	if (head == e) {
		if (e->next)
			map_put(&c->map, hash, e->next);
		else
			map_remove(&c->map, hash);
	} else {
		for (at = head; at->next != e; at = at->next)
			;
		at->next = e->next;
	}
	list_remove(&e->lru);
	c->bytes -= sizeof(*e) + e->len;
	mem_free(e);
}

void trailer_cache_free(struct trailer_cache *c)
{
	while (!list_empty(&c->lru))
		remove_entry(c, LIST_ENTRY(c->lru.next, struct entry, lru));
	map_fini(&c->map);
	mem_free(c);
}

struct slice trailer_cache_get(struct trailer_cache *c, const struct copy_id *copy)
{
	struct entry *e = find(c, copy);

	if (!e)
		return slice_of(NULL, 0);
	list_remove(&e->lru);
	list_push_back(&c->lru, &e->lru);
	return slice_of(e->list, e->len);
}

void trailer_cache_put(struct trailer_cache *c, const struct copy_id *copy, struct slice list)
{
	uint64_t hash = index_copy_hash(copy);
	struct entry *e;

	if (find(c, copy))
		return;
	e = mem_alloc(sizeof(*e) + list.len);
	e->copy = *copy;
	e->len = list.len;
	memcpy(e->list, list.data, list.len);
	e->next = map_get(&c->map, hash);
	map_put(&c->map, hash, e);
	list_push_back(&c->lru, &e->lru);
	c->bytes += sizeof(*e) + e->len;
	while (c->bytes > TRAILER_CACHE_BYTES)
		remove_entry(c, LIST_ENTRY(c->lru.next, struct entry, lru));
}

void trailer_cache_forget(struct trailer_cache *c, const struct copy_id *copy)
{
	struct entry *e = find(c, copy);

	if (e)
		remove_entry(c, e);
}
