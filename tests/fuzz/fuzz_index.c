/* SPDX-License-Identifier: Apache-2.0 */
/* Records and rows of a disk's index: what is accepted encodes to the bytes it came from. */
#include <string.h>
#include "chunkd/index.h"
#include "common/base/check.h"
#include "common/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct walked {
	struct slice record;
	uint64_t changes;
};

static void same_row(const struct index_row *row, struct slice key, struct slice value)
{
	uint8_t key_bytes[INDEX_KEY_BYTES], value_bytes[INDEX_VALUE_BYTES];

	index_key_encode(&row->copy, key_bytes);
	index_value_encode(row, value_bytes);
	CHECK(memcmp(key_bytes, key.data, INDEX_KEY_BYTES) == 0 && memcmp(value_bytes, value.data, INDEX_VALUE_BYTES) == 0);
}

static void each(void *ctx, const struct index_record_change *c)
{
	struct walked *w = ctx;

	CHECK(c->key.len == INDEX_KEY_BYTES && c->key.data >= w->record.data);
	CHECK(c->key.data + c->key.len + c->value.len <= w->record.data + w->record.len);
	CHECK(c->value.len == (c->drop ? 0 : INDEX_VALUE_BYTES));
	if (!c->drop)
		same_row(&c->row, c->key, c->value);
	w->changes++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct walked w = {.record = slice_of(data, size)};
	struct slice key, value;
	struct index_row row;
	uint64_t settled;
	int rc = index_record_walk(w.record, each, &w, &settled);

	CHECK(rc == 0 || rc == ERR_VERSION || rc == ERR_FORMAT);
	CHECK(w.changes <= size / (1 + INDEX_KEY_BYTES));
	if (size < INDEX_KEY_BYTES)
		return 0;
	key = slice_of(data, INDEX_KEY_BYTES);
	value = slice_of(data + INDEX_KEY_BYTES, size - INDEX_KEY_BYTES);
	if (index_row_decode(key, value, &row) == 0)
		same_row(&row, key, value);
	return 0;
}
