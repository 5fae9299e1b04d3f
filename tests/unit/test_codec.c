/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies, good and hostile, and the HELLO. */
#include "common/rpc/codec.h"

#include <string.h>
#include "common/base/mem.h"
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
	ck_assert_uint_le(arena.held, 4096);
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
	test_hello_clusters, test_hello_fields)
