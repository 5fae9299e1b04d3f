/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout: invariants after layout_new: extents are in order, do not overlap, and each lies within its block; every block has a known
 * policy, a cell that is whole units and no longer than a frame, a length that its policy can hold, and k + m chunks.
 */
#include "client/layout.h"

#include <string.h>

static int take_block(const Craton__Block *in, struct layout_block *b)
{
	const struct ec_policy *p = in->policy <= UINT8_MAX ? ec_policy_by_id((uint8_t)in->policy) : NULL;

	if (!p || in->n_chunks != (size_t)p->k + p->m || in->cell_bytes == 0 || in->cell_bytes > LIMIT_CELL_BYTES ||
		in->cell_bytes % LIMIT_UNIT_BYTES || in->length == 0 ||
		in->length > (uint64_t)p->k * LIMIT_CHUNK_BYTES || in->read_token.len > TOKEN_BYTES)
		return ERR_PROTO;
	b->id = in->block;
	b->policy = p;
	b->geom = (struct stripe_geom){.k = p->k, .m = p->m, .cell_bytes = in->cell_bytes, .length = in->length};
	b->crowded = in->crowded;
	b->token_bytes = (uint8_t)in->read_token.len;
	if (in->read_token.len) /* else its data is NULL */
		memcpy(b->token, in->read_token.data, in->read_token.len);
	if (stripe_chunk_len(&b->geom, 0) > LIMIT_CHUNK_BYTES)
		return ERR_PROTO;
	for (size_t i = 0; i < in->n_chunks; i++)
		b->chunks[i] = (struct layout_chunk){
			.disk = in->chunks[i]->disk,
			.incarnation = in->chunks[i]->incarnation,
			.crc = in->chunks[i]->crc,
			.present = in->chunks[i]->present,
			.damaged = in->chunks[i]->damaged,
		};
	return 0;
}

static struct layout_block *block_by_id(const struct layout *l, uint64_t id)
{
	for (size_t i = 0; i < l->block_count; i++)
		if (l->blocks[i].id == id)
			return &l->blocks[i];
	return NULL;
}

static int take_extent(const struct layout *l, const Craton__Extent *in, uint64_t least_offset, struct layout_extent *e)
{
	struct layout_block *b;

	/* Blocks come in the order of the extents: the one looked for is mostly at the same place. */
	size_t guess = (size_t)(e - l->extents);

	b = guess < l->block_count && l->blocks[guess].id == in->block ? &l->blocks[guess] : block_by_id(l, in->block);
	if (!b || in->length == 0 || in->file_offset < least_offset || in->file_offset > INT64_MAX - in->length ||
		in->block_offset > b->geom.length || in->length > b->geom.length - in->block_offset)
		return ERR_PROTO;
	*e = (struct layout_extent){in->file_offset, in->length, in->block_offset, b};
	return 0;
}

int layout_new(const Craton__LayoutReply *reply, uint64_t offset, uint64_t now_ns, struct layout **ret_layout)
{
	struct layout *l;
	uint64_t at = 0;
	int code = 0;

	if (reply->n_extents > LIMIT_LAYOUT_EXTENTS || reply->n_blocks > LIMIT_LAYOUT_EXTENTS ||
		reply->end_offset < offset)
		return ERR_PROTO;
	l = MEM_NEW(struct layout);
	l->refs = 1;
	l->fetched_ns = now_ns;
	l->offset = offset;
	l->end_offset = reply->end_offset;
	l->extents = mem_array(reply->n_extents + 1, sizeof(l->extents[0]));
	l->blocks = mem_array(reply->n_blocks + 1, sizeof(l->blocks[0]));
	code = client_attr(reply->attr, &l->attr);
	if (reply->tail.len > LIMIT_TAIL_BYTES || reply->tail_offset > INT64_MAX - reply->tail.len)
		code = ERR_PROTO;
	if (!code && reply->tail.len) {
		l->tail_offset = reply->tail_offset;
		l->tail_bytes = reply->tail.len;
		l->tail = mem_alloc(reply->tail.len);
		memcpy(l->tail, reply->tail.data, reply->tail.len);
	}
	l->holes = reply->holes;
	if (l->end_offset > l->attr.size)
		l->end_offset = l->attr.size; /* past the end there is nothing to know */
	for (size_t i = 0; code == 0 && i < reply->n_blocks; i++) {
		code = take_block(reply->blocks[i], &l->blocks[i]);
		l->block_count++;
	}
	for (size_t i = 0; code == 0 && i < reply->n_extents; i++) {
		code = take_extent(l, reply->extents[i], at, &l->extents[i]);
		at = l->extents[i].file_offset + l->extents[i].length;
		l->extent_count++;
	}
	if (code < 0) {
		layout_put(l);
		return code;
	}
	*ret_layout = l;
	return 0;
}

struct layout *layout_get(struct layout *l)
{
	l->refs++;
	return l;
}

void layout_put(struct layout *l)
{
	if (!l || --l->refs > 0)
		return;
	for (size_t i = 0; i < l->block_count; i++)
		for (uint8_t c = 0; c < LIMIT_WIDTH; c++)
			mem_free(l->blocks[i].lists[c]);
	mem_free(l->tail);
	mem_free(l->extents);
	mem_free(l->blocks);
	mem_free(l);
}

/* The first extent that ends behind this byte, or NULL. */
static struct layout_extent *first_behind(const struct layout *l, uint64_t offset)
{
	size_t lo = 0, hi = l->extent_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->extents[mid].file_offset + l->extents[mid].length <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < l->extent_count ? &l->extents[lo] : NULL;
}

struct layout_extent *layout_find(const struct layout *l, uint64_t offset)
{
	struct layout_extent *e = first_behind(l, offset);

	return e && e->file_offset <= offset ? e : NULL;
}

uint64_t layout_gap(const struct layout *l, uint64_t offset, uint64_t len, const uint8_t **ret_bytes)
{
	const struct layout_extent *next = first_behind(l, offset);
	uint64_t end = next && next->file_offset < l->end_offset ? next->file_offset : l->end_offset;

	if (l->tail_bytes && offset >= l->tail_offset && offset - l->tail_offset < l->tail_bytes) {
		if (end > l->tail_offset + l->tail_bytes)
			end = l->tail_offset + l->tail_bytes;
		*ret_bytes = l->tail + (offset - l->tail_offset);
	} else {
		if (!l->holes)
			return 0;
		if (l->tail_bytes && offset < l->tail_offset && end > l->tail_offset)
			end = l->tail_offset;
		*ret_bytes = NULL;
	}
	return end - offset < len ? end - offset : len;
}

int layout_learn_list(struct layout_block *b, uint8_t index, const uint8_t *list, size_t bytes)
{
	uint64_t len = stripe_chunk_len(&b->geom, index);
	uint32_t *copy;

	if (b->lists[index])
		return 0;
	if (len == 0 || bytes != stripe_unit_count(len) * sizeof(uint32_t))
		return ERR_CORRUPT;
	copy = mem_alloc(bytes);
	memcpy(copy, list, bytes);
	if (stripe_combine(b->id, index, len, copy) != b->chunks[index].crc) {
		mem_free(copy);
		return ERR_CORRUPT;
	}
	b->lists[index] = copy;
	return 0;
}
