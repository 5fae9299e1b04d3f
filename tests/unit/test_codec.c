/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies, good and hostile, and the HELLO. */
#include "common/rpc/codec.h"

#include <string.h>
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/rpc/hello.h"
#include "proto/metad.pb-c.h"
#include "tests/lib/unit.h"

START_TEST(test_round_trip)
{
	Craton__Hello hello = CRATON__HELLO__INIT;
	uint64_t features[] = {1, UINT64_MAX};
	struct codec_arena arena;
	const ProtobufCMessage *msg;
	const Craton__Hello *back;
	uint8_t body[256];
	size_t len;

	hello.name = (char *)"chunkd-1";
	hello.role = CRATON__ROLE__ROLE_CHUNKD;
	hello.features = features;
	hello.n_features = 2;
	len = craton__hello__pack(&hello, body);
	codec_arena_init(&arena, 4096);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(codec_unpack(&arena, &craton__hello__descriptor, body, len, &msg), 0);
		back = (const Craton__Hello *)msg;
		ck_assert_str_eq(back->name, "chunkd-1");
		ck_assert_uint_eq(back->n_features, 2);
		ck_assert_uint_eq(back->features[1], UINT64_MAX);
		codec_arena_clear(&arena);
		ck_assert_uint_eq(arena.used, 0);
	}
	ck_assert_int_eq(codec_unpack(&arena, &craton__hello__descriptor, NULL, 0, &msg), 0);
	codec_arena_fini(&arena);
	ck_assert_uint_eq(arena.held, 0);
}
END_TEST

START_TEST(test_arena)
{
	struct codec_arena arena;
	uint8_t *p[100];

	codec_arena_init(&arena, 64 << 10);
	for (int i = 0; i < 100; i++) {
		p[i] = codec_arena_alloc(&arena, (size_t)i * 10);
		ck_assert_ptr_nonnull(p[i]);
		ck_assert_uint_eq((uintptr_t)p[i] % 16, 0);
		memset(p[i], i, (size_t)i * 10);
	}
	for (int i = 0; i < 100; i++)
		for (int j = 0; j < i * 10; j++)
			ck_assert_uint_eq(p[i][j], i);
	ck_assert_ptr_null(codec_arena_alloc(&arena, 64 << 10));
	ck_assert(arena.refused);
	ck_assert_ptr_null(codec_arena_alloc(&arena, SIZE_MAX));
	ck_assert_ptr_nonnull(codec_arena_alloc(&arena, 1));
	ck_assert_uint_le(arena.used, 64 << 10);
	codec_arena_clear(&arena);
	ck_assert_uint_gt(arena.held, 0);
	ck_assert_uint_le(arena.held, (16 << 10) + 64);
	for (int i = 0; i < 3; i++) { /* what is kept suffices for as much again, and is kept again */
		size_t held = arena.held;

		ck_assert_ptr_nonnull(codec_arena_alloc(&arena, held / 2));
		ck_assert_uint_eq(arena.held, held);
		codec_arena_clear(&arena);
		ck_assert_uint_eq(arena.held, held);
	}
	ck_assert_ptr_nonnull(codec_arena_alloc(&arena, 60 << 10));
	codec_arena_fini(&arena);
}
END_TEST

static int unpack(const ProtobufCMessageDescriptor *type, const void *body, size_t len, size_t max)
{
	struct codec_arena arena;
	const ProtobufCMessage *msg;
	int code;

	codec_arena_init(&arena, max);
	code = codec_unpack(&arena, type, body, len, &msg);
	ck_assert_uint_le(arena.used, max);
	codec_arena_fini(&arena);
	return code;
}

START_TEST(test_malformed)
{
	static const char *const bodies[] = {
		"\x08",                                             /* a tag without a value */
		"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", /* a varint of 11 bytes */
		"\x1a\x10"
		"abc",                                          /* 16 bytes announced, 3 there */
		"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", /* a length of 2^64 - 1 */
		"\x0b\x0c",                                     /* a group */
		"\x0f",                                         /* wire type 7 */
		"\x2d\x01",                                     /* 4 bytes announced, 1 there */
		"\x29\x01\x02",                                 /* 8 bytes announced, 2 there */
		"\x80\x80\x01\x01\x0b",                         /* field number 2048, then a group */
		"\x8a\x80\x80\x80\x10\x01"
		"a",            /* field 1 as 2^29 + 1 */
		"\x2a\x01\xff", /* fine: one byte of name */
	};

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		ck_assert_int_eq(unpack(&craton__hello__descriptor, bodies[i], strlen(bodies[i]), 1 << 16),
			i == 10 ? 0 : ERR_PROTO);
}
END_TEST

/* Bodies that would need many times their size: packed counts, unknown fields, a field merged again and again. */
START_TEST(test_memory_is_bounded)
{
	enum { LEN = 1 << 20, MAX = 4 << 20 };
	uint8_t *body = mem_zalloc(LEN);
	size_t at = 0;

	/* unknown fields: 2 bytes each */
	for (size_t i = 0; i + 1 < LEN; i += 2)
		body[i] = 15 << 3;
	ck_assert_int_eq(unpack(&craton__hello__descriptor, body, LEN, MAX), ERR_MSGSIZE);

	/* the same known field, many times */
	for (size_t i = 0; i + 1 < LEN; i += 2)
		body[i] = 1 << 3;
	ck_assert_int_eq(unpack(&craton__hello__descriptor, body, LEN, MAX), ERR_MSGSIZE);

	/* many short strings */
	for (size_t i = 0; i + 1 < LEN; i += 2)
		body[i] = 7 << 3 | 2;
	ck_assert_int_eq(unpack(&craton__hello__descriptor, body, LEN, MAX), ERR_MSGSIZE);

	/* packed fixed64: an honest megabyte fits */
	memset(body, 0, LEN);
	body[at++] = 6 << 3 | 2;
	at += 4;
	body[1] = 0x80 | ((LEN - 16) & 0x7f);
	body[2] = 0x80 | ((LEN - 16) >> 7 & 0x7f);
	body[3] = 0x80 | ((LEN - 16) >> 14 & 0x7f);
	body[4] = (LEN - 16) >> 21;
	ck_assert_int_eq(unpack(&craton__hello__descriptor, body, at + LEN - 16, MAX), 0);
	mem_free(body);
}
END_TEST

/* A message type that contains itself, made by hand: our own schema has none. */
static const ProtobufCMessageDescriptor nest_type;

struct nest {
	ProtobufCMessage base;
	struct nest *inner;
};

static const ProtobufCFieldDescriptor nest_fields[] = {{
	.name = "inner",
	.id = 1,
	.label = PROTOBUF_C_LABEL_NONE,
	.type = PROTOBUF_C_TYPE_MESSAGE,
	.offset = offsetof(struct nest, inner),
	.descriptor = &nest_type,
}};
static const unsigned nest_names[] = {0};
static const ProtobufCIntRange nest_ranges[] = {{1, 0}, {0, 1}};
static const ProtobufCMessageDescriptor nest_type = {
	.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
	.name = "nest",
	.short_name = "nest",
	.c_name = "nest",
	.package_name = "",
	.sizeof_message = sizeof(struct nest),
	.n_fields = 1,
	.fields = nest_fields,
	.fields_sorted_by_name = nest_names,
	.n_field_ranges = 1,
	.field_ranges = nest_ranges,
};

/* `levels` messages in one another, the innermost empty; written from the end of body. */
static size_t nested(uint8_t *body, size_t cap, int levels)
{
	size_t start = cap;

	for (int i = 1; i < levels; i++) {
		size_t len = cap - start;

		for (int shift = len < 128 ? 0 : len < 1 << 14 ? 7 : 14; shift >= 0; shift -= 7)
			body[--start] = (uint8_t)((len >> shift & 0x7f) |
				(shift ==
							(len < 128                      ? 0
									: len < 1 << 14 ? 7
											: 14)
						? 0
						: 0x80));
		body[--start] = 1 << 3 | 2;
	}
	memmove(body, body + start, cap - start);
	return cap - start;
}

START_TEST(test_depth_is_bounded)
{
	static uint8_t body[1 << 20];

	ck_assert_int_eq(unpack(&nest_type, body, nested(body, sizeof(body), CODEC_DEPTH), 4 << 20), 0);
	ck_assert_int_eq(unpack(&nest_type, body, nested(body, sizeof(body), CODEC_DEPTH + 1), 4 << 20), ERR_PROTO);
	ck_assert_int_eq(unpack(&nest_type, body, nested(body, sizeof(body), 200000), 4 << 20), ERR_PROTO);
}
END_TEST

/* ---- the same as protobuf-c's own ---- */

static const ProtobufCMessageDescriptor *const types[] = {&craton__hello__descriptor,
	&craton__create_request__descriptor, &craton__create_reply__descriptor, &craton__commit_request__descriptor,
	&craton__commit_reply__descriptor, &craton__readdir_reply__descriptor, &craton__layout_request__descriptor,
	&craton__layout_reply__descriptor, &craton__xattr_reply__descriptor, &craton__session_renew_request__descriptor,
	&craton__status_reply__descriptor, &craton__inventory_reply__descriptor};

static ProtobufCMessage *random_message(
	struct rng *rng, struct codec_arena *a, const ProtobufCMessageDescriptor *type, int depth);

static uint64_t random_number(struct rng *rng)
{
	return rng_below(rng, 4) ? rng_u64(rng) >> rng_below(rng, 64) : 0;
}

static void random_value(
	struct rng *rng, struct codec_arena *a, const ProtobufCFieldDescriptor *f, void *member, int depth)
{
	size_t len = rng_below(rng, 8) ? rng_below(rng, 20) : rng_below(rng, 300);
	uint8_t *bytes;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_FIXED64:
		*(uint64_t *)member = random_number(rng);
		return;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)member = (protobuf_c_boolean)rng_below(rng, 2);
		return;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_FIXED32:
		*(uint32_t *)member = (uint32_t)random_number(rng);
		return;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
		bytes = codec_arena_alloc(a, len + 1);
		memset(bytes, 'a' + (int)rng_below(rng, 26), len);
		bytes[len] = 0;
		if (f->type == PROTOBUF_C_TYPE_STRING)
			*(char **)member = (char *)bytes;
		else
			*(ProtobufCBinaryData *)member = (ProtobufCBinaryData){.len = len, .data = bytes};
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		*(ProtobufCMessage **)member = random_message(rng, a, f->descriptor, depth + 1);
		return;
	default:
		ck_abort_msg("%s is of a type that our schema did not use", f->name);
	}
}

static size_t bytes_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return 4;
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 8;
	}
}

static ProtobufCMessage *random_message(
	struct rng *rng, struct codec_arena *a, const ProtobufCMessageDescriptor *type, int depth)
{
	uint8_t *msg = codec_arena_alloc(a, type->sizeof_message), *array;

	ck_assert_ptr_nonnull(msg);
	protobuf_c_message_init(type, msg);
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &type->fields[i];
		size_t count = rng_below(rng, depth > 1 ? 3 : 9);

		if (rng_below(rng, 4) == 0)
			continue;
		if (f->label != PROTOBUF_C_LABEL_REPEATED) {
			random_value(rng, a, f, msg + f->offset, depth);
			continue;
		}
		array = codec_arena_alloc(a, count * bytes_of(f));
		*(size_t *)(void *)(msg + f->quantifier_offset) = count;
		*(void **)(void *)(msg + f->offset) = array;
		for (size_t j = 0; j < count; j++)
			random_value(rng, a, f, array + j * bytes_of(f), depth);
	}
	return (ProtobufCMessage *)(void *)msg;
}

/* What we make of the bytes is what protobuf-c makes of them, if it makes anything. Returns whether we made anything. */
static bool same_as_protobuf_c(const ProtobufCMessageDescriptor *type, const uint8_t *body, size_t len)
{
	ProtobufCMessage *theirs = protobuf_c_message_unpack(type, NULL, len, body);
	const ProtobufCMessage *ours;
	uint8_t *a, *b;
	struct codec_arena arena;
	size_t size;
	bool good;

	codec_arena_init(&arena, 4 << 20);
	good = codec_unpack(&arena, type, body, len, &ours) == 0;
	if (good) {
		ck_assert_ptr_nonnull(theirs);
		size = protobuf_c_message_get_packed_size(theirs);
		ck_assert_uint_eq(protobuf_c_message_get_packed_size(ours), size);
		a = mem_alloc(size + 1);
		b = mem_alloc(size + 1);
		protobuf_c_message_pack(theirs, a);
		protobuf_c_message_pack(ours, b);
		ck_assert_mem_eq(a, b, size);
		mem_free(a);
		mem_free(b);
	}
	codec_arena_fini(&arena);
	if (theirs)
		protobuf_c_message_free_unpacked(theirs, NULL);
	return good;
}

/* Packed by us and by protobuf-c: the same bytes, whatever the room is. */
static size_t pack_both(const ProtobufCMessage *msg, uint8_t *out, size_t cap)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *ours = mem_alloc(len + CODEC_PACK_SPARE);

	ck_assert_uint_le(len, cap);
	ck_assert_uint_eq(protobuf_c_message_pack(msg, out), len);
	for (size_t spare = 0; spare <= CODEC_PACK_SPARE; spare += CODEC_PACK_SPARE) {
		memset(ours, 0xee, len + CODEC_PACK_SPARE);
		ck_assert_uint_eq(codec_pack(msg, ours, len + spare), len);
		ck_assert_mem_eq(ours, out, len);
	}
	for (size_t room = 0; room < len; room += len / 3 + 1)
		ck_assert_uint_eq(codec_pack(msg, ours, room), len);
	mem_free(ours);
	return len;
}

START_TEST(test_like_protobuf_c)
{
	enum { CAP = 1 << 20 };
	uint8_t *body = mem_alloc(CAP);
	struct codec_arena arena;
	uint32_t refused = 0;
	struct rng rng;

	rng_init(&rng, 5);
	codec_arena_init(&arena, 16 << 20);
	for (int round = 0; round < 3000; round++) {
		const ProtobufCMessageDescriptor *type = types[rng_below(&rng, ARRAY_COUNT(types))];
		size_t len = pack_both(random_message(&rng, &arena, type, 0), body, CAP);

		ck_assert(same_as_protobuf_c(type, body, len));
		for (int i = 0; i < 8 && len; i++) { /* and with a byte that is another one, or the end cut off */
			size_t at = rng_below(&rng, len);
			uint8_t was = body[at];

			refused += !same_as_protobuf_c(type, body, at);
			body[at] = (uint8_t)rng_u64(&rng);
			refused += !same_as_protobuf_c(type, body, len);
			body[at] = was;
		}
		codec_arena_clear(&arena);
	}
	ck_assert_uint_gt(refused, 1000);
	codec_arena_fini(&arena);
	mem_free(body);
}
END_TEST

/* Right, but not as we write it: twice, out of order, longer than need be, unknown. */
START_TEST(test_not_plain)
{
	static const struct {
		const ProtobufCMessageDescriptor *type;
		const char *body;
		size_t len;
	} cases[] = {
#define BODY(type, text) {&craton__##type##__descriptor, text, sizeof(text) - 1}
		BODY(attr_reply, "\x0a\x02\x08\x05\x0a\x02\x10\x06"), /* a message in two pieces: one with both */
		BODY(attr_reply, "\x10\x01\x10\x02"),                 /* a number twice: the last one */
		BODY(attr_reply, "\x10\x01\x0a\x02\x08\x05"),         /* out of order */
		BODY(attr_reply, "\x10\x81\x80\x00"),                 /* a varint with zeros behind it */
		BODY(attr_reply, "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), /* more than 64 bits */
		BODY(readdir_request, "\x88\x80\x80\x80\x80\x00\x01"), /* a tag of 6 bytes */
		BODY(lookup_request, "\x12\x81\x80\x80\x80\x80\x00x"), /* a length of 6 bytes */
		BODY(session_renew_request, "\x1a\x81\x80\x80\x80\x80\x00\x05"),
		BODY(attr_reply, "\x50\x01\x0a\x02\x50\x01"),                     /* unknown; then a flag */
		BODY(attr_reply, "\x12\x01\x01"),                           /* a number that says it has a length */
		BODY(attr, "\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), /* true by bits beyond the 64th */
		BODY(attr, "\x10\xff\xff\xff\xff\xff\xff\x7f"),             /* 32 bits of more */
		BODY(readdir_reply,
			"\x0a\x03\x0a\x01"
			"a"
			"\x10\x01\x0a\x03\x0a\x01"
			"b"),                                                /* a run with something in it */
		BODY(session_renew_request, "\x1a\x02\x01\x02\x1a\x01\x03"), /* packed in two pieces */
		BODY(session_renew_request, "\x18\x01\x18\x02"),             /* not packed */
		BODY(session_renew_request, "\x1a\x00"),                     /* nothing, packed */
		BODY(xattr_reply,
			"\x12\x00\x12\x01"
			"a"
			"\x12\x00"), /* empty ones in a run */
#undef BODY
	};

	for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
		same_as_protobuf_c(cases[i].type, (const uint8_t *)cases[i].body, cases[i].len);
}
END_TEST

/* What could not be taken plainly leaves nothing of the first try in the arena. */
START_TEST(test_second_try)
{
	static const uint8_t tail[] = {15 << 3, 1}; /* unknown */
	ProtobufCBinaryData names[40];
	Craton__XattrReply reply = CRATON__XATTR_REPLY__INIT;
	uint8_t text[200] = {0}, body[10000];
	struct codec_arena plain, other;
	const ProtobufCMessage *msg;
	size_t len;

	for (size_t i = 0; i < ARRAY_COUNT(names); i++)
		names[i] = (ProtobufCBinaryData){.len = sizeof(text), .data = text};
	reply.names = names;
	reply.n_names = ARRAY_COUNT(names);
	len = craton__xattr_reply__pack(&reply, body);
	memcpy(body + len, tail, sizeof(tail));
	codec_arena_init(&plain, 64 << 10);
	codec_arena_init(&other, 64 << 10);
	ck_assert_int_eq(codec_unpack(&plain, &craton__xattr_reply__descriptor, body, len, &msg), 0);
	ck_assert_int_eq(codec_unpack(&other, &craton__xattr_reply__descriptor, body, len + sizeof(tail), &msg), 0);
	ck_assert_uint_eq(msg->n_unknown_fields, 1);
	ck_assert_uint_lt(other.used, plain.used + 2048);
	codec_arena_fini(&plain);
	codec_arena_fini(&other);
}
END_TEST

/* ---- HELLO ---- */

static const struct uuid cluster_a = {{1}}, cluster_b = {{2}}, cluster_none;

static int meet(const struct rpc_identity *self, const struct rpc_identity *other, struct rpc_identity *ret_peer)
{
	uint8_t body[512];
	Craton__Hello hello;
	struct err err = {0};
	int code;

	hello_fill(other, &hello);
	code = hello_parse(self, body, craton__hello__pack(&hello, body), ret_peer, &err);
	ck_assert_int_eq(err.code, code);
	return code;
}

START_TEST(test_hello_clusters)
{
	const struct {
		struct rpc_identity self, other;
		int code;
	} cases[] = {
		{{cluster_a, RPC_ROLE_CHUNKD, "c"}, {cluster_a, RPC_ROLE_METAD, "m"}, 0},
		{{cluster_a, RPC_ROLE_CHUNKD, "c"}, {cluster_b, RPC_ROLE_METAD, "m"}, ERR_WRONG_CLUSTER},
		{{cluster_a, RPC_ROLE_CHUNKD, "c"}, {cluster_none, RPC_ROLE_METAD, "m"}, ERR_WRONG_CLUSTER},
		{{cluster_none, RPC_ROLE_CHUNKD, "c"}, {cluster_none, RPC_ROLE_METAD, "m"}, ERR_WRONG_CLUSTER},
		{{cluster_a, RPC_ROLE_CHUNKD, "c"}, {cluster_none, RPC_ROLE_CLIENT, "x"}, 0},
		{{cluster_none, RPC_ROLE_CLIENT, "x"}, {cluster_a, RPC_ROLE_METAD, "m"}, 0},
		{{cluster_b, RPC_ROLE_CLIENT, "x"}, {cluster_a, RPC_ROLE_METAD, "m"}, ERR_WRONG_CLUSTER},
		{{cluster_none, RPC_ROLE_ADMIN, "x"}, {cluster_a, RPC_ROLE_METAD, "m"}, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rpc_identity peer = {0};

		ck_assert_int_eq(meet(&cases[i].self, &cases[i].other, &peer), cases[i].code);
		ck_assert_str_eq(peer.name, cases[i].other.name);
		ck_assert_int_eq(peer.role, cases[i].other.role);
	}
}
END_TEST

static int parse_hello(const Craton__Hello *hello)
{
	struct rpc_identity self = {cluster_a, RPC_ROLE_METAD, "metad-1"}, peer;
	uint8_t body[1024];
	struct err err = {0};

	return hello_parse(&self, body, craton__hello__pack(hello, body), &peer, &err);
}

START_TEST(test_hello_fields)
{
	struct rpc_identity other = {cluster_a, RPC_ROLE_CLIENT, "client"};
	char long_name[65];
	Craton__Hello hello;

	hello_fill(&other, &hello);
	ck_assert_int_eq(parse_hello(&hello), 0);
	hello.protocol_version_min = HELLO_VERSION_MAX + 1;
	hello.protocol_version_max = 99;
	ck_assert_int_eq(parse_hello(&hello), ERR_VERSION);
	hello.protocol_version_min = 0;
	hello.protocol_version_max = HELLO_VERSION_MIN - 1;
	ck_assert_int_eq(parse_hello(&hello), ERR_VERSION);
	hello.protocol_version_max = 99; /* newer, but speaks ours too */
	ck_assert_int_eq(parse_hello(&hello), 0);
	hello.cluster.len = 15;
	ck_assert_int_eq(parse_hello(&hello), ERR_PROTO);
	hello.cluster.len = 16;
	hello.role = (Craton__Role)0;
	ck_assert_int_eq(parse_hello(&hello), ERR_PROTO);
	hello.role = (Craton__Role)5;
	ck_assert_int_eq(parse_hello(&hello), ERR_PROTO);
	hello.role = CRATON__ROLE__ROLE_CLIENT;
	hello.name = (char *)"two\nlines";
	ck_assert_int_eq(parse_hello(&hello), ERR_PROTO);
	memset(long_name, 'x', 64);
	long_name[64] = 0;
	hello.name = long_name;
	ck_assert_int_eq(parse_hello(&hello), ERR_PROTO);
	long_name[63] = 0;
	ck_assert_int_eq(parse_hello(&hello), 0);
}
END_TEST

UNIT_MAIN("codec", test_round_trip, test_arena, test_malformed, test_memory_is_bounded, test_depth_is_bounded,
	test_like_protobuf_c, test_not_plain, test_second_try, test_hello_clusters, test_hello_fields)
