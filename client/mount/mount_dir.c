/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_dir: listings. An open directory holds one page of entries; entry i of the listing has offset i + 2, behind "." and "..". Who
 * goes back to before the page reads from the start again: the store lists by name, not by number.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "common/base/mem.h"

struct mount_dir {
	struct list link; /* mount.open_dirs */
	uint64_t inode;
	struct cr_dirent *page;
	uint64_t base; /* number of the page's first entry */
	uint64_t count;
	int end; /* nothing behind this page */
	char after[CR_NAME_MAX + 1];
};

enum { DOTS = 2 };

static void drop_dir(struct mount *m, struct mount_dir *d)
{
	mount__handle_drop(m, &d->link);
	mem_free(d->page);
	mem_free(d);
}

static void op_opendir(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_dir *d = MEM_NEW(struct mount_dir);

	d->inode = inode;
	if (!mount__handle_add(m, &m->open_dirs, &d->link)) {
		mem_free(d);
		fuse_reply_err(fuse, ENFILE);
		return;
	}
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(fuse, fi) != 0) /* nobody waits for it any more, and nobody will release it */
		drop_dir(m, d);
}

static void op_releasedir(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	(void)inode;
	drop_dir(fuse_req_userdata(fuse), (struct mount_dir *)(uintptr_t)fi->fh);
	fuse_reply_err(fuse, 0);
}

void mount__dirs_end(struct mount *m)
{
	while (!list_empty(&m->open_dirs))
		drop_dir(m, LIST_ENTRY(m->open_dirs.next, struct mount_dir, link));
}

/* Bytes used of what is left, or 0: it does not fit. */
static size_t add_entry(struct mount_req *r, size_t used, const char *name, const struct cr_stat *stat, uint64_t next)
{
	char *to = (char *)r->out->data + used;
	size_t room = r->len - used, need;

	if (r->plus) { /* with attributes, which the kernel will believe */
		struct fuse_entry_param entry = {.attr = {.st_ino = r->inode, .st_mode = S_IFDIR}};

		if (stat) /* nothing is to be learned of "." and ".." */
			mount__entry(r->mount, stat, &entry);
		need = fuse_add_direntry_plus(r->fuse, to, room, name, &entry, (off_t)next);
	} else {
		struct stat attr = {
			.st_ino = stat ? stat->inode : r->inode, .st_mode = stat ? mount__type(stat->type) : S_IFDIR};

		need = fuse_add_direntry(r->fuse, to, room, name, &attr, (off_t)next);
	}
	return need > room ? 0 : need;
}

/* What there is of the page from r->offset on. */
static void reply_page(struct mount_req *r)
{
	struct mount_dir *d = r->dir;
	uint64_t at = r->offset;
	size_t used = 0, n;

	for (; at < DOTS; at++, used += n) {
		n = add_entry(r, used, at ? ".." : ".", NULL, at + 1);
		if (n == 0)
			break;
	}
	for (; at >= DOTS && at - DOTS < d->base + d->count; at++, used += n) {
		const struct cr_dirent *e = &d->page[at - DOTS - d->base];

		n = add_entry(r, used, e->name, &e->stat, at + 1);
		if (n == 0)
			break;
	}
	mount__req_data(r, used);
}

static void rewind_dir(struct mount_dir *d)
{
	d->base = d->count = 0;
	d->end = 0;
	d->after[0] = '\0';
}

static void next_page(struct mount_req *r);

static void answer_page(struct mount_req *r)
{
	struct mount_dir *d = r->dir;

	if (mount__failure(r)) {
		rewind_dir(d); /* the page may have been written over */
		mount__req_error(r, mount__failure(r) == ENOENT ? ESTALE : mount__failure(r));
		return;
	}
	d->base += d->count;
	d->count = (uint64_t)r->op.result;
	if (d->count)
		memcpy(d->after, d->page[d->count - 1].name, sizeof(d->after));
	else
		d->end = 1;
	next_page(r);
}

/* Goes through pages until the one that holds the entry wanted is there. */
static void next_page(struct mount_req *r)
{
	struct mount_dir *d = r->dir;
	uint64_t want = r->offset < DOTS ? 0 : r->offset - DOTS;

	if (want < d->base + d->count || d->end) {
		reply_page(r);
		return;
	}
	if (!d->page)
		d->page = mem_array(LIMIT_MOUNT_DIR_ENTRIES, sizeof(d->page[0]));
	mount__req_then(r, answer_page);
	cr_readdir_async(r->mount->store, d->inode, d->after, d->page, LIMIT_MOUNT_DIR_ENTRIES, &d->end, &r->op);
}

static void list(fuse_req_t fuse, fuse_ino_t inode, size_t len, off_t offset, struct fuse_file_info *fi, bool plus)
{
	struct mount *m = fuse_req_userdata(fuse);
	struct mount_dir *d = (struct mount_dir *)(uintptr_t)fi->fh;
	struct mount_buf *out = mount__out_get(m);
	struct mount_req *r = mount__req_new(m, fuse, answer_page);

	r->inode = inode;
	r->dir = d;
	r->out = out;
	r->len = len < MOUNT_IO_BYTES ? len : MOUNT_IO_BYTES;
	r->offset = (uint64_t)offset;
	r->plus = plus;
	/* Who starts anew (rewinddir) wants to see what is new; who goes back finds its place from the start. */
	if (r->offset == 0 || r->offset - (r->offset < DOTS ? r->offset : DOTS) < d->base)
		rewind_dir(d);
	next_page(r);
}

static void op_readdir(fuse_req_t fuse, fuse_ino_t inode, size_t len, off_t offset, struct fuse_file_info *fi)
{
	list(fuse, inode, len, offset, fi, false);
}

static void op_readdirplus(fuse_req_t fuse, fuse_ino_t inode, size_t len, off_t offset, struct fuse_file_info *fi)
{
	list(fuse, inode, len, offset, fi, true);
}

/* Every change of a directory is durable when it is answered. */
static void op_fsyncdir(fuse_req_t fuse, fuse_ino_t inode, int datasync, struct fuse_file_info *fi)
{
	(void)inode;
	(void)datasync;
	(void)fi;
	fuse_reply_err(fuse, 0);
}

void mount__dir_ops(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->releasedir = op_releasedir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
	ops->fsyncdir = op_fsyncdir;
}
