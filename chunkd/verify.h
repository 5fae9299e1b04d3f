/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: whether small chunks are on a disk whose records may have become durable before them (index.h). Synchronous, while a disk is opened.
 */
#ifndef CHUNKD_VERIFY_H
#define CHUNKD_VERIFY_H

#include <stdint.h>
#include "chunkd/index.h"
#include "common/base/log.h"
#include "common/code/hmac.h"

struct segments;

enum {
	VERIFY_READS = 3,       /* of a chunk that cannot be read */
	VERIFY_UNREADABLE = 16, /* chunks: more are no bad sectors but the disk */
	VERIFY_LINES = 32,      /* of the log, for chunks that are gone */
};

struct verify {
	struct io *io;
	const struct segments *segments;
	const struct hmac_key *trailer_key;
	const struct log *log;
	const char *dir;
	bool buffered; /* bytes go through the page cache */
	uint32_t *touched; /* segments with chunks that were found */
	uint32_t touched_count, touched_cap;
	uint32_t there, gone, unreadable; /* chunks */
};

void verify_init(struct verify *v, struct io *io, const struct segments *segments, const struct hmac_key *trailer_key, const struct log *log, const char *dir,
	bool buffered);
/*
 * 1: data and trailer are there, whole; or the row points to no place of this disk, which is for others to say. 0: they are not, or the disk cannot read them.
 * Below 0: so with too many, or nobody knows.
 */
int verify_chunk(struct verify *v, const struct index_row *row, struct err *err);
/* Makes durable what was found. Below 0: it cannot be. Logs how many chunks were looked at, if any. */
int verify_end(struct verify *v, struct err *err);
void verify_fini(struct verify *v);
/* What io_pread says; what the disk cannot read, or not in time, is tried again at once, VERIFY_READS times in all. */
int64_t verify_read(struct io *io, int fd, uint8_t *bytes, size_t len, uint64_t offset);
/* The bytes of a chunk of INDEX_BESIDE_BYTES at most have the unit CRCs of its trailer. */
bool verify_is_whole(const struct format_trailer *trailer, const uint8_t *bytes);

#endif
