/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_rebuild: the missing units of a job from those that are there, and their check against the list of the lost chunk, while they are
 * still in the processor's cache. Rows that are missing the same chunks and whose memory is contiguous are decoded in one call.
 */
#include "client/read_job.h"

enum { DECODE_ROWS = 8 }; /* in one call at most: k units and m results of them fit the second-level cache */

static bool row_is_whole(const struct read_job *j, uint32_t row)
{
	for (uint8_t i = 0; i < read_geom(j)->k; i++)
		if (read_unit_len(j, i, row) != READ_ROW)
			return false;
	return true;
}

/* Rows after `row` that can be decoded in the same call: same sets, memory goes on where the last unit ended. */
static uint32_t group_rows(const struct read_job *j, uint32_t row, const uint8_t have[], uint32_t want)
{
	uint32_t n = 1;

	if (!row_is_whole(j, row))
		return 1;
	for (; n < DECODE_ROWS && row + n < j->rows && j->rebuild[row + n] == want && row_is_whole(j, row + n); n++) {
		for (uint8_t i = 0; i < read_geom(j)->k; i++)
			if (j->lanes[have[i]].state[row + n] != PICK_UNIT_GOOD ||
				j->lanes[have[i]].mem[row + n] != j->lanes[have[i]].mem[row] + (size_t)n * READ_ROW)
				return n;
		for (uint8_t i = 0; i < read_width(j); i++)
			if (want & 1u << i && j->lanes[i].mem[row + n] != j->lanes[i].mem[row] + (size_t)n * READ_ROW)
				return n;
	}
	return n;
}

static uint32_t decode_from(struct read_job *j, uint32_t row)
{
	const struct stripe_geom *g = read_geom(j);
	uint8_t have[LIMIT_WIDTH] = {0}, want[LIMIT_WIDTH] = {0}, have_count = 0, want_count = 0;
	const uint8_t *have_mem[LIMIT_WIDTH] = {NULL};
	uint8_t *want_mem[LIMIT_WIDTH] = {NULL};
	size_t have_len[LIMIT_WIDTH] = {0}, len = read_unit_len(j, 0, row);
	uint32_t rows;

	for (uint8_t i = 0; i < read_width(j); i++) {
		if (j->rebuild[row] & 1u << i) {
			want_mem[want_count] = j->lanes[i].mem[row];
			want[want_count++] = i;
		} else if (read_unit_good(j, i, row) && have_count < g->k) {
			have_len[have_count] = read_unit_len(j, i, row);
			have_mem[have_count] = have_len[have_count] ? j->lanes[i].mem[row] : NULL;
			have[have_count++] = i;
		}
	}
	if (have_count < g->k) {
		j->decode_error = ERR_BLOCK_LOST;
		return 1;
	}
	rows = group_rows(j, row, have, j->rebuild[row]);
	if (rows > 1) {
		len = (size_t)rows * READ_ROW;
		for (uint8_t i = 0; i < g->k; i++)
			have_len[i] = len;
	}
	if (ec_decode(j->args.block->policy, len, have, have_mem, have_len, want, want_count, want_mem) < 0)
		j->decode_error = ERR_BLOCK_LOST;
	for (uint32_t n = 0; n < rows; n++)
		for (uint8_t i = 0; i < want_count; i++)
			if (want[i] < g->k && !read_unit_right(j, want[i], row + n))
				j->decode_error = ERR_CORRUPT;
	return rows;
}

static void decode_run(struct io_op *op)
{
	struct read_job *j = CONTAINER_OF(op, struct read_job, decode);

	for (uint32_t row = 0; row < j->rows;)
		row += j->rebuild[row] ? decode_from(j, row) : 1;
}

static void decode_done(struct io_op *op)
{
	struct read_job *j = CONTAINER_OF(op, struct read_job, decode);

	j->decoding = false;
	for (uint32_t row = 0; row < j->rows; row++)
		for (uint8_t i = 0; i < read_geom(j)->k; i++)
			if (j->rebuild[row] & 1u << i && j->decode_error == 0)
				j->lanes[i].state[row] = PICK_UNIT_GOOD;
	read_job_kick(j);
}

void read_rebuild_start(struct read_job *j)
{
	for (uint32_t row = 0; row < j->rows; row++)
		for (uint8_t i = 0; i < read_width(j); i++)
			if (j->rebuild[row] & 1u << i)
				read_give_mem(j, i, row);
	j->decoding = true;
	io_prep_offload(&j->decode, IO_LANE_CPU, decode_run, decode_done);
	io_submit(j->args.client->io, &j->decode);
}
