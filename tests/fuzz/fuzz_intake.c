/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot on its way into a replica's table: its parts changed, dropped, doubled, put in another order, with CRCs that fit or not, by a leader who
 * may lie in all but the digest of what it read. The input is a list of changes.
 *
 * An intake that succeeds has made the very rows that the leader read, under the mark of that snapshot; any other one says why. Where a change was not
 * covered up by a CRC nothing succeeds.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "metad/replica/intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARTS = 6, PARTS_MAX = 8, PART_ROOM = 1 << 10, ROWS = 24, ROWS_PER_PART = 6, INDEX = 77, CHANGES = 12 };

struct one_part {
	size_t len;
	uint8_t data[PART_ROOM];
};

struct snapshot {
	uint32_t count;
	struct one_part parts[PARTS_MAX];
	uint8_t digest[PART_DIGEST_BYTES];
	uint64_t index; /* as the leader's offer says it */
};

static const struct raft_config config = {.index = 9, .count = 1, .members = {{.id = 2, .voter = true}}, .last_id = 2};

static struct slice row_key(uint32_t i, uint8_t out[8])
{
	struct wcursor w;

	if (i == 0)
		return table_group_key();
	wcursor_init(&w, out, 8);
	wcursor_u8(&w, 'r');
	wcursor_u32_be(&w, i * 7);
	return slice_of(out, w.len);
}

static struct slice row_value(uint32_t i, uint8_t out[TABLE_GROUP_BYTES_MAX])
{
	if (i == 0)
		return slice_of(out, table_group_encode(&config, out));
	memset(out, (int)i, i);
	return slice_of(out, i);
}

/* ---- what the leader has ---- */

static void keep_part(struct snapshot *s, const struct backup_writer *w)
{
	struct one_part *p = &s->parts[s->count++];

	CHECK(w->len <= PART_ROOM);
	p->len = w->len;
	memcpy(p->data, w->out, w->len);
}

static void make_snapshot(struct snapshot *s)
{
	static uint8_t out[BACKUP_SECTION_BYTES];
	const struct backup_header header = {.cluster = {{1}}, .applied_index = INDEX, .software = "fuzzed"};
	uint8_t key[8], value[TABLE_GROUP_BYTES_MAX];
	struct part_digest digest;
	struct backup_writer w;

	s->count = 0;
	s->index = INDEX;
	part_digest_init(&digest);
	backup_writer_init(&w, &header, out);
	for (uint32_t i = 0; i < ROWS; i++) {
		if (i % ROWS_PER_PART == 0) {
			if (i)
				backup_writer_seal(&w);
			keep_part(s, &w);
			backup_writer_next(&w);
		}
		CHECK(backup_writer_row(&w, row_key(i, key), row_value(i, value)));
		part_digest_row(&digest, row_key(i, key), row_value(i, value));
	}
	backup_writer_seal(&w);
	keep_part(s, &w);
	backup_writer_next(&w);
	backup_writer_end(&w);
	keep_part(s, &w);
	part_digest_fini(&digest, s->digest);
	CHECK(s->count == PARTS);
}

/* ---- changes ---- */

enum change {
	CHANGE_BYTE,
	CHANGE_LENGTH,
	CHANGE_DROP,
	CHANGE_DOUBLE,
	CHANGE_SWAP,
	CHANGE_ROWS,
	CHANGE_INDEX,
	CHANGE_MEND,
	CHANGE_KINDS
};

static void put_u32(uint8_t *at, uint32_t v)
{
	struct wcursor w;

	wcursor_init(&w, at, 4);
	wcursor_u32(&w, v);
}

/* All CRCs, numbers and lengths. */
static void mend(struct snapshot *s)
{
	uint32_t crc = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		struct one_part *p = &s->parts[i];

		if (i == 0 && p->len == BACKUP_HEADER_BYTES) {
			crc = crc32c(p->data, BACKUP_HEADER_BYTES - 4);
			put_u32(p->data + BACKUP_HEADER_BYTES - 4, crc);
		} else if (i > 0 && p->len >= BACKUP_SECTION_HEAD_BYTES) {
			put_u32(p->data + 8, crc);
			put_u32(p->data + 16, i);
			put_u32(p->data + 20, 0);
			put_u32(p->data + 28, (uint32_t)(p->len - BACKUP_SECTION_HEAD_BYTES));
			crc = crc32c(p->data + 8, p->len - 8);
			put_u32(p->data + 4, crc);
		}
	}
}

static void change(struct snapshot *s, struct rcursor *r, bool *mended)
{
	enum change kind = rcursor_u8(r) % CHANGE_KINDS;
	uint32_t i = rcursor_u8(r) % s->count, offset = rcursor_u16(r);
	uint8_t value = rcursor_u8(r);
	struct one_part *p = &s->parts[i], other;

	if (r->failed)
		return;
	switch (kind) {
	case CHANGE_BYTE:
		if (p->len)
			p->data[offset % p->len] = value;
		break;
	case CHANGE_LENGTH:
		p->len = offset % (PART_ROOM + 1);
		break;
	case CHANGE_DROP:
		if (s->count == 1)
			break;
		s->count--;
		memmove(p, p + 1, (s->count - i) * sizeof(*p));
		break;
	case CHANGE_DOUBLE:
		if (s->count < PARTS_MAX)
			s->parts[s->count++] = *p;
		break;
	case CHANGE_SWAP:
		other = *p;
		*p = s->parts[offset % s->count];
		s->parts[offset % s->count] = other;
		break;
	case CHANGE_ROWS: /* as many as the part, or the snapshot, says */
		if (p->len >= BACKUP_SECTION_HEAD_BYTES)
			put_u32(p->data + (value % 2 ? 24 : BACKUP_SECTION_HEAD_BYTES), offset);
		break;
	case CHANGE_INDEX:
		s->index = offset < config.index ? config.index : offset; /* raft_message_check lets no other one in */
		break;
	default:
		mend(s);
		*mended = true;
	}
}

/* replica/fetch.c takes none. */
static void drop_empty_parts(struct snapshot *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->count; i++)
		if (s->parts[i].len)
			s->parts[kept++] = s->parts[i];
	s->count = kept;
}

static bool is_same(const struct snapshot *a, const struct snapshot *b)
{
	bool same = a->count == b->count && a->index == b->index;

	for (uint32_t i = 0; i < a->count && same; i++)
		same = a->parts[i].len == b->parts[i].len &&
			memcmp(a->parts[i].data, b->parts[i].data, a->parts[i].len) == 0;
	return same;
}

/* ---- the follower ---- */

static const char folder[] = "/replica", tables[2][32] = {"/replica/table-0", "/replica/table-1"};

static int take_in(struct intake *in, const struct snapshot *s, struct err *err)
{
	bool done = false;
	int rc = 0;

	for (uint32_t i = 0; i < s->count && !rc; i++)
		rc = intake_part(in, i, slice_of(s->parts[i].data, s->parts[i].len), err);
	while (!rc && !done)
		rc = intake_check(in, s->digest, &done, err);
	return rc ? rc : intake_finish(in, err);
}

static void check_table(struct io *host, const struct table_options *options, const struct snapshot *s)
{
	uint8_t want_key[8], want[TABLE_GROUP_BYTES_MAX];
	struct table *table;
	struct err err = {0};
	struct kv_scan scan;
	uint32_t i = 0;

	CHECK(table_open(host, options, s->index, &table, &err) == 0 && table_applied(table) == s->index);
	for (kv_seek(table_kv(table), &scan, slice_of("", 0)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		CHECK(i < ROWS && slice_compare(scan.key, row_key(i, want_key)) == 0);
		CHECK(slice_compare(scan.value, row_value(i, want)) == 0);
		i++;
	}
	kv_scan_end(&scan);
	CHECK(i == ROWS);
	table_abandon(table);
}

/* 0, or why it was refused. */
static int try_snapshot(const struct snapshot *s)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 1});
	struct io *host = sim_host_add(sim, "host", 64 << 20);
	const struct intake_options options = {.table = {.dir = folder, .kv = {.backend = &kv_mem}},
		.slot = 1,
		.cluster = {{1}},
		.index = s->index,
		.config = config};
	struct intake *in = intake_new(host, &options);
	struct err err = {0};
	int rc;

	CHECK(io_mkdir(host, folder, 0700) == 0);
	CHECK(io_mkdir(host, tables[0], 0700) == 0 && io_mkdir(host, tables[1], 0700) == 0);
	rc = take_in(in, s, &err);
	intake_free(in);
	CHECK(rc == err.code && (rc == 0) == !err.text[0]);
	CHECK(rc == 0 || rc == ERR_CORRUPT || rc == ERR_FORMAT || rc == ERR_VERSION || rc == ERR_WRONG_CLUSTER);
	if (rc == 0)
		check_table(host, &options.table, s);
	sim_free(sim);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct snapshot whole, changed;
	bool mended = false;
	struct rcursor r;
	int rc;

	if (!whole.count)
		make_snapshot(&whole);
	changed = whole;
	rcursor_init(&r, data, size);
	for (int i = 0; i < CHANGES && rcursor_left(&r); i++)
		change(&changed, &r, &mended);
	drop_empty_parts(&changed);
	rc = try_snapshot(&changed);
	CHECK(mended || (rc == 0) == is_same(&changed, &whole));
	return 0;
}
