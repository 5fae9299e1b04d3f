/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train: see train.h. The loop is: next batch, gradients, optimizer, and now and then a line, a held-out loss, a checkpoint.
 *
 * What makes a resumed run equal to one that never stopped: the state is (parameters, two moments, step, sample number, random
 * state); the learning rate depends on the step alone, the order of samples on the seed and the sample number, the sums of
 * gradients on the lanes and not on threads; all of these are in the manifest, and options that differ from it are refused.
 *
 * A save that is due while the last one is still being written waits for it, step by step, without holding up training. A
 * save that fails is reported and training goes on; the next due save tries again; only the last one decides the exit code.
 */
#include "trainer/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "trainer/adamw.h"
#include "trainer/loader.h"
#include "trainer/restore.h"
#include "trainer/step.h"
#include "trainer/vecops.h"
#ifdef HAVE_CUDA
#include "trainer/cuda.h"
#endif

enum {
	TRAIN_LAST_SAVE_TRIES = 3,
};

struct train {
	struct cr_store *store;
	struct train_options o;
	const struct train_report *report;
	struct train_report_summary *sum;
	struct terr *e;
	struct manifest_meta meta;
	struct model *model;
	struct workers *workers;
	struct step *step;
	struct loader *loader;
	struct checkpoint_writer *writer;
#ifdef HAVE_CUDA
	struct cuda_adamw *cuda;
#endif
	real *params, *adam_m, *adam_v;
	uint8_t *eval_text;
	uint32_t eval_count;
	bool save_due;
	uint64_t save_due_step;
	bool any_save, last_saved_ok;
	uint64_t last_save_step;
	double log_seconds; /* of training since the last line */
	double log_wait_ms;
	uint64_t log_steps;
};

static volatile sig_atomic_t train_stop;

void train_request_stop(void)
{
	train_stop = 1;
}

static double train_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- options and the checkpoint ---- */

static void train_meta_from_options(struct manifest_meta *m, const struct train_options *o)
{
	memset(m, 0, sizeof(*m));
	m->shape =
		(struct model_shape){(uint32_t)o->layers, (uint32_t)o->width, (uint32_t)o->heads, (uint32_t)o->seq_len};
	m->batch_size = (uint32_t)o->batch_size;
	m->lanes = (uint32_t)o->lanes;
	m->holdout_percent = (uint32_t)o->holdout_percent;
	m->seed = o->seed;
	m->adamw = (struct adamw_options){o->lr, o->weight_decay, o->clip, o->warmup_steps, o->decay_steps};
	snprintf(m->data_path, sizeof(m->data_path), "%s", o->data);
}

static int train_must_agree(struct train *t, const uint64_t *given, uint64_t *saved_to, uint64_t saved)
{
	if (train_options_given(&t->o, given) && *given != saved)
		return terr_set(t->e, -EINVAL,
			"--%s %" PRIu64 ": the checkpoint was made with %" PRIu64 "; leave the option out, or "
			"start anew with --resume none in another --checkpoint-dir",
			train_options_name(&t->o, given), *given, saved);
	*saved_to = saved;
	return 0;
}

static void train_may_change(struct train *t, const double *given, double *value)
{
	if (train_options_given(&t->o, given))
		*value = *given;
}

/* The checkpoint's options become ours. */
static int train_adopt(struct train *t, const struct manifest_meta *saved)
{
	struct train_options *o = &t->o;
	struct manifest_meta m = *saved;

	if (train_must_agree(t, &o->layers, &o->layers, m.shape.layers) ||
		train_must_agree(t, &o->width, &o->width, m.shape.width) ||
		train_must_agree(t, &o->heads, &o->heads, m.shape.heads) ||
		train_must_agree(t, &o->seq_len, &o->seq_len, m.shape.seq_len) ||
		train_must_agree(t, &o->batch_size, &o->batch_size, m.batch_size) ||
		train_must_agree(t, &o->lanes, &o->lanes, m.lanes) || train_must_agree(t, &o->seed, &o->seed, m.seed) ||
		train_must_agree(t, &o->holdout_percent, &o->holdout_percent, m.holdout_percent))
		return -EINVAL;
	train_may_change(t, &o->lr, &m.adamw.lr);
	train_may_change(t, &o->weight_decay, &m.adamw.weight_decay);
	train_may_change(t, &o->clip, &m.adamw.clip);
	if (train_options_given(o, &o->warmup_steps))
		m.adamw.warmup_steps = o->warmup_steps;
	if (train_options_given(o, &o->decay_steps))
		m.adamw.decay_steps = o->decay_steps;
	snprintf(m.data_path, sizeof(m.data_path), "%s", o->data); /* the id decides, not the place */
	t->meta = m;
	return 0;
}

static void train_free_state(struct train *t)
{
	free(t->model);
	free(t->params);
	free(t->adam_m);
	free(t->adam_v);
	t->model = NULL;
	t->params = t->adam_m = t->adam_v = NULL;
}

static int train_allocate(struct train *t)
{
	int rc;

	train_free_state(t);
	t->model = malloc(sizeof(*t->model));
	rc = t->model ? model_init(t->model, &t->meta.shape, t->e) : terr_set(t->e, -ENOMEM, "out of memory");
	if (rc)
		return rc;
	t->params = calloc(t->model->param_count, sizeof(real));
	t->adam_m = calloc(t->model->param_count, sizeof(real));
	t->adam_v = calloc(t->model->param_count, sizeof(real));
	if (!t->params || !t->adam_m || !t->adam_v)
		return terr_set(t->e, -ENOMEM, "no memory for %zu parameters", t->model->param_count);
	return 0;
}

static int train_load(struct train *t, const char *path)
{
	struct manifest *m = malloc(sizeof(*m));
	int rc = m ? restore_manifest(t->store, path, m, t->e) : terr_set(t->e, -ENOMEM, "out of memory");

	if (rc == 0)
		rc = train_adopt(t, &m->meta);
	if (rc == 0)
		rc = train_allocate(t);
	if (rc == 0) {
		real *const arrays[MANIFEST_FILES] = {t->params, t->adam_m, t->adam_v};

		rc = restore_arrays(t->store, path, m, t->model->param_count, arrays, t->e);
	}
	free(m);
	if (rc == 0)
		train_report_resume(t->report, path, t->meta.step);
	return rc;
}

/* The newest checkpoint that is whole; 1 if there is none at all. */
static int train_load_newest(struct train *t)
{
	char path[CR_PATH_MAX], line[TERR_TEXT_BYTES + 96];
	uint64_t *steps;
	size_t count, tried = 0;
	int rc = checkpoint_list(t->store, t->o.checkpoint_dir, &steps, &count, t->e);

	if (rc == -ENOENT)
		return 1;
	if (rc)
		return rc;
	rc = 1;
	for (; tried < count; tried++) {
		checkpoint_path(path, t->o.checkpoint_dir, steps[tried]);
		rc = train_load(t, path);
		if (!restore_damaged(rc))
			break;
		snprintf(line, sizeof(line),
			"checkpoint of step %" PRIu64 " is damaged or out of reach, falling back to an older one: %s",
			steps[tried], t->e->text);
		train_report_note(t->report, "warning", line);
	}
	free(steps);
	if (count && tried == count)
		return terr_set(t->e, rc,
			"none of the %zu checkpoints in %.300s can be read; start anew with --resume none in another "
			"--checkpoint-dir",
			count, t->o.checkpoint_dir);
	return rc;
}

static int train_start_anew(struct train *t)
{
	uint64_t *steps;
	size_t count;
	int rc;

	if (t->o.checkpoint_dir) {
		rc = checkpoint_list(t->store, t->o.checkpoint_dir, &steps, &count, t->e);
		if (rc == 0)
			free(steps);
		if (rc == 0 && count)
			return terr_set(t->e, -EINVAL,
				"%.300s holds the checkpoints of another run: give --resume auto or another "
				"--checkpoint-dir",
				t->o.checkpoint_dir);
		if (rc && rc != -ENOENT)
			return rc;
	}
	train_meta_from_options(&t->meta, &t->o);
	rc = train_allocate(t);
	if (rc)
		return rc;
	model_rng_init(&t->meta.rng, t->meta.seed);
	model_init_params(t->model, &t->meta.rng, t->params);
	return 0;
}

static int train_prepare_state(struct train *t)
{
	int rc = 1;

	if (strlen(t->o.data) >= sizeof(t->meta.data_path))
		return terr_set(t->e, -EINVAL, "--data %.100s...: the path is too long", t->o.data);
	if (!strcmp(t->o.resume, "auto")) {
		if (t->o.checkpoint_dir)
			rc = train_load_newest(t);
	} else if (strcmp(t->o.resume, "none")) {
		rc = train_load(t, t->o.resume);
	}
	return rc == 1 ? train_start_anew(t) : rc;
}

static unsigned train_thread_count(const struct train *t)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = t->o.threads ? t->o.threads : cpus > 0 ? (uint64_t)cpus : 1;
	uint32_t lanes = t->meta.lanes < t->meta.batch_size ? t->meta.lanes : t->meta.batch_size;

	return (unsigned)(n < lanes ? n : lanes);
}

static int train_prepare_data(struct train *t)
{
	struct loader_config c = {.path = t->o.data,
		.seq_len = t->meta.shape.seq_len,
		.batch_size = t->meta.batch_size,
		.seed = t->meta.seed,
		.holdout_percent = t->meta.holdout_percent};
	int rc = loader_open(t->store, &c, t->meta.sample, &t->loader, t->e);
	const struct cr_dataset_info *info;

	if (rc)
		return rc;
	info = loader_dataset(t->loader);
	if (t->meta.step && memcmp(info->id, t->meta.data_id, sizeof(info->id)))
		return terr_set(
			t->e, -EINVAL, "--data %.300s: not the dataset that the checkpoint was trained on", t->o.data);
	memcpy(t->meta.data_id, info->id, sizeof(t->meta.data_id));
	t->eval_text = malloc(t->o.eval_samples * (t->meta.shape.seq_len + 1));
	if (!t->eval_text)
		return terr_set(t->e, -ENOMEM, "out of memory");
	rc = loader_holdout(t->loader, (uint32_t)t->o.eval_samples, t->eval_text, t->e);
	if (rc < 0)
		return rc;
	t->eval_count = (uint32_t)rc;
	return 0;
}

static int train_prepare(struct train *t)
{
	int rc = train_prepare_state(t);

	if (rc == 0)
		rc = train_prepare_data(t);
	if (rc)
		return rc;
	rc = workers_new(train_thread_count(t), &t->workers);
	if (rc == 0)
		rc = step_new(t->model, t->workers, t->meta.batch_size, t->meta.lanes, &t->step);
	if (rc)
		return terr_set(t->e, rc, "threads or memory for the gradients: %s", strerror(-rc));
#ifdef HAVE_CUDA
	if (!strcmp(t->o.device, "cuda"))
		rc = cuda_adamw_new(t->model->param_count, t->params, t->adam_m, t->adam_v, &t->cuda, t->e);
	else if (strcmp(t->o.device, "cpu"))
		rc = terr_set(t->e, -EINVAL, "--device %.100s: give cpu or cuda", t->o.device);
	if (rc)
		return rc;
#endif
	if (t->o.checkpoint_dir)
		rc = checkpoint_writer_new(
			t->store, t->o.checkpoint_dir, (uint32_t)t->o.keep, t->model, &t->writer, t->e);
	else
		train_report_note(t->report, "note", "no --checkpoint-dir: nothing will be saved");
	return rc;
}

/* ---- saving ---- */

static void train_take_result(struct train *t, bool wait)
{
	struct checkpoint_result *r = malloc(sizeof(*r)); /* 6 KiB with its path */

	if (r && t->writer && checkpoint_finish(t->writer, wait, r)) {
		train_report_save(t->report, r);
		t->last_saved_ok = r->rc == 0;
		t->sum->saves += r->rc == 0;
		t->sum->failed_saves += r->rc != 0;
	}
	free(r);
}

static void train_start_save(struct train *t)
{
	double at = train_now(), stall_ms;
	const struct manifest_meta *m = &t->meta;

#ifdef HAVE_CUDA
	if (t->cuda && cuda_adamw_moments(t->cuda, t->adam_m, t->adam_v, t->e)) {
		train_report_note(t->report, "save-failed", t->e->text);
		t->sum->failed_saves++;
		t->any_save = true;
		t->last_saved_ok = t->save_due = false;
		return;
	}
#endif
	checkpoint_start(t->writer, t->workers, m, t->params, t->adam_m, t->adam_v);
	stall_ms = (train_now() - at) * 1e3;
	t->sum->sum_stall_ms += stall_ms;
	if (stall_ms > t->sum->max_stall_ms)
		t->sum->max_stall_ms = stall_ms;
	train_report_save_start(t->report, m->step, stall_ms, t->save_due ? m->step - t->save_due_step : 0);
	t->any_save = true;
	t->last_save_step = m->step;
	t->save_due = false;
}

static void train_consider_save(struct train *t)
{
	if (!t->writer)
		return;
	if (!t->save_due && t->meta.step % t->o.save_every == 0) {
		t->save_due = true;
		t->save_due_step = t->meta.step;
	}
	train_take_result(t, false);
	if (t->save_due && !checkpoint_busy(t->writer)) {
		train_take_result(t, false); /* it may have ended between the two lines above */
		train_start_save(t);
	}
}

/* At the end of a run: the last state must be saved, with a few tries. Waits as long as the store takes. */
static void train_save_last(struct train *t)
{
	bool moved = t->meta.step != t->sum->first_step;

	if (!t->writer)
		return;
	train_take_result(t, true);
	for (int i = 0; i < TRAIN_LAST_SAVE_TRIES && moved; i++) {
		struct timespec wait = {.tv_nsec = i * 300000000L};

		if (t->any_save && t->last_save_step == t->meta.step && t->last_saved_ok)
			break;
		nanosleep(&wait, NULL);
		train_start_save(t);
		train_take_result(t, true);
	}
	t->sum->last_save_failed = t->any_save && !t->last_saved_ok;
}

/* ---- the loop ---- */

static void train_heldout(struct train *t)
{
	double at = train_now();

	t->sum->heldout = step_loss(t->step, t->params, t->eval_text, t->eval_count);
	train_report_heldout(t->report, t->meta.step, t->sum->heldout, t->eval_count, train_now() - at);
}

static int train_optimize(struct train *t, uint64_t step, const real *grads, double norm)
{
#ifdef HAVE_CUDA
	if (t->cuda)
		return cuda_adamw_update(t->cuda, &t->meta.adamw, t->model, step, t->params, grads, norm, t->e);
#endif
	adamw_update(&t->meta.adamw, t->model, t->workers, step, t->params, t->adam_m, t->adam_v, grads, norm);
	return 0;
}

static int train_one_step(struct train *t)
{
	uint64_t step = t->meta.step + 1, tokens = (uint64_t)t->meta.batch_size * t->meta.shape.seq_len;
	double at = train_now(), loaded, loss, norm;
	const uint8_t *text;
	const real *grads;
	int rc = loader_next(t->loader, &text, t->e);

	if (rc)
		return rc;
	loaded = train_now();
	loss = step_grads(t->step, t->params, text, &grads, &norm);
	if (!isfinite(loss) || !isfinite(norm))
		return terr_set(t->e, -EDOM,
			"step %" PRIu64 ": the loss is not finite any more; resume with a lower --lr", step);
	rc = train_optimize(t, step, grads, norm);
	if (rc)
		return rc;
	t->meta.step = step;
	t->meta.sample = loader_position(t->loader);
	t->sum->loss = loss;
	t->sum->tokens += tokens;
	t->sum->data_wait_ms += (loaded - at) * 1e3;
	t->sum->train_seconds += train_now() - at;
	t->log_wait_ms += (loaded - at) * 1e3;
	t->log_seconds += train_now() - at;
	t->log_steps++;
	if (step % t->o.log_every == 0 || step == t->o.max_steps) {
		train_report_step(t->report, step, loss, adamw_lr(&t->meta.adamw, step), norm,
			(double)(t->log_steps * tokens) / t->log_seconds, t->log_seconds * 1e3 / (double)t->log_steps,
			t->log_wait_ms);
		t->log_seconds = t->log_wait_ms = 0;
		t->log_steps = 0;
	}
	return 0;
}

static int train_loop(struct train *t)
{
	int rc = 0;

	t->sum->stopped = "max-steps";
	if (t->meta.step >= t->o.max_steps) {
		char text[160];

		snprintf(text, sizeof(text),
			"the run is at its end: step %" PRIu64 " of %" PRIu64 "; give a greater --max-steps to go on", t->meta.step,
			t->o.max_steps);
		train_report_note(t->report, "note", text);
	}
	while (rc == 0 && t->meta.step < t->o.max_steps) {
		if (train_stop) {
			t->sum->stopped = "signal";
			break;
		}
		rc = train_one_step(t);
		if (rc)
			break;
		if (t->meta.step % t->o.eval_every == 0 && t->meta.step < t->o.max_steps)
			train_heldout(t);
		train_consider_save(t);
	}
	if (rc)
		t->sum->stopped = "error";
	else
		train_heldout(t);
	return rc;
}

static void train_free(struct train *t)
{
	checkpoint_writer_free(t->writer);
	loader_close(t->loader);
	step_free(t->step);
	workers_free(t->workers);
#ifdef HAVE_CUDA
	cuda_adamw_free(t->cuda);
#endif
	free(t->eval_text);
	train_free_state(t);
	free(t);
}

static int train_execute(struct train *t)
{
	double start;
	uint8_t sha[MANIFEST_SHA_BYTES];
	int rc = train_prepare(t);

	if (rc)
		return rc;
	train_report_start(t->report, &t->meta, t->model->param_count, workers_count(t->workers), vecops_get()->name,
		loader_dataset(t->loader)->total_bytes, loader_epoch_samples(t->loader));
	t->sum->first_step = t->meta.step;
	start = train_now();
	rc = train_loop(t);
	train_save_last(t); /* also after an error: the state is that of the last good step */
	t->sum->step = t->meta.step;
	t->sum->seconds = train_now() - start;
	if (manifest_sha256(t->params, t->model->param_count * sizeof(real), sha) == 0)
		manifest_hex(sha, t->sum->weights_sha256);
	train_report_summary(t->report, t->sum);
	return rc;
}

int train_run(struct cr_store *store, const struct train_options *o, const struct train_report *report,
	struct train_report_summary *ret_summary, struct terr *e)
{
	struct train *t = calloc(1, sizeof(*t));
	int rc;

	memset(ret_summary, 0, sizeof(*ret_summary));
	ret_summary->loss = ret_summary->heldout = NAN;
	ret_summary->stopped = "error";
	if (!t)
		return terr_set(e, -ENOMEM, "out of memory");
	t->store = store;
	t->o = *o;
	t->report = report;
	t->sum = ret_summary;
	t->e = e;
	rc = train_execute(t);
	train_free(t);
	return rc;
}
