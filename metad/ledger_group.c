/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica of a group, and the links that its letters go over.
 *
 * Who leads no longer lets go of what it has submitted: entries that were not taken never will be; the others may still be committed by
 * who leads next, and only their sessions know (metad/state/session.h). So nobody waits for a replica that nobody hears.
 */
#include "metad/ledger.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "metad/core.h"
#include "metad/raft_links.h"
#include "metad/replica/stall.h"

enum {
	HEARTBEAT_MS = 100,
	HAND_OVER_TRIES = 2, /* each ends within two election timeouts */
	MESSAGE_BYTES = 512 << 10,
	INFLIGHT_BYTES = 4 << 20,
	CACHE_BYTES = 16 << 20,
};
#define KEEP_BYTES ((uint64_t)256 << 20) /* of the log: who was away for less gets entries, not a snapshot */

int ledger__no_replica(const char *dir, struct err *err)
{
	return err_set(err, ERR_NOENT,
		"%s holds no replica. If it was lost, it must not come back under its number, as it has forgotten what it acknowledged: craton meta remove "
		"that one, and start one under the next number with --join, to be added (docs/groups.md, Growing). Of a new store, start it with --found, once", dir);
}

/* ---- who is where ---- */

static struct io_addr founder_addr(const struct ledger *l, uint64_t id)
{
	return id >= 1 && id <= l->group.members.count ? l->group.members.addrs[id - 1] : (struct io_addr){0};
}

static struct io_addr addr_of(const struct ledger *l, const struct raft_member *member)
{
	struct io_addr addr;

	return raft_place_get(member->place, &addr) ? addr : founder_addr(l, member->id);
}

const struct replica_counts *ledger_counts(const struct ledger *l)
{
	return l->replica ? replica_counts(l->replica) : NULL;
}

const struct raft_links_counts *ledger_link_counts(const struct ledger *l)
{
	return l->links ? raft_links_counts(l->links) : NULL;
}

uint64_t ledger_contradictions(const struct ledger *l)
{
	const struct raft_core *core = l->replica ? replica_core(l->replica) : NULL;

	return core ? core->refused : 0; /* who founds a group has none for a while */
}

uint64_t ledger_dropped(const struct ledger *l)
{
	const struct raft_core *core = l->replica ? replica_core(l->replica) : NULL;

	return core ? core->gone : 0;
}

/* Of this one what its configuration says, of others what they say themselves, else what the log does. */
struct io_addr ledger_member_addr(const struct ledger *l, uint64_t id)
{
	const struct raft_core *core = l->replica ? replica_core(l->replica) : NULL;
	struct io_addr addr;

	for (uint32_t i = 0; core && i < core->config.count; i++) {
		if (core->config.members[i].id != id)
			continue;
		if (id == l->group.id && l->own.family)
			return l->own;
		return l->links && raft_links_said(l->links, id, &addr) ? addr : addr_of(l, &core->config.members[i]);
	}
	return (struct io_addr){0};
}

static void on_config(void *ctx, const struct raft_config *config)
{
	struct ledger *l = ctx;
	struct raft_links_place places[RAFT_MEMBERS_MAX];

	for (uint32_t i = 0; i < config->count; i++)
		places[i] = (struct raft_links_place){config->members[i].id, addr_of(l, &config->members[i])};
	raft_links_set(l->links, places, config->count);
}

/* Once. One that was, and has heard nothing since, may be invited again. */
static int on_invited(void *ctx, bool now)
{
	struct ledger *l = ctx;
	const struct raft_core *core = replica_core(l->replica);

	if (!l->waits || l->closing || (core && (core->term || core->last_index)))
		return ERR_EXIST;
	if (now)
		raft_links_attach(l->links, l->replica);
	return 0;
}

/* ---- letters ---- */

static void on_send(void *ctx, const struct raft_message *message, const struct replica_body *bodies, uint32_t count)
{
	raft_links_send(((struct ledger *)ctx)->links, message, bodies, count);
}

static void on_ask(void *ctx, uint64_t to, const struct replica_ask *ask)
{
	raft_links_ask(((struct ledger *)ctx)->links, to, ask);
}

static void on_part(void *ctx, uint64_t to, const struct replica_part *part)
{
	raft_links_part(((struct ledger *)ctx)->links, to, part);
}

void ledger_handle_raft(struct ledger *l, struct rpc_req *req)
{
	if (l->links)
		raft_links_handle(l->links, req);
	else
		rpc_reply_status(req, ERR_NOENT); /* one log: it is no replica */
}

/* ---- entries ---- */

/* The entry that is being applied, if it was submitted here, by this very leadership. */
static struct ledger_entry *entry_of(struct ledger *l, uint64_t index, uint64_t term)
{
	LIST_FOREACH(it, &l->entries) {
		struct ledger_entry *entry = LIST_ENTRY(it, struct ledger_entry, link);

		if (entry->submit.index == index && entry->submit.term == term)
			return entry;
	}
	return NULL;
}

static int on_apply(
	void *ctx, struct kv *kv, uint64_t index, uint64_t term, enum body_kind kind, struct slice data, struct err *err)
{
	struct ledger *l = ctx;
	int rc = kind == BODY_COMMANDS ? l->options.apply(l->options.ctx, kv, data, entry_of(l, index, term), err) : 0;

	if (!rc)
		ledger__digest_applied(l, index);
	return rc;
}

static uint64_t on_rows(void *ctx, enum body_kind kind, struct slice data)
{
	struct ledger *l = ctx;

	return kind == BODY_COMMANDS ? l->options.rows(l->options.ctx, data) : 0;
}

/* It will never be applied if it was not taken; else nobody knows. */
static int code_of(const struct ledger_entry *entry)
{
	return entry->submit.index ? ERR_STOPPED : ERR_NOT_LEADER;
}

/* Whatever has failed here is no answer to who asked: the others go on, and it is for the next leader to say. */
static void on_submit_done(struct replica_submit *submit, int code)
{
	struct ledger_entry *entry = CONTAINER_OF(submit, struct ledger_entry, submit);

	list_remove(&entry->link);
	if (code == ERR_CANCELED) /* another entry has its place */
		code = ERR_NOT_LEADER;
	else if (code)
		code = code_of(entry);
	entry->done(entry, code);
}

static void let_go(struct ledger *l, struct ledger_entry *entry)
{
	replica_withdraw(l->replica, &entry->submit);
	list_remove(&entry->link);
	if (entry->submit.index)
		SOMETIMES(group_entry_in_doubt);
	entry->done(entry, code_of(entry));
}

void ledger__group_submit(struct ledger *l, struct ledger_entry *entry)
{
	entry->submit = (struct replica_submit){.data = entry->data, .done = on_submit_done};
	list_push_back(&l->entries, &entry->link);
	/* They are bounded by who submits (METAD_BATCHES), far below what a replica takes; one that has failed says so by on_stop. */
	if (replica_submit(l->replica, &entry->submit) != 0)
		CHECK_UNREACHABLE();
}

/* ---- what the replica says ---- */

static void on_role(void *ctx, const struct replica_role *role)
{
	struct ledger *l = ctx;

	if (l->resigned)
		return;
	if (role->role == RAFT_LEADER && (l->role.leader != l->group.id || l->role.term != role->term))
		l->leads_since_ns = io_now_ns(l->io);
	l->role = (struct ledger_role){.leads = role->ready, .leader = role->leader, .term = role->term};
	l->options.on_role(l->options.ctx, &l->role);
	while (!l->role.leads && !list_empty(&l->entries))
		let_go(l, LIST_ENTRY(l->entries.next, struct ledger_entry, link));
	ledger__members_role(l);
}

void ledger__group_resign(struct ledger *l)
{
	on_role(l, &(const struct replica_role){.term = l->role.term});
	l->resigned = true;
}

/* Whatever it was for: it may have failed. */
static void on_other_hand_over(void *ctx)
{
	struct ledger *l = ctx;

	if (!ledger__group_hand_over(l))
		l->handing.done(l->handing.ctx);
}

/* To another one if the first did not take it: it may be dead, and not be missed yet. */
static void on_handed(void *ctx, int code)
{
	struct ledger *l = ctx;

	if (code != ERR_TIMEDOUT || !ledger__group_hand_over(l))
		l->handing.done(l->handing.ctx);
}

bool ledger__group_hand_over(struct ledger *l)
{
	const struct raft_core *core = replica_core(l->replica);

	if (!core || core->role != RAFT_LEADER)
		return false;
	if (replica_transfer_await(l->replica, on_other_hand_over, l))
		return true;
	if (l->handing.tries++ == HAND_OVER_TRIES)
		return false;
	l->handing.to = stall_successor(core, 0, l->handing.to);
	return l->handing.to && replica_transfer(l->replica, l->handing.to, on_handed, l) == 0;
}

static void on_table(void *ctx, struct kv *kv)
{
	struct ledger *l = ctx;

	ledger__digest_begin(l);
	l->options.on_table(l->options.ctx, kv);
}

static bool on_withholds(void *ctx)
{
	return ledger__digest_doubts(ctx);
}

static void on_stop(void *ctx, int code, const char *text)
{
	struct ledger *l = ctx;

	l->failed = true;
	l->role.leads = false;
	l->options.on_fatal(l->options.ctx, code, text);
}

/* ---- confirmations ---- */

static void on_read_done(struct replica_read *read, int code)
{
	struct ledger_confirm *confirm = CONTAINER_OF(read, struct ledger_confirm, read);

	if (code && code != ERR_NOT_LEADER && code != ERR_AGAIN)
		code = ERR_STOPPED; /* as of entries */
	confirm->done(confirm, code);
}

bool ledger_confirm(struct ledger *l, struct ledger_confirm *confirm)
{
	if (!l->group.id)
		return true;
	confirm->read = (struct replica_read){.done = on_read_done};
	if (replica_read(l->replica, &confirm->read) != 0)
		CHECK_UNREACHABLE(); /* there is one at a time, of a replica that lives */
	return false;
}

/* ---- life ---- */

static void members(const struct ledger *l, struct raft_config *config)
{
	*config = (struct raft_config){.index = 1, .count = l->group.members.count, .last_id = l->group.members.count};
	for (uint32_t i = 0; i < l->group.members.count; i++)
		config->members[i] = (struct raft_member){.id = i + 1, .voter = true};
}

/* An address that this replica listens on and that its configuration names is where others find it. One of them alone may be for this host only. */
static struct io_addr own_addr(const struct ledger *l)
{
	for (uint32_t i = 0; i < l->group.members.count; i++)
		if (io_addr_equal(&l->group.members.addrs[i], &l->options.listen))
			return l->options.listen;
	return (struct io_addr){0};
}

static void on_said(void *ctx, uint64_t from, const struct digests_mark *digest)
{
	ledger__digest_said(ctx, from, digest);
}

static uint16_t on_version(void *ctx)
{
	const struct ledger *l = ctx;

	return l->options.version(l->options.ctx);
}

static void open_links(struct ledger *l)
{
	const struct raft_links_options o = {.self = l->options.self,
		.id = l->group.id,
		.secret = l->secret,
		.transform = l->options.transform,
		.own = l->own,
		.supports = l->options.supports,
		.invited = on_invited,
		.founder = ledger__founders_said,
		.said = on_said,
		.version = on_version,
		.ctx = l};

	l->links = raft_links_new(l->io, &o);
}

int ledger__group_open(struct ledger *l, struct err *err)
{
	uint64_t segment_bytes = l->options.segment_bytes;
	struct replica_options o = {
		.raft = {.id = l->group.id,
			.heartbeat_ms = HEARTBEAT_MS,
			.election_ms = LEDGER_ELECTION_MS,
			.message_bytes = MESSAGE_BYTES,
			.inflight_bytes = INFLIGHT_BYTES},
		.dir = l->options.dir,
		.segment_bytes = segment_bytes,
		.buffered = l->options.buffered,
		.kv = {.backend = l->options.backend,
			.derived = &state_reverse,
			.room_bytes = METAD_ROOM_BYTES,
			.spare_bytes = 2 * (segment_bytes ? segment_bytes : WAL_SEGMENT_BYTES_DEFAULT)},
		.growth_bytes = METAD_ENTRY_GROWTH_BYTES,
		.rows = on_rows,
		.keep_bytes = segment_bytes && 4 * segment_bytes < KEEP_BYTES ? 4 * segment_bytes : KEEP_BYTES,
		.cache_bytes = CACHE_BYTES,
		.send = on_send,
		.apply = on_apply,
		.ask = on_ask,
		.part = on_part,
		.on_table = on_table,
		.withholds = on_withholds,
		.on_role = on_role,
		.on_config = on_config,
		.on_stop = on_stop,
		.ctx = l,
	};
	struct raft_config config;
	int rc;

	if (l->options.keep_bytes)
		o.keep_bytes = l->options.keep_bytes;
	CHECK(l->group.members.count <= LIMIT_METADS && (!l->group.found || l->group.id <= l->group.members.count));
	members(l, &config);
	o.found = l->group.found ? &config : NULL;
	memcpy(o.cluster, l->options.cluster.bytes, sizeof(o.cluster));
	io_random(l->io, &o.raft.seed, sizeof(o.raft.seed));
	rc = ledger__digest_check(l, err);
	if (!rc)
		rc = replica_open(l->io, &o, &l->replica, err);
	if (rc)
		return rc;
	if (l->group.found && replica_was_led(l->replica)) {
		replica_abandon(l->replica);
		return err_set(err, ERR_EXIST, "%s holds a replica already: start it without --found, which would make it anew if it lost its directory", l->options.dir);
	}
	ledger__digest_begin(l);
	l->waits = replica_is_blank(l->replica);
	rc = l->waits && !l->group.join ? ledger__no_replica(l->options.dir, err) : ledger__founders_open(l, err);
	if (rc)
		replica_abandon(l->replica);
	return rc;
}

void ledger__group_abandon(struct ledger *l)
{
	replica_abandon(l->replica);
}

void ledger__group_start(struct ledger *l)
{
	l->own = own_addr(l);
	ledger__digest_room(l);
	open_links(l);
	ledger__members_start(l);
	if (l->founding.waits) {
		struct raft_config config;

		members(l, &config);
		on_config(l, &config);
	}
	if (ledger__founders_wait(l))
		return;
	if (!l->waits)
		raft_links_attach(l->links, l->replica);
	replica_start(l->replica);
}

bool ledger_waits(const struct ledger *l)
{
	return l->waits;
}

static void on_links_closed(void *ctx)
{
	struct ledger *l = ctx;

	l->links_closed = true;
	ledger__group_quiet(l);
}

void ledger__group_quiet(struct ledger *l)
{
	if (l->links_closed && !io_pending(&l->look) && ledger__founders_quiet(l))
		ledger__finish_close(l);
}

static void on_replica_closed(void *ctx, int code)
{
	struct ledger *l = ctx;

	l->close_code = code;
	raft_links_close(l->links, on_links_closed, l);
}

void ledger__group_close(struct ledger *l)
{
	ledger__members_close(l);
	ledger__founders_close(l);
	raft_links_attach(l->links, NULL);
	replica_close(l->replica, on_replica_closed, l);
}
