// SPDX-License-Identifier: Apache-2.0
/*
 * copies: see the header. Drop rows and disks are read every so often, and much more often than the grace for which each drop row is there:
 * so none is missed. What is no more among the rows than before was reported by its disk as dropped.
 */
#include "tests/sim/copies.h"

#include <string.h>
#include "chunkd/daemon.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/code/stripe.h"
#include "metad/core.h"

enum { DISKS_MAX = 32, BLOCKS_OF_A_LOOK = 8, SLICE = 256 };

#define DROPS_EVERY_NS (30 * CLUSTER_S)
#define CALM_NS (60 * CLUSTER_S) /* all hosts are up for so long: what is due by then is done by then */

enum { TIME_BACK_MS = 30 * 1000 }; /* by so much state time may be behind after a restart of metad */

struct seen_copy {
	struct state_copy copy;
	uint64_t due_ms;   /* of a drop row: state time when its grace is over */
	uint64_t sequence; /* of a copy that lies there: what its disk says of it */
	uint32_t length, crc;
};

/* In the order of their keys. */
struct copy_list {
	struct seen_copy *copies;
	size_t count, cap;
};

struct copies {
	struct cluster *cluster;
	const struct faults *faults;
	uint64_t drops_ns;  /* when the drop rows are read next */
	uint64_t starts;    /* of daemons, when they were last read */
	uint64_t block;     /* where the next look at blocks begins */
	uint64_t calm_ns;   /* since when all hosts are up; 0: they are not */
	struct map content; /* block -> what never changes of its row, as a number that is not 0 */
	struct {
		struct copy_list rows; /* drop rows, when they were last looked at */
		struct copy_list lie;  /* copies that lie there, likewise */
		struct copy_list gone; /* drop rows that went */
		struct copy_list spare;
	} disks[DISKS_MAX];
};

struct copies *copies_new(struct cluster *cluster, const struct faults *faults)
{
	struct copies *c = MEM_NEW(struct copies);

	c->cluster = cluster;
	c->faults = faults;
	map_init(&c->content);
	return c;
}

void copies_free(struct copies *c)
{
	for (size_t i = 0; i < DISKS_MAX; i++) {
		mem_free(c->disks[i].rows.copies);
		mem_free(c->disks[i].lie.copies);
		mem_free(c->disks[i].gone.copies);
		mem_free(c->disks[i].spare.copies);
	}
	map_fini(&c->content);
	mem_free(c);
}

/* ---- lists ---- */

static int compare(const struct state_copy *a, const struct state_copy *b)
{
	if (a->block != b->block)
		return a->block < b->block ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	return a->incarnation < b->incarnation ? -1 : a->incarnation > b->incarnation;
}

/* Behind those that come before it: as a rule at the end. */
static void insert(struct copy_list *list, const struct seen_copy *seen)
{
	size_t at = list->count;

	if (list->count == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		list->copies = mem_realloc(list->copies, list->cap * sizeof(list->copies[0]));
	}
	while (at > 0 && compare(&list->copies[at - 1].copy, &seen->copy) > 0)
		at--;
	memmove(&list->copies[at + 1], &list->copies[at], (list->count - at) * sizeof(list->copies[0]));
	list->copies[at] = *seen;
	list->count++;
}

static bool has(const struct copy_list *list, const struct state_copy *copy)
{
	size_t from = 0, to = list->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (compare(&list->copies[mid].copy, copy) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from < list->count && compare(&list->copies[from].copy, copy) == 0;
}

/* `spare` holds what is there now: it changes places with what was there. */
static void take_over(struct copy_list *list, struct copy_list *spare)
{
	struct copy_list old = *list;

	*list = *spare;
	*spare = old;
}

/* Walks two lists at once: those of `old` that are not in `now` go to lost(), those that are to stayed(); each may be NULL. */
static void walk(struct copies *c, uint32_t disk, const struct copy_list *old, const struct copy_list *now,
	void (*lost)(struct copies *c, uint32_t disk, const struct seen_copy *old),
	void (*stayed)(struct copies *c, uint32_t disk, const struct seen_copy *old, const struct seen_copy *now))
{
	size_t j = 0;

	for (size_t i = 0; i < old->count; i++) {
		while (j < now->count && compare(&now->copies[j].copy, &old->copies[i].copy) < 0)
			j++;
		if (j < now->count && compare(&now->copies[j].copy, &old->copies[i].copy) == 0) {
			if (stayed)
				stayed(c, disk, &old->copies[i], &now->copies[j]);
		} else if (lost) {
			lost(c, disk, &old->copies[i]);
		}
	}
}

/* ---- daemons ---- */

/* NULL: it is away, or failed. */
static const struct disk *find_disk(const struct copies *c, uint32_t number)
{
	for (unsigned i = CLUSTER_CHUNKD; i < c->cluster->first_client; i++) {
		const struct chunkd *ch = cluster_running(c->cluster, i) ? c->cluster->nodes[i].chunkd : NULL;

		for (size_t j = 0; ch && j < ch->disk_count; j++)
			if (ch->disks[j]->sb.disk == number)
				return ch->disks[j]->failed ? NULL : ch->disks[j];
	}
	return NULL;
}

static struct state *state_of(struct copies *c)
{
	struct metad *md = cluster_metad(c->cluster);

	return md ? &md->state : NULL;
}

static void fail(struct copies *c, uint32_t disk, const struct state_copy *copy, const char *what)
{
	cluster_fail(c->cluster, "disk %u: chunk %u of block %llu, incarnation %u, %s", disk, copy->index,
		(unsigned long long)copy->block, copy->incarnation, what);
}

/* ---- drop rows ---- */

/* 5 */
static void check_due(struct copies *c, uint32_t disk, const struct seen_copy *row)
{
	if (c->calm_ns && sim_now_ns(c->cluster->sim) >= c->calm_ns + CALM_NS &&
		row->due_ms + CALM_NS / CLUSTER_MS <= state_of(c)->meta.time_ms)
		fail(c, disk, &row->copy, "should have been dropped by now");
}

/* 2 */
static void row_lost(struct copies *c, uint32_t disk, const struct seen_copy *old)
{
	if (metad__now_ms(cluster_metad(c->cluster)) + TIME_BACK_MS < old->due_ms)
		fail(c, disk, &old->copy, "was dropped before its grace was over");
	insert(&c->disks[disk].gone, old);
}

static void look_at_rows(struct copies *c, struct state *s, uint32_t disk)
{
	struct copy_list *now = &c->disks[disk].spare;
	uint64_t grace_ms = state_config(s, CONFIG_GC_GRACE);
	struct state_drop_list rows;

	now->count = 0;
	for (int code = state_drop_begin(s, disk, &(struct state_copy){0}, &rows); code == 0;
		code = state_drop_next(s, &rows))
		insert(now, &(struct seen_copy){.copy = rows.copy, .due_ms = rows.drop.time_ms + grace_ms});
	state_drop_end(&rows);
	for (size_t i = 0; i < now->count; i++) {
		check_due(c, disk, &now->copies[i]);
		if (state_copy_named(s, disk, &now->copies[i].copy)) /* 1 */
			fail(c, disk, &now->copies[i].copy, "is to be dropped, and is still named");
	}
	walk(c, disk, &c->disks[disk].rows, now, row_lost, NULL);
	take_over(&c->disks[disk].rows, now);
}

/* ---- disks ---- */

static bool was_damaged(const struct copies *c, uint64_t block, uint8_t index)
{
	return c->faults && faults_damage_of(c->faults, block, index);
}

/* 3 */
static void copy_lost(struct copies *c, uint32_t disk, const struct seen_copy *old)
{
	if (!was_damaged(c, old->copy.block, old->copy.index) && !has(&c->disks[disk].rows, &old->copy) && !has(&c->disks[disk].gone, &old->copy))
		fail(c, disk, &old->copy, "is there no more, and no drop row has named it");
}

/* 6 */
static void copy_stayed(struct copies *c, uint32_t disk, const struct seen_copy *old, const struct seen_copy *now)
{
	if (old->length != now->length || old->crc != now->crc || old->sequence != now->sequence)
		fail(c, disk, &now->copy, "is another one than it was");
}

/* 2 */
static void gone_stayed(struct copies *c, uint32_t disk, const struct seen_copy *old, const struct seen_copy *now)
{
	(void)old;
	fail(c, disk, &now->copy, "was reported as dropped, and is there");
}

static void look_at_disk(struct copies *c, uint32_t number, const struct disk *d)
{
	struct copy_list *now = &c->disks[number].spare;
	struct copy_id slice[SLICE], from = {0};
	struct index_row row;
	size_t n;

	now->count = 0;
	do {
		n = index_list(d->index, &from, slice, SLICE);
		for (size_t i = 0; i < n; i++)
			if (index_get(d->index, &slice[i], &row) == 0)
				insert(now,
					&(struct seen_copy){
						.copy = {slice[i].block, slice[i].incarnation, slice[i].index},
						.sequence = row.sequence,
						.length = row.length,
						.crc = row.crc});
		if (n)
			from = slice[n - 1], from.incarnation++;
	} while (n == SLICE);
	walk(c, number, &c->disks[number].gone, now, NULL, gone_stayed);
	walk(c, number, &c->disks[number].lie, now, copy_lost, copy_stayed);
	take_over(&c->disks[number].lie, now);
}

/* ---- blocks ---- */

/* 4; a chunk that is empty is nowhere, and one that was damaged may be. */
static void check_chunk(struct copies *c, const struct state_block *block, uint8_t index)
{
	const struct state_chunk *chunk = &block->chunks[index];
	const struct disk *d = chunk->present ? find_disk(c, chunk->disk) : NULL;
	struct state_copy copy = {block->id, chunk->incarnation, index};
	struct copy_id id = {block->id, chunk->incarnation, index};
	struct stripe_geom g = state__geom(block);
	struct index_row row;

	if (!d)
		return;
	if (index_get(d->index, &id, &row)) {
		if (!was_damaged(c, block->id, index))
			fail(c, chunk->disk, &copy, "is part of its block, and is not there");
	} else if (row.length != stripe_chunk_len(&g, index) || row.crc != chunk->crc)
		fail(c, chunk->disk, &copy, "is not what the proof of its block says");
}

/* 6 */
static void check_content(struct copies *c, const struct state_block *block)
{
	uint32_t said[LIMIT_WIDTH + 4] = {block->policy, block->width, block->cell_bytes, (uint32_t)block->length};
	uintptr_t now;
	void *before;

	for (uint8_t i = 0; i < block->width; i++)
		said[4 + i] = block->chunks[i].crc;
	now = (uintptr_t)crc32c(said, sizeof(said)) + 1;
	before = map_get(&c->content, block->id);
	if (before && (uintptr_t)before != now)
		cluster_fail(c->cluster, "block %llu: its row says other things of its content than before",
			(unsigned long long)block->id);
	if (!before)
		map_put(&c->content, block->id, (void *)now);
}

/* 7 */
static void check_domains(struct copies *c, const struct state *s, const struct state_block *block)
{
	uint32_t most = 0;

	for (uint8_t i = 0; i < block->width; i++) {
		const struct state_disk *disk = state_disk_at(s, block->chunks[i].disk), *other;
		uint32_t same = 0;

		for (uint8_t j = 0; block->chunks[i].present && j < block->width; j++) {
			other = block->chunks[j].present ? state_disk_at(s, block->chunks[j].disk) : NULL;
			same += other && disk && other->domain == disk->domain;
		}
		most = same > most ? same : most;
	}
	if (most > CLUSTER_M || block->crowded != (most > 1))
		cluster_fail(c->cluster, "block %llu: a domain holds %u of its chunks, and it is%s listed as crowded",
			(unsigned long long)block->id, most, block->crowded ? "" : " not");
}

static void look_at_block(struct copies *c, struct state *s, uint64_t id)
{
	struct state_block row;

	if (state_block_get(s, id, &row))
		return;
	check_content(c, &row);
	check_domains(c, s, &row);
	for (uint8_t i = 0; i < row.width; i++)
		check_chunk(c, &row, i);
}

/* From where the last look ended. True: it was the last block. */
static bool look_at_blocks(struct copies *c, struct state *s, size_t count)
{
	uint64_t ids[BLOCKS_OF_A_LOOK];
	struct state_key key;
	struct kv_scan scan;
	size_t n = 0;

	state_key_id(&key, STATE_TABLE_BLOCK, c->block);
	for (kv_seek(s->kv, &scan, state_key_slice(&key)); n < count && kv_scan_valid(&scan); kv_scan_next(&scan))
		if (!state_key_parse_id(scan.key, STATE_TABLE_BLOCK, &ids[n++])) {
			n--;
			break;
		}
	kv_scan_end(&scan);
	for (size_t i = 0; i < n; i++)
		look_at_block(c, s, ids[i]);
	c->block = n == count ? ids[n - 1] + 1 : 0;
	return n < count;
}

/* ---- all ---- */

static void look_at_drops(struct copies *c, struct state *s)
{
	CHECK(!state_disk_at(s, DISKS_MAX));
	c->drops_ns = sim_now_ns(c->cluster->sim) + DROPS_EVERY_NS;
	c->starts = c->cluster->starts;
	for (uint32_t i = 1; i < DISKS_MAX && !c->cluster->failed; i++) {
		const struct disk *d = find_disk(c, i);

		look_at_rows(c, s, i);
		if (d)
			look_at_disk(c, i, d);
	}
}

void copies_look(struct copies *c)
{
	struct state *s = state_of(c);

	if (!cluster_all_registered(c->cluster))
		c->calm_ns = 0;
	else if (!c->calm_ns)
		c->calm_ns = sim_now_ns(c->cluster->sim);
	if (!s || c->cluster->failed)
		return;
	if (sim_now_ns(c->cluster->sim) >= c->drops_ns || c->starts != c->cluster->starts)
		look_at_drops(c, s);
	(void)look_at_blocks(c, s, BLOCKS_OF_A_LOOK);
}

void copies_look_at_all(struct copies *c)
{
	struct state *s = state_of(c);

	if (!s || c->cluster->failed)
		return;
	c->block = 0;
	while (!look_at_blocks(c, s, BLOCKS_OF_A_LOOK))
		;
	c->drops_ns = 0;
	copies_look(c);
}
