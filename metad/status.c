/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status: how many blocks have which margin, counted from the rows themselves: a scan over all blocks in slices of
 * METAD_SCAN_ROWS a turn, so that requests go on in between. No counter of any job is believed.
 *
 * A count is good as long as no block and no server or disk has changed since its scan began. A request gets a count
 * that is good, or one whose scan began after the request came. Disks that change while a scan runs make it start
 * again, a few times at most: then the next request starts afresh anyway.
 *
 * Margin of a block: chunks that are there on disks that count, less those needed to read it. Crowded is a whole block by
 * the domains of today: a server may have moved to another one since the block was committed. Blocks of files that lost
 * their name are not counted: nobody can miss them.
 */
#include "metad/core.h"

#include "common/base/check.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"

enum { SCAN_RESTARTS = 3 };

static void scan_step(struct io_op *op);

static void scan_begin(struct metad *md)
{
	struct block_scan *scan = &md->scan;

	scan->running = true;
	scan->restarts = 0;
	scan->began_ns = io_now_ns(md->io);
	scan->fleet = md->state.fleet_version;
	scan->blocks = md->state.blocks_version;
	scan->next = 0;
	scan->inode.id = 0;
	memset(&scan->counts, 0, sizeof(scan->counts));
	while (!list_empty(&scan->next_waiting))
		list_push_back(&scan->waiting, list_pop_front(&scan->next_waiting));
	io_prep_timer(&scan->timer, io_now_ns(md->io), scan_step);
	io_submit(md->io, &scan->timer);
}

static bool counted(struct metad *md, const struct state_block *row)
{
	struct state_inode *inode = &md->scan.inode;
	int code = 0;

	if (inode->id != row->inode)
		code = state_inode_get(&md->state, row->inode, inode);
	if (code) {
		inode->id = 0;
		return code == ERR_NOENT ? false : true;
	}
	return !(inode->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED));
}

static void count_block(struct metad *md, const struct state_block *row, struct block_counts *c)
{
	const struct ec_policy *policy = ec_policy_by_id(row->policy);
	struct stripe_geom g = {.k = policy->k, .m = policy->m, .cell_bytes = row->cell_bytes, .length = row->length};
	int here = 0, present = 0, needed = stripe_data_chunks(&g), margin;
	uint32_t domains[LIMIT_WIDTH], most;

	for (uint8_t i = 0; i < row->width; i++) {
		const struct state_disk *disk = state_disk_at(&md->state, row->chunks[i].disk);

		if (!row->chunks[i].present)
			continue;
		if (!disk || stripe_chunk_len(&g, i) == 0) {
			state__fault(&md->state, "block %llu has its chunk %u on disk %u, which cannot be",
				(unsigned long long)row->id, i, row->chunks[i].disk);
			return;
		}
		if (row->chunks[i].damaged)
			continue; /* it counts for nothing, though some of it may be read */
		if (state_disk_counts(&md->state, disk->id))
			domains[here++] = disk->domain;
		present += disk->state != STATE_DISK_FAILED;
	}
	margin = here - needed;
	if (margin < 0) {
		c->lost++;
		c->unavailable += present >= needed;
		return;
	}
	c->by_margin[margin]++;
	if (margin == policy->m)
		*(place_is_crowded(domains, (size_t)here, &most) ? &c->crowded : &c->full) += 1;
	else if (margin == 0)
		c->at_risk++;
	else
		c->degraded++;
}

/* False: the rows cannot be believed. */
static bool count_slice(struct metad *md, bool *ret_end)
{
	struct block_scan *scan = &md->scan;
	struct kv_scan rows;
	struct state_key key;
	uint64_t id;
	int n = 0;

	*ret_end = false;
	state_key_id(&key, STATE_TABLE_BLOCK, scan->next);
	for (kv_seek_within(md->state.kv, &rows, state_key_slice(&key), STATE_PREFIX_TABLE); n < METAD_SCAN_ROWS; kv_scan_next(&rows), n++) {
		if (!kv_scan_valid(&rows) || !state_key_parse_id(rows.key, STATE_TABLE_BLOCK, &id)) {
			*ret_end = true;
			break;
		}
		if (state_block_decode(rows.value, id, &scan->block)) {
			state__fault(&md->state, "the row of block %llu cannot be decoded", (unsigned long long)id);
			break;
		}
		scan->next = id + 1;
		if (counted(md, &scan->block))
			count_block(md, &scan->block, &scan->counts);
	}
	kv_scan_end(&rows);
	return state_failure(&md->state, NULL) == 0;
}

static void scan_end(struct metad *md)
{
	struct block_scan *scan = &md->scan;
	struct rpc_req *req;
	struct list ready;

	scan->running = false;
	scan->valid = true;
	scan->done = scan->counts;
	scan->done_fleet = scan->fleet;
	scan->done_blocks = scan->blocks;
	list_init(&ready);
	while (!list_empty(&scan->waiting))
		list_push_back(&ready, list_pop_front(&scan->waiting));
	if (!list_empty(&scan->next_waiting))
		scan_begin(md);
	while ((req = metad__unwait(&ready)))
		metad__status_answer(md, req);
}

static void scan_step(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, scan.timer);
	struct block_scan *scan = &md->scan;
	struct err err = {0};
	bool end;

	if (md->stopping || md->failed || !md->ready || op->result) {
		scan->running = false;
		metad__fail_waiting(&scan->waiting, ERR_STOPPED);
		metad__fail_waiting(&scan->next_waiting, ERR_STOPPED);
		metad__maybe_stopped(md);
		return;
	}
	if (!count_slice(md, &end)) {
		metad__fatal(md, state_failure(&md->state, &err), err.text);
		scan_step(op);
		return;
	}
	if (scan->fleet != md->state.fleet_version && scan->restarts < SCAN_RESTARTS) {
		uint32_t restarts = scan->restarts + 1;

		scan_begin(md);
		scan->restarts = restarts;
		return;
	}
	if (end) {
		scan_end(md);
		return;
	}
	io_prep_timer(&scan->timer, io_now_ns(md->io), scan_step);
	io_submit(md->io, &scan->timer);
}

void metad__scan_init(struct metad *md)
{
	list_init(&md->scan.waiting);
	list_init(&md->scan.next_waiting);
}

void metad__scan_stop(struct metad *md)
{
	if (io_pending(&md->scan.timer))
		io_cancel(md->io, &md->scan.timer);
}

void metad__scan_forget(struct metad *md)
{
	md->scan.valid = false;
}

bool metad__scan_idle(const struct metad *md)
{
	return !md->scan.running && !io_pending(&md->scan.timer);
}

static bool is_good(const struct metad *md)
{
	const struct block_scan *scan = &md->scan;

	return scan->valid && scan->done_fleet == md->state.fleet_version &&
		scan->done_blocks == md->state.blocks_version;
}

void metad__scan_refresh(struct metad *md)
{
	struct block_scan *scan = &md->scan;

	if (!md->ready || md->stopping || md->failed || scan->running || is_good(md))
		return;
	if (!scan->valid || io_now_ns(md->io) - scan->began_ns >= METAD_SCAN_REFRESH_MS * (uint64_t)1000000)
		scan_begin(md);
}

void metad__scan_wait(struct metad *md, struct rpc_req *req)
{
	struct block_scan *scan = &md->scan;

	if (is_good(md)) {
		metad__status_answer(md, req);
		return;
	}
	metad__wait(scan->running ? &scan->next_waiting : &scan->waiting, req);
	if (!scan->running)
		scan_begin(md);
}
