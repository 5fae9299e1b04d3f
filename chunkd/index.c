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
 *
 * Settled seals: the least sequence of a chunk that is being written, when a record is made, is in the record, and in a row of its own when that
 * is applied, with the greatest of all seals then: what has a greater one at a start is of an older build, which records chunks when they are durable. It never passes a
 * chunk whose write failed, nor, after a start, one whose row is to go, before that is recorded: what a crash
 * leaves of these is looked at again. Rows of what is not settled are there for nobody (is_hidden), as their records may be applied first.
 * The last record of all does not speak for its own chunks: when nothing else came for SETTLE_NS, and before it is closed, an empty one does (or two, to_be_said).
 */
#include "chunkd/index.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/kv/journal.h"

enum {
	RECORD_BYTES = 128 << 10,
	RECORD_GROWTH_BYTES =
		8 * RECORD_BYTES, /* a drop is 19 bytes there and some 100 in memory; a put less than twice its own */
	KEY_SEQUENCE = 's',
	KEY_SETTLED = 'u',
};

/* What writers hold block ids of, taken together: they come in no order, and what has no row need not be looked for. */
enum { RECENT_BLOCKS = 1 << 20 };

#define SETTLE_NS (1000000000ull)

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
	uint64_t submitted_ns; /* what is in flight */
	struct index_stats stats;
	uint64_t said; /* settled, in the last record; UINT64_MAX: nobody needs to hear of it */
	uint64_t said_durably; /* likewise, in the last one that is durable; what the start found is */
	uint64_t settled_before; /* when the last record was made */
	struct io_op timer;
	struct io_turn_hook hook;
	uint64_t count, sequence;
	struct list unsettled; /* changes of chunks that are being written, or are not there, by sequence */
	struct {
		uint64_t *sequences; /* of chunks whose write failed, or whose row could not be dropped: hidden until the next start */
		size_t count, cap;
		uint64_t least; /* UINT64_MAX: none */
	} failed;
	struct {
		struct index_change *changes;
		size_t count, cap, left;
	} gone; /* of the last life, not there: their rows are dropped */
	uint64_t greatest_block; /* that ever had a row */
	uint64_t recent[RECENT_BLOCKS / 64]; /* a bit for each of that and those before it, by number: it may have rows */
	void (*closed)(void *ctx);
	void *closed_ctx;
};

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

/* 0: none. */
static uint64_t stored_number(struct kv *kv, uint8_t key)
{
	struct slice value;
	struct rcursor r;

	if (kv_get(kv, slice_of(&key, 1), &value) < 0)
		return 0;
	rcursor_init(&r, value.data, value.len);
	return rcursor_u64(&r);
}

/* It only ever rises. */
static void store_sequence(struct kv *kv, uint64_t sequence)
{
	uint8_t key = KEY_SEQUENCE, value[8];
	struct wcursor w;

	if (sequence <= stored_number(kv, key))
		return;
	wcursor_init(&w, value, sizeof(value));
	wcursor_u64(&w, sequence);
	kv_put(kv, slice_of(&key, 1), slice_of(value, sizeof(value)));
}

static void store_settled(struct kv *kv, uint64_t settled)
{
	uint8_t key = KEY_SETTLED, value[16];
	struct wcursor w;

	if (settled == 0)
		return;
	wcursor_init(&w, value, sizeof(value));
	wcursor_u64(&w, settled);
	wcursor_u64(&w, stored_number(kv, KEY_SEQUENCE));
	kv_put(kv, slice_of(&key, 1), slice_of(value, sizeof(value)));
}

/* Chunks whose durability is not known: sequences from `from` to `to`. */
struct unsettled {
	uint64_t from, to;
};

static struct unsettled stored_unsettled(struct kv *kv)
{
	uint8_t key = KEY_SETTLED;
	struct unsettled u;
	struct slice value;
	struct rcursor r;

	if (kv_get(kv, slice_of(&key, 1), &value) < 0)
		return (struct unsettled){1, 0};
	rcursor_init(&r, value.data, value.len);
	u.from = rcursor_u64(&r);
	u.to = rcursor_u64(&r);
	return u;
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
	uint64_t settled;
	int rc = index_record_walk(data, apply_change, &a, &settled);

	(void)entry;
	if (rc < 0)
		return err_set(err, rc, "index record %llu %s", (unsigned long long)at,
			rc == ERR_VERSION ? "has an unknown version: use a newer program" : "is malformed");
	store_sequence(kv, a.sequence);
	store_settled(kv, settled);
	return 0;
}

/* ---- seals that are not settled ---- */

static uint64_t first_unsettled(const struct index *index)
{
	return LIST_ENTRY(index->unsettled.next, struct index_change, unsettled)->row.sequence;
}

static uint64_t settled(const struct index *index)
{
	uint64_t first = list_empty(&index->unsettled) ? index->sequence + 1 : first_unsettled(index);

	return first < index->failed.least ? first : index->failed.least;
}

/* The list is short, and most rows are of before its first. */
static bool is_hidden(const struct index *index, uint64_t sequence)
{
	for (size_t i = 0; i < index->failed.count && sequence >= index->failed.least; i++)
		if (index->failed.sequences[i] == sequence)
			return true;
	LIST_FOREACH(it, &index->unsettled) {
		uint64_t at = LIST_ENTRY(it, struct index_change, unsettled)->row.sequence;

		if (at >= sequence)
			return at == sequence;
	}
	return false;
}

static void note_failed(struct index *index, uint64_t sequence)
{
	if (index->failed.count == index->failed.cap) {
		index->failed.cap = index->failed.cap ? 2 * index->failed.cap : 16;
		index->failed.sequences = mem_realloc(index->failed.sequences, index->failed.cap * sizeof(*index->failed.sequences));
	}
	index->failed.sequences[index->failed.count++] = sequence;
	if (sequence < index->failed.least)
		index->failed.least = sequence;
}

void index_doubt(struct index *index)
{
	if (index->said_durably < index->failed.least)
		index->failed.least = index->said_durably;
}

static void settle(struct index *index, struct index_change *c, int code)
{
	list_remove(&c->unsettled);
	if (code < 0)
		note_failed(index, c->row.sequence);
}

/* A change whose record is durable, or failed, and whose chunk is. */
static void end_change(struct index_change *c)
{
	c->done(c, c->code);
}

/* ---- changes ---- */

static void close_when_idle(struct index *index);
static void settle_soon(struct index *index);
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
	index->stats.records++;
	index->stats.records_ns += io_now_ns(index->io) - index->submitted_ns;
	if (!list_empty(&index->pending) || index->closed)
		io_at_turn_end(index->io, &index->hook);
	if (code < 0)
		index->said = UINT64_MAX;
	else
		index->said_durably = index->said;
	while (!list_empty(&now)) {
		struct index_change *c = LIST_ENTRY(list_pop_front(&now), struct index_change, link);

		c->recorded = true;
		c->code = code < 0 ? code : c->code;
		if (!c->data_due)
			end_change(c);
	}
	settle_soon(index);
}

/*
 * Through the page cache a failure may be told to another write than the one that it is of. So what is settled is said one record later there: when that is
 * made, a record was durable behind it, and the failure would have been heard.
 */
static uint64_t to_be_said(struct index *index)
{
	uint64_t now = settled(index), before = index->settled_before;

	index->settled_before = now;
	return index->o.buffered && before < now ? before : now;
}

static void submit_batch(struct index *index, struct batch *b)
{
	struct wcursor w;
	uint32_t count = 0;

	wcursor_init(&w, b->data, sizeof(b->data));
	wcursor_zeros(&w, INDEX_HEAD_BYTES);
	while (!list_empty(&index->pending) && w.len + INDEX_CHANGE_BYTES_MAX <= sizeof(b->data)) {
		struct list *n = list_pop_front(&index->pending);
		const struct index_change *c = LIST_ENTRY(n, struct index_change, link);

		index_record_change_encode(&w, c->drop, &c->row);
		list_push_back(&b->changes, n);
		count++;
	}
	index->said = to_be_said(index);
	index_record_head_encode(b->data, count, index->said);
	CHECK(!w.failed);
	b->entry.append.data = slice_of(b->data, w.len);
	b->entry.done = batch_done;
	index->in_flight = true;
	index->submitted_ns = io_now_ns(index->io);
	journal_submit(index->journal, &b->entry);
}

static void flush_changes(struct io_turn_hook *hook)
{
	struct index *index = CONTAINER_OF(hook, struct index, hook);

	if (!list_empty(&index->pending) && !index->in_flight)
		submit_batch(index, &index->batch);
	if (index->closed)
		close_when_idle(index);
}

static void add_change(struct index *index, struct index_change *c, bool drop)
{
	c->drop = drop;
	c->data_due = c->recorded = false;
	c->code = 0;
	list_push_back(&index->pending, &c->link);
	io_at_turn_end(index->io, &index->hook);
}

void index_put(struct index *index, struct index_change *c)
{
	if (c->row.sequence > index->sequence)
		index->sequence = c->row.sequence; /* of an index made anew: settled is behind all of it */
	add_change(index, c, false);
}

void index_put_beside(struct index *index, struct index_change *c)
{
	CHECK(c->row.length <= INDEX_BESIDE_BYTES && c->row.sequence == index->sequence);
	add_change(index, c, false);
	c->data_due = true;
	index->stats.beside++;
	list_push_back(&index->unsettled, &c->unsettled);
}

void index_written(struct index *index, struct index_change *c, int code)
{
	CHECK(c->data_due);
	c->data_due = false;
	settle(index, c, code);
	c->code = code < 0 ? code : c->code;
	settle_soon(index);
	if (c->recorded)
		end_change(c);
}

/* ---- when nothing else comes ---- */

static bool has_to_settle(const struct index *index)
{
	return list_empty(&index->unsettled) && index->said < settled(index);
}

static bool can_settle(const struct index *index)
{
	return has_to_settle(index) && !index_is_full(index) && index_has_room(index);
}

static void on_timer(struct io_op *timer)
{
	struct index *index = CONTAINER_OF(timer, struct index, timer);

	if (index->closed)
		io_at_turn_end(index->io, &index->hook);
	else if (index_idle(index) && can_settle(index) && io_now_ns(index->io) >= index->submitted_ns + SETTLE_NS)
		submit_batch(index, &index->batch);
	else
		settle_soon(index);
}

/* A second after the last record, and once a second until there is room for it; while others come, each of them speaks for those before it. */
static void settle_soon(struct index *index)
{
	uint64_t now_ns = io_now_ns(index->io), at_ns = index->submitted_ns + SETTLE_NS;

	if (index->closed || io_pending(&index->timer) || !has_to_settle(index))
		return;
	io_prep_timer(&index->timer, at_ns > now_ns ? at_ns : now_ns + SETTLE_NS, on_timer);
	io_submit(index->io, &index->timer);
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
	rc = index_row_decode(slice_of(key, sizeof(key)), value, ret_row);
	return rc == 0 && is_hidden(index, ret_row->sequence) ? ERR_NOENT : rc;
}

size_t index_list(struct index *index, const struct copy_id *from, struct copy_id *ret_copies, size_t max)
{
	uint8_t key[INDEX_KEY_BYTES];
	struct index_row row;
	struct kv_scan scan;
	size_t n = 0;

	index_key_encode(from, key);
	for (kv_seek(journal_kv(index->journal), &scan, slice_of(key, sizeof(key))); n < max && kv_scan_valid(&scan);
		kv_scan_next(&scan)) {
		if (index_row_decode(scan.key, scan.value, &row) < 0)
			break; /* another kind of row */
		if (!is_hidden(index, row.sequence))
			ret_copies[n++] = row.copy;
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

struct index_stats index_stats(const struct index *index)
{
	return index->stats;
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

static void gone_dropped(struct index_change *c, int code)
{
	struct index *index = c->owner;

	settle(index, c, code);
	index->gone.left--;
}

static void note_gone(struct index *index, const struct index_row *row)
{
	if (index->gone.count == index->gone.cap) {
		index->gone.cap = index->gone.cap ? 2 * index->gone.cap : 16;
		index->gone.changes = mem_realloc(index->gone.changes, index->gone.cap * sizeof(*index->gone.changes));
	}
	index->gone.changes[index->gone.count++] = (struct index_change){.row = *row, .done = gone_dropped, .owner = index};
}

static int by_sequence(const void *va, const void *vb)
{
	const struct index_change *a = va, *b = vb;

	return a->row.sequence < b->row.sequence ? -1 : a->row.sequence > b->row.sequence;
}

/* Ahead of all that comes: whoever gets an extent of theirs records it behind them. */
static void drop_gone(struct index *index)
{
	index->gone.left = index->gone.count;
	if (index->gone.count)
		qsort(index->gone.changes, index->gone.count, sizeof(*index->gone.changes), by_sequence);
	for (size_t i = 0; i < index->gone.count; i++) {
		SOMETIMES(index_row_without_chunk);
		list_push_back(&index->unsettled, &index->gone.changes[i].unsettled);
		index_drop(index, &index->gone.changes[i]);
	}
}

/* 0: the row's chunk may not be there, and is not. */
static int is_there(struct index *index, const struct index_row *row, struct unsettled u, struct err *err)
{
	if (row->sequence < u.from || row->sequence > u.to || row->length > INDEX_BESIDE_BYTES || !index->o.verify)
		return 1;
	index->said = 0;
	return index->o.verify(index->o.ctx, row, err);
}

static int scan(struct index *index, struct err *err)
{
	struct unsettled unsettled = stored_unsettled(journal_kv(index->journal));
	struct kv *kv = journal_kv(index->journal);
	uint8_t first = INDEX_KEY_CHUNK;
	struct kv_scan s;
	int rc = 0;

	index->count = 0;
	for (kv_seek(kv, &s, slice_of(&first, 1)); kv_scan_valid(&s) && s.key.data[0] == INDEX_KEY_CHUNK; kv_scan_next(&s)) {
		struct index_row row;

		rc = index_row_decode(s.key, s.value, &row);
		if (rc < 0)
			rc = err_set(err, ERR_CORRUPT, "a row of the chunk index is malformed");
		else
			rc = is_there(index, &row, unsettled, err);
		if (rc == 0)
			note_gone(index, &row);
		else if (rc > 0)
			rc = index->o.each(index->o.ctx, &row, err);
		if (rc < 0)
			break;
		index->count++;
		block_has_row(index, row.copy.block);
	}
	kv_scan_end(&s);
	index->sequence = stored_number(kv, KEY_SEQUENCE) + journal_epoch(index->journal) * INDEX_SEQUENCE_GAP;
	index->said_durably = index->settled_before = index->sequence + 1;
	rc = rc < 0 ? rc : index->o.loaded(index->o.ctx, err);
	if (rc < 0)
		return rc;
	drop_gone(index);
	settle_soon(index);
	return 0;
}

static void free_index(struct index *index)
{
	io_turn_hook_remove(index->io, &index->hook);
	mem_free(index->gone.changes);
	mem_free(index->failed.sequences);
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
	list_init(&index->unsettled);
	index->failed.least = UINT64_MAX;
	index->said = UINT64_MAX;
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

/* What a start found missing may still be on its way, or what nothing else came behind. */
static void close_when_idle(struct index *index)
{
	if (!index_idle(index) || io_pending(&index->timer))
		return;
	if (can_settle(index))
		submit_batch(index, &index->batch);
	else
		journal_close(index->journal, journal_closed, index);
}

void index_close(struct index *index, void (*closed)(void *ctx), void *ctx)
{
	index->closed = closed;
	index->closed_ctx = ctx;
	CHECK(list_empty(&index->pending) || index->gone.left);
	if (io_pending(&index->timer))
		io_cancel(index->io, &index->timer);
	close_when_idle(index);
}
