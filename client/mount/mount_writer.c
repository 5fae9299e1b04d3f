/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_writer: one inode being written, for all handles of this mount that write to it.
 *
 *   idle (no file open in the library) --write--> open --flush, cut--> idle
 *
 * 1. The library's file is opened by the first write, not by open(2): who opens a file and does not write disturbs nobody. close(2)
 *    (flush) closes it there, which commits and completes; a later write opens it again, to go on at its end. So a file is complete when
 *    its last close has returned.
 * 2. To open, to close and to cut are done by one request at a time (`busy`); others that come meanwhile wait in `queue` and begin anew
 *    after it. What is started under `lock` reaches the library in that order.
 * 3. The first error is sticky, as in the library: it is reported by every later write, flush and fsync, until the last handle is gone.
 *    What was accepted and is lost counts no more: the file is for its readers as long as what was committed.
 * 4. The store takes nothing more for a file without a name. One that loses its last name here, to an unlink or to another file
 *    (mount_name.c), gets another instead, which goes with the last handle, or with the mount.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <stdio.h>
#include "common/base/check.h"
#include "common/base/mem.h"

/* ---- life ---- */

struct mount_writer *mount__writer_find(struct mount *m, uint64_t inode)
{
	LIST_FOREACH(it, &m->writers)
		if (LIST_ENTRY(it, struct mount_writer, link)->inode == inode)
			return LIST_ENTRY(it, struct mount_writer, link);
	return NULL;
}

struct mount_writer *mount__writer_get(struct mount *m, uint64_t inode)
{
	struct mount_writer *w;

	pthread_mutex_lock(&m->lock);
	w = mount__writer_find(m, inode);
	if (w)
		w->refs++;
	pthread_mutex_unlock(&m->lock);
	return w;
}

static void closed(struct mount_req *r)
{
	/* All of it was committed, and reported, by the flush before: this completes what was never written to. */
	if (mount__failure(r) && mount__failure(r) != ESTALE)
		mount__log("inode %llu: closing it failed: %s", (unsigned long long)r->inode, r->op.error);
	mount__req_end(r);
}

static void close_file(struct mount *m, uint64_t inode, struct cr_file *file)
{
	struct mount_req *r = mount__req_new(m, NULL, closed);

	r->inode = inode;
	cr_close_async(file, &r->op);
}

struct mount_writer *mount__writer_make(struct mount *m, uint64_t inode, struct cr_file *file, uint64_t size)
{
	struct mount_writer *w;

	pthread_mutex_lock(&m->lock);
	w = mount__writer_find(m, inode);
	if (!w) {
		w = MEM_NEW(struct mount_writer);
		w->inode = inode;
		w->end = w->synced = size;
		w->file = file;
		file = NULL;
		list_init(&w->queue);
		list_push_back(&m->writers, &w->link);
	} else if (!w->file && !w->busy && w->synced == w->end) {
		w->end = w->synced = size; /* nothing of ours is newer */
	}
	w->refs++;
	pthread_mutex_unlock(&m->lock);
	/* The answer to a create came after somebody had found the name and opened it: the lease may be theirs. The next write opens anew. */
	if (file)
		close_file(m, inode, file);
	return w;
}

bool mount__writers_any(struct mount *m)
{
	bool any;

	pthread_mutex_lock(&m->lock);
	any = !list_empty(&m->writers);
	pthread_mutex_unlock(&m->lock);
	return any;
}

void mount__hidden_name(uint64_t inode, char ret_name[MOUNT_HIDDEN_BYTES])
{
	snprintf(ret_name, MOUNT_HIDDEN_BYTES, MOUNT_HIDDEN_PREFIX "%llx", (unsigned long long)inode);
}

static void removed(struct mount_req *r)
{
	if (mount__failure(r) && mount__failure(r) != ENOENT)
		mount__log("inode %llu: removing it failed, it is left as " MOUNT_HIDDEN_PREFIX "%llx: %s",
			(unsigned long long)r->inode, (unsigned long long)r->inode, r->op.error);
	mount__req_end(r);
}

static void remove_hidden(struct mount *m, const struct mount_writer *w)
{
	struct mount_req *r = mount__req_new(m, NULL, removed);
	char name[MOUNT_HIDDEN_BYTES];

	r->inode = w->inode;
	mount__hidden_name(w->inode, name);
	cr_unlink_async(m->store, w->hidden_dir, name, &r->op);
}

void mount__writer_named(struct mount *m, struct mount_writer *w)
{
	remove_hidden(m, w);
	pthread_mutex_lock(&m->lock);
	w->hidden_dir = 0;
	pthread_mutex_unlock(&m->lock);
}

void mount__writer_put(struct mount *m, struct mount_writer *w)
{
	bool last;

	pthread_mutex_lock(&m->lock);
	last = --w->refs == 0;
	if (last)
		list_remove(&w->link);
	pthread_mutex_unlock(&m->lock);
	if (!last)
		return;
	CHECK(!w->busy && list_empty(&w->queue)); /* requests hold references */
	if (w->file)
		close_file(m, w->inode, w->file);
	if (w->hidden_dir)
		remove_hidden(m, w);
	mem_free(w);
}

uint32_t mount__writers_end(struct mount *m)
{
	uint32_t failed = 0;
	struct list *l;

	while ((l = list_pop_front(&m->writers))) {
		struct mount_writer *w = LIST_ENTRY(l, struct mount_writer, link);

		if (w->hidden_dir)
			remove_hidden(m, w);
		/* Committed, but not complete: its program was not done. */
		if (w->file && !w->hidden_dir && cr_fsync(w->file) < 0) {
			mount__log("inode %llu: what was written last is lost: %s", (unsigned long long)w->inode,
				cr_error());
			failed++;
		}
		cr_abort(w->file);
		mem_free(w);
	}
	pthread_mutex_lock(&m->lock);
	while (m->requests > 0)
		pthread_cond_wait(&m->freed, &m->lock);
	pthread_mutex_unlock(&m->lock);
	return failed;
}

/* ---- one at a time ---- */

/* With the lock held. True: r waits, and `step` is called again after what is under way. */
static bool must_wait(struct mount_req *r, void (*step)(struct mount_req *r))
{
	if (!r->writer->busy)
		return false;
	r->answer = step;
	list_push_back(&r->writer->queue, &r->wait);
	return true;
}

/* What was under way has ended; those who waited begin anew. */
static void leave(struct mount *m, struct mount_writer *w)
{
	struct list *l;

	pthread_mutex_lock(&m->lock);
	w->busy = false;
	while (!w->busy && (l = list_pop_front(&w->queue))) {
		struct mount_req *r = LIST_ENTRY(l, struct mount_req, wait);

		pthread_mutex_unlock(&m->lock);
		r->answer(r);
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
}

/* r has ended what was under way, and begins anew before those who waited. */
static void leave_first(struct mount_req *r, void (*step)(struct mount_req *r))
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;

	r->answer = step;
	pthread_mutex_lock(&m->lock);
	list_push_front(&w->queue, &r->wait);
	w->refs++; /* r may end and take its reference with it */
	pthread_mutex_unlock(&m->lock);
	leave(m, w);
	mount__writer_put(m, w);
}

/* With the lock held. */
static void set_error(struct mount *m, struct mount_writer *w, int error)
{
	if (w->error)
		return;
	w->error = error;
	if (mount__writer_dirty(w)) {
		w->end = w->synced;
		mount__told_cut(m, w->inode, w->end);
	}
}

/* r has failed in what was under way. */
static void leave_failed(struct mount_req *r, int error, bool sticky)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;

	if (sticky) {
		pthread_mutex_lock(&m->lock);
		set_error(m, w, error);
		pthread_mutex_unlock(&m->lock);
	}
	leave(m, w);
	mount__req_error(r, error);
}

/* With the lock held: an error of before, which ends r. */
static bool has_failed(struct mount_req *r)
{
	struct mount *m = r->mount;
	int error = r->writer->error;

	if (!error)
		return false;
	pthread_mutex_unlock(&m->lock);
	mount__req_error(r, error);
	pthread_mutex_lock(&m->lock);
	return true;
}

/* With the lock held. */
static void note_synced(struct mount_req *r)
{
	if (r->writer->synced < r->sync_end)
		r->writer->synced = r->sync_end;
}

bool mount__writer_dirty(const struct mount_writer *w)
{
	return w->synced < w->end;
}

bool mount__writer_settled(struct mount *m, const struct mount_writer *w)
{
	bool settled;

	pthread_mutex_lock(&m->lock);
	settled = !w->writes && !w->busy && !w->unfinished && !mount__writer_dirty(w);
	pthread_mutex_unlock(&m->lock);
	return settled;
}

int mount__writer_error(struct mount *m, const struct mount_writer *w)
{
	int error;

	pthread_mutex_lock(&m->lock);
	error = w->error;
	pthread_mutex_unlock(&m->lock);
	return error;
}

/* ---- another length ---- */

static void step_write(struct mount_req *r);

static void answer_cut(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;

	if (mount__failure(r)) {
		leave_failed(r, mount__failure(r), r->after == step_write);
		return;
	}
	pthread_mutex_lock(&m->lock);
	w->end = w->synced = r->cut;
	mount__told_cut(m, w->inode, r->cut);
	pthread_mutex_unlock(&m->lock);
	leave_first(r, r->after);
}

static void closed_to_cut(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (mount__failure(r)) {
		leave_failed(r, mount__failure(r), true);
		return;
	}
	pthread_mutex_lock(&m->lock);
	r->writer->synced = r->writer->end;
	pthread_mutex_unlock(&m->lock);
	mount__req_then(r, answer_cut);
	cr_truncate_async(r->mount->store, r->writer->inode, r->cut, &r->op);
}

/* With the lock held. r->after comes when the file has that length. */
static void start_cut(struct mount_req *r, uint64_t size)
{
	struct mount_writer *w = r->writer;
	struct cr_file *file = w->file;

	r->cut = size;
	w->busy = true;
	w->file = NULL;
	w->unfinished = false;
	if (file) {
		mount__req_then(r, closed_to_cut);
		cr_close_async(file, &r->op);
	} else {
		mount__req_then(r, answer_cut);
		cr_truncate_async(r->mount->store, w->inode, size, &r->op);
	}
}

static void step_cut(struct mount_req *r)
{
	struct mount *m = r->mount;

	pthread_mutex_lock(&m->lock);
	if (!must_wait(r, step_cut) && !has_failed(r))
		start_cut(r, r->cut);
	pthread_mutex_unlock(&m->lock);
}

void mount__writer_cut(struct mount_req *r, uint64_t size, void (*after)(struct mount_req *r))
{
	r->cut = size;
	r->after = after;
	step_cut(r);
}

/* ---- write ---- */

static void answer_write(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (mount__failure(r)) {
		pthread_mutex_lock(&m->lock);
		set_error(m, r->writer, mount__failure(r));
		pthread_mutex_unlock(&m->lock);
		mount__req_error(r, mount__failure(r));
		return;
	}
	fuse_reply_write(r->fuse, r->len);
	mount__req_end(r);
}

static void answer_opened(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;

	if (mount__failure(r)) {
		leave_failed(r, mount__failure(r), true);
		return;
	}
	pthread_mutex_lock(&m->lock);
	w->file = r->file;
	w->end = w->synced = r->stat.size; /* another host may have made it longer, or shorter */
	pthread_mutex_unlock(&m->lock);
	leave_first(r, step_write);
}

static void step_write(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;

	pthread_mutex_lock(&m->lock);
	if (must_wait(r, step_write) || has_failed(r)) {
		/* later, or over */
	} else if (!w->file) {
		w->busy = true;
		mount__req_then(r, answer_opened);
		cr_open_async(m->store, w->inode, CR_WRITE | CR_APPEND, &r->file, &r->stat, &r->op);
	} else if (!r->append && r->offset > w->end) {
		r->after = step_write; /* behind a hole */
		start_cut(r, r->offset);
	} else if (!r->append && r->offset < w->end) {
		pthread_mutex_unlock(&m->lock);
		mount__req_error(r, EOPNOTSUPP);
		return;
	} else {
		uint64_t at = w->end;

		w->end += r->len;
		mount__told_grown(m, w->inode, w->end);
		mount__req_then(r, answer_write);
		cr_pwrite_copy_async(w->file, r->data, r->len, at, &r->op);
	}
	pthread_mutex_unlock(&m->lock);
}

void mount__writer_write(struct mount_req *r)
{
	pthread_mutex_lock(&r->mount->lock);
	r->writer->writes++;
	r->is_write = true;
	pthread_mutex_unlock(&r->mount->lock);
	step_write(r);
}

/* ---- flush, fsync ---- */

static void answer_flush(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (mount__failure(r)) {
		leave_failed(r, mount__failure(r), true);
		return;
	}
	pthread_mutex_lock(&m->lock);
	note_synced(r);
	pthread_mutex_unlock(&m->lock);
	leave_first(r, r->after);
}

static void step_flush(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;
	struct cr_file *file;
	bool nothing = false;

	pthread_mutex_lock(&m->lock);
	if (must_wait(r, step_flush) || has_failed(r)) {
		/* later, or over */
	} else if (!mount__writer_dirty(w) && !w->unfinished) {
		nothing = true;
	} else {
		file = w->file;
		w->file = NULL;
		w->busy = true;
		w->unfinished = false;
		r->sync_end = w->end;
		mount__req_then(r, answer_flush);
		cr_close_async(file, &r->op);
	}
	pthread_mutex_unlock(&m->lock);
	if (nothing)
		r->after(r);
}

void mount__writer_flush(struct mount_req *r, void (*after)(struct mount_req *r))
{
	r->after = after;
	step_flush(r);
}

static void answer_sync(struct mount_req *r)
{
	struct mount *m = r->mount;
	int error = mount__failure(r);

	pthread_mutex_lock(&m->lock);
	if (error)
		set_error(m, r->writer, error);
	else
		note_synced(r);
	pthread_mutex_unlock(&m->lock);
	if (error)
		mount__req_error(r, error);
	else
		r->after(r);
}

static void step_sync(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct mount_writer *w = r->writer;
	bool nothing = false;

	pthread_mutex_lock(&m->lock);
	if (must_wait(r, step_sync) || has_failed(r)) {
		/* later, or over */
	} else if (!mount__writer_dirty(w)) {
		nothing = true;
	} else {
		r->sync_end = w->end;
		w->unfinished = true;
		mount__req_then(r, answer_sync);
		cr_fsync_async(w->file, &r->op);
	}
	pthread_mutex_unlock(&m->lock);
	if (nothing)
		r->after(r);
}

void mount__writer_sync(struct mount_req *r, void (*after)(struct mount_req *r))
{
	r->after = after;
	step_sync(r);
}
