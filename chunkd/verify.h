/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: whether small chunks are on a disk, durably, whose records may have become durable before them (index.h). Synchronous, while a disk
 * is opened.
 */
#ifndef CHUNKD_VERIFY_H
#define CHUNKD_VERIFY_H

#include <stdint.h>
#include "chunkd/index.h"
#include "common/base/log.h"
#include "common/code/hmac.h"

struct segments;

struct verify {
	struct io *io;
	const struct segments *segments;
	const struct hmac_key *trailer_key;
	uint32_t *synced; /* segments */
	uint32_t synced_count, synced_cap;
	uint32_t there, gone; /* chunks */
};

void verify_init(struct verify *v, struct io *io, const struct segments *segments, const struct hmac_key *trailer_key);
/* 1: data and trailer are there, whole and durable; 0: not. Below 0: nobody knows, as their segment cannot be synced. */
int verify_chunk(struct verify *v, const struct index_row *row, struct err *err);
/* Logs what was found, if anything was looked for. */
void verify_fini(struct verify *v, const struct log *log, const char *dir);

#endif
