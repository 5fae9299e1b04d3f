/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: what the leader knows of its clients beside the rows of their sessions: who was heard when, and which
 * unlinked files they still have open.
 *
 * Nothing of it is logged and nothing of it decides about safety: it says when the commands come that end a session or
 * let go of an orphan. A new leader knows nothing, so it gives everybody LIMIT_SESSION_MS from its start. Clients
 * renew six times in that time and name all that they have open, so whatever a live client reads is named to the new
 * leader before it lets go of anything.
 *
 * Letting go is a plan like those of metad/plan, but for what it knows: whom the leader has heard.
 */
#include "metad/core.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

struct heard {
	uint64_t at_ns;
	uint64_t named_ms; /* what was unlinked before this state time had been when it last said which files it has open; 0: it has not yet */
	bool ending; /* a command is under way */
};

static const uint64_t MS_NS = 1000 * 1000;

void metad__sessions_init(struct metad *md)
{
	map_init(&md->sessions.heard);
	map_init(&md->sessions.held);
	map_init(&md->sessions.held_before);
}

void metad__sessions_fini(struct metad *md)
{
	size_t pos = 0;
	uint64_t id;
	void *heard;

	while (map_next(&md->sessions.heard, &pos, &id, &heard))
		mem_free(heard);
	map_fini(&md->sessions.heard);
	map_fini(&md->sessions.held);
	map_fini(&md->sessions.held_before);
}

void metad__sessions_forget(struct metad *md)
{
	metad__sessions_fini(md);
	metad__sessions_init(md);
	md->sessions.held_from_ms = md->sessions.hurry_ms = md->sessions.reader_ms = 0;
	memset(&md->sessions.pass, 0, sizeof(md->sessions.pass));
}

void metad__sessions_status(const struct metad *md, Craton__SessionStatus *ret_status)
{
	craton__session_status__init(ret_status);
	ret_status->open = state_session_count(&md->state);
	ret_status->expired = md->sessions.expired;
	ret_status->lost = md->sessions.lost;
	ret_status->forged = md->refused.of[REFUSED_SESSION_FORGED].count;
	ret_status->out_of_window = md->refused.of[REFUSED_SESSION_WINDOW].count;
	ret_status->orphans = metad__count_rows(md, STATE_TABLE_ORPHAN);
}

static struct heard *heard_of(struct metad *md, uint64_t session)
{
	struct heard *heard = map_get(&md->sessions.heard, session);

	if (!heard) {
		heard = MEM_NEW(struct heard);
		map_put(&md->sessions.heard, session, heard);
	}
	return heard;
}

/* ---- requests ---- */

static int check_session(struct metad *md, uint64_t id, uint64_t secret)
{
	const struct state_session *session = state_session_at(&md->state, id);

	if (!session)
		return ERR_SESSION_LOST;
	if (session->secret != secret)
		return ERR_PERM;
	heard_of(md, id)->at_ns = io_now_ns(md->io);
	return 0;
}

/* A refusal that is told, or 0. */
static int counted(struct metad *md, const struct rpc_req *req, int code)
{
	md->sessions.lost += code == ERR_SESSION_LOST;
	if (code == ERR_PERM)
		metad__count_refused(md, req, REFUSED_SESSION_FORGED);
	if (code == ERR_RANGE)
		metad__count_refused(md, req, REFUSED_SESSION_WINDOW);
	return code;
}

bool metad__session_good(struct metad *md, struct rpc_req *req, const Craton__RequestId *id)
{
	int code = id ? check_session(md, id->session, id->secret) : ERR_INVAL;

	if (!code && (id->unanswered == 0 || id->unanswered > id->number || id->number - id->unanswered >= STATE_WINDOW))
		code = ERR_RANGE;
	if (code && !metad__ask_first(md, req))
		rpc_reply_status(req, counted(md, req, code));
	return code == 0;
}

static void on_opened(struct metad *md, void *arg, int status, const struct state_result *res)
{
	Craton__SessionOpenReply reply = CRATON__SESSION_OPEN_REPLY__INIT;
	const struct state_session *session = status ? NULL : state_session_at(&md->state, res->session);

	if (session) {
		reply.session = session->id;
		reply.secret = session->secret;
		reply.timeout_ms = LIMIT_SESSION_MS;
		reply.n_metads = metad__members_addrs(md, &reply.metads);
		heard_of(md, session->id)->at_ns = io_now_ns(md->io);
	}
	rpc_reply(arg, &(struct rpc_reply){.status = status, .msg = session ? &reply.base : NULL});
}

void metad__session_open(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__SessionOpenRequest *msg = (const Craton__SessionOpenRequest *)req->msg;
	size_t len = strlen(msg->name);

	if (metad__gate(md, req))
		return;
	md->cmd.type = STATE_CMD_SESSION_OPEN;
	md->cmd.session_open.name =
		slice_of(msg->name, len < STATE_SESSION_NAME_BYTES ? len : STATE_SESSION_NAME_BYTES - 1);
	io_random(md->io, &md->cmd.session_open.secret, sizeof(md->cmd.session_open.secret));
	metad__submit_req(md, on_opened, req);
}

/* What is not unlinked needs no note: when it is, this much time must pass, and it will have been named again. */
static void hold(struct metad *md, uint64_t inode, uint64_t until_ms)
{
	struct state_inode *row = &md->scratch->inode;

	if (state_inode_get(&md->state, inode, row) == 0 &&
		row->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED))
		map_put(&md->sessions.held, inode, (void *)(uintptr_t)until_ms);
}

/* An entry on its way may unlink what the caller has open, and hold() does not see that yet: its state time is not before that of the rows. */
static void named(struct metad *md, const Craton__SessionRenewRequest *msg, uint64_t now_ms)
{
	if (msg->session)
		heard_of(md, msg->session)->named_ms = metad__batches_idle(md) ? now_ms : md->state.meta.time_ms;
	else if (msg->n_open_inodes)
		md->sessions.reader_ms = now_ms;
}

void metad__session_renew(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__SessionRenewRequest *msg = (const Craton__SessionRenewRequest *)req->msg;
	Craton__SessionRenewReply reply = CRATON__SESSION_RENEW_REPLY__INIT;
	uint64_t now_ms = metad__now_ms(md);
	int status = 0;

	if (metad__gate(md, req))
		return;
	if (msg->n_open_inodes > LIMIT_OPEN_FILES) {
		rpc_reply_status(req, ERR_MSGSIZE);
		return;
	}
	if (msg->session) /* without one: a client that only reads */
		status = counted(md, req, check_session(md, msg->session, msg->secret));
	if (!status)
		named(md, msg, now_ms);
	for (size_t i = 0; i < msg->n_open_inodes && !status; i++)
		hold(md, msg->open_inodes[i], now_ms + LIMIT_SESSION_MS);
	reply.state_time_ms = now_ms;
	reply.n_metads = metad__members_addrs(md, &reply.metads);
	metad__reply_read(md, req, status, &reply.base);
}

static void forget(struct metad *md, uint64_t session)
{
	mem_free(map_remove(&md->sessions.heard, session));
}

static void end(struct metad *md, metad_result_fn *fn, uint64_t session)
{
	struct heard *heard = heard_of(md, session);

	if (heard->ending)
		return;
	md->cmd.type = STATE_CMD_SESSION_END;
	md->cmd.session_end.session = session;
	heard->ending = metad__submit(md, fn, (void *)(uintptr_t)session);
}

/* Ended, or some of it: then the rest at once. If that cannot be taken now the next check goes on. */
static void on_ended(struct metad *md, void *arg, int status, const struct state_result *res)
{
	uint64_t session = (uintptr_t)arg;
	struct heard *heard = map_get(&md->sessions.heard, session);

	if (heard)
		heard->ending = false;
	if (res && !status && res->more)
		end(md, on_ended, session);
	else if (res && !status)
		forget(md, session);
}

static void on_expired(struct metad *md, void *arg, int status, const struct state_result *res)
{
	if (res && !status) {
		md->sessions.expired++;
		log_line(md->options.log, LOG_INFO, "session-expired", "session=%llu",
			(unsigned long long)(uintptr_t)arg);
	}
	on_ended(md, arg, status, res);
}

struct closing {
	struct rpc_req *req;
	uint64_t session;
};

static void on_closed(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct closing *c = arg;

	on_ended(md, (void *)(uintptr_t)c->session, status, res);
	rpc_reply_status(c->req, status);
	mem_free(c);
}

void metad__session_close(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__SessionCloseRequest *msg = (const Craton__SessionCloseRequest *)req->msg;
	struct closing *c;
	int code;

	if (metad__gate(md, req))
		return;
	code = counted(md, req, check_session(md, msg->session, msg->secret));
	if (code) {
		rpc_reply_status(req, code);
		return;
	}
	c = MEM_NEW(struct closing);
	*c = (struct closing){.req = req, .session = msg->session};
	md->cmd.type = STATE_CMD_SESSION_END;
	md->cmd.session_end.session = msg->session;
	if (!metad__submit(md, on_closed, c)) {
		mem_free(c);
		rpc_reply_status(req, ERR_OVERLOADED);
	}
}

/* ---- what is checked every now and then ---- */

static void check_silence(struct metad *md, uint64_t now_ns)
{
	size_t pos = 0;
	uint64_t id;
	void *value;

	while (map_next(&md->state.sessions, &pos, &id, &value)) {
		const struct state_session *session = value;
		const struct heard *heard = map_get(&md->sessions.heard, id);
		uint64_t at_ns = heard && heard->at_ns > md->started_ns ? heard->at_ns : md->started_ns;

		if (state_restore_lost(&md->state, id) && state_restore_hold_ms(&md->state))
			continue;
		if (session->ending || state_restore_lost(&md->state, id) || now_ns - at_ns >= LIMIT_SESSION_MS * MS_NS)
			end(md, on_expired, id);
	}
}

static bool is_held(const struct metad *md, uint64_t inode, uint64_t now_ms)
{
	return (uintptr_t)map_get(&md->sessions.held, inode) > now_ms ||
		(uintptr_t)map_get(&md->sessions.held_before, inode) > now_ms;
}

/* What is older than LIMIT_SESSION_MS holds nothing any more, also what nobody ever asks for again. */
static void forget_held(struct metad *md, uint64_t now_ms)
{
	struct sessions *ss = &md->sessions;

	if (now_ms < ss->held_from_ms + LIMIT_SESSION_MS)
		return;
	map_fini(&ss->held_before);
	ss->held_before = ss->held;
	map_init(&ss->held);
	ss->held_from_ms = now_ms;
}

/*
 * What was unlinked before this state time had been when each client said what it has open; 0: not all have. Clients that only read are not told
 * apart: as long as one was heard lately, nobody knows which of them said it. One that has not said it yet is not known of.
 */
static uint64_t all_named_ms(const struct metad *md, uint64_t now_ms)
{
	uint64_t least = now_ms, id;
	size_t pos = 0;
	void *value;

	if (md->sessions.reader_ms && now_ms < md->sessions.reader_ms + LIMIT_SESSION_MS)
		return 0;
	while (map_next(&md->state.sessions, &pos, &id, &value)) {
		const struct heard *heard = map_get(&md->sessions.heard, id);

		if (!heard)
			return 0;
		if (heard->named_ms < least)
			least = heard->named_ms;
	}
	return least;
}

/* Who is told to hurry waits all the same for a client that has stood still since: a file that it has open stays. */
static uint64_t wait_ms(const struct metad *md, uint64_t time_ms, uint64_t named_ms)
{
	return time_ms <= md->sessions.hurry_ms && time_ms < named_ms ? METAD_NAMED_MS : LIMIT_SESSION_MS;
}

/*
 * Oldest first: behind one that is too young all are, and the pass ends. It passes over those that are held. The next one begins a second later, at the
 * first that was held or too young: all that came before are gone, and none come there, as state time does not go back.
 */
static enum plan_next release_step(struct plan *plan, const struct plan_facts *facts, struct state_cmd *ret_cmd)
{
	struct metad *md = CONTAINER_OF(plan, struct metad, sessions.release);
	struct sessions *ss = &md->sessions;
	struct state_cmd_release *cmd = &ret_cmd->release;
	uint64_t time_ms = 0, inode = 0, now_ms = facts->now_ms, now_ns = io_now_ns(md->io), named_ms;
	struct kv_scan scan;
	struct state_key key;
	uint32_t seen = 0;
	bool more = false;

	if (now_ns < ss->pass.due_ns)
		return PLAN_REST;
	named_ms = ss->hurry_ms ? all_named_ms(md, now_ms) : 0;
	if (now_ns - md->started_ns < wait_ms(md, 0, named_ms) * MS_NS)
		return PLAN_REST;
	cmd->count = 0;
	state_key_pair(&key, STATE_TABLE_ORPHAN, ss->pass.ms, ss->pass.inode);
	kv_seek_within(facts->state->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE);
	for (; kv_scan_valid(&scan) && state_key_parse_pair(scan.key, STATE_TABLE_ORPHAN, &time_ms, &inode); kv_scan_next(&scan)) {
		bool is_young = time_ms + wait_ms(md, time_ms, named_ms) > now_ms;

		more = !is_young && (seen++ == PLAN_STEP_ROWS || cmd->count == STATE_RELEASE_MAX);
		if (more)
			break;
		if (!is_young && !is_held(md, inode, now_ms)) {
			cmd->orphans[cmd->count].time_ms = time_ms;
			cmd->orphans[cmd->count++].inode = inode;
			continue;
		}
		if (!ss->pass.has_first)
			ss->pass.first_ms = time_ms;
		ss->pass.has_first = true;
		if (is_young)
			break;
	}
	kv_scan_end(&scan);
	ss->pass.ms = more ? time_ms : ss->pass.first_ms;
	ss->pass.inode = more ? inode : 0;
	if (!more) {
		ss->pass.has_first = false;
		ss->pass.due_ns = now_ns + METAD_CHECK_SESSIONS_MS * MS_NS;
	}
	ret_cmd->type = STATE_CMD_RELEASE;
	return cmd->count ? PLAN_COMMAND : more ? PLAN_GO_ON : PLAN_REST;
}

static void released(struct plan *plan, int status, const struct state_result *res)
{
	struct metad *md = CONTAINER_OF(plan, struct metad, sessions.release);

	if (status || !res)
		memset(&md->sessions.pass, 0, sizeof(md->sessions.pass)); /* from the oldest one on */
}

void metad__check_sessions(struct metad *md)
{
	uint64_t now_ns = io_now_ns(md->io);

	if (now_ns - md->sessions.checked_ns < METAD_CHECK_SESSIONS_MS * MS_NS)
		return;
	md->sessions.checked_ns = now_ns;
	check_silence(md, now_ns);
	forget_held(md, metad__now_ms(md));
}

void metad__sessions_start(struct metad *md)
{
	md->sessions.release = (struct plan){.name = "release", .step = release_step, .done = released};
	metad__background_add(md, &md->sessions.release);
}
