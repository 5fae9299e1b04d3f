/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk server that lies: the first bit of every chunk that it serves is another one, and the list of unit CRCs that it
 * sends says so, too; what lies on its disk is right. Linked with --wrap=rpc_reply around the real program, for tools/prove.
 */
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/rpc/rpc.h"
#include "proto/chunkd.pb-c.h"

void __real_rpc_reply(struct rpc_req *req, const struct rpc_reply *reply);
void __wrap_rpc_reply(struct rpc_req *req, const struct rpc_reply *reply);

/* CRCs are linear: what flipping that bit does to the CRC of a unit of `len` bytes. */
static uint32_t crc_change(size_t len)
{
	static uint8_t unit[LIMIT_UNIT_BYTES];
	uint32_t plain, flipped;

	unit[0] = 0;
	plain = crc32c(unit, len);
	unit[0] = 1;
	flipped = crc32c(unit, len);
	return plain ^ flipped;
}

void __wrap_rpc_reply(struct rpc_req *req, const struct rpc_reply *reply)
{
	static uint32_t list[LIMIT_UNITS_PER_CHUNK];
	const Craton__GetPart *part = (const Craton__GetPart *)reply->msg;
	Craton__GetPart lie;
	struct rpc_reply told = *reply;

	if (!part || part->base.descriptor != &craton__get_part__descriptor) {
		__real_rpc_reply(req, reply);
		return;
	}
	lie = *part;
	told.msg = &lie.base;
	if (lie.list.len && lie.list.len <= sizeof(list)) {
		size_t len = part->chunk_length < LIMIT_UNIT_BYTES ? (size_t)part->chunk_length : LIMIT_UNIT_BYTES;

		memcpy(list, lie.list.data, lie.list.len);
		list[0] ^= crc_change(len);
		lie.list.data = (uint8_t *)list;
	}
	if (part->offset == 0 && reply->payload_count && reply->payload[0].iov_len)
		*(uint8_t *)reply->payload[0].iov_base ^= 1;
	__real_rpc_reply(req, &told);
}
