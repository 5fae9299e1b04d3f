/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_stripe: a stripe is filled, then encoded, on a worker unless it is short: parity, unit CRCs and the CRC of each cell in one pass.
 * Its memory is freed with its block, when no call and no encoding uses it (write_block_idle). A small file takes one page: its parity
 * lies behind its data.
 */
#include "client/write.h"

#include <string.h>
#include "common/base/crc32c.h"

enum { PARITY_ALIGN = 64 }; /* a cache line: what the encoder likes best */

static uint32_t cells_per_page(const struct write_stream *s)
{
	return POOL_PAGE_BYTES / s->cell_bytes;
}

uint32_t write_stripe_pages(const struct write_stream *s, bool in_place)
{
	uint32_t cells = s->policy->m + (in_place ? 0u : s->policy->k);

	return (cells + cells_per_page(s) - 1) / cells_per_page(s);
}

uint32_t write_stripe_bytes(const struct write_stream *s)
{
	return s->policy->k * s->cell_bytes;
}

/* Memory of cell `n` of those that this stripe has in the pool: data (unless in place), then parity. */
static uint8_t *own_cell(struct write_stripe *t, uint32_t n)
{
	struct write_stream *s = t->block->stream;
	uint32_t page = n / cells_per_page(s);

	CHECK(page < t->page_count);
	if (!t->pages[page])
		t->pages[page] = pool_take(&s->client->pool);
	return (uint8_t *)t->pages[page] + (size_t)(n % cells_per_page(s)) * s->cell_bytes;
}

struct write_stripe *write_stripe_open(struct write_block *b, bool in_place, uint32_t page_count)
{
	struct write_stripe *t = MEM_NEW(struct write_stripe);

	CHECK(b->state == WRITE_OPEN);
	t->block = b;
	t->number = b->stripe_count;
	t->in_place = in_place;
	t->page_count = (uint8_t)page_count;
	b->stripes[b->stripe_count++] = t;
	return t;
}

void write_stripe_copy(struct write_stripe *t, const void *data, uint32_t len)
{
	uint32_t cell_bytes = t->block->geom.cell_bytes;
	const uint8_t *from = data;

	CHECK(!t->in_place && len <= write_stripe_bytes(t->block->stream) - t->fill);
	while (len > 0) {
		uint32_t cell = t->fill / cell_bytes, at = t->fill % cell_bytes;
		uint32_t n = len < cell_bytes - at ? len : cell_bytes - at;

		memcpy(own_cell(t, cell) + at, from, n);
		from += n;
		len -= n;
		t->fill += n;
	}
}

void write_stripe_in_place(struct write_stripe *t, const void *data)
{
	CHECK(t->in_place && t->fill == 0);
	for (uint8_t i = 0; i < t->block->geom.k; i++)
		t->data[i] = (const uint8_t *)data + (size_t)i * t->block->geom.cell_bytes;
	t->fill = write_stripe_bytes(t->block->stream);
}

bool write_stripe_copy_out(struct write_stripe *t, uint8_t index)
{
	struct pool *pool = &t->block->stream->client->pool;
	void *page;

	CHECK(write_stripe_borrows(t, index) && t->page_count < LIMIT_WIDTH);
	if (!pool_reserve(pool, 1))
		return false;
	page = pool_take(pool);
	memcpy(page, t->data[index], t->data_len[index]);
	t->pages[t->page_count++] = page;
	t->data[index] = page;
	t->copied |= 1u << index;
	return true;
}

void write_stripe_release(struct write_stripe *t)
{
	struct pool *pool = &t->block->stream->client->pool;

	for (uint32_t i = 0; i < t->page_count; i++)
		if (t->pages[i])
			pool_put(pool, t->pages[i]);
	pool_unreserve(pool, t->page_count);
	mem_free(t->crcs[0]);
	mem_free(t);
}

uint32_t write_stripe_keep(struct write_stripe *t, uint32_t keep)
{
	const struct write_block *b = t->block;
	struct pool *pool = &b->stream->client->pool;
	uint32_t kept = 0;

	if (cells_per_page(b->stream) > 1 || t->packed)
		return t->page_count;
	for (uint32_t n = 0; n < t->page_count; n++) {
		bool wanted = false;

		for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
			wanted |= keep & 1u << i &&
				t->pages[n] == (i < b->geom.k ? t->data[i] : t->parity[i - b->geom.k]);
		if (wanted)
			t->pages[kept++] = t->pages[n];
		else
			pool_put(pool, t->pages[n]);
	}
	pool_unreserve(pool, t->page_count - kept);
	t->page_count = (uint8_t)kept;
	return kept;
}

/* Perhaps on a worker: touches this stripe only. */
static void encode(struct write_stripe *t)
{
	const struct write_block *b = t->block;
	size_t longest = t->data_len[0];

	ec_encode(b->stream->policy, longest, t->data, t->data_len, t->parity, t->crcs);
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		size_t len = i < b->geom.k ? t->data_len[i] : longest;
		uint32_t crc = 0, unit = 0;

		for (size_t at = 0; at < len; at += LIMIT_UNIT_BYTES)
			crc = crc32c_combine(
				crc, t->crcs[i][unit++], len - at < LIMIT_UNIT_BYTES ? len - at : LIMIT_UNIT_BYTES);
		t->cell_crc[i] = crc;
	}
}

static void encode_run(struct io_op *op)
{
	encode(CONTAINER_OF(op, struct write_stripe, encode));
}

static void encode_done(struct io_op *op)
{
	struct write_stripe *t = CONTAINER_OF(op, struct write_stripe, encode);

	t->encoded = true;
	t->block->encodes_active--;
	write_kick(t->block->stream);
}

static void place_data(struct write_stripe *t)
{
	uint32_t cell_bytes = t->block->geom.cell_bytes;

	for (uint8_t i = 0; i < t->block->geom.k; i++) {
		uint32_t start = i * cell_bytes;

		t->data_len[i] = t->fill <= start ? 0 : t->fill - start < cell_bytes ? t->fill - start : cell_bytes;
		if (!t->in_place)
			t->data[i] = t->data_len[i] ? own_cell(t, i) : NULL;
	}
}

static void place_parity(struct write_stripe *t)
{
	const struct write_block *b = t->block;
	size_t step = (t->data_len[0] + PARITY_ALIGN - 1) / PARITY_ALIGN * PARITY_ALIGN;

	t->packed = !t->in_place && t->data_len[0] == t->fill && step * (1u + b->geom.m) <= b->geom.cell_bytes;
	for (uint8_t j = 0; j < b->geom.m; j++)
		t->parity[j] =
			t->packed ? own_cell(t, 0) + (j + 1) * step : own_cell(t, (t->in_place ? 0u : b->geom.k) + j);
}

static void place_crcs(struct write_stripe *t)
{
	const struct write_block *b = t->block;
	uint32_t units[LIMIT_WIDTH], sum = 0;
	uint32_t *at;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		units[i] = stripe_unit_count(t->data_len[i < b->geom.k ? i : 0]);
		sum += units[i];
	}
	at = mem_array(sum, sizeof(*at));
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		t->crcs[i] = at;
		at += units[i];
	}
}

/* Pages between short data and parity were never taken: their room is others'. */
static void give_back_untaken(struct write_stripe *t)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < t->page_count; i++)
		if (t->pages[i])
			t->pages[used++] = t->pages[i];
	pool_unreserve(&t->block->stream->client->pool, t->page_count - used);
	t->page_count = (uint8_t)used;
}

void write_stripe_dispatch(struct write_stripe *t)
{
	struct write_block *b = t->block;
	struct write_stream *s = b->stream;

	CHECK(t->fill > 0);
	place_data(t);
	place_parity(t);
	place_crcs(t);
	give_back_untaken(t);
	b->geom.length += t->fill;
	t->race.entered = b->geom.m;
	for (uint8_t i = 0; i < b->geom.k; i++)
		t->race.entered += t->data_len[i] > 0;
	t->counted = true;
	s->unacked++;
	if (t->fill <= WRITE_HERE_BYTES) {
		encode(t);
		t->encoded = true;
		write_kick(s);
		return;
	}
	b->encodes_active++;
	io_prep_offload(&t->encode, IO_LANE_CPU, encode_run, encode_done);
	io_submit(s->client->io, &t->encode);
}
