/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_status: df and status: the whole store at a glance, with reasons for whatever is not well. Every reason has
 * a code that scripts can rely on (docs/cli.md), a severity, and a line that names the culprit and what to do. error:
 * bytes cannot be read now, or nothing can be written; warn: any other reason.
 */
#include "metad/core.h"

#include <stdarg.h>
#include <stdio.h>
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/units.h"
#include "common/code/ec.h"

enum { REASONS_MAX = 64, REASON_BYTES = 320, SPACE_LOW_PERCENT = 5, REFUSED_SHOWN_S = 45 /* who is refused asks again after 30 s at most (chunkd/register.c) */, NAMED_ROWS = 16 };

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif

/* One status answer being put together. */
struct answer {
	Craton__StatusReply reply;
	Craton__DfReply df;
	Craton__BlockCounts blocks;
	Craton__SessionStatus sessions;
	Craton__RepairStatus repair;
	Craton__Refused refused[REFUSED_CAUSES], *refuseds[REFUSED_CAUSES];
	uint64_t by_margin[LIMIT_M + 1];
	Craton__Reason reason[REASONS_MAX], *reasons[REASONS_MAX];
	char text[REASONS_MAX][REASON_BYTES];
	uint32_t more; /* reasons that found no room */
	Craton__ServerStatus *server, **servers;
	Craton__DiskStatus *disk, **disks;
	uint32_t *server_disks; /* of all servers, one behind the other */
	char cluster[UUID_TEXT_BYTES];
	bool error;
};

/* What a client may write yet: on the disks that an allocation would choose from now, without the reserve for repair. */
static uint64_t available_bytes(struct metad *md)
{
	struct state_inode *root = &md->scratch->inode;
	const struct ec_policy *policy = NULL;
	uint64_t *rooms, available;
	size_t count;

	if (state_inode_get(&md->state, INODE_ROOT, root) == 0)
		policy = ec_policy_by_id(root->policy.id);
	if (!policy || ledger_is_full(md->ledger))
		return 0;
	rooms = mem_array(md->state.domain_cap + 1, sizeof(*rooms));
	count = metad__candidates(md, root->policy.chunk_bytes, true, NULL, 0);
	for (size_t i = 0; i < count; i++) {
		const struct place_disk *c = &md->candidates[i];

		if (c->free_bytes > 0 && c->domain < md->state.domain_cap)
			rooms[c->domain] += c->free_bytes - metad__disk_reserve(md, state_disk_at(&md->state, c->disk));
	}
	available = place_room(rooms, md->state.domain_cap, policy->k, policy->m);
	mem_free(rooms);
	return available;
}

void metad__fill_df(struct metad *md, Craton__DfReply *df)
{
	const struct state_meta *meta = &md->state.meta;

	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);

		if (!disk || disk->state == STATE_DISK_FAILED)
			continue;
		df->total_bytes += metad__disk_capacity(md, disk);
		df->free_bytes += metad__disk_free(md, disk, 0);
	}
	df->pending_bytes = meta->pending_bytes;
	df->file_count = meta->file_count;
	df->dir_count = meta->dir_count;
	df->file_bytes = meta->file_bytes;
	df->available_bytes = available_bytes(md);
	df->available_known = true;
}

void metad__df(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	Craton__DfReply reply = CRATON__DF_REPLY__INIT;

	if (metad__gate(md, req))
		return;
	metad__fill_df(md, &reply);
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

void metad__status(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);

	if (!metad__gate(md, req))
		metad__scan_wait(md, req);
}

__attribute__((format(printf, 4, 5))) static void reason(
	struct answer *a, const char *code, bool error, const char *fmt, ...)
{
	Craton__Reason *r = &a->reason[a->reply.n_reasons];
	va_list args;

	a->error = a->error || error;
	if (a->reply.n_reasons == REASONS_MAX) {
		a->more++;
		return;
	}
	va_start(args, fmt);
	vsnprintf(a->text[a->reply.n_reasons], REASON_BYTES, fmt, args);
	va_end(args);
	craton__reason__init(r);
	r->code = (char *)(uintptr_t)code;
	r->severity = (char *)(uintptr_t)(error ? "error" : "warn");
	r->text = a->text[a->reply.n_reasons];
	a->reasons[a->reply.n_reasons++] = r;
}

static const char *disk_state_name(const struct metad *md, const struct state_disk *disk)
{
	switch (disk->state) {
	case STATE_DISK_FAILED:
		return "failed";
	case STATE_DISK_DRAINING:
		return state_disk_counts(&md->state, disk->id) ? "draining" : "down";
	case STATE_DISK_UP:
		return "up";
	default:
		return "down";
	}
}

static void fill_disks(struct metad *md, struct answer *a)
{
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);
		Craton__DiskStatus *out = &a->disk[a->reply.n_disks];

		if (!disk)
			continue;
		craton__disk_status__init(out);
		out->disk = id;
		out->server = disk->server;
		out->path = (char *)(uintptr_t)disk->path;
		out->state = (char *)(uintptr_t)disk_state_name(md, disk);
		out->generation = disk->generation;
		out->capacity_bytes = metad__disk_capacity(md, disk);
		out->free_bytes = metad__disk_free(md, disk, 0);
		out->chunks = md->disks[id].chunks;
		out->error = (char *)(uintptr_t)(disk->error[0] ? disk->error : md->disks[id].stuck);
		a->disks[a->reply.n_disks++] = out;
	}
	a->reply.disks = a->disks;
}

static void fill_servers(struct metad *md, struct answer *a)
{
	uint32_t *next = a->server_disks;

	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);
		const struct state_domain *domain = server ? state_domain_at(&md->state, server->domain) : NULL;
		Craton__ServerStatus *out = &a->server[a->reply.n_servers];

		if (!server)
			continue;
		craton__server_status__init(out);
		out->server = id;
		out->name = (char *)(uintptr_t)server->name;
		out->address = (char *)(uintptr_t)server->address;
		out->domain = (char *)(uintptr_t)(domain ? domain->name : "");
		out->state = (char *)(uintptr_t)(server->up ? "up" : "down");
		out->silent_ms = metad__silent_ms(md, id);
		out->version = (char *)(uintptr_t)server->version;
		out->disks = next;
		for (uint32_t disk = 1; disk < md->state.disk_cap; disk++)
			if (md->state.disks[disk].id && md->state.disks[disk].server == id)
				out->disks[out->n_disks++] = disk;
		next += out->n_disks;
		a->servers[a->reply.n_servers++] = out;
	}
	a->reply.servers = a->servers;
}

static void fill_blocks(struct metad *md, struct answer *a)
{
	const struct block_counts *c = &md->scan.done;

	craton__block_counts__init(&a->blocks);
	a->blocks.full = c->full;
	a->blocks.crowded = c->crowded;
	a->blocks.degraded = c->degraded;
	a->blocks.at_risk = c->at_risk;
	a->blocks.lost = c->lost;
	memcpy(a->by_margin, c->by_margin, sizeof(a->by_margin));
	a->blocks.by_margin = a->by_margin;
	a->blocks.n_by_margin = ARRAY_COUNT(a->by_margin);
	a->reply.blocks = &a->blocks;
}

static void fill_refused(struct metad *md, struct answer *a)
{
	uint64_t now_ns = io_now_ns(md->io);

	a->reply.refused = a->refuseds;
	for (int cause = 0; cause < REFUSED_CAUSES; cause++) {
		Craton__Refused *out = &a->refused[a->reply.n_refused];

		if (!md->refused.of[cause].count)
			continue;
		craton__refused__init(out);
		out->cause = (char *)(uintptr_t)refused_name((enum refused_cause)cause);
		out->count = md->refused.of[cause].count;
		out->ago_ms = (now_ns - md->refused.of[cause].last_ns) / 1000000;
		a->refuseds[a->reply.n_refused++] = out;
	}
}

/* Why a disk that its server does not serve is not served; what was never registered is not a disk yet. */
static void reasons_troubles(struct metad *md, struct answer *a)
{
	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);

		for (uint32_t i = 0; server && server->up && i < md->servers[id].trouble_count; i++)
			reason(a, "disk-unusable", false, "%s cannot serve %s: %s", server->name,
				md->servers[id].troubles[i].path, md->servers[id].troubles[i].error);
	}
}

static void reasons_restore(struct metad *md, struct answer *a)
{
	uint64_t left_ms = state_restore_hold_ms(&md->state);
	char text[UNITS_TEXT_BYTES];

	if (left_ms)
		reason(a, "restored", false,
			"the metadata come from a backup: what was written after it is unknown here, its chunks are kept for %s",
			units_format_ns(left_ms * 1000000, text));
}

/* Who is refused is in no list of servers. */
static void reasons_refused(struct metad *md, struct answer *a)
{
	static const enum refused_cause causes[] = {REFUSED_SECRET, REFUSED_REGISTRATION};
	uint64_t now_ns = io_now_ns(md->io);

	for (size_t i = 0; i < ARRAY_COUNT(causes); i++) {
		uint64_t ago_s = (now_ns - md->refused.of[causes[i]].last_ns) / 1000000000;

		if (md->refused.of[causes[i]].count && ago_s < REFUSED_SHOWN_S)
			reason(a, "server-refused", false,
				"a chunk server, or a disk of one, is refused (%s; the last time %llu s ago): metad's log says which one and why",
				refused_name(causes[i]), (unsigned long long)ago_s);
	}
}

/* Committed rows: a disk that is away gets no new ones. Of such as are on their way out it looks at few, and says yes where there may be more. */
static bool is_named(struct metad *md, uint32_t disk)
{
	struct state_reverse_walk walk;
	bool named;

	state_reverse_begin_committed(&md->state, disk, 0, UINT64_MAX, NAMED_ROWS, &walk);
	named = state_reverse_next(&walk, &md->scratch->block_row) || walk.next < UINT64_MAX;
	state_reverse_end(&walk);
	return named;
}

/* Another one of its name is there, and nothing is missed of this one. */
static bool is_replaced(struct metad *md, uint32_t server)
{
	const char *name = state_server_at(&md->state, server)->name;
	bool replaced = false;

	for (uint32_t id = 1; id < md->state.disk_cap; id++)
		if (md->state.disks[id].id && md->state.disks[id].server == server && is_named(md, id))
			return false;
	for (uint32_t id = 1; id < md->state.server_cap && !replaced; id++) {
		const struct state_server *other = state_server_at(&md->state, id);

		replaced = other && id != server && other->up && strcmp(other->name, name) == 0;
	}
	return replaced;
}

/* Likewise of a disk: its server has another one where it was. */
static bool is_disk_replaced(struct metad *md, const struct state_disk *disk)
{
	bool replaced = false;

	for (uint32_t id = 1; id < md->state.disk_cap && !replaced; id++) {
		const struct state_disk *other = state_disk_at(&md->state, id);

		replaced = other && other->state == STATE_DISK_UP && other->server == disk->server && strcmp(other->path, disk->path) == 0;
	}
	return replaced && !is_named(md, disk->id);
}

static void reasons_fleet(struct metad *md, struct answer *a)
{
	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);

		if (server && state_in_maintenance(&md->state, id))
			reason(a, "server-maintenance", false,
				"%s (server %u at %s) is in maintenance for %llu s more%s: end it with `craton server maintenance off %s`",
				server->name, id, server->address,
				(unsigned long long)((server->maintenance_ms - md->state.meta.time_ms + 999) / 1000),
				server->up ? "" : ", and does not answer", server->name);
		else if (server && !server->up && !is_replaced(md, id))
			reason(a, "server-down", false,
				"%s (server %u at %s) does not answer: start it again, or look at its log",
				server->name, id, server->address);
	}
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);
		const struct state_server *server = disk ? state_server_at(&md->state, disk->server) : NULL;

		if (!server || (disk->state != STATE_DISK_UP && is_disk_replaced(md, disk)))
			continue;
		if (disk->state == STATE_DISK_FAILED)
			reason(a, "disk-failed", false, "disk %u (%s on %s) failed: %s", id, disk->path, server->name,
				disk->error[0] ? disk->error : "no cause given");
		else if (disk->state == STATE_DISK_DRAINING)
			reason(a, "disk-draining", false, "disk %u (%s on %s) is being emptied", id, disk->path,
				server->name);
		else if (disk->state == STATE_DISK_DOWN && server->up && !metad__trouble(md, server->id, disk->path))
			reason(a, "disk-down", false, "disk %u (%s) is not served by %s, which is up: look at its log",
				id, disk->path, server->name);
		else if (disk->state == STATE_DISK_UP && md->disks[id].stuck[0])
			reason(a, "disk-stuck", false, "disk %u (%s on %s) takes no more than fits into what it has: %s: mend that, it is tried again at most a minute later",
				id, disk->path, server->name, md->disks[id].stuck);
	}
}

/* They are given once: whoever hears of it late cannot add the disk that he needs. */
static void reasons_numbers(struct metad *md, struct answer *a)
{
	const struct state_meta *meta = &md->state.meta;

	if (meta->next_disk > LIMIT_DISKS / 8 * 7 || meta->next_server > STATE_SERVERS / 8 * 7)
		reason(a, "numbers-scarce", false,
			"%u disks and %u servers were registered in this cluster's life, of %d each: plan a new cluster before they end",
			meta->next_disk - 1, meta->next_server - 1, LIMIT_DISKS);
}

static void reasons_space(struct metad *md, struct answer *a)
{
	uint64_t full = state_config(&md->state, CONFIG_DISK_FULL), near = state_config(&md->state, CONFIG_DISK_NEAR_FULL);

	if (ledger_is_full(md->ledger))
		reason(a, "metadata-full", true, "the file system of %s is full: new files and data are refused, removing works; give it more room",
			md->options.group.id ? "so many metads that no majority is known to have room" : md->dir);
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);
		uint32_t used = disk ? metad__disk_used_percent(md, disk) : 0;

		/* One that cannot make use of its room is not full. */
		if (!disk || !state_disk_counts(&md->state, id) || md->disks[id].stuck[0])
			continue;
		if (used >= full)
			reason(a, "disk-full", false,
				"disk %u (%s) is full, %u %% are used, the rest is kept for repair: add disks or remove files",
				id, disk->path, used);
		else if (used >= near)
			reason(a, "disk-near-full", false, "disk %u (%s) is %u %% full: add disks or remove files", id,
				disk->path, used);
	}
}

static void reasons_blocks(struct metad *md, struct answer *a)
{
	const struct block_counts *c = &md->scan.done;

	if (c->lost > c->unavailable)
		reason(a, "blocks-lost", true, "%llu blocks have lost more chunks than their policy bears",
			(unsigned long long)(c->lost - c->unavailable));
	if (c->unavailable)
		reason(a, "blocks-unavailable", true,
			"%llu blocks cannot be read until servers that are down come back",
			(unsigned long long)c->unavailable);
	if (c->at_risk)
		reason(a, "blocks-at-risk", false, "%llu blocks would not survive the loss of another chunk",
			(unsigned long long)c->at_risk);
	if (c->degraded)
		reason(a, "blocks-degraded", false, "%llu blocks have fewer chunks than their policy wants",
			(unsigned long long)c->degraded);
	if (c->crowded)
		reason(a, "blocks-crowded", false, "%llu blocks have several chunks in one failure domain",
			(unsigned long long)c->crowded);
}

static void reasons_placement(struct metad *md, struct answer *a, const struct ec_policy *policy, uint64_t chunk_bytes)
{
	size_t count = metad__candidates(md, chunk_bytes, true, NULL, 0);
	struct place_result r;

	if (place_choose(md->candidates, count, policy->k, policy->m, &md->rng, &r)) {
		reason(a, "no-placement", true,
			"nothing can be written as %s: %u more failure domains with an up disk and room are needed",
			policy->name, r.missing_domains);
		return;
	}
	if (r.crowded)
		reason(a, "few-domains", false,
			"%s wants %d failure domains that can take a chunk, fewer are up: new blocks are crowded",
			policy->name, policy->k + policy->m);
	if (a->df.total_bytes && a->df.free_bytes < a->df.total_bytes / 100 * SPACE_LOW_PERCENT) {
		char free_text[UNITS_TEXT_BYTES], total_text[UNITS_TEXT_BYTES];

		reason(a, "space-low", false, "%s of %s are free: add disks or remove files",
			units_format_bytes(a->df.free_bytes, free_text),
			units_format_bytes(a->df.total_bytes, total_text));
	}
}

/* Of a group: those that this leader does not hear. */
static void reasons_group(struct metad *md, struct answer *a)
{
	struct ledger_view view;

	ledger_view(md->ledger, &view);
	for (uint32_t i = 0; i < view.count; i++) {
		const struct ledger_member *m = &view.members[i];
		char name[METAD_MEMBER_NAME_BYTES], addr[IO_ADDR_TEXT_BYTES] = "";

		metad__member_name(md, m->id, name);
		if (m->differs)
			reason(a, "metad-differs", true,
				"what log entries %llu to %llu changed on %s is not what they changed on the metad that leads: if it has stopped, replace it "
				"(docs/groups.md), else start the metads that are down, so that most can say which is right; until then nobody is added or brought up",
				(unsigned long long)m->same + 1, (unsigned long long)m->differs, name);
		if (m->state == LEDGER_MEMBER_UP && m->voter && m->stands_ms >= LEDGER_STANDS_MS)
			reason(a, "metad-lags", false,
				"%s lacks log entries and has taken none for %llu s: unless it is getting a snapshot, or its disk hangs (its log says so), replace it; one "
				"that was started with an older copy of its directory must be (docs/groups.md)",
				name, (unsigned long long)(m->stands_ms / 1000));
		if (m->room == RAFT_ROOM_NONE)
			reason(a, "metad-full", false,
				"the file system of %s is full: it stops when not a byte is left; give it more room, and take no other one down before", name);
		if (m->state != LEDGER_MEMBER_DOWN)
			continue;
		if (m->addr.family)
			io_addr_format(&m->addr, addr);
		reason(a, "metad-down", false, "%s at %s does not answer the metad that leads: start it again, or look at its log", name, addr);
	}
}

static void add_reason(void *ctx, const char *code, bool error, const char *text)
{
	reason(ctx, code, error, "%s", text);
}

static void fill_answer(struct metad *md, struct answer *a)
{
	struct state_inode *root = &md->scratch->inode;
	const struct ec_policy *policy = NULL;

	craton__status_reply__init(&a->reply);
	craton__df_reply__init(&a->df);
	a->reply.reasons = a->reasons;
	if (state_inode_get(&md->state, INODE_ROOT, root) == 0)
		policy = ec_policy_by_id(root->policy.id);
	metad__fill_df(md, &a->df);
	a->reply.df = &a->df;
	metad__sessions_status(md, &a->sessions);
	a->reply.sessions = &a->sessions;
	fill_blocks(md, a);
	fill_servers(md, a);
	fill_disks(md, a);
	fill_refused(md, a);
	reasons_blocks(md, a);
	if (policy)
		reasons_placement(md, a, policy, root->policy.chunk_bytes);
	reasons_group(md, a);
	reasons_refused(md, a);
	reasons_fleet(md, a);
	reasons_space(md, a);
	reasons_troubles(md, a);
	metad__repair_status(md, &a->repair, add_reason, a);
	a->reply.repair = &a->repair;
	reasons_restore(md, a);
	reasons_numbers(md, a);
	if (!io_addr_is_loopback(&md->options.listen))
		reason(a, "plaintext", false, "connections beyond this host are neither encrypted nor authenticated");
	uuid_format(&md->state.meta.cluster, a->cluster);
	a->reply.cluster = a->cluster;
	a->reply.state_time_ms = metad__now_ms(md);
	a->reply.applied_index = ledger_applied(md->ledger);
	a->reply.floor = md->state.meta.floor;
	a->reply.default_policy = (char *)(uintptr_t)(policy ? policy->name : "");
	a->reply.version = (char *)(uintptr_t)PACKAGE_VERSION;
	a->reply.n_settings = metad__wire_settings(md, false, &a->reply.settings);
	a->reply.health = (char *)(uintptr_t)(a->error ? "error" : a->reply.n_reasons ? "warn" : "ok");
	if (a->more)
		snprintf(a->text[REASONS_MAX - 1], REASON_BYTES, "%u more reasons like this one", a->more + 1);
}

void metad__status_answer(struct metad *md, struct rpc_req *req)
{
	struct answer *a = MEM_NEW(struct answer);
	struct err err = {0};
	int status;

	a->server = mem_array(md->state.server_cap + 1, sizeof(*a->server));
	a->servers = mem_array(md->state.server_cap + 1, sizeof(*a->servers));
	a->disk = mem_array(md->state.disk_cap + 1, sizeof(*a->disk));
	a->disks = mem_array(md->state.disk_cap + 1, sizeof(*a->disks));
	a->server_disks = mem_array(md->state.disk_cap + 1, sizeof(*a->server_disks));
	fill_answer(md, a);
	status = state_failure(&md->state, &err);
	if (status)
		metad__fatal(md, status, err.text);
	rpc_reply(req, &(struct rpc_reply){.status = status ? ERR_STOPPED : 0, .msg = status ? NULL : &a->reply.base});
	mem_free(a->server);
	mem_free(a->servers);
	mem_free(a->disk);
	mem_free(a->disks);
	mem_free(a->server_disks);
	mem_free(a);
}
