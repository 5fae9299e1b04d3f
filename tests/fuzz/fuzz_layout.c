/* SPDX-License-Identifier: Apache-2.0 */
/* What metad says about a file's bytes: whatever it says, a layout that is accepted keeps what its header promises. */
#include <stddef.h>
#include <stdint.h>
#include "client/layout.h"
#include "common/base/check.h"
#include "common/rpc/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_block(struct layout_block *b)
{
	uint8_t list[16] = {0};

	CHECK(b->policy && b->geom.length > 0 && b->geom.cell_bytes % LIMIT_UNIT_BYTES == 0);
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		CHECK(stripe_chunk_len(&b->geom, i) <= LIMIT_CHUNK_BYTES);
		layout_learn_list(b, i, list, 4);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const ProtobufCMessage *msg;
	struct codec_arena arena;
	struct layout *l;
	uint64_t at = 0;

	if (size > LIMIT_FRAME_BODY_BYTES)
		return 0;
	codec_arena_init(&arena, 4 * LIMIT_FRAME_BODY_BYTES);
	if (codec_unpack(&arena, rpc_metad_layout.response, data, size, &msg) == 0 &&
		layout_new((const Craton__LayoutReply *)msg, 0, 1, &l) == 0) {
		for (size_t i = 0; i < l->block_count; i++)
			check_block(&l->blocks[i]);
		for (size_t i = 0; i < l->extent_count; i++) {
			const struct layout_extent *e = &l->extents[i];

			CHECK(e->file_offset >= at && e->length > 0);
			CHECK(e->block_offset + e->length <= e->block->geom.length);
			CHECK(layout_find(l, e->file_offset) == e &&
				layout_find(l, e->file_offset + e->length - 1) == e);
			at = e->file_offset + e->length;
			if (at < l->end_offset && !layout_find(l, at)) {
				const uint8_t *bytes;
				uint64_t len = layout_gap(l, at, 1 << 20, &bytes);

				CHECK(len <= l->end_offset - at);
				CHECK(!len || !bytes || bytes + len <= l->tail + l->tail_bytes);
			}
		}
		layout_put(l);
	}
	codec_arena_fini(&arena);
	return 0;
}
