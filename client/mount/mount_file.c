/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_file: files: open, read, write, close.
 *
 * 1. A handle that may write bypasses the kernel's page cache: nothing is acknowledged that the library has not taken. All writes to one
 *    inode go through one writer (mount_writer.c).
 * 2. flush (each close(2)) and fsync wait until everything is committed and report what went wrong. Only who has not written to the handle
 *    does not wait in close: a child that was forked with the file open says nothing about it by ending. Who has written closes, or
 *    ends, himself, so nothing is left that nobody waited for.
 * 3. A handle for reading goes through the page cache. The kernel fills what a short answer leaves of a page with zeros if it believes
 *    the file to be longer; so an answer is short only where the kernel was told that the file ends. Otherwise the reader's layout is
 *    older than the attributes: what a writer here holds is committed, the file opened anew and read again.
 * 4. open asks the store whether the inode is still what its name leads to (ESTALE makes the kernel look again), and drops the kernel's
 *    attributes and pages if they have changed: close-to-open.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

/* ---- ends of files that nobody waits for ---- */

static void closed_reader(struct mount_req *r)
{
	mount__req_end(r);
}

static void close_reader(struct mount *m, struct cr_file *file)
{
	struct mount_req *r = mount__req_new(m, NULL, closed_reader);

	cr_close_async(file, &r->op);
}

static bool has_writer(struct mount *m, uint64_t inode)
{
	bool has;

	pthread_mutex_lock(&m->lock);
	has = mount__writer_find(m, inode) != NULL;
	pthread_mutex_unlock(&m->lock);
	return has;
}

/* Their readers end with the store, their writers below. */
void mount__files_end(struct mount *m)
{
	while (!list_empty(&m->open_files)) {
		struct mount_handle *h = LIST_ENTRY(m->open_files.next, struct mount_handle, link);

		mount__handle_drop(m, &h->link);
		mem_free(h);
	}
}

/* ---- open ---- */

static void drop_handle(struct mount *m, struct mount_handle *h)
{
	if (h->reader)
		close_reader(m, h->reader);
	if (h->writer)
		mount__writer_put(m, h->writer);
	mount__handle_drop(m, &h->link);
	mem_free(h);
}

static void fail_open(struct mount_req *r, int error)
{
	drop_handle(r->mount, r->handle);
	mount__req_error(r, error);
}

static struct mount_handle *new_handle(struct mount *m, uint64_t inode)
{
	struct mount_handle *h = MEM_NEW(struct mount_handle);

	h->inode = inode;
	if (mount__handle_add(m, &m->open_files, &h->link))
		return h;
	mem_free(h);
	return NULL;
}

static void answer_create(struct mount_req *r)
{
	struct mount *m = r->mount;
	struct fuse_entry_param entry;

	if (mount__failure(r)) {
		/* Somebody else was faster: the kernel looks again and opens what is there, unless it was to be the first (O_EXCL). */
		fail_open(r, mount__failure(r) == EEXIST && !(r->fi.flags & O_EXCL) ? ESTALE : mount__failure(r));
		return;
	}
	r->handle->inode = r->stat.inode;
	r->handle->writer = mount__writer_make(m, r->stat.inode, r->file, 0);
	mount__entry(m, &r->stat, &entry);
	r->fi.fh = (uintptr_t)r->handle;
	r->fi.direct_io = 1;
	if (fuse_reply_create(r->fuse, &entry, &r->fi) !=
		0) /* nobody waits for it any more, and nobody will release it */
		drop_handle(m, r->handle);
	mount__req_end(r);
}

static void op_create(fuse_req_t fuse, fuse_ino_t dir, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	const struct fuse_ctx *ctx = fuse_req_ctx(fuse);
	struct mount_handle *h = new_handle(m, 0);
	struct mount_req *r;

	if (!h) {
		fuse_reply_err(fuse, ENFILE);
		return;
	}
	r = mount__req_new(m, fuse, answer_create);
	r->handle = h;
	r->fi = *fi;
	r->values = (struct cr_stat){.mode = mode & 07777, .uid = ctx->uid, .gid = ctx->gid};
	cr_create_async(m->store, dir, name, CR_EXCL, &r->values, &r->file, &r->stat, &r->op);
}

static void reply_open(struct mount_req *r)
{
	r->fi.fh = (uintptr_t)r->handle;
	/* Also to read what is being written: no page of it is kept that is only half there. */
	r->fi.direct_io = has_writer(r->mount, r->inode);
	if (fuse_reply_open(r->fuse, &r->fi) != 0)
		drop_handle(r->mount, r->handle);
	mount__req_end(r);
}

static void answer_open(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (mount__failure(r)) {
		fail_open(r, mount__failure(r) == ENOENT ? ESTALE : mount__failure(r));
		return;
	}
	r->handle->reader = r->file;
	if (r->stat.nlink == 0) {
		/* The kernel's name for it is old: it is to look again at what is there now. */
		fail_open(r, ESTALE);
		return;
	}
	if (mount__told_same(m, &r->stat))
		r->fi.keep_cache = 1;
	else /* attributes only: pages go because they are not kept */
		fuse_lowlevel_notify_inval_inode(m->session, r->inode, -1, 0);
	if ((r->fi.flags & O_ACCMODE) != O_RDONLY)
		r->handle->writer = mount__writer_make(m, r->inode, NULL, r->stat.size);
	if (!(r->fi.flags & O_TRUNC) || !r->handle->writer) {
		reply_open(r);
		return;
	}
	r->writer = mount__writer_get(m, r->inode);
	r->failed = fail_open;
	mount__writer_cut(r, 0, reply_open);
}

static void op_open(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_handle *h = new_handle(m, inode);
	struct mount_req *r;

	if (!h) {
		fuse_reply_err(fuse, ENFILE);
		return;
	}
	h->seen_cuts = mount__told_cuts(m);
	r = mount__req_new(m, fuse, answer_open);
	r->handle = h;
	r->inode = inode;
	r->fi = *fi;
	/* Past its cache the kernel reads nothing ahead. */
	cr_open_async(m->store, inode, CR_READ | (m->reads_ahead && !(fi->flags & O_DIRECT) ? 0 : CR_SEQUENTIAL), &r->file,
		&r->stat, &r->op);
}

/* ---- read ---- */

static void answer_fresh(struct mount_req *r)
{
	close_reader(r->mount, r->file);
	if (mount__failure(r))
		mount__req_error(r, mount__failure(r));
	else
		mount__req_data(r, (size_t)r->op.result);
}

static void fresh_opened(struct mount_req *r)
{
	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	mount__req_then(r, answer_fresh);
	cr_pread_async(r->file, r->out->data, r->len, r->offset, &r->op);
}

static void open_fresh(struct mount_req *r)
{
	r->failed = NULL;
	mount__req_then(r, fresh_opened);
	cr_open_async(r->mount->store, r->inode, CR_READ, &r->file, &r->stat, &r->op);
}

/* That what was written is lost is for its writer to know; what was committed before is there. */
static void read_committed(struct mount_req *r, int error)
{
	(void)error;
	open_fresh(r);
}

/* Reads what is there now, whatever the handle's own reader believes. */
static void read_fresh(struct mount_req *r)
{
	r->writer = mount__writer_get(r->mount, r->inode);
	if (!r->writer) {
		open_fresh(r);
		return;
	}
	r->failed = read_committed;
	mount__writer_sync(r, open_fresh);
}

static void answer_read(struct mount_req *r)
{
	if (mount__failure(r))
		mount__req_error(r, mount__failure(r));
	else if ((size_t)r->op.result < r->len &&
		mount__told_beyond(r->mount, r->inode, r->offset + (uint64_t)r->op.result))
		read_fresh(r);
	else
		mount__req_data(r, (size_t)r->op.result);
}

static void op_read(fuse_req_t fuse, fuse_ino_t inode, size_t len, off_t offset, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_handle *h = (struct mount_handle *)(uintptr_t)fi->fh;
	struct mount_buf *out = mount__out_get(m);
	struct mount_req *r = mount__req_new(m, fuse, answer_read);

	r->inode = inode;
	r->out = out;
	r->len = len < MOUNT_IO_BYTES ? len : MOUNT_IO_BYTES;
	r->offset = (uint64_t)offset;
	if (h->reader && !mount__told_was_cut(m, inode, h->seen_cuts))
		cr_pread_async(h->reader, out->data, r->len, r->offset, &r->op);
	else
		read_fresh(r);
}

/* ---- who has written ---- */

static bool is_owner(const struct mount_owners *o, uint64_t id)
{
	for (uint32_t i = 0; i < o->count; i++)
		if (o->ids[i] == id)
			return true;
	return o->all;
}

/*
 * Once all that was written before is committed it concerns nobody's close any more. Nor may the names of those who wrote it be kept: the
 * kernel gives that of a process that has ended to the next.
 */
static void add_owner(struct mount *m, struct mount_handle *h, uint64_t id)
{
	struct mount_owners *o = &h->owners;

	if (mount__writer_settled(m, h->writer))
		*o = (struct mount_owners){0};
	if (is_owner(o, id))
		return;
	if (o->count == MOUNT_OWNERS || id == 0) /* 0: the kernel does not know */
		o->all = true;
	else
		o->ids[o->count++] = id;
}

/* ---- write ---- */

static void op_write(
	fuse_req_t fuse, fuse_ino_t inode, const char *data, size_t len, off_t offset, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_handle *h = (struct mount_handle *)(uintptr_t)fi->fh;
	struct mount_req *r;

	if (!h->writer) {
		fuse_reply_err(fuse, EBADF);
		return;
	}
	add_owner(m, h, fi->lock_owner);
	r = mount__req_new(m, fuse, NULL);
	r->inode = inode;
	r->writer = mount__writer_get(m, h->inode);
	r->in = mount__in_keep(m);
	r->data = data;
	r->len = len;
	r->offset = (uint64_t)offset;
	r->append = fi->flags & O_APPEND;
	mount__writer_write(r);
}

static void reply_done(struct mount_req *r)
{
	mount__req_error(r, 0);
}

/* A request on what this handle has written; NULL: it cannot have, and was answered. */
static struct mount_req *settle(fuse_req_t fuse, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_handle *h = (struct mount_handle *)(uintptr_t)fi->fh;
	struct mount_req *r;

	if (!h->writer) {
		fuse_reply_err(fuse, 0);
		return NULL;
	}
	r = mount__req_new(m, fuse, NULL);
	r->writer = mount__writer_get(m, h->inode);
	return r;
}

static void op_flush(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	struct mount_handle *h = (struct mount_handle *)(uintptr_t)fi->fh;
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_req *r;

	(void)inode;
	if (h->writer && !is_owner(&h->owners, fi->lock_owner)) {
		fuse_reply_err(fuse, mount__writer_error(m, h->writer));
		return;
	}
	r = settle(fuse, fi);
	if (r)
		mount__writer_flush(r, reply_done);
}

static void op_fsync(fuse_req_t fuse, fuse_ino_t inode, int datasync, struct fuse_file_info *fi)
{
	struct mount_req *r = settle(fuse, fi);

	(void)inode;
	(void)datasync;
	if (r)
		mount__writer_sync(r, reply_done);
}

static void op_release(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	(void)inode;
	drop_handle(fuse_req_userdata(fuse), (struct mount_handle *)(uintptr_t)fi->fh);
	fuse_reply_err(fuse, 0);
}

/* ---- attributes ---- */

/* To commit what a writer has sets the time: that comes before the time that is to be set. */
void mount__settle(struct mount_req *r)
{
	r->writer = mount__writer_get(r->mount, r->inode);
	if (r->writer)
		mount__writer_sync(r, mount__setattr_rest);
	else
		mount__setattr_rest(r);
}

static void answer_resize(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	pthread_mutex_lock(&m->lock);
	mount__told_cut(m, r->inode, r->cut);
	pthread_mutex_unlock(&m->lock);
	mount__setattr_rest(r);
}

void mount__resize(struct mount_req *r, uint64_t size)
{
	r->writer = mount__writer_get(r->mount, r->inode);
	if (r->writer) {
		mount__writer_cut(r, size, mount__setattr_rest);
		return;
	}
	r->cut = size;
	mount__req_then(r, answer_resize);
	cr_truncate_async(r->mount->store, r->inode, size, &r->op);
}

void mount__file_ops(struct fuse_lowlevel_ops *ops)
{
	ops->create = op_create;
	ops->open = op_open;
	ops->read = op_read;
	ops->write = op_write;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->release = op_release;
}
