/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_job: brings a piece of one block into memory, every byte checked.
 *
 * The piece is looked at in rows: row r is unit r of each of the k + m chunks (its *lanes*). For each unit the job knows whether it is
 * here and right, on its way, not to be had, or could still be asked for; pick_row says for one row what to ask and what to rebuild.
 * So a lost server, a late one and single damaged units in different chunks are one and the same case: any k units of a row give
 * the others.
 *
 *     plan -> fetch (one ranged request per lane and contiguous range) -> plan -> ... -> rebuild (worker) -> copy heads and tails -> done
 *
 * Where a unit lies wholly within the caller's memory it is received, or rebuilt, right there; else in scratch pages of the pool.
 *
 * What is believed: a unit-CRC list only if it combines to the proof in the block's row; a unit only if its CRC is in such a list, also
 * a rebuilt one (its list comes from a parity trailer). Failure modes: fewer than k units of a row: ERR_BLOCK_LOST; a server that
 * says it does not have the chunk: ERR_STALE first, so that the caller fetches the layout again. One that is busy is done without, or, where
 * that cannot be, asked again, until the job has taken as long as a call may.
 *
 * Invariant: while the worker decodes, no fetch is active.
 */
#include "client/read_job.h"

#include <stdio.h>
#include <string.h>
#include "common/base/sometimes.h"

#define FRESH_NS (1000ull * 1000 * 1000)
#define HOLD_BASE_NS (10ull * 1000 * 1000)
#define HOLD_CAP_NS (1000ull * 1000 * 1000)
#define READ_SILENT_NS (1000ull * 1000 * 1000)

static void job_step(struct io_turn_hook *hook);

const struct read_job_args *read_job_args(const struct read_job *job)
{
	return &job->args;
}

uint64_t read_job_limit(const struct stripe_geom *g, uint64_t block_lo)
{
	uint64_t stripe_bytes = (uint64_t)g->k * g->cell_bytes;
	uint64_t stripes = READ_JOB_ROWS / (g->cell_bytes / LIMIT_UNIT_BYTES);
	uint64_t limit = (block_lo / stripe_bytes + stripes) * stripe_bytes;

	return limit < g->length ? limit : g->length;
}

static uint64_t row_file_offset(const struct read_job *j, uint32_t row)
{
	for (uint8_t i = 0; i < read_geom(j)->k; i++)
		if (read_unit_needed(j, i, row)) {
			uint64_t at = read_unit_offset(j, i, row);

			if (at < j->args.block_lo)
				at = j->args.block_lo;
			return j->args.file_offset + (at - j->args.block_lo);
		}
	return j->args.file_offset;
}

static void job_lost(struct read_job *j, uint32_t row)
{
	const struct layout_block *b = j->args.block;
	char bad[256] = "";
	size_t len = 0;

	if (j->err.code)
		return;
	for (uint8_t i = 0; i < read_width(j) && len < sizeof(bad) - 64; i++) {
		const char *why = !b->chunks[i].present                            ? "never stored or lost"
			: disks_ignored(&j->args.client->disks, b->chunks[i].disk) ? "left out, as was asked for"
			: j->lanes[i].error                                        ? err_text(j->lanes[i].error)
										   : NULL;

		if (stripe_chunk_len(read_geom(j), i) == 0)
			continue; /* too short a block to have it */
		if (why && (j->lanes[i].state[row] == PICK_UNIT_BAD || j->lanes[i].state[row] == PICK_UNIT_LATE))
			len += (size_t)snprintf(bad + len, sizeof(bad) - len, "%schunk %u on %s: %s", len ? ", " : "",
				i, disks_server_name(&j->args.client->disks, b->chunks[i].disk), why);
	}
	err_set(&j->err, ERR_BLOCK_LOST,
		"read %.160s at offset %llu: fewer than %u of the %u chunks of its block can be read (%s): see `craton status`",
		j->args.path, (unsigned long long)row_file_offset(j, row), stripe_data_chunks(read_geom(j)),
		stripe_data_chunks(read_geom(j)) + read_geom(j)->m, bad);
}

static void states_of_row(const struct read_job *j, uint32_t row, uint8_t out[LIMIT_WIDTH])
{
	for (uint8_t i = 0; i < read_width(j); i++)
		out[i] = read_unit_good(j, i, row) ? PICK_UNIT_GOOD : j->lanes[i].state[row];
}

static uint32_t avoid_set(const struct read_job *j)
{
	uint32_t set = 0;

	for (uint8_t i = 0; i < read_width(j); i++)
		if (j->lanes[i].avoided)
			set |= 1u << i;
	return set;
}

static bool row_is_here(const struct read_job *j, uint32_t row)
{
	for (uint8_t i = 0; i < read_geom(j)->k; i++)
		if (j->needed[row] & 1u << i && j->lanes[i].state[row] != PICK_UNIT_GOOD)
			return false;
	return true;
}

/* ---- servers that are busy ---- */

static void hold_done(struct io_op *op)
{
	struct read_job *j = CONTAINER_OF(op, struct read_job, hold);

	for (uint8_t i = 0; i < read_width(j); i++) {
		struct read_lane *lane = &j->lanes[i];

		if (lane->list_busy)
			lane->list_busy = lane->list_asked = false;
		if (!read_is_busy(lane->error))
			continue;
		lane->error = 0;
		for (uint32_t row = 0; row < j->rows; row++)
			if (lane->state[row] == PICK_UNIT_BAD)
				lane->state[row] = PICK_UNIT_NONE;
	}
	read_job_kick(j);
}

/* What is asked after it has an eighth of the timeout left at least. */
static uint64_t hold_cap_ns(const struct client *client)
{
	return client->timeout_ns / 8 < HOLD_CAP_NS ? client->timeout_ns / 8 : HOLD_CAP_NS;
}

/*
 * Too few others are left: who was busy is asked again, a little later, while he has a fair time to answer: what he is asked after that ends
 * with the job's. False: nobody was, or for too long.
 */
static bool ask_busy_again(struct read_job *j)
{
	struct client *client = j->args.client;
	uint64_t now_ns = io_now_ns(client->io);
	bool any = false;

	if (io_pending(&j->hold))
		return true;
	for (uint8_t i = 0; i < read_width(j); i++)
		any |= read_is_busy(j->lanes[i].error) || j->lanes[i].list_busy;
	if (!any || now_ns + client->timeout_ns / 4 >= j->until_ns)
		return false;
	SOMETIMES(read_job_held);
	io_prep_timer(&j->hold, now_ns + rng_backoff(&client->rng, HOLD_BASE_NS, hold_cap_ns(client), j->holds++), hold_done);
	io_submit(client->io, &j->hold);
	return true;
}

uint64_t read_deadline_ns(const struct read_job *j)
{
	return j->holds ? j->until_ns : io_now_ns(j->args.client->io) + j->args.client->timeout_ns;
}

/* ---- the plan ---- */

/* Fills ask[] and job->rebuild[]. False: a row is lost, or waits for who is busy. */
static bool plan_rows(struct read_job *j, uint32_t ask[READ_JOB_ROWS])
{
	uint32_t avoid = avoid_set(j);

	for (uint32_t row = 0; row < j->rows; row++) {
		uint8_t unit[LIMIT_WIDTH];

		ask[row] = j->rebuild[row] = 0;
		if (!j->needed[row] || row_is_here(j, row))
			continue;
		states_of_row(j, row, unit);
		if (!pick_row(read_geom(j)->k, read_geom(j)->m, unit, j->needed[row], avoid, &ask[row],
			    &j->rebuild[row])) {
			if (!ask_busy_again(j))
				job_lost(j, row);
			return false;
		}
	}
	return true;
}

static uint32_t count_scratch(const struct read_job *j, const uint32_t ask[READ_JOB_ROWS])
{
	uint32_t units = 0;

	for (uint32_t row = 0; row < j->rows; row++)
		for (uint8_t i = 0; i < read_width(j); i++)
			if ((ask[row] | j->rebuild[row]) & 1u << i && !read_has_mem(j, i, row) &&
				!read_unit_direct(j, i, row))
				units++;
	return units;
}

static bool ask_for(struct read_job *j, const uint32_t ask[READ_JOB_ROWS])
{
	bool any = false;

	for (uint8_t i = 0; i < read_width(j); i++)
		for (uint32_t row = 0; row < j->rows;) {
			uint32_t n = 0;

			while (row + n < j->rows && ask[row + n] & 1u << i)
				n++;
			if (n > 0) {
				read_fetch_start(j, i, row, n);
				any = true;
			}
			row += n > 0 ? n : 1;
		}
	return any;
}

/*
 * Nobody has the checksums of this chunk, so that what would be rebuilt of it could not be checked: it is read from where it lies, slow or
 * not. False: some of that cannot be had.
 */
static bool read_where_it_lies(struct read_job *j, uint8_t i)
{
	struct read_lane *lane = &j->lanes[i];

	for (uint32_t row = 0; row < j->rows; row++)
		if (j->rebuild[row] & 1u << i && lane->state[row] == PICK_UNIT_BAD)
			return false;
	for (uint32_t row = 0; row < j->rows; row++)
		if (lane->state[row] == PICK_UNIT_LATE)
			lane->state[row] = PICK_UNIT_PENDING;
	lane->avoided = false;
	lane->alone = true;
	read_job_kick(j);
	return true;
}

/*
 * True if all that is to be rebuilt can be checked; else lists are on their way, another way is taken, or the job has failed. Lists that are
 * late may still come: better than nothing.
 */
static bool lists_known(struct read_job *j)
{
	for (uint32_t row = 0; row < j->rows; row++)
		for (uint8_t i = 0; i < read_geom(j)->k; i++) {
			if (!(j->rebuild[row] & 1u << i) || j->args.block->lists[i])
				continue;
			if (!read_lists_start(j) && !read_where_it_lies(j, i) && list_empty(&j->lists) && !ask_busy_again(j))
				err_set(&j->err, ERR_BLOCK_LOST,
					"read %.160s at %llu: chunk %u is lost and no parity chunk has its checksums",
					j->args.path, (unsigned long long)row_file_offset(j, row), i);
			return false;
		}
	return true;
}

/* The others were sooner: the news spares the next reads the wait. */
static void cancel_late(struct read_job *j)
{
	LIST_FOREACH(it, &j->fetches) {
		struct read_fetch *f = LIST_ENTRY(it, struct read_fetch, link);

		read_fetch_note(f);
		rpc_call_cancel(&f->call);
		SOMETIMES(client_late_fetch_left);
	}
}

/* Late ones are waited for after all where the others do not suffice. */
static bool row_needs_late(const struct read_job *j, uint32_t row)
{
	uint32_t good = 0;
	bool late = false;

	for (uint8_t i = 0; i < read_width(j); i++) {
		good += read_unit_good(j, i, row);
		late |= read_unit_needed(j, i, row) && j->lanes[i].state[row] == PICK_UNIT_LATE;
	}
	return j->rebuild[row] ? good < read_geom(j)->k : late;
}

/* True if a fetch has to be waited for; late ones, when they are all that is left and of no use, are cancelled. */
static bool fetches_pending(struct read_job *j)
{
	if (list_empty(&j->fetches))
		return false;
	for (uint32_t row = 0; row < j->rows; row++) {
		if (row_needs_late(j, row))
			return true;
		for (uint8_t i = 0; i < read_width(j); i++)
			if (j->lanes[i].state[row] == PICK_UNIT_PENDING)
				return true;
	}
	cancel_late(j);
	return true;
}

/*
 * What is late is not waited for any more, as long as that costs few bytes: they are counted. What a suspect has is not, whatever that costs:
 * there is no choice in that, as with servers known to be gone before.
 */
static void look_at_fetch(struct read_job *j, struct read_fetch *f, uint64_t now_ns, uint64_t late_ns)
{
	struct client *client = j->args.client;
	struct read_lane *lane = &j->lanes[f->index];
	uint64_t bytes = (uint64_t)(f->count - f->next) * READ_ROW;
	uint32_t disk = j->args.block->chunks[f->index].disk;
	bool suspect = disks_suspect(&client->disks, disk);

	/* Who is silent is asked whether he is there. */
	if (now_ns - f->heard_ns >= READ_SILENT_NS)
		disks_check(&client->disks, disk);
	if (now_ns - f->started_ns < late_ns || bytes == 0 || (lane->alone && !j->args.block->lists[f->index]) ||
		lane->state[f->first + f->next] != PICK_UNIT_PENDING ||
		(!suspect && !pick_may_hedge(bytes, client->bytes_hedged, client->bytes_read)))
		return;
	if (!suspect) {
		SOMETIMES(read_job_hedged);
		client->bytes_hedged += bytes;
		client->fetches_hedged++;
	}
	for (uint32_t r = f->next; r < f->count; r++)
		lane->state[f->first + r] = PICK_UNIT_LATE;
}

/* Lists are a thousandth of what they are for: there are no bytes to be spared, and no more calls than parity chunks. */
static void look_at_lists(struct read_job *j, struct read_lists *l, uint64_t now_ns, uint64_t late_ns)
{
	struct disks *disks = &j->args.client->disks;
	uint32_t disk = j->args.block->chunks[l->index].disk;

	if (now_ns - l->started_ns >= READ_SILENT_NS)
		disks_check(disks, disk);
	if (l->late || (now_ns - l->started_ns < late_ns && !disks_suspect(disks, disk)))
		return;
	SOMETIMES(read_lists_late);
	l->late = true;
}

static void late_timer_done(struct io_op *op)
{
	struct read_job *j = CONTAINER_OF(op, struct read_job, timer);
	uint64_t now_ns = io_now_ns(j->args.client->io), late_ns = read_late_after_ns(j);

	if (op->result == 0 && !j->ending) {
		LIST_FOREACH(it, &j->fetches)
			look_at_fetch(j, LIST_ENTRY(it, struct read_fetch, link), now_ns, late_ns);
		LIST_FOREACH(it, &j->lists)
			look_at_lists(j, LIST_ENTRY(it, struct read_lists, link), now_ns, late_ns);
	}
	read_job_kick(j);
}

static void watch_lateness(struct read_job *j)
{
	struct io *io = j->args.client->io;

	if (io_pending(&j->timer))
		return;
	io_prep_timer(&j->timer, io_now_ns(io) + read_late_after_ns(j), late_timer_done);
	io_submit(io, &j->timer);
}

static bool any_rebuild(const struct read_job *j)
{
	for (uint32_t row = 0; row < j->rows; row++)
		if (j->rebuild[row])
			return true;
	return false;
}

/* What lies in scratch pages goes to the caller. */
static void copy_out(struct read_job *j)
{
	for (uint32_t row = 0; row < j->rows; row++)
		for (uint8_t i = 0; i < read_geom(j)->k; i++) {
			uint64_t at, lo, hi;

			if (!read_unit_needed(j, i, row) || read_unit_direct(j, i, row))
				continue;
			at = read_unit_offset(j, i, row);
			lo = at > j->args.block_lo ? at : j->args.block_lo;
			hi = at + read_unit_len(j, i, row);
			hi = hi < j->args.block_hi ? hi : j->args.block_hi;
			read_dest_copy(&j->args.dest, j->args.dest_at + (lo - j->args.block_lo),
				j->lanes[i].mem[row] + (lo - at), hi - lo);
		}
}

static void job_end(struct read_job *j)
{
	j->ending = true;
	if (io_pending(&j->timer))
		io_cancel(j->args.client->io, &j->timer);
	if (io_pending(&j->hold))
		io_cancel(j->args.client->io, &j->hold);
	LIST_FOREACH(it, &j->lists)
		rpc_call_cancel(&LIST_ENTRY(it, struct read_lists, link)->call);
	LIST_FOREACH(it, &j->fetches)
		rpc_call_cancel(&LIST_ENTRY(it, struct read_fetch, link)->call);
	pool_wait_cancel(&j->args.client->pool, &j->pool_wait);
	if (io_pending(&j->timer) || io_pending(&j->hold) || !list_empty(&j->lists) || !list_empty(&j->fetches) || j->decoding)
		return;
	read_give_pages_back(j);
	for (uint8_t i = 0; i < read_width(j); i++)
		mem_free(j->lanes[i].mem);
	io_turn_hook_remove(j->args.client->io, &j->hook);
	j->args.done(j->args.ctx, j, &j->err);
	layout_put(j->args.layout);
	mem_free(j);
}

/* One look at everything. True: the job is over (j->err says how). */
static bool job_advance(struct read_job *j)
{
	uint32_t ask[READ_JOB_ROWS];

	if (j->stale && !j->args.fresh_layout) {
		err_set(&j->err, ERR_STALE, "read %.200s: the layout is stale", j->args.path);
		return true;
	}
	if (j->decoding)
		return false;
	if (j->decode_error) {
		err_set(&j->err, j->decode_error, "read %.160s at %llu: the rebuilt bytes do not match their checksum",
			j->args.path, (unsigned long long)j->args.file_offset);
		return true;
	}
	if (!plan_rows(j, ask))
		return j->err.code != 0;
	if (!read_reserve_units(j, count_scratch(j, ask)))
		return false;
	if (ask_for(j, ask)) {
		watch_lateness(j);
		if (any_rebuild(j))
			lists_known(j);
		return j->err.code != 0;
	}
	if (any_rebuild(j) && !lists_known(j)) {
		watch_lateness(j);
		return j->err.code != 0;
	}
	if (fetches_pending(j)) {
		watch_lateness(j);
		return false;
	}
	if (!any_rebuild(j)) {
		copy_out(j);
		return true;
	}
	SOMETIMES(client_read_rebuilt);
	read_rebuild_start(j);
	return false;
}

static void job_step(struct io_turn_hook *hook)
{
	struct read_job *j = CONTAINER_OF(hook, struct read_job, hook);

	if (j->ending || job_advance(j))
		job_end(j);
}

struct read_job *read_job_new(const struct read_job_args *args)
{
	struct read_job *j = MEM_NEW(struct read_job);
	struct client *client = args->client;

	CHECK(args->block_lo < args->block_hi && args->block_hi <= read_job_limit(&args->block->geom, args->block_lo));
	j->args = *args;
	j->until_ns = io_now_ns(client->io) + client->timeout_ns;
	layout_get(args->layout);
	if (io_now_ns(client->io) - args->layout->fetched_ns < FRESH_NS)
		j->args.fresh_layout = true;
	list_init(&j->fetches);
	list_init(&j->lists);
	io_turn_hook_init(&j->hook, job_step);
	read_rows_init(j);
	for (uint8_t i = 0; i < read_width(j); i++) {
		const struct layout_chunk *c = &args->block->chunks[i];
		const struct disks_disk *disk = disks_get(&client->disks, c->disk);

		j->lanes[i].avoided = !disk || !disk->up || disks_avoided(&client->disks, c->disk);
		if (c->present && j->lanes[i].avoided && disks_probe(&client->disks, c->disk))
			read_probe(j, i);
		memset(j->lanes[i].state,
			c->present && !disks_ignored(&client->disks, c->disk) ? PICK_UNIT_NONE : PICK_UNIT_BAD,
			j->rows);
	}
	read_job_kick(j);
	return j;
}
