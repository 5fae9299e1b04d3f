/* SPDX-License-Identifier: Apache-2.0 */
/* units: sizes, durations and numbers as people write them. */
#ifndef COMMON_BASE_UNITS_H
#define COMMON_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum { UNITS_TEXT_BYTES = 32 };

/* "4096", "64K", "1.5G", "8GiB" (binary), "8GB" (decimal). ERR_INVAL, ERR_RANGE. */
int units_parse_bytes(const char *text, uint64_t *ret_bytes);
/* "250ms", "30s", "10m", "1h"; a bare number is seconds. */
int units_parse_ms(const char *text, uint64_t *ret_ms);
int units_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value); /* decimal */
const char *units_format_bytes(uint64_t bytes, char text[UNITS_TEXT_BYTES]); /* "1.5 GiB" */
const char *units_format_ms(uint64_t ms, char text[UNITS_TEXT_BYTES]); /* "30s", "24h": exact, as units_parse_ms reads it */
const char *units_format_ns(uint64_t ns, char text[UNITS_TEXT_BYTES]);       /* "1.5 ms" */

#endif
