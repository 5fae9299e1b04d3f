// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/garbage.h"

#include <stdio.h>
#include "chunkd/daemon.h"
#include "common/base/check.h"
#include "metad/core.h"

enum { SLICE = 256 };

static char text[256];

static const char *row_left(struct metad *md, enum state_table table, const char *name)
{
	struct kv_scan scan;
	struct state_key key;

	text[0] = 0;
	state_key_table(&key, table);
	kv_seek(md->state.kv, &scan, state_key_slice(&key));
	if (kv_scan_valid(&scan) && scan.key.data[0] == (uint8_t)table)
		snprintf(text, sizeof(text), "there are rows of %s", name);
	kv_scan_end(&scan);
	return text;
}

static const char *copy_left(struct metad *md, const struct disk *d)
{
	struct copy_id slice[SLICE], from = {0};
	size_t n;

	text[0] = 0;
	do {
		n = index_list(d->index, &from, slice, SLICE);
		for (size_t i = 0; i < n; i++) {
			struct state_copy copy = {
				.block = slice[i].block, .index = slice[i].index, .incarnation = slice[i].incarnation};

			if (state_copy_named(&md->state, d->sb.disk, &copy))
				continue;
			snprintf(text, sizeof(text), "disk %u has chunk %u of block %llu, incarnation %u, which nothing names",
				d->sb.disk, copy.index, (unsigned long long)copy.block, copy.incarnation);
			return text;
		}
		if (n)
			from = slice[n - 1], from.incarnation++;
	} while (n == SLICE);
	return text;
}

const char *garbage_left(struct cluster *c)
{
	struct metad *md = cluster_metad(c);
	const char *left;

	if (!md)
		return "no metad leads";
	if (md->state.meta.floor < md->state.meta.next_block)
		return "the floor has not passed all block ids";
	left = row_left(md, STATE_TABLE_GC, "gc");
	if (!left[0])
		left = row_left(md, STATE_TABLE_GC_CUT, "gc_cut");
	if (!left[0])
		left = row_left(md, STATE_TABLE_GC_BLOCK, "gc_block");
	if (!left[0])
		left = row_left(md, STATE_TABLE_DROP, "drop");
	for (unsigned i = CLUSTER_CHUNKD; i < c->first_client && !left[0]; i++) {
		const struct chunkd *ch = c->nodes[i].chunkd;

		for (size_t d = 0; ch && d < ch->disk_count && !left[0]; d++)
			left = copy_left(md, ch->disks[d]);
	}
	if (!left[0] && md->state.meta.pending_bytes) {
		snprintf(text, sizeof(text), "%llu bytes are pending, and nothing waits",
			(unsigned long long)md->state.meta.pending_bytes);
		left = text;
	}
	return left;
}
