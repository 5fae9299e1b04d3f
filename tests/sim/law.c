// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/law.h"

#include <string.h>
#include "chunkd/daemon.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "metad/core.h"

enum {
	HURRY_S = 20, /* longer than a request is tried, and stands before a metad that is paused */
	SLICE = 256,
	TRAILER_HEAD_BYTES = 32,
	TURN_MS = 10000, /* a host knows what time it was in its last turn: longer than between two of metad's */
};

/* ---- garbage ---- */

struct row_seen {
	uint64_t id, time_ms;
};

struct rows_seen {
	struct row_seen *rows;
	size_t count, cap;
};

struct law {
	struct cluster *cluster;
	uint64_t hurry_until_ns; /* until then metad may be told to hurry */
	uint64_t hurry_ms;       /* what lost its name before is taken at once: `craton gc start` */
	int64_t ahead_ms;        /* least that state time was ahead of virtual time */
	struct {
		enum state_table table;
		const char *what;
		struct rows_seen seen, now;
	} tables[2];
};

struct law *law_new(struct cluster *cluster)
{
	struct law *law = MEM_NEW(struct law);

	law->cluster = cluster;
	law->ahead_ms = INT64_MAX / 2;
	law->tables[0].table = STATE_TABLE_GC;
	law->tables[0].what = "file";
	law->tables[1].table = STATE_TABLE_GC_BLOCK;
	law->tables[1].what = "block";
	return law;
}

void law_free(struct law *law)
{
	for (size_t i = 0; i < ARRAY_COUNT(law->tables); i++) {
		mem_free(law->tables[i].seen.rows);
		mem_free(law->tables[i].now.rows);
	}
	mem_free(law);
}

static void push(struct rows_seen *list, struct row_seen row)
{
	if (list->count == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 64;
		list->rows = mem_realloc(list->rows, list->cap * sizeof(list->rows[0]));
	}
	list->rows[list->count++] = row;
}

static void read_table(struct metad *md, enum state_table table, struct rows_seen *ret_list)
{
	struct state_key key;
	struct kv_scan scan;
	struct state_gc gc;
	uint64_t id;

	ret_list->count = 0;
	state_key_table(&key, table);
	for (kv_seek(md->state.kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (!state_key_parse_id(scan.key, table, &id) || state_gc_decode(scan.value, &gc) < 0)
			break;
		push(ret_list, (struct row_seen){id, gc.time_ms});
	}
	kv_scan_end(&scan);
}

/* Both are in the order of their ids. */
static void compare(
	struct law *law, const char *what, const struct rows_seen *seen, const struct rows_seen *now, uint64_t now_ms)
{
	size_t at = 0;

	for (size_t i = 0; i < seen->count; i++) {
		const struct row_seen *old = &seen->rows[i];

		while (at < now->count && now->rows[at].id < old->id)
			at++;
		if (at < now->count && now->rows[at].id == old->id)
			continue;
		if (old->time_ms > law->hurry_ms && now_ms < old->time_ms + STATE_GC_READ_MS)
			cluster_fail(law->cluster, "%s %llu was taken apart %llu ms after it lost its name", what,
				(unsigned long long)old->id, (unsigned long long)(now_ms - old->time_ms));
	}
}

void law_hurry(struct law *law)
{
	law->hurry_until_ns = sim_now_ns(law->cluster->sim) + HURRY_S * CLUSTER_S;
}

static void look_at_garbage(struct law *law, struct metad *md)
{
	struct rows_seen old;

	if (sim_now_ns(law->cluster->sim) < law->hurry_until_ns)
		law->hurry_ms = metad__now_ms(md);
	for (size_t i = 0; i < ARRAY_COUNT(law->tables); i++) {
		read_table(md, law->tables[i].table, &law->tables[i].now);
		compare(law, law->tables[i].what, &law->tables[i].seen, &law->tables[i].now, metad__now_ms(md));
		old = law->tables[i].seen;
		law->tables[i].seen = law->tables[i].now;
		law->tables[i].now = old;
	}
}

/* ---- time ---- */

static void look_at_time(struct law *law, struct metad *md)
{
	int64_t ahead_ms = (int64_t)(metad__now_ms(md) - sim_now_ns(law->cluster->sim) / CLUSTER_MS);

	if (ahead_ms > law->ahead_ms + TURN_MS)
		cluster_fail(law->cluster, "state time has run ahead of time by %lld ms",
			(long long)(ahead_ms - law->ahead_ms));
	if (ahead_ms < law->ahead_ms)
		law->ahead_ms = ahead_ms;
}

void law_look(struct law *law)
{
	struct metad *md = cluster_metad(law->cluster);

	if (!md)
		return;
	look_at_time(law, md);
	look_at_garbage(law, md);
}

/* ---- extents ---- */

static bool is_own_trailer(struct io *io, const struct disk *d, const struct index_row *row)
{
	uint8_t head[TRAILER_HEAD_BYTES];
	char name[SEGMENT_NAME_BYTES], path[512];
	struct copy_id copy;
	struct rcursor r;

	segments_name(d->segments, row->extent.segment, name);
	snprintf(path, sizeof(path), "%s/%s", d->dir, name);
	if (sim_read_raw(io, path, head, sizeof(head), index_row_offset(row) + index_row_trailer_at(row)) !=
		sizeof(head))
		return false;
	rcursor_init(&r, head, sizeof(head));
	(void)rcursor_slice(&r, 16); /* magic, version, sizes, flags */
	copy.block = rcursor_u64(&r);
	copy.incarnation = rcursor_u32(&r);
	copy.index = rcursor_u8(&r);
	return index_copy_equal(&copy, &row->copy);
}

/* NULL or what is wrong with it. */
static const char *trouble_of(
	struct io *io, const struct disk *d, const struct copy_id *copy, const struct faults *faults)
{
	struct index_row row;

	if (index_get(d->index, copy, &row) < 0)
		return NULL;
	if (segments_reserve(d->segments, row.extent) == 0)
		return "free";
	if (!is_own_trailer(io, d, &row) && !(faults && faults_damage_of(faults, copy->block, copy->index)))
		return "another's";
	return NULL;
}

void law_look_at_extents(struct cluster *c, unsigned node, const struct faults *faults)
{
	const struct chunkd *ch = c->nodes[node].chunkd;
	struct copy_id slice[SLICE], from;
	size_t n;

	for (size_t i = 0; ch && i < ch->disk_count; i++) {
		const struct disk *d = ch->disks[i];

		from = (struct copy_id){0};
		do {
			n = d->failed ? 0 : index_list(d->index, &from, slice, SLICE);
			for (size_t j = 0; j < n && !c->failed; j++) {
				const char *trouble = trouble_of(c->nodes[node].io, d, &slice[j], faults);

				if (trouble)
					cluster_fail(c,
						"%s: disk %u has chunk %u of block %llu, incarnation %u, in an extent that is %s",
						c->nodes[node].name, d->sb.disk, slice[j].index,
						(unsigned long long)slice[j].block, slice[j].incarnation, trouble);
			}
			if (n)
				from = slice[n - 1], from.incarnation++;
		} while (n == SLICE && !c->failed);
	}
}
