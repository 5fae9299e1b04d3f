/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block: CommitBlocks: the moment in which bytes become part of a file.
 *
 * All blocks of a request or none. For each: its id is not below the floor; its policy is the file's; its bytes overlap
 * no others; of its receipts (whose MACs the leader verified) count those from disks that are up or draining in that
 * very generation; at least k' + ceil(m/2) of them count; no domain holds more than m. What is stored is the placement
 * and the CRC of every chunk: the proof against which each later copy is checked.
 *
 * Sent again, a request that succeeded gives the same answer: a block that is there with the same content is no error,
 * and receipts for chunks that were missing then are taken in now, by the same rules, until the floor has passed the
 * block. A block whose extent was cut off since is closed: it would be answered as put, and nothing would be. A file that is complete
 * accepts only such repetitions. No block comes twice in a request.
 *
 * A file's size is what lies gapless from its beginning; a file completes only without gaps. Holes that a truncation
 * made are no gaps.
 *
 * A commit may bring up to LIMIT_TAIL_BYTES itself: the file's tail, behind all blocks, kept in a row of its own. The
 * next tail that begins at the same place, or a block that does, takes its place if it holds no fewer bytes.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"
#include "common/code/ec.h"
#include "common/code/place.h"
#include "common/code/stripe.h"

enum { FILE_MAX_SHIFT = 62 };

int state_block_get(struct state *s, uint64_t id, struct state_block *ret_block)
{
	struct state_key key;
	struct slice value;

	state_key_id(&key, STATE_TABLE_BLOCK, id);
	if (state__get(s, &key, &value))
		return ERR_NOENT;
	if (state_block_decode(value, id, ret_block)) {
		state__fault(s, "the row of block %llu cannot be decoded", (unsigned long long)id);
		return ERR_CORRUPT;
	}
	return 0;
}

int state_extent_get(struct state *s, uint64_t inode, uint64_t offset, struct state_extent *ret_extent)
{
	struct kv_scan scan;
	struct state_key key;
	uint64_t end;
	int code = ERR_NOENT;

	state_key_extent(&key, inode, offset + 1);
	kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_ID);
	if (kv_scan_valid(&scan) && state_key_parse_extent(scan.key, inode, &end)) {
		code = state_extent_decode(scan.value, end, ret_extent);
		if (code)
			state__fault(s, "an extent of inode %llu cannot be decoded", (unsigned long long)inode);
	}
	kv_scan_end(&scan);
	return code;
}

static struct stripe_geom geom_of(const struct state_commit_block *b)
{
	const struct ec_policy *policy = ec_policy_by_id(b->policy);

	return (struct stripe_geom){.k = policy->k, .m = policy->m, .cell_bytes = b->cell_bytes, .length = b->length};
}

/* What can be said about a block without looking at anything else. */
static int check_form(const struct state_commit_block *b, const struct state_inode *file)
{
	const struct ec_policy *policy = ec_policy_by_id(b->policy);
	struct stripe_geom g;

	if (b->policy != file->policy.id || b->cell_bytes == 0 || b->cell_bytes % LIMIT_UNIT_BYTES ||
		b->cell_bytes > LIMIT_CELL_BYTES)
		return ERR_INVAL;
	if (b->length == 0 || b->length > (uint64_t)policy->k * LIMIT_CHUNK_BYTES)
		return ERR_INVAL;
	if (b->file_offset > (1ull << FILE_MAX_SHIFT) - b->length)
		return ERR_FBIG;
	g = geom_of(b);
	if (stripe_chunk_len(&g, 0) > LIMIT_CHUNK_BYTES)
		return ERR_INVAL;
	for (uint8_t i = 0; i < b->width; i++)
		if (stripe_chunk_len(&g, i) == 0 && b->crcs[i])
			return ERR_INVAL;
	return 0;
}

static bool same_content(const struct state_block *row, const struct state_commit_block *b, uint64_t inode)
{
	bool same = row->inode == inode && row->policy == b->policy && row->cell_bytes == b->cell_bytes &&
		row->length == b->length && row->file_offset == b->file_offset;

	for (uint8_t i = 0; same && i < row->width; i++)
		same = row->chunks[i].crc == b->crcs[i];
	return same;
}

static bool overlaps(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a < b + b_len && b < a + a_len;
}

static bool covers_tail(const struct state_inode *file, const struct state_commit_block *b)
{
	return file->tail_bytes && overlaps(file->tail_offset, file->tail_bytes, b->file_offset, b->length);
}

/* It begins where the tail does and holds all of it, but nothing of a hole behind it: that is written already, as zeros. */
static bool replaces_tail(const struct state_inode *file, const struct state_commit_block *b)
{
	uint64_t tail_end = file->tail_offset + file->tail_bytes;

	return b->file_offset == file->tail_offset && b->length >= file->tail_bytes &&
		(b->length == file->tail_bytes || file->size <= tail_end);
}

static int check_overlap(
	struct state *s, const struct state_inode *file, const struct state_cmd_commit *cmd, uint32_t at)
{
	const struct state_commit_block *b = &cmd->blocks[at];
	struct state_extent extent;
	int code;

	if (covers_tail(file, b) && !replaces_tail(file, b))
		return ERR_EXIST;
	for (uint32_t i = 0; i < at; i++) {
		const struct state_commit_block *o = &cmd->blocks[i];

		if (overlaps(o->file_offset, o->length, b->file_offset, b->length))
			return ERR_INVAL;
	}
	if (b->file_offset < file->size && !covers_tail(file, b))
		return ERR_EXIST; /* also what is a hole is written already: as zeros */
	if (b->file_offset >= file->end_bytes)
		return 0;
	code = state_extent_get(s, file->id, b->file_offset, &extent);
	if (code)
		return code == ERR_NOENT ? 0 : code;
	return overlaps(extent.offset, extent.length, b->file_offset, b->length) ? ERR_EXIST : 0;
}

uint32_t state__most_in_a_domain(const struct state *s, const struct state_block *row, bool *ret_crowded)
{
	uint32_t domains[LIMIT_WIDTH], n = 0, most;

	for (uint8_t i = 0; i < row->width; i++) {
		const struct state_disk *disk = row->chunks[i].present ? state_disk_at(s, row->chunks[i].disk) : NULL;

		if (disk)
			domains[n++] = disk->domain;
	}
	*ret_crowded = place_is_crowded(domains, n, &most);
	return most;
}

static bool receipt_counts(const struct state *s, const struct state_receipt *r)
{
	const struct state_disk *disk = state_disk_at(s, r->disk);

	return disk && state_disk_counts(s, r->disk) && state_disk_knows(s, disk) &&
		disk->generation == r->generation &&
		r->incarnation < STATE_INCARNATIONS_ALLOCATED; /* others come by an intent */
}

/*
 * Puts the chunks whose receipts count into the row; of two receipts for one index the first one stays. A chunk that
 * would put more than m into a domain of a block that is there already does not count; a new block is refused for it.
 */
static int take_receipts(struct state *s, const struct state_commit_block *b, const struct stripe_geom *g,
	bool known, struct state_block *row, struct state_block_result *res)
{
	bool crowded;

	for (uint8_t i = 0; i < b->receipt_count; i++) {
		const struct state_receipt *r = &b->receipts[i];
		struct state_chunk *c;

		if (r->index >= b->width || stripe_chunk_len(g, r->index) == 0)
			return ERR_INVAL;
		c = &row->chunks[r->index];
		if (c->present)
			continue;
		/* Below the floor nothing is added any more: a copy that no row names may be dropped there. */
		if (b->block < s->meta.floor || state_restore_closed(s, b->block) || !receipt_counts(s, r)) {
			res->not_counted |= (uint16_t)(1u << r->index);
			continue;
		}
		c->present = true;
		c->disk = r->disk;
		c->incarnation = r->incarnation;
		if (state__most_in_a_domain(s, row, &crowded) > g->m) {
			if (!known)
				return ERR_NO_PLACEMENT;
			c->present = false;
			res->not_counted |= (uint16_t)(1u << r->index);
		}
	}
	for (uint8_t i = 0; i < row->width; i++) /* a second copy may have counted */
		if (row->chunks[i].present)
			res->not_counted &= (uint16_t) ~(1u << i);
	state__most_in_a_domain(s, row, &row->crowded);
	return 0;
}

static uint32_t present_count(const struct state_block *row)
{
	uint32_t n = 0;

	for (uint8_t i = 0; i < row->width; i++)
		n += row->chunks[i].present;
	return n;
}

static void row_init(const struct state *s, const struct state_commit_block *b, uint64_t inode,
	const struct stripe_geom *g, struct state_block *ret_row)
{
	*ret_row = (struct state_block){
		.id = b->block,
		.policy = b->policy,
		.width = b->width,
		.cell_bytes = b->cell_bytes,
		.length = b->length,
		.refcount = 1,
		.version = 1,
		.inode = inode,
		.file_offset = b->file_offset,
		.next_incarnation = STATE_INCARNATIONS_ALLOCATED,
		.time_ms = s->meta.time_ms,
	};
	for (uint8_t i = 0; i < b->width; i++) {
		ret_row->chunks[i].crc = b->crcs[i];
		if (stripe_chunk_len(g, i) && state_disk_at(s, b->intended[i]))
			ret_row->chunks[i].disk = b->intended[i];
	}
}

static int check_new(struct state *s, const struct state_cmd_commit *cmd, uint32_t at, const struct state_inode *file,
	struct state_block *row, struct state_block_result *res)
{
	const struct state_commit_block *b = &cmd->blocks[at];
	struct stripe_geom g;
	int code;

	if (b->block == 0 || b->block >= s->meta.next_block)
		return ERR_INVAL;
	if (b->block < s->meta.floor || state_restore_closed(s, b->block))
		return ERR_BLOCK_CLOSED;
	if (state__block_gone(s, b->block)) /* it was part of a file, and its copies are dropped, or will be */
		return ERR_BLOCK_CLOSED;
	code = check_overlap(s, file, cmd, at);
	if (code)
		return code;
	g = geom_of(b);
	row_init(s, b, file->id, &g, row);
	code = take_receipts(s, b, &g, false, row, res);
	if (code)
		return code;
	return present_count(row) < (uint32_t)stripe_data_chunks(&g) + (g.m + 1u) / 2 ? ERR_TOO_FEW_CHUNKS : 0;
}

/* Does the file have it still, as the commit put it there? */
static bool is_put(struct state *s, const struct state_inode *file, const struct state_commit_block *b)
{
	struct state_extent extent;

	return state_extent_get(s, file->id, b->file_offset, &extent) == 0 && extent.block == b->block &&
		extent.offset == b->file_offset && extent.length == b->length;
}

/* One block against the state: its row as it shall be, whether it is there already, and its result. */
static int check_block(struct state *s, const struct state_cmd_commit *cmd, uint32_t at, const struct state_inode *file,
	struct state_block *row, bool *ret_known, struct state_block_result *res)
{
	const struct state_commit_block *b = &cmd->blocks[at];
	int code = check_form(b, file);
	struct stripe_geom g;

	*ret_known = false;
	/* Each is checked against the rows as they are before the request: twice the same block would be blind to itself. */
	for (uint32_t i = 0; i < at && !code; i++)
		if (cmd->blocks[i].block == b->block)
			code = ERR_INVAL;
	if (code)
		return code;
	code = state_block_get(s, b->block, row);
	if (code == ERR_NOENT)
		return file->flags & STATE_INODE_COMPLETE ? ERR_STALE : check_new(s, cmd, at, file, row, res);
	if (code)
		return code;
	if (!same_content(row, b, file->id))
		return ERR_EXIST;
	if (!is_put(s, file, b))
		return ERR_BLOCK_CLOSED;
	*ret_known = true;
	g = geom_of(b);
	return take_receipts(s, b, &g, true, row, res);
}

void state__block_put(struct state *s, const struct state_block *row)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_id(&key, STATE_TABLE_BLOCK, row->id);
	state__put(s, &key, value, state_block_encode(row, value));
	s->blocks_version++;
}

void state__raw_bytes_count(struct state *s, const struct state_block *row, uint8_t index, bool came)
{
	struct state_inode *file = &s->inodes[3];
	uint64_t bytes = state_chunk_bytes(row, index);

	/* A file without a name was counted when it lost it, a block that nobody names when it was left. */
	if (row->refcount == 0 || state_inode_get(s, row->inode, file) ||
		file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED))
		return;
	if (came)
		file->raw_bytes += bytes;
	else
		file->raw_bytes -= bytes < file->raw_bytes ? bytes : file->raw_bytes;
	state__inode_put(s, file);
}

struct stripe_geom state__geom(const struct state_block *row)
{
	const struct ec_policy *policy = ec_policy_by_id(row->policy);

	return (struct stripe_geom){
		.k = policy->k, .m = policy->m, .cell_bytes = row->cell_bytes, .length = row->length};
}

static void put_extent(struct state *s, uint64_t inode, const struct state_commit_block *b)
{
	struct state_extent extent = {.offset = b->file_offset, .length = b->length, .block = b->block};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_extent(&key, inode, b->file_offset + b->length);
	state__put(s, &key, value, state_extent_encode(&extent, value));
}

uint64_t state_block_raw_bytes(const struct state_block *row)
{
	const struct ec_policy *policy = ec_policy_by_id(row->policy);
	struct stripe_geom g = {
		.k = policy->k, .m = policy->m, .cell_bytes = row->cell_bytes, .length = row->length};
	uint64_t sum = 0;

	for (uint8_t i = 0; i < row->width; i++)
		if (row->chunks[i].present)
			sum += stripe_chunk_len(&g, i);
	return sum;
}

/* Bytes of the file come (or go); its row and the counters know. */
static void count_bytes(struct state *s, struct state_inode *file, int64_t bytes)
{
	file->stored_bytes = (uint64_t)((int64_t)file->stored_bytes + bytes);
	if (file->flags & STATE_INODE_HIDDEN)
		return;
	s->meta.file_bytes = (uint64_t)((int64_t)s->meta.file_bytes + bytes);
	s->meta_dirty = true;
}

/* Writes what a checked block changes, and counts it in the file's row. */
static void write_block(struct state *s, const struct state_commit_block *b, const struct state_block *row, bool known,
	struct state_inode *file)
{
	uint64_t end = b->file_offset + b->length;

	if (known) {
		struct state_block *old = &s->blocks[LIMIT_COMMIT_BLOCKS];
		uint64_t added;

		if (state_block_get(s, b->block, old) || present_count(old) == present_count(row))
			return;
		added = state_block_raw_bytes(row) - state_block_raw_bytes(old);
		*old = *row;
		old->version++;
		state__block_put(s, old);
		if (!(file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED))) /* else its gc row has counted it */
			file->raw_bytes += added;
		return;
	}
	state__block_put(s, row);
	put_extent(s, file->id, b);
	if (covers_tail(file, b)) {
		count_bytes(s, file, -(int64_t)file->tail_bytes);
		file->tail_bytes = 0;
		state__tail_put(s, file, (struct slice){0});
	}
	count_bytes(s, file, (int64_t)b->length);
	if (end > file->end_bytes)
		file->end_bytes = end;
	file->raw_bytes += state_block_raw_bytes(row);
}

static void write_tail(struct state *s, const struct state_cmd_commit *cmd, struct state_inode *file)
{
	count_bytes(s, file, (int64_t)cmd->tail.len - (int64_t)file->tail_bytes);
	file->tail_offset = cmd->tail_offset;
	file->tail_bytes = (uint32_t)cmd->tail.len;
	if (file->tail_offset + file->tail_bytes > file->end_bytes)
		file->end_bytes = file->tail_offset + file->tail_bytes;
	state__tail_put(s, file, cmd->tail);
}

/* May this request speak for the file? A complete file answers repetitions, even when it has lost its name since. */
static int check_writer(struct state *s, const struct state_cmd_commit *cmd, struct state_inode *file)
{
	int code = state_writer_check(s, cmd->inode, cmd->epoch, file);

	if (!code && file->flags & STATE_INODE_CUT && (cmd->block_count || cmd->tail.len || cmd->complete))
		return ERR_AGAIN; /* what was cut off is still going */
	if ((code == ERR_STALE || code == ERR_FENCED) && file->id == cmd->inode && file->flags & STATE_INODE_COMPLETE &&
		file->epoch == cmd->epoch)
		return 0;
	return code;
}

/* A repetition is fine; else it stands in the old one's place, or at the end of everything. */
static int check_tail(
	struct state *s, const struct state_cmd_commit *cmd, const struct state_inode *file, bool covered, uint64_t end)
{
	struct slice old;

	if (cmd->tail.len == 0)
		return 0;
	if (cmd->tail.len > LIMIT_TAIL_BYTES)
		return ERR_INVAL;
	if (file->flags & STATE_INODE_COMPLETE)
		return file->tail_offset == cmd->tail_offset && state_tail_get(s, file, &old) == 0 &&
				slice_compare(old, cmd->tail) == 0
			? 0
			: ERR_STALE;
	if (file->tail_bytes && !covered)
		return cmd->tail_offset == file->tail_offset && cmd->tail.len >= file->tail_bytes &&
				end == file->tail_offset + file->tail_bytes
			? 0
			: ERR_EXIST;
	return cmd->tail_offset == end ? 0 : ERR_INVAL;
}

/* The file as it will be: is the tail where it may be, and, if it is to be complete, is all of it there? */
static int check_whole(
	struct state *s, const struct state_cmd_commit *cmd, const bool known[], const struct state_inode *file)
{
	uint64_t stored = file->stored_bytes + file->hole_bytes, end = file->end_bytes;
	bool covered = false; /* the tail that was is the beginning of a block, and there may be a new one behind */
	int code;

	for (uint32_t i = 0; i < cmd->block_count; i++) {
		const struct state_commit_block *b = &cmd->blocks[i];

		if (known[i])
			continue;
		if (covers_tail(file, b)) {
			covered = true;
			stored -= file->tail_bytes;
		}
		stored += b->length;
		if (b->file_offset + b->length > end)
			end = b->file_offset + b->length;
	}
	code = check_tail(s, cmd, file, covered, end);
	if (code || !cmd->complete)
		return code;
	if (cmd->tail.len) {
		stored += cmd->tail.len - (covered ? 0 : file->tail_bytes);
		end = cmd->tail_offset + cmd->tail.len > end ? cmd->tail_offset + cmd->tail.len : end;
	}
	return stored == end && end == cmd->size ? 0 : ERR_INCOMPLETE;
}

void state__commit(struct state *s, const struct state_cmd_commit *cmd, struct state_result *res)
{
	struct state_inode *file = &s->inodes[0], *dir = &s->inodes[1];
	bool known[LIMIT_COMMIT_BLOCKS], publish, replaces = false, more = false;
	struct state_dirent old;

	file->id = 0;
	res->count = 0;
	res->status = check_writer(s, cmd, file);
	if (res->status)
		return;
	res->count = cmd->block_count;
	for (uint32_t i = 0; i < cmd->block_count; i++) {
		struct state_block_result *r = &res->blocks[i];

		*r = (struct state_block_result){.block = cmd->blocks[i].block};
		r->status = check_block(s, cmd, i, file, &s->blocks[i], &known[i], r);
		if (r->status == ERR_BLOCK_CLOSED && r->block < s->meta.floor)
			SOMETIMES(state_block_closed);
		if (r->status && !res->status)
			res->status = r->status;
	}
	if (!res->status)
		res->status = check_whole(s, cmd, known, file);
	publish = cmd->complete && file->flags & STATE_INODE_HIDDEN;
	if (!res->status && publish)
		res->status = state__publish_check(s, file, dir, &old, &replaces);
	if (res->status)
		return;

	for (uint32_t i = 0; i < cmd->block_count; i++) {
		write_block(s, &cmd->blocks[i], &s->blocks[i], known[i], file);
		more |= !known[i];
	}
	if (!(file->flags & STATE_INODE_COMPLETE)) {
		more |= cmd->tail.len > file->tail_bytes;
		if (cmd->tail.len)
			write_tail(s, cmd, file);
		if (file->stored_bytes + file->hole_bytes == file->end_bytes)
			file->size = file->end_bytes;
		if (more) /* to complete it changes no byte: who has set its time meanwhile keeps it */
			file->mtime_ns = cmd->now_ns;
		file->ctime_ns = cmd->now_ns;
	}
	if (publish)
		state__publish(s, file, dir, &old, replaces, cmd->now_ns);
	if (cmd->complete) {
		file->flags |= STATE_INODE_COMPLETE;
		state__lease_drop(s, file);
	}
	state__inode_put(s, file);
	state_inode_attr(file, &res->attr);
}
