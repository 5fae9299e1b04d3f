/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_bed: putting and getting chunks on a disk of chunkd, below the rpc, on any loop: the caller runs it until `finished`. A chunk is
 * one of block N under rs-1-2 (k = 1: the chunk is as long as the block); its bytes follow from block and index.
 */
#ifndef TESTS_LIB_CHUNK_BED_H
#define TESTS_LIB_CHUNK_BED_H

#include <string.h>
#include "chunkd/disk.h"
#include "chunkd/get.h"
#include "chunkd/put.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"

enum { CHUNK_BED_POLICY = 7 /* rs-1-2 */ };

static inline void chunk_bed_bytes(const struct copy_id *copy, uint8_t *data, size_t len)
{
	struct rng rng;

	rng_init(&rng, copy->block * 31 + copy->index);
	rng_bytes(&rng, data, len);
}

static inline bool chunk_bed_same_row(const struct index_row *a, const struct index_row *b)
{
	uint8_t va[INDEX_VALUE_BYTES], vb[INDEX_VALUE_BYTES];

	index_value_encode(a, va);
	index_value_encode(b, vb);
	return index_copy_equal(&a->copy, &b->copy) && memcmp(va, vb, sizeof(va)) == 0;
}

struct chunk_put {
	struct disk *disk;
	struct copy_id copy;
	uint32_t len, cell_bytes;
	uint64_t announced;
	bool seal_apart;       /* the seal comes in a cell of its own */
	bool flip;             /* one bit of the last cell changes on the way */
	bool wrong_crc;        /* the seal claims another CRC of the whole */
	bool stop_before_seal; /* the upload stays open */
	bool burst;            /* all cells are sent before the first is answered */
	void (*done)(struct chunk_put *put);
	void *ctx;
	/* result */
	bool finished;
	int code;
	struct index_row row;
	/* private */
	bool seal_sent;
	uint8_t *data;
	uint32_t *crcs, *data_crcs;
	uint32_t units, at;
};

static inline void chunk_put_init(struct chunk_put *p, struct disk *disk, uint64_t block, uint8_t index, uint32_t len)
{
	uint32_t incarnation = 1;

	memset(p, 0, sizeof(*p));
	p->disk = disk;
	p->copy = (struct copy_id){block, incarnation, index};
	p->len = len;
	p->announced = len;
	p->cell_bytes = LIMIT_CELL_BYTES;
	p->units = stripe_unit_count(len);
	p->data = mem_alloc(len);
	p->crcs = mem_array(p->units, 4);
	p->data_crcs = mem_array(p->units, 4);
	chunk_bed_bytes(&p->copy, p->data, len);
	ec_unit_crcs(p->data, len, p->crcs);
	memcpy(p->data_crcs, p->crcs, p->units * 4);
	stripe_mask_units(block, index, 0, p->units, p->crcs);
	stripe_mask_units(block, 0, 0, p->units, p->data_crcs);
}

static inline void chunk_put_fini(struct chunk_put *p)
{
	mem_free(p->data);
	mem_free(p->crcs);
	mem_free(p->data_crcs);
}

static inline void chunk_put_cell_done(void *ctx, int code, const struct index_row *row);

static inline void chunk_put_finish(struct chunk_put *p, int code)
{
	if (p->finished)
		return;
	p->finished = true;
	p->code = code;
	if (p->done)
		p->done(p);
}

static inline void chunk_put_cell(struct chunk_put *p)
{
	uint32_t left = p->len - p->at, len = left < p->cell_bytes ? left : p->cell_bytes;
	bool last = len == left, seal = last && (!p->seal_apart || len == 0);
	struct put_request r = {.copy = p->copy,
		.policy = CHUNK_BED_POLICY,
		.offset = p->at,
		.len = len,
		.announced_bytes = p->announced,
		.unit_crcs = slice_of(p->crcs + p->at / LIMIT_UNIT_BYTES, (size_t)stripe_unit_count(len) * 4)};
	struct put_cell *cell;
	int rc;

	if (last && p->stop_before_seal) {
		chunk_put_finish(p, 0);
		return;
	}
	if (seal) {
		r.seal = true;
		r.length = r.block_length = p->len;
		r.cell_bytes = p->cell_bytes;
		r.chunk_crc = crc32c(p->data, p->len) ^ p->wrong_crc;
		if (p->copy.index > 0)
			r.data_lists = slice_of(p->data_crcs, p->units * 4);
	}
	rc = put_begin(p->disk->puts, &r, &cell);
	if (rc < 0) {
		chunk_put_finish(p, rc);
		return;
	}
	if (len)
		memcpy(put_buffer(cell), p->data + p->at, len);
	if (len && last && p->flip)
		put_buffer(cell)[len / 2] ^= 4;
	p->at += len;
	p->seal_sent = seal;
	put_write(cell, chunk_put_cell_done, p);
}

static inline void chunk_put_step(struct chunk_put *p)
{
	do
		chunk_put_cell(p);
	while (p->burst && !p->seal_sent && !p->finished);
}

static inline void chunk_put_cell_done(void *ctx, int code, const struct index_row *row)
{
	struct chunk_put *p = ctx;

	if (row)
		p->row = *row;
	if (code < 0 || row)
		chunk_put_finish(p, code);
	else if (!p->burst)
		chunk_put_step(p);
}

/* Reads [offset, offset + len) into `out`, part by part. */
struct chunk_get {
	struct get get;
	uint8_t *out;
	uint64_t got;
	bool finished, had_list;
	int code;
	uint32_t list[LIMIT_UNITS_PER_CHUNK];
	struct io_turn_hook hook;
	struct get_part *sending[GET_WINDOW];
	int sending_count;
	void (*done)(struct chunk_get *g);
	void *ctx;
};

static inline void chunk_get_send(struct io_turn_hook *hook)
{
	struct chunk_get *g = CONTAINER_OF(hook, struct chunk_get, hook);
	int n = g->sending_count;

	g->sending_count = 0;
	for (int i = 0; i < n; i++)
		get_part_sent(g->sending[i], 0);
}

static inline void chunk_get_part(struct get *get, struct get_part *part)
{
	struct chunk_get *g = CONTAINER_OF(get, struct chunk_get, get);

	memcpy(g->out + (part->offset - get->offset), part->data, part->len);
	g->got += part->len;
	if (part->first && get->list.len) {
		g->had_list = true;
		memcpy(g->list, get->list.data, get->list.len);
	}
	g->sending[g->sending_count++] = part;
	io_at_turn_end(get->disk->io, &g->hook);
}

static inline void chunk_get_failed(struct get *get, int code)
{
	CONTAINER_OF(get, struct chunk_get, get)->code = code;
}

static inline void chunk_get_closed(struct get *get)
{
	struct chunk_get *g = CONTAINER_OF(get, struct chunk_get, get);

	g->finished = true;
	if (g->done)
		g->done(g);
}

static inline int chunk_get_start(struct chunk_get *g, struct disk *disk, const struct index_row *row, uint64_t offset,
	uint64_t len, uint8_t *out)
{
	memset(g, 0, sizeof(*g));
	g->out = out;
	io_turn_hook_init(&g->hook, chunk_get_send);
	g->get.disk = disk;
	g->get.row = *row;
	g->get.offset = offset;
	g->get.length = len;
	g->get.want_list = true;
	g->get.part = chunk_get_part;
	g->get.failed = chunk_get_failed;
	g->get.closed = chunk_get_closed;
	return get_start(&g->get);
}

#endif
