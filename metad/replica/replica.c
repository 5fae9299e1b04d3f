/* SPDX-License-Identifier: Apache-2.0 */
/* Start, founding, end, and the ways in: what comes is queued, and the pump (work.c) runs at the end of the turn. */
#include "metad/replica/replica_private.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "metad/replica/founding.h"

_Static_assert(sizeof(struct wal_run) == sizeof(struct raft_run), "the log's runs are the core's");

static void close_if_quiet(struct replica *r);

void replica__kick(struct replica *r)
{
	io_at_turn_end(r->io, &r->hook);
}

static void run_hook(struct io_turn_hook *hook)
{
	struct replica *r = CONTAINER_OF(hook, struct replica, hook);

	replica__work(r);
	if (r->closing)
		close_if_quiet(r);
}

static void fail_submits(struct replica *r, struct list *submits, int code)
{
	struct list *node;

	while ((node = list_pop_front(submits))) {
		struct replica_submit *s = LIST_ENTRY(node, struct replica_submit, link);

		r->submit_count--;
		s->done(s, code);
	}
}

void replica__stop(struct replica *r, int code, const char *text)
{
	if (r->stopped)
		return;
	r->stopped = code;
	fail_submits(r, &r->taken, code);
	fail_submits(r, &r->submits, code);
	replica__calls_fail(r, code);
	r->options.on_stop(r->options.ctx, code, text);
}

static void on_fatal(void *ctx, int code, const char *text)
{
	replica__stop(ctx, code, text);
}

void replica_fail(struct replica *r, int code, const char *text)
{
	replica__stop(r, code, text);
}

/* ---- start ---- */

static void on_timer(struct io_op *op);

static void arm(struct replica *r)
{
	uint64_t ms = r->options.raft.heartbeat_ms / 4;

	io_prep_timer(&r->timer, io_now_ns(r->io) + (ms ? ms : 1) * 1000000, on_timer);
	io_submit(r->io, &r->timer);
}

static void look_at_log(struct replica *r)
{
	bool waits = r->saving || r->core.persisted < r->core.last_index;

	stall_look(&r->stall, &r->options.raft, io_now_ns(r->io) / 1000000, waits, wal_meta(r->wal)->generation, wal_durable_index(r->wal));
}

static void on_timer(struct io_op *op)
{
	struct replica *r = CONTAINER_OF(op, struct replica, timer);

	replica__kick(r);
	if (r->closing || r->stopped)
		return;
	r->tick = true;
	look_at_log(r);
	arm(r);
}

static int boot(struct replica *r, struct err *err)
{
	const struct wal_index *index = wal_index(r->wal);
	struct raft_boot boot = {.term = wal_meta(r->wal)->term,
		.vote = wal_meta(r->wal)->vote,
		.last_index = wal_index_last(index),
		.config = r->config,
		.config_before = r->config_before,
		.commit = wal_commit(r->wal)};
	struct wal_run *runs = wal_index_runs(index, &boot.run_count);
	uint32_t skip = boot.run_count > RAFT_RUNS_MAX ? boot.run_count - RAFT_RUNS_MAX : 0;
	struct raft_run *last = mem_array(RAFT_RUNS_MAX, sizeof(last[0]));
	int rc;

	boot.base_index = index->base_index;
	boot.base_term = index->base_term;
	boot.run_count -= skip;
	for (uint32_t i = 0; i < boot.run_count; i++)
		last[i] = (struct raft_run){runs[skip + i].first, runs[skip + i].term};
	boot.runs = last;
	if (boot.commit < table_applied(r->table))
		boot.commit = table_applied(r->table);
	rc = raft_init(&r->core, &r->options.raft, &boot, io_now_ns(r->io) / 1000000);
	mem_free(runs);
	mem_free(last);
	if (rc)
		return err_set(err, rc, "%s: the log contradicts itself, or the state is of another", r->options.dir);
	r->log_epoch = r->core.epoch;
	return 0;
}

static void start(struct replica *r)
{
	r->started = true;
	replica__tell_config(r);
	arm(r);
	replica__kick(r);
}

/* The first entry of a founder is durable: from here on it is as after any restart. */
static void founded(void *ctx, uint64_t index)
{
	struct replica *r = ctx;
	struct err err;
	int rc;

	replica__kick(r);
	if (r->started || r->closing || r->stopped)
		return;
	CHECK(index == 1);
	rc = boot(r, &err);
	if (rc)
		replica__stop(r, rc, err.text);
	else
		start(r);
}

static void found_saved(struct wal_save *save, int code)
{
	struct replica *r = CONTAINER_OF(save, struct replica, save);
	uint8_t config[BODY_CONFIG_BYTES_MAX];

	r->saving = false;
	if (code == 0 && !r->closing)
		replica__append(r, entry_new(FOUNDING_TERM, config, body_encode_config(&r->found, config), slice_of(NULL, 0)));
	replica__kick(r);
}

/* A founding that was cut off has saved term 1, and no more. */
static int check_unused(const struct replica *r, struct err *err)
{
	uint64_t term = wal_meta(r->wal)->term;

	if (term > FOUNDING_TERM)
		return err_set(err, ERR_INVAL,
			"%s: the log has taken part in a group up to term %" PRIu64
			": no other can be founded with it",
			r->options.dir, term);
	return 0;
}

static void found(struct replica *r)
{
	r->config = r->found;
	r->saving = true;
	r->save = (struct wal_save){.term = FOUNDING_TERM, .vote = wal_meta(r->wal)->vote, .done = found_saved};
	wal_save(r->wal, &r->save);
}

bool replica_founds(const struct replica *r)
{
	return r->options.found && wal_index_last(wal_index(r->wal)) == 0;
}

void replica_start(struct replica *r)
{
	CHECK(!r->begun);
	r->begun = true;
	if (replica_founds(r))
		found(r);
	else
		start(r);
}

void replica_wait(struct replica *r)
{
	CHECK(!r->begun && replica_founds(r));
	r->begun = true;
}

void replica_found(struct replica *r)
{
	CHECK(r->begun && !r->started && !r->saving && replica_founds(r));
	if (!r->closing && !r->stopped)
		found(r);
}

static int on_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct replica *r = ctx;
	struct raft_config config;
	enum body_kind kind;
	int rc = body_decode(data, index, &kind, &config);

	if (rc)
		return err_set(
			err, rc, "%s: entry %" PRIu64 " is of no kind that is known here", r->options.dir, index);
	if (kind == BODY_CONFIG) {
		r->config_before = r->config;
		r->config = config;
	}
	return 0;
}

/* The latest configuration is that of the log's entries or, if they have none behind it, of the table; and the one before likewise. */
static void merge_configs(struct replica *r)
{
	const struct raft_config *applied = table_config(r->table);

	if (r->config.index <= applied->index) {
		r->config_before = (struct raft_config){.count = 0};
		r->config = *applied;
	} else if (r->config_before.index < applied->index) {
		r->config_before = *applied;
	}
}

static int check_table(const struct replica *r, struct err *err)
{
	const struct wal_index *index = wal_index(r->wal);
	uint64_t applied = table_applied(r->table);

	if (applied >= index->base_index && applied <= wal_index_last(index))
		return 0;
	return err_set(err, ERR_CORRUPT,
		"%s: the table holds entries up to %" PRIu64 ", the log has those behind %" PRIu64 " up to %" PRIu64
		": they do not belong to each other; nothing was changed",
		r->options.dir, applied, index->base_index, wal_index_last(index));
}

int replica__open_table(struct replica *r, struct err *err)
{
	struct table_options options = {.dir = r->options.dir, .kv = r->options.kv, .on_fatal = on_fatal, .ctx = r};
	int rc;

	options.kv.turn = r->options.raft.id;
	rc = table_open(r->io, &options, wal_meta(r->wal)->base_index, &r->table, err);
	return rc ? rc : check_table(r, err);
}

static int open_log(struct replica *r, struct err *err)
{
	const struct wal_options options = {.dir = r->log_dir,
		.segment_bytes = r->options.segment_bytes,
		.buffered = r->options.buffered,
		.replica = &r->wal_replica,
		.on_fatal = on_fatal,
		.ctx = r};
	int rc = wal_open(r->io, &options, 1, on_entry, r, &r->wal, err);

	if (rc)
		return rc;
	rc = replica__open_table(r, err);
	if (!rc)
		merge_configs(r);
	if (!rc)
		rc = replica_founds(r) ? check_unused(r, err) : boot(r, err);
	if (rc && r->table)
		table_abandon(r->table);
	if (rc)
		wal_abandon(r->wal);
	return rc;
}

static int make_log_dir(struct replica *r, struct err *err)
{
	int rc = io_mkdir(r->io, r->log_dir, 0700);

	/* Its name is synced with those of the tables' directories, which are made before anything is acknowledged. */
	rc = rc == ERR_EXIST ? 0 : rc;
	return rc ? err_set(err, rc, "%s: cannot make it: %s", r->log_dir, err_text(rc)) : 0;
}

static void replica_free(struct replica *r)
{
	mem_free(r->log_dir);
	mem_free(r);
}

static int check_options(const struct replica_options *o, struct err *err)
{
	if (o->raft.message_bytes > REPLICA_MESSAGE_BYTES_MAX)
		return err_set(err, ERR_INVAL, "messages of %" PRIu32 " bytes do not fit a letter, which holds %d", o->raft.message_bytes,
			REPLICA_MESSAGE_BYTES_MAX);
	if (o->snapshot_bytes_per_s && o->snapshot_bytes_per_s < PART_BYTES_PER_S_LEAST)
		return err_set(err, ERR_INVAL, "snapshots at %" PRIu64 " bytes per second would take too long: %d are the least", o->snapshot_bytes_per_s,
			PART_BYTES_PER_S_LEAST);
	return 0;
}

int replica_open(struct io *io, const struct replica_options *options, struct replica **ret_replica, struct err *err)
{
	int rc = check_options(options, err);
	struct replica *r;

	CHECK(options->rows || !options->kv.room_bytes);
	if (rc)
		return rc;
	r = MEM_NEW(struct replica);
	r->io = io;
	r->options = *options;
	if (options->found) {
		r->found = *options->found;
		r->found.index = 1;
		r->options.found = &r->found;
	}
	rng_init(&r->fetch.rng, options->raft.seed);
	r->wal_replica.replica = options->raft.id;
	r->wal_replica.on_durable = founded;
	memcpy(r->wal_replica.cluster, options->cluster, WAL_ID_BYTES);
	list_init(&r->received);
	list_init(&r->submits);
	list_init(&r->taken);
	list_init(&r->reads);
	list_init(&r->reads_open);
	list_init(&r->reads_ready);
	io_turn_hook_init(&r->hook, run_hook);
	r->log_dir = mem_printf("%s/log", options->dir);
	rc = make_log_dir(r, err);
	if (!rc)
		rc = open_log(r, err);
	if (rc) {
		replica_free(r);
		return rc;
	}
	*ret_replica = r;
	return 0;
}

bool replica_was_led(const struct replica *r)
{
	return wal_index_last_term(wal_index(r->wal)) > FOUNDING_TERM;
}

bool replica_is_blank(const struct replica *r)
{
	const struct wal_index *index = wal_index(r->wal);

	return !r->options.found && wal_index_last(index) == 0 && index->base_index == 0 && wal_meta(r->wal)->term == 0;
}

void replica_abandon(struct replica *r)
{
	CHECK(!r->begun && !r->stopped);
	table_abandon(r->table);
	wal_abandon(r->wal);
	io_turn_hook_remove(r->io, &r->hook);
	replica_free(r);
}

/* ---- ways in ---- */

int replica_submit(struct replica *r, struct replica_submit *submit)
{
	CHECK(submit->change ? submit->data.len == 0 : submit->data.len > 0 && submit->data.len < LIMIT_LOG_ENTRY_BYTES);
	if (r->stopped || r->closing)
		return ERR_STOPPED;
	if (r->submit_count == REPLICA_SUBMITS_MAX)
		return ERR_OVERLOADED;
	submit->index = submit->term = 0;
	r->submit_count++;
	list_push_back(&r->submits, &submit->link);
	replica__kick(r);
	return 0;
}

void replica_withdraw(struct replica *r, struct replica_submit *submit)
{
	list_remove(&submit->link);
	r->submit_count--;
}

static uint64_t bytes_of(const struct replica_body *bodies, uint32_t count)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++)
		bytes += bodies[i].data.len;
	return bytes;
}

static bool bodies_are_sane(const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	if (m->type != RAFT_APPEND)
		return count == 0;
	if (count > REPLICA_BODIES_MAX || count != m->append.last - m->append.prev_index)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t index = m->append.prev_index + 1 + i;
		struct raft_config config;
		enum body_kind kind;

		if (bodies[i].data.len > LIMIT_LOG_ENTRY_BYTES || bodies[i].term != raft_message_term(m, index) ||
			body_decode(bodies[i].data, index, &kind, &config) != 0)
			return false;
		if ((kind == BODY_CONFIG) != (m->append.has_config && index == m->append.last))
			return false;
		if (kind == BODY_CONFIG && !body_configs_equal(&config, &m->append.config))
			return false;
	}
	return true;
}

void replica_receive(
	struct replica *r, const struct raft_message *message, const struct replica_body *bodies, uint32_t count)
{
	struct inbound *in;
	uint64_t bytes;

	if (!r->started || r->stopped || r->closing)
		return;
	if (message->to != r->options.raft.id || raft_message_check(message) != 0 ||
		!bodies_are_sane(message, bodies, count)) {
		r->counts.malformed++;
		return;
	}
	bytes = bytes_of(bodies, count);
	if (r->received_count == REPLICA_MESSAGES_MAX || r->received_bytes + bytes > REPLICA_MESSAGES_BYTES_MAX) {
		r->counts.dropped++;
		return;
	}
	in = mem_zalloc(sizeof(*in) + count * sizeof(in->entries[0]));
	in->message = *message;
	in->count = count;
	in->bytes = bytes;
	for (uint32_t i = 0; i < count; i++)
		in->entries[i] = entry_new(bodies[i].term, NULL, 0, bodies[i].data);
	list_push_back(&r->received, &in->link);
	r->received_count++;
	r->received_bytes += bytes;
	replica__kick(r);
}

/* ---- end ---- */

static void close_if_quiet(struct replica *r)
{
	void (*closed)(void *ctx, int code) = r->closed;
	void *ctx = r->closed_ctx;
	int code = r->close_code;

	if (!r->wal_closed || !r->table_closed || io_pending(&r->timer) || io_pending(&r->ask.timer) ||
		!replica__fill_is_quiet(r) || io_pending(&r->offer.timer) || !replica__fetch_close(r))
		return;
	io_turn_hook_remove(r->io, &r->hook);
	replica_free(r);
	closed(ctx, code);
}

static void on_wal_closed(void *ctx, int code)
{
	struct replica *r = ctx;

	r->wal_closed = true;
	if (!r->close_code)
		r->close_code = code;
	replica__kick(r);
}

static void on_table_closed(void *ctx, int code)
{
	struct replica *r = ctx;

	r->table_closed = true;
	if (!r->close_code)
		r->close_code = code;
	replica__kick(r);
}

void replica__end_reader(struct reader *reader)
{
	if (reader->ready)
		wal_read_end(&reader->read);
	reader->ready = reader->held = false;
}

void replica_close(struct replica *r, void (*closed)(void *ctx, int code), void *ctx)
{
	struct list *node;

	CHECK(r->begun && !r->closing);
	r->closing = true;
	r->closed = closed;
	r->closed_ctx = ctx;
	fail_submits(r, &r->taken, ERR_STOPPED);
	fail_submits(r, &r->submits, ERR_STOPPED);
	replica__calls_fail(r, ERR_STOPPED);
	while ((node = list_pop_front(&r->received)))
		replica__inbound_free(LIST_ENTRY(node, struct inbound, link));
	if (r->inbound)
		replica__inbound_free(r->inbound);
	r->inbound = NULL;
	replica__fill_close(r);
	replica__end_reader(&r->apply_reader);
	replica__offer_close(r);
	replica__keep_close(r);
	cache_fini(&r->cache);
	io_cancel(r->io, &r->timer);
	io_cancel(r->io, &r->ask.timer);
	wal_close(r->wal, on_wal_closed, r);
	/* Else one is closing already, or could not be opened. */
	if (r->table)
		table_close(r->table, on_table_closed, r);
	else
		r->table_closed = !r->table_closing;
}

const struct replica_counts *replica_counts(const struct replica *r)
{
	return &r->counts;
}

const struct raft_core *replica_core(const struct replica *r)
{
	return r->started ? &r->core : NULL;
}

const struct wal *replica_log(const struct replica *r)
{
	return r->wal;
}

bool replica_hangs(const struct replica *r)
{
	return stall_hangs(&r->stall, &r->options.raft);
}

struct kv *replica_kv(struct replica *r)
{
	return r->table ? table_kv(r->table) : NULL;
}

uint64_t replica_applied(const struct replica *r)
{
	return r->table ? table_applied(r->table) : 0;
}
