// SPDX-License-Identifier: Apache-2.0
/*
 * verify: entry after entry:   open -> (file) read whole -> close -> inspect -> next
 *                                   -> (a directory) list -> next
 *                                   -> (nothing) next
 * and in the end the status, which must not count a lost block.
 */
#include "tests/sim/verify.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "metad/core.h"
#include "tests/sim/workload.h"

enum { VERIFY_PAGE = 64 };

struct verify {
	struct cluster *cluster;
	struct checker *checker;
	const struct faults *faults;
	bool done;
	uint32_t at;
	uint64_t since;
	struct client_op op;
	struct checker_look look;
	struct client_file *file;
	uint64_t bytes;
	struct cr_dirent *page;
	uint8_t *buf;
	uint64_t inspected;       /* where the inspection under way began */
	bool again;               /* it is to be done again: it may have met `doubted` before its rebuild was published */
	struct state_copy doubted;
	struct verify_counts counts;
};

static void next_entry(struct verify *v);

struct verify *verify_new(struct cluster *cluster, struct checker *checker, const struct faults *faults)
{
	struct verify *v = MEM_NEW(struct verify);

	v->cluster = cluster;
	v->checker = checker;
	v->faults = faults;
	v->buf = mem_alloc(WORKLOAD_FILE_BYTES + 128);
	v->page = mem_array(VERIFY_PAGE, sizeof(v->page[0]));
	return v;
}

void verify_free(struct verify *v)
{
	mem_free(v->buf);
	mem_free(v->page);
	mem_free(v);
}

static struct checker_entry *entry(struct verify *v)
{
	return v->checker->entries[v->at];
}

static void start_op(struct verify *v, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	v->op.kind = kind;
	v->op.done = done;
	v->op.user = v;
	cluster_client_start(v->cluster, v->cluster->first_client, &v->op);
}

static void clear(struct verify *v)
{
	memset(&v->op, 0, sizeof(v->op));
}

static void no_excuse(struct verify *v, const struct client_op *op)
{
	cluster_fail(v->cluster, "with all hosts up, %s of %s failed: %s: %s", workload_op_name(op->kind),
		entry(v)->path, err_name(op->err.code), op->err.text);
	v->done = true;
}

static void found(struct verify *v, struct content content)
{
	checker_seen(entry(v), content);
	v->at++;
	next_entry(v);
}

/* ---- chunks ---- */

static const char *state_name(uint8_t state)
{
	switch (state) {
	case CR_CHUNK_OK:
		return "sound";
	case CR_CHUNK_MISSING:
		return "missing";
	case CR_CHUNK_DOWN:
		return "not reached";
	default:
		return "damaged";
	}
}

/* Repair may have made another copy of a chunk that was damaged, on any disk; it may have been damaged in turn. */
static bool may_be(const struct verify *v, const struct cr_chunk_info *info, bool sealed, bool rebuilt)
{
	enum faults_damage damage = v->faults ? faults_damage_of(v->faults, info->block, info->index) : FAULTS_SOUND;

	if (!sealed)
		return info->state == CR_CHUNK_MISSING;
	/* Missing: a start that looked at it first has found it damaged. */
	if (info->state == CR_CHUNK_CORRUPT || info->state == CR_CHUNK_MISSING)
		return damage != FAULTS_SOUND;
	return info->state == CR_CHUNK_OK && (damage != FAULTS_DATA || rebuilt);
}

/* A rebuild that was published while the chunks were looked at: the second look at that copy counts. */
static bool may_have_come(struct verify *v, const struct state_copy *copy)
{
	const struct state_copy *d = &v->doubted;

	if (copy->incarnation < STATE_INCARNATIONS_ALLOCATED ||
		(d->block == copy->block && d->index == copy->index && d->incarnation == copy->incarnation))
		return false;
	v->doubted = *copy;
	v->again = true;
	return true;
}

static void check_chunk(struct verify *v, const struct cr_chunk_info *info)
{
	struct metad *md = cluster_metad(v->cluster);
	struct state_block block;
	struct state_copy copy;
	bool sealed;

	if (!md) {
		cluster_fail(v->cluster, "no metad leads, though nothing is in the way");
		return;
	}
	if (state_block_get(&md->state, info->block, &block) < 0) {
		cluster_fail(v->cluster, "%s has block %llu, of which metad has no row", entry(v)->path,
			(unsigned long long)info->block);
		return;
	}
	sealed = block.chunks[info->index].present;
	v->counts.chunks++;
	v->counts.unsealed += !sealed;
	v->counts.damaged += info->state == CR_CHUNK_CORRUPT;
	copy = (struct state_copy){.block = info->block, .index = info->index, .incarnation = block.chunks[info->index].incarnation};
	if (!may_be(v, info, sealed, copy.incarnation >= STATE_INCARNATIONS_ALLOCATED) && !(sealed && may_have_come(v, &copy)))
		cluster_fail(v->cluster, "%s: chunk %u of block %llu, which was %s on disk %u (%s)%s, is %s now",
			entry(v)->path, info->index, (unsigned long long)info->block,
			sealed ? "sealed" : "never sealed", info->disk, info->server_name,
			v->faults && faults_damage_of(v->faults, info->block, info->index) ? " and damaged" : "",
			state_name(info->state));
}

static void inspect_done(struct client_op *op);

static void inspect_from(struct verify *v, uint64_t offset)
{
	v->again = false;
	v->inspected = offset;
	clear(v);
	v->op.path = entry(v)->path;
	v->op.offset = offset;
	v->op.verify = true;
	start_op(v, CLIENT_INSPECT, inspect_done);
}

static void inspect_done(struct client_op *op)
{
	struct verify *v = op->user;

	if (op->err.code < 0) {
		no_excuse(v, op);
		return;
	}
	for (uint64_t i = 0; i < op->count; i++)
		check_chunk(v, &op->chunks[i]);
	mem_free(op->chunks);
	if (v->again)
		inspect_from(v, v->inspected);
	else if (op->end)
		found(v, v->look.may_count == 1 ? v->look.may[0] : (struct content){.id = CHECKER_UNSURE});
	else
		inspect_from(v, op->offset);
}

/* ---- a file ---- */

static void closed(struct client_op *op)
{
	struct verify *v = op->user;

	if (op->err.code < 0) {
		no_excuse(v, op);
		return;
	}
	if (v->cluster->failed) {
		v->done = true;
		return;
	}
	v->counts.files++;
	v->counts.bytes += v->bytes;
	inspect_from(v, 0);
}

static void have(struct client_op *op)
{
	struct verify *v = op->user;

	if (op->err.code < 0) {
		no_excuse(v, op);
		return;
	}
	checker_look_read(v->checker, &v->look, 0, v->buf, v->bytes + 1, op->count);
	clear(v);
	v->op.file = v->file;
	start_op(v, CLIENT_CLOSE, closed);
}

static void read_whole(struct verify *v)
{
	v->file = v->op.ret_file;
	v->bytes = v->op.attr.size;
	checker_look_opened(v->checker, &v->look, v->bytes);
	if (v->cluster->failed) {
		v->done = true;
		return;
	}
	clear(v);
	v->op.file = v->file;
	v->op.buf = v->buf;
	v->op.len = v->bytes + 1;
	start_op(v, CLIENT_READ, have);
}

/* ---- a directory ---- */

static void list_page(struct client_op *op);

static void list_more(struct verify *v)
{
	v->op.path = entry(v)->path;
	v->op.entries = v->page;
	v->op.entry_cap = VERIFY_PAGE;
	start_op(v, CLIENT_READDIR, list_page);
}

static void list_page(struct client_op *op)
{
	struct verify *v = op->user;

	if (op->err.code < 0) {
		no_excuse(v, op);
		return;
	}
	for (uint64_t i = 0; i < op->count; i++)
		checker_listed(v->checker, entry(v)->path, &op->entries[i], v->since);
	v->counts.listed += op->count;
	if (!op->end) {
		if (op->count)
			snprintf(op->after, sizeof(op->after), "%s", op->entries[op->count - 1].name);
		list_more(v);
		return;
	}
	checker_list_end(v->checker, entry(v)->path, v->since);
	found(v, (struct content){.id = CHECKER_DIRECTORY});
}

/* ---- what is it? ---- */

static void opened(struct client_op *op)
{
	struct verify *v = op->user;
	struct content nothing = {0}, directory = {.id = CHECKER_DIRECTORY};

	if (op->err.code == 0) {
		read_whole(v);
	} else if (workload_is_gone(op->err.code) && checker_possible(entry(v), v->since, nothing)) {
		found(v, nothing);
	} else if (op->err.code == ERR_ISDIR && checker_possible(entry(v), v->since, directory)) {
		clear(v);
		list_more(v);
	} else {
		no_excuse(v, op);
	}
}

/* ---- the whole ---- */

static void have_status(struct client_op *op)
{
	struct verify *v = op->user;

	v->done = true;
	if (op->err.code < 0)
		cluster_fail(
			v->cluster, "with all hosts up, status failed: %s: %s", err_name(op->err.code), op->err.text);
	else if (!strstr(op->json, "\"lost\":0") || strstr(op->json, "\"health\":\"error\""))
		cluster_fail(v->cluster, "with all hosts up, the status is: %.600s", op->json);
	mem_free(op->json);
}

static void end(struct verify *v)
{
	if (v->cluster->failed) {
		v->done = true;
		return;
	}
	checker_check_twins(v->checker);
	clear(v);
	start_op(v, CLIENT_STATUS, have_status);
}

static void next_entry(struct verify *v)
{
	if (v->at == v->checker->entry_count || v->cluster->failed) {
		end(v);
		return;
	}
	v->since = ++v->checker->tick;
	checker_look_begin(v->checker, &v->look, entry(v));
	clear(v);
	v->op.path = entry(v)->path;
	v->op.flags = CR_READ;
	start_op(v, CLIENT_OPEN, opened);
}

void verify_start(struct verify *v)
{
	v->done = false;
	v->at = 0;
	next_entry(v);
}

bool verify_done(const struct verify *v)
{
	return v->done;
}

const struct verify_counts *verify_counts(const struct verify *v)
{
	return &v->counts;
}
