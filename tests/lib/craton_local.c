/* SPDX-License-Identifier: Apache-2.0 */
/* craton_local: see craton_local.h. Asynchronous calls are done in order by one thread of the store. */
#include "tests/lib/craton_local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum local_kind { LOCAL_READ, LOCAL_WRITE, LOCAL_FSYNC, LOCAL_CLOSE };

/* Lies in cr_op.cr_private. */
struct local_job {
	struct cr_op *next;
	enum local_kind kind;
	struct cr_file *file;
	void *buf;
	size_t len;
	uint64_t offset;
};

struct cr_store {
	char root[CR_PATH_MAX];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
	struct cr_op *first, **last;
};

struct cr_file {
	struct cr_store *store;
	int fd;
	bool atomic;
	uint64_t end;
	int failed; /* sticky */
	char path[3 * CR_PATH_MAX], temp[3 * CR_PATH_MAX + 16];
};

struct cr_dir {
	struct cr_store *store;
	char path[CR_PATH_MAX];
	struct dirent **names;
	int count, at;
};

static _Thread_local char local_error[256];
static atomic_long local_countdown = -1, local_change_count;
static atomic_bool local_once;

void craton_local_fail_after(long calls, bool once)
{
	atomic_store(&local_once, once);
	atomic_store(&local_countdown, calls);
}

long craton_local_changes(void)
{
	return atomic_load(&local_change_count);
}

__attribute__((format(printf, 2, 3))) static int local_fail(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(local_error, sizeof(local_error), fmt, ap);
	va_end(ap);
	return rc;
}

/* Before each call that changes something. */
static int local_change(void)
{
	long left = atomic_load(&local_countdown);

	atomic_fetch_add(&local_change_count, 1);
	if (left > 0 || (left == 0 && atomic_load(&local_once)))
		atomic_store(&local_countdown, left - 1);
	return left == 0 ? local_fail(-EIO, "fault injected by the test") : 0;
}

static int local_errno(const char *path)
{
	return local_fail(-errno, "%.150s: %s", path, strerror(errno));
}

#define LOCAL_PATH(store, path, name) \
	char name[3 * CR_PATH_MAX];   \
	snprintf(name, sizeof(name), "%s/%s", (store)->root, path)

const char *cr_error(void)
{
	return local_error;
}

const char *cr_version(void)
{
	return "local";
}

static ssize_t local_pread(struct cr_file *f, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(f->fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0)
			return local_errno(f->path);
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t local_pwrite(struct cr_file *f, const void *buf, size_t len, uint64_t offset)
{
	if (f->failed == 0)
		f->failed = local_change();
	if (f->failed)
		return f->failed;
	if (offset != f->end)
		return local_fail(-EOPNOTSUPP, "%.150s: not sequential", f->path);
	if (pwrite(f->fd, buf, len, (off_t)offset) != (ssize_t)len)
		return local_errno(f->path);
	f->end += len;
	return (ssize_t)len;
}

static int local_close(struct cr_file *f)
{
	int rc = f->failed;

	if (f->atomic && rc == 0 && !(rc = local_change()) && rename(f->temp, f->path) < 0)
		rc = local_errno(f->path);
	close(f->fd);
	free(f);
	return rc;
}

static void *local_main(void *arg)
{
	struct cr_store *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct cr_op *op = s->first;
		struct local_job *j;

		if (!op) {
			if (s->stop)
				break;
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		j = (struct local_job *)op->cr_private;
		s->first = j->next;
		if (!s->first)
			s->last = &s->first;
		pthread_mutex_unlock(&s->lock);
		if (j->kind == LOCAL_READ)
			op->result = local_pread(j->file, j->buf, j->len, j->offset);
		else if (j->kind == LOCAL_WRITE)
			op->result = local_pwrite(j->file, j->buf, j->len, j->offset);
		else if (j->kind == LOCAL_FSYNC)
			op->result = 0;
		else
			op->result = local_close(j->file);
		snprintf(op->error, sizeof(op->error), "%s", op->result < 0 ? local_error : "");
		op->done(op);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void local_submit(
	struct cr_file *f, enum local_kind kind, void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	struct local_job *j = (struct local_job *)op->cr_private;
	struct cr_store *s = f->store;

	_Static_assert(sizeof(*j) <= sizeof(op->cr_private), "fits");
	*j = (struct local_job){.kind = kind, .file = f, .buf = buf, .len = len, .offset = offset};
	pthread_mutex_lock(&s->lock);
	*s->last = op;
	s->last = &j->next;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

int cr_connect(const struct cr_options *options, struct cr_store **ret_store)
{
	struct cr_store *s = calloc(1, sizeof(*s));
	struct stat st;

	if (!s)
		return local_fail(-ENOMEM, "out of memory");
	if (!options || !options->config || stat(options->config, &st) < 0 || !S_ISDIR(st.st_mode)) {
		free(s);
		return local_fail(-ENOENT, "give an existing directory as the configuration");
	}
	snprintf(s->root, sizeof(s->root), "%s", options->config);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	s->last = &s->first;
	if (pthread_create(&s->thread, NULL, local_main, s)) {
		free(s);
		return local_fail(-EAGAIN, "no thread");
	}
	*ret_store = s;
	return 0;
}

void cr_disconnect(struct cr_store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	free(s);
}

static void local_fill_stat(const struct stat *st, struct cr_stat *out)
{
	*out = (struct cr_stat){
		.inode = st->st_ino, .size = (uint64_t)st->st_size, .mode = st->st_mode & 07777, .complete = 1};
	out->type = S_ISDIR(st->st_mode) ? CR_TYPE_DIR : CR_TYPE_FILE;
}

int cr_stat(struct cr_store *s, const char *path, struct cr_stat *ret_stat)
{
	LOCAL_PATH(s, path, name);
	struct stat st;

	if (stat(name, &st) < 0)
		return local_errno(path);
	local_fill_stat(&st, ret_stat);
	return 0;
}

int cr_mkdir(struct cr_store *s, const char *path, uint32_t mode)
{
	LOCAL_PATH(s, path, name);
	int rc = local_change();

	return rc ? rc : mkdir(name, mode) < 0 ? local_errno(path) : 0;
}

int cr_mkdir_parents(struct cr_store *s, const char *path, uint32_t mode)
{
	LOCAL_PATH(s, path, name);
	int rc = local_change();

	for (char *p = name + strlen(s->root) + 1; rc == 0; p++)
		if (*p == '/' || *p == 0) {
			char end = *p;

			*p = 0;
			if (mkdir(name, mode) < 0 && errno != EEXIST)
				rc = local_errno(path);
			*p = end;
			if (!end)
				break;
		}
	return rc;
}

int cr_rmdir(struct cr_store *s, const char *path)
{
	LOCAL_PATH(s, path, name);
	int rc = local_change();

	return rc ? rc : rmdir(name) < 0 ? local_errno(path) : 0;
}

int cr_unlink(struct cr_store *s, const char *path)
{
	LOCAL_PATH(s, path, name);
	int rc = local_change();

	return rc ? rc : unlink(name) < 0 ? local_errno(path) : 0;
}

int cr_rename(struct cr_store *s, const char *from, const char *to, uint32_t flags)
{
	LOCAL_PATH(s, from, old);
	LOCAL_PATH(s, to, new);
	int rc = local_change();

	if (rc)
		return rc;
	if (renameat2(AT_FDCWD, old, AT_FDCWD, new, flags & CR_RENAME_NOREPLACE ? RENAME_NOREPLACE : 0) < 0)
		return local_errno(to);
	return 0;
}

int cr_opendir(struct cr_store *s, const char *path, struct cr_dir **ret_dir)
{
	LOCAL_PATH(s, path, name);
	struct cr_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return local_fail(-ENOMEM, "out of memory");
	d->store = s;
	snprintf(d->path, sizeof(d->path), "%s", path);
	d->count = scandir(name, &d->names, NULL, alphasort);
	if (d->count < 0) {
		free(d);
		return local_errno(path);
	}
	*ret_dir = d;
	return 0;
}

int cr_readdir(struct cr_dir *d, struct cr_dirent *ret_entry)
{
	for (; d->at < d->count; d->at++) {
		const char *name = d->names[d->at]->d_name;
		char path[CR_PATH_MAX + CR_NAME_MAX + 2];

		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		snprintf(ret_entry->name, sizeof(ret_entry->name), "%s", name);
		snprintf(path, sizeof(path), "%s/%s", d->path, name);
		d->at++;
		return cr_stat(d->store, path, &ret_entry->stat) ? -EIO : 1;
	}
	return 0;
}

void cr_closedir(struct cr_dir *d)
{
	for (int i = 0; d && i < d->count; i++)
		free(d->names[i]);
	if (d)
		free(d->names);
	free(d);
}

int cr_open(struct cr_store *s, const char *path, uint32_t flags, uint32_t mode, struct cr_file **ret_file)
{
	LOCAL_PATH(s, path, name);
	struct cr_file *f = calloc(1, sizeof(*f));
	int rc = flags & CR_WRITE ? local_change() : 0;

	if (!f || rc) {
		free(f);
		return rc ? rc : local_fail(-ENOMEM, "out of memory");
	}
	f->store = s;
	f->atomic = (flags & CR_ATOMIC) != 0;
	snprintf(f->path, sizeof(f->path), "%s", name);
	snprintf(f->temp, sizeof(f->temp), "%s.atomic", name);
	if (flags & CR_WRITE)
		f->fd = open(f->atomic ? f->temp : f->path, O_RDWR | O_CREAT | O_TRUNC | (flags & CR_EXCL ? O_EXCL : 0),
			mode);
	else
		f->fd = open(f->path, O_RDONLY);
	if (f->fd < 0) {
		rc = local_errno(path);
		free(f);
		return rc;
	}
	*ret_file = f;
	return 0;
}

int cr_fstat(struct cr_file *f, struct cr_stat *ret_stat)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return local_errno(f->path);
	local_fill_stat(&st, ret_stat);
	return 0;
}

ssize_t cr_pread(struct cr_file *f, void *buf, size_t len, uint64_t offset)
{
	return local_pread(f, buf, len, offset);
}

ssize_t cr_pwrite(struct cr_file *f, const void *buf, size_t len, uint64_t offset)
{
	return local_pwrite(f, buf, len, offset);
}

int cr_fsync(struct cr_file *f)
{
	(void)f;
	return 0;
}

int cr_close(struct cr_file *f)
{
	return local_close(f);
}

void cr_abort(struct cr_file *f)
{
	unlink(f->atomic ? f->temp : f->path);
	close(f->fd);
	free(f);
}

void cr_pread_async(struct cr_file *f, void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	local_submit(f, LOCAL_READ, buf, len, offset, op);
}

void cr_pwrite_async(struct cr_file *f, const void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	local_submit(f, LOCAL_WRITE, (void *)(uintptr_t)buf, len, offset, op);
}

void cr_fsync_async(struct cr_file *f, struct cr_op *op)
{
	local_submit(f, LOCAL_FSYNC, NULL, 0, 0, op);
}

void cr_close_async(struct cr_file *f, struct cr_op *op)
{
	local_submit(f, LOCAL_CLOSE, NULL, 0, 0, op);
}
