/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply: one log entry = state time + cluster version + commands in order. State time never goes back. The meta row,
 * which almost every command changes (counters), and the rows of sessions and directories are written once an entry.
 *
 * A replica that meets something it does not know stops: a guess would make its state differ from the others' for good. What it knows is
 * a matter of the cluster version in the state (cmd.h): an entry says at which it was written, and a state of another one refuses it.
 */
#include "metad/state/state.h"

#include <stdarg.h>
#include <stdio.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "metad/state/dirs.h"

#define DELETED (1u << 31)

void state__fault(struct state *s, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES / 2];
	va_list args;

	if (s->fault.code)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	err_set(&s->fault, ERR_CORRUPT,
		"metadata are damaged: %s; this replica stops", text);
}

/*
 * One more change (docs/FORMATS.md): what kind it is and how long its parts are, then these. Each step can be undone, so digests that differed before
 * it do so behind it, if it is the same.
 */
static void digest_add(struct state *s, const struct state_key *key, uint32_t kind, const uint8_t *value, size_t len)
{
	struct slice bytes = state_key_slice(key);
	uint32_t digest = s->meta.digest ^ (kind | (uint32_t)bytes.len << 20 | (uint32_t)len);

	digest = crc32c_extend(digest, bytes.data, bytes.len);
	s->meta.digest = crc32c_extend(digest, value, len);
	s->meta_dirty = true;
}

void state__put(struct state *s, const struct state_key *key, const uint8_t *value, size_t len)
{
	s->rows_changed++;
	if (s->meta.version >= STATE_CLUSTER_DIGEST)
		digest_add(s, key, 0, value, len);
	kv_put(s->kv, state_key_slice(key), slice_of(value, len));
}

void state__del(struct state *s, const struct state_key *key)
{
	s->rows_changed++;
	if (s->meta.version >= STATE_CLUSTER_DIGEST)
		digest_add(s, key, DELETED, NULL, 0);
	kv_del(s->kv, state_key_slice(key));
}

int state__get(struct state *s, const struct state_key *key, struct slice *ret_value)
{
	return kv_get(s->kv, state_key_slice(key), ret_value);
}

int state_failure(struct state *s, struct err *err)
{
	const char *text;
	int code = kv_failure(s->kv, &text);

	if (code) /* first: what looks like a damaged row may have been a read that failed */
		return err_set(err, code, "%s", text);
	if (s->fault.code && err)
		*err = s->fault;
	return s->fault.code;
}

static void run_command(struct state *s, const struct state_cmd *cmd, struct state_result *res)
{
	switch (cmd->type) {
	case STATE_CMD_FORMAT:
		state__format(s, &cmd->format, res);
		return;
	case STATE_CMD_TICK:
		state__tick(s, res);
		return;
	case STATE_CMD_MKDIR:
		state__mkdir(s, &cmd->mkdir, res);
		return;
	case STATE_CMD_REMOVE:
		state__remove(s, &cmd->remove, res);
		return;
	case STATE_CMD_RENAME:
		state__rename(s, &cmd->rename, res);
		return;
	case STATE_CMD_SETATTR:
		state__setattr(s, &cmd->setattr, res);
		return;
	case STATE_CMD_POLICY:
		state__policy(s, &cmd->policy, res);
		return;
	case STATE_CMD_CREATE:
		state__create(s, &cmd->create, res);
		return;
	case STATE_CMD_COMMIT:
		state__commit(s, &cmd->commit, res);
		return;
	case STATE_CMD_ABORT:
		state__abort(s, &cmd->abort, res);
		return;
	case STATE_CMD_RESERVE:
		state__reserve(s, &cmd->reserve, res);
		return;
	case STATE_CMD_REGISTER:
		state__register(s, &cmd->register_, res);
		return;
	case STATE_CMD_SERVER_DOWN:
		state__server_down(s, &cmd->server_down, res);
		return;
	case STATE_CMD_DISK_FAILED:
		state__disk_failed(s, &cmd->disk_failed, res);
		return;
	case STATE_CMD_CONFIRM:
		state__confirm(s, &cmd->confirm, res);
		return;
	case STATE_CMD_TOKEN_ROLL:
		state__token_roll(s, &cmd->token_roll, res);
		return;
	case STATE_CMD_RAISE:
		state__raise(s, &cmd->raise, res);
		return;
	case STATE_CMD_MAINTENANCE:
		state__maintenance(s, &cmd->maintenance, res);
		return;
	case STATE_CMD_RESTORED:
		state__restored(s, &cmd->restored, res);
		return;
	case STATE_CMD_CONFIG_SET:
		state__config_set(s, &cmd->config_set, res);
		return;
	case STATE_CMD_INTENT:
		state__intent(s, &cmd->intent, res);
		return;
	case STATE_CMD_INTENT_END:
		state__intent_end(s, &cmd->intent_end, res);
		return;
	case STATE_CMD_LOCATION:
		state__location(s, &cmd->sealed, res);
		return;
	case STATE_CMD_DAMAGED:
		state__damaged(s, &cmd->damaged, res);
		return;
	case STATE_CMD_TAKE_OUT:
		state__take_out(s, &cmd->take_out, res);
		return;
	case STATE_CMD_GC:
		state__gc(s, &cmd->gc, res);
		return;
	case STATE_CMD_DROPPED:
		state__dropped(s, &cmd->copies, res);
		return;
	case STATE_CMD_ORPHANS:
		state__orphans(s, &cmd->copies, res);
		return;
	case STATE_CMD_MISSING:
		state__missing(s, &cmd->copies, res);
		return;
	case STATE_CMD_FORGET_DROPS:
		state__forget_drops(s, &cmd->forget_drops, res);
		return;
	case STATE_CMD_SESSION_OPEN:
		state__session_open(s, &cmd->session_open, res);
		return;
	case STATE_CMD_SESSION_END:
		state__session_end(s, &cmd->session_end, res);
		return;
	case STATE_CMD_RELEASE:
		state__release(s, &cmd->release, res);
		return;
	case STATE_CMD_OPEN_WRITE:
		state__open_write(s, &cmd->create, res);
		return;
	case STATE_CMD_COMMIT_TAIL:
		state__commit(s, &cmd->commit, res);
		return;
	case STATE_CMD_LINK:
		state__link(s, &cmd->link, res);
		return;
	case STATE_CMD_SYMLINK:
		state__symlink(s, &cmd->symlink, res);
		return;
	case STATE_CMD_XATTR_SET:
		state__xattr_set(s, &cmd->xattr, res);
		return;
	case STATE_CMD_XATTR_REMOVE:
		state__xattr_remove(s, &cmd->xattr, res);
		return;
	case STATE_CMD_TRUNCATE:
		state__truncate(s, &cmd->truncate, res);
		return;
	}
	CHECK_UNREACHABLE(); /* state_cmd_decode knows no others */
}

/* Its own change is in the digest that it ends with, but for that: a CRC that goes through itself forgets what was before. */
static void write_meta(struct state *s)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	size_t len;

	if (!s->meta_dirty)
		return;
	state_key_table(&key, STATE_TABLE_META);
	len = state_meta_encode(&s->meta, value);
	if (s->meta.version >= STATE_CLUSTER_DIGEST) {
		digest_add(s, &key, 0, value, len - sizeof(s->meta.digest));
		len = state_meta_encode(&s->meta, value);
	}
	s->rows_changed++;
	kv_put(s->kv, state_key_slice(&key), slice_of(value, len));
	s->meta_dirty = false;
}

bool state_digest(const struct state *s, uint32_t *ret_digest)
{
	*ret_digest = s->meta.digest;
	return s->formatted && s->meta.version >= STATE_CLUSTER_DIGEST;
}

/* What commands may leave unset; the arrays are not cleared, `count` says how much of them counts. */
static void result_clear(struct state_result *res)
{
	memset(res, 0, offsetof(struct state_result, blocks));
}

static int apply_commands(
	struct state *s, struct rcursor *r, uint32_t count, state_result_fn *result, void *ctx, struct err *err)
{
	struct state_result res;

	for (uint32_t i = 0; i < count; i++) {
		int code = state_cmd_decode(r, &s->cmd);
		struct state_session *session;

		if (code)
			return err_set(err, code,
				"command %u of a log entry (type %u) is %s; use a binary at least as new as the log's writer",
				i, s->cmd.type, code == ERR_VERSION ? "unknown" : "malformed");
		if (s->formatted != (s->cmd.type != STATE_CMD_FORMAT))
			return err_set(
				err, ERR_CORRUPT, "the log does not start with a format command, or has a second one");
		if (s->meta.version < STATE_CLUSTER_OLDEST && s->cmd.type != STATE_CMD_RAISE)
			return err_set(err, ERR_VERSION,
				"the log has entries of an older build, by whose rules this one cannot apply them (cluster version %u, "
				"here %u to %u): start the build that wrote them once more, stop it cleanly, then start this one",
				s->meta.version, STATE_CLUSTER_OLDEST, s->supports);
		result_clear(&res);
		if (state__session_admit(s, &s->cmd.request, &res, &session)) {
			run_command(s, &s->cmd, &res);
			if (session && res.status != ERR_AGAIN) /* that is not an outcome: it is sent again */
				state__session_record(s, session, s->cmd.request.seq, &res);
		}
		code = state_failure(s, err);
		if (code)
			return code;
		if (result)
			result(ctx, i, &s->cmd, &res);
	}
	return 0;
}

static int version_check(struct state *s, const struct state_entry *entry, struct err *err)
{
	if (entry->cluster_version > s->supports)
		return err_set(err, ERR_VERSION,
			"the log was written at cluster version %u, this binary speaks %u: use a newer binary",
			entry->cluster_version, s->supports);
	if (!s->formatted)
		s->meta.version = entry->cluster_version;
	if (entry->cluster_version != s->meta.version)
		return err_set(err, ERR_VERSION,
			"an entry of cluster version %u follows the raise to %u: an older build has written to this log since; "
			"start that build once more, stop it cleanly, then start this one",
			entry->cluster_version, s->meta.version);
	return 0;
}

uint64_t state_entry_rows(struct state *s, struct slice bytes)
{
	uint64_t rows = STATE_ENTRY_OWN_ROWS;
	struct state_entry entry;
	struct rcursor r;

	rcursor_init(&r, bytes.data, bytes.len);
	if (state_entry_decode(&r, &entry))
		return rows;
	for (uint32_t i = 0; i < entry.count && state_cmd_decode(&r, &s->cmd) == 0; i++)
		rows += state_cmd_rows(&s->cmd) + state_session_rows(s, &s->cmd.request) + state_cmd_derived_rows(&s->cmd);
	return rows;
}

int state_apply(struct state *s, struct slice bytes, state_result_fn *result, void *ctx, struct err *err)
{
	struct state_entry entry;
	struct rcursor r;
	int code;

	rcursor_init(&r, bytes.data, bytes.len);
	code = state_entry_decode(&r, &entry);
	if (code)
		return err_set(err, code, "a log entry has an unknown version or a malformed header");
	code = version_check(s, &entry, err);
	if (code)
		return code;
	if (entry.time_ms > s->meta.time_ms) {
		s->meta.time_ms = entry.time_ms;
		s->meta_dirty = true;
	}
	code = apply_commands(s, &r, entry.count, result, ctx, err);
	if (code)
		return code;
	if (!rcursor_done(&r))
		return err_set(err, ERR_CORRUPT, "a log entry has bytes behind its last command");
	state__sessions_write(s);
	state__dirs_write(s);
	write_meta(s);
	return 0;
}
