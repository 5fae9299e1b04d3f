/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes that arrive in one turn of the loop, or while a record is on its way, become one log record: at 64 writers of small files that
 * is what keeps the log, and the processor, from being the bottleneck. A record is applied after it is durable, in log order, and again at
 * replay; applying is idempotent.
 *
 * Seal sequences: the greatest one recorded is a row of its own. A crash may leave trailers behind whose seals were never recorded, all
 * of them perhaps. So a start goes on behind what is recorded by INDEX_SEQUENCE_GAP times the number of the log's first frame of this
 * open: frame numbers only rise, and a gap is more than the seals that can have been under way. (A rebuilt index has a new log, but
 * records a number far behind all that the rebuild found: rebuild.c.)
 */
#include "chunkd/index.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/kv/journal.h"

enum {
	RECORD_VERSION = 1,
	RECORD_HEAD_BYTES = 6, /* u16 version, u32 count */
	CHANGE_PUT = 1,
	CHANGE_DROP = 2,
	RECORD_BYTES = 128 << 10,
	RECORD_GROWTH_BYTES =
		8 * RECORD_BYTES, /* a drop is 19 bytes there and some 100 in memory; a put less than twice its own */
	KEY_CHUNK = 'c',
	KEY_SEQUENCE = 's',
	STATE_SEALED = 1,
};

/* What writers hold block ids of, taken together: they come in no order, and what has no row need not be looked for. */
enum { RECENT_BLOCKS = 1 << 20 };

enum { CHANGE_BYTES_MAX = 1 + INDEX_KEY_BYTES + INDEX_VALUE_BYTES };
_Static_assert((int)RECORD_BYTES <= (int)LIMIT_LOG_ENTRY_BYTES, "a record is one log entry");

struct batch {
	struct journal_entry entry;
	struct index *index;
	struct list changes;
	uint8_t data[RECORD_BYTES];
};

struct index {
	struct io *io;
	struct index_options o;
	struct journal *journal;
	struct list pending; /* index_change */
	struct batch batch;  /* one record at a time: more on their way would only be smaller */
	bool in_flight;
	struct io_turn_hook hook;
	uint64_t count, sequence;
	uint64_t greatest_block; /* that ever had a row */
	uint64_t recent[RECENT_BLOCKS / 64]; /* a bit for each of that and those before it, by number: it may have rows */
	void (*closed)(void *ctx);
	void *closed_ctx;
};

/* ---- encodings ---- */

void index_key_encode(const struct copy_id *copy, uint8_t ret_key[INDEX_KEY_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_key, INDEX_KEY_BYTES);
	wcursor_u8(&w, KEY_CHUNK);
	wcursor_u64_be(&w, copy->block);
	wcursor_u8(&w, copy->index);
	wcursor_u32_be(&w, copy->incarnation);
	CHECK(!w.failed && w.len == INDEX_KEY_BYTES);
}

void index_value_encode(const struct index_row *row, uint8_t ret_value[INDEX_VALUE_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_value, INDEX_VALUE_BYTES);
	wcursor_u8(&w, STATE_SEALED);
	wcursor_u8(&w, row->policy);
	wcursor_u16(&w, 0);
	wcursor_u32(&w, row->extent.segment);
	wcursor_u32(&w, row->extent.first);
	wcursor_u32(&w, row->extent.grains);
	wcursor_u32(&w, row->length);
	wcursor_u32(&w, row->cell_bytes);
	wcursor_u32(&w, row->crc);
	wcursor_u64(&w, row->sequence);
	CHECK(!w.failed && w.len == INDEX_VALUE_BYTES);
}

static int key_decode(struct rcursor *r, struct copy_id *ret_copy)
{
	if (rcursor_u8(r) != KEY_CHUNK)
		return ERR_FORMAT;
	ret_copy->block = rcursor_u64_be(r);
	ret_copy->index = rcursor_u8(r);
	ret_copy->incarnation = rcursor_u32_be(r);
	return r->failed ? ERR_FORMAT : 0;
}

int index_row_decode(struct slice key, struct slice value, struct index_row *ret_row)
{
	struct index_row row = {0};
	struct rcursor r;
	uint16_t zero;
	uint8_t state;

	rcursor_init(&r, key.data, key.len);
	if (key_decode(&r, &row.copy) < 0 || !rcursor_done(&r))
		return ERR_FORMAT;
	rcursor_init(&r, value.data, value.len);
	state = rcursor_u8(&r);
	row.policy = rcursor_u8(&r);
	zero = rcursor_u16(&r);
	row.extent.segment = rcursor_u32(&r);
	row.extent.first = rcursor_u32(&r);
	row.extent.grains = rcursor_u32(&r);
	row.length = rcursor_u32(&r);
	row.cell_bytes = rcursor_u32(&r);
	row.crc = rcursor_u32(&r);
	row.sequence = rcursor_u64(&r);
	if (!rcursor_done(&r) || state != STATE_SEALED || zero)
		return ERR_FORMAT;
	if (row.length == 0 || row.length > LIMIT_CHUNK_BYTES || row.cell_bytes == 0 ||
		row.cell_bytes > LIMIT_CELL_BYTES || row.cell_bytes % LIMIT_UNIT_BYTES)
		return ERR_FORMAT;
	if ((uint64_t)row.extent.grains * FORMAT_GRAIN_BYTES <= format_round(row.length) ||
		(uint64_t)row.extent.grains * FORMAT_GRAIN_BYTES > format_round(row.length) + LIMIT_TRAILER_BYTES)
		return ERR_FORMAT;
	*ret_row = row;
	return 0;
}

/* ---- blocks without rows ---- */

static uint64_t recent_bit(uint64_t block)
{
	return (uint64_t)1 << block % 64;
}

static uint64_t *recent_word(struct index *index, uint64_t block)
{
	return &index->recent[block / 64 % ARRAY_COUNT(index->recent)];
}

/* A row of the block is put, or there. Never taken back: a bit too many costs a look. */
static void block_has_row(struct index *index, uint64_t block)
{
	uint64_t greatest = index->greatest_block;

	if (block > greatest && block - greatest >= RECENT_BLOCKS)
		memset(index->recent, 0, sizeof(index->recent));
	else
		for (uint64_t b = greatest + 1; b <= block; b++)
			*recent_word(index, b) &= ~recent_bit(b);
	if (block > greatest)
		index->greatest_block = block;
	if (index->greatest_block - block < RECENT_BLOCKS)
		*recent_word(index, block) |= recent_bit(block);
}

/* False: none of its copies has a row. */
static bool block_may_have_row(struct index *index, uint64_t block)
{
	if (block > index->greatest_block)
		return false;
	return index->greatest_block - block >= RECENT_BLOCKS || *recent_word(index, block) & recent_bit(block);
}

/* ---- applying ---- */

static uint64_t stored_sequence(struct kv *kv)
{
	uint8_t key = KEY_SEQUENCE;
	struct slice value;
	struct rcursor r;

	if (kv_get(kv, slice_of(&key, 1), &value) < 0)
		return 0;
	rcursor_init(&r, value.data, value.len);
	return rcursor_u64(&r);
}

static void store_sequence(struct kv *kv, uint64_t sequence)
{
	uint8_t key = KEY_SEQUENCE, value[8];
	struct wcursor w;

	if (sequence <= stored_sequence(kv))
		return;
	wcursor_init(&w, value, sizeof(value));
	wcursor_u64(&w, sequence);
	kv_put(kv, slice_of(&key, 1), slice_of(value, sizeof(value)));
}

int index_record_walk(struct slice record, void (*each)(void *ctx, const struct index_record_change *change), void *ctx)
{
	struct rcursor r;
	uint32_t count;

	rcursor_init(&r, record.data, record.len);
	if (rcursor_u16(&r) != RECORD_VERSION)
		return ERR_VERSION;
	count = rcursor_u32(&r);
	for (uint32_t i = 0; i < count && !r.failed; i++) {
		struct index_record_change c = {0};
		uint8_t kind = rcursor_u8(&r);

		c.drop = kind == CHANGE_DROP;
		c.key = rcursor_slice(&r, INDEX_KEY_BYTES);
		if (!c.drop)
			c.value = rcursor_slice(&r, INDEX_VALUE_BYTES);
		if (r.failed || (!c.drop && (kind != CHANGE_PUT || index_row_decode(c.key, c.value, &c.row) < 0)))
			return ERR_FORMAT;
		each(ctx, &c);
	}
	return rcursor_done(&r) ? 0 : ERR_FORMAT;
}

struct applying {
	struct index *index;
	struct kv *kv;
	uint64_t sequence;
};

static void apply_change(void *ctx, const struct index_record_change *c)
{
	struct applying *a = ctx;
	struct slice old;
	bool had = (c->drop || block_may_have_row(a->index, c->row.copy.block)) && kv_get(a->kv, c->key, &old) == 0;

	if (c->drop) {
		kv_del(a->kv, c->key);
		a->index->count -= had;
		return;
	}
	kv_put(a->kv, c->key, c->value);
	a->index->count += !had;
	block_has_row(a->index, c->row.copy.block);
	if (c->row.sequence > a->sequence)
		a->sequence = c->row.sequence;
}

static int apply(void *ctx, struct kv *kv, uint64_t at, struct slice data, struct journal_entry *entry, struct err *err)
{
	struct applying a = {.index = ctx, .kv = kv};
	int rc = index_record_walk(data, apply_change, &a);

	(void)entry;
	if (rc < 0)
		return err_set(err, rc, "index record %llu %s", (unsigned long long)at,
			rc == ERR_VERSION ? "has an unknown version: use a newer program" : "is malformed");
	store_sequence(kv, a.sequence);
	return 0;
}

/* ---- changes ---- */

static void flush_changes(struct io_turn_hook *hook);

static void batch_done(struct journal_entry *entry, int code)
{
	struct batch *b = CONTAINER_OF(entry, struct batch, entry);
	struct index *index = b->index;
	struct list now;

	list_init(&now);
	while (!list_empty(&b->changes))
		list_push_back(&now, list_pop_front(&b->changes));
	index->in_flight = false;
	if (!list_empty(&index->pending))
		io_at_turn_end(index->io, &index->hook);
	while (!list_empty(&now)) {
		struct index_change *c = LIST_ENTRY(list_pop_front(&now), struct index_change, link);

		c->done(c, code);
	}
}

static void encode_change(struct wcursor *w, const struct index_change *c)
{
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];

	index_key_encode(&c->row.copy, key);
	wcursor_u8(w, c->drop ? CHANGE_DROP : CHANGE_PUT);
	wcursor_bytes(w, key, sizeof(key));
	if (c->drop)
		return;
	index_value_encode(&c->row, value);
	wcursor_bytes(w, value, sizeof(value));
}

static void submit_batch(struct index *index, struct batch *b)
{
	struct wcursor w, head;
	uint32_t count = 0;

	wcursor_init(&w, b->data, sizeof(b->data));
	wcursor_zeros(&w, RECORD_HEAD_BYTES);
	while (!list_empty(&index->pending) && w.len + CHANGE_BYTES_MAX <= sizeof(b->data)) {
		struct list *n = list_pop_front(&index->pending);

		encode_change(&w, LIST_ENTRY(n, struct index_change, link));
		list_push_back(&b->changes, n);
		count++;
	}
	wcursor_init(&head, b->data, RECORD_HEAD_BYTES);
	wcursor_u16(&head, RECORD_VERSION);
	wcursor_u32(&head, count);
	CHECK(!w.failed && !head.failed);
	b->entry.append.data = slice_of(b->data, w.len);
	b->entry.done = batch_done;
	index->in_flight = true;
	journal_submit(index->journal, &b->entry);
}

static void flush_changes(struct io_turn_hook *hook)
{
	struct index *index = CONTAINER_OF(hook, struct index, hook);

	if (!list_empty(&index->pending) && !index->in_flight)
		submit_batch(index, &index->batch);
}

static void add_change(struct index *index, struct index_change *c, bool drop)
{
	c->drop = drop;
	list_push_back(&index->pending, &c->link);
	io_at_turn_end(index->io, &index->hook);
}

void index_put(struct index *index, struct index_change *c)
{
	add_change(index, c, false);
}

void index_drop(struct index *index, struct index_change *c)
{
	add_change(index, c, true);
}

/* ---- reading ---- */

int index_get(struct index *index, const struct copy_id *copy, struct index_row *ret_row)
{
	uint8_t key[INDEX_KEY_BYTES];
	struct slice value;
	int rc;

	if (!block_may_have_row(index, copy->block))
		return ERR_NOENT;
	index_key_encode(copy, key);
	rc = kv_get(journal_kv(index->journal), slice_of(key, sizeof(key)), &value);
	if (rc < 0)
		return rc;
	return index_row_decode(slice_of(key, sizeof(key)), value, ret_row);
}

size_t index_list(struct index *index, const struct copy_id *from, struct copy_id *ret_copies, size_t max)
{
	uint8_t key[INDEX_KEY_BYTES];
	struct kv_scan scan;
	struct rcursor r;
	size_t n = 0;

	index_key_encode(from, key);
	for (kv_seek(journal_kv(index->journal), &scan, slice_of(key, sizeof(key))); n < max && kv_scan_valid(&scan);
		kv_scan_next(&scan)) {
		rcursor_init(&r, scan.key.data, scan.key.len);
		if (key_decode(&r, &ret_copies[n]) < 0)
			break; /* another kind of row */
		n++;
	}
	kv_scan_end(&scan);
	return n;
}

uint64_t index_next_sequence(struct index *index)
{
	return ++index->sequence;
}

uint64_t index_count(const struct index *index)
{
	return index->count;
}

bool index_idle(const struct index *index)
{
	return !index->in_flight && list_empty(&index->pending);
}

bool index_is_full(const struct index *index)
{
	return kv_is_full(journal_kv(index->journal));
}

bool index_has_room(const struct index *index)
{
	return kv_pressure(journal_kv(index->journal)) < 100;
}

/* ---- life ---- */

static int scan(struct index *index, struct err *err)
{
	struct kv *kv = journal_kv(index->journal);
	uint8_t first = KEY_CHUNK;
	struct kv_scan s;
	int rc = 0;

	index->count = 0;
	for (kv_seek(kv, &s, slice_of(&first, 1)); kv_scan_valid(&s) && s.key.data[0] == KEY_CHUNK; kv_scan_next(&s)) {
		struct index_row row;

		rc = index_row_decode(s.key, s.value, &row);
		if (rc < 0)
			rc = err_set(err, ERR_CORRUPT, "a row of the chunk index is malformed");
		else
			rc = index->o.each(index->o.ctx, &row, err);
		if (rc < 0)
			break;
		index->count++;
		block_has_row(index, row.copy.block);
	}
	kv_scan_end(&s);
	index->sequence = stored_sequence(kv) + journal_epoch(index->journal) * INDEX_SEQUENCE_GAP;
	return rc < 0 ? rc : index->o.loaded(index->o.ctx, err);
}

static void free_index(struct index *index)
{
	io_turn_hook_remove(index->io, &index->hook);
	mem_free(index);
}

static void journal_closed(void *ctx, int code)
{
	struct index *index = ctx;
	void (*closed)(void *ctx) = index->closed;
	void *closed_ctx = index->closed_ctx;

	(void)code; /* whatever was acknowledged is in the log: the next start replays it */
	free_index(index);
	closed(closed_ctx);
}

static void journal_fatal(void *ctx, int code, const char *text)
{
	struct index *index = ctx;

	index->o.on_fatal(index->o.ctx, code, text);
}

int index_open(struct io *io, const struct index_options *options, struct index **ret_index, struct err *err)
{
	struct index *index = MEM_NEW(struct index);
	struct journal_options o = {
		.dir = options->dir,
		.backend = options->backend,
		.segment_bytes = options->log_segment_bytes,
		.entry_growth_bytes = RECORD_GROWTH_BYTES,
		.buffered = options->buffered,
		.apply = apply,
		.on_fatal = journal_fatal,
		.ctx = index,
	};
	int rc;

	index->io = io;
	index->o = *options;
	list_init(&index->pending);
	io_turn_hook_init(&index->hook, flush_changes);
	index->batch.index = index;
	list_init(&index->batch.changes);
	rc = journal_open(io, &o, &index->journal, err);
	if (rc < 0) {
		free_index(index);
		return rc;
	}
	rc = scan(index, err);
	if (rc < 0) {
		/* At once: whoever gave us the callbacks frees what they point to now. */
		journal_abandon(index->journal);
		free_index(index);
		return rc;
	}
	*ret_index = index;
	return 0;
}

void index_close(struct index *index, void (*closed)(void *ctx), void *ctx)
{
	CHECK(index_idle(index));
	index->closed = closed;
	index->closed_ctx = ctx;
	journal_close(index->journal, journal_closed, index);
}
