/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LMDB gives for a row, and what a table says of itself, on any bytes, as they are and with a CRC that fits. Byte 0: how long the key
 * is; then the key; then the value. What is taken lies within the input, and is stored as the bytes it came from.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/kv/kv_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_row(struct slice key, struct slice stored)
{
	struct err err = {0};
	struct slice value;
	uint8_t *out;
	int rc = kv_row_decode("data.mdb", key, stored, &value, &err);

	CHECK(rc == err.code && (rc == 0 || (rc == ERR_CORRUPT && strstr(err.text, "fails its checksum"))));
	if (rc)
		return;
	CHECK(value.len <= LIMIT_VALUE_BYTES && value.data + value.len == stored.data + stored.len);
	out = mem_alloc(KV_ROW_CRC_BYTES + value.len);
	kv_row_encode(key, value, out);
	CHECK(slice_compare(slice_of(out, KV_ROW_CRC_BYTES + value.len), stored) == 0);
	mem_free(out);
}

static void try_state(struct slice stored)
{
	uint8_t out[KV_STATE_BYTES];
	struct err err = {0};
	uint64_t applied;
	int rc = kv_state_decode("data.mdb", stored, &applied, &err);

	CHECK(rc == err.code && (rc == 0 || rc == ERR_CORRUPT || rc == ERR_VERSION));
	if (rc)
		return;
	kv_state_encode(applied, out);
	CHECK(slice_compare(slice_of(out, sizeof(out)), stored) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice key, stored;
	uint32_t crc;
	uint8_t *copy;

	try_state(slice_of(data, size));
	if (size == 0)
		return 0;
	key = slice_of(data + 1, data[0] < size - 1 ? data[0] : size - 1);
	stored = slice_of(key.data + key.len, size - 1 - key.len);
	try_row(key, stored);
	if (stored.len < KV_ROW_CRC_BYTES)
		return 0;
	copy = mem_alloc(stored.len);
	memcpy(copy, stored.data, stored.len);
	crc = crc32c_extend(crc32c(key.data, key.len), copy + KV_ROW_CRC_BYTES, stored.len - KV_ROW_CRC_BYTES);
	memcpy(copy, &crc, sizeof(crc));
	try_row(key, slice_of(copy, stored.len));
	crc = crc32c(copy + KV_ROW_CRC_BYTES, stored.len - KV_ROW_CRC_BYTES);
	memcpy(copy, &crc, sizeof(crc));
	try_state(slice_of(copy, stored.len));
	mem_free(copy);
	return 0;
}
