/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset.h"

#include <errno.h>
#include "tests/lib/train_bed.h"

static char error[CR_DATASET_ERROR_BYTES];

static char *slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "r");
	char *data = malloc(1 << 20);

	ck_assert_ptr_nonnull(f);
	*ret_len = fread(data, 1, 1 << 20, f);
	fclose(f);
	return data;
}

START_TEST(test_packs_and_reads_across_shards)
{
	struct train_bed b;
	struct cr_dataset *d;
	const struct cr_dataset_info *info;
	char *want, have[9000];
	size_t len;

	train_bed_init(&b);
	train_bed_pack(&b, 50001, 4096);
	want = slurp(b.corpus, &len);
	ck_assert_int_eq(cr_dataset_open(b.store, "/data/d", &d, error), 0);
	info = cr_dataset_info(d);
	ck_assert_uint_eq(info->total_bytes, 50001);
	ck_assert_uint_eq(info->shard_count, 13);
	ck_assert_uint_eq(info->file_count, 1);
	for (uint64_t at = 0; at + sizeof(have) <= len; at += 1013) {
		ck_assert_int_eq(cr_dataset_read(d, have, sizeof(have), at, error), 0);
		ck_assert_int_eq(memcmp(have, want + at, sizeof(have)), 0);
	}
	ck_assert_int_eq(cr_dataset_read(d, have, 1, 50000, error), 0);
	ck_assert_int_eq(cr_dataset_read(d, have, 2, 50000, error), -EINVAL);
	cr_dataset_close(d);
	free(want);
	train_bed_fini(&b);
}
END_TEST

/* The same files by way of this host: what a mount shows. */
START_TEST(test_reads_local_files)
{
	char path[512], have[9000], want[9000];
	struct train_bed b;
	struct cr_dataset *d, *local;

	train_bed_init(&b);
	train_bed_pack(&b, 50001, 4096);
	ck_assert_int_eq(cr_dataset_open(b.store, "/data/d", &d, error), 0);
	snprintf(path, sizeof(path), "file:%s/data/d", b.store_dir);
	ck_assert_int_eq(cr_dataset_open(NULL, path, &local, error), 0);
	ck_assert_int_eq(memcmp(cr_dataset_info(d)->id, cr_dataset_info(local)->id, CR_DATASET_ID_BYTES), 0);
	for (uint64_t at = 0; at + sizeof(have) <= 50001; at += 1013) {
		ck_assert_int_eq(cr_dataset_read(local, have, sizeof(have), at, error), 0);
		ck_assert_int_eq(cr_dataset_read(d, want, sizeof(want), at, error), 0);
		ck_assert_int_eq(memcmp(have, want, sizeof(have)), 0);
	}
	cr_dataset_close(local);

	/* A shard cut short, then gone. */
	snprintf(path, sizeof(path), "%s/data/d/data-00001.bin", b.store_dir);
	ck_assert_int_eq(truncate(path, 4000), 0);
	snprintf(path, sizeof(path), "file:%s/data/d", b.store_dir);
	ck_assert_int_eq(cr_dataset_open(NULL, path, &local, error), 0);
	ck_assert_int_eq(cr_dataset_read(local, have, 4096, 4096, error), -EBADMSG);
	cr_dataset_close(local);
	ck_assert_int_eq(cr_dataset_open(NULL, "file:/no/such/place", &local, error), -ENOENT);
	cr_dataset_close(d);
	train_bed_fini(&b);
}
END_TEST

START_TEST(test_directories_in_byte_order)
{
	static const char *const names[] = {"b", "a/z", "a/y", "c"}; /* holding their own names */
	struct train_bed b;
	struct cr_dataset *d;
	struct cr_dataset_info info;
	char path[256], have[16] = "";
	const char *root = path;

	train_bed_init(&b);
	snprintf(path, sizeof(path), "%s/in", b.root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/in/a", b.root);
	mkdir(path, 0755);
	for (int i = 0; i < 4; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/in/%s", b.root, names[i]);
		f = fopen(path, "w");
		fputs(names[i], f);
		fclose(f);
	}
	snprintf(path, sizeof(path), "%s/in", b.root);
	ck_assert_int_eq(cr_dataset_pack(b.store, &root, 1, "/x/y/z//", NULL, &info, error), 0);
	ck_assert_uint_eq(info.file_count, 4);
	ck_assert_int_eq(cr_dataset_open(b.store, "/x/y/z", &d, error), 0);
	ck_assert_int_eq(cr_dataset_read(d, have, 8, 0, error), 0);
	ck_assert_str_eq(have, "a/ya/zbc");
	cr_dataset_close(d);
	train_bed_fini(&b);
}
END_TEST

START_TEST(test_refusals_change_nothing)
{
	struct train_bed b;
	struct cr_dataset_info info;
	const char *corpus, *missing = "/nonexistent/file";

	train_bed_init(&b);
	corpus = b.corpus;
	train_bed_corpus(&b, 0);
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "/d", NULL, &info, error), -EINVAL);
	ck_assert_int_eq(cr_dataset_pack(b.store, &missing, 1, "/d", NULL, &info, error), -ENOENT);
	train_bed_corpus(&b, 100);
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "relative", NULL, &info, error), -EINVAL);
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "/", NULL, &info, error), -EINVAL);
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "/d", &(struct cr_dataset_pack_options){.shard_bytes = 1},
				 &info, error),
		-EINVAL);
	ck_assert(!train_bed_exists(&b, "/d"));
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "/d", NULL, &info, error), 0);
	ck_assert_int_eq(cr_dataset_pack(b.store, &corpus, 1, "/d", NULL, &info, error), -EEXIST);
	train_bed_fini(&b);
}
END_TEST

/* Fails the 1st, 2nd, 3rd ... change of the store until packing passes: then, and only then, the dataset is there. */
static void fail_each_change(bool once)
{
	struct train_bed b;
	struct cr_dataset_info info;
	const char *corpus;
	int rc = -1, failed = 0;

	train_bed_init(&b);
	corpus = b.corpus;
	train_bed_corpus(&b, 10000);
	for (long n = 0; rc; n++) {
		ck_assert_int_lt(n, 100);
		craton_local_fail_after(n, once);
		rc = cr_dataset_pack(b.store, &corpus, 1, "/d", &(struct cr_dataset_pack_options){.shard_bytes = 4096},
			&info, error);
		craton_local_fail_after(-1, false);
		ck_assert_int_eq(train_bed_exists(&b, "/d"), rc == 0);
		failed += rc != 0;
	}
	ck_assert_int_gt(failed, 8);
	ck_assert(!train_bed_exists(&b, "/.tmp-pack-d"));
	train_bed_fini(&b);
}

START_TEST(test_whole_or_not_at_all)
{
	fail_each_change(false);
	fail_each_change(true);
}
END_TEST

START_TEST(test_damaged_index_is_refused)
{
	struct train_bed b;
	struct cr_dataset *d;
	char path[256];
	struct stat st;

	train_bed_init(&b);
	train_bed_pack(&b, 10000, 4096);
	snprintf(path, sizeof(path), "%s/data/d/index.bin", b.store_dir);
	ck_assert_int_eq(stat(path, &st), 0);
	for (long i = 0; i < st.st_size; i++) {
		train_bed_damage(&b, "data/d/index.bin", i, 0x10);
		ck_assert_msg(cr_dataset_open(b.store, "/data/d", &d, error) < 0, "byte %ld", i);
		train_bed_damage(&b, "data/d/index.bin", i, 0x10);
	}
	for (long cut = st.st_size - 1; cut >= 0; cut -= 13) {
		ck_assert_int_eq(truncate(path, cut), 0);
		ck_assert_int_lt(cr_dataset_open(b.store, "/data/d", &d, error), 0);
	}
	ck_assert_int_eq(cr_dataset_open(b.store, "/nothing", &d, error), -ENOENT);
	train_bed_fini(&b);
}
END_TEST

UNIT_MAIN("dataset", test_packs_and_reads_across_shards, test_reads_local_files, test_directories_in_byte_order, test_refusals_change_nothing,
	test_whole_or_not_at_all, test_damaged_index_is_refused)
