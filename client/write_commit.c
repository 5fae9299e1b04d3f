/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_commit: CommitBlocks of a file being written: the blocks that are ready, in file order, several in one request, one request at a
 * time. Blocks that metad refuses for a reason that can be cured (below the floor, receipts of an older generation) are cured and
 * committed again; a commit that is repeated may add chunks to blocks that are part of the file already.
 */
#include "client/write.h"

#include <string.h>
#include "common/base/sometimes.h"

struct commit_block {
	Craton__BlockCommit msg;
	struct write_block *ours;
	Craton__ChunkReceipt receipts[LIMIT_WIDTH];
	Craton__ChunkReceipt *receipt_ptrs[LIMIT_WIDTH];
	uint32_t crcs[LIMIT_WIDTH];
	uint32_t disks[LIMIT_WIDTH];
};

struct write_commit {
	struct session_call call;
	struct write_stream *stream;
	Craton__CommitRequest request;
	Craton__BlockCommit *block_ptrs[WRITE_COMMIT_BLOCKS];
	uint8_t *tail; /* a copy: the stream's may be on its way into a block when this is sent again */
	uint32_t count;
	struct commit_block blocks[]; /* `count` of them */
};

static void commit_free(struct write_commit *c)
{
	mem_free(c->tail);
	mem_free(c);
}

/* All bytes before it are committed, or are by this. */
static void take_tail(struct write_commit *c, const struct write_stream *s)
{
	c->tail = mem_alloc(s->tail.len);
	memcpy(c->tail, s->tail.bytes, s->tail.len);
	c->request.tail = (ProtobufCBinaryData){.data = c->tail, .len = s->tail.len};
	c->request.tail_offset = s->filled - s->tail.len;
}

static void tail_committed(struct write_stream *s, const struct write_commit *c)
{
	uint64_t end = c->request.tail_offset + c->request.tail.len;

	if (s->committed < end)
		s->committed = end;
	s->tail.committed = (uint32_t)c->request.tail.len; /* nothing was added meanwhile */
	s->tail.wanted = false;
}

static void fill_block_commit(struct write_commit *c, uint32_t n, struct write_block *b)
{
	struct commit_block *cb = &c->blocks[n];
	Craton__BlockCommit *out = &cb->msg;
	uint8_t width = b->geom.k + b->geom.m;

	craton__block_commit__init(out);
	out->block = b->id;
	out->policy = b->stream->policy->id;
	out->cell_bytes = b->geom.cell_bytes;
	out->length = b->geom.length;
	out->file_offset = b->file_offset;
	out->chunk_crcs = cb->crcs;
	out->n_chunk_crcs = width;
	out->intended_disks = cb->disks;
	out->n_intended_disks = width;
	out->receipts = cb->receipt_ptrs;
	for (uint8_t i = 0; i < width; i++) {
		struct write_chunk *chunk = &b->chunks[i];
		Craton__ChunkReceipt *r = &cb->receipts[i];

		chunk->asked = chunk->state == PICK_SEALED;
		if (chunk->state == PICK_ABSENT)
			continue;
		cb->crcs[i] = b->chunk_crc[i];
		cb->disks[i] = chunk->target.disk;
		if (!chunk->asked)
			continue;
		craton__chunk_receipt__init(r);
		r->index = i;
		r->disk = chunk->target.disk;
		r->incarnation = chunk->target.incarnation;
		r->generation = chunk->generation;
		r->mac = (ProtobufCBinaryData){TOKEN_MAC_BYTES, chunk->mac};
		cb->receipt_ptrs[out->n_receipts++] = r;
	}
	b->state = WRITE_COMMITTING;
	c->block_ptrs[n] = out;
	cb->ours = b;
}

/* No receipt of it is asked for any more. */
static void block_committed(struct write_stream *s, struct write_block *b)
{
	if (s->committed < b->file_offset + b->geom.length)
		s->committed = b->file_offset + b->geom.length;
	for (uint8_t i = 0; i < b->geom.k + b->geom.m && !b->late; i++)
		s->client->chunks_total += b->chunks[i].state != PICK_ABSENT;
	b->committed = true;
	if (!b->late && write_late_keep(b))
		return;
	write_block_cancel(b);
	b->state = WRITE_DONE;
}

static const Craton__BlockResult *result_of(const Craton__CommitReply *reply, uint64_t block)
{
	for (size_t i = 0; reply && i < reply->n_blocks; i++)
		if (reply->blocks[i]->block == block)
			return reply->blocks[i];
	return NULL;
}

static uint32_t not_counted(const Craton__BlockResult *r)
{
	uint32_t set = 0;

	for (size_t i = 0; r && i < r->n_not_counted; i++)
		if (r->not_counted[i] < LIMIT_WIDTH)
			set |= 1u << r->not_counted[i];
	return set;
}

/* Chunks that were not counted (their disks have started anew) get fresh receipts. False if there is none to get. */
static bool refresh_receipts(struct write_block *b, const Craton__BlockResult *r)
{
	uint64_t now_ns = io_now_ns(b->stream->client->io);
	bool any = false;

	if (b->cures >= WRITE_CURES)
		return false;
	for (size_t i = 0; i < r->n_not_counted; i++) {
		uint32_t index = r->not_counted[i];

		if (index >= (uint32_t)b->geom.k + b->geom.m || b->chunks[index].state != PICK_SEALED)
			continue;
		if (!any && r->status)
			b->commit_after_ns = now_ns + (WRITE_CURE_NS << b->cures);
		if (!any)
			b->cures++;
		SOMETIMES(client_receipt_asked_again);
		b->state = WRITE_CLOSED;
		write_chunk_fresh_receipt(&b->chunks[index]);
		any = true;
	}
	return any;
}

/*
 * The commit did not go through as it was: blocks below the floor are renewed, chunks that were not counted get fresh receipts. Blocks that
 * are part of the file already are not tried again: what they lack is made anew by the store. False if the answer names nothing that can
 * be cured.
 */
static bool cure_blocks(struct write_commit *c, const Craton__CommitReply *reply)
{
	bool any = false;

	for (uint32_t n = 0; n < c->count; n++) {
		struct write_block *b = c->blocks[n].ours;
		const Craton__BlockResult *r = result_of(reply, b->id);

		if (b->committed) {
			any |= r && r->status;
			block_committed(c->stream, b);
			continue;
		}
		b->state = WRITE_READY;
		if (!r || r->status == 0)
			continue;
		if (r->status == ERR_BLOCK_CLOSED && b->renewals < WRITE_REALLOCATIONS) {
			SOMETIMES(client_closed_block_renewed);
			b->renewals++;
			b->renew = true;
			b->state = WRITE_CLOSED;
			any = true;
		} else {
			any |= refresh_receipts(b, r);
		}
	}
	return any;
}

/*
 * The bytes are part of the file. Where a chunk was not counted the same commit, with a fresh receipt, adds it; but not to a block that was
 * late: its memory is given back, and blocks behind it would wait.
 */
static void take_commit(struct write_commit *c, const Craton__CommitReply *reply)
{
	struct write_stream *s = c->stream;

	for (uint32_t n = 0; n < c->count; n++) {
		struct write_block *b = c->blocks[n].ours;
		const Craton__BlockResult *r = result_of(reply, b->id);

		write_late_added(b, not_counted(r));
		if (!r || r->n_not_counted == 0 || s->ending || b->late || !refresh_receipts(b, r))
			block_committed(s, b);
		else
			b->committed = true;
	}
	if (c->request.tail.len)
		tail_committed(s, c);
	s->complete |= c->request.complete;
	if (s->file && reply->attr)
		client_attr(reply->attr, &s->file->attr);
}

/* It was only to add chunks to blocks that are part of the file already: that it failed loses nothing. */
static bool take_failed_addition(struct write_commit *c)
{
	if (c->request.complete || c->request.tail.len || c->count == 0)
		return false;
	for (uint32_t n = 0; n < c->count; n++)
		if (!c->blocks[n].ours->committed)
			return false;
	for (uint32_t n = 0; n < c->count; n++)
		block_committed(c->stream, c->blocks[n].ours);
	return true;
}

static void commit_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct write_commit *c = CONTAINER_OF(call, struct write_commit, call);
	struct write_stream *s = c->stream;
	const Craton__CommitReply *reply = (const Craton__CommitReply *)msg;
	struct err err = {0};

	s->commit = NULL;
	if (status == 0 && reply) {
		take_commit(c, reply);
	} else if (!take_failed_addition(c) && !cure_blocks(c, reply) && !s->ending) {
		if (status == 0)
			status = ERR_PROTO;
		write_fail(s, session_explain(&s->client->session, &err, status, "write", s->path), "%s", err.text);
	}
	commit_free(c);
	write_kick(s);
}

/* Of the blocks in file order, those that can be committed now; *ret_all: there are no others. */
static uint32_t ready_blocks(struct write_stream *s, struct write_block *ret_ready[WRITE_COMMIT_BLOCKS], bool *ret_all)
{
	uint64_t now_ns = io_now_ns(s->client->io);
	uint32_t count = 0;

	*ret_all = true;
	LIST_FOREACH(it, &s->blocks) {
		struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (b->state == WRITE_DONE || b->state == WRITE_LATE)
			continue;
		if (b->state == WRITE_READY && b->commit_after_ns > now_ns)
			write_block_look_again(b, b->commit_after_ns - now_ns);
		if (b->state != WRITE_READY || b->renew || b->commit_after_ns > now_ns ||
			count == WRITE_COMMIT_BLOCKS) {
			*ret_all = false;
			break;
		}
		ret_ready[count++] = b;
	}
	return count;
}

/* It is asked after every step of every block: what is needed for a commit is made when there is one. */
void write_commit_try(struct write_stream *s)
{
	struct write_block *ready[WRITE_COMMIT_BLOCKS];
	bool all, complete, tail;
	struct write_commit *c;
	uint32_t count;

	if (s->commit || s->err.code || s->ending)
		return;
	count = ready_blocks(s, ready, &all);
	complete = all && s->close_op && !s->complete;
	tail = all && s->tail.wanted;
	if (count == 0 && !complete && !tail)
		return;
	c = mem_zalloc(sizeof(*c) + count * sizeof(c->blocks[0]));
	c->stream = s;
	c->count = count;
	craton__commit_request__init(&c->request);
	c->request.inode = s->inode;
	c->request.epoch = s->epoch;
	c->request.blocks = c->block_ptrs;
	c->request.n_blocks = count;
	c->request.complete = complete;
	c->request.size = s->committed;
	for (uint32_t n = 0; n < count; n++) {
		uint64_t end = ready[n]->file_offset + ready[n]->geom.length;

		fill_block_commit(c, n, ready[n]);
		if (end > c->request.size)
			c->request.size = end;
	}
	if (tail) {
		take_tail(c, s);
		c->request.size = s->filled;
	}
	c->request.now_ns = io_wall_ns(s->client->io);
	c->call = (struct session_call){
		.method = &rpc_metad_commit,
		.request = &c->request.base,
		.id = &c->request.id,
		.done = commit_done,
	};
	s->commit = c;
	session_start(&s->client->session, &c->call);
}

void write_commit_cancel(struct write_stream *s)
{
	if (s->commit)
		session_cancel(&s->commit->call);
}
