/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_gc: garbage, as chunk servers and operators see it: orders to drop copies, inventories, `craton gc`.
 *
 * Orders are the drop rows of a disk whose grace has passed; a server asks for them when its heartbeat's reply says that
 * there may be some, and reports what it has dropped, durably, with its next question. Nothing is remembered of who was
 * told what: a row stays until its copy is reported gone.
 *
 * An inventory is checked in slices of at most METAD_SCAN_ROWS rows, and only below the floor. Ranges whose digests
 * differ are sent copy by copy: a copy that no row names becomes a drop row by a command (which looks again); a copy
 * that a row names and that was not in the list is asked for once more, as it may have come after the list was made,
 * and then marked missing by a command. What cannot be an honest inventory is refused and counted.
 */
#include "metad/core.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/inventory.h"
#include "common/rpc/auth.h"

_Static_assert((int)METAD_SCAN_ROWS > (int)INVENTORY_RANGE_BLOCKS, "a turn has time for a range");

enum { MODE_DIGESTS = 1, MODE_COPIES = 2, MODE_MISSING = 3, LOOK_AGAIN_MS = 30 * 1000 };

_Static_assert((int)LIMIT_DROPS <= (int)STATE_COPIES, "one exchange is one command");

struct metad_gc_scratch {
	struct {
		uint64_t range, digest;
		uint32_t count;
	} mine[LIMIT_INVENTORY_RANGES];
	uint64_t differing[2 * LIMIT_INVENTORY_RANGES];
	Craton__CopyId copy[STATE_COPIES], *copies[STATE_COPIES];
	struct state_block row;
};

void metad__gc_init(struct metad *md)
{
	md->gc.scratch = MEM_NEW(struct metad_gc_scratch);
	plan_gc_init(&md->gc.plan);
	metad__background_add(md, &md->gc.plan.plan);
}

void metad__gc_forget(struct metad *md)
{
	plan_gc_init(&md->gc.plan);
}

void metad__gc_fini(struct metad *md)
{
	mem_free(md->gc.scratch);
}

/* The disk, if the sender may speak for it now: ERR_GENERATION makes it register again with its next heartbeat. */
static int check_sender(const struct metad *md, uint32_t server_id, const ProtobufCBinaryData *uuid, uint32_t disk_id,
	uint64_t generation)
{
	const struct state_server *server = state_server_at(&md->state, server_id);
	const struct state_disk *disk = state_disk_at(&md->state, disk_id);

	if (!server || !disk || uuid->len != sizeof(server->uuid.bytes) ||
		memcmp(server->uuid.bytes, uuid->data, sizeof(server->uuid.bytes)) != 0)
		return ERR_NOENT;
	return server->up && disk->server == server_id && disk->generation == generation ? 0 : ERR_GENERATION;
}

static bool take_copy(const Craton__CopyId *in, struct state_copy *ret_copy)
{
	if (in->block == 0 || in->index >= LIMIT_WIDTH)
		return false;
	*ret_copy = (struct state_copy){.block = in->block, .index = (uint8_t)in->index, .incarnation = in->incarnation};
	return true;
}

/* False: one of them cannot be. Fills md->cmd. */
static bool take_copies(
	struct metad *md, uint16_t type, uint32_t disk, uint64_t generation, Craton__CopyId *const *copies, size_t count)
{
	struct state_cmd_copies *cmd = &md->cmd.copies;

	if (count > STATE_COPIES)
		return false;
	md->cmd.type = type;
	cmd->disk = disk;
	cmd->generation = generation;
	cmd->count = (uint32_t)count;
	for (size_t i = 0; i < count; i++)
		if (!take_copy(copies[i], &cmd->copies[i]))
			return false;
	return true;
}

static Craton__CopyId *put_copy(Craton__CopyId *out, const struct state_copy *copy)
{
	craton__copy_id__init(out);
	out->block = copy->block;
	out->index = copy->index;
	out->incarnation = copy->incarnation;
	return out;
}

/* A reply that was made from rows: none if the rows cannot be believed. */
static void reply_rows(struct metad *md, struct rpc_req *req, const ProtobufCMessage *msg)
{
	struct err err = {0};

	if (state_failure(&md->state, &err)) {
		metad__fatal(md, err.code, err.text);
		rpc_reply_status(req, ERR_STOPPED);
		return;
	}
	rpc_reply(req, &(struct rpc_reply){.msg = msg});
}

/* ---- orders ---- */

static void answer_drops(struct metad *md, struct rpc_req *req)
{
	const Craton__DropsRequest *msg = (const Craton__DropsRequest *)req->msg;
	struct metad_gc_scratch *sc = md->gc.scratch;
	struct fleet_disk *f = &md->disks[msg->disk];
	Craton__DropsReply reply = CRATON__DROPS_REPLY__INIT;
	uint64_t now_ms = metad__now_ms(md), grace_ms = state_config(&md->state, CONFIG_GC_GRACE);
	struct state_copy from = {0};
	struct state_drop_list list;
	Craton__CopyId next;
	int code;

	if (msg->after)
		take_copy(msg->after, &from);
	else
		f->drops_next_ms = UINT64_MAX;
	code = state_drop_begin(&md->state, msg->disk, &from, &list);
	for (int i = 0; !code && i < METAD_SCAN_ROWS && reply.n_drops < LIMIT_DROPS; i++) {
		uint64_t due_ms = list.drop.time_ms + grace_ms;

		if (due_ms < f->drops_next_ms)
			f->drops_next_ms = due_ms;
		if (due_ms <= now_ms) {
			sc->copies[reply.n_drops] = put_copy(&sc->copy[reply.n_drops], &list.copy);
			reply.n_drops++;
		}
		code = state_drop_next(&md->state, &list);
	}
	reply.drops = sc->copies;
	reply.end = code != 0;
	if (reply.end) /* the grace is a setting: it may be shorter soon */
		f->drops_due_ms = f->drops_next_ms < now_ms + LOOK_AGAIN_MS ? f->drops_next_ms : now_ms + LOOK_AGAIN_MS;
	else
		reply.next = put_copy(&next, &list.copy);
	state_drop_end(&list);
	reply_rows(md, req, &reply.base);
}

static void on_dropped(struct metad *md, void *arg, int status, const struct state_result *res)
{
	if (status) {
		rpc_reply_status(arg, status);
		return;
	}
	md->gc.dropped += res->count;
	answer_drops(md, arg);
}

void metad__drops(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__DropsRequest *msg = (const Craton__DropsRequest *)req->msg;
	struct state_copy after;
	int status;

	if (metad__gate(md, req))
		return;
	status = msg->n_done > LIMIT_DROPS || (msg->after && !take_copy(msg->after, &after)) ? ERR_INVAL : 0;
	if (!status)
		status = auth_drops_verify(md->options.secret, md->options.cluster.bytes, msg);
	if (status == ERR_ACCES)
		metad__count_refused(md, req, REFUSED_SECRET);
	if (!status)
		status = check_sender(md, msg->server, &msg->server_uuid, msg->disk, msg->generation);
	if (!status &&
		!take_copies(md, STATE_CMD_DROPPED, msg->disk, msg->generation, msg->done, msg->n_done))
		status = ERR_INVAL;
	if (status)
		rpc_reply_status(req, status);
	else if (msg->n_done)
		metad__submit_req(md, on_dropped, req);
	else
		answer_drops(md, req);
}

bool metad__drops_due(const struct metad *md, uint32_t disk)
{
	return disk <= LIMIT_DISKS && md->disks[disk].drops_due_ms <= metad__now_ms(md);
}

/* ---- inventories ---- */

static void refuse(struct metad *md, struct rpc_req *req, const char *text)
{
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	uint64_t unlogged;

	if (refused_count(&md->refused, REFUSED_INVENTORY, io_now_ns(md->io), &unlogged))
		log_line(md->options.log, LOG_WARN, "inventory-refused",
			"server=%u disk=%u from=%llu to=%llu unlogged=%llu text=\"%s\"", msg->server, msg->disk,
			(unsigned long long)msg->from, (unsigned long long)msg->to, (unsigned long long)unlogged, text);
	rpc_reply_status(req, ERR_INVAL);
}

static bool lies_on(const struct state_block *row, uint8_t index, uint32_t disk)
{
	return row->chunks[index].present && row->chunks[index].disk == disk;
}

static const char *check_digests(const Craton__InventoryRequest *msg)
{
	if (msg->n_ranges > LIMIT_INVENTORY_RANGES || msg->n_copies || msg->from % INVENTORY_RANGE_BLOCKS)
		return "too many ranges, copies among digests, or it starts within a range";
	for (size_t i = 0; i < msg->n_ranges; i++) {
		const Craton__InventoryRange *r = msg->ranges[i];

		if (r->range < msg->from / INVENTORY_RANGE_BLOCKS || r->range > (msg->to - 1) / INVENTORY_RANGE_BLOCKS ||
			(i && r->range <= msg->ranges[i - 1]->range))
			return "a range is out of its place";
	}
	return NULL;
}

/* Our own digests, as many whole ranges as one turn has time for, at least one; returns the block id behind them. */
static uint64_t sum_ranges(struct metad *md, const Craton__InventoryRequest *msg, size_t *ret_count)
{
	struct metad_gc_scratch *sc = md->gc.scratch;
	const struct state_block *row = &sc->row;
	struct state_reverse_walk walk;
	uint64_t next = 0;
	size_t n = 0;

	state_reverse_begin(&md->state, msg->disk, msg->from, msg->to, METAD_SCAN_ROWS, &walk);
	while (state_reverse_next(&walk, &sc->row)) {
		uint64_t range = row->id / INVENTORY_RANGE_BLOCKS;

		if (n == 0 || sc->mine[n - 1].range != range) {
			if (n == LIMIT_INVENTORY_RANGES) {
				next = range * INVENTORY_RANGE_BLOCKS;
				break;
			}
			sc->mine[n].range = range;
			sc->mine[n].digest = 0;
			sc->mine[n++].count = 0;
		}
		for (uint8_t i = 0; i < row->width; i++) {
			if (!lies_on(row, i, msg->disk))
				continue;
			sc->mine[n - 1].digest += inventory_digest(row->id, i, row->chunks[i].incarnation);
			sc->mine[n - 1].count++;
		}
	}
	state_reverse_end(&walk);
	if (!next && walk.next < msg->to) /* a range that was seen in part counts from the next turn on */
		next = walk.next / INVENTORY_RANGE_BLOCKS * INVENTORY_RANGE_BLOCKS;
	*ret_count = n;
	return next ? next : msg->to;
}

static void answer_digests(struct metad *md, struct rpc_req *req)
{
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	struct metad_gc_scratch *sc = md->gc.scratch;
	Craton__InventoryReply reply = CRATON__INVENTORY_REPLY__INIT;
	size_t mine_count, at = 0, i = 0;

	reply.next = sum_ranges(md, msg, &mine_count);
	while (at < mine_count || i < msg->n_ranges) {
		uint64_t mine = at < mine_count ? sc->mine[at].range : UINT64_MAX,
			 theirs = i < msg->n_ranges ? msg->ranges[i]->range : UINT64_MAX,
			 range = mine < theirs ? mine : theirs;
		bool same = mine == theirs && sc->mine[at].count == msg->ranges[i]->count &&
			sc->mine[at].digest == msg->ranges[i]->digest;

		if (range * INVENTORY_RANGE_BLOCKS >= reply.next)
			break;
		if (!same)
			sc->differing[reply.n_differing++] = range;
		at += mine == range;
		i += theirs == range;
	}
	reply.differing = sc->differing;
	md->gc.inventories += reply.next == md->state.meta.floor;
	reply_rows(md, req, &reply.base);
}

static const char *check_copies(const Craton__InventoryRequest *msg)
{
	if (msg->n_copies > LIMIT_INVENTORY_COPIES || msg->n_ranges ||
		msg->from / INVENTORY_RANGE_BLOCKS != (msg->to - 1) / INVENTORY_RANGE_BLOCKS)
		return "more copies than one range can have, or more than one range";
	for (size_t i = 0; i < msg->n_copies; i++) {
		const Craton__CopyId *c = msg->copies[i], *p = i ? msg->copies[i - 1] : NULL;
		struct state_copy copy;

		if (!take_copy(c, &copy) || c->block < msg->from || c->block >= msg->to)
			return "a copy lies outside the range";
		if (p && (p->block > c->block || (p->block == c->block && p->index > c->index) ||
				 (p->block == c->block && p->index == c->index && p->incarnation >= c->incarnation)))
			return "the copies are not in order";
	}
	return NULL;
}

/* Neither named nor to be dropped. */
static bool is_orphan(struct metad *md, uint32_t disk, const struct state_copy *copy)
{
	struct state_drop drop;

	return !state_restore_hold_ms(&md->state) && !state_copy_named(&md->state, disk, copy) &&
		state_drop_get(&md->state, disk, copy, &drop) == ERR_NOENT;
}

static bool listed(const Craton__InventoryRequest *msg, const struct state_copy *copy)
{
	size_t low = 0, high = msg->n_copies;

	while (low < high) {
		size_t at = (low + high) / 2;
		const Craton__CopyId *c = msg->copies[at];

		if (c->block < copy->block || (c->block == copy->block && c->index < copy->index) ||
			(c->block == copy->block && c->index == copy->index && c->incarnation < copy->incarnation))
			low = at + 1;
		else
			high = at;
	}
	return low < msg->n_copies && msg->copies[low]->block == copy->block &&
		msg->copies[low]->index == copy->index && msg->copies[low]->incarnation == copy->incarnation;
}

static void find_missing(struct metad *md, const Craton__InventoryRequest *msg, Craton__InventoryReply *reply)
{
	struct metad_gc_scratch *sc = md->gc.scratch;
	const struct state_block *row = &sc->row;
	struct state_reverse_walk walk;

	reply->missing = sc->copies;
	state_reverse_begin(&md->state, msg->disk, msg->from, reply->next, INVENTORY_RANGE_BLOCKS, &walk); /* of one range */
	while (reply->n_missing < STATE_COPIES && state_reverse_next(&walk, &sc->row))
		for (uint8_t i = 0; i < row->width && reply->n_missing < STATE_COPIES; i++) {
			struct state_copy copy = {
				.block = row->id, .index = i, .incarnation = row->chunks[i].incarnation};

			if (!lies_on(row, i, msg->disk) || listed(msg, &copy))
				continue;
			sc->copies[reply->n_missing] = put_copy(&sc->copy[reply->n_missing], &copy);
			reply->n_missing++;
		}
	state_reverse_end(&walk);
}

static void answer_copies(struct metad *md, struct rpc_req *req, uint32_t orphans)
{
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	Craton__InventoryReply reply = CRATON__INVENTORY_REPLY__INIT;
	struct state_copy copy;

	reply.next = msg->to;
	reply.orphans = orphans;
	for (size_t i = 0; i < msg->n_copies; i++) /* those that the command had no room for: from there on again */
		if (take_copy(msg->copies[i], &copy) && is_orphan(md, msg->disk, &copy)) {
			reply.next = copy.block;
			break;
		}
	find_missing(md, msg, &reply);
	reply_rows(md, req, &reply.base);
}

static void on_orphans(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;

	if (status) {
		rpc_reply_status(req, status);
		return;
	}
	md->gc.orphans += res->count;
	log_line(md->options.log, LOG_INFO, "orphans", "disk=%u copies=%u", msg->disk, res->count);
	answer_copies(md, req, res->count);
}

static void take_listing(struct metad *md, struct rpc_req *req)
{
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	struct state_cmd_copies *cmd = &md->cmd.copies;
	struct state_copy copy;

	md->cmd.type = STATE_CMD_ORPHANS;
	cmd->disk = msg->disk;
	cmd->generation = msg->generation;
	cmd->count = 0;
	for (size_t i = 0; i < msg->n_copies && cmd->count < STATE_COPIES; i++)
		if (take_copy(msg->copies[i], &copy) && is_orphan(md, msg->disk, &copy))
			cmd->copies[cmd->count++] = copy;
	if (cmd->count)
		metad__submit_req(md, on_orphans, req);
	else
		answer_copies(md, req, 0);
}

static void on_missing(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	Craton__InventoryReply reply = CRATON__INVENTORY_REPLY__INIT;

	if (!status) {
		md->gc.missing += res->count;
		log_line(md->options.log, LOG_WARN, "copies-missing", "disk=%u copies=%u block=%llu", msg->disk,
			res->count, (unsigned long long)msg->copies[0]->block);
	}
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = status ? NULL : &reply.base});
}

static void take_inventory(struct metad *md, struct rpc_req *req)
{
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	const char *wrong = NULL;

	if (msg->mode == MODE_MISSING) {
		if (msg->n_copies == 0 ||
			!take_copies(md, STATE_CMD_MISSING, msg->disk, msg->generation, msg->copies, msg->n_copies))
			refuse(md, req, "no copies, too many, or some that cannot be");
		else
			metad__submit_req(md, on_missing, req);
		return;
	}
	if (msg->from >= msg->to || msg->to > md->state.meta.floor)
		wrong = "its block ids are not below the floor";
	else if (msg->mode == MODE_DIGESTS)
		wrong = check_digests(msg);
	else if (msg->mode == MODE_COPIES)
		wrong = check_copies(msg);
	else
		wrong = "an unknown mode";
	if (wrong)
		refuse(md, req, wrong);
	else if (msg->mode == MODE_DIGESTS)
		answer_digests(md, req);
	else
		take_listing(md, req);
}

void metad__inventory(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__InventoryRequest *msg = (const Craton__InventoryRequest *)req->msg;
	int status;

	if (metad__gate(md, req))
		return;
	status = auth_inventory_verify(md->options.secret, md->options.cluster.bytes, msg);
	if (!status)
		status = check_sender(md, msg->server, &msg->server_uuid, msg->disk, msg->generation);
	if (status) {
		if (status != ERR_GENERATION)
			metad__count_refused(md, req, REFUSED_INVENTORY);
		rpc_reply_status(req, status);
		return;
	}
	take_inventory(md, req);
}

/* ---- craton gc ---- */

uint64_t metad__count_rows(const struct metad *md, enum state_table table)
{
	struct kv_scan scan;
	struct state_key key;
	uint64_t n = 0;

	state_key_table(&key, table);
	for (kv_seek_within(md->state.kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE);
		kv_scan_valid(&scan) && scan.key.data[0] == (uint8_t)table && n < METAD_COUNT_ROWS; kv_scan_next(&scan))
		n++;
	kv_scan_end(&scan);
	return n;
}

static uint64_t count_table(const struct metad *md, enum state_table table, bool *more)
{
	uint64_t n = metad__count_rows(md, table);

	*more = *more || n == METAD_COUNT_ROWS;
	return n;
}

void metad__gc(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__GcRequest *msg = (const Craton__GcRequest *)req->msg;
	const struct state_meta *meta = &md->state.meta;
	Craton__GcReply reply = CRATON__GC_REPLY__INIT;
	uint64_t now_ms, floor_ms;
	bool more = false;

	if (metad__gate(md, req))
		return;
	now_ms = metad__now_ms(md);
	if (msg->start) {
		plan_gc_hurry(&md->gc.plan, now_ms);
		md->sessions.hurry_ms = now_ms;
		md->gc.round = md->gc.round < now_ms ? now_ms : md->gc.round + 1;
	}
	floor_ms = state_floor_due_ms(&md->state);
	reply.pending_bytes = meta->pending_bytes;
	reply.files_waiting = count_table(md, STATE_TABLE_GC, &more) + count_table(md, STATE_TABLE_GC_CUT, &more) +
		count_table(md, STATE_TABLE_GC_BLOCK, &more) + count_table(md, STATE_TABLE_ORPHAN, &more);
	reply.copies_waiting = count_table(md, STATE_TABLE_DROP, &more);
	reply.more_waiting = more;
	reply.grace_ms = state_config(&md->state, CONFIG_GC_GRACE);
	reply.state_time_ms = now_ms;
	reply.floor = meta->floor;
	reply.next_block = meta->next_block;
	reply.floor_in_ms = floor_ms > now_ms ? floor_ms - now_ms : 0;
	reply.copies_dropped = md->gc.dropped;
	reply.orphans_found = md->gc.orphans;
	reply.missing_found = md->gc.missing;
	reply.inventories = md->gc.inventories;
	reply.inventories_refused = md->refused.of[REFUSED_INVENTORY].count;
	reply.inventory_round = md->gc.round;
	reply_rows(md, req, &reply.base);
}
