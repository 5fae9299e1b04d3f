/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_derived: the rows that a commit's rows of the source table make of the target table, gathered and sorted before they are written: one
 * source row makes rows all over the target table, and a tree takes neighbours far faster than strangers.
 */
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/kv_backend.h"

enum {
	GATHERED_ROWS =
		1024, /* sorted and written at once: some dozens of each kind of neighbours, and all of it stays in a core's cache */
	ROW_BYTES = 64,
};

_Static_assert(GATHERED_ROWS >= 8 * KV_DERIVED_ROWS, "several source rows are gathered");

struct kv_derived_rows {
	const struct kv_derived *derived;
	struct memtable_row rows[GATHERED_ROWS]; /* pointing into `data` */
	uint8_t data[GATHERED_ROWS][ROW_BYTES];
	size_t count, next, of_this_row;
	bool sorted;
};

struct kv_derived_rows *kv_derived_new(const struct kv_derived *derived)
{
	struct kv_derived_rows *r;

	if (!derived)
		return NULL;
	r = MEM_NEW(struct kv_derived_rows);
	r->derived = derived;
	return r;
}

void kv_derived_free(struct kv_derived_rows *r)
{
	mem_free(r);
}

bool kv_derives(const struct kv_derived_rows *r, struct slice key)
{
	return r && key.data[0] == r->derived->source;
}

int kv_derive(struct kv_derived_rows *r, const struct memtable_row *row, const struct slice *was, struct err *err)
{
	CHECK(!r->sorted && !kv_derived_full(r));
	r->of_this_row = 0;
	return r->derived->derive(row->key, was, row->tombstone ? NULL : &row->value, r, err);
}

bool kv_derived_full(const struct kv_derived_rows *r)
{
	return r->count + KV_DERIVED_ROWS > GATHERED_ROWS;
}

static void gather(struct kv_derived_rows *r, struct slice key, struct slice value, bool tombstone)
{
	uint8_t *data = r->data[r->count];

	CHECK(key.len > 0 && key.data[0] == r->derived->target && key.len + value.len <= ROW_BYTES);
	CHECK(r->of_this_row++ < KV_DERIVED_ROWS);
	memcpy(data, key.data, key.len);
	if (value.len)
		memcpy(data + key.len, value.data, value.len);
	r->rows[r->count++] = (struct memtable_row){
		.key = slice_of(data, key.len), .value = slice_of(data + key.len, value.len), .tombstone = tombstone};
}

void kv_derived_put(struct kv_derived_rows *r, struct slice key, struct slice value)
{
	gather(r, key, value, false);
}

void kv_derived_del(struct kv_derived_rows *r, struct slice key)
{
	gather(r, key, slice_of(NULL, 0), true);
}

static int compare(const void *a, const void *b)
{
	return slice_compare(((const struct memtable_row *)a)->key, ((const struct memtable_row *)b)->key);
}

const struct memtable_row *kv_derived_next(struct kv_derived_rows *r)
{
	if (!r->sorted)
		qsort(r->rows, r->count, sizeof(r->rows[0]), compare);
	r->sorted = r->next < r->count;
	if (r->sorted)
		return &r->rows[r->next++];
	r->count = r->next = 0;
	return NULL;
}
