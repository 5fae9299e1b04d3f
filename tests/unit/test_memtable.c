/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/memtable.h"
#include "common/base/limits.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"
#include <stdio.h>

static struct slice text(const char *s)
{
	return slice_of(s, strlen(s));
}

START_TEST(test_example)
{
	struct memtable *t = memtable_new();
	struct memtable_pos pos;
	struct memtable_row row;
	struct slice value;

	memtable_put(t, text("b"), text("2"));
	memtable_put(t, text("a"), text("1"));
	memtable_put(t, text("a"), text("one"));
	memtable_del(t, text("c"));

	ck_assert_int_eq(memtable_get(t, text("a"), &value), MEMTABLE_VALUE);
	ck_assert_int_eq(slice_compare(value, text("one")), 0);
	ck_assert_int_eq(memtable_get(t, text("c"), &value), MEMTABLE_TOMBSTONE);
	ck_assert_int_eq(memtable_get(t, text("d"), &value), MEMTABLE_ABSENT);
	ck_assert_uint_eq(memtable_rows(t), 3);
	ck_assert_uint_eq(memtable_tombstones(t), 1);
	ck_assert_uint_eq(memtable_row_bytes(t), 3 + 3 + 1);

	memtable_seek(t, &pos, text("aa"));
	ck_assert(memtable_at(&pos, &row));
	ck_assert_int_eq(slice_compare(row.key, text("b")), 0);
	memtable_next(&pos);
	ck_assert(memtable_at(&pos, &row) && row.tombstone);
	memtable_next(&pos);
	ck_assert(!memtable_at(&pos, &row));

	memtable_clear(t);
	ck_assert_int_eq(memtable_get(t, text("a"), &value), MEMTABLE_ABSENT);
	ck_assert_uint_eq(memtable_rows(t), 0);
	memtable_free(t);
}
END_TEST

/* A model: all possible keys in order, and what the table should hold for each. */
enum { KEYS = 4000, KEY_MAX = 40 };
struct model {
	uint8_t key[KEY_MAX];
	size_t key_bytes;
	int state; /* enum memtable_found */
	uint8_t value[64];
	size_t value_bytes;
};
static struct model model[KEYS];

static int by_key(const void *a, const void *b)
{
	const struct model *x = a, *y = b;

	return slice_compare(slice_of(x->key, x->key_bytes), slice_of(y->key, y->key_bytes));
}

/* Keys that share long prefixes, end in zeros, and are prefixes of each other: what heads of eight bytes may get wrong.
 */
static size_t make_key(struct rng *rng, uint8_t *key)
{
	static const char *const prefixes[] = {
		"", "\x01", "\x02\0\0\0\0\0\0\0\x01", "\x02\0\0\0\0\0\0\0\x02", "a common prefix of keys"};
	static const size_t lengths[] = {0, 1, 9, 9, 23};
	size_t which = rng_below(rng, 5), len = lengths[which], tail = rng_between(rng, which == 0, 12);

	memcpy(key, prefixes[which], len);
	for (size_t i = 0; i < tail; i++)
		key[len++] = rng_chance(rng, 1, 2) ? 0 : (uint8_t)rng_below(rng, 4);
	return len;
}

static void check_model(const struct memtable *t, size_t keys, struct slice from)
{
	struct memtable_pos pos;
	struct memtable_row row;

	memtable_seek(t, &pos, from);
	for (size_t i = 0; i < keys; i++) {
		const struct model *m = &model[i];

		if (m->state == MEMTABLE_ABSENT || slice_compare(slice_of(m->key, m->key_bytes), from) < 0)
			continue;
		ck_assert(memtable_at(&pos, &row));
		ck_assert_int_eq(slice_compare(row.key, slice_of(m->key, m->key_bytes)), 0);
		ck_assert_int_eq(row.tombstone, m->state == MEMTABLE_TOMBSTONE);
		if (!row.tombstone)
			ck_assert_int_eq(slice_compare(row.value, slice_of(m->value, m->value_bytes)), 0);
		memtable_next(&pos);
	}
	ck_assert(!memtable_at(&pos, &row));
}

static size_t make_model(struct rng *rng)
{
	size_t keys = 0;

	memset(model, 0, sizeof(model));
	for (size_t i = 0; i < KEYS; i++)
		model[i].key_bytes = make_key(rng, model[i].key);
	qsort(model, KEYS, sizeof(model[0]), by_key);
	for (size_t i = 0; i < KEYS; i++)
		if (keys == 0 || by_key(&model[keys - 1], &model[i]) != 0)
			model[keys++] = model[i];
	return keys;
}

static void random_op(struct rng *rng, struct memtable *t, size_t keys)
{
	struct model *m = &model[rng_below(rng, keys)];
	struct slice key = slice_of(m->key, m->key_bytes), value;

	if (rng_chance(rng, 1, 4)) {
		m->state = MEMTABLE_TOMBSTONE;
		memtable_del(t, key);
	} else {
		m->state = MEMTABLE_VALUE;
		m->value_bytes = rng_below(rng, sizeof(m->value));
		rng_bytes(rng, m->value, m->value_bytes);
		memtable_put(t, key, slice_of(m->value, m->value_bytes));
	}
	m = &model[rng_below(rng, keys)];
	ck_assert_int_eq((int)memtable_get(t, slice_of(m->key, m->key_bytes), &value), m->state);
	if (m->state == MEMTABLE_VALUE)
		ck_assert_int_eq(slice_compare(value, slice_of(m->value, m->value_bytes)), 0);
}

START_TEST(test_against_a_model)
{
	struct memtable *t = memtable_new();
	uint8_t from[KEY_MAX];
	struct rng rng;
	size_t keys;

	rng_init(&rng, 1);
	for (int round = 0; round < 4; round++) {
		keys = make_model(&rng);
		for (int i = 0; i < 10000; i++)
			random_op(&rng, t, keys);
		check_model(t, keys, slice_of(NULL, 0));
		for (int i = 0; i < 20; i++)
			check_model(t, keys, slice_of(from, make_key(&rng, from)));
		memtable_clear(t);
	}
	memtable_free(t);
}
END_TEST

/* Rising, falling, and from the middle outwards: the ways in which a tree may grow to one side. */
START_TEST(test_orders_of_insertion)
{
	enum { COUNT = 20000 };
	struct memtable *t = memtable_new();
	struct memtable_pos pos;
	struct memtable_row row;
	char key[32];

	for (int order = 0; order < 3; order++) {
		for (int i = 0; i < COUNT; i++) {
			int n = order == 0   ? i
				: order == 1 ? COUNT - 1 - i
				: i % 2      ? COUNT / 2 + i / 2
					     : COUNT / 2 - 1 - i / 2;

			snprintf(key, sizeof(key), "table/%08d", n);
			memtable_put(t, text(key), text(key + 6));
		}
		memtable_seek(t, &pos, slice_of(NULL, 0));
		for (int i = 0; i < COUNT; i++, memtable_next(&pos)) {
			snprintf(key, sizeof(key), "table/%08d", i);
			ck_assert(memtable_at(&pos, &row));
			ck_assert_int_eq(slice_compare(row.key, text(key)), 0);
			ck_assert_int_eq(slice_compare(row.value, text(key + 6)), 0);
		}
		ck_assert(!memtable_at(&pos, &row));
		/* rows that come in order fill their nodes; the others at least half of each */
		ck_assert_uint_lt(memtable_bytes(t), COUNT * (order == 0 ? 85 : 110));
		memtable_clear(t);
	}
	memtable_free(t);
}
END_TEST

START_TEST(test_bounds)
{
	static uint8_t key[LIMIT_KEY_BYTES], value[LIMIT_VALUE_BYTES];
	struct memtable *t = memtable_new();
	struct slice got;

	memset(value, 7, sizeof(value));
	for (int i = 0; i < 100; i++) {
		key[LIMIT_KEY_BYTES - 1] = (uint8_t)i;
		memtable_put(t, slice_of(key, sizeof(key)), slice_of(value, sizeof(value)));
		memtable_put(t, slice_of(key, (size_t)i + 1), slice_of(value, 0));
	}
	key[LIMIT_KEY_BYTES - 1] = 50;
	ck_assert_int_eq(memtable_get(t, slice_of(key, sizeof(key)), &got), MEMTABLE_VALUE);
	ck_assert_uint_eq(got.len, LIMIT_VALUE_BYTES);
	ck_assert_int_eq(memcmp(got.data, value, sizeof(value)), 0);
	ck_assert_int_eq(memtable_get(t, slice_of(key, 50), &got), MEMTABLE_VALUE);
	ck_assert_uint_eq(got.len, 0);
	/* a value taken from the table may be put into it */
	ck_assert_int_eq(memtable_get(t, slice_of(key, sizeof(key)), &got), MEMTABLE_VALUE);
	memtable_put(t, slice_of(key, 50), got);
	ck_assert_int_eq(memtable_get(t, slice_of(key, 50), &got), MEMTABLE_VALUE);
	ck_assert_int_eq(memcmp(got.data, value, sizeof(value)), 0);
	memtable_free(t);
}
END_TEST

UNIT_MAIN("memtable", test_example, test_against_a_model, test_orders_of_insertion, test_bounds)
