/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoders of trailers and of index rows on any bytes; trailers once more with an HMAC that fits, which is what lies behind the
 * check. What is taken must lie within the input and encode to the bytes it came from.
 */
#include <string.h>
#include "chunkd/format.h"
#include "chunkd/index.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hmac_key *own_key(void)
{
	static const uint8_t secret[FORMAT_SECRET_BYTES] = {7};
	static struct hmac_key key;

	hmac_key_init(&key, secret);
	return &key;
}

static void try_decode(const uint8_t *data, size_t size)
{
	struct format_trailer t, again;
	size_t bytes, sum = 0;
	uint8_t *out;

	if (format_trailer_decode(slice_of(data, size), own_key(), &t) < 0)
		return;
	CHECK(t.list.data >= data && t.list.data + t.list.len <= data + size);
	for (uint8_t i = 0; i < LIMIT_K; i++)
		sum += format_trailer_data_list(&t, i).len;
	CHECK(sum == t.data_lists.len);
	bytes = format_trailer_bytes(t.list.len, t.data_lists.len);
	out = mem_alloc(bytes);
	format_trailer_encode(&t, own_key(), out);
	CHECK(format_trailer_decode(slice_of(out, bytes), own_key(), &again) == 0);
	CHECK(again.sequence == t.sequence && slice_compare(again.list, t.list) == 0);
	mem_free(out);
}

static void try_row(const uint8_t *data, size_t size)
{
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];
	size_t cut = size < INDEX_KEY_BYTES ? size : INDEX_KEY_BYTES;
	struct index_row row;

	if (index_row_decode(slice_of(data, cut), slice_of(data + cut, size - cut), &row) < 0)
		return;
	index_key_encode(&row.copy, key);
	index_value_encode(&row, value);
	CHECK(memcmp(key, data, sizeof(key)) == 0 && size == sizeof(key) + sizeof(value));
	CHECK(index_row_trailer_bytes(&row) > 0 && index_row_trailer_bytes(&row) <= LIMIT_TRAILER_BYTES);
}

/* As its disk would have written it, in the layout of that version. */
static void try_signed(uint8_t *bytes, size_t size, uint8_t version, size_t hashed)
{
	bytes[4] = version;
	token_hmac(own_key(), bytes, hashed, bytes + size - FORMAT_MAC_BYTES);
	try_decode(bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t padded = size / FORMAT_GRAIN_BYTES * FORMAT_GRAIN_BYTES, most = padded - FORMAT_MAC_BYTES;
	uint32_t lists[2];
	uint64_t used;
	uint8_t *copy;

	try_row(data, size);
	try_decode(data, size);
	if (padded == 0)
		return 0;
	copy = mem_alloc(padded);
	memcpy(copy, data, padded);
	memcpy(lists, copy + 80, sizeof(lists));
	used = (uint64_t)FORMAT_TRAILER_HEAD_BYTES + lists[0] + lists[1];
	try_signed(copy, padded, 1, most);
	try_signed(copy, padded, 2, used < most ? (size_t)used : most);
	mem_free(copy);
	return 0;
}
