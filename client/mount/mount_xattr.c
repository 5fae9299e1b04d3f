/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_xattr: extended attributes. Those that the kernel itself gives a meaning (security.*, system.*: capabilities, labels, access
 * lists) are refused without a call: they would be asked for at each write and each `ls -l`.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

static bool is_ours(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "trusted.", 8);
}

static struct mount_req *start(fuse_req_t fuse, void (*answer)(struct mount_req *r))
{
	return mount__req_new(fuse_req_userdata(fuse), fuse, answer);
}

static void answer_done(struct mount_req *r)
{
	mount__req_error(r, mount__failure(r));
}

/* r->len 0: how long it is; else the bytes. */
static void answer_bytes(struct mount_req *r)
{
	if (mount__failure(r)) {
		mount__req_error(r, mount__failure(r));
	} else if (r->len == 0) {
		fuse_reply_xattr(r->fuse, (size_t)r->op.result);
		mount__req_end(r);
	} else {
		mount__req_data(r, (size_t)r->op.result);
	}
}

static struct mount_req *start_bytes(fuse_req_t fuse, size_t size)
{
	struct mount_buf *out = mount__out_get(fuse_req_userdata(fuse));
	struct mount_req *r = start(fuse, answer_bytes);

	r->out = out;
	r->len = size < MOUNT_IO_BYTES ? size : MOUNT_IO_BYTES;
	return r;
}

static void op_getxattr(fuse_req_t fuse, fuse_ino_t inode, const char *name, size_t size)
{
	struct mount_req *r;

	if (!is_ours(name)) {
		fuse_reply_err(fuse, EOPNOTSUPP);
		return;
	}
	r = start_bytes(fuse, size);
	cr_getxattr_async(r->mount->store, inode, name, r->out->data, r->len, &r->op);
}

static void op_listxattr(fuse_req_t fuse, fuse_ino_t inode, size_t size)
{
	struct mount_req *r = start_bytes(fuse, size);

	cr_listxattr_async(r->mount->store, inode, r->out->data, r->len, &r->op);
}

static void op_setxattr(fuse_req_t fuse, fuse_ino_t inode, const char *name, const char *value, size_t size, int flags)
{
	struct mount_req *r;

	if (!is_ours(name)) {
		fuse_reply_err(fuse, EOPNOTSUPP);
		return;
	}
	r = start(fuse, answer_done);
	r->in = mount__in_keep(r->mount);
	cr_setxattr_async(r->mount->store, inode, name, value, size,
		(flags & XATTR_CREATE ? CR_XATTR_CREATE : 0) | (flags & XATTR_REPLACE ? CR_XATTR_REPLACE : 0), &r->op);
}

static void op_removexattr(fuse_req_t fuse, fuse_ino_t inode, const char *name)
{
	struct mount_req *r;

	if (!is_ours(name)) {
		fuse_reply_err(fuse, EOPNOTSUPP);
		return;
	}
	r = start(fuse, answer_done);
	cr_removexattr_async(r->mount->store, inode, name, &r->op);
}

void mount__xattr_ops(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->setxattr = op_setxattr;
	ops->removexattr = op_removexattr;
}
