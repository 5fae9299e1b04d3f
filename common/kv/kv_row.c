/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_row.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/limits.h"
#include <stdio.h>

enum { STATE_VERSION = 1 };

static uint32_t row_crc(struct slice key, struct slice value)
{
	return crc32c_extend(crc32c(key.data, key.len), value.data, value.len);
}

void kv_row_encode(struct slice key, struct slice value, uint8_t *out)
{
	struct wcursor w;

	wcursor_init(&w, out, KV_ROW_CRC_BYTES + value.len);
	wcursor_u32(&w, row_crc(key, value));
	wcursor_bytes(&w, value.data, value.len);
	CHECK(!w.failed);
}

static int row_damaged(const char *path, struct slice key, struct err *err)
{
	enum { SHOWN_BYTES = 48 };
	char hex[2 * SHOWN_BYTES + 1] = "";

	for (size_t i = 0; i < key.len && i < SHOWN_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", key.data[i]);
	return err_set(err, ERR_CORRUPT, "%s: the value of key %s%s (hex) fails its checksum", path, hex,
		key.len > SHOWN_BYTES ? "..." : "");
}

int kv_row_decode(const char *path, struct slice key, struct slice stored, struct slice *ret_value, struct err *err)
{
	struct slice value;
	struct rcursor r;
	uint32_t crc;

	if (stored.len > KV_ROW_CRC_BYTES + LIMIT_VALUE_BYTES)
		return row_damaged(path, key, err);
	rcursor_init(&r, stored.data, stored.len);
	crc = rcursor_u32(&r);
	value = rcursor_slice(&r, rcursor_left(&r));
	if (r.failed || crc != row_crc(key, value))
		return row_damaged(path, key, err);
	*ret_value = value;
	return 0;
}

void kv_state_encode(uint64_t applied, uint8_t out[KV_STATE_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out + KV_ROW_CRC_BYTES, KV_STATE_BYTES - KV_ROW_CRC_BYTES);
	wcursor_u16(&w, STATE_VERSION);
	wcursor_u64(&w, applied);
	wcursor_init(&w, out, KV_ROW_CRC_BYTES);
	wcursor_u32(&w, crc32c(out + KV_ROW_CRC_BYTES, KV_STATE_BYTES - KV_ROW_CRC_BYTES));
}

int kv_state_decode(const char *path, struct slice stored, uint64_t *ret_applied, struct err *err)
{
	uint16_t version;
	struct rcursor r;
	uint64_t applied;
	uint32_t crc;

	rcursor_init(&r, stored.data, stored.len);
	crc = rcursor_u32(&r);
	version = rcursor_u16(&r);
	applied = rcursor_u64(&r);
	if (!rcursor_done(&r) || crc != crc32c(stored.data + KV_ROW_CRC_BYTES, KV_STATE_BYTES - KV_ROW_CRC_BYTES))
		return err_set(err, ERR_CORRUPT, "%s: the applied index fails its checksum", path);
	if (version != STATE_VERSION)
		return err_set(err, ERR_VERSION, "%s: has format version %u, this program knows %d", path, version,
			STATE_VERSION);
	*ret_applied = applied;
	return 0;
}
