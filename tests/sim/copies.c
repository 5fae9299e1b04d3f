// SPDX-License-Identifier: Apache-2.0
/*
 * copies: see the header. Drop rows and disks are read every so often, and much more often than the grace for which each drop row is there:
 * so none is missed. What is no more among the rows than before was reported by its disk as dropped.
 */
#include "tests/sim/copies.h"

#include "chunkd/daemon.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "metad/core.h"

enum { DISKS_MAX = 32, BLOCKS_OF_A_LOOK = 8, SLICE = 256 };

#define DROPS_EVERY_NS (30 * CLUSTER_S)
#define CALM_NS (60 * CLUSTER_S) /* all hosts are up for so long: what is due by then is done by then */

struct copy_list {
	struct state_copy *copies;
	size_t count, cap;
};

struct copies {
	struct cluster *cluster;
	uint64_t drops_ns; /* when the drop rows are read next */
	uint64_t block;    /* where the next look at blocks begins */
	uint64_t calm_ns;  /* since when all hosts are up; 0: they are not */
	struct {
		struct copy_list rows; /* drop rows, when they were last looked at */
		struct copy_list lie;  /* copies that lie there, likewise */
		struct copy_list gone; /* drop rows that went */
		size_t looked_for;     /* so many of them were */
		struct copy_list spare;
	} disks[DISKS_MAX];
};

struct copies *copies_new(struct cluster *cluster)
{
	struct copies *c = MEM_NEW(struct copies);

	c->cluster = cluster;
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
	mem_free(c);
}

static void push(struct copy_list *list, const struct state_copy *copy)
{
	if (list->count == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		list->copies = mem_realloc(list->copies, list->cap * sizeof(list->copies[0]));
	}
	list->copies[list->count++] = *copy;
}

/* In the order of their keys. */
static int compare(const struct state_copy *a, const struct state_copy *b)
{
	if (a->block != b->block)
		return a->block < b->block ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	return a->incarnation < b->incarnation ? -1 : a->incarnation > b->incarnation;
}

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

static bool lies_on(const struct disk *d, const struct state_copy *copy)
{
	struct copy_id id = {copy->block, copy->incarnation, copy->index};
	struct index_row row;

	return index_get(d->index, &id, &row) == 0;
}

static void fail(struct copies *c, uint32_t disk, const struct state_copy *copy, const char *what)
{
	cluster_fail(c->cluster, "disk %u: chunk %u of block %llu, incarnation %u, %s", disk, copy->index,
		(unsigned long long)copy->block, copy->incarnation, what);
}

/* `spare` holds what is there now: it changes places with what was there. */
static void take_over(struct copy_list *list, struct copy_list *spare)
{
	struct copy_list old = *list;

	*list = *spare;
	*spare = old;
}

/* Walks two lists at once: those of `old` that are not in `now` go to lost(), those of `now` that are not in `old` to come(). */
static void walk(struct copies *c, uint32_t disk, const struct copy_list *old, const struct copy_list *now,
	void (*lost)(struct copies *c, uint32_t disk, const struct state_copy *copy),
	void (*come)(struct copies *c, uint32_t disk, const struct state_copy *copy))
{
	size_t i = 0, j = 0;

	while (i < old->count || j < now->count) {
		int order = i == old->count ? 1 : j == now->count ? -1 : compare(&old->copies[i], &now->copies[j]);

		if (order < 0)
			lost(c, disk, &old->copies[i]);
		else if (order > 0)
			come(c, disk, &now->copies[j]);
		i += order <= 0;
		j += order >= 0;
	}
}

/* ---- drop rows ---- */

static struct state *state_of(struct copies *c)
{
	struct metad *md = c->cluster->nodes[CLUSTER_METAD].metad;

	return cluster_running(c->cluster, CLUSTER_METAD) && md && !md->failed ? &md->state : NULL;
}

/* 5 */
static void check_due(struct copies *c, struct state *s, uint32_t disk, const struct state_drop_list *row)
{
	uint64_t due_ms = row->drop.time_ms + state_config(s, CONFIG_GC_GRACE);

	if (c->calm_ns && sim_now_ns(c->cluster->sim) >= c->calm_ns + CALM_NS &&
		due_ms + CALM_NS / CLUSTER_MS <= s->meta.time_ms)
		fail(c, disk, &row->copy, "should have been dropped by now");
}

static void row_lost(struct copies *c, uint32_t disk, const struct state_copy *copy)
{
	push(&c->disks[disk].gone, copy);
}

/* 1 */
static void row_come(struct copies *c, uint32_t disk, const struct state_copy *copy)
{
	if (state_copy_named(state_of(c), disk, copy))
		fail(c, disk, copy, "is to be dropped, and is still named");
}

static void look_at_rows(struct copies *c, struct state *s, uint32_t disk)
{
	struct copy_list *now = &c->disks[disk].spare;
	struct state_drop_list rows;

	now->count = 0;
	for (int code = state_drop_begin(s, disk, &(struct state_copy){0}, &rows); code == 0;
		code = state_drop_next(s, &rows)) {
		push(now, &rows.copy);
		check_due(c, s, disk, &rows);
	}
	state_drop_end(&rows);
	walk(c, disk, &c->disks[disk].rows, now, row_lost, row_come);
	take_over(&c->disks[disk].rows, now);
}

/* 2 */
static void look_for_gone(struct copies *c, uint32_t number, const struct disk *d)
{
	const struct copy_list *gone = &c->disks[number].gone;

	for (size_t *i = &c->disks[number].looked_for; *i < gone->count; ++*i)
		if (lies_on(d, &gone->copies[*i]))
			fail(c, number, &gone->copies[*i], "was reported as dropped, and is there");
}

/* ---- disks ---- */

static bool has(const struct copy_list *list, const struct state_copy *copy)
{
	for (size_t i = list->count; i > 0; i--)
		if (compare(&list->copies[i - 1], copy) == 0)
			return true;
	return false;
}

/* 3 */
static void copy_lost(struct copies *c, uint32_t disk, const struct state_copy *copy)
{
	if (!has(&c->disks[disk].rows, copy) && !has(&c->disks[disk].gone, copy))
		fail(c, disk, copy, "is there no more, and no drop row has named it");
}

static void copy_come(struct copies *c, uint32_t disk, const struct state_copy *copy)
{
	(void)c, (void)disk, (void)copy;
}

static void look_at_disk(struct copies *c, uint32_t number, const struct disk *d)
{
	struct copy_list *now = &c->disks[number].spare;
	struct copy_id slice[SLICE], from = {0};
	size_t n;

	now->count = 0;
	do {
		n = index_list(d->index, &from, slice, SLICE);
		for (size_t i = 0; i < n; i++)
			push(now, &(struct state_copy){slice[i].block, slice[i].incarnation, slice[i].index});
		if (n)
			from = slice[n - 1], from.incarnation++;
	} while (n == SLICE);
	walk(c, number, &c->disks[number].lie, now, copy_lost, copy_come);
	take_over(&c->disks[number].lie, now);
}

/* ---- blocks ---- */

/* 4 */
static void look_at_block(struct copies *c, struct state *s, uint64_t id)
{
	struct state_block row;

	if (state_block_get(s, id, &row))
		return;
	for (uint8_t i = 0; i < row.width; i++) {
		struct state_copy copy = {row.id, row.chunks[i].incarnation, i};
		const struct disk *d = row.chunks[i].present ? find_disk(c, row.chunks[i].disk) : NULL;

		if (d && !lies_on(d, &copy))
			fail(c, row.chunks[i].disk, &copy, "is part of its block, and is not there");
	}
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
	for (uint32_t i = 1; i < DISKS_MAX && !c->cluster->failed; i++) {
		const struct disk *d = find_disk(c, i);

		look_at_rows(c, s, i);
		if (!d)
			continue;
		look_for_gone(c, i, d);
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
	if (sim_now_ns(c->cluster->sim) >= c->drops_ns)
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
