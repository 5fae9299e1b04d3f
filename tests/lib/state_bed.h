/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_bed: the state of metad over a table in memory, one command an entry. state_bed_close replays all entries over
 * an empty table, in a new state, and again with several commands an entry, and compares the digests of the tables: every
 * test is a test of determinism too.
 */
#ifndef TESTS_LIB_STATE_BED_H
#define TESTS_LIB_STATE_BED_H

#include "tests/lib/assert.h"
#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/io/io_sim.h"
#include "metad/state/state.h"

enum {
	STATE_BED_DISKS = 9,
	STATE_BED_ENTRY_BYTES = 64 << 10,
	STATE_BED_ENTRIES = 8192,
	STATE_BED_TOGETHER = 7 /* commands an entry, at the second replay */,
	STATE_BED_SETTLE = 5 /* entries between commits of a replay, or so */,
	STATE_BED_MIB = 1 << 20,
	STATE_BED_INODES = 20000 /* that are looked at */,
	STATE_BED_NODES_BYTES = 4096 /* of the table in memory, which happen to be split just now */
};

struct state_bed {
	struct sim *sim;
	struct io *io;
	struct kv *kv;
	struct state s;
	uint64_t index, time_ms;
	uint16_t version; /* of the entries; 0: this build's */
	int64_t now_ns;
	struct slice log[STATE_BED_ENTRIES];
	size_t log_count;
	struct state_cmd cmd;
	struct state_result res;  /* of the last command */
	struct state_inode inode; /* scratch of the checks */
	struct state_block block;
};

static inline void state_bed_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("fatal %s: %s", err_name(code), text);
}

static inline struct kv *state_bed_kv(struct io *io, const char *dir)
{
	struct kv_options options = {.dir = dir,
		.backend = &kv_mem,
		.derived = &state_reverse,
		.freeze_bytes = 1,
		.on_fatal = state_bed_fatal};
	uint64_t applied;
	struct err err;
	struct kv *kv;

	ck_assert_int_eq(io_mkdir(io, dir, 0755), 0);
	ck_assert_msg(kv_open(io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	return kv;
}

/* Commits what is applied: what the table derives is in it from here on. */
static inline void state_bed_settle(struct kv *kv)
{
	struct err err;

	ck_assert_msg(kv_settle(kv, &err) == 0, "%s", err.text);
}

static inline void state_bed_take(
	void *ctx, uint32_t number, const struct state_cmd *cmd, const struct state_result *res)
{
	struct state_bed *b = ctx;

	(void)number, (void)cmd;
	b->res = *res;
}

/* Applies b->cmd and returns its status. */
static inline int state_bed_run(struct state_bed *b)
{
	uint8_t *bytes = mem_alloc(STATE_BED_ENTRY_BYTES);
	struct state_entry entry = {.cluster_version = b->version ? b->version : STATE_CLUSTER_VERSION, .time_ms = b->time_ms, .count = 1};
	/* the meta row is written with each entry, so is that of the session */
	uint64_t rows = b->s.rows_changed + 1 + state_cmd_rows(&b->cmd) + (b->cmd.request.session != 0), memory;
	struct kv_stats before, after;
	struct wcursor w;
	struct err err;
	int code;

	wcursor_init(&w, bytes, STATE_BED_ENTRY_BYTES);
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	state_entry_encode(&entry, bytes);
	state_cmd_encode(&b->cmd, &w);
	ck_assert(!w.failed && b->log_count < STATE_BED_ENTRIES);
	bytes = mem_realloc(bytes, w.len);
	b->log[b->log_count++] = slice_of(bytes, w.len);
	memory = w.len + (1 + state_cmd_rows(&b->cmd) + state_session_rows(&b->s, &b->cmd.request)) * STATE_ROW_MEMORY_BYTES;
	kv_get_stats(b->kv, &before);
	code = state_apply(&b->s, slice_of(bytes, w.len), state_bed_take, b, &err);
	ck_assert_msg(code == 0, "%s", err.text);
	kv_applied(b->kv, ++b->index);
	ck_assert_msg(b->s.rows_changed <= rows, "command %u changed %llu rows more than it may", b->cmd.type,
		(unsigned long long)(b->s.rows_changed - rows));
	kv_get_stats(b->kv, &after);
	ck_assert_uint_le(after.memory_bytes - before.memory_bytes, memory + STATE_BED_NODES_BYTES);
	return b->res.status;
}

/* all: else but for what the meta row says of the changes on the way there. */
static inline uint64_t state_bed_rows(struct kv *kv, bool all)
{
	uint64_t digest = 0, rows = 0;
	struct kv_scan scan;

	for (kv_seek(kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan), rows++) {
		uint32_t crc = crc32c(scan.key.data, scan.key.len);
		size_t len = scan.value.len;

		if (!all && scan.key.data[0] == STATE_TABLE_META && scan.value.data[0] >= 4)
			len -= sizeof(((struct state_meta *)0)->digest);
		crc = crc32c_extend(crc, scan.value.data, len);
		digest = digest * 1099511628211u + crc;
	}
	kv_scan_end(&scan);
	return digest ^ rows << 48;
}

static inline uint64_t state_bed_digest(struct kv *kv)
{
	return state_bed_rows(kv, true);
}

static inline void state_bed_open(struct state_bed *b)
{
	memset(b, 0, sizeof(*b));
	b->sim = sim_new(&(struct sim_options){.seed = 1});
	b->io = sim_host_add(b->sim, "metad", 64 * STATE_BED_MIB);
	b->kv = state_bed_kv(b->io, "/kv");
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	b->time_ms = 1000;
	b->now_ns = 1;
	b->cmd.type = STATE_CMD_FORMAT;
	b->cmd.format = (struct state_cmd_format){
		.cluster = {.bytes = {1}},
		.policy = {.id = EC_POLICY_DEFAULT, .cell_bytes = STATE_BED_MIB, .chunk_bytes = 4 * STATE_BED_MIB},
		.now_ns = b->now_ns,
	};
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* Entries `from` and on of the log as one, as many as fit and have one time; returns how many. */
static inline size_t state_bed_join(struct state_bed *b, size_t from, uint8_t *out, size_t *ret_len)
{
	struct state_entry first, entry;
	size_t count = 0, len = STATE_ENTRY_HEADER_BYTES;

	for (; count < STATE_BED_TOGETHER && from + count < b->log_count; count++) {
		struct slice bytes = b->log[from + count];
		struct rcursor r;

		rcursor_init(&r, bytes.data, bytes.len);
		ck_assert_int_eq(state_entry_decode(&r, &entry), 0);
		if (count == 0)
			first = entry;
		if (entry.time_ms != first.time_ms || len + rcursor_left(&r) > STATE_BED_ENTRY_BYTES)
			break;
		memcpy(out + len, bytes.data + STATE_ENTRY_HEADER_BYTES, rcursor_left(&r));
		len += rcursor_left(&r);
	}
	first.count = (uint32_t)count;
	state_entry_encode(&first, out);
	*ret_len = len;
	return count;
}

/* The log over an empty table gives the same rows, `together` or one command an entry, whenever the table is committed. */
static inline void state_bed_replay(struct state_bed *b, const char *dir, bool together)
{
	uint8_t *joined = mem_alloc(STATE_BED_ENTRY_BYTES);
	struct kv *copy = state_bed_kv(b->io, dir);
	struct state *s = MEM_NEW(struct state);
	bool restarted = false;
	struct err err;
	size_t len;

	ck_assert_int_eq(state_open(s, copy), 0);
	for (size_t i = 0, count; i < b->log_count; i += count) {
		/* Half way a restart: what is kept in memory beside the table must come back from it. */
		if (i >= b->log_count / 2 && !restarted) {
			restarted = true;
			state_close(s);
			ck_assert_int_eq(state_open(s, copy), 0);
		}
		count = 1;
		if (together)
			count = state_bed_join(b, i, joined, &len);
		ck_assert_msg(state_apply(s, together ? slice_of(joined, len) : b->log[i], NULL, NULL, &err) == 0, "%s", err.text);
		kv_applied(copy, i + count);
		if (i % STATE_BED_SETTLE == 0)
			state_bed_settle(copy);
	}
	state_bed_settle(copy);
	ck_assert_uint_eq(state_bed_rows(copy, !together), state_bed_rows(b->kv, !together));
	state_close(s);
	mem_free(s);
	mem_free(joined);
	kv_abandon(copy);
}

static inline bool state_bed_same_attr(const struct state_attr *a, const struct state_attr *b)
{
	return a->inode == b->inode && a->type == b->type && a->complete == b->complete && a->mode == b->mode && a->uid == b->uid &&
	       a->gid == b->gid && a->nlink == b->nlink && a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* What is kept of attributes beside the table is what the table holds, also of inodes that have gone. */
static inline void state_bed_check_attrs(struct state_bed *b)
{
	for (uint64_t id = 1; id < b->s.meta.next_inode && id < STATE_BED_INODES && !state_failure(&b->s, NULL); id++) {
		struct state_attr got = {0}, want = {0};
		struct state_key key;
		struct slice value;
		int code;

		state_key_id(&key, STATE_TABLE_INODE, id);
		code = kv_get(b->kv, state_key_slice(&key), &value);
		if (!code && state_inode_decode(value, id, &b->inode))
			continue; /* damaged by the test */
		if (!code)
			state_inode_attr(&b->inode, &want);
		ck_assert_int_eq(state_attr_get(&b->s, id, &got), code);
		ck_assert(code || state_bed_same_attr(&got, &want));
	}
}

static inline void state_bed_close(struct state_bed *b)
{
	state_bed_check_attrs(b);
	state_bed_settle(b->kv);
	state_bed_replay(b, "/copy", false);
	state_bed_replay(b, "/together", true);
	state_close(&b->s);
	kv_abandon(b->kv);
	for (size_t i = 0; i < b->log_count; i++)
		mem_free((void *)(uintptr_t)b->log[i].data);
	sim_free(b->sim);
}

/* ---- commands ---- */

static inline struct state_path state_bed_path(const char *path)
{
	return (struct state_path){.parent = INODE_ROOT, .path = slice_of(path, strlen(path))};
}

static inline int bed_mkdir(struct state_bed *b, const char *path, bool parents)
{
	b->cmd.type = STATE_CMD_MKDIR;
	b->cmd.mkdir = (struct state_cmd_mkdir){
		.at = state_bed_path(path), .mode = 0755, .now_ns = ++b->now_ns, .parents = parents};
	return state_bed_run(b);
}

static inline int bed_remove(struct state_bed *b, const char *path, bool directory)
{
	b->cmd.type = STATE_CMD_REMOVE;
	b->cmd.remove =
		(struct state_cmd_remove){.at = state_bed_path(path), .now_ns = ++b->now_ns, .directory = directory};
	return state_bed_run(b);
}

static inline int bed_rename(struct state_bed *b, const char *from, const char *to, bool noreplace)
{
	b->cmd.type = STATE_CMD_RENAME;
	b->cmd.rename = (struct state_cmd_rename){
		.from = state_bed_path(from), .to = state_bed_path(to), .now_ns = ++b->now_ns, .noreplace = noreplace};
	return state_bed_run(b);
}

enum { BED_HIDDEN = 1, BED_EXCL = 2 };

/* The inode is b->res.attr.inode, its epoch b->res.epoch. */
static inline int bed_create(struct state_bed *b, const char *path, int flags)
{
	b->cmd.type = STATE_CMD_CREATE;
	b->cmd.create = (struct state_cmd_create){.at = state_bed_path(path),
		.mode = 0644,
		.now_ns = ++b->now_ns,
		.exclusive = flags & BED_EXCL,
		.hidden = flags & BED_HIDDEN};
	return state_bed_run(b);
}

/* Inode of a path, or an err code. */
static inline int64_t bed_lookup(struct state_bed *b, const char *path)
{
	struct state_path at = state_bed_path(path);
	uint64_t parent;
	int code = state_lookup(&b->s, &at, &b->inode, &parent);

	return code ? code : (int64_t)b->inode.id;
}

static inline uint64_t bed_session(struct state_bed *b)
{
	b->cmd.type = STATE_CMD_SESSION_OPEN;
	b->cmd.request = (struct state_request){0};
	b->cmd.session_open = (struct state_cmd_session_open){.secret = 77, .name = slice_of("test", 4)};
	ck_assert_int_eq(state_bed_run(b), 0);
	return b->res.session;
}

/* The next commands are change number `seq` of the session, whose client waits for those from `low` on. 0: none. */
static inline void bed_as(struct state_bed *b, uint64_t session, uint64_t seq, uint64_t low)
{
	b->cmd.request = (struct state_request){.session = session, .seq = seq, .ahead = (uint8_t)(seq - low)};
}

static inline int bed_end_session(struct state_bed *b, uint64_t session)
{
	b->cmd.type = STATE_CMD_SESSION_END;
	b->cmd.request = (struct state_request){0};
	b->cmd.session_end.session = session;
	return state_bed_run(b);
}

static inline bool bed_has_row(struct state_bed *b, enum state_table table, uint64_t id)
{
	struct state_key key;
	struct slice value;

	state_key_id(&key, table, id);
	return kv_get(b->kv, state_key_slice(&key), &value) == 0;
}

static inline uint64_t bed_rows(struct state_bed *b, enum state_table table)
{
	struct state_key key;
	struct kv_scan scan;
	uint64_t count = 0;

	state_key_table(&key, table);
	for (kv_seek(b->kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan); kv_scan_next(&scan))
		count += scan.key.data[0] == (uint8_t)table;
	kv_scan_end(&scan);
	return count;
}

/* Blocks that have chunks on the disk, among ids in [from, to). */
static inline uint64_t bed_reverse(struct state_bed *b, uint32_t disk, uint64_t from, uint64_t to)
{
	struct state_reverse_walk walk;
	uint64_t count = 0, last = 0;

	for (state_reverse_begin(&b->s, disk, from, to, UINT32_MAX, &walk); state_reverse_next(&walk, &b->block); count++) {
		ck_assert(count == 0 || b->block.id > last);
		last = b->block.id;
		ck_assert(last >= from && last < to);
	}
	state_reverse_end(&walk);
	return count;
}

/* Of all disks together. */
static inline uint64_t bed_reverse_all(struct state_bed *b)
{
	uint64_t count = 0;

	for (uint32_t disk = 1; disk < b->s.meta.next_disk; disk++)
		count += bed_reverse(b, disk, 0, UINT64_MAX);
	return count;
}

/* Deleted rows that scans had to step over. */
static inline uint64_t bed_passed_rows(struct state_bed *b)
{
	struct kv_stats stats;

	kv_get_stats(b->kv, &stats);
	return stats.passed_rows;
}

/* The row that waits for the file to be closed everywhere, made now or at `time_ms`. */
static inline bool bed_is_orphan(struct state_bed *b, uint64_t inode)
{
	struct state_key key;
	struct slice value;

	state_key_pair(&key, STATE_TABLE_ORPHAN, b->time_ms, inode);
	return kv_get(b->kv, state_key_slice(&key), &value) == 0;
}

/* All orphans are let go. */
static inline void bed_release(struct state_bed *b)
{
	struct state_key key;
	struct kv_scan scan;
	uint64_t time_ms, inode;

	b->cmd.type = STATE_CMD_RELEASE;
	b->cmd.release.count = 0;
	state_key_table(&key, STATE_TABLE_ORPHAN);
	for (kv_seek(b->kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (!state_key_parse_pair(scan.key, STATE_TABLE_ORPHAN, &time_ms, &inode))
			break;
		ck_assert_uint_lt(b->cmd.release.count, STATE_RELEASE_MAX);
		b->cmd.release.orphans[b->cmd.release.count].time_ms = time_ms;
		b->cmd.release.orphans[b->cmd.release.count++].inode = inode;
	}
	kv_scan_end(&scan);
	ck_assert_int_eq(state_bed_run(b), 0);
}

/* "a b c " */
static inline const char *bed_list(struct state_bed *b, const char *path, char *text, size_t cap)
{
	struct state_listing l;
	int64_t dir = bed_lookup(b, path);
	size_t len = 0;
	int code;

	ck_assert_int_gt(dir, 0);
	text[0] = 0;
	for (code = state_list_begin(&b->s, (uint64_t)dir, slice_of("", 0), &l); !code;
		code = state_list_next(&b->s, &l)) {
		ck_assert_uint_lt(len + l.name.len + 2, cap);
		memcpy(text + len, l.name.data, l.name.len);
		len += l.name.len;
		text[len++] = ' ';
		text[len] = 0;
	}
	ck_assert_int_eq(code, ERR_NOENT);
	state_list_end(&l);
	return text;
}

/* Servers and disks 1 .. count, each a domain of its own unless `per_domain` > 1. */
static inline void bed_disks(struct state_bed *b, uint32_t count, uint32_t per_domain)
{
	for (uint32_t i = 1; i <= count; i++) {
		struct state_cmd_register *r = &b->cmd.register_;
		char name[16], domain[16];

		snprintf(name, sizeof(name), "chunkd-%u", i);
		snprintf(domain, sizeof(domain), "rack-%u", (i - 1) / per_domain);
		b->cmd.type = STATE_CMD_REGISTER;
		memset(r, 0, sizeof(*r));
		r->uuid.bytes[0] = (uint8_t)i;
		r->name = slice_of(name, strlen(name));
		r->address = slice_of("127.0.0.1:1", 11);
		r->domain = slice_of(domain, strlen(domain));
		r->disk_count = 1;
		r->disks[0].uuid.bytes[0] = (uint8_t)(100 + i);
		r->disks[0].capacity_bytes = 1ull << 40;
		r->disks[0].path = slice_of("/disk", 5);
		ck_assert_int_eq(state_bed_run(b), 0);
		ck_assert_uint_eq(b->res.disks[0].disk, i);
		ck_assert_uint_eq(b->res.disks[0].generation, 1);
	}
}

static inline uint64_t bed_reserve(struct state_bed *b, uint64_t count)
{
	b->cmd.type = STATE_CMD_RESERVE;
	b->cmd.reserve.count = count;
	ck_assert_int_eq(state_bed_run(b), 0);
	return b->res.first_block;
}

/* Begins a commit; blocks are added with bed_block and sent with state_bed_run. */
static inline void bed_commit(struct state_bed *b, uint64_t inode, uint64_t epoch, bool complete, uint64_t size)
{
	struct state_cmd_commit *c = &b->cmd.commit;

	b->cmd.type = STATE_CMD_COMMIT;
	c->inode = inode;
	c->epoch = epoch;
	c->size = size;
	c->now_ns = ++b->now_ns;
	c->complete = complete;
	c->block_count = 0;
}

/* An rs-4-2 block with a receipt of generation 1 for each chunk that exists: chunk i on disk i + 1. */
static inline struct state_commit_block *bed_block(
	struct state_bed *b, uint64_t block, uint64_t file_offset, uint64_t length)
{
	struct state_cmd_commit *c = &b->cmd.commit;
	struct state_commit_block *out = &c->blocks[c->block_count++];
	struct stripe_geom g = {.k = 4, .m = 2, .cell_bytes = STATE_BED_MIB, .length = length};

	memset(out, 0, sizeof(*out));
	out->block = block;
	out->policy = EC_POLICY_DEFAULT;
	out->width = 6;
	out->cell_bytes = STATE_BED_MIB;
	out->length = length;
	out->file_offset = file_offset;
	for (uint8_t i = 0; i < 6; i++) {
		if (stripe_chunk_len(&g, i) == 0)
			continue;
		out->crcs[i] = (uint32_t)(block * 100 + i);
		out->intended[i] = i + 1u;
		out->receipts[out->receipt_count++] =
			(struct state_receipt){.index = i, .disk = i + 1u, .generation = 1};
	}
	return out;
}

static inline void bed_drop_receipt(struct state_commit_block *block, uint8_t index)
{
	for (uint8_t i = 0; i < block->receipt_count; i++)
		if (block->receipts[i].index == index) {
			memmove(&block->receipts[i], &block->receipts[i + 1],
				sizeof(block->receipts[0]) * (block->receipt_count - i - 1u));
			block->receipt_count--;
			return;
		}
}

#endif
