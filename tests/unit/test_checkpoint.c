/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/checkpoint.h"

#include <errno.h>
#include "tests/lib/train_bed.h"
#include "trainer/restore.h"

struct bed {
	struct train_bed t;
	struct model model;
	struct workers *workers;
	struct checkpoint_writer *writer;
	struct manifest_meta meta;
	real *state[MANIFEST_FILES];
};

static struct bed *bed_new(uint32_t keep)
{
	struct bed *b = calloc(1, sizeof(*b));
	struct terr e;

	train_bed_init(&b->t);
	b->meta.shape = (struct model_shape){1, 16, 2, 8};
	b->meta.batch_size = b->meta.lanes = b->meta.holdout_percent = 1;
	strcpy(b->meta.data_path, "/d");
	ck_assert_int_eq(model_init(&b->model, &b->meta.shape, &e), 0);
	ck_assert_int_eq(workers_new(2, &b->workers), 0);
	for (int i = 0; i < MANIFEST_FILES; i++)
		b->state[i] = calloc(b->model.param_count, sizeof(real));
	ck_assert_msg(
		checkpoint_writer_new(b->t.store, "/ckpt/run", keep, &b->model, &b->writer, &e) == 0, "%s", e.text);
	return b;
}

static void bed_free(struct bed *b)
{
	checkpoint_writer_free(b->writer);
	workers_free(b->workers);
	for (int i = 0; i < MANIFEST_FILES; i++)
		free(b->state[i]);
	train_bed_fini(&b->t);
	free(b);
}

static real bed_value(uint64_t step, int array, size_t i)
{
	return (real)step + (real)(1000 * array) + (real)(i % 97);
}

static struct checkpoint_result bed_save(struct bed *b, uint64_t step)
{
	struct checkpoint_result r;

	b->meta.step = step;
	for (int a = 0; a < MANIFEST_FILES; a++)
		for (size_t i = 0; i < b->model.param_count; i++)
			b->state[a][i] = bed_value(step, a, i);
	checkpoint_start(b->writer, b->workers, &b->meta, b->state[0], b->state[1], b->state[2]);
	/* Training goes on: the copy must be apart. */
	for (int a = 0; a < MANIFEST_FILES; a++)
		memset(b->state[a], 0xff, b->model.param_count * sizeof(real));
	ck_assert(checkpoint_finish(b->writer, true, &r));
	ck_assert(!checkpoint_finish(b->writer, true, &r));
	return r;
}

/* 0: read back whole and right. */
static int bed_load(struct bed *b, uint64_t step, struct terr *e)
{
	char path[CR_PATH_MAX];
	struct manifest m;
	int rc;

	checkpoint_path(path, "/ckpt/run", step);
	rc = restore_manifest(b->t.store, path, &m, e);
	if (rc == 0)
		rc = restore_arrays(b->t.store, path, &m, b->model.param_count, b->state, e);
	for (int a = 0; a < MANIFEST_FILES && rc == 0; a++)
		for (size_t i = 0; i < b->model.param_count; i++)
			ck_assert(b->state[a][i] == bed_value(step, a, i));
	ck_assert(rc || m.meta.step == step);
	return rc;
}

static size_t bed_list(struct bed *b, uint64_t *out, size_t cap)
{
	uint64_t *steps;
	size_t count;
	struct terr e;

	ck_assert_int_eq(checkpoint_list(b->t.store, "/ckpt/run", &steps, &count, &e), 0);
	for (size_t i = 0; i < count && i < cap; i++)
		out[i] = steps[i];
	free(steps);
	return count;
}

START_TEST(test_saves_loads_and_prunes)
{
	struct bed *b = bed_new(2);
	uint64_t steps[8];
	struct terr e;

	for (uint64_t step = 10; step <= 50; step += 10)
		ck_assert_int_eq(bed_save(b, step).rc, 0);
	ck_assert_uint_eq(bed_list(b, steps, 8), 2);
	ck_assert_uint_eq(steps[0], 50);
	ck_assert_uint_eq(steps[1], 40);
	ck_assert_int_eq(bed_load(b, 50, &e), 0);
	ck_assert_int_eq(bed_load(b, 40, &e), 0);
	ck_assert_int_eq(bed_load(b, 30, &e), -ENOENT);
	bed_free(b);
}
END_TEST

/* Every place of every file of a checkpoint, a changed bit each; and each file cut short, emptied, gone. */
START_TEST(test_damage_is_found)
{
	static const char *const files[] = {"params.f32", "adam_m.f32", "adam_v.f32", "manifest.json"};
	struct bed *b = bed_new(2);
	struct terr e;

	ck_assert_int_eq(bed_save(b, 1).rc, 0);
	for (int f = 0; f < 4; f++) {
		char path[64], local[512];
		struct stat st;

		snprintf(path, sizeof(path), "ckpt/run/step-00000001/%s", files[f]);
		snprintf(local, sizeof(local), "%s/%s", b->t.store_dir, path);
		ck_assert_int_eq(stat(local, &st), 0);
		for (long at = 0; at < st.st_size - 3; at += 61) {
			train_bed_damage(&b->t, path, at, 1u << at % 8);
			ck_assert(restore_damaged(bed_load(b, 1, &e)));
			train_bed_damage(&b->t, path, at, 1u << at % 8);
		}
		ck_assert_int_eq(bed_load(b, 1, &e), 0);
	}
	for (int f = 0; f < 4; f++) {
		char local[512];

		snprintf(local, sizeof(local), "%s/ckpt/run/step-00000001/%s", b->t.store_dir, files[f]);
		ck_assert_int_eq(truncate(local, 100), 0);
		ck_assert(restore_damaged(bed_load(b, 1, &e)));
		ck_assert_int_eq(unlink(local), 0);
		ck_assert(restore_damaged(bed_load(b, 1, &e)));
		ck_assert_int_eq(bed_save(b, 1).rc, 0); /* takes the place of the damaged one */
		ck_assert_int_eq(bed_load(b, 1, &e), 0);
	}
	bed_free(b);
}
END_TEST

/* Fails the 1st, 2nd, 3rd ... change of the store: a save is whole under its name or it is not there, the older one stays. */
static void fail_each_change(bool once)
{
	struct bed *b = bed_new(1);
	struct checkpoint_result r = {.rc = -1};
	struct terr e;
	int failed = 0;

	ck_assert_int_eq(bed_save(b, 1).rc, 0);
	for (long n = 0; r.rc || r.warning.text[0]; n++) {
		uint64_t step = 2 + (uint64_t)n;

		ck_assert_int_lt(n, 100);
		craton_local_fail_after(n, once);
		r = bed_save(b, step);
		craton_local_fail_after(-1, false);
		failed += r.rc != 0;
		if (r.rc) {
			ck_assert_int_gt((int)strlen(r.error.text), 10);
			ck_assert_int_lt(bed_load(b, step, &e), 0);
			ck_assert_uint_eq(bed_list(b, NULL, 0), 1);
			ck_assert_int_eq(bed_load(b, 1, &e), 0);
		} else {
			ck_assert_int_eq(bed_load(b, step, &e), 0);
		}
	}
	ck_assert_int_gt(failed, 8);
	ck_assert_uint_eq(bed_list(b, NULL, 0), 1);
	bed_free(b);
}

START_TEST(test_a_failed_save_harms_nothing)
{
	fail_each_change(false);
}
END_TEST

START_TEST(test_a_passing_fault_fails_one_save)
{
	fail_each_change(true);
}
END_TEST

START_TEST(test_later_ones_of_an_abandoned_line_stay)
{
	struct bed *b = bed_new(1);
	uint64_t steps[4];
	struct terr e;

	ck_assert_int_eq(bed_save(b, 100).rc, 0);
	ck_assert_int_eq(bed_save(b, 50).rc, 0); /* a run that fell back to before 50 */
	ck_assert_uint_eq(bed_list(b, steps, 4), 2);
	ck_assert_int_eq(bed_save(b, 60).rc, 0);
	ck_assert_uint_eq(bed_list(b, steps, 4), 2);
	ck_assert_uint_eq(steps[0], 100);
	ck_assert_uint_eq(steps[1], 60);
	ck_assert_int_eq(bed_save(b, 100).rc, 0);
	ck_assert_uint_eq(bed_list(b, steps, 4), 1);
	ck_assert_int_eq(bed_load(b, 100, &e), 0);
	bed_free(b);
}
END_TEST

START_TEST(test_a_new_writer_cleans_up)
{
	struct bed *b = bed_new(1);
	struct terr e;

	ck_assert_int_eq(cr_mkdir(b->t.store, "/ckpt/run/.tmp-step-00000009", 0755), 0);
	ck_assert_int_eq(cr_mkdir(b->t.store, "/ckpt/run/mine", 0755), 0);
	checkpoint_writer_free(b->writer);
	ck_assert_int_eq(checkpoint_writer_new(b->t.store, "/ckpt/run", 1, &b->model, &b->writer, &e), 0);
	ck_assert(!train_bed_exists(&b->t, "/ckpt/run/.tmp-step-00000009"));
	ck_assert(train_bed_exists(&b->t, "/ckpt/run/mine"));
	bed_free(b);
}
END_TEST

UNIT_MAIN("checkpoint", test_saves_loads_and_prunes, test_damage_is_found, test_a_failed_save_harms_nothing,
	test_a_passing_fault_fails_one_save, test_later_ones_of_an_abandoned_line_stay, test_a_new_writer_cleans_up)
