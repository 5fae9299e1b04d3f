/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group as a replica sees it. Who leads hears from all within two heartbeats; who follows hears from its leader alone, and says no more
 * of the others than that they belong to the group.
 *
 * How it changes: who is to be added is invited first (so that it is there, is empty, and has the number that comes next), then gets the log as a
 * learner, and is promoted by whoever leads when it has caught up. What changes who counts is submitted when most of those who will count have
 * answered a probe that left after the change was asked for: who died a second ago still seems to be up, and the group could be left without
 * a majority. Who would have to answer and does not within ASK_MS has it refused.
 *
 *     ledger_change -> asked (on_asked, on_look: again) --ledger_bears--> submitted -> done
 * A change that is let go of because another leads may come to be all the same.
 */
#include "metad/ledger.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/sometimes.h"
#include "metad/raft_codec.h"
#include "metad/raft_links.h"

enum { LOOK_MS = 200, ASK_MS = 2000, KNOCK_LOOKS = 5 };
static const uint64_t ms_ns = 1000000;

static void view_of_one(const struct ledger *l, struct ledger_view *view)
{
	uint64_t applied = ledger_applied(l);

	view->role = RAFT_LEADER;
	view->commit = view->last = view->applied = applied;
	view->count = 1;
	view->members[0] =
		(struct ledger_member){.voter = true, .state = LEDGER_MEMBER_UP, .match = applied, .applied = applied, .supports = l->options.supports};
}

static enum raft_room room_here(const struct ledger *l)
{
	struct kv *kv = replica_kv(l->replica);

	return !kv ? RAFT_ROOM_UNSAID : kv_is_full(kv) ? RAFT_ROOM_NONE : RAFT_ROOM_SOME;
}

static void see(const struct ledger *l, const struct raft_core *core, struct ledger_member *m, const struct raft_peer *peer)
{
	uint64_t heard_ns, now_ns = io_now_ns(l->io);
	struct raft_links_own own = {0};
	const struct digests_member *known;

	if (m->id == core->options.id) {
		m->state = LEDGER_MEMBER_UP;
		m->match = core->persisted;
		m->answered = UINT64_MAX;
		m->supports = l->options.supports;
		m->term = core->term;
		m->applied = replica_applied(l->replica);
		m->room = room_here(l);
		return;
	}
	if (l->links)
		own = raft_links_own(l->links, m->id);
	m->supports = own.supports;
	m->term = own.term;
	m->applied = own.applied;
	m->room = own.room;
	known = digests_member(&l->digests, m->id);
	if (known && known->differs) {
		m->same = known->agreed;
		m->differs = known->differs;
	}
	heard_ns = l->links ? raft_links_heard_ns(l->links, m->id) : 0;
	if (core->role == RAFT_LEADER) {
		m->owes = digests_owes(&l->digests, m->id);
		m->match = peer->match;
		m->answered = peer->read_seq;
		heard_ns = heard_ns > l->leads_since_ns ? heard_ns : l->leads_since_ns;
	}
	m->silent_ms = heard_ns ? (now_ns - heard_ns) / ms_ns : 0;
	if (heard_ns && m->silent_ms < LEDGER_SILENT_MS)
		m->state = LEDGER_MEMBER_UP;
	else if (core->role == RAFT_LEADER)
		m->state = LEDGER_MEMBER_DOWN;
}

void ledger_view(const struct ledger *l, struct ledger_view *view)
{
	const struct raft_core *core = l->replica ? replica_core(l->replica) : NULL;

	*view = (struct ledger_view){.id = l->group.id};
	if (!l->group.id) {
		view_of_one(l, view);
		return;
	}
	if (!core)
		return;
	view->leader = core->leader;
	view->term = core->term;
	view->commit = core->commit;
	view->last = core->last_index;
	view->applied = replica_applied(l->replica);
	view->role = core->role;
	view->changes = core->config.index > core->commit;
	view->stands = ledger__rows_stand(l);
	view->doubts = core->role == RAFT_LEADER && ledger__digest_doubts(l);
	view->next_id = core->config.last_id + 1;
	view->count = core->config.count;
	for (uint32_t i = 0; i < view->count; i++) {
		const struct raft_member *member = &core->config.members[i];

		view->members[i] = (struct ledger_member){
			.id = member->id, .voter = member->voter, .addr = ledger_member_addr(l, member->id)};
		see(l, core, &view->members[i], &core->peers[i]);
		if (core->role == RAFT_LEADER && l->stood[i].id == member->id && l->stood[i].match == view->members[i].match && l->stood[i].match < view->commit)
			view->members[i].stands_ms = (io_now_ns(l->io) - l->stood[i].since_ns) / ms_ns;
	}
}

uint64_t ledger_successor(const struct ledger_view *view)
{
	const struct ledger_member *best = NULL;

	for (uint32_t i = 0; i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (m->id != view->id && m->voter && m->state == LEDGER_MEMBER_UP && (!best || m->match > best->match))
			best = m;
	}
	return best ? best->id : 0;
}

static const struct ledger_member *self_of(const struct ledger_view *view)
{
	for (uint32_t i = 0; i < view->count; i++)
		if (view->members[i].id == view->id)
			return &view->members[i];
	return NULL;
}

uint64_t ledger_relief(const struct ledger_view *view)
{
	const struct ledger_member *self = self_of(view), *best = NULL;
	bool full = self && self->room == RAFT_ROOM_NONE;

	for (uint32_t i = 0; (full || view->stands) && i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (m->id == view->id || !m->voter || m->state != LEDGER_MEMBER_UP || m->match < view->commit || m->differs)
			continue;
		if (view->stands ? m->applied <= view->applied : m->room != RAFT_ROOM_SOME)
			continue;
		if (!best || m->applied > best->applied)
			best = m;
	}
	return best ? best->id : 0;
}

bool ledger_has_room(const struct ledger_view *view)
{
	uint32_t voters = 0, have = 0;

	for (uint32_t i = 0; i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		voters += m->voter;
		have += m->voter && m->state == LEDGER_MEMBER_UP && m->room != RAFT_ROOM_NONE;
	}
	return have >= voters / 2 + 1;
}

uint16_t ledger_supported(const struct ledger_view *view)
{
	uint16_t least = view->count ? UINT16_MAX : 0;

	for (uint32_t i = 0; i < view->count; i++)
		if (view->members[i].supports < least)
			least = view->members[i].supports;
	return least;
}

uint64_t ledger_promotes(const struct ledger_view *view, uint64_t before)
{
	for (uint32_t i = 0; !view->changes && !view->doubts && i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (!m->voter && m->state == LEDGER_MEMBER_UP && m->match > 0 && m->match >= before && !m->owes && !m->differs)
			return m->id;
	}
	return 0;
}

bool ledger_bears(const struct ledger_view *view, enum raft_change what, uint64_t id, uint64_t since, uint64_t had)
{
	uint32_t voters = 0, answered = 0;

	for (uint32_t i = 0; i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];
		bool is_it = m->id == id, answers = m->answered >= since && m->match >= had;

		if (is_it && what == RAFT_REMOVE && !m->voter)
			return true;
		if (is_it && what == RAFT_PROMOTE && !answers)
			return false;
		if (is_it ? what == RAFT_REMOVE : !m->voter)
			continue;
		voters++;
		answered += answers;
	}
	return answered >= voters / 2 + 1;
}

/* ---- changes ---- */

int ledger_invite(struct ledger *l, uint64_t id, const struct io_addr *addr, raft_links_invited_fn *done, void *ctx)
{
	CHECK(l->group.id && l->links);
	return raft_links_invite(l->links, &(const struct raft_links_place){id, *addr}, done, ctx);
}

static void on_change_done(struct replica_submit *submit, int code)
{
	struct ledger_change *change = CONTAINER_OF(submit, struct ledger_change, submit);

	list_remove(&change->link);
	change->done(change, code);
}

/* From the first change on the log says of each where it is. */
static uint32_t known_members(const struct ledger *l, struct ledger_change *change, uint64_t id, const struct io_addr *addr)
{
	const struct raft_core *core = replica_core(l->replica);
	uint32_t count = 0;

	for (uint32_t i = 0; core && i < core->config.count; i++) {
		struct io_addr at = ledger_member_addr(l, core->config.members[i].id);

		change->known[count] = (struct raft_member){.id = core->config.members[i].id};
		raft_place_set(change->known[count++].place, &at);
	}
	if (!addr)
		return count;
	change->known[count] = (struct raft_member){.id = id};
	raft_place_set(change->known[count++].place, addr);
	return count;
}

static void submit(struct ledger *l, struct ledger_change *change)
{
	change->asks = false;
	if (replica_submit(l->replica, &change->submit) != 0)
		CHECK_UNREACHABLE(); /* they are few; one that has failed says so by on_stop */
}

static void submit_borne(struct ledger *l)
{
	struct ledger_view view;

	ledger_view(l, &view);
	LIST_FOREACH(it, &l->changes) {
		struct ledger_change *change = LIST_ENTRY(it, struct ledger_change, link);

		if (change->asks && ledger_bears(&view, change->submit.change, change->submit.member, change->since, change->had))
			submit(l, change);
	}
}

/* Most of who counts now has answered; the others may a little later. */
static void on_asked(struct replica_read *read, int code)
{
	struct ledger *l = CONTAINER_OF(read, struct ledger, ask);

	l->asking = false;
	if (code == 0 && l->role.leads && !l->closing)
		submit_borne(l);
}

static void ask(struct ledger *l)
{
	if (l->asking)
		return;
	l->ask = (struct replica_read){.done = on_asked, .asks_all = true};
	l->asking = replica_read(l->replica, &l->ask) == 0;
}

void ledger_change(struct ledger *l, struct ledger_change *change, enum raft_change what, uint64_t id, const struct io_addr *addr)
{
	CHECK(l->group.id && l->role.leads);
	change->ledger = l;
	change->submit = (struct replica_submit){.change = what, .member = id, .known = change->known, .done = on_change_done};
	change->submit.known_count = known_members(l, change, id, addr);
	change->asks = what == RAFT_PROMOTE || what == RAFT_REMOVE;
	change->since = replica_core(l->replica)->read_seq + 1; /* of the next probe that leaves */
	change->had = replica_core(l->replica)->commit;
	change->until_ns = io_now_ns(l->io) + ASK_MS * ms_ns;
	list_push_back(&l->changes, &change->link);
	if (change->asks)
		ask(l);
	else
		submit(l, change);
}

static struct ledger_change *overdue(struct ledger *l)
{
	LIST_FOREACH(it, &l->changes) {
		struct ledger_change *change = LIST_ENTRY(it, struct ledger_change, link);

		if (change->asks && io_now_ns(l->io) >= change->until_ns)
			return change;
	}
	return NULL;
}

/* A letter may be lost, and who answers may be slow. */
static void ask_again(struct ledger *l)
{
	struct ledger_change *change;

	submit_borne(l);
	while ((change = overdue(l))) {
		list_remove(&change->link);
		change->done(change, ERR_TIMEDOUT);
	}
	LIST_FOREACH(it, &l->changes)
		if (LIST_ENTRY(it, struct ledger_change, link)->asks)
			ask(l);
}

static void let_go(struct ledger *l, struct ledger_change *change)
{
	int code = change->submit.index ? ERR_STOPPED : ERR_NOT_LEADER;

	if (!change->asks)
		replica_withdraw(l->replica, &change->submit);
	list_remove(&change->link);
	change->done(change, code);
}

/* ---- those that catch up ---- */

/* It is tried again with the next look, whatever came of it. */
static void on_promoted(struct ledger_change *change, int code)
{
	(void)code;
	change->ledger->promoting = false;
}

static void promote(struct ledger *l, const struct ledger_view *view)
{
	uint64_t id = l->promoting ? 0 : ledger_promotes(view, l->look_last);

	l->look_last = view->last;
	if (!id)
		return;
	l->promoting = true;
	l->promotion.done = on_promoted;
	SOMETIMES(group_learner_promoted);
	ledger_change(l, &l->promotion, RAFT_PROMOTE, id, NULL);
}

/* ---- those that are elsewhere ---- */

static void on_moved(struct ledger_change *change, int code)
{
	(void)code;
	change->ledger->moving = false;
}

/* What the log says wrong is said anew; what it does not say yet, the next change says. */
static void correct(struct ledger *l, const struct ledger_view *view)
{
	const struct raft_core *core = replica_core(l->replica);
	struct io_addr addr;

	for (uint32_t i = 0; !l->moving && !view->changes && i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (!raft_place_get(core->config.members[i].place, &addr) || io_addr_equal(&addr, &m->addr))
			continue;
		l->moving = true;
		l->move.done = on_moved;
		ledger_change(l, &l->move, RAFT_MOVE, m->id, NULL);
	}
}

/* Who has no leader, or leads and does not hear all, says where it is at one of the places that the configuration names, at each in turn. */
static void knock(struct ledger *l, const struct ledger_view *view)
{
	const struct rpc_addrs *places = &l->group.members;
	uint64_t ids[RAFT_MEMBERS_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < view->count && (!view->leader || l->role.leads); i++)
		if (view->members[i].id != view->id && view->members[i].state != LEDGER_MEMBER_UP)
			ids[count++] = view->members[i].id;
	if (count == 0 || places->count == 0) {
		raft_links_knock(l->links, NULL, NULL, 0);
		return;
	}
	if (l->knocks++ % KNOCK_LOOKS == 0)
		raft_links_knock(l->links, &places->addrs[l->knocks / KNOCK_LOOKS % places->count], ids, count);
}

/* ---- those that do not come on ---- */

/* One that was started with an older copy of its directory refuses what follows on what it has acknowledged, and nothing else shows it. */
static void note_standing(struct ledger *l, const struct ledger_view *view)
{
	for (uint32_t i = 0; i < view->count; i++) {
		const struct ledger_member *m = &view->members[i];

		if (l->stood[i].id == m->id && l->stood[i].match == m->match && m->match < view->commit && m->state == LEDGER_MEMBER_UP)
			continue;
		l->stood[i].id = m->id;
		l->stood[i].match = m->match;
		l->stood[i].since_ns = io_now_ns(l->io);
	}
}

/* ---- a leader that had best not lead ---- */

/* Of ledger->rows: looked at as often as this looks, and waited for as long as for the log. */
static const struct raft_options pace = {.heartbeat_ms = LOOK_MS, .election_ms = LEDGER_ELECTION_MS};

bool ledger__rows_stand(const struct ledger *l)
{
	return stall_hangs(&l->rows, &pace);
}

static void look_at_rows(struct ledger *l)
{
	const struct raft_core *core = replica_core(l->replica);
	uint64_t applied = replica_applied(l->replica), to;

	if (!core)
		return;
	to = core->commit < core->persisted ? core->commit : core->persisted;
	stall_look(&l->rows, &pace, io_now_ns(l->io) / ms_ns, replica_kv(l->replica) && applied < to, 0, applied);
	raft_links_say_room(l->links, room_here(l));
}

/* It leads on, or does not: the next look sees. */
static void relieved(void *ctx, int code)
{
	(void)ctx, (void)code;
}

static void relieve(struct ledger *l, const struct ledger_view *view)
{
	uint64_t to = view->role == RAFT_LEADER ? ledger_relief(view) : 0, now_ns = io_now_ns(l->io);

	l->has_room = ledger_has_room(view);
	l->has_relief = to != 0;
	if (!to || l->resigned || l->handing.done || (!view->stands && now_ns < l->leads_since_ns + LEDGER_FULL_MS * ms_ns))
		return;
	if (!view->stands)
		SOMETIMES(group_leader_full);
	(void)replica_transfer(l->replica, to, relieved, l); /* else there is one under way */
}

/* ---- looks ---- */

static void arm(struct ledger *l);

static void on_look(struct io_op *op)
{
	struct ledger *l = CONTAINER_OF(op, struct ledger, look);
	struct ledger_view view;

	if (l->closing) {
		ledger__group_quiet(l);
		return;
	}
	if (op->result)
		return;
	if (l->role.leads)
		ask_again(l);
	ledger__digest_look(l);
	look_at_rows(l);
	ledger_view(l, &view);
	relieve(l, &view);
	if (l->role.leads) {
		note_standing(l, &view);
		promote(l, &view);
		correct(l, &view);
	}
	knock(l, &view);
	arm(l);
}

static void arm(struct ledger *l)
{
	io_prep_timer(&l->look, io_now_ns(l->io) + LOOK_MS * ms_ns, on_look);
	io_submit(l->io, &l->look);
}

void ledger__members_start(struct ledger *l)
{
	l->look_last = UINT64_MAX;
	arm(l);
}

void ledger__members_role(struct ledger *l)
{
	while (!l->role.leads && !list_empty(&l->changes))
		let_go(l, LIST_ENTRY(l->changes.next, struct ledger_change, link));
	if (!l->role.leads)
		l->look_last = UINT64_MAX;
	memset(l->stood, 0, sizeof(l->stood));
	l->has_room = l->has_relief = false; /* until the next look ledger_is_full looks itself */
}

void ledger__members_close(struct ledger *l)
{
	l->closing = true;
	if (io_pending(&l->look))
		io_cancel(l->io, &l->look);
}

/* ---- hand-over ---- */

int ledger_transfer(struct ledger *l, uint64_t to, void (*done)(void *ctx, int code), void *ctx)
{
	CHECK(l->group.id && l->role.leads);
	return replica_transfer(l->replica, to, done, ctx);
}
