// SPDX-License-Identifier: Apache-2.0
/*
 * known: see the header. To see the rows of a replica after exactly one entry, its ledger's `apply` is led through here: before a command
 * is applied the rows are those after the last one, and after all entries behind it that are no commands.
 */
#include "tests/sim/known.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/kv/kv.h"
#include "metad/core.h"
#include "tests/sim/cluster.h"

/* ---- rows ---- */

static uint64_t mix(uint64_t h, struct slice s)
{
	h = (h ^ s.len ^ ((uint64_t)crc32c(s.data, s.len) << 32)) * 0x9e3779b97f4a7c15u;
	return h ^ (h >> 29);
}

/* Disks that the block's row says it has chunks on. */
static uint32_t disks_of(struct slice key, struct slice value)
{
	struct state_block row;
	uint32_t disks = 0;
	uint64_t id;

	if (!state_key_parse_id(key, STATE_TABLE_BLOCK, &id) || state_block_decode(value, id, &row))
		return 0;
	for (uint8_t i = 0; i < row.width; i++) {
		uint8_t first = 0;

		while (!row.chunks[first].present || row.chunks[first].disk != row.chunks[i].disk)
			if (++first > i)
				break;
		disks += first == i;
	}
	return disks;
}

/* The blocks of each disk, by the reverse index. */
static uint32_t reverse_pairs(struct metad *md)
{
	struct state_reverse_walk walk;
	struct state_block row;
	uint32_t pairs = 0;

	for (uint32_t disk = 1; disk < md->state.meta.next_disk; disk++) {
		state_reverse_begin(&md->state, disk, 0, UINT64_MAX, UINT32_MAX, &walk);
		while (state_reverse_next(&walk, &row))
			pairs++;
		state_reverse_end(&walk);
	}
	return pairs;
}

/* Of what commands write. What follows from it in the table is so far as the last commit, but whoever looks there finds all of it. */
uint64_t known_digest(struct cluster *c, struct metad *md)
{
	struct state_key first;
	struct kv_scan scan;
	uint32_t pairs = 0;
	uint64_t h = 1;

	state_key_table(&first, STATE_TABLE_META); /* before it: a group's own row */
	for (kv_seek(ledger_kv(md->ledger), &scan, state_key_slice(&first)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.data[0] == STATE_TABLE_DISK_BLOCK)
			continue;
		h = mix(mix(h, scan.key), scan.value);
		pairs += disks_of(scan.key, scan.value);
	}
	kv_scan_end(&scan);
	if (reverse_pairs(md) != pairs)
		cluster_fail(c,
			"metad's index of the blocks of disks has %u entries, %u follow from the rows of blocks",
			reverse_pairs(md), pairs);
	return h;
}

uint64_t known_group(struct metad *md)
{
	struct slice value;

	return kv_get(ledger_kv(md->ledger), table_group_key(), &value) ? 0 : mix(1, value);
}

static bool has_rows(const struct cluster_node *n)
{
	return n->metad && !n->metad->failed && n->metad->state.kv && n->state == CLUSTER_RUNNING;
}

static void check_table(struct cluster_node *n)
{
	struct cluster *c = n->cluster;

	/* More may have been durable than was applied. */
	if (!n->known.table.index || ledger_applied(n->metad->ledger) != n->known.table.index)
		return;
	c->replays++;
	if (known_digest(c, n->metad) != n->known.table.digest)
		cluster_fail(c, "metad's table at index %llu is another one after the replay of its log",
			(unsigned long long)n->known.table.index);
}

/* ---- the log of a replica ---- */

static const struct wal *log_of(const struct cluster_node *n)
{
	return replica_log(n->metad->ledger->replica);
}

static uint64_t snapshots_of(const struct cluster_node *n)
{
	return replica_counts(n->metad->ledger->replica)->snapshots_installed;
}

/* From its base on. */
static uint64_t term_at(const struct wal_index *index, uint64_t entry)
{
	return entry == index->base_index ? index->base_term : wal_index_term(index, entry);
}

static void note_log(struct cluster_node *n)
{
	const struct wal *wal = log_of(n);
	const struct wal_index *index = wal_index(wal);
	bool begins_anew = index->count == 0 && index->base_index != wal_meta(wal)->base_index;

	n->known.log.is_known = true;
	n->known.log.term = wal_meta(wal)->term;
	n->known.log.vote = wal_meta(wal)->vote;
	n->known.log.durable = begins_anew ? 0 : wal_durable_index(wal);
	n->known.log.durable_term = term_at(index, n->known.log.durable);
}

static void check_log(struct cluster_node *n)
{
	const struct wal *wal = log_of(n);
	const struct wal_index *index = wal_index(wal);
	const struct wal_meta *meta = wal_meta(wal);
	uint64_t durable = n->known.log.durable;

	if (!n->known.log.is_known)
		return;
	if (meta->term < n->known.log.term ||
		(meta->term == n->known.log.term && n->known.log.vote && meta->vote != n->known.log.vote))
		cluster_fail(n->cluster, "%s was in term %llu and voted for %llu, which it has forgotten", n->name,
			(unsigned long long)n->known.log.term, (unsigned long long)n->known.log.vote);
	if (wal_index_last(index) < durable)
		cluster_fail(n->cluster, "%s had entries up to %llu durable, and has lost those behind %llu", n->name,
			(unsigned long long)durable, (unsigned long long)wal_index_last(index));
	else if (durable >= index->base_index && term_at(index, durable) != n->known.log.durable_term)
		cluster_fail(n->cluster, "%s had entry %llu of term %llu durable, and has another one there", n->name,
			(unsigned long long)durable, (unsigned long long)n->known.log.durable_term);
}

/* ---- the rows of a group ---- */

static void note_rows(struct cluster_node *n)
{
	struct known_rows *k = &n->cluster->known_rows;
	size_t at = k->count++ % KNOWN_ROWS_MAX;

	k->rows[at].index = ledger_applied(n->metad->ledger);
	k->rows[at].digest = known_digest(n->cluster, n->metad);
}

/* It is before or behind a command. */
static void look_at_rows(struct cluster_node *n)
{
	uint64_t now = ledger_applied(n->metad->ledger);
	struct known_rows *k = &n->cluster->known_rows;

	if (n->known.snapshots != snapshots_of(n)) {
		n->known.snapshots = snapshots_of(n);
		n->known.looked = now - 1;
	}
	for (size_t i = 0; i < KNOWN_ROWS_MAX; i++) {
		if (k->rows[i].index <= n->known.looked || k->rows[i].index > now)
			continue;
		n->cluster->replays++;
		if (known_digest(n->cluster, n->metad) != k->rows[i].digest)
			cluster_fail(n->cluster, "%s has other rows after entry %llu than there were where a replica crashed behind it", n->name,
				(unsigned long long)k->rows[i].index);
	}
	n->known.looked = now;
}

static struct cluster *watched; /* there is one at a time */

static int apply(void *ctx, struct kv *kv, struct slice data, struct ledger_entry *entry, struct err *err)
{
	for (unsigned i = 0; i < cluster_metads(watched); i++) {
		struct cluster_node *n = &watched->nodes[cluster_metad_node(watched, i)];

		if (n->metad == ctx && n->metad->state.kv)
			look_at_rows(n);
	}
	return metad__apply(ctx, kv, data, entry, err);
}

static void watch_rows(struct cluster_node *n)
{
	struct ledger_options *o = &n->metad->ledger->options;

	CHECK(o->apply == metad__apply && o->ctx == n->metad);
	watched = n->cluster;
	o->apply = apply;
	n->known.snapshots = 0;
	n->known.looked = ledger_applied(n->metad->ledger);
	n->known.looked -= n->known.looked > 0;
}

/* ---- what is told ---- */

void known_crash(struct cluster_node *n)
{
	bool is_group = n->cluster->options.metads;

	n->known.table.index = 0;
	if (n->metad && n->state == CLUSTER_RUNNING && is_group)
		note_log(n);
	if (!has_rows(n))
		return;
	if (is_group) {
		look_at_rows(n);
		note_rows(n);
		return;
	}
	n->known.table.index = ledger_applied(n->metad->ledger);
	n->known.table.digest = known_digest(n->cluster, n->metad);
}

void known_stop(struct cluster_node *n)
{
	n->known.log.is_known = false;
}

void known_start(struct cluster_node *n)
{
	if (!n->cluster->options.metads) {
		check_table(n);
		return;
	}
	check_log(n);
	watch_rows(n);
}
