/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get: one ranged read of a sealed chunk, delivered part by part in order while the disk reads ahead.
 *
 *     get_start -> part, part, ... part(last) -> closed          or ... -> part, failed -> closed
 *
 * Each part is given back with get_part_sent when its bytes have left. `closed` comes once, when no buffer is in use any more; the
 * memory is the caller's again.
 */
#ifndef CHUNKD_GET_H
#define CHUNKD_GET_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/trailers.h"

struct disk;
struct get;

enum {
	GET_WINDOW = 8
}; /* parts read ahead: 8 MiB of whole cells keep a disk and a connection busy; more only takes memory */

struct get_part {
	uint64_t offset; /* in the chunk */
	uint8_t *data;
	uint32_t len;
	bool first, last;
	/* private */
	struct get *get;
	struct sched_op op;
	struct iovec iov;
	struct bufpool_buf buf;
	uint8_t state;
	int code;
};

struct get {
	/* set by the caller */
	struct disk *disk;
	struct index_row row;
	uint64_t offset, length; /* offset: unit-aligned; length is cut at the chunk's end */
	bool want_list;
	void (*part)(struct get *get, struct get_part *part);
	void (*failed)(struct get *get, int code);
	void (*closed)(struct get *get);
	/* with the first part: the chunk's own list if it was asked for; empty if the trailer could not be read or trusted: list_code says why */
	struct slice list;
	int list_code;
	/* private */
	uint64_t read_at, end;
	struct get_part parts[GET_WINDOW];
	uint32_t head, count; /* ring: oldest part that was not delivered; parts read or being read */
	uint32_t out;         /* delivered, not sent yet */
	bool ended, list_ready, list_reading, busy;
	uint8_t *own_list;
	struct trailer_read trailer;
	struct bufpool_wait wait;
	struct io_turn_hook hook;
};

/* Where what was asked for ends. ERR_RANGE: the offset lies behind the chunk's end; ERR_INVAL: it is not unit-aligned, or the length is 0. Pure. */
int get_end(uint64_t offset, uint64_t length, uint64_t chunk_length, uint64_t *ret_end);
/* Errors of get_end. Else events follow, later. */
int get_start(struct get *get);
/* `code` < 0: the reader is gone: no more parts, `failed` follows. */
void get_part_sent(struct get_part *part, int code);

#endif
