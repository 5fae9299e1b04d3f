/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of all changes: one and the same for the same entries, whatever is kept in memory; another one for ever where one change was another. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

enum { ENTRIES = 400 };

static struct state_bed bed, *const b = &bed;

static uint32_t digest_of(const struct state *s)
{
	uint32_t digest;

	ck_assert(state_digest(s, &digest));
	return digest;
}

/* So many directories, some of which go again. */
static void fill(int count)
{
	char path[16];

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		ck_assert_int_eq(bed_mkdir(b, path, false), 0);
		if (i % 3 == 0)
			ck_assert_int_eq(bed_remove(b, path, true), 0);
		b->time_ms++;
	}
}

/* What happens to the rows of one who applies the log, before an entry. */
typedef void harm_fn(struct state *s);

static void none(struct state *s)
{
	(void)s;
}

static void flip_a_count(struct state *s)
{
	s->meta.dir_count ^= 4;
}

/* As it was the entry behind: nobody could see it in the rows any more. */
static void flip_it_back(struct state *s)
{
	s->meta.dir_count ^= 4;
}

static void flip_a_row(struct state *s)
{
	struct state_inode root;
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	ck_assert_int_eq(state_inode_get(s, INODE_ROOT, &root), 0);
	root.mode ^= 1;
	state_key_id(&key, STATE_TABLE_INODE, INODE_ROOT);
	kv_put(s->kv, state_key_slice(&key), slice_of(value, state_inode_encode(&root, value)));
	state_close(s); /* it is read anew */
}

/* Applies the log, all of it or from an entry on in a state that is read anew; ret_digest: at the end. */
static uint32_t replay(const char *dir, size_t at, harm_fn *harm, harm_fn *behind)
{
	struct kv *copy = state_bed_kv(b->io, dir);
	struct state *s = MEM_NEW(struct state);
	uint32_t digest;
	struct err err;

	ck_assert_int_eq(state_open(s, copy), 0);
	for (size_t i = 0; i < b->log_count; i++) {
		if (i == at)
			harm(s);
		if (i == at + 1)
			behind(s);
		if (!s->kv)
			ck_assert_int_eq(state_open(s, copy), 0);
		ck_assert_msg(state_apply(s, b->log[i], NULL, NULL, &err) == 0, "%s", err.text);
		kv_applied(copy, i + 1);
		if (i % STATE_BED_SETTLE == 0)
			state_bed_settle(copy);
	}
	digest = digest_of(s);
	state_close(s);
	mem_free(s);
	kv_abandon(copy);
	return digest;
}

START_TEST(test_same_for_the_same)
{
	state_bed_open(b);
	fill(ENTRIES);
	ck_assert_uint_eq(replay("/a", 0, none, none), digest_of(&b->s));
	ck_assert_uint_eq(replay("/b", 100, state_close, state_close), digest_of(&b->s)); /* nothing is in memory */
	state_bed_close(b);
}
END_TEST

START_TEST(test_another_for_ever)
{
	uint32_t counted, back, row;

	state_bed_open(b);
	fill(ENTRIES);
	counted = replay("/a", 100, flip_a_count, none);
	back = replay("/b", 100, flip_a_count, flip_it_back);
	row = replay("/c", 100, flip_a_row, none);
	ck_assert_uint_ne(counted, digest_of(&b->s));
	ck_assert_uint_ne(back, digest_of(&b->s));
	ck_assert_uint_ne(row, digest_of(&b->s));
	ck_assert(counted != back && back != row && row != counted);
	state_bed_close(b);
}
END_TEST

/* Before the version that has it there is none. */
START_TEST(test_from_its_version_on)
{
	uint32_t digest;

	state_bed_open(b);
	ck_assert(state_digest(&b->s, &digest));
	b->s.meta.version = STATE_CLUSTER_DIGEST - 1;
	ck_assert(!state_digest(&b->s, &digest));
	b->s.meta.version = STATE_CLUSTER_DIGEST;
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_digest", test_same_for_the_same, test_another_for_ever, test_from_its_version_on)
