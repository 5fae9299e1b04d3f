/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of every request and response that a daemon has. Byte 0 chooses the message type; what is accepted can be packed again, and is what protobuf-c
 * makes of it.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "chunkd/daemon.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/codec.h"
#include "metad/core.h"
#include "proto/common.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of any method, by one that does not lead. */
static const struct rpc_method leader_hint = {
	.request = &craton__leader_hint__descriptor, .response = &craton__leader_hint__descriptor};

/* Whatever a daemon answers: metad's methods, chunkd's, and the hint. */
static const struct rpc_method *choose_method(uint8_t number)
{
	static const struct rpc_method *methods[128];
	static size_t count;

	if (count == 0) {
		for (const struct rpc_handler *h = metad__handlers; h->method; h++)
			methods[count++] = h->method;
		for (const struct rpc_handler *h = daemon_handlers; h->method; h++)
			methods[count++] = h->method;
		methods[count++] = &leader_hint;
	}
	return methods[number % count];
}

/* Packed by protobuf-c and by us: the same bytes. */
static size_t check_packing(const ProtobufCMessage *msg, uint8_t **ret_packed)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *packed = mem_alloc(len + 1), *ours = mem_alloc(len + CODEC_PACK_SPARE);

	CHECK(protobuf_c_message_pack(msg, packed) == len);
	CHECK(codec_pack(msg, ours, len + CODEC_PACK_SPARE) == len);
	CHECK(memcmp(packed, ours, len) == 0);
	mem_free(ours);
	*ret_packed = packed;
	return len;
}

/* protobuf-c takes the body for the message that we took it for. */
static void check_meaning(const ProtobufCMessageDescriptor *type, struct slice body, struct slice packed)
{
	ProtobufCMessage *theirs = protobuf_c_message_unpack(type, NULL, body.len, body.data);
	uint8_t *out = mem_alloc(packed.len + 1);

	CHECK(theirs && protobuf_c_message_get_packed_size(theirs) == packed.len);
	protobuf_c_message_pack(theirs, out);
	CHECK(memcmp(out, packed.data, packed.len) == 0);
	mem_free(out);
	protobuf_c_message_free_unpacked(theirs, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rpc_method *method;
	const ProtobufCMessage *msg, *again;
	struct codec_arena arena;
	uint8_t *packed;
	size_t len;
	int code;

	if (size == 0 || size - 1 > LIMIT_FRAME_BODY_BYTES)
		return 0;
	method = choose_method(data[0] & 0x7f);
	codec_arena_init(&arena, 4 * LIMIT_FRAME_BODY_BYTES);
	code = codec_unpack(&arena, data[0] & 0x80 ? method->response : method->request, data + 1, size - 1, &msg);
	CHECK(code == 0 || code == ERR_PROTO || code == ERR_MSGSIZE);
	CHECK(arena.used <= arena.max);
	if (code == 0) {
		len = check_packing(msg, &packed);
		check_meaning(msg->descriptor, slice_of(data + 1, size - 1), slice_of(packed, len));
		if (len <= LIMIT_FRAME_BODY_BYTES) {
			code = codec_unpack(&arena, msg->descriptor, packed, len, &again);
			CHECK(code == 0 || code == ERR_MSGSIZE);
		}
		mem_free(packed);
	}
	codec_arena_fini(&arena);
	return 0;
}
