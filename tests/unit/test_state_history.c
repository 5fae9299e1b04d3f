/* SPDX-License-Identifier: Apache-2.0 */
/* A long random history of names and files, and every count against the rows themselves. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

enum { MIB = STATE_BED_MIB, BLOCK = 16 * STATE_BED_MIB };

struct seen {
	uint64_t files, dirs, named_bytes, gc_rows, gc_bytes, dropped, extents, blocks, reverse_bits, present;
};

static uint64_t chunk_bytes_of(const struct state_block *row)
{
	struct stripe_geom g = {.k = 4, .m = 2, .cell_bytes = row->cell_bytes, .length = row->length};
	uint64_t sum = 0;

	for (uint8_t i = 0; i < row->width; i++)
		sum += row->chunks[i].present ? stripe_chunk_len(&g, i) : 0;
	return sum;
}

static void check_file(const struct state_inode *file, struct seen *seen)
{
	uint64_t stored = 0, raw = 0, end = 0, pos = 0;
	struct state_extent e;

	while (state_extent_get(&b->s, file->id, pos, &e) == 0) {
		ck_assert_uint_ge(e.offset, end);
		ck_assert_int_eq(state_block_get(&b->s, e.block, &b->block), 0);
		ck_assert_uint_eq(b->block.inode, file->id);
		ck_assert_uint_eq(b->block.refcount, 1);
		stored += e.length;
		raw += chunk_bytes_of(&b->block);
		pos = end = e.offset + e.length;
		seen->extents++;
	}
	ck_assert_uint_eq(file->stored_bytes, stored);
	ck_assert_uint_eq(file->end_bytes, end);
	if (file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED)) {
		ck_assert_uint_le(file->raw_bytes, raw); /* late chunks of a dropped file are left to its gc row */
		ck_assert_uint_eq(file->nlink, 0);
		seen->dropped++;
	} else {
		ck_assert_uint_eq(file->raw_bytes, raw);
	}
	if (file->flags & STATE_INODE_COMPLETE)
		ck_assert_uint_eq(file->size, stored);
	if (file->nlink)
		seen->named_bytes += stored;
}

static void check_row(const struct kv_scan *scan, struct seen *seen)
{
	struct rcursor r;
	struct state_inode inode;
	struct state_gc gc;
	uint16_t indices;
	uint64_t id;

	rcursor_init(&r, scan->key.data + 1, scan->key.len - 1);
	switch (scan->key.data[0]) {
	case STATE_TABLE_INODE:
		id = rcursor_u64_be(&r);
		ck_assert_int_eq(state_inode_decode(scan->value, id, &inode), 0);
		if (inode.type == STATE_TYPE_FILE)
			check_file(&inode, seen);
		seen->files += inode.type == STATE_TYPE_FILE && inode.nlink;
		seen->dirs += inode.type == STATE_TYPE_DIR;
		break;
	case STATE_TABLE_ORPHAN:
		rcursor_u64_be(&r);
		id = rcursor_u64_be(&r);
		ck_assert_int_eq(state_orphan_decode(scan->value, &gc.raw_bytes), 0);
		ck_assert_int_eq(state_inode_get(&b->s, id, &inode), 0);
		ck_assert(inode.flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED));
		seen->gc_rows++;
		seen->gc_bytes += gc.raw_bytes;
		break;
	case STATE_TABLE_GC:
		id = rcursor_u64_be(&r);
		ck_assert_int_eq(state_gc_decode(scan->value, &gc), 0);
		ck_assert_int_eq(state_inode_get(&b->s, id, &inode), 0);
		ck_assert(inode.flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED));
		ck_assert_uint_eq(gc.raw_bytes, inode.raw_bytes);
		seen->gc_rows++;
		seen->gc_bytes += gc.raw_bytes;
		break;
	case STATE_TABLE_BLOCK:
		id = rcursor_u64_be(&r);
		ck_assert_int_eq(state_block_decode(scan->value, id, &b->block), 0);
		for (uint8_t i = 0; i < 6; i++)
			seen->present += b->block.chunks[i].present;
		seen->blocks++;
		break;
	case STATE_TABLE_DISK_BLOCK:
		ck_assert_int_eq(state_disk_block_decode(scan->value, &indices), 0);
		seen->reverse_bits += (uint64_t)__builtin_popcount(indices);
		break;
	default:
		break;
	}
}

/* Returns the number of blocks. */
static uint64_t check_counts(void)
{
	struct seen seen = {0};
	uint64_t reverse = bed_reverse_all(b), rows;
	struct kv_scan scan;

	state_bed_settle(b->kv); /* from here on the index is all in its rows, and no row says anything else */
	rows = bed_rows(b, STATE_TABLE_DISK_BLOCK);
	ck_assert_uint_eq(rows, reverse);
	ck_assert_uint_eq(bed_reverse_all(b), reverse);
	for (kv_seek(b->kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan))
		check_row(&scan, &seen);
	kv_scan_end(&scan);
	ck_assert_uint_eq(b->s.meta.file_count, seen.files);
	ck_assert_uint_eq(b->s.meta.dir_count, seen.dirs);
	ck_assert_uint_eq(b->s.meta.file_bytes, seen.named_bytes);
	ck_assert_uint_eq(b->s.meta.pending_bytes, seen.gc_bytes);
	ck_assert_uint_eq(seen.gc_rows, seen.dropped);
	ck_assert_uint_eq(seen.extents, seen.blocks);
	ck_assert_uint_eq(seen.reverse_bits, seen.present);
	return seen.blocks;
}

enum { WRITERS = 8, STEPS = 3000 };

struct writer {
	uint64_t inode, epoch, pos;
	struct state_commit_block last;
};

static void step_commit(struct rng *rng, struct writer *w)
{
	uint64_t lengths[] = {1, MIB, 3 * MIB + 5, BLOCK}, length = lengths[rng_below(rng, 4)];
	bool complete = rng_below(rng, 3) == 0, again = w->last.block && rng_below(rng, 3) == 0;
	struct state_commit_block *x;

	bed_commit(b, w->inode, w->epoch, complete, w->pos + (again ? 0 : length));
	if (again) { /* the last one once more, with all its receipts, twice now and then */
		b->cmd.commit.blocks[b->cmd.commit.block_count++] = w->last;
		if (rng_below(rng, 8) == 0)
			b->cmd.commit.blocks[b->cmd.commit.block_count++] = w->last;
		state_bed_run(b);
		return;
	}
	x = bed_block(b, bed_reserve(b, 1), w->pos + (rng_below(rng, 20) == 0 ? MIB : 0), length);
	bed_commit(b, w->inode, w->epoch, complete, w->pos + length);
	b->cmd.commit.block_count = 1;
	w->last = *x;
	if (rng_below(rng, 2))
		bed_drop_receipt(x, (uint8_t)rng_below(rng, 6));
	if (state_bed_run(b) == 0)
		w->pos += length;
	else
		w->last.block = 0;
}

static void step(struct rng *rng, struct writer *writers)
{
	static const char *const names[] = {"a", "b", "d/a", "d/b", "d/e/a", "d", "d/e", "c"};
	const char *name = names[rng_below(rng, 8)], *other = names[rng_below(rng, 8)];
	struct writer *w = &writers[rng_below(rng, WRITERS)];

	switch (rng_below(rng, 10)) {
	case 0:
		bed_mkdir(b, rng_below(rng, 2) ? "d/e" : name, rng_below(rng, 2));
		return;
	case 1:
		bed_remove(b, name, rng_below(rng, 3) == 0);
		return;
	case 2:
		bed_rename(b, name, other, rng_below(rng, 4) == 0);
		return;
	case 3:
	case 4:
		if (bed_create(b, name, (int)rng_below(rng, 4)) == 0)
			*w = (struct writer){.inode = b->res.attr.inode, .epoch = b->res.epoch};
		return;
	case 5:
		b->cmd.type = STATE_CMD_ABORT;
		b->cmd.abort = (struct state_cmd_abort){.inode = w->inode, .epoch = w->epoch + rng_below(rng, 3) - 1};
		state_bed_run(b);
		return;
	default:
		step_commit(rng, w);
		return;
	}
}

START_TEST(test_random_history)
{
	struct writer writers[WRITERS] = {0};
	struct rng rng;

	rng_init(&rng, 77);
	state_bed_open(b);
	bed_disks(b, STATE_BED_DISKS, 1);
	for (int i = 0; i < STEPS; i++) {
		step(&rng, writers);
		if (i % 100 == 0)
			check_counts();
	}
	ck_assert_uint_gt(check_counts(), 200);
	ck_assert_uint_gt(b->s.meta.file_count, 0);
	ck_assert_uint_gt(b->s.meta.pending_bytes, 0);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_history", test_random_history)
