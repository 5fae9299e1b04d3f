/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What metad says about blocks that a client may write. Byte 0: the policy; then an AllocateReply. Whatever it says, an allocation that is
 * accepted has a disk and a token for each chunk of the block, and nothing else.
 */
#include <string.h>
#include "client/write.h"
#include "common/base/check.h"
#include "common/rpc/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some target of the message says it: disk and token belong together. */
static bool is_said(const struct write_target *t, Craton__Target *const *targets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (t->disk == targets[i]->disk && t->incarnation == targets[i]->incarnation &&
			targets[i]->token.len == TOKEN_BYTES &&
			memcmp(t->token, targets[i]->token.data, TOKEN_BYTES) == 0)
			return true;
	return false;
}

static void try_allocation(const Craton__Allocation *in, const struct ec_policy *policy)
{
	struct write_alloc a = {.spare_count = LIMIT_M + 1};

	if (!write_alloc_read(in, policy, &a)) {
		CHECK(a.spare_count == LIMIT_M + 1);
		return;
	}
	CHECK(a.block && a.block == in->block && a.spare_count <= LIMIT_M);
	for (uint32_t i = 0; i < LIMIT_WIDTH; i++) {
		bool wanted = i < (uint32_t)policy->k + policy->m;

		CHECK(wanted ? a.targets[i].disk && is_said(&a.targets[i], in->targets, in->n_targets)
			     : a.targets[i].disk == 0);
		CHECK(!a.targets[i].used);
	}
	for (uint32_t i = 0; i < LIMIT_M; i++) {
		CHECK(i < a.spare_count ? a.spares[i].disk && is_said(&a.spares[i], in->spares, in->n_spares)
					: a.spares[i].disk == 0);
		CHECK(!a.spares[i].used);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ec_policy *policy = size ? ec_policy_by_id(data[0]) : NULL;
	const ProtobufCMessage *msg;
	struct codec_arena arena;

	if (!policy || size - 1 > LIMIT_FRAME_BODY_BYTES)
		return 0;
	codec_arena_init(&arena, 4 * LIMIT_FRAME_BODY_BYTES);
	if (codec_unpack(&arena, rpc_metad_allocate.response, data + 1, size - 1, &msg) == 0) {
		const Craton__AllocateReply *reply = (const Craton__AllocateReply *)msg;

		for (size_t i = 0; i < reply->n_blocks; i++)
			try_allocation(reply->blocks[i], policy);
	}
	codec_arena_fini(&arena);
	return 0;
}
