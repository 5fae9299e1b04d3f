/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_repair: between the plan of repair and the chunk servers. An intent is a row; the order that comes of it is made
 * anew for each heartbeat of the target's server, so that neither side has to remember that it was given. A result comes
 * with a heartbeat, which is authenticated; what it claims is checked here (receipt, proof) and again when it is applied.
 *
 * Reports of readers are rumours (metad/plan/rumour.h): the server of the copy is told to read it again, and only what it confirms
 * becomes a row. Where a reader has read something else than the proof and the server has not, somebody is wrong: status names
 * disk and chunk until the row names another copy.
 */
#include "metad/core.h"

#include <stdarg.h>
#include <stdio.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "metad/plan/repair.h"
#include "metad/plan/rumour.h"

enum {
	CHECKS_PER_BEAT = 2, /* re-reads ordered from a server at a time: a chunk may have 64 MiB */
	CULPRITS = 32,       /* named in status */
	CULPRIT_LIFE_MS = 24 * 3600 * 1000,
	REPORT_COPIES = 64, /* of one request */
	RESULTS = 256,      /* of one heartbeat */
	TEXT_BYTES = 200,
};

struct culprit {
	uint64_t block; /* 0: none */
	uint32_t disk, incarnation;
	uint8_t index;
	bool rebuild; /* of the rebuild itself, not of a copy that the row names */
	uint64_t time_ms, count;
	char text[TEXT_BYTES];
};

struct metad_repair {
	struct plan_repair plan;
	struct rumours rumours;
	struct culprit culprits[CULPRITS];
	uint64_t reports, damaged; /* since the start */
	struct state_block row;
};

/* ---- culprits: what status says of copies that contradict their proof ---- */

static struct culprit *name_culprit(
	struct metad *md, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation, const char *text)
{
	struct metad_repair *r = md->repair;
	struct culprit *c = &r->culprits[0];

	for (size_t i = 0; i < CULPRITS; i++) {
		struct culprit *at = &r->culprits[i];

		if (at->block == block && at->index == index && at->incarnation == incarnation) {
			c = at;
			break;
		}
		if (at->time_ms < c->time_ms)
			c = at;
	}
	if (c->block != block || c->index != index || c->incarnation != incarnation)
		*c = (struct culprit){.block = block, .index = index, .disk = disk, .incarnation = incarnation};
	c->time_ms = metad__now_ms(md) + 1;
	c->count++;
	snprintf(c->text, sizeof(c->text), "%s", text);
	log_line(md->options.log, LOG_ERROR, "chunk-disputed", "block=%llu index=%u disk=%u incarnation=%u text=\"%s\"",
		(unsigned long long)block, index, disk, incarnation, text);
	return c;
}

static bool row_names(struct metad *md, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation)
{
	const struct state_block *row = &md->repair->row;

	return state_block_get(&md->state, block, &md->repair->row) == 0 && index < row->width &&
		row->chunks[index].present && row->chunks[index].disk == disk &&
		row->chunks[index].incarnation == incarnation;
}

/* ---- rumours ---- */

static void take_rumour(
	struct metad *md, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation, int status)
{
	struct metad_repair *r = md->repair;
	struct rumour rumour = {
		.block = block, .index = index, .disk = disk, .incarnation = incarnation, .status = status};

	if (block == 0 || !row_names(md, block, index, disk, incarnation) || r->row.chunks[index].damaged)
		return;
	r->reports += rumour_add(&r->rumours, &rumour, metad__now_ms(md));
}

void metad__report(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__ReportRequest *msg = (const Craton__ReportRequest *)req->msg;

	if (metad__gate(md, req))
		return;
	if (msg->n_copies > REPORT_COPIES) {
		rpc_reply_status(req, ERR_MSGSIZE);
		return;
	}
	for (size_t i = 0; i < msg->n_copies; i++) {
		const Craton__CopyReport *c = msg->copies[i];

		if (c->index < LIMIT_WIDTH)
			take_rumour(md, c->block, (uint8_t)c->index, c->disk, c->incarnation, c->status);
	}
	rpc_reply_status(req, 0);
}

/* ---- results ---- */

struct verdict {
	uint64_t block, bytes;
	uint32_t disk, incarnation;
	uint8_t index;
};

static void on_ended(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)md, (void)arg, (void)status, (void)res;
}

static void end_intent(struct metad *md, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation)
{
	md->cmd.type = STATE_CMD_INTENT_END;
	md->cmd.intent_end = (struct state_cmd_intent_end){.block = block, .index = index, .incarnation = incarnation};
	(void)metad__submit(md, on_ended, NULL); /* else it comes again */
	plan_repair_failed(&md->repair->plan, block, disk, metad__now_ms(md));
}

static void on_published(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct verdict *v = arg;

	if (res && !status) {
		plan_repair_done(&md->repair->plan, v->block, v->bytes);
		log_line(md->options.log, LOG_INFO, "chunk-published", "block=%llu index=%u disk=%u incarnation=%u",
			(unsigned long long)v->block, v->index, v->disk, v->incarnation);
	} else if (res && status != ERR_STALE && status != ERR_NOENT) {
		/* STALE: the row has changed, the order comes again; NOENT: the intent was ended. */
		log_line(md->options.log, LOG_WARN, "chunk-refused", "block=%llu index=%u disk=%u error=%s",
			(unsigned long long)v->block, v->index, v->disk, err_name(status));
		end_intent(md, v->block, v->index, v->disk, v->incarnation);
	}
	mem_free(v);
}

/* The receipt, under the CRC that it claims, and that CRC against the proof. */
static int check_sealed(
	struct metad *md, const Craton__RepairResult *r, const struct state_disk *disk, const struct state_block *row)
{
	struct stripe_geom g = state__geom(row);
	struct receipt receipt = {
		.block = r->block,
		.length = stripe_chunk_len(&g, (uint8_t)r->index),
		.generation = r->generation,
		.disk = r->disk,
		.incarnation = r->incarnation,
		.crc = r->crc,
		.index = (uint8_t)r->index,
	};
	int code = receipt_verify(&receipt, metad__receipt_key(md, disk), metad__slice(&r->mac));

	if (!code && r->crc != row->chunks[r->index].crc)
		code = ERR_CORRUPT;
	return code;
}

static void take_sealed(struct metad *md, const Craton__RepairResult *r, const struct state_disk *disk)
{
	const struct state_block *row = &md->repair->row;
	struct stripe_geom g;
	struct verdict *v;
	int code = state_block_get(&md->state, r->block, &md->repair->row);

	if (!code && r->index >= row->width)
		code = ERR_INVAL;
	if (!code)
		code = check_sealed(md, r, disk, row);
	if (code == ERR_RECEIPT)
		refused_count(&md->refused, REFUSED_RECEIPT, io_now_ns(md->io), NULL);
	if (code) {
		log_line(md->options.log, LOG_ERROR, "rebuild-refused", "block=%llu index=%u disk=%u error=%s",
			(unsigned long long)r->block, r->index, r->disk, err_name(code));
		end_intent(md, r->block, (uint8_t)r->index, r->disk, r->incarnation);
		return;
	}
	g = state__geom(row);
	md->cmd.type = STATE_CMD_LOCATION;
	md->cmd.sealed = (struct state_cmd_sealed){
		.block = r->block,
		.version = row->version,
		.crc = r->crc,
		.receipt = {.index = (uint8_t)r->index,
			.disk = r->disk,
			.incarnation = r->incarnation,
			.generation = r->generation},
	};
	v = MEM_NEW(struct verdict);
	*v = (struct verdict){.block = r->block,
		.index = (uint8_t)r->index,
		.disk = r->disk,
		.incarnation = r->incarnation,
		.bytes = stripe_chunk_len(&g, (uint8_t)r->index)};
	if (!metad__submit(md, on_published, v))
		mem_free(v); /* the order comes again */
}

static void take_culprits(struct metad *md, const Craton__RepairResult *r)
{
	for (size_t i = 0; i < r->n_culprits && i < LIMIT_WIDTH; i++) {
		const Craton__RepairCulprit *c = r->culprits[i];

		if (c->index >= LIMIT_WIDTH || !row_names(md, r->block, (uint8_t)c->index, c->disk, c->incarnation))
			continue;
		if (c->status == ERR_CORRUPT) /* one that cannot be read contradicts nothing */
			name_culprit(md, r->block, (uint8_t)c->index, c->disk, c->incarnation, c->text);
		take_rumour(md, r->block, (uint8_t)c->index, c->disk, c->incarnation, c->status);
	}
}

static void take_rebuild(struct metad *md, const Craton__RepairResult *r, const struct state_disk *disk)
{
	const struct state_intent *intent = state_intent_of(&md->state, r->block);
	char text[TEXT_BYTES];

	if (!intent || intent->index != r->index || intent->incarnation != r->incarnation || intent->disk != r->disk)
		return;
	take_culprits(md, r);
	if (r->status == 0) {
		take_sealed(md, r, disk);
		return;
	}
	log_line(md->options.log, LOG_WARN, "rebuild-failed", "block=%llu index=%u disk=%u error=%s text=\"%s\"",
		(unsigned long long)r->block, r->index, r->disk, err_name(r->status), r->text);
	if (r->status == ERR_CORRUPT) {
		snprintf(text, sizeof(text), "rebuilding it on disk %u: %s", r->disk, r->text);
		name_culprit(md, r->block, (uint8_t)r->index, r->disk, r->incarnation, text)->rebuild = true;
	}
	end_intent(md, r->block, (uint8_t)r->index, r->disk, r->incarnation);
}

static void on_damaged(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct verdict *v = arg;

	if (res && !status) {
		md->repair->damaged++;
		metad__note_damaged(md, v->disk);
		log_line(md->options.log, LOG_WARN, "chunk-damaged", "block=%llu index=%u disk=%u incarnation=%u",
			(unsigned long long)v->block, v->index, v->disk, v->incarnation);
	}
	mem_free(v);
}

static bool others_suffice(struct state *s, const struct state_block *row, uint8_t index)
{
	struct stripe_geom g = state__geom(row);
	uint32_t good = 0;

	for (uint8_t i = 0; i < row->width; i++)
		good += i != index && row->chunks[i].present && !row->chunks[i].damaged &&
			state_disk_counts(s, row->chunks[i].disk);
	return good >= stripe_data_chunks(&g);
}

static void take_check(struct metad *md, const Craton__RepairResult *r)
{
	struct rumour *rumour = rumour_find(&md->repair->rumours, r->block, (uint8_t)r->index, r->incarnation);
	enum rumour_verdict verdict;
	struct verdict *v;

	if (!rumour || rumour->disk != r->disk)
		return;
	verdict = rumour_answer(rumour, r->status,
		row_names(md, r->block, (uint8_t)r->index, r->disk, r->incarnation) &&
			others_suffice(&md->state, &md->repair->row, (uint8_t)r->index),
		metad__now_ms(md));
	if (verdict == RUMOUR_DISPUTED)
		name_culprit(md, r->block, (uint8_t)r->index, r->disk, r->incarnation,
			"its server serves readers something else than its proof, and finds nothing wrong with it");
	if (verdict != RUMOUR_DAMAGED)
		return;
	md->cmd.type = STATE_CMD_DAMAGED;
	md->cmd.damaged = (struct state_cmd_damaged){
		.block = r->block, .index = (uint8_t)r->index, .disk = r->disk, .incarnation = r->incarnation};
	v = MEM_NEW(struct verdict);
	*v = (struct verdict){
		.block = r->block, .index = (uint8_t)r->index, .disk = r->disk, .incarnation = r->incarnation};
	if (!metad__submit(md, on_damaged, v))
		mem_free(v);
}

void metad__repair_results(struct metad *md, const Craton__HeartbeatRequest *msg)
{
	for (size_t i = 0; i < msg->n_repairs && i < RESULTS; i++) {
		const Craton__RepairResult *r = msg->repairs[i];
		const struct state_disk *disk = state_disk_at(&md->state, r->disk);

		/* One that does not know of a restore yet speaks of the time before it. */
		if (!disk || disk->server != msg->server || disk->generation != r->generation ||
			!state_disk_knows(&md->state, disk) || r->block == 0 || r->index >= LIMIT_WIDTH)
			continue;
		if (r->check)
			take_check(md, r);
		else
			take_rebuild(md, r, disk);
	}
}

/* ---- orders ---- */

struct repair_orders {
	Craton__RepairOrder *order, **orders;
	Craton__RepairSource (*source)[LIMIT_WIDTH], *(*sources)[LIMIT_WIDTH];
	uint32_t (*crcs)[LIMIT_WIDTH];
	uint8_t (*tokens)[2][TOKEN_BYTES];
	size_t count;
};

static void seal_token(struct metad *md, const struct state_block *row, uint8_t index, uint32_t disk,
	uint32_t incarnation, uint8_t rights, uint8_t out[TOKEN_BYTES])
{
	struct token token = {
		.block = row->id,
		.expires_ms = metad__now_ms(md) + LIMIT_TOKEN_LIFE_MS,
		.max_chunk_bytes = LIMIT_CHUNK_BYTES,
		.disk = disk,
		.incarnation = incarnation,
		.index = index,
		.policy = row->policy,
		.rights = rights,
	};

	token_seal(&token, metad__token_key(md), out);
}

static void add_source(struct metad *md, struct repair_orders *o, Craton__RepairOrder *order, uint8_t index)
{
	const struct state_chunk *c = &md->repair->row.chunks[index];
	const struct state_disk *disk = state_disk_at(&md->state, c->disk);
	const struct state_server *server = disk ? state_server_at(&md->state, disk->server) : NULL;
	Craton__RepairSource *out = &o->source[o->count][order->n_sources];

	if (!c->present || c->damaged || !server || !server->up)
		return;
	craton__repair_source__init(out);
	out->index = index;
	out->disk = c->disk;
	out->incarnation = c->incarnation;
	out->address = (char *)(uintptr_t)server->address;
	out->server_name = (char *)(uintptr_t)server->name;
	o->sources[o->count][order->n_sources++] = out;
}

/* An order about a copy of the block in md->repair->row. */
static void add_order(
	struct metad *md, struct repair_orders *o, uint8_t index, uint32_t disk, uint32_t incarnation, bool check)
{
	const struct state_block *row = &md->repair->row;
	Craton__RepairOrder *order = &o->order[o->count];

	craton__repair_order__init(order);
	order->block = row->id;
	order->index = index;
	order->incarnation = incarnation;
	order->disk = disk;
	order->policy = row->policy;
	order->cell_bytes = row->cell_bytes;
	order->length = row->length;
	order->check = check;
	for (uint8_t i = 0; i < row->width; i++)
		o->crcs[o->count][i] = row->chunks[i].crc;
	order->chunk_crcs = o->crcs[o->count];
	order->n_chunk_crcs = row->width;
	seal_token(md, row, index, disk, incarnation, check ? TOKEN_READ : TOKEN_WRITE, o->tokens[o->count][0]);
	seal_token(md, row, TOKEN_INDEX_ANY, 0, 0, TOKEN_READ, o->tokens[o->count][1]);
	order->write_token = (ProtobufCBinaryData){.data = o->tokens[o->count][0], .len = TOKEN_BYTES};
	order->read_token = (ProtobufCBinaryData){.data = o->tokens[o->count][1], .len = TOKEN_BYTES};
	order->sources = o->sources[o->count];
	for (uint8_t i = 0; i < row->width && !check; i++)
		if (i != index)
			add_source(md, o, order, i);
	o->orders[o->count++] = order;
}

static bool is_of_server(const struct metad *md, uint32_t disk, uint32_t server)
{
	const struct state_disk *row = state_disk_at(&md->state, disk);

	return row && row->server == server;
}

/* Was its result in this very heartbeat? The command that follows from it is on its way. */
static bool is_answered(const Craton__HeartbeatRequest *msg, uint64_t block)
{
	for (size_t i = 0; i < msg->n_repairs; i++)
		if (msg->repairs[i]->block == block)
			return true;
	return false;
}

static struct repair_orders *orders_new(size_t cap)
{
	struct repair_orders *o = MEM_NEW(struct repair_orders);

	o->order = mem_array(cap, sizeof(*o->order));
	o->orders = mem_array(cap, sizeof(*o->orders));
	o->source = mem_array(cap, sizeof(*o->source));
	o->sources = mem_array(cap, sizeof(*o->sources));
	o->crcs = mem_array(cap, sizeof(*o->crcs));
	o->tokens = mem_array(cap, sizeof(*o->tokens));
	return o;
}

struct repair_orders *metad__repair_orders(
	struct metad *md, const Craton__HeartbeatRequest *msg, Craton__HeartbeatReply *reply)
{
	struct repair_orders *o = NULL;
	size_t checks = 0;

	for (uint32_t i = 0; i < md->state.intent_count; i++) {
		const struct state_intent *intent = &md->state.intents[i];

		if (!is_of_server(md, intent->disk, msg->server) || is_answered(msg, intent->block) ||
			state_block_get(&md->state, intent->block, &md->repair->row))
			continue;
		o = o ? o : orders_new(LIMIT_DISKS_PER_SERVER + CHECKS_PER_BEAT);
		if (o->count < LIMIT_DISKS_PER_SERVER)
			add_order(md, o, intent->index, intent->disk, intent->incarnation, false);
	}
	for (size_t i = 0; i < RUMOURS && checks < CHECKS_PER_BEAT; i++) {
		struct rumour *at = &md->repair->rumours.all[i];

		if (!rumour_is_due(at, metad__now_ms(md)) || !is_of_server(md, at->disk, msg->server) ||
			is_answered(msg, at->block))
			continue;
		if (!row_names(md, at->block, at->index, at->disk, at->incarnation)) {
			at->block = 0;
			continue;
		}
		o = o ? o : orders_new(LIMIT_DISKS_PER_SERVER + CHECKS_PER_BEAT);
		add_order(md, o, at->index, at->disk, at->incarnation, true);
		checks++;
	}
	if (o) {
		reply->repairs = o->orders;
		reply->n_repairs = o->count;
	}
	return o;
}

void metad__repair_orders_free(struct repair_orders *o)
{
	if (!o)
		return;
	mem_free(o->order);
	mem_free(o->orders);
	mem_free(o->source);
	mem_free(o->sources);
	mem_free(o->crcs);
	mem_free(o->tokens);
	mem_free(o);
}

/* ---- status ---- */

__attribute__((format(printf, 4, 5))) static void say(
	metad_reason_fn *add, void *ctx, const char *code, const char *fmt, ...)
{
	char text[2 * TEXT_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	add(ctx, code, false, text);
}

/* Once its own server has found it damaged, or the row names another copy, nothing is in dispute. */
static bool is_disputed(struct metad *md, const struct culprit *c)
{
	return row_names(md, c->block, c->index, c->disk, c->incarnation) && !md->repair->row.chunks[c->index].damaged;
}

static void say_culprits(struct metad *md, metad_reason_fn *add, void *ctx)
{
	for (size_t i = 0; i < CULPRITS; i++) {
		struct culprit *c = &md->repair->culprits[i];
		const struct state_disk *disk = state_disk_at(&md->state, c->disk);
		const struct state_server *server = disk ? state_server_at(&md->state, disk->server) : NULL;

		if (!c->block || !server)
			continue;
		if (metad__now_ms(md) > c->time_ms + CULPRIT_LIFE_MS || (!c->rebuild && !is_disputed(md, c))) {
			*c = (struct culprit){0};
			continue;
		}
		say(add, ctx, "chunk-disputed", "chunk %u of block %llu on disk %u (%s): %s", c->index,
			(unsigned long long)c->block, c->disk, server->name, c->text);
	}
}

void metad__repair_status(struct metad *md, Craton__RepairStatus *ret_status, metad_reason_fn *add, void *ctx)
{
	const struct plan_repair *p = &md->repair->plan;
	uint64_t now_ms = metad__now_ms(md), hold = repair_hold(&md->state, now_ms);

	craton__repair_status__init(ret_status);
	ret_status->enabled = state_config(&md->state, CONFIG_REPAIR_ENABLED);
	ret_status->wanted = p->wanted;
	ret_status->helpless = p->helpless;
	ret_status->no_target = p->no_target;
	ret_status->active = md->state.intent_count;
	ret_status->done = p->done_count;
	ret_status->failed = p->failed_count;
	ret_status->bytes = p->done_bytes;
	ret_status->hold_ms = hold ? hold - now_ms : 0;
	ret_status->out_wait_ms = p->out_waits_ms > now_ms ? p->out_waits_ms - now_ms : 0;
	ret_status->reports = md->repair->reports;
	ret_status->damaged = md->repair->damaged;
	if (!ret_status->enabled)
		say(add, ctx, "repair-off", "repair is turned off: craton config set repair.enabled yes");
	if (hold)
		say(add, ctx, "repair-held",
			"many servers fell silent, or came back without disks, at once: repair waits %llu s more; if they are gone for good, craton "
			"config set repair.mass_hold 0s",
			(unsigned long long)(ret_status->hold_ms / 1000));
	if (ret_status->out_wait_ms)
		say(add, ctx, "repair-waits",
			"disks of another failure domain are lost, too: their chunks are rebuilt from %llu s on "
			"(repair.domain_interval)",
			(unsigned long long)(ret_status->out_wait_ms / 1000));
	if (p->no_target)
		say(add, ctx, "repair-no-target",
			"%llu chunks find no disk to be rebuilt on: add disks or failure domains, or free space",
			(unsigned long long)p->no_target);
	say_culprits(md, add, ctx);
}

/* ---- life ---- */

static uint64_t env_silent(void *ctx, uint32_t server)
{
	return metad__silent_ms(ctx, server);
}

static uint64_t env_free(void *ctx, const struct state_disk *disk, uint64_t chunk_bytes)
{
	return metad__disk_reported(ctx, disk) ? metad__disk_free(ctx, disk, chunk_bytes) : 0;
}

static uint32_t env_damaged(void *ctx, uint32_t disk)
{
	return metad__damaged(ctx, disk);
}

static void env_given_up(void *ctx, uint32_t disk)
{
	metad__note_given_up(ctx, disk);
}

void metad__repair_init(struct metad *md)
{
	struct repair_env env = {.silent_ms = env_silent,
		.free_bytes = env_free,
		.damaged = env_damaged,
		.given_up = env_given_up,
		.ctx = md};

	md->repair = MEM_NEW(struct metad_repair);
	plan_repair_init(&md->repair->plan, &env, &md->rng, md->candidates);
	metad__background_add(md, &md->repair->plan.plan);
}

/* Who reported what, and the copies that contradicted their proof: they are reported again. */
void metad__repair_forget(struct metad *md)
{
	plan_repair_forget(&md->repair->plan);
	memset(&md->repair->rumours, 0, sizeof(md->repair->rumours));
	memset(md->repair->culprits, 0, sizeof(md->repair->culprits));
}

void metad__repair_fini(struct metad *md)
{
	mem_free(md->repair);
}
