/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: see the header. One call is
 *     started -> [queue: waits for the session, and for room in the window] -> sent -> (failed on the way: backoff -> sent)* -> done
 * Its rpc call and its timer are never active at the same time.
 */
#include "client/session.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/units.h"

#define BACKOFF_BASE_NS (20ull * 1000 * 1000)
#define BACKOFF_CAP_NS (1000ull * 1000 * 1000)
/* A request that gets no answer is sent again, if it may be, rather than waited for to the end. */
#define ATTEMPT_NS (10ull * 1000 * 1000 * 1000)
/* The same where another replica can be asked instead: longer than an answer to a change of members may take (2 s). */
#define GROUP_ATTEMPT_NS (2500ull * 1000 * 1000)
#define GOODBYE_NS (2ull * 1000 * 1000 * 1000)

static void send_now(struct session_call *call);
static void drain(struct session *s);

static bool is_again(const struct session_call *call)
{
	return call->repeatable || call->id;
}

static bool may_repeat(const struct session_call *call, int status)
{
	switch (status) {
	case ERR_CONNREFUSED:
	case ERR_HOSTUNREACH:
	case ERR_NOT_LEADER:
	case ERR_OVERLOADED:
	case ERR_AGAIN:
		return true; /* it did not take effect */
	case ERR_CONNRESET:
	case ERR_TIMEDOUT:
	case ERR_PIPE:
	case ERR_STOPPED:
		return is_again(call);
	case ERR_WRONG_CLUSTER:
	case ERR_VERSION:
		return !rpc_replicas_all_strange(call->session->metads); /* it was not asked: the next one may be right */
	default:
		return false;
	}
}

/* ---- numbers ---- */

static void take_number(struct session *s, struct session_call *call)
{
	CHECK(s->id && s->next - s->low < SESSION_WINDOW);
	craton__request_id__init(&call->number);
	call->number.session = s->id;
	call->number.secret = s->secret;
	call->number.number = s->next++;
	s->unanswered |= 1ull << (call->number.number - s->low);
	*call->id = &call->number;
}

/* Nobody waits for this answer any more. */
static void give_number_back(struct session *s, struct session_call *call)
{
	if (!call->id || !call->number.session)
		return;
	if (call->number.session == s->id) {
		s->unanswered &= ~(1ull << (call->number.number - s->low));
		while (s->low < s->next && !(s->unanswered & 1)) {
			s->unanswered >>= 1;
			s->low++;
		}
	}
	call->number.session = 0;
	*call->id = NULL;
}

static void lost(struct session *s)
{
	s->id = 0;
	s->next = s->low = 1;
	s->unanswered = 0;
}

/* ---- one call ---- */

static void finish(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct session *s = call->session;

	if (status == ERR_SESSION_LOST && call->number.session == s->id)
		lost(s);
	give_number_back(s, call);
	s->waited_ns = call->timeout_ns ? call->timeout_ns : s->timeout_ns;
	call->done(call, status, msg);
	drain(s);
}

static void backoff_done(struct io_op *op)
{
	struct session_call *call = CONTAINER_OF(op, struct session_call, timer);

	if (call->canceled)
		finish(call, ERR_CANCELED, NULL);
	else if (call->id && call->number.session != call->session->id)
		finish(call, ERR_SESSION_LOST, NULL);
	else
		send_now(call);
}

static void rpc_done(struct rpc_call *rpc, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct session_call *call = CONTAINER_OF(rpc, struct session_call, rpc);
	struct session *s = call->session;
	uint64_t wait_ns;
	bool is_known = rpc_replicas_note(s->metads, call->asked, status, rpc);

	(void)payload_len;
	if (call->canceled && status < 0) {
		finish(call, ERR_CANCELED, NULL);
		return;
	}
	call->leaderless |= status == ERR_NOT_LEADER;
	/* The answer of this attempt is worth more than "timed out": keep the cause. */
	if (status < 0 && status != ERR_TIMEDOUT)
		call->last_status = status;
	wait_ns = is_known ? 0 : rng_backoff(s->rng, BACKOFF_BASE_NS, BACKOFF_CAP_NS, call->attempt++);
	if (status < 0 && !call->canceled && may_repeat(call, status) &&
		io_now_ns(s->io) + wait_ns < call->deadline_ns) {
		io_prep_timer(&call->timer, io_now_ns(s->io) + wait_ns, backoff_done);
		io_submit(s->io, &call->timer);
		return;
	}
	if (status == ERR_TIMEDOUT && call->last_status)
		status = call->last_status;
	/* Those that are gone say less than those that are there and have nobody who leads. Neither took effect. */
	if (call->leaderless && (status == ERR_CONNREFUSED || status == ERR_HOSTUNREACH))
		status = ERR_NOT_LEADER;
	finish(call, status, msg);
}

static void send_now(struct session_call *call)
{
	struct session *s = call->session;
	uint64_t attempt_ns = rpc_replicas_count(s->metads) > 1 ? rpc_replicas_patience_ns(s->metads, GROUP_ATTEMPT_NS) : ATTEMPT_NS;
	uint64_t attempt_end_ns = io_now_ns(s->io) + attempt_ns;

	if (call->id)
		call->number.unanswered = s->low;
	call->rpc = (struct rpc_call){
		.method = call->method,
		.request = call->request,
		.deadline_ns =
			is_again(call) && attempt_end_ns < call->deadline_ns ? attempt_end_ns : call->deadline_ns,
		.done = rpc_done,
	};
	call->asked = rpc_replicas_peer(s->metads);
	rpc_call_start(rpc_replicas_peer(s->metads), &call->rpc);
}

/* ---- the queue ---- */

static void queue_timer_done(struct io_op *op)
{
	struct session_call *call = CONTAINER_OF(op, struct session_call, timer);

	if (call->leaving) { /* it has its number: this was only to get rid of the timer */
		call->leaving = false;
		backoff_done(op);
		return;
	}
	if (list_linked(&call->link))
		list_remove(&call->link);
	finish(call, call->canceled ? ERR_CANCELED : call->last_status ? call->last_status : ERR_TIMEDOUT, NULL);
}

static void fail_queue(struct session *s, int status)
{
	struct list *link;

	while ((link = list_pop_front(&s->queue))) {
		struct session_call *call = LIST_ENTRY(link, struct session_call, link);

		call->last_status = status;
		if (!call->canceled)
			io_cancel(s->io, &call->timer);
	}
}

static void opened(struct session_call *own, int status, const ProtobufCMessage *msg)
{
	struct session *s = own->session;
	const Craton__SessionOpenReply *reply = (const Craton__SessionOpenReply *)msg;

	s->opening = false;
	if (status == 0 && (!reply || reply->session == 0))
		status = ERR_PROTO;
	if (status) {
		fail_queue(s, status);
	} else {
		s->id = reply->session;
		s->secret = reply->secret;
		s->next = s->low = 1;
		s->unanswered = 0;
		rpc_replicas_learn(s->metads, reply->metads, reply->n_metads);
		session_watch(s);
	}
	if (s->closing)
		s->idle(s->ctx);
}

static void open_session(struct session *s)
{
	craton__session_open_request__init(&s->request.open);
	s->request.open.name = (char *)(uintptr_t)s->name;
	s->opening = true;
	s->own = (struct session_call){
		.method = &rpc_metad_session_open,
		.request = &s->request.open.base,
		.repeatable = true, /* one that is opened twice ends by itself */
		.done = opened,
	};
	session_start(s, &s->own);
}

/* Calls leave the queue in order, when they can have a number. */
static void drain(struct session *s)
{
	if (list_empty(&s->queue))
		return;
	if (!s->id) {
		if (!s->opening && !session_call_active(&s->own))
			open_session(s);
		return;
	}
	while (!list_empty(&s->queue) && s->next - s->low < SESSION_WINDOW) {
		struct session_call *call = LIST_ENTRY(s->queue.next, struct session_call, link);

		list_remove(&call->link);
		take_number(s, call);
		call->leaving = true;
		if (!call->canceled)
			io_cancel(s->io, &call->timer);
	}
}

void session_start(struct session *session, struct session_call *call)
{
	CHECK(!session_call_active(call));
	call->session = session;
	call->deadline_ns = io_now_ns(session->io) + (call->timeout_ns ? call->timeout_ns : session->timeout_ns);
	call->attempt = 0;
	call->last_status = 0;
	call->canceled = call->leaving = call->leaderless = false;
	call->number.session = 0;
	if (!call->id) {
		send_now(call);
		return;
	}
	if (session->id && list_empty(&session->queue) && session->next - session->low < SESSION_WINDOW) {
		take_number(session, call);
		send_now(call);
		return;
	}
	list_push_back(&session->queue, &call->link);
	io_prep_timer(&call->timer, call->deadline_ns, queue_timer_done);
	io_submit(session->io, &call->timer);
	drain(session);
}

void session_cancel(struct session_call *call)
{
	if (!session_call_active(call))
		return;
	if (io_pending(&call->timer)) {
		if (!call->canceled && !call->leaving)
			io_cancel(call->session->io, &call->timer);
		call->canceled = true;
	} else {
		call->canceled = true;
		rpc_call_cancel(&call->rpc);
	}
}

bool session_call_active(const struct session_call *call)
{
	return io_pending(&call->timer) || rpc_call_active(&call->rpc);
}

/* ---- being there ---- */

static void renewed(struct session_call *own, int status, const ProtobufCMessage *msg)
{
	const Craton__SessionRenewReply *reply = (const Craton__SessionRenewReply *)msg;

	if (status == 0 && reply)
		rpc_replicas_learn(own->session->metads, reply->metads, reply->n_metads);
	if (status == ERR_SESSION_LOST && own->session->request.renew.session == own->session->id)
		lost(own->session);
	if (own->session->closing)
		own->session->idle(own->session->ctx);
}

static void renew_due(struct io_op *op)
{
	struct session *s = CONTAINER_OF(op, struct session, timer);
	Craton__SessionRenewRequest *r = &s->request.renew;
	size_t count;

	if (s->closing) {
		s->idle(s->ctx);
		return;
	}
	count = s->list_open ? s->list_open(s->ctx, s->open_inodes) : 0;
	if (!s->id && !count)
		return; /* whoever opens a file watches again */
	if (!session_call_active(&s->own)) {
		craton__session_renew_request__init(r);
		r->session = s->id;
		r->secret = s->secret;
		r->open_inodes = s->open_inodes;
		r->n_open_inodes = count;
		s->own = (struct session_call){
			.method = &rpc_metad_session_renew,
			.request = &r->base,
			.repeatable = true,
			.timeout_ns = SESSION_RENEW_NS,
			.done = renewed,
		};
		session_start(s, &s->own);
	}
	session_watch(s);
}

void session_watch(struct session *s)
{
	if (io_pending(&s->timer) || s->closing)
		return;
	if (!s->open_inodes && s->list_open)
		s->open_inodes = mem_array(LIMIT_OPEN_FILES, sizeof(*s->open_inodes));
	io_prep_timer(&s->timer, io_now_ns(s->io) + SESSION_RENEW_NS, renew_due);
	io_submit(s->io, &s->timer);
}

static void said_goodbye(struct session_call *own, int status, const ProtobufCMessage *msg)
{
	(void)status, (void)msg; /* whatever came of it: metad ends the session by itself in the end */
	lost(own->session);
	own->session->idle(own->session->ctx);
}

bool session_close(struct session *s)
{
	CHECK(list_empty(&s->queue));
	if (!s->closing && io_pending(&s->timer))
		io_cancel(s->io, &s->timer);
	if (!s->closing && session_call_active(&s->own))
		session_cancel(&s->own);
	s->closing = true;
	if (io_pending(&s->timer) || session_call_active(&s->own))
		return false;
	if (!s->id || s->close_sent)
		return true;
	s->close_sent = true;
	craton__session_close_request__init(&s->request.close);
	s->request.close.session = s->id;
	s->request.close.secret = s->secret;
	s->own = (struct session_call){
		.method = &rpc_metad_session_close,
		.request = &s->request.close.base,
		.timeout_ns = GOODBYE_NS < s->timeout_ns ? GOODBYE_NS : s->timeout_ns,
		.done = said_goodbye,
	};
	session_start(s, &s->own);
	return false;
}

void session_init(struct session *s)
{
	list_init(&s->queue);
	rpc_addrs_format(rpc_replicas_addrs(s->metads), s->addr_text);
	s->next = s->low = 1;
}

void session_fini(struct session *s)
{
	mem_free(s->open_inodes);
}

enum { PATH_SHOWN_BYTES = 250 }; /* a greatest name is */

int session_explain(const struct session *session, struct err *err, int status, const char *what, const char *path)
{
	const char *sep = path && *path ? " " : "";
	char text[UNITS_TEXT_BYTES], shown[PATH_SHOWN_BYTES + 4];

	path = path ? path : "";
	if (strlen(path) > PATH_SHOWN_BYTES) { /* else it would leave no room for the cause */
		snprintf(shown, sizeof(shown), "...%s", path + strlen(path) - PATH_SHOWN_BYTES);
		path = shown;
	}
	switch (status) {
	case ERR_CONNREFUSED:
	case ERR_HOSTUNREACH:
	case ERR_CONNRESET:
	case ERR_PIPE:
	case ERR_STOPPED:
		return err_set(err, status,
			"%s%s%s: metad at %s cannot be reached (%s): is the store up? see `craton local status`", what,
			sep, path, session->addr_text, err_text(status));
	case ERR_TIMEDOUT:
		return err_set(err, status,
			"%s%s%s: metad at %s did not answer within %s: see `craton status` and its log", what, sep,
			path, session->addr_text, units_format_ns(session->waited_ns, text));
	case ERR_NOT_LEADER:
		return err_set(err, status,
			"%s%s%s: none of the metads at %s leads: most of them must be up, and reach each other; see `craton meta ls`", what, sep, path,
			session->addr_text);
	case ERR_WRONG_CLUSTER:
		return err_set(err, status,
			"%s%s%s: metad at %s belongs to another cluster: check `cluster` and `metad` in craton.conf",
			what, sep, path, session->addr_text);
	case ERR_VERSION:
		return err_set(err, status,
			"%s%s%s: metad at %s speaks another protocol version: install the same release on both sides",
			what, sep, path, session->addr_text);
	case ERR_OPNOTSUPP:
		return err_set(err, status,
			"%s%s%s: what answers at %s knows no such request: it is no metad (check `metad` in craton.conf), or one of an older release", what, sep,
			path, session->addr_text);
	case ERR_SESSION_LOST:
		return err_set(err, status,
			"%s%s%s: metad has ended this client's session (silent for too long?): whether it was done is unknown, look before trying again",
			what, sep, path);
	case ERR_NOSPC:
		return err_set(err, status, "%s%s%s: no space left on the disks of the chunk servers: %s", what, sep, path, SESSION_ROOM_HINT);
	case ERR_META_FULL:
		return err_set(err, status,
			"%s%s%s: the disk that metad keeps its directory on is full: remove files, or give it more room", what,
			sep, path);
	case ERR_LOOP:
		return err_set(err, status,
			"%s%s%s: is a symbolic link, and those are not followed: name what it leads to", what, sep,
			path);
	case ERR_FENCED:
	case ERR_STALE:
		return err_set(err, status,
			"%s%s%s: the file was replaced or taken over by another writer: open it again", what, sep,
			path);
	default:
		return err_set(err, status, "%s%s%s: %s", what, sep, path, err_text(status));
	}
}
