/* SPDX-License-Identifier: Apache-2.0 */
/* json: writes JSON (RFC 8259) into a buf; commas are placed by it. Bytes that are not UTF-8 are written as U+FFFD. */
#ifndef COMMON_BASE_JSON_H
#define COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"

struct json {
	struct buf *out;
	uint32_t depth;
	bool first; /* next value is the first of its object or array */
};

void json_init(struct json *j, struct buf *out);
void json_object(struct json *j, const char *key);   /* key NULL inside arrays and at the top */
void json_array(struct json *j, const char *key);
void json_end_object(struct json *j);
void json_end_array(struct json *j);
void json_str(struct json *j, const char *key, const char *value);
/*
 * In objects, of what may hold any bytes and must be found again (names, paths): as json_str, and if the bytes are not UTF-8 all of them a
 * second time, as base64 (RFC 4648), under the key with "_base64" behind it.
 */
void json_name(struct json *j, const char *key, const char *value);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_f64(struct json *j, const char *key, double value);  /* not finite: null */
void json_bool(struct json *j, const char *key, bool value);

#endif
