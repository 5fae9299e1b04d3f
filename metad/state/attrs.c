/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attrs: what stat and listings tell of a file, in one cache line each. A row of the table is a dozen lines that lie apart, found by a
 * search through the tree of LMDB; who lists a directory asks for one after the other.
 *
 * Nobody can tell that this exists: what is read here is what the table holds, as each row of a file that is written or taken away passes
 * by here (path.c, gc.c, cut.c).
 *
 * A slot belongs to all inodes of one remainder, and holds the one that was used last. Ids are given in order, so the newest LIMIT_ATTRS
 * inodes never meet. The slots lie in pieces that are made when they are first used.
 */
#include "metad/state/attrs.h"

#include <string.h>
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "metad/state/state.h"

enum { LINE_BYTES = 64, PIECE_SLOTS = 4096, PIECES = LIMIT_ATTRS / PIECE_SLOTS };
_Static_assert(LIMIT_ATTRS % PIECE_SLOTS == 0, "whole pieces");

struct slot {
	_Alignas(LINE_BYTES) struct state_attr attr; /* inode 0: none */
};
_Static_assert(sizeof(struct slot) == LINE_BYTES, "a cache line");

struct state_attrs {
	struct slot *pieces[PIECES];
};

void state__attrs_open(struct state *s)
{
	s->attrs = MEM_NEW(struct state_attrs);
}

void state__attrs_close(struct state *s)
{
	for (int i = 0; s->attrs && i < PIECES; i++)
		mem_free(s->attrs->pieces[i]);
	mem_free(s->attrs);
}

static struct slot **piece_of(const struct state *s, uint64_t inode)
{
	return &s->attrs->pieces[inode % LIMIT_ATTRS / PIECE_SLOTS];
}

/* NULL: it is not here. */
static struct slot *find(const struct state *s, uint64_t inode)
{
	struct slot *piece = *piece_of(s, inode), *slot = piece ? &piece[inode % PIECE_SLOTS] : NULL;

	return slot && slot->attr.inode == inode ? slot : NULL;
}

bool state__attr_get(const struct state *s, uint64_t inode, struct state_attr *ret_attr)
{
	const struct slot *slot = find(s, inode);

	if (slot)
		*ret_attr = slot->attr;
	return slot;
}

void state__attr_keep(struct state *s, const struct state_inode *row)
{
	struct slot **piece = piece_of(s, row->id);

	if (row->type == STATE_TYPE_DIR)
		return;
	if (!*piece) {
		*piece = mem_aligned(LINE_BYTES, PIECE_SLOTS * sizeof(**piece));
		memset(*piece, 0, PIECE_SLOTS * sizeof(**piece));
	}
	state_inode_attr(row, &(*piece)[row->id % PIECE_SLOTS].attr);
}

void state__attr_forget(struct state *s, uint64_t inode)
{
	struct slot *slot = find(s, inode);

	if (slot)
		slot->attr.inode = 0;
}
