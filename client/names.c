/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: operations on names: one request to metad each, its answer copied into the operation. A table says for each kind how the request
 * is made, what it is called in messages, and what its answer means. Those on the whole store are in names_store.c.
 */
#include "client/names_priv.h"

#include <stdio.h>
#include <string.h>

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

/* ---- requests ---- */

static uint64_t dir_of(uint64_t inode)
{
	return inode ? inode : INODE_ROOT;
}

/* A path from the root, or one name in a directory. */
static int take_path(uint64_t dir, const char *path, char ret_path[CR_PATH_MAX], struct err *err)
{
	int code;

	if (!dir)
		return path_resolve(path, ret_path, err);
	code = path_check_name(path, err);
	if (code == 0)
		snprintf(ret_path, CR_PATH_MAX, "%s", path);
	return code;
}

static int make_lookup(struct name_call *n)
{
	craton__lookup_request__init(&n->request.lookup);
	n->request.lookup.parent = dir_of(n->op->inode);
	n->request.lookup.path = bytes_of(n->path);
	return 0;
}

static int make_mkdir(struct name_call *n)
{
	Craton__MkdirRequest *r = &n->request.mkdir;

	craton__mkdir_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->mode = n->op->mode & 07777;
	r->uid = n->op->attr.uid;
	r->gid = n->op->attr.gid;
	r->now_ns = io_wall_ns(n->client->io);
	r->parents = n->op->kind == CLIENT_MKDIR_PARENTS;
	return 0;
}

static int make_remove(struct name_call *n)
{
	Craton__RemoveRequest *r = &n->request.remove;

	craton__remove_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->directory = n->op->kind == CLIENT_RMDIR;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int make_rename(struct name_call *n)
{
	Craton__RenameRequest *r = &n->request.rename;
	int code = take_path(n->op->inode2, n->op->path2, n->path2, &n->op->err);

	if (code < 0)
		return code;
	craton__rename_request__init(r);
	r->from_parent = dir_of(n->op->inode);
	r->to_parent = dir_of(n->op->inode2);
	r->from_path = bytes_of(n->path);
	r->to_path = bytes_of(n->path2);
	r->noreplace = n->op->flags & CR_RENAME_NOREPLACE;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int make_setattr(struct name_call *n)
{
	Craton__SetattrRequest *r = &n->request.setattr;

	craton__setattr_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->mask = n->op->mask;
	r->mode = n->op->attr.mode;
	r->uid = n->op->attr.uid;
	r->gid = n->op->attr.gid;
	r->mtime_ns = n->op->attr.mtime_ns;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int make_policy(struct name_call *n)
{
	Craton__PolicyRequest *r = &n->request.policy;

	craton__policy_request__init(r);
	craton__policy__init(&n->policy);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	if (n->op->kind == CLIENT_POLICY_GET)
		return 0;
	r->set = true;
	r->policy = &n->policy;
	if (n->op->policy[0]) {
		const struct ec_policy *p = ec_policy_by_name(n->op->policy);

		if (!p)
			return err_set(&n->op->err, ERR_INVAL,
				"unknown policy '%s': known are rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6 and rs-1-2",
				n->op->policy);
		n->policy.policy = p->id;
	}
	return 0;
}

static int make_create(struct name_call *n)
{
	Craton__CreateRequest *r = &n->request.create;

	craton__create_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->mode = n->op->mode & 07777;
	r->uid = n->op->attr.uid;
	r->gid = n->op->attr.gid;
	r->exclusive = n->op->flags & CR_EXCL;
	r->hidden = n->op->flags & CR_ATOMIC;
	r->append = n->op->flags & CR_APPEND;
	r->now_ns = io_wall_ns(n->client->io);
	/* With tails it may be small enough to need no block. */
	if (!r->append && !n->client->tail_bytes)
		n->first = write_first_ask(n->client);
	r->allocate = n->first != NULL;
	return 0;
}

static int make_link(struct name_call *n)
{
	Craton__LinkRequest *r = &n->request.link;
	int code = take_path(n->op->inode2, n->op->path2, n->path2, &n->op->err);

	if (code < 0)
		return code;
	craton__link_request__init(r);
	r->from_parent = dir_of(n->op->inode);
	r->to_parent = dir_of(n->op->inode2);
	r->from_path = bytes_of(n->path);
	r->to_path = bytes_of(n->path2);
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

/* path: the link; path2: its target, any text. */
static int make_symlink(struct name_call *n)
{
	Craton__SymlinkRequest *r = &n->request.symlink;

	if (!n->op->path2 || !*n->op->path2 || strlen(n->op->path2) >= CR_PATH_MAX)
		return err_set(&n->op->err, n->op->path2 && *n->op->path2 ? ERR_NAMETOOLONG : ERR_NOENT,
			"symlink %.200s: a target has 1 to %d bytes", n->op->path, CR_PATH_MAX - 1);
	snprintf(n->path2, sizeof(n->path2), "%s", n->op->path2);
	craton__symlink_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->target = bytes_of(n->path2);
	r->uid = n->op->attr.uid;
	r->gid = n->op->attr.gid;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int make_truncate(struct name_call *n)
{
	Craton__TruncateRequest *r = &n->request.truncate;

	craton__truncate_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->size = n->op->offset;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int take_xattr_name(struct name_call *n)
{
	const char *name = n->op->path2;

	if (!name || !*name || strlen(name) > CR_NAME_MAX)
		return err_set(&n->op->err, name && *name ? ERR_RANGE : ERR_INVAL,
			"%s of %.200s: names of attributes have 1 to %d bytes", n->kind->verb, n->op->path, CR_NAME_MAX);
	snprintf(n->path2, sizeof(n->path2), "%s", name);
	return 0;
}

static int make_xattr_set(struct name_call *n)
{
	Craton__XattrSetRequest *r = &n->request.xattr_set;
	int code = take_xattr_name(n);

	if (code < 0)
		return code;
	if (n->op->len > LIMIT_XATTR_BYTES)
		return err_set(&n->op->err, ERR_NOSPC, "set attribute of %.200s: %llu bytes are more than the %d that fit",
			n->op->path, (unsigned long long)n->op->len, LIMIT_XATTR_BYTES);
	craton__xattr_set_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->name = bytes_of(n->path2);
	r->value = (ProtobufCBinaryData){.data = n->op->buf, .len = n->op->len};
	r->flags = n->op->flags;
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

static int make_xattr(struct name_call *n)
{
	Craton__XattrRequest *r = &n->request.xattr;
	int code = n->op->kind == CLIENT_XATTR_LIST ? 0 : take_xattr_name(n);

	if (code < 0)
		return code;
	craton__xattr_request__init(r);
	r->parent = dir_of(n->op->inode);
	r->path = bytes_of(n->path);
	r->name = bytes_of(n->path2);
	r->now_ns = io_wall_ns(n->client->io);
	return 0;
}

/* ---- answers ---- */

int names__bad_answer(struct name_call *n)
{
	return err_set(&n->op->err, ERR_PROTO, "%s: malformed answer of metad", n->kind->verb);
}

void names__take_nothing(struct name_call *n, const ProtobufCMessage *msg)
{
	(void)n;
	(void)msg;
}

static void take_attr(struct name_call *n, const ProtobufCMessage *msg)
{
	if (client_attr(((const Craton__AttrReply *)msg)->attr, &n->op->attr))
		names__bad_answer(n);
}

static void explain(struct name_call *n, int status);

static bool wants_dir(const struct client_op *op, const char *path)
{
	return !op->inode && path && path_wants_dir(path);
}

/* Of what only looks: "/file/" is nothing that is there. */
static void take_found(struct name_call *n, const ProtobufCMessage *msg)
{
	take_attr(n, msg);
	if (n->op->err.code == 0 && n->op->attr.type != CR_TYPE_DIR && wants_dir(n->op, n->op->path))
		explain(n, n->op->attr.type == CR_TYPE_SYMLINK ? ERR_LOOP : ERR_NOTDIR);
}

static struct client_file *new_file(struct name_call *n)
{
	struct client_file *file = MEM_NEW(struct client_file);

	file->client = n->client;
	file->attr = n->op->attr;
	file->inode = n->op->attr.inode;
	snprintf(file->path, sizeof(file->path), "%s", n->op->path);
	list_push_back(&n->client->files, &file->link);
	n->client->file_count++;
	n->op->ret_file = file;
	return file;
}

static void explain(struct name_call *n, int status)
{
	const char *path = n->kind->has_path ? n->op->path : NULL;
	char both[256];

	if (status == ERR_PERM && n->op->kind == CLIENT_LINK && path) {
		err_set(&n->op->err, status, "link %.200s: a directory has one name only: make a symbolic link (ln -s)",
			path);
		return;
	}
	/* What is wrong may be the one or the other. */
	if ((n->op->kind == CLIENT_LINK || n->op->kind == CLIENT_RENAME) && path && n->op->path2) {
		snprintf(both, sizeof(both), "%.120s to %.120s", path, n->op->path2);
		path = both;
	}
	session_explain(&n->client->session, &n->op->err, status, n->kind->verb, path);
}

static void take_open(struct name_call *n, const ProtobufCMessage *msg)
{
	struct client_file *file;

	take_found(n, msg);
	if (n->op->err.code)
		return;
	if (n->op->attr.type != CR_TYPE_FILE) {
		explain(n, n->op->attr.type == CR_TYPE_DIR ? ERR_ISDIR : ERR_LOOP);
		return;
	}
	file = new_file(n);
	file->read = read_open(file);
	session_watch(&n->client->session);
}

static void take_create(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__CreateReply *reply = (const Craton__CreateReply *)msg;
	const Craton__Policy *in = reply->policy;
	const struct ec_policy *policy = in && in->policy <= UINT8_MAX ? ec_policy_by_id((uint8_t)in->policy) : NULL;
	struct client_file *file;

	if (client_attr(reply->attr, &n->op->attr) || !policy || in->cell_bytes == 0 ||
		in->cell_bytes > LIMIT_CELL_BYTES || in->cell_bytes % LIMIT_UNIT_BYTES ||
		in->chunk_bytes < in->cell_bytes || in->chunk_bytes > LIMIT_CHUNK_BYTES) {
		names__bad_answer(n);
		return;
	}
	file = new_file(n);
	file->write = write_open(file, reply->epoch, policy, in->cell_bytes, in->chunk_bytes);
	if (n->op->flags & CR_APPEND && file->attr.size)
		write_continue(file, reply->tail_offset, &reply->tail);
	if (n->first && reply->allocated)
		write_first_take(n->first, file->write, reply->allocated);
}

static void take_readdir(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__ReaddirReply *reply = (const Craton__ReaddirReply *)msg;
	struct client_op *op = n->op;

	for (size_t i = 0; i < reply->n_entries; i++) {
		const Craton__Dirent *in = reply->entries[i];
		struct cr_dirent *out = &op->entries[op->count];

		if (op->count == op->entry_cap || in->name.len == 0 || in->name.len > CR_NAME_MAX ||
			memchr(in->name.data, 0, in->name.len) || client_attr(in->attr, &out->stat)) {
			names__bad_answer(n);
			return;
		}
		memcpy(out->name, in->name.data, in->name.len);
		out->name[in->name.len] = '\0';
		op->count++;
	}
	op->end = reply->end;
}

static void take_policy(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__PolicyReply *reply = (const Craton__PolicyReply *)msg;
	const struct ec_policy *p;

	if (n->op->kind == CLIENT_POLICY_SET)
		return;
	p = reply->policy && reply->policy->policy <= UINT8_MAX ? ec_policy_by_id((uint8_t)reply->policy->policy)
								: NULL;
	if (p)
		snprintf(n->op->policy, sizeof(n->op->policy), "%s", p->name);
	else
		names__bad_answer(n);
}

/* Room of 0 bytes asks for the length alone. */
static void take_bytes(struct name_call *n, const void *data, size_t len, uint64_t at)
{
	struct client_op *op = n->op;

	if (op->len && at + len > op->len)
		err_set(&op->err, ERR_RANGE, "%s of %.200s: more than the %llu bytes that there is room for", n->kind->verb,
			op->path, (unsigned long long)op->len);
	else if (op->len && len)
		memcpy((uint8_t *)op->buf + at, data, len);
	op->count = at + len;
}

static void take_readlink(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__ReadlinkReply *reply = (const Craton__ReadlinkReply *)msg;

	take_bytes(n, reply->target.data, reply->target.len, 0);
}

static void take_xattr(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__XattrReply *reply = (const Craton__XattrReply *)msg;

	take_bytes(n, reply->value.data, reply->value.len, 0);
}

/* As listxattr(2) has them: one behind the other, each with a NUL. */
static void take_xattr_list(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__XattrReply *reply = (const Craton__XattrReply *)msg;

	for (size_t i = 0; i < reply->n_names && !n->op->err.code; i++) {
		take_bytes(n, reply->names[i].data, reply->names[i].len, n->op->count);
		if (!n->op->err.code)
			take_bytes(n, "", 1, n->op->count);
	}
}

/* ---- the table ---- */

#define ID_AT(type) offsetof(Craton__##type, id)

static const struct name_kind kinds[] = {
	[CLIENT_STAT] = {&rpc_metad_lookup, "stat", 0, true, make_lookup, take_found},
	[CLIENT_MKDIR] = {&rpc_metad_mkdir, "mkdir", ID_AT(MkdirRequest), true, make_mkdir, take_attr},
	[CLIENT_MKDIR_PARENTS] = {&rpc_metad_mkdir, "mkdir", ID_AT(MkdirRequest), true, make_mkdir, take_attr},
	[CLIENT_RMDIR] = {&rpc_metad_remove, "rmdir", ID_AT(RemoveRequest), true, make_remove, names__take_nothing},
	[CLIENT_UNLINK] = {&rpc_metad_remove, "unlink", ID_AT(RemoveRequest), true, make_remove, names__take_nothing},
	[CLIENT_RENAME] = {&rpc_metad_rename, "rename", ID_AT(RenameRequest), true, make_rename, take_attr},
	[CLIENT_SETATTR] = {&rpc_metad_setattr, "setattr", ID_AT(SetattrRequest), true, make_setattr, take_attr},
	[CLIENT_POLICY_GET] = {&rpc_metad_policy, "policy", 0, true, make_policy, take_policy},
	[CLIENT_POLICY_SET] = {&rpc_metad_policy, "set policy of", ID_AT(PolicyRequest), true, make_policy, take_policy},
	[CLIENT_LINK] = {&rpc_metad_link, "link", ID_AT(LinkRequest), true, make_link, take_attr},
	[CLIENT_SYMLINK] = {&rpc_metad_symlink, "symlink", ID_AT(SymlinkRequest), true, make_symlink, take_attr},
	[CLIENT_READLINK] = {&rpc_metad_readlink, "readlink", 0, true, make_lookup, take_readlink},
	[CLIENT_TRUNCATE] = {&rpc_metad_truncate, "truncate", ID_AT(TruncateRequest), true, make_truncate, take_attr},
	[CLIENT_XATTR_SET] = {&rpc_metad_xattr_set, "set attribute", ID_AT(XattrSetRequest), true, make_xattr_set,
		names__take_nothing},
	[CLIENT_XATTR_GET] = {&rpc_metad_xattr_get, "attribute", 0, true, make_xattr, take_xattr},
	[CLIENT_XATTR_LIST] = {&rpc_metad_xattr_get, "attributes", 0, true, make_xattr, take_xattr_list},
	[CLIENT_XATTR_REMOVE] = {&rpc_metad_xattr_remove, "remove attribute", ID_AT(XattrRequest), true, make_xattr,
		names__take_nothing},
};
/* A file opened for reading, or made; and a directory's entries. */
static const struct name_kind kind_open = {&rpc_metad_lookup, "open", 0, true, make_lookup, take_open};
static const struct name_kind kind_create = {
	&rpc_metad_create, "create", ID_AT(CreateRequest), true, make_create, take_create};

static void name_done(struct session_call *call, int status, const ProtobufCMessage *msg);
static const struct name_kind kind_readdir_lookup;

static void name_end(struct name_call *n)
{
	struct client *client = n->client;
	struct client_op *op = n->op;

	mem_free(n->first);
	mem_free(n);
	client_finish(client, op);
}

static void name_send(struct name_call *n)
{
	size_t id_at = n->kind->id_at;

	n->call = (struct session_call){
		.method = n->kind->method,
		.request = &n->request.base,
		.id = id_at ? (Craton__RequestId **)(void *)((uint8_t *)&n->request + id_at) : NULL,
		.repeatable = id_at == 0,
		.timeout_ns = n->op->timeout_ns,
		.done = name_done,
	};
	session_start(&n->client->session, &n->call);
}

/* readdir: the directory's inode by its path, then its entries. */
static int make_readdir(struct name_call *n)
{
	Craton__ReaddirRequest *r = &n->request.readdir;

	craton__readdir_request__init(r);
	r->inode = n->op->inode;
	r->after = bytes_of(n->op->after);
	r->max_entries = n->op->entry_cap < LIMIT_READDIR_ENTRIES ? n->op->entry_cap : LIMIT_READDIR_ENTRIES;
	return 0;
}

static const struct name_kind kind_readdir = {&rpc_metad_readdir, "list", 0, true, make_readdir, take_readdir};

static void take_readdir_lookup(struct name_call *n, const ProtobufCMessage *msg)
{
	take_attr(n, msg);
	if (!n->op->err.code && n->op->attr.type != CR_TYPE_DIR)
		err_set(&n->op->err, ERR_NOTDIR, "list %s: not a directory", n->op->path);
}

static const struct name_kind kind_readdir_lookup = {
	&rpc_metad_lookup, "list", 0, true, make_lookup, take_readdir_lookup};

static void name_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct name_call *n = CONTAINER_OF(call, struct name_call, call);

	if (status == 0 && !msg)
		names__bad_answer(n);
	else if (status == 0)
		n->kind->take(n, msg);
	else if (names__store_refusal(n, msg)[0])
		err_set(&n->op->err, status, "%s", names__store_refusal(n, msg));
	else
		explain(n, status);
	if (n->kind == &kind_readdir_lookup && n->op->err.code == 0) {
		n->kind = &kind_readdir;
		n->op->inode = n->op->attr.inode;
		make_readdir(n);
		name_send(n);
		return;
	}
	name_end(n);
}

static const struct name_kind *kind_of(const struct client_op *op)
{
	const struct name_kind *store = names__store_kind(op->kind);

	if (store)
		return store;
	if (op->kind == CLIENT_READDIR)
		return op->inode ? &kind_readdir : &kind_readdir_lookup;
	if (op->kind == CLIENT_OPEN)
		return op->flags & CR_READ ? &kind_open : &kind_create;
	CHECK(op->kind < ARRAY_COUNT(kinds) && kinds[op->kind].method);
	return &kinds[op->kind];
}

static int check_open_flags(struct client_op *op)
{
	uint32_t known = CR_READ | CR_WRITE | CR_EXCL | CR_ATOMIC | CR_APPEND;
	bool reading = op->flags & CR_READ, writing = op->flags & CR_WRITE;

	if (op->flags & ~known || reading == writing || (reading && op->flags != CR_READ) ||
		(op->flags & CR_APPEND && op->flags & (CR_EXCL | CR_ATOMIC)))
		return err_set(&op->err, ERR_INVAL,
			"open %.200s: flags are CR_READ alone, or CR_WRITE with CR_EXCL or CR_ATOMIC, or with CR_APPEND",
			op->path ? op->path : "");
	return 0;
}

/* What changes, or asks for, something that is no directory does not get as far as metad, which has no '/' at the end of a path. */
static int check_slash(const struct name_call *n)
{
	struct client_op *op = n->op;
	const char *path = wants_dir(op, op->path) ? op->path : NULL;

	switch (op->kind) {
	case CLIENT_LINK:
		if (!path && !op->inode2 && op->path2 && path_wants_dir(op->path2))
			path = op->path2;
		break;
	case CLIENT_OPEN:
		if (op->flags & CR_READ) /* the answer shows what it is */
			path = NULL;
		break;
	case CLIENT_UNLINK:
	case CLIENT_SYMLINK:
	case CLIENT_READLINK:
	case CLIENT_TRUNCATE:
		break;
	default:
		path = NULL;
	}
	if (!path)
		return 0;
	return err_set(&op->err, ERR_NOTDIR, "%s %.200s: a path that ends with '/' is a directory's", n->kind->verb, path);
}

static int name_prepare(struct name_call *n)
{
	struct client_op *op = n->op;
	int code;

	n->kind = kind_of(op);
	if ((code = check_slash(n)) < 0)
		return code;
	if (op->kind == CLIENT_OPEN && (code = check_open_flags(op)) < 0)
		return code;
	if (op->kind == CLIENT_OPEN && n->client->file_count >= LIMIT_OPEN_FILES)
		return err_set(&op->err, ERR_MFILE, "open %.200s: this client has %d files open already: close some",
			op->path ? op->path : "", LIMIT_OPEN_FILES);
	if (op->kind == CLIENT_READDIR && op->entry_cap == 0)
		return err_set(&op->err, ERR_INVAL, "list: no room for entries");
	/* readdir by inode: the path is for messages alone. */
	if (n->kind->has_path && n->kind != &kind_readdir &&
		(code = take_path(op->inode, op->path, n->path, &op->err)) < 0)
		return code;
	return n->kind->make(n);
}

void names_start(struct client *client, struct client_op *op)
{
	struct name_call *n = MEM_NEW(struct name_call);

	n->client = client;
	n->op = op;
	if (name_prepare(n) < 0) {
		mem_free(n);
		client_finish_later(client, op);
		return;
	}
	name_send(n);
}
