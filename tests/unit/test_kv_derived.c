/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index that the table keeps by itself. Rows "sNAME" hold letters; each letter X makes a row "tX/NAME" whose value says how often it is there.
 */
#include "common/kv/kv_backend.h"
#include "common/base/rng.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <stdio.h>

static const struct kv_backend *const backends[] = {&kv_lmdb, &kv_mem};
enum { BACKENDS = 2, LETTERS = 26, NAME_BYTES = 16, WORD_MAX = 12 };

static struct slice text(const char *s)
{
	return slice_of(s, strlen(s));
}

static uint8_t times(const struct slice *word, char letter)
{
	uint8_t n = 0;

	for (size_t i = 0; word && i < word->len; i++)
		n += word->data[i] == (uint8_t)letter;
	return n;
}

static int derive(struct slice key, const struct slice *was, const struct slice *is, struct kv_derived_rows *rows,
	struct err *err)
{
	if (is && is->len && is->data[0] == '!')
		return err_set(err, ERR_CORRUPT, "a word that cannot be");
	for (char letter = 'a'; letter <= 'z'; letter++) {
		uint8_t n = times(is, letter);
		char name[NAME_BYTES + 4];

		if (n == times(was, letter))
			continue;
		snprintf(name, sizeof(name), "t%c/%.*s", letter, (int)key.len - 1, (const char *)key.data + 1);
		if (n)
			kv_derived_put(rows, text(name), slice_of(&n, 1));
		else
			kv_derived_del(rows, text(name));
	}
	return 0;
}

static const struct kv_derived letters = {.source = 's', .target = 't', .derive = derive};

static char fatal_text[ERR_TEXT_BYTES];

static void note_fatal(void *ctx, int code, const char *why)
{
	(void)ctx;
	ck_assert_int_eq(code, ERR_CORRUPT);
	snprintf(fatal_text, sizeof(fatal_text), "%s", why);
}

static struct kv *open_kv(struct real_loop *l, const struct kv_backend *backend)
{
	const struct kv_options options = {.dir = l->dir,
		.backend = backend,
		.derived = &letters,
		.freeze_ms = 60000,
		.on_fatal = note_fatal,
		.ctx = l};
	uint64_t applied;
	struct err err;
	struct kv *kv;

	ck_assert_msg(kv_open(l->io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	return kv;
}

static void flush_kv(struct real_loop *l, struct kv *kv, int want)
{
	l->expected = 1;
	kv_flush(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, want);
}

static void close_kv(struct real_loop *l, struct kv *kv)
{
	l->expected = 1;
	kv_close(kv, real_loop_closed, l);
	real_loop_wait(l);
}

static char shown[1024];

/* "tX/NAME=n " of each derived row. */
static const char *derived(struct kv *kv)
{
	struct kv_scan scan;
	size_t len = 0;

	shown[0] = '\0';
	for (kv_seek(kv, &scan, text("t")); kv_scan_valid(&scan); kv_scan_next(&scan))
		len += (size_t)snprintf(shown + len, sizeof(shown) - len, "%.*s=%u ", (int)scan.key.len,
			(const char *)scan.key.data, scan.value.data[0]);
	kv_scan_end(&scan);
	return shown;
}

/* "sNAME=WORD " of each recent row, "sNAME- " of one that was removed. */
static const char *recent(struct kv *kv, const char *from)
{
	struct kv_scan scan;
	size_t len = 0;

	shown[0] = '\0';
	for (kv_seek_recent(kv, &scan, text(from)); kv_scan_valid(&scan); kv_scan_next(&scan))
		len += (size_t)snprintf(shown + len, sizeof(shown) - len, "%.*s%s%.*s ", (int)scan.key.len,
			(const char *)scan.key.data, scan.removed ? "-" : "=", (int)scan.value.len, (const char *)scan.value.data);
	kv_scan_end(&scan);
	return shown;
}

START_TEST(test_example)
{
	for (int b = 0; b < BACKENDS; b++) {
		struct real_loop l;
		struct kv *kv;

		real_loop_init(&l);
		kv = open_kv(&l, backends[b]);
		kv_put(kv, text("s1"), text("ab"));
		kv_put(kv, text("s2"), text("bb"));
		kv_put(kv, text("a"), text("abc")); /* of another kind: nothing follows from it */
		kv_applied(kv, 1);
		ck_assert_str_eq(derived(kv), "");
		ck_assert_str_eq(recent(kv, "s"), "s1=ab s2=bb ");
		ck_assert_str_eq(recent(kv, "s2"), "s2=bb ");
		flush_kv(&l, kv, 0);
		ck_assert_str_eq(derived(kv), "ta/1=1 tb/1=1 tb/2=2 ");
		ck_assert_str_eq(recent(kv, "s"), "");

		kv_del(kv, text("a"));
		kv_put(kv, text("s1"), text("cb"));
		kv_del(kv, text("s2"));
		kv_put(kv, text("s3"), text("z"));
		kv_del(kv, text("s3"));
		kv_applied(kv, 2);
		ck_assert_str_eq(recent(kv, "s"), "s1=cb s2- s3- ");
		ck_assert_str_eq(derived(kv), "ta/1=1 tb/1=1 tb/2=2 "); /* as of the last commit */
		flush_kv(&l, kv, 0);
		ck_assert_str_eq(derived(kv), "tb/1=1 tc/1=1 ");
		close_kv(&l, kv);

		kv = open_kv(&l, backends[b]);
		ck_assert_str_eq(derived(kv), "tb/1=1 tc/1=1 ");
		kv_put(kv, text("s1"), text(""));
		kv_applied(kv, 3);
		close_kv(&l, kv);
		kv = open_kv(&l, backends[b]);
		ck_assert_str_eq(derived(kv), "");
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

/* ---- against a model ---- */

enum { WORDS = 300, ROUNDS = 40, CHANGES = 50 };

static char words[WORDS][WORD_MAX + 1]; /* empty: not there */

static void check_letter(struct kv *kv, char letter)
{
	char prefix[] = {'t', letter, '/', '\0'}, key[NAME_BYTES + 4];
	struct kv_scan scan;
	int i = 0;

	for (kv_seek(kv, &scan, text(prefix)); kv_scan_valid(&scan); kv_scan_next(&scan), i++) {
		struct slice word;

		if (scan.key.data[0] != 't' || scan.key.data[1] != (uint8_t)letter)
			break;
		while (i < WORDS && !strchr(words[i], letter))
			i++;
		ck_assert_int_lt(i, WORDS);
		snprintf(key, sizeof(key), "t%c/%05d", letter, i);
		ck_assert_int_eq(slice_compare(scan.key, text(key)), 0);
		word = text(words[i]);
		ck_assert_uint_eq(scan.value.data[0], times(&word, letter));
	}
	while (i < WORDS && !strchr(words[i], letter))
		i++;
	ck_assert_int_eq(i, WORDS);
	kv_scan_end(&scan);
}

static void change(struct kv *kv, struct rng *rng)
{
	int i = (int)rng_below(rng, WORDS);
	size_t len = rng_chance(rng, 1, 3) ? 0 : 1 + rng_below(rng, WORD_MAX);
	char key[NAME_BYTES];

	snprintf(key, sizeof(key), "s%05d", i);
	for (size_t at = 0; at < len; at++)
		words[i][at] = (char)('a' + rng_below(rng, LETTERS));
	words[i][len] = '\0';
	if (len)
		kv_put(kv, text(key), text(words[i]));
	else
		kv_del(kv, text(key));
}

START_TEST(test_against_a_model)
{
	for (int b = 0; b < BACKENDS; b++) {
		uint64_t applied = 0;
		struct real_loop l;
		struct rng rng;
		struct kv *kv;

		memset(words, 0, sizeof(words));
		rng_init(&rng, 7);
		real_loop_init(&l);
		kv = open_kv(&l, backends[b]);
		for (int round = 0; round < ROUNDS; round++) {
			for (int i = 0; i < CHANGES; i++) {
				change(kv, &rng);
				kv_applied(kv, ++applied);
			}
			if (round % 10 == 9) {
				close_kv(&l, kv);
				kv = open_kv(&l, backends[b]);
			} else {
				flush_kv(&l, kv, 0);
			}
			for (char letter = 'a'; letter <= 'z'; letter++)
				check_letter(kv, letter);
		}
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

/* More derived rows of one commit than are gathered at once. */
START_TEST(test_many)
{
	enum { MANY = 20000 };
	static const char word[] = "abcdefgh";

	for (int b = 0; b < BACKENDS; b++) {
		uint64_t rows = 0;
		struct real_loop l;
		struct kv_scan scan;
		char key[NAME_BYTES];
		struct kv *kv;

		real_loop_init(&l);
		kv = open_kv(&l, backends[b]);
		for (int i = 0; i < MANY; i++) {
			snprintf(key, sizeof(key), "s%08d", i);
			kv_put(kv, text(key), text(word));
		}
		kv_applied(kv, 1);
		flush_kv(&l, kv, 0);
		for (kv_seek(kv, &scan, text("t")); kv_scan_valid(&scan); kv_scan_next(&scan), rows++) {
			snprintf(key, sizeof(key), "t%c/%08d", word[rows / MANY], (int)(rows % MANY));
			ck_assert_int_eq(slice_compare(scan.key, text(key)), 0);
		}
		kv_scan_end(&scan);
		ck_assert_uint_eq(rows, MANY * strlen(word));
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

/* Nothing of a commit that cannot derive its rows is written. */
START_TEST(test_failure)
{
	for (int b = 0; b < BACKENDS; b++) {
		struct real_loop l;
		struct kv *kv;

		fatal_text[0] = '\0';
		real_loop_init(&l);
		kv = open_kv(&l, backends[b]);
		kv_put(kv, text("s1"), text("a"));
		kv_applied(kv, 1);
		flush_kv(&l, kv, 0);
		kv_put(kv, text("s2"), text("b"));
		kv_put(kv, text("s3"), text("!"));
		kv_applied(kv, 2);
		flush_kv(&l, kv, ERR_CORRUPT);
		ck_assert_str_eq(fatal_text, "a word that cannot be");
		close_kv(&l, kv);
		ck_assert_int_eq(l.code, ERR_CORRUPT);
		kv = open_kv(&l, backends[b]);
		ck_assert_str_eq(derived(kv), "ta/1=1 ");
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

UNIT_MAIN("kv_derived", test_example, test_against_a_model, test_many, test_failure)
