/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_row: the values in LMDB's two tables (docs/FORMATS.md, "Table of the key-value store"): a row's behind a CRC over its key and itself, and
 * what the table says of itself. Pure. `path`: for the error's text.
 */
#ifndef COMMON_KV_KV_ROW_H
#define COMMON_KV_KV_ROW_H

#include "common/base/err.h"
#include "common/base/slice.h"
#include <stdint.h>

enum { KV_ROW_CRC_BYTES = 4, KV_STATE_BYTES = 4 + 2 + 8 };

/* out: KV_ROW_CRC_BYTES + value.len. */
void kv_row_encode(struct slice key, struct slice value, uint8_t *out);
/* The value lies in `stored`, of which nothing is read if its length cannot be: it may reach behind the file's end. ERR_CORRUPT. */
int kv_row_decode(const char *path, struct slice key, struct slice stored, struct slice *ret_value, struct err *err);

void kv_state_encode(uint64_t applied, uint8_t out[KV_STATE_BYTES]);
/* ERR_CORRUPT, ERR_VERSION. */
int kv_state_decode(const char *path, struct slice stored, uint64_t *ret_applied, struct err *err);

#endif
