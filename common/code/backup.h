/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup: the stream of a metadata backup (docs/FORMATS.md): a header, sections of rows in rising order of their keys, a last section
 * that counts them. Each part's CRC covers that of the part before, so that nothing can be missing, doubled, swapped or of another
 * backup. metad writes it, whoever stores it checks it, a restore reads it. Pure.
 *
 *     backup_writer_init(&w, &header, out) -> backup_writer_row(&w, ...)* -> section when full -> backup_writer_end(&w)
 *     backup_check_header(&c, bytes, ...) -> backup_check_section(&c, bytes, ...)* until c.ended
 */
#ifndef COMMON_CODE_BACKUP_H
#define COMMON_CODE_BACKUP_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/slice.h"

enum {
	BACKUP_VERSION = 1,
	BACKUP_HEADER_BYTES = 128,
	BACKUP_SECTION_HEAD_BYTES = 40,
	BACKUP_SECTION_BYTES = LIMIT_BACKUP_SECTION_BYTES, /* greatest, head included */
	BACKUP_SOFTWARE_BYTES = 32,
};
/* A row always fits an empty section. */
_Static_assert(BACKUP_SECTION_HEAD_BYTES + 6 + LIMIT_KEY_BYTES + LIMIT_VALUE_BYTES <= (int)BACKUP_SECTION_BYTES, "one row");

struct backup_header {
	struct uuid cluster;
	uint64_t applied_index; /* of the log: the rows are the state after this entry */
	uint64_t state_ms;      /* state time */
	int64_t created_ns;     /* wall clock, for people */
	char software[BACKUP_SOFTWARE_BYTES];
};

/* ---- writing ---- */

struct backup_writer {
	uint8_t *out; /* BACKUP_SECTION_BYTES, the caller's: the section being filled */
	size_t len;
	uint32_t rows, crc;
	uint64_t number, total_rows, total_bytes;
};

/* The header is in `out`, w->len bytes: the first thing to store. */
void backup_writer_init(struct backup_writer *w, const struct backup_header *header, uint8_t *out);
/* After what is in `out` was stored. */
void backup_writer_next(struct backup_writer *w);
/* False: no room, nothing was added: seal, store, next, again. */
bool backup_writer_row(struct backup_writer *w, struct slice key, struct slice value);
/* Makes what was added a section: w->len bytes of `out`. */
void backup_writer_seal(struct backup_writer *w);
/* The last section, after backup_writer_next. */
void backup_writer_end(struct backup_writer *w);

/* ---- reading ---- */

struct backup_check {
	struct backup_header header;
	uint32_t crc;
	uint64_t number, rows, bytes;
	struct slice last_key; /* in `key` */
	uint8_t key[LIMIT_KEY_BYTES];
	bool ended;
};

/* ERR_FORMAT: not a backup; ERR_VERSION: of a version that this program does not know; ERR_CORRUPT. `err` says which. */
int backup_check_header(struct backup_check *c, struct slice bytes, struct err *err);
/* How long the section is whose head this is: BACKUP_SECTION_HEAD_BYTES .. BACKUP_SECTION_BYTES. ERR_CORRUPT. */
int backup_section_size(const uint8_t head[BACKUP_SECTION_HEAD_BYTES], size_t *ret_bytes);
/* One whole section, the next one. Rows come to `each` (may be NULL) when all of it was checked. ERR_CORRUPT, or what `each` returns. */
int backup_check_section(struct backup_check *c, struct slice section,
	int (*each)(void *ctx, struct slice key, struct slice value), void *ctx, struct err *err);

#endif
