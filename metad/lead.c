/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lead: when metad serves, and what it does first and last.
 *
 *   FOLLOWS --the ledger says that it leads--> [format; one log: raise the cluster version] --> ready: requests are served, plans and timers run
 *      |                                       (again with the timer, if the ledger did not take it: it was about to hand over)
 *      ^------------------------------------- leads no longer: all that waits is refused, what was only in memory is void
 *
 * One log leads from its start to its end. In a group a request is served after the leader has asked the others whether it leads still, once for
 * all that have come meanwhile: what its rows say is then all that was acknowledged before the request came, by whichever leader. Others refuse, and
 * say who leads. A change need not wait for that: what apply answers is answered where it was submitted, in the same term, after it was committed.
 *
 * The cluster version of a group rises while it serves, when every member, learners too, has said within the last seconds that its build supports
 * more: who is not heard may come back as the build that it was. A new group begins at what all builds support that know groups, as who founds it
 * may not have heard all others yet.
 */
#include "metad/core.h"

#include <string.h>
#include "common/base/check.h"
#include "common/code/ec.h"
#include "proto/common.pb-c.h"

/* ---- requests ---- */

/* It did not take effect. Whoever asked is told whom to ask instead, if that is known. */
void metad__refuse(struct metad *md, struct rpc_req *req)
{
	struct io_addr addr = ledger_member_addr(md->ledger, md->role.leader);
	Craton__LeaderHint hint = CRATON__LEADER_HINT__INIT;
	char text[IO_ADDR_TEXT_BYTES] = "";

	if (addr.family && md->role.leader != md->options.group.id)
		io_addr_format(&addr, text);
	hint.address = text;
	rpc_reply(req, &(struct rpc_reply){.status = ERR_NOT_LEADER, .msg = &hint.base});
}

static void refuse_all(struct metad *md, struct list *list)
{
	struct rpc_req *req;

	while ((req = metad__unwait(list)))
		metad__refuse(md, req);
}

void metad__gate_fail(struct metad *md, int status)
{
	metad__fail_waiting(&md->gate, status);
	metad__fail_waiting(&md->asked, status);
}

static void admit(struct metad *md)
{
	struct rpc_req *req;

	while ((req = metad__unwait(&md->asked))) {
		md->admitted = req;
		req->handler->handle(md, req);
		CHECK(!md->admitted);
	}
}

static void ask(struct metad *md);

static void on_confirmed(struct ledger_confirm *confirm, int code)
{
	struct metad *md = CONTAINER_OF(confirm, struct metad, confirm);

	md->asking = false;
	if (code == 0 && md->ready)
		admit(md);
	else if (code == 0 || code == ERR_NOT_LEADER)
		refuse_all(md, &md->asked);
	else
		metad__fail_waiting(&md->asked, code);
	if (code == 0 || code == ERR_NOT_LEADER || code == ERR_AGAIN)
		ask(md); /* else the ledger has failed, or is closed: it says so next */
}

/* All that wait go with one question; who comes after it was asked waits for the next. */
static void ask(struct metad *md)
{
	if (!md->ready || md->failed || md->stopping || md->asking || list_empty(&md->gate))
		return;
	while (!list_empty(&md->gate))
		list_push_back(&md->asked, list_pop_front(&md->gate));
	md->confirm.done = on_confirmed;
	md->asking = !ledger_confirm(md->ledger, &md->confirm);
	if (!md->asking)
		admit(md);
}

bool metad__gate(struct metad *md, struct rpc_req *req)
{
	md->unasked = NULL;
	if (md->failed || md->stopping) {
		rpc_reply_status(req, ERR_STOPPED);
		return true;
	}
	md->background.asked += md->admitted != req && req->peer->role == RPC_ROLE_CLIENT;
	if (md->admitted == req || (md->ready && !md->options.group.id)) {
		md->admitted = NULL;
		return false;
	}
	if (!md->role.leads) {
		metad__refuse(md, req);
		return true;
	}
	metad__wait(&md->gate, req);
	ask(md);
	return true;
}

bool metad__gate_change(struct metad *md, struct rpc_req *req)
{
	if (md->admitted == req || !md->ready || md->failed || md->stopping || !md->options.group.id)
		return metad__gate(md, req);
	md->unasked = req;
	return false;
}

bool metad__ask_first(struct metad *md, struct rpc_req *req)
{
	return md->unasked == req && metad__gate(md, req);
}

/* ---- beginning ---- */

static void set_ready(struct metad *md)
{
	md->ready = true;
	ask(md);
}

static void on_formatted(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)arg;
	md->beginning = false;
	if (!res || status)
		return; /* the ledger has failed, or leads no longer, and says so; or it was handing over, and may lead on */
	log_line(md->options.log, LOG_INFO, "formatted", "policy=%s", md->options.default_policy);
	set_ready(md);
}

static void on_set(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)md, (void)arg, (void)status, (void)res;
}

static void format(struct metad *md)
{
	const struct ec_policy *policy = ec_policy_by_name(md->options.default_policy);

	md->cmd.type = STATE_CMD_FORMAT;
	md->cmd.format = (struct state_cmd_format){
		.cluster = md->options.cluster,
		.policy = {.id = policy->id,
			.cell_bytes = md->options.cell_bytes,
			.chunk_bytes = md->options.chunk_bytes},
		.now_ns = io_wall_ns(md->io),
	};
	io_random(md->io, md->cmd.format.salt, STATE_SALT_BYTES);
	CHECK(metad__submit(md, on_formatted, NULL));
	if (md->options.down_after_ms)
		CHECK(metad__config_set(md, CONFIG_SERVER_DOWN_AFTER, md->options.down_after_ms, on_set, NULL));
}

uint16_t metad__first_version(const struct metad *md)
{
	return md->options.group.id && md->options.supports > STATE_CLUSTER_UNSAID ? STATE_CLUSTER_UNSAID : md->options.supports;
}

static void log_raised(struct metad *md, void *from)
{
	log_line(md->options.log, LOG_INFO, "cluster-version-raised", "from=%u to=%u", (unsigned)(uintptr_t)from, md->state.meta.version);
}

static bool raise_version(struct metad *md, uint16_t to, metad_result_fn *fn)
{
	md->cmd.type = STATE_CMD_RAISE;
	md->cmd.raise.version = to;
	return metad__submit(md, fn, (void *)(uintptr_t)md->state.meta.version);
}

static void on_raised(struct metad *md, void *arg, int status, const struct state_result *res)
{
	md->beginning = false;
	if (!res || status)
		return; /* as above */
	log_raised(md, arg);
	set_ready(md);
}

static void on_group_raised(struct metad *md, void *arg, int status, const struct state_result *res)
{
	md->raising_to = 0;
	if (res && !status)
		log_raised(md, arg);
}

void metad__check_version(struct metad *md)
{
	struct ledger_view view;
	uint16_t to;

	/* Somebody may be about to become a member. */
	if (!md->options.group.id || md->raising_to || md->members.busy)
		return;
	ledger_view(md->ledger, &view);
	to = ledger_supported(&view);
	if (to > md->state.meta.version && raise_version(md, to, on_group_raised))
		md->raising_to = to;
}

static bool was_noted(const struct metad *md, uint64_t id)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (md->differing[i] == id)
			return true;
	return false;
}

void metad__note_differs(struct metad *md)
{
	uint64_t differing[RAFT_MEMBERS_MAX] = {0};
	struct ledger_view view;
	uint32_t count = 0;

	ledger_view(md->ledger, &view);
	for (uint32_t i = 0; i < view.count; i++) {
		const struct ledger_member *m = &view.members[i];

		if (!m->differs)
			continue;
		if (!was_noted(md, m->id))
			log_line(md->options.log, LOG_ERROR, "rows-differ", "metad=%llu after=%llu at=%llu text=\"what these entries changed there is not what they "
				"changed here; whoever differs from most stops, and until most can say who does nobody gets rows of this metad, is added, or begins to vote\"",
				(unsigned long long)m->id, (unsigned long long)m->same, (unsigned long long)m->differs);
		differing[count++] = m->id;
	}
	memcpy(md->differing, differing, sizeof(differing));
}

static void make_ready(struct metad *md)
{
	md->beginning = true;
	if (!md->state.formatted) {
		format(md);
	} else if (md->state.meta.version < (md->options.group.id ? STATE_CLUSTER_OLDEST : md->options.supports)) {
		CHECK(raise_version(md, md->options.supports, on_raised)); /* one replica is all there is, and it supports the new version */
	} else {
		md->beginning = false;
		set_ready(md);
	}
}

static void forget(struct metad *md)
{
	md->range.next = md->range.end = md->range.until_ms = 0;
	memset(&md->token_key, 0, sizeof(md->token_key));
	metad__repair_forget(md);
	metad__gc_forget(md);
	metad__fleet_forget(md);
	metad__sessions_forget(md);
	metad__scan_forget(md);
	memset(md->differing, 0, sizeof(md->differing));
}

/*
 * What a leader knows beside the rows begins anew: others may have led since it did. A group of a version whose rules this build has not is a store of
 * one metad that has just become one, and would stop at its first entry.
 */
static void begin(struct metad *md)
{
	forget(md);
	md->base_ms = md->logged_ms = md->tick_ms = md->state.meta.time_ms;
	md->gc.round = md->base_ms;
	md->base_ns = md->started_ns = io_now_ns(md->io);
	md->silence_checked_ns = 0;
	make_ready(md);
}

void metad__begin_again(struct metad *md)
{
	if (md->role.leads && !md->ready && !md->beginning)
		make_ready(md);
}

/* ---- end ---- */

static void end(struct metad *md)
{
	md->ready = false;
	refuse_all(md, &md->gate);
	refuse_all(md, &md->asked);
	refuse_all(md, &md->range.waiting);
	metad__scan_stop(md);
	metad__backup_stop(md);
	metad__batches_drop(md);
}

/* ---- what the ledger says ---- */

void metad__on_role(void *ctx, const struct ledger_role *role)
{
	struct metad *md = metad__of(ctx);
	bool led = md->role.leads;

	if (md->options.group.id && (role->leads != led || role->leader != md->role.leader))
		log_line(md->options.log, LOG_INFO, "role", "leads=%d leader=%llu term=%llu", role->leads,
			(unsigned long long)role->leader, (unsigned long long)role->term);
	md->role = *role;
	if (led && !role->leads)
		end(md);
	else if (!led && role->leads)
		begin(md);
}

void metad__on_table(void *ctx, struct kv *kv)
{
	struct metad *md = metad__of(ctx);

	CHECK(!md->role.leads && !md->backup.snapshot);
	metad__table_check_forget(md);
	if (!kv)
		state_close(&md->state);
	else if (state_open_as(&md->state, kv, md->options.supports))
		metad__fatal(md, md->state.fault.code, md->state.fault.text);
	else
		log_line(md->options.log, LOG_INFO, "snapshot-installed", "applied=%llu", (unsigned long long)ledger_applied(md->ledger));
}
