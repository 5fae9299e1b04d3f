/* SPDX-License-Identifier: Apache-2.0 */
/* Scans: the active memory table, the frozen one and the backing store, merged by key; of equal keys the newest row. */
#include "common/kv/kv_private.h"

#include <string.h>
#include "common/base/check.h"

/*
 * The private part of a scan: sources[0] and [1] with state[0] and [1] are positions in the active and the frozen
 * table, sources[2] is the backing store's cursor with its key in state[4] and [5].
 */
enum scan_state {
	SCAN_SLOT = 0, /* and 1 */
	SCAN_GENERATION = 2,
	SCAN_AT = 3,    /* bits of the sources that stand at scan->key */
	SCAN_KEY = 4,   /* address, length; 0: the cursor is behind the last row */
	SCAN_RENEWALS = 6,
	SCAN_RECENT = 7, /* removed rows, too */
};
enum { SCAN_TABLES = 2, SCAN_BACKING = 2, SCAN_SOURCES = 3 };

static struct slice scan_slice(const struct kv_scan *scan, enum scan_state at)
{
	return slice_of((const void *)(uintptr_t)scan->state[at], scan->state[at + 1]);
}

static void scan_store(struct kv_scan *scan, enum scan_state at, struct slice s)
{
	scan->state[at] = (uint64_t)(uintptr_t)s.data;
	scan->state[at + 1] = s.len;
}

static struct memtable_pos scan_pos(const struct kv_scan *scan, int source)
{
	return (struct memtable_pos){scan->sources[source], scan->state[SCAN_SLOT + source]};
}

static void scan_store_pos(struct kv_scan *scan, int source, const struct memtable_pos *pos)
{
	scan->sources[source] = (void *)(uintptr_t)pos->leaf;
	scan->state[SCAN_SLOT + source] = pos->slot;
}

/* Where source stands; of the backing store without the value. False: at its end. */
static bool scan_source(const struct kv_scan *scan, int source, struct memtable_row *ret_row)
{
	struct memtable_pos pos;

	if (source == SCAN_BACKING) {
		*ret_row = (struct memtable_row){.key = scan_slice(scan, SCAN_KEY)};
		return ret_row->key.len > 0;
	}
	pos = scan_pos(scan, source);
	return memtable_at(&pos, ret_row);
}

/* After a seek or a step of the backing store's cursor. */
static void scan_backing_result(struct kv_scan *scan, int rc, struct slice key, const struct err *err)
{
	scan_store(scan, SCAN_KEY, rc ? slice_of(NULL, 0) : key);
	if (rc && rc != ERR_NOENT)
		kv__read_failed(scan->kv, rc, err->text);
}

static void scan_step(struct kv_scan *scan, int source)
{
	struct slice key = {NULL, 0};
	struct kv *kv = scan->kv;
	struct memtable_pos pos;
	struct err err;
	int rc;

	if (source == SCAN_BACKING) {
		rc = kv->backend->next(kv->store, scan->sources[SCAN_BACKING], &key, &err);
		scan_backing_result(scan, rc, key, &err);
		return;
	}
	pos = scan_pos(scan, source);
	memtable_next(&pos);
	scan_store_pos(scan, source, &pos);
}

static void scan_step_all_at_key(struct kv_scan *scan)
{
	for (int i = 0; i < SCAN_SOURCES; i++)
		if (scan->state[SCAN_AT] & 1u << i)
			scan_step(scan, i);
}

static bool scan_is_within(const struct kv_scan *scan, struct slice key)
{
	return key.len >= scan->prefix_bytes && memcmp(key.data, scan->prefix, scan->prefix_bytes) == 0;
}

/* The scan stands at a row of the backing store alone. */
static bool scan_open_backing(struct kv_scan *scan, struct slice *ret_value)
{
	struct err err;
	int rc = scan->kv->backend->value(scan->kv->store, scan->sources[SCAN_BACKING], ret_value, &err);

	if (rc)
		kv__read_failed(scan->kv, rc, err.text);
	return rc == 0;
}

/* Stops at the smallest key of all sources whose newest row is not a tombstone, or at any; or behind the keys that are meant. */
static void scan_settle(struct kv_scan *scan)
{
	struct memtable_row best = {0}, row;
	int c;

	for (;;) {
		scan->state[SCAN_AT] = 0;
		for (int i = 0; i < SCAN_SOURCES; i++) {
			if (!scan_source(scan, i, &row))
				continue;
			c = scan->state[SCAN_AT] ? slice_compare(row.key, best.key) : -1;
			if (c < 0) {
				best = row; /* of equal keys the first source, which is the newest, wins */
				scan->state[SCAN_AT] = 1u << i;
			} else if (c == 0) {
				scan->state[SCAN_AT] |= 1u << i;
			}
		}
		if (!scan->state[SCAN_AT] || scan->kv->unreadable || !scan_is_within(scan, best.key) ||
			(scan->state[SCAN_AT] == 1u << SCAN_BACKING && !scan_open_backing(scan, &best.value))) {
			scan->key = scan->value = slice_of(NULL, 0);
			return;
		}
		if (!best.tombstone || scan->state[SCAN_RECENT])
			break;
		scan->kv->stats.passed_rows++;
		scan_step_all_at_key(scan);
	}
	scan->key = best.key;
	scan->value = best.value;
	scan->removed = best.tombstone;
}

static void seek(struct kv *kv, struct kv_scan *scan, struct slice from, size_t prefix_bytes, bool recent)
{
	const struct memtable *const tables[SCAN_TABLES] = {kv->active, kv->frozen};
	struct slice key = {NULL, 0};
	struct memtable_pos pos;
	struct err err;
	int rc;

	memset(scan, 0, sizeof(*scan));
	scan->kv = kv;
	scan->state[SCAN_GENERATION] = kv->generation;
	scan->state[SCAN_RENEWALS] = kv->renewals;
	scan->state[SCAN_RECENT] = recent;
	if (prefix_bytes)
		memcpy(scan->prefix, from.data, prefix_bytes);
	scan->prefix_bytes = prefix_bytes;
	for (int i = 0; i < SCAN_TABLES; i++) {
		memtable_seek(tables[i], &pos, from);
		scan_store_pos(scan, i, &pos);
	}
	rc = recent || kv->unreadable
		? ERR_NOENT
		: kv->backend->seek(kv->store, from, &scan->sources[SCAN_BACKING], &key, &err);
	scan_backing_result(scan, rc, key, &err);
	scan_settle(scan);
}

void kv_seek(struct kv *kv, struct kv_scan *scan, struct slice from)
{
	seek(kv, scan, from, 0, false);
}

void kv_seek_within(struct kv *kv, struct kv_scan *scan, struct slice from, size_t prefix_bytes)
{
	CHECK(prefix_bytes <= KV_PREFIX_MAX && prefix_bytes <= from.len);
	seek(kv, scan, from, prefix_bytes, false);
}

void kv_seek_recent(struct kv *kv, struct kv_scan *scan, struct slice from)
{
	seek(kv, scan, from, 0, true);
}

bool kv_scan_valid(const struct kv_scan *scan)
{
	return scan->key.len > 0;
}

void kv_scan_next(struct kv_scan *scan)
{
	CHECK(kv_scan_valid(scan));
	CHECK(scan->state[SCAN_GENERATION] == scan->kv->generation);
	scan_step_all_at_key(scan);
	scan_settle(scan);
}

void kv_scan_end(struct kv_scan *scan)
{
	/* a renew has ended the cursors from before it */
	if (scan->sources[SCAN_BACKING] && scan->state[SCAN_RENEWALS] == scan->kv->renewals)
		scan->kv->backend->seek_end(scan->kv->store, scan->sources[SCAN_BACKING]);
	scan->sources[SCAN_BACKING] = NULL;
	scan->key = scan->value = slice_of(NULL, 0);
}
