/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs of the trainer on a tiny model. */
#include "trainer/train.h"

#include <errno.h>
#include "tests/lib/train_bed.h"

static struct train_report_summary sum;
static struct terr err;
static char *printed; /* what the last run printed */
static bool as_text;  /* for people, not JSON */

/* `more` holds further options, separated by spaces. */
static int run(struct train_bed *b, const char *more)
{
	char *argv[48] = {"craton-train", "--data=/data/d", "--layers=1", "--width=16", "--heads=2", "--seq-len=16",
		"--batch-size=4", "--lanes=2", "--eval-samples=4", "--log-every=1", "--json", "--warmup-steps=3"};
	int argc = 12, rc;
	char *words = strdup(more);
	struct train_report r = {.json = !as_text};
	struct train_options o;
	size_t len;

	for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	rc = train_options_parse(&o, argc, argv, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	free(printed);
	r.out = open_memstream(&printed, &len);
	rc = train_run(b->store, &o, &r, &sum, &err);
	fclose(r.out);
	free(words);
	return rc;
}

static void bed_init(struct train_bed *b)
{
	train_bed_init(b);
	train_bed_pack(b, 20000, 0);
}

static void bed_fini(struct train_bed *b)
{
	free(printed);
	printed = NULL;
	train_bed_fini(b);
}

static void run_well(struct train_bed *b, const char *more)
{
	int rc = run(b, more);

	ck_assert_msg(rc == 0, "%s: %s", more, err.text);
}

/* The lines "event": "step" from `step` on, without the timings, which differ from run to run. */
static char *losses_from(const char *text, uint64_t step)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		unsigned long long at;
		const char *end = strstr(line, ", \"tokens_per_s\"");

		if (sscanf(line, "{\"event\": \"step\", \"step\": %llu", &at) == 1 && at >= step && end)
			fprintf(f, "%.*s\n", (int)(end - line), line);
	}
	fclose(f);
	return out;
}

START_TEST(test_resumed_equals_undisturbed)
{
	struct train_bed b;
	char undisturbed[65], *want, *have;

	bed_init(&b);
	run_well(&b, "--checkpoint-dir=/a --max-steps=30 --save-every=100 --threads=2");
	strcpy(undisturbed, sum.weights_sha256);
	want = losses_from(printed, 21);
	ck_assert_int_gt((int)strlen(want), 10 * 40);
	run_well(&b, "--checkpoint-dir=/b --max-steps=7 --save-every=5 --threads=1");
	ck_assert_str_ne(sum.weights_sha256, undisturbed);
	run_well(&b, "--checkpoint-dir=/b --max-steps=20 --save-every=4");
	ck_assert_uint_eq(sum.first_step, 7);
	run_well(&b, "--checkpoint-dir=/b --max-steps=30");
	ck_assert_uint_eq(sum.first_step, 20);
	ck_assert_str_eq(sum.weights_sha256, undisturbed);
	have = losses_from(printed, 21);
	ck_assert_str_eq(have, want);                       /* bit for bit, with all digits */
	as_text = true;
	run_well(&b, "--checkpoint-dir=/b --max-steps=30"); /* nothing left to do */
	as_text = false;
	ck_assert_uint_eq(sum.tokens, 0);
	ck_assert_str_eq(sum.weights_sha256, undisturbed);
	ck_assert_ptr_nonnull(strstr(printed, "note: the run is at its end: step 30 of 30; give a greater --max-steps to go on\n"));
	ck_assert_ptr_nonnull(strstr(printed, "\nheld-out loss "));
	ck_assert_ptr_null(strstr(printed, "nan"));
	run_well(&b, "--resume=/b/step-00000030 --max-steps=31");
	ck_assert_uint_eq(sum.first_step, 30);
	free(want);
	free(have);
	bed_fini(&b);
}
END_TEST

START_TEST(test_learns)
{
	struct train_bed b;

	bed_init(&b);
	run_well(&b, "--max-steps=150 --lr=0.01 --eval-every=50");
	ck_assert(sum.heldout < 2.0); /* log(256) = 5.5 at the start */
	ck_assert(sum.loss < 2.0);
	ck_assert_uint_eq(sum.saves, 0);
	bed_fini(&b);
}
END_TEST

START_TEST(test_seeds_differ)
{
	struct train_bed b;
	char one[65];

	bed_init(&b);
	run_well(&b, "--max-steps=3 --seed=1");
	strcpy(one, sum.weights_sha256);
	run_well(&b, "--max-steps=3 --seed=2");
	ck_assert_str_ne(sum.weights_sha256, one);
	run_well(&b, "--max-steps=3 --seed=1");
	ck_assert_str_eq(sum.weights_sha256, one);
	bed_fini(&b);
}
END_TEST

START_TEST(test_falls_back_behind_damage)
{
	struct train_bed b;
	char undisturbed[65];

	bed_init(&b);
	/* The end of a run always saves; in between, a save that is still being written makes the next one late. */
	run_well(&b, "--checkpoint-dir=/c --max-steps=10 --save-every=100");
	run_well(&b, "--checkpoint-dir=/c --max-steps=15 --save-every=100");
	run_well(&b, "--checkpoint-dir=/c --max-steps=20 --save-every=100");
	strcpy(undisturbed, sum.weights_sha256);
	train_bed_damage(&b, "c/step-00000020/adam_v.f32", 77, 4);
	train_bed_damage(&b, "c/step-00000015/manifest.json", 77, 4);
	run_well(&b, "--checkpoint-dir=/c --max-steps=20 --save-every=5 --keep=5");
	ck_assert_uint_eq(sum.first_step, 10);
	ck_assert_ptr_nonnull(strstr(printed, "checkpoint of step 20 is damaged"));
	ck_assert_ptr_nonnull(strstr(printed, "checkpoint of step 15 is damaged"));
	ck_assert_str_eq(sum.weights_sha256, undisturbed);
	run_well(&b, "--checkpoint-dir=/c --max-steps=21"); /* 20 was written anew */
	ck_assert_uint_eq(sum.first_step, 20);

	train_bed_damage(&b, "c/step-00000021/params.f32", -1, 1);
	ck_assert_int_eq(run(&b, "--resume=/c/step-00000021 --max-steps=30"),
		-EBADMSG); /* asked for by name: no other will do */
	bed_fini(&b);
}
END_TEST

START_TEST(test_nothing_whole_is_an_error)
{
	struct train_bed b;

	bed_init(&b);
	run_well(&b, "--checkpoint-dir=/c --max-steps=2");
	train_bed_damage(&b, "c/step-00000002/params.f32", 0, 1);
	ck_assert_int_lt(run(&b, "--checkpoint-dir=/c --max-steps=4"), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "none of the 1 checkpoints"));
	bed_fini(&b);
}
END_TEST

START_TEST(test_options_must_agree)
{
	struct train_bed b;

	bed_init(&b);
	run_well(&b, "--checkpoint-dir=/c --max-steps=2 --seed=4");
	ck_assert_int_eq(run(&b, "--checkpoint-dir=/c --max-steps=4 --seed=5"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "--seed 5"));
	ck_assert_int_eq(run(&b, "--checkpoint-dir=/c --max-steps=4 --resume=none"), -EINVAL);
	run_well(&b, "--checkpoint-dir=/c --max-steps=4 --lr=0.1");
	ck_assert_uint_eq(sum.step, 4);
	ck_assert_int_eq(run(&b, "--checkpoint-dir=/nowhere --resume=/nothing --max-steps=4"), -ENOENT);
	{
		const char *path = b.corpus;
		struct cr_dataset_info info;
		char error[CR_DATASET_ERROR_BYTES];

		train_bed_corpus(&b, 30000);
		ck_assert_int_eq(cr_unlink(b.store, "/data/d/index.bin"), 0);
		ck_assert_int_eq(cr_unlink(b.store, "/data/d/data-00000.bin"), 0);
		ck_assert_int_eq(cr_rmdir(b.store, "/data/d"), 0);
		ck_assert_int_eq(cr_dataset_pack(b.store, &path, 1, "/data/d", NULL, &info, error), 0);
	}
	ck_assert_int_eq(run(&b, "--checkpoint-dir=/c --max-steps=6"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "not the dataset"));
	bed_fini(&b);
}
END_TEST

/* A store that takes no more writes: training goes on to its end, the failure is told. */
START_TEST(test_failing_saves)
{
	struct train_bed b;
	char undisturbed[65];

	bed_init(&b);
	run_well(&b, "--max-steps=12");
	strcpy(undisturbed, sum.weights_sha256);
	craton_local_fail_after(6, false); /* the first save begins and fails, and so do all later ones */
	run_well(&b, "--checkpoint-dir=/c --max-steps=12 --save-every=2");
	craton_local_fail_after(-1, false);
	ck_assert(sum.last_save_failed);
	ck_assert_uint_eq(sum.saves, 0);
	ck_assert_uint_gt(sum.failed_saves, 2);
	ck_assert_uint_eq(sum.step, 12);
	ck_assert_str_eq(sum.weights_sha256, undisturbed);
	ck_assert_ptr_nonnull(strstr(printed, "\"event\": \"save-failed\""));
	run_well(&b, "--checkpoint-dir=/c --max-steps=12 --save-every=2");
	ck_assert(!sum.last_save_failed);
	bed_fini(&b);
}
END_TEST

START_TEST(test_stop_request_saves)
{
	struct train_bed b;

	bed_init(&b);
	run_well(&b, "--checkpoint-dir=/c --max-steps=3");
	train_request_stop();
	run_well(&b, "--checkpoint-dir=/c --max-steps=1000000");
	ck_assert_str_eq(sum.stopped, "signal");
	ck_assert_uint_eq(sum.step, 3);
	bed_fini(&b);
}
END_TEST

UNIT_MAIN("train", test_resumed_equals_undisturbed, test_learns, test_seeds_differ, test_falls_back_behind_damage,
	test_nothing_whole_is_an_error, test_options_must_agree, test_failing_saves, test_stop_request_saves)
