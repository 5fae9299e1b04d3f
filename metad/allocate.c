/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocate: AllocateBlocks. Not a log write: ids come from a range that was reserved by one, good for
 * STATE_RANGE_ISSUE_MS of state time and in this process only. A request that finds the range used up or too old waits
 * for the next one.
 *
 * Each block gets k + m targets and up to m spares. A target's token is good for one chunk index on one disk, a spare's
 * for any index; the incarnation tells copies of one index apart: 0 for the target, 1 + j for spare j.
 */
#include "metad/core.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/ec.h"

/* Targets of tokens that are being written, and where they go in the scratch memory. */
struct alloc_job {
	struct metad *md;
	const Craton__AllocateRequest *msg;
	const struct ec_policy *policy;
	uint64_t chunk_bytes, expires_ms;
	size_t candidate_count;
	uint32_t target_count;
};

static void on_reserved(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct id_range *range = &md->range;
	struct rpc_req *req;
	struct list todo;

	(void)arg;
	range->asked = false;
	if (!res || status) {
		metad__fail_waiting(&range->waiting, status ? status : ERR_STOPPED);
		return;
	}
	range->next = res->first_block;
	range->end = res->first_block + METAD_RANGE_BLOCKS;
	range->until_ms = res->range_time_ms + STATE_RANGE_ISSUE_MS;
	/* One that still finds no ids waits again, in the list that this loop does not look at. */
	list_init(&todo);
	while (!list_empty(&range->waiting))
		list_push_back(&todo, list_pop_front(&range->waiting));
	while ((req = metad__unwait(&todo)))
		metad__allocate(md, req);
}

static bool ask_for_range(struct metad *md)
{
	if (md->range.asked)
		return true;
	md->cmd.type = STATE_CMD_RESERVE;
	md->cmd.reserve = (struct state_cmd_reserve){.count = METAD_RANGE_BLOCKS};
	md->range.asked = metad__submit(md, on_reserved, NULL);
	return md->range.asked;
}

/* The first of `count` ids; 0: there are none now, a range is asked for. */
static uint64_t take_ids(struct metad *md, uint32_t count)
{
	struct id_range *range = &md->range;
	uint64_t now_ms = metad__now_ms(md), first = range->next;

	if (now_ms >= range->until_ms || range->end - range->next < count)
		return 0;
	range->next += count;
	if (range->end - range->next < METAD_RANGE_BLOCKS / 4 || now_ms + METAD_RANGE_MARGIN_MS >= range->until_ms)
		ask_for_range(md); /* ahead of need; if it cannot be asked for now, the next request tries again */
	return first;
}

static bool is_avoided(const uint32_t *avoid, size_t avoid_count, uint32_t disk)
{
	for (size_t i = 0; i < avoid_count; i++)
		if (avoid[i] == disk)
			return true;
	return false;
}

size_t metad__candidates(struct metad *md, uint64_t chunk_bytes, bool soon, const uint32_t *avoid, size_t avoid_count)
{
	size_t count = 0;

	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);
		uint64_t free_bytes;

		if (!disk || disk->state != STATE_DISK_UP || !state_disk_counts(&md->state, id) ||
			!state_disk_knows(&md->state, disk) || state_in_maintenance(&md->state, disk->server))
			continue;
		if (!metad__disk_reported(md, disk) && !(soon && metad__disk_reports_soon(md, disk)))
			continue;
		free_bytes = metad__disk_free(md, disk, chunk_bytes);
		md->candidates[count++] = (struct place_disk){
			.disk = id,
			.domain = disk->domain,
			.free_bytes = free_bytes >= chunk_bytes + metad__disk_reserve(md, disk) ? free_bytes : 0,
			.avoid = is_avoided(avoid, avoid_count, id),
		};
	}
	return count;
}

static Craton__Target *add_target(
	struct alloc_job *job, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation)
{
	struct metad_scratch *sc = job->md->scratch;
	struct token token = {
		.block = block,
		.expires_ms = job->expires_ms,
		.max_chunk_bytes = job->chunk_bytes,
		.disk = disk,
		.incarnation = incarnation,
		.index = index,
		.policy = job->policy->id,
		.rights = TOKEN_WRITE,
	};
	uint32_t at = job->target_count++;
	Craton__Target *t = &sc->target[at];

	CHECK(at < SCRATCH_TARGETS);
	craton__target__init(t);
	t->index = index;
	t->disk = disk;
	t->incarnation = incarnation;
	token_seal(&token, metad__token_key(job->md), sc->tokens[at]);
	t->token = (ProtobufCBinaryData){.data = sc->tokens[at], .len = TOKEN_BYTES};
	metad__wire_disk(job->md, disk);
	return t;
}

static void add_allocation(struct alloc_job *job, uint32_t at, uint64_t block, const struct place_result *place)
{
	struct metad_scratch *sc = job->md->scratch;
	Craton__Allocation *a = &sc->allocation[at];
	uint8_t width = (uint8_t)(job->policy->k + job->policy->m);

	craton__allocation__init(a);
	sc->allocations[at] = a;
	a->block = block;
	a->crowded = place->crowded;
	a->targets = &sc->targets[job->target_count];
	a->n_targets = width;
	for (uint8_t i = 0; i < width; i++)
		a->targets[i] = add_target(job, block, i, place->disks[i], 0);
	a->spares = &sc->targets[job->target_count];
	a->n_spares = place->spare_count;
	for (uint8_t j = 0; j < place->spare_count; j++)
		a->spares[j] = add_target(job, block, TOKEN_INDEX_ANY, place->spares[j], 1u + j);
}

/* After a restore all disks register again, with their next heartbeats. */
static bool any_registers_soon(const struct metad *md)
{
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);

		if (disk && disk->state == STATE_DISK_UP && !state_disk_knows(&md->state, disk))
			return true;
	}
	return false;
}

/* Where nothing can be placed for want of room alone, the error says so; where that may be over in a moment, too. */
static int placement_error(struct alloc_job *job, uint32_t missing)
{
	struct place_disk *c = job->md->candidates;
	struct place_result r;
	bool full = false;

	if (any_registers_soon(job->md) || metad__reports_soon(job->md))
		return ERR_OVERLOADED;
	for (size_t i = 0; i < job->candidate_count; i++) {
		full = full || c[i].free_bytes == 0;
		c[i].free_bytes = c[i].free_bytes ? c[i].free_bytes : 1;
	}
	if (full && missing &&
		place_choose(c, job->candidate_count, job->policy->k, job->policy->m, &job->md->rng, &r) == 0)
		return ERR_NOSPC;
	return ERR_NO_PLACEMENT;
}

static int fill(struct alloc_job *job, Craton__AllocateReply *reply, const struct place_result places[], uint32_t count)
{
	struct metad_scratch *sc = job->md->scratch;
	uint64_t first = take_ids(job->md, count);

	if (!first)
		return ERR_AGAIN;
	metad__wire_disks_begin(job->md);
	/* Where they are now: a server that came back under another address is avoided for no reason. */
	for (size_t i = 0; i < job->msg->n_avoid_disks; i++)
		metad__wire_disk(job->md, job->msg->avoid_disks[i]);
	for (uint32_t i = 0; i < count; i++)
		add_allocation(job, i, first + i, &places[i]);
	reply->blocks = sc->allocations;
	reply->n_blocks = count;
	reply->disks = sc->disks;
	reply->n_disks = sc->disk_count;
	reply->expires_ms = job->expires_ms;
	return 0;
}

static int check_request(
	struct metad *md, const Craton__AllocateRequest *msg, struct state_inode *inode, uint64_t *ret_chunk)
{
	int code = state_writer_check(&md->state, msg->inode, msg->epoch, inode);
	uint64_t chunk = msg->chunk_bytes ? msg->chunk_bytes : inode->policy.chunk_bytes;

	if (code)
		return code;
	if (msg->count == 0 || msg->count > LIMIT_ALLOCATE_BLOCKS || msg->n_avoid_disks > METAD_AVOID_DISKS)
		return ERR_INVAL;
	if (chunk > LIMIT_CHUNK_BYTES || msg->cell_bytes > LIMIT_CELL_BYTES || msg->cell_bytes % LIMIT_UNIT_BYTES)
		return ERR_INVAL;
	*ret_chunk = chunk;
	return 0;
}

/* All blocks on disks that have room for chunks of so many bytes. ERR_NO_PLACEMENT. */
static int choose(struct alloc_job *job, uint64_t chunk_bytes, struct place_result places[], uint32_t *ret_missing)
{
	const Craton__AllocateRequest *msg = job->msg;
	struct metad *md = job->md;

	*ret_missing = 0;
	job->candidate_count = metad__candidates(md, chunk_bytes, false, msg->avoid_disks, msg->n_avoid_disks);
	for (uint32_t i = 0; i < msg->count; i++) {
		int status = place_choose(
			md->candidates, job->candidate_count, job->policy->k, job->policy->m, &md->rng, &places[i]);

		*ret_missing = places[i].missing_domains;
		if (status)
			return status;
		if (places[i].crowded && metad__reports_soon(md))
			return ERR_OVERLOADED; /* asked for again in a moment it may lie on more domains */
	}
	return 0;
}

int metad__allocate_blocks(
	struct metad *md, const Craton__AllocateRequest *msg, Craton__AllocateReply *reply, Craton__Policy *policy)
{
	struct place_result places[LIMIT_ALLOCATE_BLOCKS];
	struct state_inode *inode = &md->scratch->inode;
	struct alloc_job job = {.md = md, .msg = msg};
	int status;

	metad__note_slow(md, msg->slow_disks, msg->n_slow_disks);
	inode->policy = (struct state_policy){0};
	status = check_request(md, msg, inode, &job.chunk_bytes);
	if (!status) {
		job.policy = ec_policy_by_id(inode->policy.id);
		job.expires_ms = metad__now_ms(md) + LIMIT_TOKEN_LIFE_MS;
		metad__wire_policy(&inode->policy, policy);
		if (msg->cell_bytes)
			policy->cell_bytes = msg->cell_bytes;
		reply->policy = policy;
		status = choose(&job, job.chunk_bytes, places, &reply->missing_domains);
		/* Where whole chunks find no room any more, those of a small file may: nobody knows yet how long it will be. */
		if (status == ERR_NO_PLACEMENT)
			status = choose(&job, LIMIT_ROOM_BYTES, places, &reply->missing_domains);
		if (status == ERR_NO_PLACEMENT)
			status = placement_error(&job, reply->missing_domains);
	}
	if (!status)
		status = fill(&job, reply, places, msg->count);
	reply->state_time_ms = metad__now_ms(md);
	return status;
}

void metad__allocate(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__AllocateRequest *msg = (const Craton__AllocateRequest *)req->msg;
	Craton__AllocateReply reply = CRATON__ALLOCATE_REPLY__INIT;
	Craton__Policy policy;
	int status;

	if (metad__gate(md, req) || metad__refuse_growth(md, req, NULL))
		return;
	status = metad__allocate_blocks(md, msg, &reply, &policy);
	if (status == ERR_AGAIN) {
		if (ask_for_range(md))
			metad__wait(&md->range.waiting, req);
		else
			rpc_reply_status(req, ERR_OVERLOADED);
		return;
	}
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
}
