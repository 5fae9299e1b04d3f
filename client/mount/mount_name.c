/* SPDX-License-Identifier: Apache-2.0 */
/* mount_name: requests on names and attributes: one call of craton.h each. */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include "common/base/mem.h"

static struct mount_req *start(fuse_req_t fuse, uint64_t inode, void (*answer)(struct mount_req *r))
{
	struct mount_req *r = mount__req_new(fuse_req_userdata(fuse), fuse, answer);

	r->inode = inode;
	return r;
}

static void answer_entry(struct mount_req *r)
{
	struct fuse_entry_param entry;

	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	mount__entry(r->mount, &r->stat, &entry);
	fuse_reply_entry(r->fuse, &entry);
	mount__req_end(r);
}

static void answer_attr(struct mount_req *r)
{
	struct stat attr;

	if (mount__failure(r)) {
		/* An inode that the store does not know any more: its name has to be looked up again. */
		mount__req_error(r, mount__failure(r) == ENOENT ? ESTALE : mount__failure(r));
		return;
	}
	mount__attr(r->mount, &r->stat, &attr);
	fuse_reply_attr(r->fuse, &attr, MOUNT_TIMEOUT_S);
	mount__req_end(r);
}

static void answer_nothing(struct mount_req *r)
{
	mount__req_error(r, mount__failure(r));
}

static void op_lookup(fuse_req_t fuse, fuse_ino_t dir, const char *name)
{
	struct mount_req *r = start(fuse, dir, answer_entry);

	cr_lookup_async(r->mount->store, dir, name, &r->stat, &r->op);
}

static void op_forget(fuse_req_t fuse, fuse_ino_t inode, uint64_t count)
{
	(void)inode;
	(void)count;
	fuse_reply_none(fuse);
}

static void op_forget_multi(fuse_req_t fuse, size_t count, struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(fuse);
}

static void op_getattr(fuse_req_t fuse, fuse_ino_t inode, struct fuse_file_info *fi)
{
	struct mount_req *r = start(fuse, inode, answer_attr);

	(void)fi;
	cr_getattr_async(r->mount->store, inode, &r->stat, &r->op);
}

void mount__setattr_rest(struct mount_req *r)
{
	mount__req_then(r, answer_attr);
	if (r->mask)
		cr_setattr_async(r->mount->store, r->inode, r->mask, &r->values, &r->stat, &r->op);
	else
		cr_getattr_async(r->mount->store, r->inode, &r->stat, &r->op);
}

/* The mode of what is to be made, whose it is, and nothing else. */
static struct cr_stat values_of(fuse_req_t fuse, mode_t mode)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(fuse);

	return (struct cr_stat){.mode = mode & 07777, .uid = ctx->uid, .gid = ctx->gid};
}

static void op_mkdir(fuse_req_t fuse, fuse_ino_t dir, const char *name, mode_t mode)
{
	struct mount_req *r = start(fuse, dir, answer_entry);

	r->values = values_of(fuse, mode);
	cr_mkdir_async(r->mount->store, dir, name, &r->values, &r->stat, &r->op);
}

static void op_link(fuse_req_t fuse, fuse_ino_t inode, fuse_ino_t new_dir, const char *new_name)
{
	struct mount_req *r = start(fuse, inode, answer_entry);

	cr_link_async(r->mount->store, inode, new_dir, new_name, &r->stat, &r->op);
}

static void op_symlink(fuse_req_t fuse, const char *target, fuse_ino_t dir, const char *name)
{
	struct mount_req *r = start(fuse, dir, answer_entry);

	r->values = values_of(fuse, 0777);
	cr_symlink_async(r->mount->store, target, dir, name, &r->values, &r->stat, &r->op);
}

static void answer_readlink(struct mount_req *r)
{
	char *target = r->out->data;

	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	target[r->op.result] = '\0';
	fuse_reply_readlink(r->fuse, target);
	mount__req_end(r);
}

static void op_readlink(fuse_req_t fuse, fuse_ino_t inode)
{
	struct mount_buf *out = mount__out_get(fuse_req_userdata(fuse));
	struct mount_req *r = start(fuse, inode, answer_readlink);

	r->out = out;
	cr_readlink_async(r->mount->store, inode, out->data, CR_PATH_MAX, &r->op);
}

static void answer_hidden(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (!mount__failure(r)) {
		pthread_mutex_lock(&m->lock);
		r->writer->hidden_dir = r->inode;
		pthread_mutex_unlock(&m->lock);
	}
	mount__req_error(r, mount__failure(r));
}

/* Who writes to a file whose last name goes may go on, here as elsewhere: it gets a name that goes with the last handle. */
static void unlink_found(struct mount_req *r)
{
	struct mount *m = r->mount;
	char hidden[MOUNT_HIDDEN_BYTES];

	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	if (r->stat.type == CR_TYPE_FILE && r->stat.nlink == 1)
		r->writer = mount__writer_get(m, r->stat.inode);
	if (!r->writer) {
		mount__req_then(r, answer_nothing);
		cr_unlink_async(m->store, r->inode, r->name, &r->op);
		return;
	}
	mount__req_then(r, answer_hidden);
	mount__hidden_name(r->stat.inode, hidden);
	cr_rename_async(m->store, r->inode, r->name, r->inode, hidden, 0, &r->op);
}

static void op_unlink(fuse_req_t fuse, fuse_ino_t dir, const char *name)
{
	struct mount_req *r = start(fuse, dir, answer_nothing);

	if (!mount__writers_any(r->mount) || !strncmp(name, MOUNT_HIDDEN_PREFIX, strlen(MOUNT_HIDDEN_PREFIX))) {
		cr_unlink_async(r->mount->store, dir, name, &r->op);
		return;
	}
	r->name = mem_strdup(name);
	mount__req_then(r, unlink_found);
	cr_lookup_async(r->mount->store, dir, name, &r->stat, &r->op);
}

static void op_rmdir(fuse_req_t fuse, fuse_ino_t dir, const char *name)
{
	struct mount_req *r = start(fuse, dir, answer_nothing);

	cr_rmdir_async(r->mount->store, dir, name, &r->op);
}

static void answer_rename(struct mount_req *r)
{
	if (mount__failure(r) && r->hid)
		mount__writer_named(r->mount, r->writer);
	mount__req_error(r, mount__failure(r));
}

static void rename_now(struct mount_req *r)
{
	mount__req_then(r, answer_rename);
	cr_rename_async(r->mount->store, r->from_dir, r->from_name, r->inode, r->name, 0, &r->op);
}

/* Whether it has got its other name or not, the rename is what was asked for. */
static void replaced_kept(struct mount_req *r)
{
	struct mount *m = r->mount;

	if (!mount__failure(r)) {
		pthread_mutex_lock(&m->lock);
		r->writer->hidden_dir = r->inode;
		pthread_mutex_unlock(&m->lock);
		r->hid = true;
	}
	rename_now(r);
}

/* As unlink_found, for who writes to the file that is about to be replaced. A second name, so that there is one of the two at any moment. */
static void replaced_found(struct mount_req *r)
{
	struct mount *m = r->mount;
	char hidden[MOUNT_HIDDEN_BYTES];

	if (!mount__failure(r) && r->stat.type == CR_TYPE_FILE && r->stat.nlink == 1)
		r->writer = mount__writer_get(m, r->stat.inode);
	if (!r->writer) {
		rename_now(r);
		return;
	}
	mount__req_then(r, replaced_kept);
	mount__hidden_name(r->stat.inode, hidden);
	cr_link_async(m->store, r->stat.inode, r->inode, hidden, &r->stat, &r->op);
}

static void op_rename(
	fuse_req_t fuse, fuse_ino_t dir, const char *name, fuse_ino_t new_dir, const char *new_name, unsigned flags)
{
	struct mount_req *r;

	if (flags & ~(unsigned)RENAME_NOREPLACE) {
		fuse_reply_err(fuse, EINVAL);
		return;
	}
	r = start(fuse, new_dir, answer_nothing);
	if (flags || !mount__writers_any(r->mount)) {
		cr_rename_async(r->mount->store, dir, name, new_dir, new_name, flags ? CR_RENAME_NOREPLACE : 0, &r->op);
		return;
	}
	r->name = mem_strdup(new_name);
	r->from_dir = dir;
	r->from_name = mem_strdup(name);
	mount__req_then(r, replaced_found);
	cr_lookup_async(r->mount->store, new_dir, new_name, &r->stat, &r->op);
}

/* Devices, pipes and sockets have no place in the store; files are made by create. */
static void op_mknod(fuse_req_t fuse, fuse_ino_t dir, const char *name, mode_t mode, dev_t device)
{
	(void)dir;
	(void)name;
	(void)mode;
	(void)device;
	fuse_reply_err(fuse, EOPNOTSUPP);
}

static void answer_statfs(struct mount_req *r)
{
	const struct mount *m = r->mount;
	struct statvfs out = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = CR_NAME_MAX};

	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
		return;
	}
	out.f_blocks = r->df.total_bytes / m->chunks * m->data_chunks / out.f_frsize;
	out.f_bfree = r->df.free_bytes / m->chunks * m->data_chunks / out.f_frsize;
	/* The rest is kept for repair. */
	out.f_bavail = r->df.available_bytes == CR_DF_UNKNOWN ? out.f_bfree : r->df.available_bytes / out.f_frsize;
	/* There is no table of inodes that could be full: as many more as there is room for one block each. */
	out.f_ffree = out.f_favail = out.f_bavail;
	out.f_files = r->df.file_count + r->df.dir_count + out.f_ffree;
	fuse_reply_statfs(r->fuse, &out);
	mount__req_end(r);
}

static void op_statfs(fuse_req_t fuse, fuse_ino_t inode)
{
	struct mount_req *r = start(fuse, inode, answer_statfs);

	cr_df_async(r->mount->store, &r->df, &r->op);
}

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void take_values(struct mount_req *r, const struct stat *attr, int to_set)
{
	struct timespec now;

	r->values = (struct cr_stat){.mode = attr->st_mode & 07777, .uid = attr->st_uid, .gid = attr->st_gid};
	r->mask |= to_set & FUSE_SET_ATTR_MODE ? CR_SET_MODE : 0;
	r->mask |= to_set & FUSE_SET_ATTR_UID ? CR_SET_UID : 0;
	r->mask |= to_set & FUSE_SET_ATTR_GID ? CR_SET_GID : 0;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
		clock_gettime(CLOCK_REALTIME, &now);
		r->mask |= CR_SET_MTIME;
		r->values.mtime_ns = ns_of(now);
	} else if (to_set & FUSE_SET_ATTR_MTIME) {
		r->mask |= CR_SET_MTIME;
		r->values.mtime_ns = ns_of(attr->st_mtim);
	}
}

/* Times of reading are not kept. */
static void op_setattr(fuse_req_t fuse, fuse_ino_t inode, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct mount_req *r = start(fuse, inode, answer_attr);

	(void)fi;
	take_values(r, attr, to_set);
	if (to_set & FUSE_SET_ATTR_SIZE)
		mount__resize(r, (uint64_t)attr->st_size);
	else if (r->mask & CR_SET_MTIME)
		mount__settle(r);
	else
		mount__setattr_rest(r);
}

void mount__name_ops(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
	ops->mkdir = op_mkdir;
	ops->link = op_link;
	ops->symlink = op_symlink;
	ops->readlink = op_readlink;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
	ops->mknod = op_mknod;
	ops->statfs = op_statfs;
}
