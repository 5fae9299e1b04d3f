/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rebuild, stripe by stripe:
 *
 *     set of k --PULLING: a cell of each--> all there and right --decode--> WRITING: one cell of the new chunk --> next stripe
 *        |            \--one is bad: another set, from the beginning                     \--the last one: it equals the proof?
 *        \--none left: failed                                                 sealed <--yes-- no: another set, from the beginning
 *
 * Invariants:
 *  1. A pulled cell is used only if each of its units has the CRC of a list that combines to the chunk's proof.
 *  2. The seal is asked for only after the CRC of the whole new chunk was compared with its proof; the disk layer compares
 *     the bytes with the CRCs once more.
 *  3. Nothing is decoded while a buffer is being filled; a job ends only when no call and no cell of it is under way.
 *
 * Data chunks that do not exist count as zeros and need no source. A parity chunk's trailer carries the lists of all data
 * chunks: those that are not pulled are decoded, too.
 */
#include "chunkd/repair_priv.h"

#include <stdio.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/rpc/methods.h"

#define MS 1000000ull

enum { CELL_MS = 20 * 1000, ROOM_MS = 50 };

static void pull_stripe(struct repair_job *job);
static void write_cell(struct repair_job *job);

static uint32_t cell_len(const struct repair_job *job, uint8_t index)
{
	return stripe_cell_len(&job->geom, job->stripe, index);
}

static bool is_last(const struct repair_job *job)
{
	return job->stripe + 1 == stripe_count(&job->geom);
}

/* Is the chunk decoded: the one that is wanted, and for a parity chunk data chunks that are not pulled? */
static bool is_decoded(const struct repair_job *job, uint8_t index)
{
	if (index == job->copy.index)
		return true;
	return job->copy.index >= job->policy->k && index < job->policy->k && stripe_chunk_len(&job->geom, index) &&
		!(job->set & 1u << index);
}

static uint32_t *list_new(const struct repair_job *job, uint8_t index)
{
	uint32_t units = stripe_unit_count(stripe_chunk_len(&job->geom, index));

	return mem_array(units ? units : 1, sizeof(uint32_t));
}

/* ---- sets ---- */

static void source_bad(struct repair_source *s, int status, bool told)
{
	struct repair_job *job = s->job;

	s->bad = status;
	s->told = told;
	repair_set_bad(&job->sets, (uint8_t)(s - job->sources));
}

static void no_set_left(struct repair_job *job)
{
	char text[REPAIR_TEXT_BYTES];

	if (job->sets.first) {
		snprintf(text, sizeof(text),
			"every set of %u chunks that is left decodes to something else than the proof: the decoder of "
			"this server, or several chunks, are wrong",
			job->sets.needed);
		repair__finish(job, ERR_CORRUPT, text);
		return;
	}
	snprintf(text, sizeof(text), "fewer than %u good chunks could be read", job->sets.needed);
	repair__finish(job, ERR_BLOCK_LOST, text);
}

/* From the beginning, with the next set. */
static void begin_set(struct repair_job *job)
{
	job->set = repair_set_next(&job->sets);
	if (!job->set) {
		no_set_left(job);
		return;
	}
	job->stripe = 0;
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++) {
		mem_free(job->lists[i]);
		job->lists[i] = NULL;
	}
	pull_stripe(job);
}

/* ---- pulling ---- */

/* The list that a source says it has, if it leads up to the proof. */
static int take_list(struct repair_source *s, const Craton__GetPart *part)
{
	struct repair_job *job = s->job;
	uint8_t index = (uint8_t)(s - job->sources);
	uint64_t len = stripe_chunk_len(&job->geom, index);
	size_t bytes = (size_t)stripe_unit_count(len) * sizeof(uint32_t);
	uint32_t *list;

	if (part->chunk_length != len)
		return ERR_CORRUPT;
	if (part->list.len == 0)
		return ERR_TRAILER_CORRUPT;
	if (part->list.len != bytes)
		return ERR_CORRUPT;
	list = mem_alloc(bytes);
	memcpy(list, part->list.data, bytes);
	if (stripe_combine(job->copy.block, index, len, list) != job->crcs[index]) {
		mem_free(list);
		return ERR_CORRUPT;
	}
	s->list = list;
	return 0;
}

static int check_cell(struct repair_source *s)
{
	struct repair_job *job = s->job;
	uint8_t index = (uint8_t)(s - job->sources);
	uint32_t first = (uint32_t)(s->request.offset / LIMIT_UNIT_BYTES), units = stripe_unit_count(s->want);
	uint32_t crcs[LIMIT_CELL_BYTES / LIMIT_UNIT_BYTES];

	ec_unit_crcs(s->cell, s->want, crcs);
	stripe_mask_units(job->copy.block, index, first, units, crcs);
	return memcmp(crcs, s->list + first, units * sizeof(crcs[0])) == 0 ? 0 : ERR_CORRUPT;
}

static int cell_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	struct repair_source *s = CONTAINER_OF(call, struct repair_source, call);

	(void)head;
	if (payload_len != s->want)
		return ERR_PROTO;
	ret_iov[0] = (struct iovec){s->cell, payload_len};
	*ret_count = 1;
	return 0;
}

static void cell_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct repair_source *s = CONTAINER_OF(call, struct repair_source, call);
	const Craton__GetPart *part = (const Craton__GetPart *)msg;
	struct repair_job *job = s->job;
	bool told = status == ERR_CORRUPT || status == ERR_NOENT || status == ERR_IO;

	repair__peer_put(s->peer);
	s->peer = NULL;
	if (status == 0 && (!part || payload_len != s->want))
		status = ERR_PROTO;
	if (status == 0 && !s->list) {
		status = take_list(s, part);
		told = true;
	}
	if (status == 0) {
		status = check_cell(s);
		told = true;
	}
	if (status < 0)
		source_bad(s, status, told);
	job->pulling--;
	if (job->pulling == 0)
		io_at_turn_end(job->repairs->ch->io, &job->hook);
}

static void pull_cell(struct repair_job *job, uint8_t index);

static void peer_room(struct io_op *op)
{
	struct repair_job *job = CONTAINER_OF(op, struct repair_job, timer);
	struct chunkd *ch = job->repairs->ch;
	bool late = op->result < 0 || job->repairs->closing || io_now_ns(ch->io) >= job->room_until_ns;

	job->pulling++; /* so that calls that fail at once do not end the stripe */
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++) {
		struct repair_source *s = &job->sources[i];

		if (!s->waiting)
			continue;
		s->waiting = false;
		job->pulling--;
		if (late)
			source_bad(s, ERR_OVERLOADED, false);
		else
			pull_cell(job, i);
	}
	if (--job->pulling == 0)
		io_at_turn_end(ch->io, &job->hook);
}

/* All connections are open to others: one that is idle is being closed. */
static void wait_for_peer(struct repair_source *s)
{
	struct repair_job *job = s->job;

	s->waiting = true;
	job->pulling++;
	if (io_pending(&job->timer))
		return;
	io_prep_timer(&job->timer, io_now_ns(job->repairs->ch->io) + ROOM_MS * MS, peer_room);
	io_submit(job->repairs->ch->io, &job->timer);
}

static void pull_cell(struct repair_job *job, uint8_t index)
{
	struct repair_source *s = &job->sources[index];
	struct chunkd *ch = job->repairs->ch;

	s->want = cell_len(job, index);
	if (s->want == 0)
		return; /* a short last stripe: zeros */
	s->peer = repair__peer_get(job->repairs, &s->addr);
	if (!s->peer) {
		wait_for_peer(s);
		return;
	}
	if (!s->cell)
		s->cell = mem_aligned(FORMAT_GRAIN_BYTES, job->geom.cell_bytes);
	craton__copy__init(&s->copy);
	s->copy.block = job->copy.block;
	s->copy.index = index;
	s->copy.incarnation = s->incarnation;
	s->copy.disk = s->disk;
	craton__get_request__init(&s->request);
	s->request.token = (ProtobufCBinaryData){sizeof(job->read_token), job->read_token};
	s->request.copy = &s->copy;
	s->request.offset = (uint64_t)job->stripe * job->geom.cell_bytes;
	s->request.length = s->want;
	s->request.want_list = s->list == NULL;
	s->call = (struct rpc_call){.method = &rpc_chunkd_get,
		.request = &s->request.base,
		.deadline_ns = io_now_ns(ch->io) + CELL_MS * MS,
		.place = cell_place,
		.done = cell_done};
	job->pulling++;
	rpc_call_start(s->peer->peer, &s->call);
}

static void pull_stripe(struct repair_job *job)
{
	job->state = REPAIR_PULLING;
	job->room_until_ns = io_now_ns(job->repairs->ch->io) + CELL_MS * MS;
	job->pulling = 1; /* so that calls that fail at once do not end the stripe */
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
		if (job->set & 1u << i)
			pull_cell(job, i);
	if (--job->pulling == 0)
		io_at_turn_end(job->repairs->ch->io, &job->hook);
}

/* ---- decoding ---- */

/* The decoded cells and their unit CRCs. */
static int decode(struct repair_job *job)
{
	const uint8_t *have[LIMIT_K];
	uint8_t have_idx[LIMIT_K], want_idx[LIMIT_WIDTH], *out[LIMIT_WIDTH];
	size_t have_len[LIMIT_K], want = 0, n = 0, len = 0;
	uint32_t first = (uint32_t)((uint64_t)job->stripe * job->geom.cell_bytes / LIMIT_UNIT_BYTES);
	int rc;

	for (uint8_t i = 0; i < job->policy->k + job->policy->m; i++) {
		bool absent = i < job->policy->k && stripe_chunk_len(&job->geom, i) == 0;

		if (job->set & 1u << i || absent) {
			CHECK(n < job->policy->k);
			have_idx[n] = i;
			have_len[n] = absent ? 0 : cell_len(job, i);
			have[n] = have_len[n] ? job->sources[i].cell : NULL;
			n++;
		} else if (is_decoded(job, i)) {
			if (!job->out[i])
				job->out[i] = mem_aligned(FORMAT_GRAIN_BYTES, job->geom.cell_bytes);
			if (!job->lists[i])
				job->lists[i] = list_new(job, i);
			want_idx[want] = i;
			out[want++] = job->out[i];
		}
	}
	len = cell_len(job, 0); /* no cell of a stripe is longer */
	rc = ec_decode(job->policy, len, have_idx, have, have_len, want_idx, want, out);
	if (rc < 0)
		return rc;
	for (size_t w = 0; w < want; w++) {
		uint32_t bytes = cell_len(job, want_idx[w]);

		ec_unit_crcs(out[w], bytes, job->lists[want_idx[w]] + first);
		stripe_mask_units(
			job->copy.block, want_idx[w], first, stripe_unit_count(bytes), job->lists[want_idx[w]] + first);
	}
	return 0;
}

/* Is every chunk that was decoded what its proof says? */
static bool is_proven(const struct repair_job *job)
{
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
		if (job->lists[i] &&
			stripe_combine(job->copy.block, i, stripe_chunk_len(&job->geom, i), job->lists[i]) !=
				job->crcs[i])
			return false;
	return true;
}

/* The lists of all data chunks, one behind the other, for a parity chunk's trailer. */
static struct slice make_data_lists(struct repair_job *job)
{
	size_t bytes = 0, at = 0;

	if (job->copy.index < job->policy->k)
		return slice_of(NULL, 0);
	for (uint8_t i = 0; i < job->policy->k; i++)
		bytes += (size_t)stripe_unit_count(stripe_chunk_len(&job->geom, i)) * sizeof(uint32_t);
	mem_free(job->data_lists);
	job->data_lists = mem_alloc(bytes);
	for (uint8_t i = 0; i < job->policy->k; i++) {
		size_t len = (size_t)stripe_unit_count(stripe_chunk_len(&job->geom, i)) * sizeof(uint32_t);
		const uint32_t *list = job->set & 1u << i ? job->sources[i].list : job->lists[i];

		if (len)
			memcpy(job->data_lists + at, list, len);
		at += len;
	}
	return slice_of(job->data_lists, bytes);
}

/* ---- writing ---- */

static void cell_written(void *ctx, int code, const struct index_row *row)
{
	struct repair_job *job = ctx;

	job->cell = NULL;
	job->status = code;
	if (row)
		job->row = *row;
	io_at_turn_end(job->repairs->ch->io, &job->hook);
}

static void room_timer(struct io_op *op)
{
	struct repair_job *job = CONTAINER_OF(op, struct repair_job, timer);

	if (op->result < 0 || job->repairs->closing)
		repair__finish(job, ERR_STOPPED, NULL);
	else
		write_cell(job);
}

static void write_cell(struct repair_job *job)
{
	uint8_t index = job->copy.index;
	uint64_t offset = (uint64_t)job->stripe * job->geom.cell_bytes, length = stripe_chunk_len(&job->geom, index);
	uint32_t len = cell_len(job, index), first = (uint32_t)(offset / LIMIT_UNIT_BYTES);
	struct put_request r = {
		.copy = job->copy,
		.policy = job->policy->id,
		.repairs = true,
		.offset = len ? offset : length,
		.len = len,
		.unit_crcs = slice_of((const uint8_t *)(job->lists[index] + first), (size_t)stripe_unit_count(len) * 4),
		.announced_bytes = length,
	};
	int rc;

	job->state = REPAIR_WRITING;
	if (is_last(job)) {
		r.seal = true;
		r.length = length;
		r.block_length = job->geom.length;
		r.chunk_crc = job->crcs[index];
		r.cell_bytes = job->geom.cell_bytes;
		r.data_lists = make_data_lists(job);
	}
	rc = put_begin(job->disk->puts, &r, &job->cell);
	if (rc == ERR_OVERLOADED) {
		io_prep_timer(&job->timer, io_now_ns(job->repairs->ch->io) + ROOM_MS * MS, room_timer);
		io_submit(job->repairs->ch->io, &job->timer);
		return;
	}
	if (rc < 0) {
		repair__finish(job, rc, "the disk does not take the chunk");
		return;
	}
	if (len > 0) /* a seal that stands alone has no buffer */
		memcpy(put_buffer(job->cell), job->out[index], len);
	put_write(job->cell, cell_written, job);
}

/* ---- the next thing to do ---- */

static void stripe_pulled(struct repair_job *job)
{
	int rc;

	for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
		if (job->set & 1u << i && job->sources[i].bad) {
			begin_set(job);
			return;
		}
	rc = decode(job);
	if (rc < 0) {
		repair__finish(job, rc, "decoding failed");
		return;
	}
	if (is_last(job) && !is_proven(job)) {
		(void)put_drop(job->disk->puts, &job->copy);
		repair_set_mismatch(&job->sets);
		begin_set(job);
		return;
	}
	/* A chunk that ends before the last stripe has no cell left: its seal goes alone. */
	write_cell(job);
}

static void cell_sealed(struct repair_job *job)
{
	if (job->status < 0) {
		repair__finish(job, job->status, "the disk did not store the chunk");
		return;
	}
	if (!is_last(job)) {
		job->stripe++;
		pull_stripe(job);
		return;
	}
	job->liars = repair_set_liars(&job->sets);
	repair__finish(job, 0, NULL);
}

static void step(struct io_turn_hook *hook)
{
	struct repair_job *job = CONTAINER_OF(hook, struct repair_job, hook);

	if (job->repairs->closing)
		repair__finish(job, ERR_STOPPED, NULL);
	else if (job->state == REPAIR_PULLING)
		stripe_pulled(job);
	else if (job->state == REPAIR_WRITING)
		cell_sealed(job);
}

void repair__pull_start(struct repair_job *job)
{
	io_turn_hook_init(&job->hook, step);
	begin_set(job);
}

void repair__pull_stop(struct repair_job *job)
{
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
		if (rpc_call_active(&job->sources[i].call))
			rpc_call_cancel(&job->sources[i].call);
	if (io_pending(&job->timer))
		io_cancel(job->repairs->ch->io, &job->timer);
}

void repair__pull_free(struct repair_job *job)
{
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++) {
		mem_free(job->sources[i].list);
		mem_free(job->sources[i].cell);
		mem_free(job->out[i]);
		mem_free(job->lists[i]);
	}
	mem_free(job->data_lists);
}
