/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/force.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/wal_replica.h"
#include "metad/raft_codec.h"
#include "metad/replica/body.h"
#include "metad/replica/table.h"
#include "metad/restore.h"
#include "metad/state/state.h"

enum { ENTRY_BYTES = 512 };

struct force {
	struct io *io;
	const struct force_options *o;
	char *log_dir;
	struct wal_replica replica;
	struct wal *wal;
	struct force_facts facts;
	struct force_plan plan;
	/* of the state behind the log's last entry */
	bool formatted;
	struct state_entry last;
	struct state_meta meta; /* of the table, as is this: */
	struct state_restore restored;
	struct state_cmd *cmd;
	/* what is written */
	struct wal_save save;
	struct addition {
		struct force *f;
		struct wal_append append;
		uint8_t bytes[ENTRY_BYTES];
	} additions[2];
	uint32_t addition_count, done_count;
	struct err err;
	struct io_post post;
	int code;
};
_Static_assert((int)BODY_CONFIG_BYTES_MAX <= (int)ENTRY_BYTES, "a configuration fits");

static void finish(struct force *f)
{
	const struct force_options *o = f->o;
	char text[ERR_TEXT_BYTES];
	int code = f->code;

	if (code < 0)
		snprintf(text, sizeof(text), "%s", f->err.text);
	else
		snprintf(text, sizeof(text),
			"replica %" PRIu64 " is the only member of its group, in term %" PRIu64
			": start it as before, then give it company; the next metad has number %" PRIu64 " (`--replica %" PRIu64 " --join`, `craton meta add`)",
			o->id, f->plan.term, f->plan.config.last_id + 1, f->plan.config.last_id + 1);
	mem_free(f->log_dir);
	mem_free(f->cmd);
	mem_free(f);
	o->done(o->ctx, code, text);
}

static void on_post(struct io_post *post)
{
	finish(CONTAINER_OF(post, struct force, post));
}

/* ---- what is there ---- */

/* The wall time that a client's change was made at; 0: it does not say. Others that do are seldom the only ones. */
static int64_t time_of(const struct state_cmd *cmd)
{
	switch (cmd->type) {
	case STATE_CMD_FORMAT:
		return cmd->format.now_ns;
	case STATE_CMD_MKDIR:
		return cmd->mkdir.now_ns;
	case STATE_CMD_CREATE:
	case STATE_CMD_OPEN_WRITE:
		return cmd->create.now_ns;
	case STATE_CMD_COMMIT:
	case STATE_CMD_COMMIT_TAIL:
		return cmd->commit.now_ns;
	default:
		return 0;
	}
}

static void look_at_command(struct force *f, const struct state_cmd *cmd)
{
	int64_t ns = time_of(cmd);

	if (ns > f->facts.written_ns)
		f->facts.written_ns = ns;
	if (cmd->type == STATE_CMD_RAISE && cmd->raise.version > f->last.cluster_version)
		f->last.cluster_version = cmd->raise.version;
}

static int look_at_commands(struct force *f, struct slice data)
{
	struct state_entry entry;
	struct rcursor r;
	int rc;

	rcursor_init(&r, data.data, data.len);
	rc = state_entry_decode(&r, &entry);
	if (rc)
		return rc;
	f->formatted = true;
	f->last.cluster_version = entry.cluster_version;
	if (entry.time_ms > f->last.time_ms)
		f->last.time_ms = entry.time_ms;
	for (uint32_t i = 0; !rc && i < entry.count; i++) {
		rc = state_cmd_decode(&r, f->cmd);
		if (!rc)
			look_at_command(f, f->cmd);
	}
	return rc;
}

static int on_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct force *f = ctx;
	struct raft_config config;
	enum body_kind kind;
	int rc = body_decode(data, index, &kind, &config);

	if (!rc && kind == BODY_COMMANDS)
		rc = look_at_commands(f, slice_of(data.data + 1, data.len - 1));
	if (rc)
		return err_set(err, rc, "%s: entry %" PRIu64 " is of no kind that is known here: use a newer binary", f->o->dir, index);
	if (kind == BODY_CONFIG) {
		f->facts.before = f->facts.config;
		f->facts.config = config;
	}
	return 0;
}

static bool is_there(struct force *f, const char *name)
{
	char *path = mem_printf("%s/%s", f->o->dir, name);
	int fd, rc = io_open(f->io, path, 0, 0, &fd);

	mem_free(path);
	if (rc == 0)
		io_close(f->io, fd);
	return rc == 0;
}

/* Nothing is made here. */
static int check_dir(struct force *f)
{
	if (is_there(f, "differs")) /* ledger_digest.c */
		return err_set(&f->err, ERR_CORRUPT,
			"the metadata in %s are not what most metads of the group had: choose another one, or restore a backup. If there is neither, remove "
			"%s/differs: what is wrong in them is then what counts", f->o->dir, f->o->dir);
	if (is_there(f, "log/meta"))
		return 0;
	if (is_there(f, "kv"))
		return err_set(&f->err, ERR_NOENT, "%s holds the metadata of a store with one metad: it has no majority to lose", f->o->dir);
	return err_set(&f->err, ERR_NOENT, "%s holds no replica: name the directory of one that is left of the group", f->o->dir);
}

static bool is_buffered(struct force *f)
{
	char *path = mem_printf("%s/meta", f->log_dir);
	int fd, rc = io_open(f->io, path, IO_OPEN_WRITE | IO_OPEN_DIRECT, 0, &fd);

	mem_free(path);
	if (rc == 0)
		io_close(f->io, fd);
	return rc == ERR_INVAL;
}

static void on_fatal(void *ctx, int code, const char *text)
{
	struct force *f = ctx;

	if (!f->code)
		f->code = err_set(&f->err, code, "%s", text);
}

static int open_log(struct force *f)
{
	const struct wal_options options = {.dir = f->log_dir,
		.segment_bytes = f->o->log_segment_bytes,
		.buffered = is_buffered(f),
		.replica = &f->replica,
		.on_fatal = on_fatal,
		.ctx = f};
	int rc = wal_open(f->io, &options, 1, on_entry, f, &f->wal, &f->err);

	if (rc)
		f->wal = NULL;
	return rc;
}

static int read_rows(struct force *f, struct kv *kv)
{
	struct state_key key;
	struct slice value;
	int rc;

	state_key_table(&key, STATE_TABLE_META);
	rc = kv_get(kv, state_key_slice(&key), &value);
	if (rc == ERR_NOENT)
		return 0;
	if (!rc)
		rc = state_meta_decode(value, &f->meta);
	state_key_table(&key, STATE_TABLE_RESTORE);
	if (!rc && kv_get(kv, state_key_slice(&key), &value) == 0)
		rc = state_restore_decode(value, &f->restored);
	if (rc)
		return err_set(&f->err, rc, "%s: the table cannot be read: %s", f->o->dir, err_text(rc));
	if (!f->formatted)
		f->last.cluster_version = f->meta.version;
	f->formatted = true;
	if (f->meta.time_ms > f->last.time_ms)
		f->last.time_ms = f->meta.time_ms;
	return 0;
}

/* As replica.c: what the log says last, or the table, if the log has no more of it. */
static void merge_configs(struct force_facts *facts, const struct raft_config *applied)
{
	if (facts->config.index <= applied->index) {
		facts->config = *applied;
		facts->before = (struct raft_config){.count = 0};
	} else if (facts->before.index < applied->index) {
		facts->before = *applied;
	}
}

static int read_table(struct force *f)
{
	const struct wal_index *index = wal_index(f->wal);
	const struct table_options options = {.dir = f->o->dir,
		.kv = {.backend = f->o->backend, .derived = &state_reverse},
		.on_fatal = on_fatal,
		.ctx = f};
	struct table *table;
	int rc = table_open(f->io, &options, wal_meta(f->wal)->base_index, &table, &f->err);

	if (rc)
		return rc;
	f->facts.applied = table_applied(table);
	merge_configs(&f->facts, table_config(table));
	rc = read_rows(f, table_kv(table));
	table_abandon(table);
	if (!rc && f->facts.applied > wal_index_last(index))
		rc = err_set(&f->err, ERR_CORRUPT, "%s: the table holds entries up to %" PRIu64 ", the log up to %" PRIu64 ": they do not belong to each other",
			f->o->dir, f->facts.applied, wal_index_last(index));
	return rc;
}

static int look(struct force *f)
{
	int rc = check_dir(f);

	if (!rc)
		rc = open_log(f);
	if (!rc)
		rc = read_table(f);
	if (rc)
		return rc;
	f->facts.term = wal_meta(f->wal)->term;
	f->facts.last_index = wal_index_last(wal_index(f->wal));
	f->facts.last_term = wal_index_last_term(wal_index(f->wal));
	f->facts.commit = wal_commit(f->wal);
	if (f->facts.commit < f->facts.applied)
		f->facts.commit = f->facts.applied;
	return 0;
}

static int check_numbers(struct force *f)
{
	uint32_t count = f->restored.count;

	if (f->o->restores > count + RESTORE_PLAUSIBLE && !f->o->restores_forced)
		return err_set(&f->err, ERR_RANGE,
			"%s was restored %u times, and --restores %u says that its disks have seen %u more: that many are used up for good, of %d; compare it "
			"with what metad's log says, and add --force if it is meant",
			f->o->dir, count, f->o->restores, f->o->restores - count, STATE_RESTORES);
	if (!state_restore_possible(&f->meta, &f->restored, f->o->restores))
		return err_set(&f->err, ERR_RANGE, "a cluster is restored or forced %d times at most: this one was %u times", STATE_RESTORES, count);
	return 0;
}

/* ---- doing it ---- */

static void on_closed(void *ctx, int code)
{
	struct force *f = ctx;

	if (f->code == 0 && code < 0)
		f->code = err_set(&f->err, code, "the log could not be closed: %s", err_text(code));
	finish(f);
}

static void end(struct force *f, int code)
{
	if (code && !f->code)
		f->code = err_set(&f->err, code, "the log could not be written (%s), and may hold it all the same: look again, without --confirm, before anything else is started",
			err_text(code));
	wal_close(f->wal, on_closed, f);
}

static void on_commit_saved(struct wal_save *save, int code)
{
	end(CONTAINER_OF(save, struct force, save), code);
}

static void save(struct force *f, void (*done)(struct wal_save *save, int code))
{
	f->save = (struct wal_save){.term = f->plan.term, .vote = f->o->id, .done = done};
	wal_save(f->wal, &f->save);
}

/* What is durable here is so on all who count: it is committed. */
static void on_appended(struct wal_append *append, int code)
{
	struct force *f = CONTAINER_OF(append, struct addition, append)->f;

	if (code && !f->code)
		f->code = err_set(&f->err, code, "the log could not be written: %s", err_text(code));
	if (++f->done_count < f->addition_count)
		return;
	if (f->code) {
		end(f, f->code);
		return;
	}
	wal_note_commit(f->wal, append->index);
	save(f, on_commit_saved);
}

static size_t make_restored(struct force *f, uint8_t *out)
{
	struct state_entry header = f->last;
	struct wcursor w;

	header.count = 1;
	out[0] = BODY_COMMANDS;
	wcursor_init(&w, out + 1, ENTRY_BYTES - 1);
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	memset(f->cmd, 0, sizeof(*f->cmd));
	f->cmd->type = STATE_CMD_RESTORED;
	io_random(f->io, f->cmd->restored.salt, sizeof(f->cmd->restored.salt));
	f->cmd->restored.seen = f->o->restores;
	state_cmd_encode(f->cmd, &w);
	CHECK(!w.failed);
	state_entry_encode(&header, out + 1);
	return 1 + w.len;
}

static struct addition *add(struct force *f)
{
	struct addition *a = &f->additions[f->addition_count++];

	a->f = f;
	a->append = (struct wal_append){.term = f->plan.term, .done = on_appended};
	return a;
}

/* The configuration is the last: without it nothing is forced. They go in one frame. */
static void on_term_saved(struct wal_save *done, int code)
{
	struct force *f = CONTAINER_OF(done, struct force, save);
	struct addition *a;

	if (code) {
		end(f, code);
		return;
	}
	if (f->formatted) {
		a = add(f);
		a->append.data = slice_of(a->bytes, make_restored(f, a->bytes));
	}
	a = add(f);
	a->append.data = slice_of(a->bytes, body_encode_config(&f->plan.config, a->bytes));
	for (uint32_t i = 0; i < f->addition_count; i++)
		wal_submit(f->wal, &f->additions[i].append);
}

static int check_word(struct force *f)
{
	if (!f->o->confirm)
		return err_set(&f->err, ERR_INVAL, "nothing was changed. If that is what you want, say so: --force-config --confirm %s", f->plan.word);
	if (strcmp(f->o->confirm, f->plan.word) != 0)
		return err_set(&f->err, ERR_INVAL, "nothing was changed: --confirm %.40s is of another report; of this one it is --confirm %s", f->o->confirm,
			f->plan.word);
	return 0;
}

/* Where the configuration says that it is: the list there will be another one, by which nobody could tell. */
static void keep_place(struct force *f)
{
	struct raft_member *self = &f->plan.config.members[0];
	struct io_addr addr;

	if (!raft_place_get(self->place, &addr) && self->id <= f->o->founders->count)
		raft_place_set(self->place, &f->o->founders->addrs[self->id - 1]);
}

static int decide(struct force *f)
{
	char *report;
	int rc = force_decide(&f->facts, &f->plan, &f->err);

	if (!rc && !f->formatted)
		rc = err_set(&f->err, ERR_NOENT, "%s holds a replica that has heard nothing of the store yet: it has nothing to go on with", f->o->dir);
	if (!rc)
		rc = check_numbers(f);
	if (rc)
		return rc;
	keep_place(f);
	report = force_report(&f->facts, &f->plan, f->o->founders);
	f->o->report(f->o->ctx, report);
	mem_free(report);
	return check_word(f);
}

void force_start(struct io *io, const struct force_options *options)
{
	struct force *f = MEM_NEW(struct force);

	f->io = io;
	f->o = options;
	f->log_dir = mem_printf("%s/log", options->dir);
	f->cmd = MEM_NEW(struct state_cmd);
	f->facts.dir = options->dir;
	f->facts.cluster = options->cluster;
	f->facts.id = f->replica.replica = options->id;
	memcpy(f->replica.cluster, options->cluster.bytes, WAL_ID_BYTES);
	f->code = look(f);
	if (!f->code)
		f->code = decide(f);
	if (!f->code) {
		save(f, on_term_saved);
		return;
	}
	if (f->wal)
		wal_abandon(f->wal);
	f->post.run = on_post;
	io_post(io, &f->post);
}
