/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of every request and response. Byte 0 chooses the message type; what is accepted can be packed again, and is what protobuf-c
 * makes of it.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/codec.h"
#include "common/rpc/methods.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct rpc_method *const methods[] = {&rpc_metad_lookup, &rpc_metad_readdir, &rpc_metad_mkdir,
	&rpc_metad_remove, &rpc_metad_rename, &rpc_metad_setattr, &rpc_metad_policy, &rpc_metad_create,
	&rpc_metad_allocate, &rpc_metad_commit, &rpc_metad_abort, &rpc_metad_layout, &rpc_metad_df, &rpc_metad_status,
	&rpc_metad_register, &rpc_metad_heartbeat, &rpc_chunkd_put, &rpc_chunkd_drop_upload, &rpc_chunkd_receipt,
	&rpc_chunkd_get, &rpc_chunkd_lists, &rpc_chunkd_stat, &rpc_metad_drops, &rpc_metad_inventory, &rpc_metad_gc,
	&rpc_metad_config, &rpc_metad_report, &rpc_metad_session_open, &rpc_metad_session_renew,
	&rpc_metad_session_close, &rpc_metad_link, &rpc_metad_symlink, &rpc_metad_readlink, &rpc_metad_truncate,
	&rpc_metad_xattr_set, &rpc_metad_xattr_remove, &rpc_metad_xattr_get, &rpc_metad_backup, &rpc_metad_maintenance};

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
	method = methods[(data[0] & 0x7f) % ARRAY_COUNT(methods)];
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
