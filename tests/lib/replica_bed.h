/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica_bed: the log of a replica on a simulated disk, and a model of what it must hold. Every call is an entry of a history;
 * after a crash the log must be as after some prefix of it, no shorter than what was reported done.
 */
#ifndef TESTS_LIB_REPLICA_BED_H
#define TESTS_LIB_REPLICA_BED_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/io/io_sim.h"
#include "common/kv/wal_private.h"
#include "common/kv/wal_replica.h"
#include "tests/lib/unit.h"

/* segments that are made in two steps */
enum { BED_SEGMENT_BYTES = WAL_MAKE_STEP_BYTES + WAL_FRAME_ALIGN, BED_INDICES = 8192, BED_CALLS = 4096, BED_DISK_BYTES = 64 << 20 };

struct bed_entry {
	uint64_t term, stamp; /* stamp: unique; 0: of a snapshot */
};

/* A log: entries base + 1 .. last. */
struct bed_log {
	uint64_t base, last;
	struct bed_entry entries[BED_INDICES]; /* by index; of base, the term is known */
};

enum bed_call_kind { BED_APPEND, BED_CUT, BED_RESTART };

struct bed_call {
	enum bed_call_kind kind;
	uint64_t index;
	struct bed_entry entry;
};

struct replica_bed {
	struct sim *sim;
	struct io *host;
	struct wal *wal;
	struct rng rng;
	struct err err;
	int fatal;
	char fatal_text[ERR_TEXT_BYTES];
	struct bed_log then, now; /* as of the last open; after all calls since */
	struct bed_call calls[BED_CALLS];
	uint32_t call_count, done_count; /* calls before done_count took effect for certain */
	uint64_t next_stamp;
	uint64_t term, vote;             /* as saved */
	uint64_t asked_term, asked_vote; /* as last asked for: may be durable or not */
	uint64_t commit, trimmed;
	uint32_t in_flight, acknowledged, canceled;
	uint64_t told_durable;
	struct wal_save save;
	struct wal_restart restart;
	uint32_t restart_call;
	bool saving, restarting, closed;
	void (*synced)(struct replica_bed *bed,
		const char *path);           /* NULL, or called at each sync of a file, before it counts */
	struct bed_entry found[BED_INDICES]; /* by `each` of an open */
	uint64_t found_from, found_to;
	/* crash when this many events have passed; 0: never */
	uint64_t dies_at_event;
	bool dead;
};

struct bed_body {
	uint64_t stamp, index;
	uint8_t padding[];
};

struct bed_append {
	struct wal_append append;
	struct replica_bed *bed;
	uint32_t call;
	struct bed_body body;
};

static const char bed_dir[] = "/log";

static inline void bed_synced(void *ctx, struct io *host, enum sim_sync kind, const char *path)
{
	struct replica_bed *bed = ctx;

	(void)host;
	if (bed->synced && kind == SIM_SYNC_FILE)
		bed->synced(bed, path);
}

static inline void bed_init(struct replica_bed *bed, uint64_t seed)
{
	const struct sim_options options = {.seed = seed, .synced = bed_synced, .ctx = bed};

	memset(bed, 0, sizeof(*bed));
	rng_init(&bed->rng, seed);
	bed->sim = sim_new(&options);
	bed->host = sim_host_add(bed->sim, "host", BED_DISK_BYTES);
	ck_assert_int_eq(io_mkdir(bed->host, bed_dir, 0700), 0);
	ck_assert_int_eq(io_sync_dir(bed->host, "/"), 0);
}

static inline void bed_fini(struct replica_bed *bed)
{
	sim_free(bed->sim);
}

/* ---- running ---- */

static inline bool bed_dies(void *ctx)
{
	struct replica_bed *bed = ctx;

	if (bed->dies_at_event && sim_event_count(bed->sim) >= bed->dies_at_event)
		bed->dead = true;
	return bed->dead;
}

static inline bool bed_is_quiet(void *ctx)
{
	struct replica_bed *bed = ctx;

	return bed_dies(bed) || (bed->in_flight == 0 && !bed->saving && !bed->restarting);
}

static inline void bed_run_for(struct replica_bed *bed, uint64_t ns)
{
	sim_run(bed->sim, bed_dies, bed, sim_now_ns(bed->sim) + ns);
}

static inline void bed_settle(struct replica_bed *bed)
{
	ck_assert(sim_run(bed->sim, bed_is_quiet, bed, sim_now_ns(bed->sim) + 60000000000u));
}

/* ---- the model ---- */

static inline void bed_log_apply(struct bed_log *log, const struct bed_call *call)
{
	ck_assert_uint_lt(call->index, BED_INDICES);
	switch (call->kind) {
	case BED_APPEND:
		ck_assert_uint_eq(call->index, log->last + 1);
		log->entries[++log->last] = call->entry;
		break;
	case BED_CUT:
		if (call->index <= log->last)
			log->last = call->index - 1;
		break;
	case BED_RESTART:
		log->base = log->last = call->index;
		log->entries[call->index] = call->entry;
		break;
	}
}

static inline uint32_t bed_note(
	struct replica_bed *bed, enum bed_call_kind kind, uint64_t index, struct bed_entry entry)
{
	ck_assert_uint_lt(bed->call_count, BED_CALLS);
	bed->calls[bed->call_count] = (struct bed_call){kind, index, entry};
	bed_log_apply(&bed->now, &bed->calls[bed->call_count]);
	return bed->call_count++;
}

/* Does what was found fit this log? It may begin later: trimmed. */
static inline bool bed_log_is(const struct replica_bed *bed, const struct bed_log *log)
{
	const struct wal_index *index = wal_index(bed->wal);
	uint64_t base = index->base_index;

	if (wal_next_index(bed->wal) != log->last + 1 || base < log->base || base > log->last)
		return false;
	if (base > log->base && base > bed->trimmed)
		return false;
	if (index->base_term != log->entries[base].term)
		return false;
	for (uint64_t i = base + 1; i <= log->last; i++)
		if (wal_index_term(index, i) != log->entries[i].term || bed->found[i].stamp != log->entries[i].stamp)
			return false;
	return true;
}

/* ---- the log ---- */

static inline int bed_on_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct replica_bed *bed = ctx;
	struct bed_body body;

	(void)err;
	ck_assert_uint_ge(data.len, sizeof(body));
	memcpy(&body, data.data, sizeof(body));
	ck_assert_uint_eq(body.index, index);
	if (bed->found_from)
		ck_assert_uint_eq(index, bed->found_to + 1);
	else
		bed->found_from = index;
	bed->found_to = index;
	bed->found[index].stamp = body.stamp;
	return 0;
}

static inline void bed_on_fatal(void *ctx, int code, const char *text)
{
	struct replica_bed *bed = ctx;

	ck_assert_int_eq(bed->fatal, 0);
	bed->fatal = code;
	snprintf(bed->fatal_text, sizeof(bed->fatal_text), "%s", text);
}

static inline void bed_on_durable(void *ctx, uint64_t index)
{
	struct replica_bed *bed = ctx;

	ck_assert_uint_eq(index, wal_durable_index(bed->wal));
	ck_assert_uint_le(index, bed->now.last);
	bed->told_durable = index;
}

static inline int bed_open_as(struct replica_bed *bed, const struct wal_replica *replica)
{
	const struct wal_options options = {
		.dir = bed_dir,
		.segment_bytes = BED_SEGMENT_BYTES,
		.replica = replica,
		.on_fatal = bed_on_fatal,
		.ctx = bed,
	};

	bed->found_from = bed->found_to = 0;
	bed->fatal = 0;
	return wal_open(bed->host, &options, 1, bed_on_entry, bed, &bed->wal, &bed->err);
}

static inline int bed_try_open(struct replica_bed *bed)
{
	struct wal_replica replica = {.cluster = "of these tests", .replica = 3, .on_durable = bed_on_durable};

	return bed_open_as(bed, &replica);
}

static inline void bed_check_meta(struct replica_bed *bed)
{
	const struct wal_meta *meta = wal_meta(bed->wal);
	bool saved = meta->term == bed->term && meta->vote == bed->vote;
	bool asked = meta->term == bed->asked_term && meta->vote == bed->asked_vote;

	ck_assert_msg(saved || asked, "term %" PRIu64 " vote %" PRIu64 ", not %" PRIu64 " %" PRIu64, meta->term,
		meta->vote, bed->term, bed->vote);
	bed->term = bed->asked_term = meta->term;
	bed->vote = bed->asked_vote = meta->vote;
}

/* What was found, against the history; the history then begins anew with it. */
static inline void bed_check(struct replica_bed *bed)
{
	uint32_t n = 0;

	for (; n < bed->done_count; n++)
		bed_log_apply(&bed->then, &bed->calls[n]);
	while (!bed_log_is(bed, &bed->then)) {
		ck_assert_msg(n < bed->call_count,
			"the log %" PRIu64 "..%" PRIu64 " is none that there was since call %u of %u",
			wal_first_index(bed->wal), wal_next_index(bed->wal) - 1, bed->done_count, bed->call_count);
		bed_log_apply(&bed->then, &bed->calls[n++]);
	}
	if (bed->then.last > wal_index(bed->wal)->base_index)
		ck_assert_uint_eq(bed->found_to, bed->then.last);
	bed->then.base = wal_index(bed->wal)->base_index;
	bed->now = bed->then;
	bed->call_count = bed->done_count = 0;
	if (bed->commit > bed->now.last)
		bed->commit = bed->now.last;
	ck_assert_uint_le(wal_commit(bed->wal), bed->now.last);
	if (bed->commit < wal_commit(bed->wal))
		bed->commit = wal_commit(bed->wal);
	bed->told_durable = bed->now.last;
	bed_check_meta(bed);
}

static inline void bed_open(struct replica_bed *bed)
{
	int rc = bed_try_open(bed);

	ck_assert_msg(rc == 0, "%s", bed->err.text);
	bed_check(bed);
}

static inline void bed_crash(struct replica_bed *bed)
{
	if (sim_host_is_up(bed->host))
		sim_host_crash(bed->host);
	sim_host_restart(bed->host);
	bed->in_flight = 0;
	bed->saving = bed->restarting = bed->dead = false;
	bed->dies_at_event = 0;
}

static inline void bed_on_closed(void *ctx, int code)
{
	struct replica_bed *bed = ctx;

	ck_assert_int_eq(code, bed->fatal);
	bed->closed = true;
}

static inline bool bed_is_closed(void *ctx)
{
	return ((struct replica_bed *)ctx)->closed;
}

static inline void bed_close(struct replica_bed *bed)
{
	bed->closed = false;
	wal_close(bed->wal, bed_on_closed, bed);
	ck_assert(sim_run(bed->sim, bed_is_closed, bed, sim_now_ns(bed->sim) + 60000000000u));
	ck_assert_uint_eq(bed->in_flight, 0);
}

/* ---- calls ---- */

static inline void bed_appended(struct wal_append *append, int code)
{
	struct bed_append *a = CONTAINER_OF(append, struct bed_append, append);
	struct replica_bed *bed = a->bed;
	bool there = append->index <= bed->now.last && append->index > bed->now.base &&
		bed->now.entries[append->index].stamp == a->body.stamp;

	bed->in_flight--;
	if (code == 0) {
		ck_assert(there);
		ck_assert_uint_ge(wal_durable_index(bed->wal), append->index);
		ck_assert_uint_ge(a->call + 1, bed->done_count);
		bed->done_count = a->call + 1;
		bed->acknowledged++;
	} else if (code == ERR_CANCELED) {
		ck_assert(!there);
		bed->canceled++;
	} else {
		ck_assert_int_eq(code, bed->fatal ? bed->fatal : code); /* as above */
	}
	mem_free(a);
}

static inline void bed_append(struct replica_bed *bed, uint64_t term, size_t padding)
{
	struct bed_append *a = mem_zalloc(sizeof(*a) + padding);

	a->bed = bed;
	a->body.stamp = ++bed->next_stamp;
	a->body.index = bed->now.last + 1;
	memset(a->body.padding, (int)a->body.stamp, padding);
	a->append.data = slice_of(&a->body, sizeof(a->body) + padding);
	a->append.term = term;
	a->append.done = bed_appended;
	a->call = bed_note(bed, BED_APPEND, a->body.index, (struct bed_entry){term, a->body.stamp});
	bed->in_flight++;
	wal_submit(bed->wal, &a->append);
	ck_assert_uint_eq(a->append.index, bed->now.last);
}

static inline void bed_cut(struct replica_bed *bed, uint64_t from)
{
	bed_note(bed, BED_CUT, from, (struct bed_entry){0, 0});
	wal_cut(bed->wal, from);
	ck_assert_uint_eq(wal_next_index(bed->wal), bed->now.last + 1);
	ck_assert_uint_le(wal_durable_index(bed->wal), bed->now.last);
}

static inline void bed_saved(struct wal_save *save, int code)
{
	struct replica_bed *bed = CONTAINER_OF(save, struct replica_bed, save);

	bed->saving = false;
	if (code == 0) {
		ck_assert_uint_eq(wal_meta(bed->wal)->term, save->term);
		bed->term = save->term;
		bed->vote = save->vote;
	} else {
		ck_assert_int_eq(code, bed->fatal ? bed->fatal : code); /* told of before or after the whole log */
	}
}

static inline void bed_save(struct replica_bed *bed, uint64_t term, uint64_t vote)
{
	ck_assert(!bed->saving);
	bed->saving = true;
	bed->asked_term = bed->save.term = term;
	bed->asked_vote = bed->save.vote = vote;
	bed->save.done = bed_saved;
	wal_save(bed->wal, &bed->save);
}

static inline void bed_restarted(struct wal_restart *restart, int code)
{
	struct replica_bed *bed = CONTAINER_OF(restart, struct replica_bed, restart);

	bed->restarting = false;
	if (code == 0) {
		ck_assert_uint_eq(wal_meta(bed->wal)->base_index, restart->index);
		bed->done_count = bed->restart_call + 1;
	} else {
		ck_assert_int_eq(code, bed->fatal ? bed->fatal : code); /* told of before or after the whole log */
	}
}

static inline void bed_restart(struct replica_bed *bed, uint64_t index, uint64_t term)
{
	bed->restart_call = bed_note(bed, BED_RESTART, index, (struct bed_entry){term, 0});
	bed->restarting = true;
	bed->restart.index = index;
	bed->restart.term = term;
	bed->restart.done = bed_restarted;
	bed->commit = index;
	wal_restart(bed->wal, &bed->restart);
	ck_assert_uint_eq(wal_first_index(bed->wal), index + 1);
	ck_assert_uint_eq(wal_next_index(bed->wal), index + 1);
}

static inline void bed_commit(struct replica_bed *bed, uint64_t index)
{
	bed->commit = index;
	wal_note_commit(bed->wal, index);
}

/* As a driver does that applies, and whose table is durable up to there. */
static inline void bed_trim(struct replica_bed *bed, uint64_t index)
{
	if (bed->trimmed < index)
		bed->trimmed = index;
	wal_trim(bed->wal, index);
}

#endif
