/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put: uploads of chunks to one disk.
 *
 *     put_begin (a buffer for the cell's bytes) -> bytes arrive -> put_write (or put_abandon) -> done
 *
 * Cells of a chunk come in order; the one at offset 0 opens the upload, the one with `seal` ends it. Several may be on their way.
 * A chunk is there when the `done` of its seal says 0, and not before. Any failure of a cell, an order to drop, or UPLOAD_IDLE_MS
 * without a cell ends the upload and frees its extent; it starts again at offset 0, which also ends an upload of the same copy that was
 * left open. A copy that is sealed already is compared, not written: the same content is answered as before, other content with
 * ERR_EXIST.
 */
#ifndef CHUNKD_PUT_H
#define CHUNKD_PUT_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/index.h"
#include "common/base/slice.h"

struct disk;
struct puts;
struct put_cell;

enum {
	PUT_IDLE_MS = 60 * 1000, /* a writer that lives sends sooner; LIMIT_TOKEN_LIFE_MS is far longer */
	PUT_UPLOADS_MAX = 4096,  /* for each disk: their lists take at most 64 MiB, and their extents are reserved */
};

/* One cell as it came; slices stay the caller's until the cell is done. */
struct put_request {
	struct copy_id copy;
	uint8_t policy; /* ec.h */
	bool seal;
	bool repairs; /* what is lost: it does not make way (sched.h) */
	uint64_t offset;
	uint32_t len;             /* of the bytes; 0 only with seal */
	struct slice unit_crcs;   /* little-endian, masked; one for each unit */
	uint64_t announced_bytes; /* greatest length of the chunk; that of the first cell reserves the extent */
	/* with seal */
	uint64_t length, block_length;
	uint32_t chunk_crc, cell_bytes;
	struct slice data_lists;
};

struct puts *puts_new(struct disk *disk);
/* Ends open uploads, waits for seals under way and for buffers being filled; then `closed`. */
void puts_close(struct puts *puts, void (*closed)(void *ctx), void *ctx);

/*
 * 0: the cell's bytes belong into put_buffer (request->len of them; whole slots are zeroed behind them by put_write). Then exactly one of
 * put_write and put_abandon follows. ERR_INVAL; ERR_DISK_FAILED; ERR_OVERLOADED (nothing changed: send this cell again later); ERR_AGAIN
 * (a cell before it was refused: send that one first); ERR_NOENT (no such upload: begin at offset 0); ERR_NO_EXTENT; ERR_STOPPED.
 */
int put_begin(struct puts *puts, const struct put_request *request, struct put_cell **ret_cell);
uint8_t *put_buffer(const struct put_cell *cell);

/*
 * `done` may be called from inside. `row` is there when a seal succeeded. ERR_CORRUPT: bytes and checksums differ. ERR_INVAL: lengths
 * or lists do not agree. ERR_EXIST, ERR_BUSY (the copy is being sealed by an earlier request), ERR_NO_EXTENT, ERR_DISK_FAILED,
 * ERR_CANCELED.
 */
typedef void put_done_fn(void *ctx, int code, const struct index_row *row);
void put_write(struct put_cell *cell, put_done_fn *done, void *ctx);
void put_abandon(struct put_cell *cell);

/* ERR_NOENT: no upload is open; ERR_BUSY: it is being sealed. */
int put_drop(struct puts *puts, const struct copy_id *copy);

uint32_t puts_count(const struct puts *puts);

#endif
