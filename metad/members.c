/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members: the group of metads, for an operator: who is in it and how far each is, and what he asks of it. One thing at a time. What
 * takes longer than the client waits for one attempt is asked again, by the same client in the same words: who asks last gets the answer, and what
 * was done already is done (was_added, was_removed).
 *
 * Who leads answers from what it knows at that moment; it does not ask a majority before, as other requests do: when there is none, this is what
 * an operator looks at. For the same reason one that knows of no leader answers, too, with its own view.
 */
#include "metad/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "metad/force_plan.h"
#include "metad/replica/founding.h"

enum { TEXT_BYTES = 400 };
enum action { ACTION_SAY, ACTION_TRANSFER, ACTION_SNAPSHOT, ACTION_ADD, ACTION_REMOVE, ACTIONS };

struct answer {
	Craton__MembersReply reply;
	Craton__MemberStatus member[RAFT_MEMBERS_MAX], *members[RAFT_MEMBERS_MAX];
	char names[RAFT_MEMBERS_MAX][METAD_MEMBER_NAME_BYTES], addrs[RAFT_MEMBERS_MAX][IO_ADDR_TEXT_BYTES];
};

void metad__member_name(const struct metad *md, uint64_t id, char ret_name[METAD_MEMBER_NAME_BYTES])
{
	if (id)
		snprintf(ret_name, METAD_MEMBER_NAME_BYTES, "metad-%llu", (unsigned long long)id);
	else
		snprintf(ret_name, METAD_MEMBER_NAME_BYTES, "%.63s", md->name);
}

size_t metad__members_addrs(struct metad *md, char ***ret_addrs)
{
	struct metad_members *members = &md->members;
	struct ledger_view view;
	size_t count = 0;

	ledger_view(md->ledger, &view);
	for (uint32_t i = 0; view.id && i < view.count; i++) {
		if (view.members[i].addr.family == 0)
			continue;
		io_addr_format(&view.members[i].addr, members->texts[count]);
		members->addrs[count] = members->texts[count];
		count++;
	}
	*ret_addrs = members->addrs;
	return count;
}

/* ---- the answer ---- */

static const char *role_name(const struct ledger_view *view, const struct ledger_member *m)
{
	if (m->id == view->leader)
		return "leader";
	if (!m->voter)
		return "learner";
	if (m->id == view->id && view->role != RAFT_FOLLOWER)
		return "candidate";
	return m->id == view->id || view->role == RAFT_LEADER ? "follower" : "unknown";
}

static const char *state_name(enum ledger_member_state state)
{
	return state == LEDGER_MEMBER_UP ? "up" : state == LEDGER_MEMBER_DOWN ? "down" : "unknown";
}

static void fill_member(struct metad *md, struct answer *a, const struct ledger_view *view, uint32_t i)
{
	const struct ledger_member *m = &view->members[i];
	Craton__MemberStatus *out = &a->member[i];
	struct io_addr addr = view->id ? m->addr : metad_addr(md);

	craton__member_status__init(out);
	a->members[i] = out;
	metad__member_name(md, m->id, a->names[i]);
	if (addr.family)
		io_addr_format(&addr, a->addrs[i]);
	out->id = m->id;
	out->name = a->names[i];
	out->address = a->addrs[i];
	out->role = (char *)(uintptr_t)role_name(view, m);
	out->state = (char *)(uintptr_t)state_name(m->state);
	out->term = m->term;
	out->match = m->match;
	out->applied = m->applied;
	out->lag = m->match < view->last ? view->last - m->match : 0;
	out->silent_ms = m->silent_ms;
	out->supports = m->supports;
	out->same = m->same;
	out->differs = m->differs;
}

static void answer(struct metad *md, struct rpc_req *req, int status, const char *error)
{
	struct answer a = {0};
	struct ledger_view view;

	craton__members_reply__init(&a.reply);
	ledger_view(md->ledger, &view);
	for (uint32_t i = 0; i < view.count; i++)
		fill_member(md, &a, &view, i);
	a.reply.error = (char *)(uintptr_t)error;
	a.reply.answered_by = view.id;
	a.reply.leader = view.leader;
	a.reply.term = view.term;
	a.reply.commit = view.commit;
	a.reply.next_id = view.id ? view.next_id : founding_last_id(md->state.restore.count) + 1; /* of one alone: what its group would give */
	a.reply.cluster_version = md->state.meta.version;
	a.reply.n_members = view.count;
	a.reply.members = a.members;
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &a.reply.base});
}

/* ---- what takes time ---- */

static struct rpc_req *taken(struct metad *md)
{
	struct rpc_req *req = md->members.req;

	md->members.busy = false;
	md->members.req = NULL;
	return req;
}

static void take(struct metad *md, struct rpc_req *req)
{
	md->members.busy = true;
	md->members.req = req;
}

void metad__members_stop(struct metad *md)
{
	if (md->members.req)
		rpc_reply_status(md->members.req, ERR_STOPPED);
	md->members.req = NULL;
}

/* ---- hand-over ---- */

static void on_transferred(void *ctx, int code)
{
	struct metad *md = metad__of(ctx);
	struct rpc_req *req = taken(md);

	if (!req)
		return;
	if (code == ERR_TIMEDOUT)
		answer(md, req, ERR_BUSY, "it did not take over within a second: this metad leads on; see `craton meta ls`");
	else if (code)
		rpc_reply_status(req, code == ERR_NOT_LEADER ? ERR_AGAIN : code);
	else
		answer(md, req, 0, "");
}

/* Of a name or number of a member; 0: it is none. */
static uint64_t number_of(const char *text)
{
	static const char prefix[] = "metad-";
	uint64_t number = 0;

	if (!strncmp(text, prefix, sizeof(prefix) - 1))
		text += sizeof(prefix) - 1;
	if (!*text || strlen(text) > 18)
		return 0;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return 0;
		number = number * 10 + (uint64_t)(*text - '0');
	}
	return number;
}

/* By name, number or address, however that is written; NULL: there is none. */
static const struct ledger_member *find(const struct ledger_view *view, const char *text)
{
	uint64_t number = number_of(text);
	struct io_addr addr;
	bool is_addr = io_addr_parse(text, &addr) == 0;

	for (uint32_t i = 0; i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (number ? m->id == number : is_addr && io_addr_equal(&m->addr, &addr))
			return m;
	}
	return NULL;
}

static void transfer_to(struct metad *md, struct rpc_req *req, uint64_t to)
{
	int code = ledger_transfer(md->ledger, to, on_transferred, md);

	if (code)
		answer(md, req, code, "leadership is being handed over already: see `craton meta ls`");
	else
		take(md, req);
}

static void no_such_member(struct metad *md, struct rpc_req *req, const char *member)
{
	char text[TEXT_BYTES];

	snprintf(text, sizeof(text), "there is no metad '%.64s' in the group: `craton meta ls` has their names", member);
	answer(md, req, ERR_NOENT, text);
}

static void transfer(struct metad *md, struct rpc_req *req, const struct ledger_view *view, const char *member)
{
	const struct ledger_member *m = *member ? find(view, member) : NULL;
	char text[TEXT_BYTES];

	if (*member && !m) {
		no_such_member(md, req, member);
	} else if (m && m->id == view->id) {
		answer(md, req, 0, ""); /* as it is */
	} else if (m && !m->voter) {
		snprintf(text, sizeof(text), "%.64s is still catching up, and cannot lead yet: see `craton meta ls`", member);
		answer(md, req, ERR_INVAL, text);
	} else if (m && m->state != LEDGER_MEMBER_UP) {
		snprintf(text, sizeof(text), "%.64s does not answer: start it again, or choose another one", member);
		answer(md, req, ERR_BUSY, text);
	} else if (!m && !ledger_successor(view)) {
		answer(md, req, ERR_BUSY, "no other metad of the group answers: nobody could take over");
	} else {
		transfer_to(md, req, m ? m->id : ledger_successor(view));
	}
}

/* ---- the table ---- */

static void on_flushed(void *ctx, int code)
{
	struct metad *md = metad__of(ctx);
	struct rpc_req *req = taken(md);

	if (req && code < 0)
		rpc_reply_status(req, ERR_STOPPED);
	else if (req)
		answer(md, req, 0, "");
}

static void snapshot(struct metad *md, struct rpc_req *req)
{
	take(md, req);
	kv_flush(md->state.kv, on_flushed, md);
}

/* ---- changes of the group ---- */

static void leave(struct metad *md, struct rpc_req *req);

static void on_changed(struct ledger_change *change, int code)
{
	struct metad *md = CONTAINER_OF(change, struct metad, members.change);
	struct rpc_req *req = taken(md);

	if (code == 0 && md->members.action == ACTION_REMOVE) {
		md->members.removed.id = md->members.id;
		md->members.removed.addr = md->members.addr;
	}
	if (!req)
		return;
	if (code == ERR_BUSY && md->members.id == md->options.group.id)
		leave(md, req);
	else if (code == ERR_TIMEDOUT)
		answer(md, req, ERR_BUSY,
			"without it most of the others would not answer, and nothing could be changed any more: start those that are down, or remove them first");
	else if (code == ERR_BUSY)
		answer(md, req, code, "the last change of the group is not durable on most of it yet: try again");
	else if (code)
		rpc_reply_status(req, code);
	else
		answer(md, req, 0, "");
}

/* What stands against any change; 0: nothing. ret_text names it. */
static int unsettled(const struct ledger_view *view, char ret_text[TEXT_BYTES])
{
	for (uint32_t i = 0; i < view->count; i++) {
		if (view->members[i].voter)
			continue;
		snprintf(ret_text, TEXT_BYTES, "metad-%llu was added and is still catching up: wait until it votes (`craton meta ls`), or remove it",
			(unsigned long long)view->members[i].id);
		return ERR_BUSY;
	}
	if (!view->changes)
		return 0;
	snprintf(ret_text, TEXT_BYTES, "the last change of the group is not durable on most of it yet: try again");
	return ERR_BUSY;
}

/* The last one that was, and it is there. */
static bool was_added(const struct ledger_view *view, const struct io_addr *addr)
{
	for (uint32_t i = 0; i < view->count; i++)
		if (view->members[i].id + 1 == view->next_id && io_addr_equal(&view->members[i].addr, addr))
			return view->members[i].state != LEDGER_MEMBER_DOWN;
	return false;
}

/*
 * Numbers are given once: who had one and is no member was removed. Where it was is known of the last one only; numbers of before a
 * jump (force_plan.h) nobody may ever have had.
 */
static bool was_removed(const struct metad *md, const struct ledger_view *view, const char *text)
{
	uint64_t number = number_of(text);
	struct io_addr addr;

	if (number)
		return number == md->members.removed.id ||
			(number < view->next_id && (number - 1) / FORCE_NUMBERS == (view->next_id - 1) / FORCE_NUMBERS);
	return md->members.removed.id && io_addr_parse(text, &addr) == 0 && io_addr_equal(&md->members.removed.addr, &addr);
}

/* Whoever were added would get rows that may be wrong, and count for them. */
static int in_doubt(const struct ledger_view *view, char ret_text[TEXT_BYTES])
{
	for (uint32_t i = 0; view->doubts && i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (!m->voter || !m->differs)
			continue;
		snprintf(ret_text, TEXT_BYTES, "metad-%llu and metad-%llu, which leads, have other metadata, and which of them are right is not known: start the metads "
			"that are down, so that most can say it, or choose one, and remove the other (docs/groups.md)", (unsigned long long)m->id,
			(unsigned long long)view->id);
		return ERR_BUSY;
	}
	return 0;
}

static int check_add(const struct ledger_view *view, const struct io_addr *addr, char ret_text[TEXT_BYTES])
{
	for (uint32_t i = 0; i < view->count; i++) {
		if (!io_addr_equal(&view->members[i].addr, addr))
			continue;
		snprintf(ret_text, TEXT_BYTES, "metad-%llu of this group has that address: one that lost its directory is removed first, and comes back as metad-%llu",
			(unsigned long long)view->members[i].id, (unsigned long long)view->next_id);
		return ERR_EXIST;
	}
	if (view->count < LIMIT_METADS)
		return in_doubt(view, ret_text) ? ERR_BUSY : unsettled(view, ret_text);
	snprintf(ret_text, TEXT_BYTES, "the group has %u metads, and more make every change slower: remove one first", view->count);
	return ERR_OVERFLOW;
}

/* It could not apply the next entry, or, if the version is just being raised, one soon after. */
static bool is_too_old(const struct metad *md, uint16_t supports)
{
	return supports < md->state.meta.version || supports < md->raising_to;
}

/* Who listens there is what a member must be: then it is one. */
static void on_invited(void *ctx, int status, uint16_t supports)
{
	struct metad *md = metad__of(ctx);
	struct metad_members *members = &md->members;
	char text[TEXT_BYTES];

	if (!members->req || status == 0) {
		if (members->req && md->ready && !md->failed && is_too_old(md, supports)) {
			snprintf(text, sizeof(text),
				"the metad at that address is of an older build, which supports cluster version %u, and the cluster is at %u: start the build "
				"of the others there, then add it",
				supports, md->raising_to ? md->raising_to : md->state.meta.version);
			answer(md, taken(md), ERR_INVAL, text);
		} else if (members->req && md->ready && !md->failed) {
			members->change.done = on_changed;
			ledger_change(md->ledger, &members->change, RAFT_ADD_LEARNER, members->id, &members->addr);
		} else if (members->req) {
			metad__refuse(md, taken(md));
		} else {
			taken(md);
		}
		return;
	}
	if (status == ERR_NOENT)
		snprintf(text, sizeof(text), "the metad at that address is not the one that comes next: start it with --replica %llu --join, in a directory of its own",
			(unsigned long long)members->id);
	else if (status == ERR_EXIST)
		snprintf(text, sizeof(text), "the metad at that address has taken part in a group: start it with --replica %llu --join in an empty directory",
			(unsigned long long)members->id);
	else
		snprintf(text, sizeof(text), "no metad of this store answers at that address (%s): start one with --replica %llu --join, then add it",
			err_text(status), (unsigned long long)members->id);
	answer(md, taken(md), ERR_INVAL, text);
}

static void add(struct metad *md, struct rpc_req *req, const struct ledger_view *view, const char *address)
{
	char text[TEXT_BYTES];
	struct io_addr addr;
	int code;

	if (io_addr_parse(address, &addr) < 0 || addr.port == 0) {
		answer(md, req, ERR_INVAL, "who is to be added is named by its address, IP:PORT");
		return;
	}
	if (was_added(view, &addr)) {
		answer(md, req, 0, "");
		return;
	}
	code = check_add(view, &addr, text);
	if (code) {
		answer(md, req, code, text);
		return;
	}
	take(md, req);
	md->members.id = view->next_id;
	md->members.addr = addr;
	if (ledger_invite(md->ledger, view->next_id, &addr, on_invited, md))
		answer(md, taken(md), ERR_BUSY, "connections to earlier members are still being closed: try again");
}

/* Another leads: it is asked the same again. */
static void on_left(void *ctx, int code)
{
	struct metad *md = metad__of(ctx);
	struct rpc_req *req = taken(md);

	if (!req)
		return;
	if (code == 0)
		metad__refuse(md, req);
	else if (code == ERR_TIMEDOUT)
		answer(md, req, ERR_BUSY, "it leads, and no other metad took over within a second: try again");
	else
		rpc_reply_status(req, code);
}

/* Nobody removes himself. */
static void leave(struct metad *md, struct rpc_req *req)
{
	struct ledger_view view;
	uint64_t to;

	ledger_view(md->ledger, &view);
	to = ledger_successor(&view);
	if (!to)
		answer(md, req, ERR_BUSY, "it leads, and no other metad answers that could take over: start one again first");
	else if (ledger_transfer(md->ledger, to, on_left, md))
		answer(md, req, ERR_BUSY, "leadership is being handed over already: try again");
	else
		take(md, req);
}

static int check_remove(const struct ledger_view *view, const struct ledger_member *m, char ret_text[TEXT_BYTES])
{
	uint32_t voters = 0;

	if (!m->voter)
		return 0;
	for (uint32_t i = 0; i < view->count; i++)
		voters += view->members[i].voter;
	if (voters == 1) {
		snprintf(ret_text, TEXT_BYTES, "it is the only metad that votes: without it there is no store");
		return ERR_INVAL;
	}
	return unsettled(view, ret_text);
}

static void remove_member(struct metad *md, struct rpc_req *req, const struct ledger_view *view, const char *member)
{
	const struct ledger_member *m = find(view, member);
	char text[TEXT_BYTES];
	int code;

	if (!m && was_removed(md, view, member)) {
		answer(md, req, 0, "");
		return;
	}
	if (!m) {
		no_such_member(md, req, member);
		return;
	}
	code = check_remove(view, m, text);
	if (code) {
		answer(md, req, code, text);
	} else {
		take(md, req);
		md->members.id = m->id;
		md->members.addr = m->addr;
		md->members.change.done = on_changed;
		ledger_change(md->ledger, &md->members.change, RAFT_REMOVE, m->id, NULL);
	}
}

/* ---- requests ---- */

/* A leader answers all of it; without one only who they are is said. */
static bool is_elsewhere(const struct metad *md, const Craton__MembersRequest *msg)
{
	if (md->options.group.id == 0 || md->role.leads)
		return false;
	if (msg->action != ACTION_SAY)
		return true;
	return md->role.leader ? md->role.leader != md->options.group.id : msg->led;
}

static bool is_under_way(const struct metad_members *members, const Craton__MembersRequest *msg)
{
	return members->busy && members->req && members->action == msg->action && !strcmp(members->word, msg->member);
}

static void answer_this_one(struct metad_members *members, struct rpc_req *req)
{
	rpc_reply_status(members->req, ERR_AGAIN);
	members->req = req;
}

/* Of what is under way from here on. */
static void note(struct metad_members *members, const Craton__MembersRequest *msg)
{
	members->action = msg->action;
	snprintf(members->word, sizeof(members->word), "%s", msg->member);
}

static void act(struct metad *md, struct rpc_req *req, const Craton__MembersRequest *msg)
{
	struct ledger_view view;

	if (is_under_way(&md->members, msg)) {
		answer_this_one(&md->members, req);
		return;
	}
	ledger_view(md->ledger, &view);
	if (md->members.busy) {
		answer(md, req, ERR_BUSY, "something else is being done with the group: wait for it to end");
		return;
	}
	note(&md->members, msg);
	if (msg->action == ACTION_SNAPSHOT)
		snapshot(md, req);
	else if (!view.id)
		answer(md, req, ERR_INVAL, "this store has one metad, which is no member of a group: docs/groups.md says how it becomes one");
	else if (msg->action == ACTION_ADD)
		add(md, req, &view, msg->member);
	else if (msg->action == ACTION_REMOVE)
		remove_member(md, req, &view, msg->member);
	else
		transfer(md, req, &view, msg->member);
}

void metad__members(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__MembersRequest *msg = (const Craton__MembersRequest *)req->msg;

	if (md->failed || md->stopping)
		rpc_reply_status(req, ERR_STOPPED);
	else if (is_elsewhere(md, msg))
		metad__refuse(md, req);
	else if (msg->action == ACTION_SAY)
		answer(md, req, 0, "");
	else if (msg->action >= ACTIONS)
		answer(md, req, ERR_INVAL, "this metad does not know that request: install the same release on both sides");
	else if (!md->ready)
		rpc_reply_status(req, ERR_AGAIN);
	else
		act(md, req, msg);
}
