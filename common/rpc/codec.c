/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec: see codec.h.
 *
 * Why a walk of our own before protobuf-c's: its parser recurses once for each nested message without a limit, and a
 * body of 1 MiB can nest half a million deep where a message type contains itself. The walk follows the wire format
 * (tag, then a value by wire type) into those fields only that the type calls messages; it allocates nothing, and its
 * own recursion ends at CODEC_DEPTH. Everything else that a hostile body can ask for is memory, and memory is the
 * arena's to refuse: packed counts, unknown fields, the parser's table of scanned members, a field merged again and
 * again.
 *
 * Both are only for bodies that are not plain (codec_plain.h): with the table of scanned members, two passes, and an allocation for each
 * piece protobuf-c took more time than all that was done with the message.
 */
#include "common/rpc/codec_plain.h"

#include <stdbool.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/base/mem.h"

enum {
	ALIGN = 16,
	CHUNK_MIN = 2 << 10,   /* most requests fit */
	CHUNK_KEPT = 16 << 10, /* a commit of eight blocks fits: fresh memory for each costs more than its decoding */
	CHUNK_MAX = 256 << 10,
	VARINT_BYTES = 10,
};

struct codec_chunk {
	struct codec_chunk *older;
	size_t cap, used;
	_Alignas(ALIGN) uint8_t data[];
};

void codec_arena_init(struct codec_arena *a, size_t max)
{
	*a = (struct codec_arena){.max = max};
}

static void drop_chunks(struct codec_arena *a, struct codec_chunk *keep)
{
	while (a->chunk != keep) {
		struct codec_chunk *c = a->chunk;

		a->chunk = c->older;
		a->held -= sizeof(*c) + c->cap;
		mem_free(c);
	}
}

static void drop_older(struct codec_arena *a, struct codec_chunk *c)
{
	struct codec_chunk *older;

	while ((older = c->older)) {
		c->older = older->older;
		a->held -= sizeof(*older) + older->cap;
		mem_free(older);
	}
}

void codec_arena_clear(struct codec_arena *a)
{
	struct codec_chunk *kept = a->chunk; /* the newest is the largest, or at least larger than most */

	while (kept && kept->cap > CHUNK_KEPT)
		kept = kept->older;
	drop_chunks(a, kept);
	if (kept) {
		drop_older(a, kept);
		kept->used = 0;
	}
	a->used = 0;
	a->refused = false;
}

void codec_arena_fini(struct codec_arena *a)
{
	drop_chunks(a, NULL);
	a->used = 0;
	a->refused = false;
}

static struct codec_chunk *grow(struct codec_arena *a, size_t len)
{
	size_t cap = a->chunk ? a->chunk->cap * 2 : CHUNK_MIN;
	struct codec_chunk *c;

	if (cap > CHUNK_MAX)
		cap = CHUNK_MAX;
	if (cap < len)
		cap = len;
	c = mem_alloc(sizeof(*c) + cap);
	c->older = a->chunk;
	c->cap = cap;
	c->used = 0;
	a->chunk = c;
	a->held += sizeof(*c) + cap;
	return c;
}

void *codec_arena_alloc(struct codec_arena *a, size_t len)
{
	struct codec_chunk *c = a->chunk;
	size_t take;
	void *p;

	take = len <= a->max ? (len + ALIGN - 1) & ~(size_t)(ALIGN - 1) : SIZE_MAX;
	if (take == 0)
		take = ALIGN; /* never NULL for success */
	if (take > a->max - a->used) {
		a->refused = true;
		return NULL;
	}
	if (!c || take > c->cap - c->used)
		c = grow(a, take);
	p = c->data + c->used;
	c->used += take;
	a->used += take;
	return p;
}

/* ---- the walk ---- */

static uint64_t read_varint(struct rcursor *r)
{
	uint64_t v = 0;

	for (int i = 0; i < VARINT_BYTES; i++) {
		uint8_t b = rcursor_u8(r);

		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (!(b & 0x80))
			return v;
	}
	r->failed = true;
	return 0;
}

/* The type of the messages in field `tag`, or NULL if it holds none. */
static const ProtobufCMessageDescriptor *message_in(const ProtobufCMessageDescriptor *type, uint64_t tag)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned)tag);

	return field && field->type == PROTOBUF_C_TYPE_MESSAGE ? field->descriptor : NULL;
}

static bool walk(const ProtobufCMessageDescriptor *type, struct slice body, int depth)
{
	struct rcursor r;

	if (depth > CODEC_DEPTH)
		return false;
	rcursor_init(&r, body.data, body.len);
	while (!r.failed && rcursor_left(&r) > 0) {
		uint64_t tag = read_varint(&r);
		uint64_t len;
		const ProtobufCMessageDescriptor *inner;
		struct slice value;

		/*
		 * Field numbers are 1 to 2^29 - 1. protobuf-c would cut a longer one down to another field, which then
		 * was not walked.
		 */
		if (tag >> 3 == 0 || tag > UINT32_MAX)
			return false;
		switch (tag & 7) {
		case PROTOBUF_C_WIRE_TYPE_VARINT:
			read_varint(&r);
			break;
		case PROTOBUF_C_WIRE_TYPE_64BIT:
			rcursor_slice(&r, 8);
			break;
		case PROTOBUF_C_WIRE_TYPE_32BIT:
			rcursor_slice(&r, 4);
			break;
		case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
			len = read_varint(&r);
			if (r.failed || len > rcursor_left(&r))
				return false;
			value = rcursor_slice(&r, len);
			inner = message_in(type, tag >> 3);
			if (inner && !walk(inner, value, depth + 1))
				return false;
			break;
		default: /* groups, which nobody writes any more, and the unknown */
			return false;
		}
	}
	return rcursor_done(&r);
}

/* ---- protobuf-c ---- */

static void *arena_alloc(void *data, size_t len)
{
	return codec_arena_alloc(data, len);
}

static void arena_free(void *data, void *p)
{
	(void)data;
	(void)p; /* goes with the arena */
}

/* Where an arena stands, to go back to. */
struct mark {
	struct codec_chunk *chunk;
	size_t chunk_used, used;
};

static struct mark mark_of(const struct codec_arena *a)
{
	return (struct mark){.chunk = a->chunk, .chunk_used = a->chunk ? a->chunk->used : 0, .used = a->used};
}

static void go_back(struct codec_arena *a, const struct mark *mark)
{
	drop_chunks(a, mark->chunk);
	if (mark->chunk)
		mark->chunk->used = mark->chunk_used;
	a->used = mark->used;
}

int codec_unpack(struct codec_arena *a, const ProtobufCMessageDescriptor *type, const void *body, size_t len,
	const ProtobufCMessage **ret_msg)
{
	ProtobufCAllocator allocator = {arena_alloc, arena_free, a};
	struct mark mark = mark_of(a);
	ProtobufCMessage *msg;

	CHECK(type && len <= a->max);
	a->refused = false;
	if (codec__plain_unpack(a, type, slice_of(body, len), ret_msg))
		return 0;
	go_back(a, &mark);
	a->refused = false;
	if (!walk(type, slice_of(body, len), 1))
		return ERR_PROTO;
	msg = protobuf_c_message_unpack(type, &allocator, len, body);
	if (msg) {
		*ret_msg = msg;
		return 0;
	}
	return a->refused ? ERR_MSGSIZE : ERR_PROTO;
}

size_t codec_pack(const ProtobufCMessage *msg, void *out, size_t cap)
{
	size_t len;

	if (codec__plain_pack(msg, out, cap, &len))
		return len;
	len = protobuf_c_message_get_packed_size(msg);
	if (len <= cap)
		CHECK(protobuf_c_message_pack(msg, out) == len);
	return len;
}
