/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry holds, and the entries that are in memory. */
#include "common/base/err.h"
#include "common/base/mem.h"
#include "metad/replica/body.h"
#include "metad/replica/cache.h"
#include "metad/replica/part.h"
#include "metad/raft_codec.h"
#include "tests/lib/unit.h"

START_TEST(test_config_bytes)
{
	static const uint8_t golden[] = {
		2, 2, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0};
	const struct raft_config config = {.count = 2, .members = {{.id = 3, .voter = true}, {.id = 7, .voter = false}}, .last_id = 7};
	uint8_t bytes[BODY_CONFIG_BYTES_MAX];
	struct raft_config back;
	enum body_kind kind;

	ck_assert_uint_eq(body_encode_config(&config, bytes), sizeof(golden));
	ck_assert_mem_eq(bytes, golden, sizeof(golden));
	ck_assert_int_eq(body_decode(slice_of(golden, sizeof(golden)), 12, &kind, &back), 0);
	ck_assert_int_eq(kind, BODY_CONFIG);
	ck_assert_uint_eq(back.index, 12);
	ck_assert_uint_eq(back.count, 2);
	ck_assert_uint_eq(back.last_id, 7);
	ck_assert_uint_eq(back.members[0].id, 3);
	ck_assert(back.members[0].voter && !back.members[1].voter);
	for (size_t len = 0; len < sizeof(golden); len++)
		ck_assert_int_eq(body_decode(slice_of(golden, len), 12, &kind, &back), ERR_FORMAT);
}
END_TEST

/* One that says where members are. */
START_TEST(test_config_with_places)
{
	static const uint8_t golden[] = {4, 1, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0x58, 0x1b, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0};
	struct raft_config config = {.count = 1, .members[0] = {.id = 3, .voter = true}, .last_id = 7, .index = 12};
	uint8_t bytes[BODY_CONFIG_BYTES_MAX], nowhere[sizeof(golden)];
	struct io_addr addr;
	struct raft_config back;
	enum body_kind kind;

	ck_assert_int_eq(io_addr_parse("10.0.0.1:7000", &addr), 0);
	raft_place_set(config.members[0].place, &addr);
	ck_assert_uint_eq(body_encode_config(&config, bytes), sizeof(golden));
	ck_assert_mem_eq(bytes, golden, sizeof(golden));
	ck_assert_int_eq(body_decode(slice_of(golden, sizeof(golden)), 12, &kind, &back), 0);
	ck_assert_int_eq(kind, BODY_CONFIG);
	ck_assert(body_configs_equal(&config, &back));
	memset(&addr, 0, sizeof(addr));
	ck_assert(raft_place_get(back.members[0].place, &addr) && addr.port == 7000 && addr.ip[3] == 1);
	back.members[0].place[4] = 11;
	ck_assert(!body_configs_equal(&config, &back));
	for (size_t len = 0; len < sizeof(golden); len++)
		ck_assert_int_eq(body_decode(slice_of(golden, len), 12, &kind, &back), ERR_FORMAT);
	memcpy(nowhere, golden, sizeof(golden));
	memset(nowhere + 19, 0, RAFT_PLACE_BYTES); /* that has another form */
	ck_assert_int_eq(body_decode(slice_of(nowhere, sizeof(nowhere)), 12, &kind, &back), ERR_FORMAT);
}
END_TEST

START_TEST(test_nonsense)
{
	static const struct {
		uint8_t bytes[20];
		size_t len;
		int code;
	} cases[] = {
		{{1}, 1, 0},
		{{1, 0}, 2, ERR_FORMAT},
		{{3, 0}, 2, 0},
		{{3}, 1, ERR_FORMAT},
		{{0}, 1, ERR_FORMAT},
		{{4, 0}, 2, ERR_FORMAT},
		{{5, 0}, 2, ERR_FORMAT},
		{{2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2}, 19, ERR_FORMAT},
		{{2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9}, 11, ERR_FORMAT},
	};
	struct raft_config config;
	enum body_kind kind;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_int_eq(body_decode(slice_of(cases[i].bytes, cases[i].len), 1, &kind, &config), cases[i].code);
}
END_TEST

static void push(struct cache *cache, uint64_t index)
{
	static const uint8_t prefix = BODY_COMMANDS;
	struct entry *e = entry_new(index / 100 + 1, &prefix, 1, slice_of("123456789", 9));

	e->append.index = index;
	e->writing = true;
	cache_push(cache, e);
}

START_TEST(test_cache)
{
	struct cache cache = {0};
	struct entry *kept;

	for (uint64_t i = 5; i < 305; i++)
		push(&cache, i);
	ck_assert_uint_eq(cache.bytes, 3000);
	ck_assert_ptr_null(cache_at(&cache, 4));
	ck_assert_ptr_null(cache_at(&cache, 305));
	ck_assert_uint_eq(cache_at(&cache, 304)->append.term, 4);
	for (uint64_t i = 5; i < 205; i++)
		entry_written((struct entry *)cache_at(&cache, i));
	cache_shrink(&cache, 204, 2500);
	ck_assert_uint_eq(cache.first, 55);
	cache_shrink(&cache, 204, 0); /* what is not durable stays */
	ck_assert_uint_eq(cache.first, 205);
	kept = (struct entry *)cache_at(&cache, 304);
	cache_cut(&cache, 304);
	ck_assert_ptr_null(cache_at(&cache, 304));
	ck_assert_mem_eq(kept->bytes + 1, "123456789", 9); /* the log still has it */
	entry_written(kept);
	push(&cache, 304);
	for (uint64_t i = 205; i < 305; i++)
		entry_written((struct entry *)cache_at(&cache, i));
	cache_fini(&cache);
	ck_assert_uint_eq(cache.bytes, 0);
}
END_TEST

static const uint64_t s_ns = 1000000000;

/* So many bytes in so much time, however late each part is asked for; what a stream missed while it stood still it does not get back. */
START_TEST(test_pace)
{
	enum { RATE = 10000000, PART = 250000 };
	struct part_pace p;
	uint64_t now = 5 * s_ns, bytes = 0;

	part_pace_init(&p, RATE, now);
	for (uint64_t i = 0; now < 15 * s_ns; i++) {
		if (now < p.next_ns)
			now = p.next_ns + i % 7 * 3000000; /* whoever looks is a little late */
		part_pace_sent(&p, PART, now);
		bytes += PART;
	}
	ck_assert_uint_ge(bytes, 10ull * RATE - PART);
	ck_assert_uint_le(bytes, 10ull * RATE + 2 * PART);
	now += 20 * s_ns;
	for (bytes = 0; p.next_ns <= now; bytes += PART)
		part_pace_sent(&p, PART, now);
	ck_assert_uint_le(bytes, (uint64_t)RATE * PART_CREDIT_MS / 1000 + 2 * PART);
	part_pace_init(&p, RATE, now); /* nothing was missed yet */
	part_pace_sent(&p, PART, now);
	ck_assert_uint_eq(p.next_ns, now + s_ns / (RATE / PART));
}
END_TEST

/* What a stream may take is counted by its bytes, however many; a rate that nobody can take is no reason to end it. */
START_TEST(test_pace_has_an_end)
{
	static const uint64_t rates[] = {0, PART_BYTES_PER_S_LEAST, 1 << 20, 32 << 20, UINT64_C(100) << 30};
	const uint64_t idle_ns = PART_IDLE_MS * (s_ns / 1000);

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		uint64_t rate = rates[i] && rates[i] < PART_BYTES_PER_S ? rates[i] : PART_BYTES_PER_S, due_ns = 0;
		struct part_pace p;

		part_pace_init(&p, rates[i], 0);
		ck_assert(!part_pace_is_over(&p, idle_ns));
		ck_assert(part_pace_is_over(&p, idle_ns + 1));
		for (uint64_t gb = 1; gb <= 64; gb++) { /* in ns and bytes: past 2^64 */
			for (uint64_t part = 0; part < 10; part++)
				part_pace_sent(&p, 100000000, due_ns);
			due_ns = gb * 1000 * (s_ns * 1000 / rate) * 1000;
			ck_assert(!part_pace_is_over(&p, due_ns));
			ck_assert(!part_pace_is_over(&p, PART_SLOWNESS * due_ns / 10 * 9));
			ck_assert(part_pace_is_over(&p, PART_SLOWNESS * due_ns / 10 * 11 + idle_ns + s_ns));
		}
		ck_assert_uint_le(part_pace_part_bytes(&p), BACKUP_SECTION_BYTES);
		ck_assert_uint_gt(part_pace_part_bytes(&p), 0);
	}
}
END_TEST

/* A part keeps both ends from their clients: it is short unless it would be asked for hundreds of times a second. */
START_TEST(test_parts_are_short)
{
	static const struct {
		uint64_t rate, bytes, turn_ms;
	} cases[] = {{0, 64 << 10, 0}, {PART_BYTES_PER_S_LEAST, 8 << 10, 0}, {1 << 20, 64 << 10, 0}, {32 << 20, 128 << 10, 0}, {UINT64_C(100) << 30, BACKUP_SECTION_BYTES, 0},
		{0, 64 << 10, 7}, {0, 256 << 10, 32}, {0, BACKUP_SECTION_BYTES, 2000}, {PART_BYTES_PER_S_LEAST, 8 << 10, 2000}, {UINT64_C(100) << 30, BACKUP_SECTION_BYTES, 2000}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct part_pace p;

		part_pace_init(&p, cases[i].rate, 0);
		p.turn_ns = cases[i].turn_ms * 1000000;
		ck_assert_uint_le(part_pace_part_bytes(&p), cases[i].bytes);
		ck_assert_uint_gt(part_pace_part_bytes(&p), cases[i].bytes * 9 / 10); /* a million is less than 2^20 */
	}
}
END_TEST

/* The time that a letter and its answer take is the least seen: the other one may have work in between. A part that went twice was perhaps answered the first time. */
START_TEST(test_turn_of_parts)
{
	struct part_pace p;

	part_pace_init(&p, 0, 1000);
	part_pace_asked(&p, false, 2000); /* for the first: of the offer, which may have been repeated */
	ck_assert_uint_eq(p.turn_ns, 0);
	part_pace_sent(&p, 100, 3000);
	part_pace_asked(&p, true, 10000);
	ck_assert_uint_eq(p.turn_ns, 7000);
	part_pace_sent(&p, 100, 20000);
	part_pace_asked(&p, true, 29000);
	ck_assert_uint_eq(p.turn_ns, 7000);
	part_pace_sent(&p, 100, 30000);
	part_pace_asked(&p, false, 38000);
	part_pace_sent(&p, 100, 38000);
	part_pace_asked(&p, true, 39000);
	ck_assert_uint_eq(p.turn_ns, 7000);
	part_pace_sent(&p, 100, 40000);
	part_pace_asked(&p, true, 46000);
	ck_assert_uint_eq(p.turn_ns, 6000);
}
END_TEST

UNIT_MAIN("replica", test_turn_of_parts, test_parts_are_short, test_config_bytes, test_config_with_places, test_nonsense, test_cache, test_pace, test_pace_has_an_end)
