/* SPDX-License-Identifier: Apache-2.0 */
#include "client/layout.h"

#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "tests/lib/unit.h"

/* Two blocks of rs-1-2, 100,000 and 50,000 bytes, one behind the other; the tests change one thing each. */
static Craton__LayoutReply reply;
static Craton__Attr attr;
static Craton__Extent extent[2], *extents[2];
static Craton__Block block[2], *blocks[2];
static Craton__ChunkPlace place[2][3], *places[2][3];
static uint8_t data[100000];

static void make(void)
{
	craton__layout_reply__init(&reply);
	craton__attr__init(&attr);
	attr.inode = 7;
	attr.type = CR_TYPE_FILE;
	attr.size = 150000;
	reply.attr = &attr;
	for (int i = 0; i < 2; i++) {
		craton__extent__init(&extent[i]);
		craton__block__init(&block[i]);
		extents[i] = &extent[i];
		blocks[i] = &block[i];
		extent[i].file_offset = i ? 100000 : 0;
		extent[i].length = block[i].length = i ? 50000 : 100000;
		extent[i].block = block[i].block = 50u + (unsigned)i;
		block[i].policy = ec_policy_by_name("rs-1-2")->id;
		block[i].cell_bytes = 65536;
		for (int c = 0; c < 3; c++) {
			craton__chunk_place__init(&place[i][c]);
			places[i][c] = &place[i][c];
			place[i][c].disk = 1u + (unsigned)c;
			place[i][c].present = true;
			place[i][c].crc = crc32c(data, block[i].length);
		}
		block[i].chunks = places[i];
		block[i].n_chunks = 3;
	}
	reply.extents = extents;
	reply.blocks = blocks;
	reply.n_extents = reply.n_blocks = 2;
	reply.end_offset = 1ull << 40;
}

static int try_new(void)
{
	struct layout *l;
	int code = layout_new(&reply, 0, 5, &l);

	if (code == 0)
		layout_put(l);
	return code;
}

START_TEST(test_finds_the_extent_of_a_byte)
{
	struct layout *l;

	make();
	ck_assert_int_eq(layout_new(&reply, 0, 5, &l), 0);
	ck_assert_uint_eq(l->end_offset, 150000); /* not past the end of the file */
	ck_assert_uint_eq(layout_find(l, 0)->block->id, 50);
	ck_assert_uint_eq(layout_find(l, 99999)->block->id, 50);
	ck_assert_uint_eq(layout_find(l, 100000)->block->id, 51);
	ck_assert_ptr_null(layout_find(l, 150000));
	if (getenv("CRATON_CORPUS_WRITE")) {
		static uint8_t packed[4096];
		FILE *f = fopen(getenv("CRATON_CORPUS_WRITE"), "w");

		ck_assert_ptr_nonnull(f);
		fwrite(packed, 1, protobuf_c_message_pack(&reply.base, packed), f);
		fclose(f);
	}
	layout_put(l);
}
END_TEST

START_TEST(test_believes_only_lists_that_lead_to_the_proof)
{
	struct layout *l;
	struct layout_block *b;
	uint32_t list[7];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 11);
	make();
	ck_assert_int_eq(layout_new(&reply, 0, 5, &l), 0);
	b = &l->blocks[0];
	ec_unit_crcs(data, sizeof(data), list);
	ck_assert_int_eq(layout_learn_list(b, 1, (uint8_t *)list, sizeof(list)), ERR_CORRUPT); /* not masked */
	stripe_mask_units(b->id, 1, 0, 7, list);
	ck_assert_int_eq(layout_learn_list(b, 1, (uint8_t *)list, sizeof(list) - 4), ERR_CORRUPT);
	ck_assert_int_eq(layout_learn_list(b, 2, (uint8_t *)list, sizeof(list)), ERR_CORRUPT); /* another chunk's */
	list[3] ^= 1;
	ck_assert_int_eq(layout_learn_list(b, 1, (uint8_t *)list, sizeof(list)), ERR_CORRUPT);
	ck_assert_ptr_null(b->lists[1]);
	list[3] ^= 1;
	ck_assert_int_eq(layout_learn_list(b, 1, (uint8_t *)list, sizeof(list)), 0);
	ck_assert_mem_eq(b->lists[1], list, sizeof(list));
	layout_put(l);
}
END_TEST

#define REFUSED(change)                                 \
	do {                                            \
		make();                                 \
		change;                                 \
		ck_assert_int_eq(try_new(), ERR_PROTO); \
	} while (0)

START_TEST(test_refuses_what_contradicts_itself)
{
	make();
	ck_assert_int_eq(try_new(), 0);
	REFUSED(reply.attr = NULL);
	REFUSED(block[0].policy = 99);
	REFUSED(block[0].policy = 257);
	REFUSED(block[0].n_chunks = 2);
	REFUSED(block[0].cell_bytes = 0);
	REFUSED(block[0].cell_bytes = 16383);
	REFUSED(block[0].cell_bytes = 2 << 20);
	REFUSED(block[0].length = 0);
	REFUSED(block[0].length = (64ull << 20) + 1);
	REFUSED(block[0].read_token.len = 65);
	REFUSED(extent[0].block = 52);
	REFUSED(extent[0].length = 0);
	REFUSED(extent[0].length = 100001);
	REFUSED(extent[0].block_offset = 1);
	REFUSED(extent[1].block_offset = UINT64_MAX);
	REFUSED(extent[1].file_offset = 99999);
	REFUSED(extent[1].file_offset = UINT64_MAX - 10);
	REFUSED(reply.n_extents = LIMIT_LAYOUT_EXTENTS + 1);
}
END_TEST

START_TEST(test_gaps)
{
	const uint8_t *bytes;
	struct layout *l;

	make();
	extent[1].file_offset = 120000; /* a hole of 20,000 bytes, the tail behind a hole of 30,000 */
	attr.size = 210000;
	reply.tail_offset = 200000;
	reply.tail = (ProtobufCBinaryData){.data = data, .len = 5000};
	ck_assert_int_eq(layout_new(&reply, 0, 5, &l), 0);
	ck_assert_uint_eq(layout_gap(l, 100000, 100, &bytes), 0); /* metad did not speak of holes */
	ck_assert_uint_eq(layout_gap(l, 200000, 10000, &bytes), 5000);
	ck_assert_ptr_eq(bytes, l->tail);
	layout_put(l);
	reply.holes = true;
	ck_assert_int_eq(layout_new(&reply, 0, 5, &l), 0);
	ck_assert_uint_eq(layout_gap(l, 100000, 100, &bytes), 100);
	ck_assert_ptr_null(bytes);
	ck_assert_uint_eq(layout_gap(l, 100001, 1 << 20, &bytes), 19999);
	ck_assert_uint_eq(layout_gap(l, 180000, 1 << 20, &bytes), 20000);
	ck_assert_ptr_null(bytes);
	ck_assert_uint_eq(layout_gap(l, 204999, 1 << 20, &bytes), 1);
	ck_assert_ptr_eq(bytes, l->tail + 4999);
	ck_assert_uint_eq(layout_gap(l, 205000, 1 << 20, &bytes), 5000); /* up to the end of the file */
	ck_assert_ptr_null(bytes);
	layout_put(l);
	reply.tail_offset = UINT64_MAX - 10;
	ck_assert_int_eq(layout_new(&reply, 0, 5, &l), ERR_PROTO);
}
END_TEST

UNIT_MAIN("layout", test_finds_the_extent_of_a_byte, test_gaps, test_believes_only_lists_that_lead_to_the_proof,
	test_refuses_what_contradicts_itself)
