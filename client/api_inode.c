/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api_inode: the calls of craton.h that name things by inode. Each is one operation of the client core, with the names copied and the
 * results handed over before the caller's `done`.
 */
#include "client/api_priv.h"

#include <stdio.h>
#include <string.h>
#include "common/base/mem.h"

struct inode_call {
	struct api_call call;                               /* first: freed as one */
	char name[CR_NAME_MAX + 2], name2[CR_NAME_MAX + 2]; /* one byte too long is seen as too long */
	struct cr_stat *ret_stat;
	struct cr_file **ret_file;
	struct cr_df *ret_df;
	int *ret_end;
	char *target; /* of a symbolic link, copied */
};

static void take_results(struct api_call *call)
{
	struct inode_call *c = CONTAINER_OF(call, struct inode_call, call);
	const struct client_op *op = &call->op;

	mem_free(c->target);
	if (op->err.code) {
		mem_free(call->handle);
		return;
	}
	if (c->ret_stat)
		*c->ret_stat = op->attr;
	if (c->ret_file)
		*c->ret_file = call->handle;
	if (c->ret_df)
		*c->ret_df = op->df;
	if (c->ret_end)
		*c->ret_end = op->end;
}

static struct inode_call *call_new(enum client_op_kind kind, uint64_t inode, const char *name)
{
	struct inode_call *c = MEM_NEW(struct inode_call);

	snprintf(c->name, sizeof(c->name), "%s", name);
	c->call.op.kind = kind;
	c->call.op.inode = inode;
	c->call.op.path = c->name;
	c->call.take = take_results;
	return c;
}

void cr_lookup_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_stat *ret_stat, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_STAT, dir, name);

	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_getattr_async(struct cr_store *store, uint64_t inode, struct cr_stat *ret_stat, struct cr_op *op)
{
	cr_lookup_async(store, inode, "", ret_stat, op);
}

void cr_setattr_async(struct cr_store *store, uint64_t inode, uint32_t mask, const struct cr_stat *values,
	struct cr_stat *ret_stat, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_SETATTR, inode, "");

	c->call.op.mask = mask;
	c->call.op.attr = *values;
	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_mkdir_async(struct cr_store *store, uint64_t dir, const char *name, const struct cr_stat *values,
	struct cr_stat *ret_stat, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_MKDIR, dir, name);

	c->call.op.mode = values->mode;
	c->call.op.attr = *values;
	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_unlink_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_op *op)
{
	api__call_async(store, &call_new(CLIENT_UNLINK, dir, name)->call, op);
}

void cr_rmdir_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_op *op)
{
	api__call_async(store, &call_new(CLIENT_RMDIR, dir, name)->call, op);
}

void cr_rename_async(struct cr_store *store, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to,
	uint32_t flags, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_RENAME, from_dir, from);

	snprintf(c->name2, sizeof(c->name2), "%s", to);
	c->call.op.inode2 = to_dir;
	c->call.op.path2 = c->name2;
	c->call.op.flags = flags;
	api__call_async(store, &c->call, op);
}

void cr_truncate_async(struct cr_store *store, uint64_t inode, uint64_t size, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_TRUNCATE, inode, "");

	c->call.op.offset = size;
	api__call_async(store, &c->call, op);
}

void cr_link_async(struct cr_store *store, uint64_t inode, uint64_t to_dir, const char *to, struct cr_stat *ret_stat,
	struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_LINK, inode, "");

	snprintf(c->name2, sizeof(c->name2), "%s", to);
	c->call.op.inode2 = to_dir;
	c->call.op.path2 = c->name2;
	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_symlink_async(struct cr_store *store, const char *target, uint64_t dir, const char *name,
	const struct cr_stat *values, struct cr_stat *ret_stat, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_SYMLINK, dir, name);

	c->target = mem_strdup(target);
	c->call.op.path2 = c->target;
	c->call.op.attr = *values;
	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_readlink_async(struct cr_store *store, uint64_t inode, char *buf, size_t size, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_READLINK, inode, "");

	c->call.op.buf = buf;
	c->call.op.len = size;
	api__call_async(store, &c->call, op);
}

static void xattr_async(struct cr_store *store, enum client_op_kind kind, uint64_t inode, const char *name, void *value,
	size_t size, uint32_t flags, struct cr_op *op)
{
	struct inode_call *c = call_new(kind, inode, "");

	snprintf(c->name2, sizeof(c->name2), "%s", name);
	c->call.op.path2 = c->name2;
	c->call.op.buf = value;
	c->call.op.len = size;
	c->call.op.flags = flags;
	api__call_async(store, &c->call, op);
}

void cr_setxattr_async(struct cr_store *store, uint64_t inode, const char *name, const void *value, size_t size,
	uint32_t flags, struct cr_op *op)
{
	xattr_async(store, CLIENT_XATTR_SET, inode, name, (void *)(uintptr_t)value, size, flags, op);
}

void cr_getxattr_async(
	struct cr_store *store, uint64_t inode, const char *name, void *value, size_t size, struct cr_op *op)
{
	xattr_async(store, CLIENT_XATTR_GET, inode, name, value, size, 0, op);
}

void cr_listxattr_async(struct cr_store *store, uint64_t inode, char *list, size_t size, struct cr_op *op)
{
	xattr_async(store, CLIENT_XATTR_LIST, inode, "", list, size, 0, op);
}

void cr_removexattr_async(struct cr_store *store, uint64_t inode, const char *name, struct cr_op *op)
{
	xattr_async(store, CLIENT_XATTR_REMOVE, inode, name, NULL, 0, 0, op);
}

void cr_readdir_async(struct cr_store *store, uint64_t dir, const char *after, struct cr_dirent *entries,
	uint32_t count, int *ret_end, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_READDIR, dir, "");

	snprintf(c->call.op.after, sizeof(c->call.op.after), "%s", after);
	c->call.op.entries = entries;
	c->call.op.entry_cap = count;
	c->ret_end = ret_end;
	api__call_async(store, &c->call, op);
}

static void open_async(struct cr_store *store, struct inode_call *c, uint32_t flags, struct cr_file **ret_file,
	struct cr_stat *ret_stat, struct cr_op *op)
{
	c->call.handle = MEM_NEW(struct cr_file);
	c->call.handle->store = store;
	c->call.handle->sequential = flags & CR_SEQUENTIAL;
	c->call.op.flags = flags & ~(uint32_t)CR_SEQUENTIAL;
	c->ret_file = ret_file;
	c->ret_stat = ret_stat;
	api__call_async(store, &c->call, op);
}

void cr_open_async(struct cr_store *store, uint64_t inode, uint32_t flags, struct cr_file **ret_file,
	struct cr_stat *ret_stat, struct cr_op *op)
{
	open_async(store, call_new(CLIENT_OPEN, inode, ""), flags, ret_file, ret_stat, op);
}

void cr_create_async(struct cr_store *store, uint64_t dir, const char *name, uint32_t flags,
	const struct cr_stat *values, struct cr_file **ret_file, struct cr_stat *ret_stat, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_OPEN, dir, name);

	c->call.op.mode = values->mode;
	c->call.op.attr = *values;
	open_async(store, c, CR_WRITE | flags, ret_file, ret_stat, op);
}

void cr_df_async(struct cr_store *store, struct cr_df *ret_df, struct cr_op *op)
{
	struct inode_call *c = call_new(CLIENT_DF, 0, "");

	c->ret_df = ret_df;
	api__call_async(store, &c->call, op);
}
