/* SPDX-License-Identifier: Apache-2.0 */
/* A listing that is packed by hand is, byte for byte, what protobuf-c makes of the message. */
#include "metad/core.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

enum { ENTRIES = 50 };

struct listing {
	Craton__ReaddirReply reply;
	Craton__Dirent dirent[ENTRIES], *dirents[ENTRIES];
	Craton__Attr attr[ENTRIES];
	uint8_t name[LIMIT_NAME_BYTES];
};

static void compare(struct listing *l, const uint8_t *packed, size_t len)
{
	uint8_t *theirs = mem_alloc(craton__readdir_reply__get_packed_size(&l->reply) + 1);

	ck_assert_uint_eq(craton__readdir_reply__pack(&l->reply, theirs), len);
	ck_assert_mem_eq(theirs, packed, len);
	mem_free(theirs);
}

static void add(struct listing *l, uint8_t **at, size_t name_len, const struct state_attr *attr)
{
	size_t i = l->reply.n_entries++;
	const uint8_t *before = *at;

	craton__dirent__init(&l->dirent[i]);
	metad__wire_attr(attr, &l->attr[i]);
	l->dirent[i].name = (ProtobufCBinaryData){.data = l->name, .len = name_len};
	l->dirent[i].attr = &l->attr[i];
	l->dirents[i] = &l->dirent[i];
	*at = metad__wire_entry(*at, slice_of(l->name, name_len), attr);
	ck_assert_uint_le((size_t)(*at - before), WIRE_ENTRY_BYTES);
}

static void begin(struct listing *l)
{
	craton__readdir_reply__init(&l->reply);
	l->reply.entries = l->dirents;
}

START_TEST(test_empty)
{
	static struct listing l;
	uint8_t packed[WIRE_ENTRY_BYTES];

	begin(&l);
	compare(&l, packed, (size_t)(metad__wire_end(packed, false) - packed));
	l.reply.end = true;
	compare(&l, packed, (size_t)(metad__wire_end(packed, true) - packed));
}
END_TEST

START_TEST(test_extremes)
{
	static const struct state_attr zero,
		most = {.inode = UINT64_MAX,
			.type = UINT8_MAX,
			.complete = true,
			.mode = UINT32_MAX,
			.uid = UINT32_MAX,
			.gid = UINT32_MAX,
			.nlink = UINT32_MAX,
			.size = UINT64_MAX,
			.mtime_ns = -1,
			.ctime_ns = INT64_MIN};
	static struct listing l;
	uint8_t packed[ENTRIES * WIRE_ENTRY_BYTES], *at = packed;

	begin(&l);
	memset(l.name, 'n', sizeof(l.name));
	for (size_t len = 0; len <= LIMIT_NAME_BYTES; len += 17)
		add(&l, &at, len, len % 2 ? &zero : &most);
	add(&l, &at, 127, &most);
	add(&l, &at, 128, &zero);
	add(&l, &at, LIMIT_NAME_BYTES, &most);
	compare(&l, packed, (size_t)(metad__wire_end(at, false) - packed));
}
END_TEST

START_TEST(test_random)
{
	static struct listing l;
	static uint8_t packed[(ENTRIES + 1) * WIRE_ENTRY_BYTES];
	struct rng rng;

	rng_init(&rng, 11);
	for (int round = 0; round < 200; round++) {
		uint8_t *at = packed;

		begin(&l);
		for (int i = 0; i < ENTRIES; i++) {
			struct state_attr a = {
				.inode = rng_u64(&rng) >> rng_below(&rng, 64),
				.type = (uint8_t)rng_below(&rng, 4),
				.complete = rng_below(&rng, 2),
				.mode = (uint32_t)rng_below(&rng, 01000),
				.uid = (uint32_t)(rng_u64(&rng) >> (32 + rng_below(&rng, 32))),
				.gid = (uint32_t)rng_below(&rng, 3),
				.nlink = (uint32_t)rng_below(&rng, 300),
				.size = rng_u64(&rng) >> rng_below(&rng, 64),
				.mtime_ns = (int64_t)rng_u64(&rng),
				.ctime_ns = (int64_t)(rng_u64(&rng) >> 4),
			};

			add(&l, &at, rng_below(&rng, LIMIT_NAME_BYTES + 1), &a);
		}
		l.reply.end = round % 2;
		compare(&l, packed, (size_t)(metad__wire_end(at, round % 2) - packed));
	}
}
END_TEST

UNIT_MAIN("wire_listing", test_empty, test_extremes, test_random)
