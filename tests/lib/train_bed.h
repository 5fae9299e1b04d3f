/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_bed: for the tests of datasets and trainer: a scratch directory with a local store in it (craton_local.h), a corpus
 * of made-up text, and bytes of its files to damage. train_bed_fini removes everything.
 */
#ifndef TESTS_LIB_TRAIN_BED_H
#define TESTS_LIB_TRAIN_BED_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "client/craton.h"
#include "client/dataset.h"
#include "tests/lib/craton_local.h"
#include "tests/lib/unit.h"

struct train_bed {
	char root[128], store_dir[160], corpus[160];
	struct cr_store *store;
};

static inline void train_bed_init(struct train_bed *b)
{
	const char *tmp = getenv("TMPDIR");
	struct cr_options o = {.config = b->store_dir};

	craton_local_fail_after(-1, false);
	snprintf(b->root, sizeof(b->root), "%.80s/craton-train-XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(b->root));
	snprintf(b->store_dir, sizeof(b->store_dir), "%s/store", b->root);
	snprintf(b->corpus, sizeof(b->corpus), "%s/corpus.txt", b->root);
	ck_assert_int_eq(mkdir(b->store_dir, 0755), 0);
	ck_assert_int_eq(cr_connect(&o, &b->store), 0);
}

static inline int train_bed_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void train_bed_fini(struct train_bed *b)
{
	cr_disconnect(b->store);
	ck_assert_int_eq(nftw(b->root, train_bed_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Text with structure in it: words from a short list in a fixed pseudo-random order. */
static inline void train_bed_corpus(struct train_bed *b, size_t bytes)
{
	static const char *const words[] = {
		"in the ", "beginning ", "was ", "the word ", "and ", "light.\n", "upon ", "waters "};
	FILE *f = fopen(b->corpus, "w");
	unsigned long long x = 1;

	ck_assert_ptr_nonnull(f);
	for (size_t n = 0; n < bytes;) {
		const char *word;

		x = x * 6364136223846793005u + 1442695040888963407u;
		word = words[x >> 61];
		for (; *word && n < bytes; n++)
			putc(*word++, f);
	}
	ck_assert_int_eq(fclose(f), 0);
}

/* The corpus as /data/d in shards of `shard_bytes` (0: one). */
static inline void train_bed_pack(struct train_bed *b, size_t bytes, uint64_t shard_bytes)
{
	struct cr_dataset_pack_options o = {.shard_bytes = shard_bytes};
	struct cr_dataset_info info;
	const char *path = b->corpus;
	char error[CR_DATASET_ERROR_BYTES];

	train_bed_corpus(b, bytes);
	ck_assert_msg(cr_dataset_pack(b->store, &path, 1, "/data/d", &o, &info, error) == 0, "%s", error);
}

/* XORs one byte of a file of the store; a negative offset counts from the end. */
static inline void train_bed_damage(struct train_bed *b, const char *path, long offset, unsigned char mask)
{
	char name[4096];
	FILE *f;
	int c;

	snprintf(name, sizeof(name), "%s/%s", b->store_dir, path);
	f = fopen(name, "r+");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
	c = getc(f);
	ck_assert_int_ne(c, EOF);
	ck_assert_int_eq(fseek(f, -1, SEEK_CUR), 0);
	putc(c ^ mask, f);
	ck_assert_int_eq(fclose(f), 0);
}

static inline int train_bed_exists(struct train_bed *b, const char *path)
{
	struct cr_stat st;

	return cr_stat(b->store, path, &st) == 0;
}

#endif
