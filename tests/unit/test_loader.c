/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loader.h"

#include <errno.h>
#include "tests/lib/train_bed.h"
#include "trainer/shuffle.h"

enum { SEQ = 32, BATCH = 7, BYTES = 20000 };

static const struct loader_config config = {
	.path = "/data/d", .seq_len = SEQ, .batch_size = BATCH, .seed = 3, .holdout_percent = 10};

static char *read_corpus(const struct train_bed *b)
{
	FILE *f = fopen(b->corpus, "r");
	char *text = malloc(BYTES);

	ck_assert_uint_eq(fread(text, 1, BYTES, f), BYTES);
	fclose(f);
	return text;
}

/* Two epochs and more, over shards that samples cross: the right bytes in the right order, each sample once an epoch. */
START_TEST(test_order_and_bytes)
{
	struct train_bed b;
	struct loader *l;
	struct shuffle s;
	struct terr e;
	const uint8_t *text;
	uint64_t n = 0, count;
	char *corpus;

	train_bed_init(&b);
	train_bed_pack(&b, BYTES, 4096);
	corpus = read_corpus(&b);
	ck_assert_msg(loader_open(b.store, &config, 0, &l, &e) == 0, "%s", e.text);
	count = loader_epoch_samples(l);
	ck_assert_uint_eq(count, (BYTES - BYTES / 10 - 1) / SEQ);
	shuffle_init(&s, 3, count);
	while (n < 2 * count + 50) {
		ck_assert_uint_eq(loader_position(l), n);
		ck_assert_int_eq(loader_next(l, &text, &e), 0);
		for (int i = 0; i < BATCH; i++, n++)
			ck_assert_int_eq(memcmp(text + i * (SEQ + 1), corpus + shuffle_at(&s, n) * SEQ, SEQ + 1), 0);
	}
	loader_close(l);
	free(corpus);
	train_bed_fini(&b);
}
END_TEST

START_TEST(test_starts_anywhere)
{
	struct train_bed b;
	struct loader *from_start, *from_there;
	struct terr e;
	const uint8_t *x, *y;

	train_bed_init(&b);
	train_bed_pack(&b, BYTES, 0);
	ck_assert_int_eq(loader_open(b.store, &config, 0, &from_start, &e), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(loader_next(from_start, &x, &e), 0);
	ck_assert_int_eq(loader_open(b.store, &config, loader_position(from_start), &from_there, &e), 0);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(loader_next(from_start, &x, &e), 0);
		ck_assert_int_eq(loader_next(from_there, &y, &e), 0);
		ck_assert_int_eq(memcmp(x, y, BATCH * (SEQ + 1)), 0);
	}
	loader_close(from_start);
	loader_close(from_there);
	ck_assert_int_eq(loader_open(b.store, &config, 1000000000000, &from_there, &e), 0);
	ck_assert_int_eq(loader_next(from_there, &y, &e), 0);
	loader_close(from_there);
	train_bed_fini(&b);
}
END_TEST

START_TEST(test_holds_out_the_end)
{
	struct train_bed b;
	struct loader *l;
	struct terr e;
	uint8_t text[200 * (SEQ + 1)];
	char *corpus;
	int count;

	train_bed_init(&b);
	train_bed_pack(&b, BYTES, 0);
	corpus = read_corpus(&b);
	ck_assert_int_eq(loader_open(b.store, &config, 0, &l, &e), 0);
	count = loader_holdout(l, 200, text, &e);
	ck_assert_int_eq(count, BYTES / 10 / (SEQ + 1));
	ck_assert_int_eq(memcmp(text, corpus + BYTES - BYTES / 10, SEQ + 1), 0);
	ck_assert_int_eq(loader_holdout(l, 1, text, &e), 1);
	loader_close(l);
	free(corpus);
	train_bed_fini(&b);
}
END_TEST

START_TEST(test_errors_are_told)
{
	struct train_bed b;
	struct loader *l;
	struct terr e;
	const uint8_t *text;
	char path[256];
	int rc;

	train_bed_init(&b);
	ck_assert_int_eq(loader_open(b.store, &config, 0, &l, &e), -ENOENT);
	train_bed_pack(&b, 100, 0);
	ck_assert_int_eq(loader_open(b.store, &config, 0, &l, &e), -EINVAL);
	train_bed_fini(&b);

	train_bed_init(&b);
	train_bed_pack(&b, BYTES, 0);
	ck_assert_int_eq(loader_open(b.store, &config, 0, &l, &e), 0);
	snprintf(path, sizeof(path), "%s/data/d/data-00000.bin", b.store_dir);
	ck_assert_int_eq(truncate(path, 0), 0);
	for (int i = 0; (rc = loader_next(l, &text, &e)) == 0; i++)
		ck_assert_int_le(i, LOADER_DEPTH);
	ck_assert_int_eq(rc, -EBADMSG);
	loader_close(l);
	train_bed_fini(&b);
}
END_TEST

UNIT_MAIN("loader", test_order_and_bytes, test_starts_anywhere, test_holds_out_the_end, test_errors_are_told)
