/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint: see checkpoint.h.
 *
 * One save, in order: remove DIR/.tmp-step-N if it is there, make it, write the arrays (each file: asynchronous writes of
 * large pieces straight from the snapshot, hashed meanwhile), then the manifest, then rename to DIR/step-N, then prune. A
 * failure at any point leaves all earlier checkpoints as they were. If step-N is there already (a run that fell back behind a
 * damaged checkpoint has come to that step again), it is moved aside first and removed after.
 *
 * Pruning removes the oldest of those up to the step just saved; checkpoints of later steps, left by a run that was fallen
 * back from, are not touched. A checkpoint is renamed to a hidden name before its files go, so none is ever seen half
 * removed.
 */
#include "trainer/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CHECKPOINT_PIECE_BYTES = 8 << 20,
	CHECKPOINT_LIST_MAX = 1 << 20,
};

#define CHECKPOINT_TEMP ".tmp-"

struct checkpoint_writer {
	struct cr_store *store;
	char dir[CR_PATH_MAX];
	uint32_t keep;
	const struct model *model;
	real *snapshot[MANIFEST_FILES];
	struct manifest manifest; /* of the save under way */
	double started_s;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool work, stop, have_result; /* under the lock */
	struct checkpoint_result result;
};

/* One file in flight. */
struct checkpoint_upload {
	pthread_mutex_t lock;
	pthread_cond_t done;
	size_t pending;
};

static double checkpoint_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void checkpoint_path(char out[CR_PATH_MAX], const char *dir, uint64_t step)
{
	snprintf(out, CR_PATH_MAX, "%.4000s/step-%08" PRIu64, dir, step);
}

static void checkpoint_temp_path(char out[CR_PATH_MAX], const char *dir, const char *kind, uint64_t step)
{
	snprintf(out, CR_PATH_MAX, "%.4000s/" CHECKPOINT_TEMP "%s-%08" PRIu64, dir, kind, step);
}

/* ---- directories ---- */

static bool checkpoint_parse_name(const char *name, uint64_t *ret_step)
{
	uint64_t step = 0;
	const char *p = name + 5;

	if (strncmp(name, "step-", 5) || strlen(p) < 8 || strlen(p) > 19 || strspn(p, "0123456789") != strlen(p))
		return false;
	for (; *p; p++)
		step = step * 10 + (uint64_t)(*p - '0');
	*ret_step = step;
	return true;
}

static int checkpoint_newer_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

int checkpoint_list(struct cr_store *store, const char *dir, uint64_t **ret_steps, size_t *ret_count, struct terr *e)
{
	struct cr_dirent *entry = malloc(sizeof(*entry));
	uint64_t *steps = NULL, step;
	size_t count = 0, cap = 0;
	struct cr_dir *d;
	int rc;

	if (!entry)
		return terr_set(e, -ENOMEM, "out of memory");
	rc = cr_opendir(store, dir, &d);
	if (rc) {
		free(entry);
		return terr_set(e, rc, "%.300s: %.300s", dir, cr_error());
	}
	while ((rc = cr_readdir(d, entry)) == 1) {
		if (entry->stat.type != CR_TYPE_DIR || !checkpoint_parse_name(entry->name, &step))
			continue;
		if (count == cap) {
			uint64_t *more = count < CHECKPOINT_LIST_MAX
				? realloc(steps, (cap ? 2 * cap : 16) * sizeof(*steps))
				: NULL;

			if (!more) {
				rc = -ENOMEM;
				break;
			}
			steps = more;
			cap = cap ? 2 * cap : 16;
		}
		steps[count++] = step;
	}
	if (rc < 0)
		terr_set(e, rc, "%.300s: %.300s", dir, rc == -ENOMEM ? "out of memory" : cr_error());
	cr_closedir(d);
	free(entry);
	if (rc < 0) {
		free(steps);
		return rc;
	}
	if (count)
		qsort(steps, count, sizeof(*steps), checkpoint_newer_first);
	*ret_steps = steps;
	*ret_count = count;
	return 0;
}

/* A directory of plain files and all in it; what is not there is no error. */
static int checkpoint_remove(struct cr_store *store, const char *path, struct terr *e)
{
	struct cr_dirent *entry = malloc(sizeof(*entry));
	char name[CR_PATH_MAX + CR_NAME_MAX + 2];
	int rc = 0, more = 1;

	if (!entry)
		return terr_set(e, -ENOMEM, "out of memory");
	while (rc == 0 && more) { /* one name at a time: a listing is not changed under its own feet */
		struct cr_dir *d;

		rc = cr_opendir(store, path, &d);
		if (rc)
			break;
		more = cr_readdir(d, entry);
		cr_closedir(d);
		if (more < 0) {
			rc = more;
		} else if (more) {
			snprintf(name, sizeof(name), "%s/%s", path, entry->name);
			rc = cr_unlink(store, name);
		}
	}
	free(entry);
	if (rc == 0)
		rc = cr_rmdir(store, path);
	if (rc && rc != -ENOENT)
		return terr_set(e, rc, "%.300s could not be removed: %.280s", path, cr_error());
	return 0;
}

/* What runs before this one left under hidden names. */
static int checkpoint_clean(struct cr_store *store, const char *dir, struct terr *e)
{
	struct cr_dirent *entry = malloc(sizeof(*entry));
	char path[CR_PATH_MAX + CR_NAME_MAX + 2];
	int rc = 0, more = 1;

	if (!entry)
		return terr_set(e, -ENOMEM, "out of memory");
	while (rc == 0 && more == 1) {
		struct cr_dir *d;

		rc = cr_opendir(store, dir, &d);
		if (rc) {
			terr_set(e, rc, "%.300s: %.300s", dir, cr_error());
			break;
		}
		while ((more = cr_readdir(d, entry)) == 1)
			if (!strncmp(entry->name, CHECKPOINT_TEMP, strlen(CHECKPOINT_TEMP)) &&
				entry->stat.type == CR_TYPE_DIR)
				break;
		if (more < 0)
			rc = terr_set(e, more, "%.300s: %.300s", dir, cr_error());
		cr_closedir(d);
		if (more == 1) {
			snprintf(path, sizeof(path), "%s/%s", dir, entry->name);
			rc = checkpoint_remove(store, path, e);
		}
	}
	free(entry);
	return rc;
}

/* ---- one save ---- */

static void checkpoint_piece_done(struct cr_op *op)
{
	struct checkpoint_upload *u = op->user;

	pthread_mutex_lock(&u->lock);
	if (--u->pending == 0)
		pthread_cond_signal(&u->done);
	pthread_mutex_unlock(&u->lock);
}

/* ops has room for all pieces and the close. Ends when all of them are done. */
static int checkpoint_upload(struct cr_file *file, const char *data, uint64_t bytes, struct cr_op *ops, size_t pieces,
	uint8_t sha[MANIFEST_SHA_BYTES], struct terr *e)
{
	struct checkpoint_upload u = {.pending = pieces + 1};
	int rc;

	pthread_mutex_init(&u.lock, NULL);
	pthread_cond_init(&u.done, NULL);
	for (size_t i = 0; i <= pieces; i++) {
		ops[i].done = checkpoint_piece_done;
		ops[i].user = &u;
	}
	for (size_t i = 0; i < pieces; i++) {
		uint64_t at = (uint64_t)i * CHECKPOINT_PIECE_BYTES, left = bytes - at;

		cr_pwrite_async(
			file, data + at, left < CHECKPOINT_PIECE_BYTES ? left : CHECKPOINT_PIECE_BYTES, at, &ops[i]);
	}
	cr_close_async(file, &ops[pieces]);
	rc = manifest_sha256(data, bytes, sha);
	pthread_mutex_lock(&u.lock);
	while (u.pending)
		pthread_cond_wait(&u.done, &u.lock);
	pthread_mutex_unlock(&u.lock);
	pthread_mutex_destroy(&u.lock);
	pthread_cond_destroy(&u.done);
	if (rc)
		return terr_set(e, rc, "SHA-256 failed");
	for (size_t i = 0; i <= pieces; i++)
		if (ops[i].result < 0)
			return terr_set(e, (int)ops[i].result, "%s", ops[i].error);
	return 0;
}

static int checkpoint_write_file(struct checkpoint_writer *w, const char *dir, int which, struct terr *e)
{
	uint64_t bytes = w->model->param_count * sizeof(real);
	size_t pieces = (bytes + CHECKPOINT_PIECE_BYTES - 1) / CHECKPOINT_PIECE_BYTES;
	struct cr_op *ops = calloc(pieces + 1, sizeof(*ops));
	char name[CR_PATH_MAX + 64];
	struct cr_file *file;
	struct terr why;
	int rc;

	if (!ops)
		return terr_set(e, -ENOMEM, "out of memory");
	snprintf(name, sizeof(name), "%s/%s", dir, manifest_file_name[which]);
	rc = cr_open(w->store, name, CR_WRITE | CR_EXCL, 0644, &file);
	if (rc)
		terr_set(e, rc, "%.300s: %.300s", name, cr_error());
	else if ((rc = checkpoint_upload(file, (const char *)w->snapshot[which], bytes, ops, pieces,
			  w->manifest.file_sha256[which], &why)))
		terr_set(e, rc, "%.300s: %.300s", name, why.text);
	w->manifest.file_bytes[which] = bytes;
	free(ops);
	return rc;
}

static int checkpoint_write_manifest(struct checkpoint_writer *w, const char *dir, struct terr *e)
{
	char name[CR_PATH_MAX + 64], *text;
	struct cr_file *file;
	size_t len;
	ssize_t n;
	int rc = manifest_encode(&w->manifest, w->model, &text, &len);

	if (rc)
		return terr_set(e, rc, "the manifest cannot be written: %s", strerror(-rc));
	snprintf(name, sizeof(name), "%s/%s", dir, MANIFEST_NAME);
	rc = cr_open(w->store, name, CR_WRITE | CR_EXCL, 0644, &file);
	if (rc) {
		free(text);
		return terr_set(e, rc, "%.300s: %.300s", name, cr_error());
	}
	n = cr_pwrite(file, text, len, 0);
	free(text);
	if (n < 0) {
		rc = terr_set(e, (int)n, "%.300s: %.300s", name, cr_error());
		cr_abort(file);
		return rc;
	}
	rc = cr_close(file);
	return rc ? terr_set(e, rc, "%.300s: %.300s", name, cr_error()) : 0;
}

static int checkpoint_publish(struct checkpoint_writer *w, const char *temp, const char *path, struct terr *e)
{
	char old[CR_PATH_MAX];
	struct terr ignored;
	int rc = cr_rename(w->store, temp, path, CR_RENAME_NOREPLACE);

	if (rc != -EEXIST)
		return rc ? terr_set(e, rc, "%.300s: %.300s", path, cr_error()) : 0;
	checkpoint_temp_path(old, w->dir, "old", w->manifest.meta.step);
	rc = checkpoint_remove(w->store, old, e);
	if (rc)
		return rc;
	rc = cr_rename(w->store, path, old, CR_RENAME_NOREPLACE);
	if (rc == 0)
		rc = cr_rename(w->store, temp, path, CR_RENAME_NOREPLACE);
	if (rc)
		return terr_set(e, rc, "%.300s: %.300s", path, cr_error());
	checkpoint_remove(w->store, old, &ignored); /* if not now, then when the next writer starts */
	return 0;
}

static void checkpoint_prune(struct checkpoint_writer *w, uint64_t newest, struct checkpoint_result *r)
{
	char path[CR_PATH_MAX], temp[CR_PATH_MAX];
	uint64_t *steps;
	size_t count, kept = 0;
	int rc = checkpoint_list(w->store, w->dir, &steps, &count, &r->warning);

	if (rc)
		return;
	for (size_t i = 0; i < count && rc == 0; i++) {
		if (steps[i] > newest || kept++ < w->keep)
			continue;
		checkpoint_path(path, w->dir, steps[i]);
		checkpoint_temp_path(temp, w->dir, "prune", steps[i]);
		rc = cr_rename(w->store, path, temp, CR_RENAME_NOREPLACE);
		if (rc)
			terr_set(&r->warning, rc, "%.300s could not be pruned: %.280s", path, cr_error());
		else if ((rc = checkpoint_remove(w->store, temp, &r->warning)) == 0)
			r->pruned++;
	}
	free(steps);
}

static void checkpoint_save(struct checkpoint_writer *w, struct checkpoint_result *r)
{
	uint64_t step = w->manifest.meta.step;
	char temp[CR_PATH_MAX];
	struct terr ignored;
	int rc;

	memset(r, 0, sizeof(*r));
	r->step = step;
	checkpoint_path(r->path, w->dir, step);
	checkpoint_temp_path(temp, w->dir, "step", step);
	rc = checkpoint_remove(w->store, temp, &r->error);
	if (rc == 0 && (rc = cr_mkdir(w->store, temp, 0755)))
		terr_set(&r->error, rc, "%.300s: %.300s", temp, cr_error());
	for (int i = 0; i < MANIFEST_FILES && rc == 0; i++) {
		rc = checkpoint_write_file(w, temp, i, &r->error);
		r->bytes += w->manifest.file_bytes[i];
	}
	if (rc == 0)
		rc = checkpoint_write_manifest(w, temp, &r->error);
	if (rc == 0)
		rc = checkpoint_publish(w, temp, r->path, &r->error);
	r->rc = rc;
	r->seconds = checkpoint_now() - w->started_s;
	if (rc)
		checkpoint_remove(w->store, temp, &ignored);
	else
		checkpoint_prune(w, step, r);
}

/* ---- the thread ---- */

static void *checkpoint_main(void *arg)
{
	struct checkpoint_writer *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct checkpoint_result *r;

		while (!w->work && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		if (!w->work)
			break;
		pthread_mutex_unlock(&w->lock);
		r = &w->result; /* ours until have_result */
		checkpoint_save(w, r);
		pthread_mutex_lock(&w->lock);
		w->work = false;
		w->have_result = true;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int checkpoint_writer_new(struct cr_store *store, const char *dir, uint32_t keep, const struct model *model,
	struct checkpoint_writer **ret_writer, struct terr *e)
{
	struct checkpoint_writer *w;
	int rc;

	if (strlen(dir) > CR_PATH_MAX - 128)
		return terr_set(e, -ENAMETOOLONG, "--checkpoint-dir %.100s...: the path is too long", dir);
	rc = cr_mkdir_parents(store, dir, 0755);
	if (rc)
		return terr_set(e, rc, "--checkpoint-dir %.300s: %.280s", dir, cr_error());
	rc = checkpoint_clean(store, dir, e);
	if (rc)
		return rc;
	w = calloc(1, sizeof(*w));
	if (!w)
		return terr_set(e, -ENOMEM, "out of memory");
	w->store = store;
	w->keep = keep;
	w->model = model;
	snprintf(w->dir, sizeof(w->dir), "%s", dir);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	for (int i = 0; i < MANIFEST_FILES; i++) {
		w->snapshot[i] = malloc(model->param_count * sizeof(real));
		if (!w->snapshot[i])
			rc = terr_set(e, -ENOMEM, "no memory for a snapshot of the state");
		else /* touched now, not while training stands still */
			memset(w->snapshot[i], 1, model->param_count * sizeof(real));
	}
	if (rc == 0 && (rc = -pthread_create(&w->thread, NULL, checkpoint_main, w)))
		terr_set(e, rc, "no thread for checkpoints: %s", strerror(-rc));
	if (rc) {
		for (int i = 0; i < MANIFEST_FILES; i++)
			free(w->snapshot[i]);
		free(w);
		return rc;
	}
	*ret_writer = w;
	return 0;
}

void checkpoint_writer_free(struct checkpoint_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	for (int i = 0; i < MANIFEST_FILES; i++)
		free(w->snapshot[i]);
	free(w);
}

bool checkpoint_busy(struct checkpoint_writer *w)
{
	bool busy;

	pthread_mutex_lock(&w->lock);
	busy = w->work;
	pthread_mutex_unlock(&w->lock);
	return busy;
}

void checkpoint_start(struct checkpoint_writer *w, struct workers *workers, const struct manifest_meta *meta,
	const real *params, const real *adam_m, const real *adam_v)
{
	const real *from[MANIFEST_FILES] = {params, adam_m, adam_v};

	w->started_s = checkpoint_now();
	memset(&w->manifest, 0, sizeof(w->manifest));
	w->manifest.meta = *meta;
	for (int i = 0; i < MANIFEST_FILES; i++)
		workers_copy(workers, w->snapshot[i], from[i], w->model->param_count * sizeof(real));
	pthread_mutex_lock(&w->lock);
	w->work = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

bool checkpoint_finish(struct checkpoint_writer *w, bool wait, struct checkpoint_result *ret_result)
{
	bool have;

	pthread_mutex_lock(&w->lock);
	while (wait && w->work)
		pthread_cond_wait(&w->changed, &w->lock);
	have = w->have_result;
	if (have)
		*ret_result = w->result;
	w->have_result = false;
	pthread_mutex_unlock(&w->lock);
	return have;
}
