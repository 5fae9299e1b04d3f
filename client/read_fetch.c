/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_fetch: units and checksum lists from chunk servers. What is believed: a list only if it combines to the proof in the block's row,
 * a unit only if its CRC is in such a list.
 */
#include "client/read_job.h"

#include <string.h>

static void fill_copy(const struct read_job *j, uint8_t index, Craton__Copy *copy)
{
	craton__copy__init(copy);
	copy->block = j->args.block->id;
	copy->index = index;
	copy->incarnation = j->args.block->chunks[index].incarnation;
	copy->disk = j->args.block->chunks[index].disk;
}

static uint32_t range_bytes(const struct read_job *j, uint8_t index, uint32_t first, uint32_t count)
{
	return (count - 1) * READ_ROW + read_unit_len(j, index, first + count - 1);
}

/* The rows that a frame of `bytes` bytes covers; 0 if it does not end at the end of a unit or goes past what was asked for. */
static uint32_t frame_rows(const struct read_fetch *f, uint32_t bytes)
{
	uint32_t rows = (bytes + READ_ROW - 1) / READ_ROW;

	if (bytes == 0 || rows > f->count - f->next || range_bytes(f->job, f->index, f->first + f->next, rows) != bytes)
		return 0;
	return rows;
}

static int fetch_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	struct read_fetch *f = CONTAINER_OF(call, struct read_fetch, call);
	const Craton__GetPart *part = (const Craton__GetPart *)head;
	struct read_job *j = f->job;
	uint32_t row = f->first + f->next, rows = frame_rows(f, payload_len);
	int count = 0;

	if (rows == 0 || part->offset != (uint64_t)(j->first_row + row) * READ_ROW)
		return ERR_PROTO;
	for (uint32_t i = 0; i < rows; i++) {
		uint8_t *mem = j->lanes[f->index].mem[row + i];
		uint32_t len = read_unit_len(j, f->index, row + i);

		if (count > 0 && (uint8_t *)ret_iov[count - 1].iov_base + ret_iov[count - 1].iov_len == mem) {
			ret_iov[count - 1].iov_len += len;
			continue;
		}
		if (count == RPC_PAYLOAD_IOV)
			return ERR_PROTO;
		ret_iov[count++] = (struct iovec){mem, len};
	}
	*ret_count = count;
	return 0;
}

/* The copy contradicts the block's row, or is not there: metad is told, whatever becomes of this read. */
static void tell(const struct read_fetch *f, int status)
{
	const struct layout_block *b = f->job->args.block;

	if (status == ERR_CORRUPT || status == ERR_TRAILER_CORRUPT || status == ERR_NOENT || status == ERR_IO)
		report_copy(f->job->args.client, b->id, f->index, b->chunks[f->index].disk,
			b->chunks[f->index].incarnation, status);
}

/* A frame has arrived: its list, then its units. */
static int take_part(struct read_fetch *f, const Craton__GetPart *part, uint32_t payload_len)
{
	struct read_job *j = f->job;
	struct layout_block *b = j->args.block;
	uint32_t rows;

	if (part->chunk_length != stripe_chunk_len(&b->geom, f->index))
		return ERR_CORRUPT;
	if (part->list.len > 0 && !b->lists[f->index]) {
		int code = layout_learn_list(b, f->index, part->list.data, part->list.len);

		if (code < 0)
			return code;
	}
	if (payload_len == 0)
		return 0;
	if (!b->lists[f->index])
		return ERR_TRAILER_CORRUPT;
	rows = frame_rows(f, payload_len);
	for (uint32_t i = 0; i < rows; i++, f->next++) {
		uint32_t row = f->first + f->next;

		j->lanes[f->index].state[row] = read_unit_right(j, f->index, row) ? PICK_UNIT_GOOD : PICK_UNIT_BAD;
		if (j->lanes[f->index].state[row] == PICK_UNIT_BAD) {
			j->lanes[f->index].error = ERR_CORRUPT;
			tell(f, ERR_CORRUPT);
		}
	}
	j->args.client->bytes_read += payload_len;
	return 0;
}

static void fetch_part(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct read_fetch *f = CONTAINER_OF(call, struct read_fetch, call);
	int code = take_part(f, (const Craton__GetPart *)msg, payload_len);

	f->heard_ns = io_now_ns(f->job->args.client->io);
	if (code < 0) {
		f->job->lanes[f->index].error = code;
		tell(f, code);
		rpc_call_cancel(call);
	}
}

static void note_took(struct client *client, uint64_t took_ns)
{
	client->fetch_took_ns[client->fetch_count++ % ARRAY_COUNT(client->fetch_took_ns)] = took_ns;
}

uint64_t read_median_ns(const struct client *client)
{
	uint64_t took_ns[ARRAY_COUNT(client->fetch_took_ns)];
	size_t count = client->fetch_count < ARRAY_COUNT(took_ns) ? client->fetch_count : ARRAY_COUNT(took_ns);

	memcpy(took_ns, client->fetch_took_ns, sizeof(took_ns));
	return pick_median_ns(took_ns, count);
}

uint64_t read_late_after_ns(const struct read_job *j)
{
	uint64_t median_ns = pace_race_median(&j->race);

	return pick_late_after_ns(median_ns ? median_ns : read_median_ns(j->args.client), PICK_HEDGE_MIN_NS);
}

static void note_pace(struct read_fetch *f, uint64_t took_ns, uint64_t median_ns)
{
	struct read_job *j = f->job;

	if (!f->noted)
		disks_note(&j->args.client->disks, j->args.block->chunks[f->index].disk, took_ns, median_ns);
	f->noted = true;
}

void read_fetch_note(struct read_fetch *f)
{
	uint64_t waits_ns = io_now_ns(f->job->args.client->io) - f->started_ns, peers_ns = pace_race_peers(&f->job->race);

	if (pace_is_slow(waits_ns, peers_ns))
		note_pace(f, waits_ns, peers_ns);
}

static bool says_stale(int status)
{
	return status == ERR_NOENT || status == ERR_NOT_SEALED || status == ERR_TOKEN || status == ERR_STALE;
}

static void fetch_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct read_fetch *f = CONTAINER_OF(call, struct read_fetch, call);
	struct read_job *j = f->job;
	struct read_lane *lane = &j->lanes[f->index];
	struct disks *disks = &j->args.client->disks;
	uint32_t disk = j->args.block->chunks[f->index].disk;

	if (status == 0 && msg)
		status = take_part(f, (const Craton__GetPart *)msg, payload_len);
	if (status == 0) {
		uint64_t took_ns = io_now_ns(j->args.client->io) - f->started_ns;

		disks_succeeded(disks, disk);
		note_took(j->args.client, took_ns);
		note_pace(f, took_ns, pace_race_end(&j->race, took_ns));
	} else {
		if (status != ERR_CANCELED || lane->error == 0)
			lane->error = status;
		tell(f, status);
		disks_request_failed(disks, disk, status, io_now_ns(j->args.client->io) - f->started_ns);
		j->stale |= says_stale(status);
	}
	for (; f->next < f->count; f->next++)
		lane->state[f->first + f->next] = PICK_UNIT_BAD;
	list_remove(&f->link);
	mem_free(f);
	read_job_kick(j);
}

void read_fetch_start(struct read_job *j, uint8_t index, uint32_t first, uint32_t count)
{
	struct client *client = j->args.client;
	struct layout_block *b = j->args.block;
	struct rpc_peer *peer = disks_peer(&client->disks, b->chunks[index].disk);
	struct read_lane *lane = &j->lanes[index];
	struct read_fetch *f;

	for (uint32_t i = 0; i < count; i++) {
		lane->state[first + i] = peer ? PICK_UNIT_PENDING : PICK_UNIT_BAD;
		read_give_mem(j, index, first + i);
	}
	if (!peer) {
		lane->error = ERR_HOSTUNREACH;
		read_job_kick(j);
		return;
	}
	f = MEM_NEW(struct read_fetch);
	f->job = j;
	f->index = index;
	f->first = first;
	f->count = count;
	f->started_ns = f->heard_ns = io_now_ns(client->io);
	craton__get_request__init(&f->request);
	fill_copy(j, index, &f->copy);
	f->request.copy = &f->copy;
	f->request.token = (ProtobufCBinaryData){b->token_bytes, b->token};
	f->request.offset = (uint64_t)(j->first_row + first) * READ_ROW;
	f->request.length = range_bytes(j, index, first, count);
	f->request.want_list = !b->lists[index];
	f->call = (struct rpc_call){
		.method = &rpc_chunkd_get,
		.request = &f->request.base,
		.deadline_ns = read_deadline_ns(j),
		.place = fetch_place,
		.part = fetch_part,
		.done = fetch_done,
	};
	list_push_back(&j->fetches, &f->link);
	if (j->race.entered < LIMIT_WIDTH)
		j->race.entered++;
	rpc_call_start(peer, &f->call);
}

/* ---- lists of lost chunks ---- */

static void lists_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct read_lists *l = CONTAINER_OF(call, struct read_lists, call);
	struct read_job *j = l->job;
	const Craton__ListsReply *reply = (const Craton__ListsReply *)msg;

	(void)payload_len;
	for (size_t i = 0; status == 0 && reply && i < reply->n_lists; i++) {
		const Craton__List *in = reply->lists[i];

		if (in->index < read_geom(j)->k)
			(void)layout_learn_list(j->args.block, (uint8_t)in->index, in->crcs.data, in->crcs.len);
	}
	if (status == 0)
		disks_succeeded(&j->args.client->disks, j->args.block->chunks[l->index].disk);
	else
		disks_request_failed(&j->args.client->disks, j->args.block->chunks[l->index].disk, status, io_now_ns(j->args.client->io) - l->started_ns);
	j->lanes[l->index].list_busy = read_is_busy(status);
	list_remove(&l->link);
	mem_free(l);
	read_job_kick(j);
}

static bool is_poor_choice(const struct read_job *j, uint8_t index)
{
	return j->lanes[index].avoided || disks_suspect(&j->args.client->disks, j->args.block->chunks[index].disk);
}

bool read_lists_start(struct read_job *j)
{
	struct client *client = j->args.client;
	struct layout_block *b = j->args.block;
	int best = -1;
	struct read_lists *l;

	LIST_FOREACH(it, &j->lists)
		if (!LIST_ENTRY(it, struct read_lists, link)->late)
			return true;
	for (uint8_t i = b->geom.k; i < read_width(j); i++) {
		if (!b->chunks[i].present || j->lanes[i].list_asked || !disks_peer(&client->disks, b->chunks[i].disk))
			continue;
		if (best < 0 || (is_poor_choice(j, (uint8_t)best) && !is_poor_choice(j, i)))
			best = i;
	}
	if (best < 0)
		return false;
	l = MEM_NEW(struct read_lists);
	l->job = j;
	l->index = (uint8_t)best;
	l->started_ns = io_now_ns(client->io);
	craton__lists_request__init(&l->request);
	fill_copy(j, l->index, &l->copy);
	l->request.copy = &l->copy;
	l->request.token = (ProtobufCBinaryData){b->token_bytes, b->token};
	l->call = (struct rpc_call){
		.method = &rpc_chunkd_lists,
		.request = &l->request.base,
		.deadline_ns = read_deadline_ns(j),
		.done = lists_done,
	};
	j->lanes[l->index].list_asked = true;
	list_push_back(&j->lists, &l->link);
	rpc_call_start(disks_peer(&client->disks, b->chunks[best].disk), &l->call);
	return true;
}
