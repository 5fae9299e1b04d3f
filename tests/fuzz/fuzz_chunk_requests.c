/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a chunk server is asked by whoever has a token: PutRequest, GetRequest and RepairOrder, as the checks behind the codec see them. What
 * these accept can be done: bytes and trailer of a chunk fit the extent that was announced, what is rebuilt can be sealed, and no set of
 * sources has one that was not named.
 * Byte 0: which; byte 1: the policy of the token; bytes 2 to 5: bytes of a put's payload, or of a get's chunk; then the message.
 */
#include <string.h>
#include "chunkd/format.h"
#include "chunkd/put_check.h"
#include "chunkd/repair_priv.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/rpc/codec.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = 6, PUT = 0, GET, ORDER, KINDS };

struct head {
	uint8_t kind, policy;
	uint32_t bytes;
};

/* ---- put ---- */

/* The cell's bytes are zeros, whatever the message says of them: then it is right. */
static void check_bytes(struct put_request r)
{
	uint32_t units = stripe_unit_count(r.len), *crcs = mem_array(units, sizeof(*crcs)),
		 *kept = mem_array(units, sizeof(*kept));
	uint8_t *data = mem_zalloc(r.len);

	ec_unit_crcs(data, r.len, crcs);
	stripe_mask_units(r.copy.block, r.copy.index, (uint32_t)(r.offset / LIMIT_UNIT_BYTES), units, crcs);
	r.unit_crcs = slice_of(crcs, units * sizeof(*crcs));
	CHECK(put_check_bytes(&r, data, kept) == 0 && memcmp(crcs, kept, units * sizeof(*crcs)) == 0);
	crcs[units - 1] ^= 1;
	CHECK(put_check_bytes(&r, data, kept) == ERR_CORRUPT);
	mem_free(data);
	mem_free(crcs);
	mem_free(kept);
}

/* What make_trailer (chunkd/put.c) rests on. */
static void check_seal(struct put_request r)
{
	size_t bound = format_trailer_bound(r.policy, r.copy.index, r.announced_bytes);
	uint32_t *crcs = mem_array(stripe_unit_count(r.length), sizeof(*crcs)); /* zeros, as good as any */
	int rc;

	r.chunk_crc = stripe_combine(r.copy.block, r.copy.index, r.length, crcs);
	rc = put_check_seal(&r, r.policy, crcs);
	CHECK(rc == 0 || rc == ERR_INVAL);
	if (rc == 0) {
		size_t trailer = format_trailer_bytes((size_t)stripe_unit_count(r.length) * 4, r.data_lists.len);

		CHECK(bound > 0 && trailer <= LIMIT_TRAILER_BYTES);
		CHECK(format_round(r.length) + trailer <= format_round(r.announced_bytes) + bound);
		r.chunk_crc ^= 1;
		CHECK(put_check_seal(&r, r.policy, crcs) == ERR_CORRUPT);
	}
	mem_free(crcs);
}

static void try_put(const struct head *head, const ProtobufCMessage *msg)
{
	const Craton__PutRequest *m = (const Craton__PutRequest *)msg;
	struct put_request r;
	int rc;

	if (!m->copy || m->copy->index >= LIMIT_WIDTH || m->copy->block == 0)
		return; /* daemon_authorize */
	put_check_read(m, head->bytes, &r);
	r.copy = (struct copy_id){m->copy->block, m->copy->incarnation, (uint8_t)m->copy->index};
	r.policy = head->policy;
	rc = put_check_request(&r);
	CHECK(rc == 0 || rc == ERR_INVAL);
	if (rc)
		return;
	CHECK(r.len <= LIMIT_CELL_BYTES && r.offset + r.len <= r.announced_bytes &&
		r.announced_bytes <= LIMIT_CHUNK_BYTES);
	CHECK(r.seal || r.len > 0);
	if (r.len)
		check_bytes(r);
	if (r.seal)
		check_seal(r);
}

/* ---- get ---- */

static void try_get(const struct head *head, const ProtobufCMessage *msg)
{
	const Craton__GetRequest *m = (const Craton__GetRequest *)msg;
	uint64_t end;
	int rc = get_end(m->offset, m->length, head->bytes, &end);

	CHECK(rc == 0 || rc == ERR_INVAL || (rc == ERR_RANGE && m->offset >= head->bytes));
	if (rc)
		return;
	CHECK(m->offset % LIMIT_UNIT_BYTES == 0 && m->offset < end && end <= head->bytes &&
		end - m->offset <= m->length);
	CHECK(end == head->bytes || end - m->offset == m->length);
}

/* ---- orders ---- */

static void check_sets(struct repair_sets sets)
{
	uint16_t set;
	int count = 0;

	while ((set = repair_set_next(&sets))) {
		count++;
		CHECK(count <= REPAIR_SETS_MAX && __builtin_popcount(set) == sets.needed &&
			(set & ~sets.available) == 0);
		repair_set_mismatch(&sets);
	}
}

static void check_sources(const struct repair_job *job)
{
	CHECK(job->sets.needed >= 1 && job->sets.needed <= job->policy->k);
	CHECK((job->sets.available & 1u << job->copy.index) == 0);
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++) {
		const struct repair_source *s = &job->sources[i];
		bool available = job->sets.available & 1u << i;

		CHECK(available == s->named && (!available || stripe_chunk_len(&job->geom, i) > 0));
		CHECK(!available || (s->job == job && (s->addr.family == 4 || s->addr.family == 6)));
	}
	check_sets(job->sets);
}

static void check_chunk(const struct repair_job *job)
{
	uint64_t length = stripe_chunk_len(&job->geom, job->copy.index);
	struct format_trailer t = {.copy = job->copy,
		.policy = job->policy->id,
		.length = length,
		.block_length = job->geom.length,
		.cell_bytes = job->geom.cell_bytes,
		.list = slice_of(NULL, (size_t)stripe_unit_count(length) * 4)};

	if (job->copy.index >= job->policy->k)
		for (uint8_t i = 0; i < stripe_data_chunks(&job->geom); i++)
			t.data_lists.len += (size_t)stripe_unit_count(stripe_chunk_len(&job->geom, i)) * 4;
	CHECK(format_trailer_check(&t) == 0);
	CHECK(format_trailer_bytes(t.list.len, t.data_lists.len) <= LIMIT_TRAILER_BYTES);
}

static void try_order(const struct head *head, const ProtobufCMessage *msg)
{
	const Craton__RepairOrder *o = (const Craton__RepairOrder *)msg;
	const struct token token = {.policy = head->policy, .max_chunk_bytes = head->bytes};
	struct repair_job *job;
	int rc;

	if (o->index >= LIMIT_WIDTH || o->block == 0)
		return; /* daemon_authorize */
	job = MEM_NEW(struct repair_job);
	job->copy = (struct copy_id){o->block, o->incarnation, (uint8_t)o->index};
	rc = repair__order_take(job, o, &token);
	CHECK(rc == 0 || rc == ERR_INVAL);
	if (rc == 0) {
		check_chunk(job);
		CHECK(job->check == (o->check != 0));
		if (!job->check)
			check_sources(job);
	}
	mem_free(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const ProtobufCMessageDescriptor *const types[KINDS] = {
		&craton__put_request__descriptor, &craton__get_request__descriptor, &craton__repair_order__descriptor};
	static void (*const tries[KINDS])(const struct head *head, const ProtobufCMessage *msg) = {
		try_put, try_get, try_order};
	const ProtobufCMessage *msg;
	struct codec_arena arena;
	struct head head;

	if (size < HEAD_BYTES || size - HEAD_BYTES > LIMIT_FRAME_BODY_BYTES)
		return 0;
	head.kind = data[0] % KINDS;
	head.policy = data[1];
	memcpy(&head.bytes, data + 2, sizeof(head.bytes));
	codec_arena_init(&arena, 4 * LIMIT_FRAME_BODY_BYTES);
	if (codec_unpack(&arena, types[head.kind], data + HEAD_BYTES, size - HEAD_BYTES, &msg) == 0)
		tries[head.kind](&head, msg);
	codec_arena_fini(&arena);
	return 0;
}
