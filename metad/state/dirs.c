/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs: directories that were used lately, decoded, in memory beside the table: their rows, and the entries that lead to
 * them. Every path begins with some, and each file made or removed changes the row of its directory: here it is changed,
 * and written once an entry.
 *
 * Nobody can tell that this exists: what is read here is what the table holds, but for rows that the entry being applied
 * has changed, and those are written before it ends. So the two memories of two replicas may differ, their tables do not.
 *
 * A slot holds one directory, by its id; one that waits to be written stays until then, and another one of that slot
 * goes straight to the table.
 */
#include "metad/state/dirs.h"

#include "common/base/mem.h"
#include "metad/state/state.h"

enum {
	DIRS = 1024,
	STEPS = 1024,
	STEP_NAME_BYTES = 47, /* of an entry that is kept; 64 bytes in all */
};

#define HASH_FACTOR 0x9e3779b97f4a7c15u /* odd, 2^64 by the golden ratio */

struct dir {
	struct list dirty;
	struct state_inode row; /* id 0: none. A directory's ends before its name */
};

/* An entry that leads to a directory. */
struct step {
	uint64_t dir, inode; /* inode 0: none */
	uint8_t name_len, name[STEP_NAME_BYTES];
};
_Static_assert(sizeof(struct step) == 64, "a cache line");
_Static_assert((STEPS & (STEPS - 1)) == 0, "a slot is some bits of a hash");

struct state_dirs {
	struct dir dirs[DIRS];
	struct step steps[STEPS];
	struct list dirty;
};

static void row_copy(struct state_inode *to, const struct state_inode *from)
{
	memcpy(to, from, offsetof(struct state_inode, name));
}

void state__dirs_open(struct state *s)
{
	s->dirs = MEM_NEW(struct state_dirs);
	list_init(&s->dirs->dirty);
	for (int i = 0; i < DIRS; i++)
		list_init(&s->dirs->dirs[i].dirty);
}

void state__dirs_close(struct state *s)
{
	mem_free(s->dirs);
}

/* ---- rows ---- */

static struct dir *dir_of(struct state *s, uint64_t id)
{
	return &s->dirs->dirs[id % DIRS];
}

bool state__dir_get(struct state *s, uint64_t id, struct state_inode *ret_row)
{
	const struct dir *d = dir_of(s, id);

	if (d->row.id != id)
		return false;
	row_copy(ret_row, &d->row);
	return true;
}

void state__dir_keep(struct state *s, const struct state_inode *row)
{
	struct dir *d = dir_of(s, row->id);

	if (!list_linked(&d->dirty))
		row_copy(&d->row, row);
}

bool state__dir_put(struct state *s, const struct state_inode *row)
{
	struct dir *d = dir_of(s, row->id);

	if (!list_linked(&d->dirty))
		list_push_back(&s->dirs->dirty, &d->dirty);
	else if (d->row.id != row->id)
		return false;
	row_copy(&d->row, row);
	return true;
}

void state__dir_forget(struct state *s, uint64_t id)
{
	struct dir *d = dir_of(s, id);

	if (d->row.id != id)
		return;
	d->row.id = 0;
	if (list_linked(&d->dirty))
		list_remove(&d->dirty);
}

void state__dirs_write(struct state *s)
{
	struct list *link;

	while ((link = list_pop_front(&s->dirs->dirty)))
		state__inode_write(s, &LIST_ENTRY(link, struct dir, dirty)->row);
}

/* ---- entries ---- */

static struct step *step_of(struct state *s, uint64_t dir, struct slice name)
{
	uint64_t hash = dir * HASH_FACTOR, word;

	for (size_t len; name.len; name.data += len, name.len -= len) {
		len = name.len < sizeof(word) ? name.len : sizeof(word);
		word = 0;
		memcpy(&word, name.data, len);
		hash = (hash ^ word ^ hash >> 32) * HASH_FACTOR;
	}
	return &s->dirs->steps[hash >> 32 & (STEPS - 1)];
}

static bool step_is(const struct step *step, uint64_t dir, struct slice name)
{
	return step->inode && step->dir == dir && step->name_len == name.len &&
		memcmp(step->name, name.data, name.len) == 0;
}

uint64_t state__step_get(struct state *s, uint64_t dir, struct slice name)
{
	const struct step *step = step_of(s, dir, name);

	return step_is(step, dir, name) ? step->inode : 0;
}

void state__step_keep(struct state *s, uint64_t dir, struct slice name, uint64_t inode)
{
	struct step *step = step_of(s, dir, name);

	if (name.len > STEP_NAME_BYTES)
		return;
	*step = (struct step){.dir = dir, .inode = inode, .name_len = (uint8_t)name.len};
	memcpy(step->name, name.data, name.len);
}

void state__step_forget(struct state *s, uint64_t dir, struct slice name)
{
	struct step *step = step_of(s, dir, name);

	if (step_is(step, dir, name))
		step->inode = 0;
}
