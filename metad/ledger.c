/* SPDX-License-Identifier: Apache-2.0 */
/* One log, and what is common to both kinds. */
#include "metad/ledger.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "metad/core.h"
#include "metad/raft_links.h"
#include "metad/replica/founding.h"

static int on_journal_apply(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	struct ledger *l = ctx;

	(void)index;
	return l->options.apply(
		l->options.ctx, kv, data, entry ? CONTAINER_OF(entry, struct ledger_entry, journal) : NULL, err);
}

static void on_journal_fatal(void *ctx, int code, const char *text)
{
	struct ledger *l = ctx;

	l->options.on_fatal(l->options.ctx, code, text);
}

static int open_journal(struct ledger *l, struct err *err)
{
	const struct journal_options o = {
		.dir = l->options.dir,
		.backend = l->options.backend,
		.derived = &state_reverse,
		.segment_bytes = l->options.segment_bytes,
		.entry_growth_bytes = METAD_ENTRY_GROWTH_BYTES,
		.room_bytes = METAD_ROOM_BYTES,
		.buffered = l->options.buffered,
		.apply = on_journal_apply,
		.on_fatal = on_journal_fatal,
		.ctx = l,
	};

	return journal_open(l->io, &o, &l->journal, err);
}

/* ---- what lies in the directory ---- */

static int count_name(void *ctx, const char *name)
{
	(void)name;
	++*(uint32_t *)ctx;
	return 0;
}

static int holds(struct io *io, const char *dir, const char *part, bool *ret_holds, struct err *err)
{
	char *path = mem_printf("%s/%s", dir, part);
	uint32_t files = 0;
	int rc = io_list_dir(io, path, count_name, &files);

	rc = rc == ERR_NOENT ? 0 : rc;
	if (rc < 0)
		err_set(err, rc, "cannot read %s: %s", path, err_text(rc));
	mem_free(path);
	*ret_holds = files > 0;
	return rc;
}

/* One kind of ledger is never opened as the other: neither could read it, and a log of its own beside it would be a second truth. */
static int check_dir(const struct ledger *l, struct err *err)
{
	const char *dir = l->options.dir;
	bool log, alone, group;
	int rc = holds(l->io, dir, "log", &log, err);

	if (!rc)
		rc = holds(l->io, dir, "kv", &alone, err);
	if (!rc)
		rc = holds(l->io, dir, "table-0", &group, err);
	if (!rc && !group)
		rc = holds(l->io, dir, "table-1", &group, err);
	if (rc)
		return rc;
	if (!l->group.id && group)
		return err_set(err, ERR_INVAL,
			"%s holds a replica of a group of metads: start it with --replica and the number that it had", dir);
	if (l->group.id && alone)
		return err_set(err, ERR_INVAL,
			"%s holds the metadata of a store with one metad: with --replica 1 --found, and its address alone in `metad`, it becomes the first "
			"of a group (docs/groups.md); without --replica it goes on as it is", dir);
	if (l->group.id && !log && !l->group.found && !l->group.join)
		return ledger__no_replica(dir, err);
	return 0;
}

/* ---- one log becomes a group's ---- */

int ledger_converts(struct io *io, const struct ledger_options *o, bool *ret_converts, struct err *err)
{
	struct founding founding;
	int rc;

	*ret_converts = false;
	if (o->group->id != FOUNDING_REPLICA || !o->group->found || o->group->members.count != 1)
		return 0;
	rc = founding_read(io, o->dir, &founding, err);
	if (rc != ERR_NOENT)
		return rc; /* it was decided already */
	return holds(io, o->dir, "kv", ret_converts, err);
}

int ledger_decide_group(struct ledger *l, const char *dir, uint32_t restores, struct err *err)
{
	struct founding founding = {.cluster = l->options.cluster, .replica = FOUNDING_REPLICA, .last_id = founding_last_id(restores), .dir = dir};
	int rc = journal_settle(l->journal, err);

	founding.index = journal_applied_index(l->journal) + 1;
	return rc ? rc : founding_decide(l->io, &founding, err);
}

/* What was decided is done before anything else is looked at. */
static int finish_founding(const struct ledger *l, struct err *err)
{
	const struct ledger_options *o = &l->options;
	struct founding founding;
	int rc = founding_read(l->io, o->dir, &founding, err);

	if (rc)
		return rc == ERR_NOENT ? 0 : rc;
	if (l->group.id != founding.replica)
		return err_set(err, ERR_INVAL, "%s holds the first replica of a group of metads: start it with --replica %llu", o->dir,
			(unsigned long long)founding.replica);
	if (!uuid_equal(&founding.cluster, &o->cluster))
		return err_set(err, ERR_WRONG_CLUSTER, "%s holds the metadata of another cluster than the configuration says: use the right one of both",
			o->dir);
	founding.dir = o->dir;
	founding.backend = o->backend;
	founding.log_segment_bytes = o->segment_bytes;
	founding.buffered = o->buffered;
	return founding_finish(l->io, &founding, err);
}

/* ---- life ---- */

static void ledger_free(struct ledger *l)
{
	memset(l->secret, 0, sizeof(l->secret));
	mem_free(l->dir);
	mem_free(l);
}

int ledger_open(struct io *io, const struct ledger_options *options, struct ledger **ret_ledger, struct err *err)
{
	struct ledger *l = MEM_NEW(struct ledger);
	int rc;

	l->io = io;
	l->options = *options;
	l->group = *options->group;
	l->dir = mem_strdup(options->dir);
	memcpy(l->secret, options->secret, sizeof(l->secret));
	l->options.group = &l->group;
	list_init(&l->entries);
	list_init(&l->changes);
	rc = finish_founding(l, err);
	if (!rc)
		rc = check_dir(l, err);
	if (!rc)
		rc = l->group.id ? ledger__group_open(l, err) : open_journal(l, err);
	l->options.dir = NULL; /* the caller's, only until we return */
	l->options.secret = NULL;
	if (rc)
		ledger_free(l);
	else
		*ret_ledger = l;
	return rc;
}

void ledger_abandon(struct ledger *l)
{
	if (l->group.id)
		ledger__group_abandon(l);
	else
		journal_abandon(l->journal);
	ledger_free(l);
}

void ledger_start(struct ledger *l)
{
	if (l->group.id) {
		ledger__group_start(l);
		return;
	}
	l->role.leads = true;
	l->options.on_role(l->options.ctx, &l->role);
}

bool ledger_hand_over(struct ledger *l, void (*done)(void *ctx), void *ctx)
{
	l->handing.done = done;
	l->handing.ctx = ctx;
	return l->group.id && ledger__group_hand_over(l);
}

void ledger_resign(struct ledger *l)
{
	if (l->group.id)
		ledger__group_resign(l);
}

void ledger__finish_close(struct ledger *l)
{
	void (*closed)(void *ctx, int code) = l->closed;
	void *ctx = l->closed_ctx;
	int code = l->close_code;

	ledger_free(l);
	closed(ctx, code);
}

static void on_journal_closed(void *ctx, int code)
{
	struct ledger *l = ctx;

	l->close_code = code;
	ledger__finish_close(l);
}

void ledger_close(struct ledger *l, void (*closed)(void *ctx, int code), void *ctx)
{
	l->closed = closed;
	l->closed_ctx = ctx;
	if (l->group.id)
		ledger__group_close(l);
	else
		journal_close(l->journal, on_journal_closed, l);
}

/* ---- entries ---- */

static void on_journal_done(struct journal_entry *journal, int code)
{
	struct ledger_entry *entry = CONTAINER_OF(journal, struct ledger_entry, journal);

	entry->done(entry, code);
}

void ledger_submit(struct ledger *l, struct ledger_entry *entry)
{
	CHECK(l->role.leads && entry->data.len > 0 && entry->data.len <= LEDGER_ENTRY_BYTES);
	entry->ledger = l;
	if (l->group.id) {
		ledger__group_submit(l, entry);
		return;
	}
	entry->journal.append.data = entry->data;
	entry->journal.rows = entry->rows;
	entry->journal.done = on_journal_done;
	journal_submit(l->journal, &entry->journal);
}

struct kv *ledger_kv(struct ledger *l)
{
	return l->group.id ? replica_kv(l->replica) : journal_kv(l->journal);
}

uint64_t ledger_applied(const struct ledger *l)
{
	return l->group.id ? replica_applied(l->replica) : journal_applied_index(l->journal);
}

bool ledger_is_full(const struct ledger *l)
{
	bool here = kv_is_full(l->group.id ? replica_kv(l->replica) : journal_kv(l->journal));
	struct ledger_view view;

	if (!l->group.id)
		return here;
	if (l->has_room && (!here || l->has_relief))
		return false;
	ledger_view(l, &view); /* since the last look others may have been heard again, or have room again */
	return !ledger_has_room(&view) || (here && !ledger_relief(&view));
}

enum ledger_ill ledger_ill(const struct ledger *l)
{
	if (!l->group.id)
		return LEDGER_WELL;
	if (replica_hangs(l->replica))
		return LEDGER_LOG_HANGS;
	return ledger__rows_stand(l) ? LEDGER_ROWS_STAND : LEDGER_WELL;
}
