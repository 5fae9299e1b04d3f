/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_file: create, commit, abort, layout.
 *
 * A commit's receipts are verified here, once, by the leader: the MAC of each under the key of the disk's generation. A
 * receipt of another generation than the row's cannot be verified; it goes on as one of generation 0, which no disk ever
 * has, so that apply counts it for nothing even if a registration that is under way makes the number it named the
 * disk's. The entry carries no MACs.
 */
#include "metad/core.h"

#include "common/base/check.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"

/* Who goes on with a file goes on with its tail. */
static int wire_tail(struct metad *md, uint64_t inode, Craton__CreateReply *reply)
{
	struct state_inode *row = &md->scratch->inode;
	struct slice tail;
	int code = state_inode_get(&md->state, inode, row);

	if (code || !row->tail_bytes)
		return code == ERR_NOENT ? 0 : code; /* the reply of a request that came again: its file is gone since */
	code = state_tail_get(&md->state, row, &tail);
	reply->tail_offset = row->tail_offset;
	reply->tail = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)tail.data, .len = tail.len};
	return code;
}

/* False: it cannot be had just now. Why, the writer hears when he asks for it himself. */
static bool first_block(
	struct metad *md, const struct state_result *res, Craton__AllocateReply *reply, Craton__Policy *policy)
{
	Craton__AllocateRequest one = CRATON__ALLOCATE_REQUEST__INIT;

	one.inode = res->attr.inode;
	one.epoch = res->epoch;
	one.count = 1;
	return metad__allocate_blocks(md, &one, reply, policy) == 0;
}

static void on_created(struct metad *md, void *arg, int status, const struct state_result *res)
{
	const struct rpc_req *req = arg;
	Craton__CreateReply reply = CRATON__CREATE_REPLY__INIT;
	Craton__AllocateReply blocks = CRATON__ALLOCATE_REPLY__INIT;
	Craton__Policy policy, of_blocks;
	Craton__Attr attr;

	if (!status) {
		metad__wire_attr(&res->attr, &attr);
		metad__wire_policy(&res->policy, &policy);
		reply.attr = &attr;
		reply.policy = &policy;
		reply.epoch = res->epoch;
		status = wire_tail(md, res->attr.inode, &reply);
	}
	if (!status && req->user && first_block(md, res, &blocks, &of_blocks))
		reply.allocated = &blocks;
	rpc_reply(arg, &(struct rpc_reply){.status = status, .msg = status ? NULL : &reply.base});
}

void metad__create(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__CreateRequest *msg = (const Craton__CreateRequest *)req->msg;
	int code;

	if (metad__gate_change(md, req) || metad__refuse_growth(md, req, msg->id))
		return;
	code = state_path_check(metad__slice(&msg->path));
	if (code) {
		rpc_reply_status(req, code);
		return;
	}
	req->user = msg->allocate && !msg->append ? md : NULL; /* the message is gone when the answer is made */
	md->cmd.type = msg->append ? STATE_CMD_OPEN_WRITE : STATE_CMD_CREATE;
	md->cmd.create = (struct state_cmd_create){
		.at = metad__path(msg->parent, &msg->path),
		.mode = msg->mode,
		.uid = msg->uid,
		.gid = msg->gid,
		.now_ns = msg->now_ns,
		.exclusive = msg->exclusive,
		.hidden = msg->hidden,
	};
	metad__submit_change(md, on_created, req, msg->id);
}

/* ---- commit ---- */

static int check_receipt(struct metad *md, const Craton__BlockCommit *b, const Craton__ChunkReceipt *r,
	const struct stripe_geom *g, uint64_t *ret_generation)
{
	const struct state_disk *disk = state_disk_at(&md->state, r->disk);
	struct receipt receipt = {
		.block = b->block,
		.generation = r->generation,
		.disk = r->disk,
		.incarnation = r->incarnation,
	};

	*ret_generation = 0;
	if (r->index >= (uint32_t)g->k + g->m || r->index >= b->n_chunk_crcs)
		return ERR_INVAL;
	receipt.index = (uint8_t)r->index;
	receipt.length = stripe_chunk_len(g, receipt.index);
	receipt.crc = b->chunk_crcs[r->index];
	if (receipt.length == 0)
		return ERR_INVAL;
	if (!disk || disk->generation != r->generation) {
		refused_count(&md->refused, REFUSED_RECEIPT_OLD, io_now_ns(md->io), NULL);
		return 0;
	}
	*ret_generation = r->generation;
	return receipt_verify(&receipt, metad__receipt_key(md, disk), metad__slice(&r->mac));
}

/* From the message into the command; what cannot even be written into an entry is refused here. */
static int take_block(struct metad *md, const Craton__BlockCommit *b, struct state_commit_block *out)
{
	const struct ec_policy *policy = b->policy <= UINT8_MAX ? ec_policy_by_id((uint8_t)b->policy) : NULL;
	uint32_t width = policy ? (uint32_t)policy->k + policy->m : 0;
	struct stripe_geom g;
	int code = 0;

	if (!policy || b->n_chunk_crcs != width || b->n_receipts > width || b->n_intended_disks > width)
		return ERR_INVAL;
	if (b->cell_bytes == 0 || b->cell_bytes > LIMIT_CELL_BYTES || b->cell_bytes % LIMIT_UNIT_BYTES ||
		b->length == 0 || b->length > (uint64_t)policy->k * LIMIT_CHUNK_BYTES)
		return ERR_INVAL;
	g = (struct stripe_geom){.k = policy->k, .m = policy->m, .cell_bytes = b->cell_bytes, .length = b->length};
	out->block = b->block;
	out->policy = policy->id;
	out->width = (uint8_t)width;
	out->receipt_count = (uint8_t)b->n_receipts;
	out->cell_bytes = b->cell_bytes;
	out->length = b->length;
	out->file_offset = b->file_offset;
	for (uint32_t i = 0; i < width; i++) {
		out->crcs[i] = b->chunk_crcs[i];
		out->intended[i] = i < b->n_intended_disks ? b->intended_disks[i] : 0;
	}
	for (size_t i = 0; i < b->n_receipts && !code; i++) {
		const Craton__ChunkReceipt *r = b->receipts[i];
		uint64_t generation;

		code = check_receipt(md, b, r, &g, &generation);
		out->receipts[i] = (struct state_receipt){
			.index = (uint8_t)r->index,
			.disk = r->disk,
			.incarnation = r->incarnation,
			.generation = generation,
		};
	}
	return code;
}

static void wire_result(struct metad_scratch *sc, size_t at, const struct state_block_result *r)
{
	Craton__BlockResult *out = &sc->result[at];

	craton__block_result__init(out);
	sc->results[at] = out;
	out->block = r->block;
	out->status = r->status;
	out->not_counted = sc->not_counted[at];
	for (uint32_t i = 0; i < LIMIT_WIDTH; i++)
		if (r->not_counted & 1u << i)
			out->not_counted[out->n_not_counted++] = i;
}

static void on_committed(struct metad *md, void *arg, int status, const struct state_result *res)
{
	Craton__CommitReply reply = CRATON__COMMIT_REPLY__INIT;
	Craton__Attr attr;

	for (uint32_t i = 0; res && i < res->count; i++) {
		wire_result(md->scratch, i, &res->blocks[i]);
		if (res->blocks[i].status == ERR_BLOCK_CLOSED)
			metad__count_refused(md, arg, REFUSED_BLOCK_CLOSED);
	}
	if (res) {
		reply.blocks = md->scratch->results;
		reply.n_blocks = res->count;
	}
	if (!status) {
		metad__wire_attr(&res->attr, &attr);
		reply.attr = &attr;
	}
	rpc_reply(arg, &(struct rpc_reply){.status = status, .msg = res ? &reply.base : NULL});
}

/* Block `at` is refused before anything was logged; the others are not committed either. */
static void refuse_commit(
	struct metad *md, struct rpc_req *req, const Craton__CommitRequest *msg, size_t at, int status)
{
	Craton__CommitReply reply = CRATON__COMMIT_REPLY__INIT;

	for (size_t i = 0; i < msg->n_blocks; i++)
		wire_result(md->scratch, i,
			&(struct state_block_result){.block = msg->blocks[i]->block, .status = i == at ? status : 0});
	reply.blocks = md->scratch->results;
	reply.n_blocks = msg->n_blocks;
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
}

void metad__commit(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__CommitRequest *msg = (const Craton__CommitRequest *)req->msg;
	struct state_cmd_commit *cmd = &md->cmd.commit;

	if (metad__gate_change(md, req) || ((msg->n_blocks || msg->tail.len) && metad__refuse_growth(md, req, msg->id)))
		return;
	if (msg->n_blocks > LIMIT_COMMIT_BLOCKS) {
		rpc_reply_status(req, ERR_MSGSIZE);
		return;
	}
	if (msg->tail.len > LIMIT_TAIL_BYTES) {
		rpc_reply_status(req, ERR_MSGSIZE);
		return;
	}
	md->cmd.type = msg->tail.len ? STATE_CMD_COMMIT_TAIL : STATE_CMD_COMMIT;
	cmd->tail_offset = msg->tail_offset;
	cmd->tail = metad__slice(&msg->tail);
	cmd->inode = msg->inode;
	cmd->epoch = msg->epoch;
	cmd->size = msg->size;
	cmd->now_ns = msg->now_ns;
	cmd->complete = msg->complete;
	cmd->block_count = (uint32_t)msg->n_blocks;
	for (size_t i = 0; i < msg->n_blocks; i++) {
		int code = take_block(md, msg->blocks[i], &cmd->blocks[i]);

		if (code == ERR_RECEIPT)
			metad__count_refused(md, req, REFUSED_RECEIPT);
		if (code) {
			refuse_commit(md, req, msg, i, code);
			return;
		}
	}
	metad__submit_change(md, on_committed, req, msg->id);
}

/* Ids that were not used need no word: the floor passes them. */
void metad__abort(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__AbortRequest *msg = (const Craton__AbortRequest *)req->msg;

	if (metad__gate_change(md, req))
		return;
	md->cmd.type = STATE_CMD_ABORT;
	md->cmd.abort = (struct state_cmd_abort){.inode = msg->inode, .epoch = msg->epoch};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

/* ---- layout ---- */

static void wire_block(struct metad *md, size_t at, const struct state_block *row)
{
	struct metad_scratch *sc = md->scratch;
	struct token token = {
		.block = row->id,
		.expires_ms = metad__now_ms(md) + LIMIT_TOKEN_LIFE_MS,
		.index = TOKEN_INDEX_ANY,
		.policy = row->policy,
		.rights = TOKEN_READ,
	};
	Craton__Block *b = &sc->block[at];

	craton__block__init(b);
	sc->blocks[at] = b;
	b->block = row->id;
	b->policy = row->policy;
	b->cell_bytes = row->cell_bytes;
	b->length = row->length;
	b->crowded = row->crowded;
	b->chunks = &sc->chunks[at * LIMIT_WIDTH];
	b->n_chunks = row->width;
	for (uint8_t i = 0; i < row->width; i++) {
		Craton__ChunkPlace *c = &sc->chunk[at * LIMIT_WIDTH + i];

		craton__chunk_place__init(c);
		c->disk = row->chunks[i].disk;
		c->incarnation = row->chunks[i].incarnation;
		c->crc = row->chunks[i].crc;
		c->present = row->chunks[i].present;
		c->damaged = row->chunks[i].damaged;
		b->chunks[i] = c;
		metad__wire_disk(md, c->disk);
	}
	token_seal(&token, metad__token_key(md), sc->read_tokens[at]);
	b->read_token = (ProtobufCBinaryData){.data = sc->read_tokens[at], .len = TOKEN_BYTES};
}

static int take_extent(struct metad *md, size_t at, const struct state_extent *e)
{
	struct metad_scratch *sc = md->scratch;
	Craton__Extent *out = &sc->extent[at];
	int code = state_block_get(&md->state, e->block, &sc->block_row);

	if (code == ERR_NOENT)
		state__fault(
			&md->state, "block %llu is named by an extent but has no row", (unsigned long long)e->block);
	if (code)
		return code;
	craton__extent__init(out);
	sc->extents[at] = out;
	out->file_offset = e->offset;
	out->length = e->length;
	out->block = e->block;
	out->block_offset = e->block_offset;
	wire_block(md, at, &sc->block_row);
	return 0;
}

/* Each extent brings its block (two extents of one block: twice, until files can be cloned there are none). */
static int take_extents(struct metad *md, const Craton__LayoutRequest *msg, Craton__LayoutReply *reply)
{
	struct metad_scratch *sc = md->scratch;
	uint64_t end = msg->length > UINT64_MAX - msg->offset ? UINT64_MAX : msg->offset + msg->length,
		 pos = msg->offset;
	struct state_extent extent;
	size_t count = 0;
	int code = 0;

	metad__wire_disks_begin(md);
	while (pos < end && count < LIMIT_LAYOUT_EXTENTS) {
		code = state_extent_get(&md->state, msg->inode, pos, &extent);
		if (code || extent.offset >= end) {
			pos = end;
			break;
		}
		code = take_extent(md, count, &extent);
		if (code)
			break;
		count++;
		pos = extent.offset + extent.length;
	}
	reply->extents = sc->extents;
	reply->n_extents = count;
	reply->blocks = sc->blocks;
	reply->n_blocks = count;
	reply->disks = sc->disks;
	reply->n_disks = sc->disk_count;
	reply->end_offset = pos;
	return code == ERR_NOENT ? 0 : code;
}

void metad__layout(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__LayoutRequest *msg = (const Craton__LayoutRequest *)req->msg;
	Craton__LayoutReply reply = CRATON__LAYOUT_REPLY__INIT;
	struct state_inode *inode = &md->scratch->inode;
	struct err err = {0};
	struct state_attr attr;
	Craton__Attr out;
	int status;

	if (metad__gate(md, req))
		return;
	metad__note_slow(md, msg->slow_disks, msg->n_slow_disks);
	status = state_inode_get(&md->state, msg->inode, inode);
	if (status == ERR_NOENT || (!status && inode->flags & STATE_INODE_GOING))
		status = ERR_STALE;
	if (!status && inode->type != STATE_TYPE_FILE)
		status = ERR_ISDIR;
	if (!status) {
		state_inode_attr(inode, &attr);
		metad__wire_attr(&attr, &out);
		reply.attr = &out;
		status = take_extents(md, msg, &reply);
		reply.holes = inode->hole_bytes > 0;
	}
	if (!status && inode->tail_bytes) {
		struct slice tail;

		status = state_tail_get(&md->state, inode, &tail);
		reply.tail_offset = inode->tail_offset;
		reply.tail = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)tail.data, .len = tail.len};
	}
	if (state_failure(&md->state, &err)) {
		metad__fatal(md, err.code, err.text);
		status = ERR_STOPPED;
	}
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = status ? NULL : &reply.base});
}
