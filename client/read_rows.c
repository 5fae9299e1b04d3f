/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_rows: the units of a job: where they lie in chunk, block and memory. A unit that lies wholly within the caller's memory is
 * received, or rebuilt, right there; else in scratch pages of the pool.
 */
#include "client/read_job.h"

#include <string.h>
#include "common/base/crc32c.h"

uint8_t *read_dest_at(const struct read_dest *d, uint64_t at, uint64_t len)
{
	if (d->base)
		return d->base + at;
	if (at / POOL_PAGE_BYTES != (at + len - 1) / POOL_PAGE_BYTES)
		return NULL;
	return (uint8_t *)d->pages[at / POOL_PAGE_BYTES] + at % POOL_PAGE_BYTES;
}

void read_dest_copy(const struct read_dest *d, uint64_t at, const void *from, uint64_t len)
{
	const uint8_t *p = from;

	while (len > 0) {
		uint64_t n = d->base ? len : POOL_PAGE_BYTES - at % POOL_PAGE_BYTES;

		if (n > len)
			n = len;
		memcpy(read_dest_at(d, at, n), p, n);
		p += n;
		at += n;
		len -= n;
	}
}

uint64_t read_unit_offset(const struct read_job *j, uint8_t index, uint32_t row)
{
	uint64_t at = (uint64_t)(j->first_row + row) * READ_ROW;
	const struct stripe_geom *g = read_geom(j);

	return (at / g->cell_bytes * g->k + index) * g->cell_bytes + at % g->cell_bytes;
}

static uint32_t needed_of_row(const struct read_job *j, uint32_t row)
{
	uint32_t set = 0;

	for (uint8_t i = 0; i < read_geom(j)->k; i++) {
		uint32_t len = read_unit_len(j, i, row);
		uint64_t at = len ? read_unit_offset(j, i, row) : 0;

		if (len && at < j->args.block_hi && at + len > j->args.block_lo)
			set |= 1u << i;
	}
	return set;
}

void read_rows_init(struct read_job *j)
{
	const struct stripe_geom *g = read_geom(j);
	uint64_t first = UINT64_MAX, last = 0;

	/* Chunk offsets of the first and the last byte; in between all rows of whole cells. */
	for (uint64_t at = j->args.block_lo; at < j->args.block_hi;) {
		struct stripe_piece p;

		stripe_locate(g, at, j->args.block_hi - at, &p);
		if (p.chunk_offset < first)
			first = p.chunk_offset;
		if (p.chunk_offset + p.len > last)
			last = p.chunk_offset + p.len;
		at += p.len;
	}
	j->first_row = (uint32_t)(first / READ_ROW);
	j->rows = (uint32_t)((last + READ_ROW - 1) / READ_ROW) - j->first_row;
	CHECK(j->rows <= READ_JOB_ROWS);
	for (uint8_t i = 0; i < read_width(j); i++)
		j->lanes[i].bytes = stripe_chunk_len(g, i);
	for (uint32_t row = 0; row < j->rows; row++)
		j->needed[row] = needed_of_row(j, row);
}

uint8_t *read_unit_direct(const struct read_job *j, uint8_t index, uint32_t row)
{
	uint32_t len = read_unit_len(j, index, row);
	uint64_t at;

	if (index >= read_geom(j)->k || len == 0 || len < read_unit_len(j, 0, row) ||
		read_geom(j)->cell_bytes < READ_DIRECT_CELL_BYTES)
		return NULL;
	at = read_unit_offset(j, index, row);
	if (at < j->args.block_lo || at + len > j->args.block_hi)
		return NULL;
	return read_dest_at(&j->args.dest, j->args.dest_at + (at - j->args.block_lo), len);
}

bool read_has_mem(const struct read_job *j, uint8_t index, uint32_t row)
{
	return j->lanes[index].mem && j->lanes[index].mem[row];
}

void read_give_mem(struct read_job *j, uint8_t index, uint32_t row)
{
	struct read_lane *lane = &j->lanes[index];
	uint8_t *direct;
	uint32_t page;

	if (read_has_mem(j, index, row))
		return;
	if (!lane->mem)
		lane->mem = mem_array(j->rows, sizeof(lane->mem[0]));
	direct = read_unit_direct(j, index, row);
	if (direct) {
		lane->mem[row] = direct;
		return;
	}
	page = j->units_used / READ_PAGE_UNITS;
	CHECK(page < j->page_count);
	if (!j->pages[page])
		j->pages[page] = pool_take(&j->args.client->pool);
	lane->mem[row] = (uint8_t *)j->pages[page] + (size_t)(j->units_used % READ_PAGE_UNITS) * READ_ROW;
	j->units_used++;
}

static void pages_granted(struct pool_wait *w)
{
	struct read_job *j = CONTAINER_OF(w, struct read_job, pool_wait);
	uint32_t count = j->page_count + w->pages;

	j->urgent_held |= w->holds_urgent;
	if (count > j->pages_cap) {
		j->pages = mem_realloc(j->pages, count * sizeof(j->pages[0]));
		memset(j->pages + j->pages_cap, 0, (count - j->pages_cap) * sizeof(j->pages[0]));
		j->pages_cap = count;
	}
	j->page_count = count;
	io_at_turn_end(j->args.client->io, &j->hook);
}

bool read_reserve_units(struct read_job *j, uint32_t units)
{
	struct pool *pool = &j->args.client->pool;
	uint32_t have = j->page_count * READ_PAGE_UNITS - j->units_used;

	if (units <= have)
		return true;
	if (list_linked(&j->pool_wait.link))
		return false;
	j->pool_wait.pages = (units - have + READ_PAGE_UNITS - 1) / READ_PAGE_UNITS;
	if (pool_reserve(pool, j->pool_wait.pages)) {
		j->pool_wait.holds_urgent = false;
		pages_granted(&j->pool_wait);
		return true;
	}
	j->pool_wait.granted = pages_granted;
	/* A job that already holds pages must be able to end. */
	j->pool_wait.urgent = true;
	j->pool_wait.again = j->urgent_held;
	pool_wait(pool, &j->pool_wait);
	client_relieve(j->args.client);
	return false;
}

void read_give_pages_back(struct read_job *j)
{
	struct pool *pool = &j->args.client->pool;

	for (uint32_t i = 0; i < j->page_count; i++)
		if (j->pages[i])
			pool_put(pool, j->pages[i]);
	pool_unreserve(pool, j->page_count);
	if (j->urgent_held)
		pool_release_urgent(pool);
	mem_free(j->pages);
}

bool read_unit_right(const struct read_job *j, uint8_t index, uint32_t row)
{
	const struct layout_block *b = j->args.block;
	uint32_t unit = j->first_row + row;
	uint32_t crc = crc32c(j->lanes[index].mem[row], read_unit_len(j, index, row));

	return (crc ^ stripe_unit_mask(b->id, index, unit)) == b->lists[index][unit];
}
