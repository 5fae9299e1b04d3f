/* SPDX-License-Identifier: Apache-2.0 */
/* handlers_link: requests on links, lengths and extended attributes; as handlers_name.c does those on names. */
#include "metad/core.h"

#include "common/base/check.h"

void metad__link(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__LinkRequest *msg = (const Craton__LinkRequest *)req->msg;

	if (metad__gate_change(md, req) || metad__refuse_growth(md, req, msg->id) || !metad__path_good(req, &msg->from_path) ||
		!metad__path_good(req, &msg->to_path))
		return;
	md->cmd.type = STATE_CMD_LINK;
	md->cmd.link = (struct state_cmd_link){
		.from = metad__path(msg->from_parent, &msg->from_path),
		.to = metad__path(msg->to_parent, &msg->to_path),
		.now_ns = msg->now_ns,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__symlink(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__SymlinkRequest *msg = (const Craton__SymlinkRequest *)req->msg;

	if (metad__gate_change(md, req) || metad__refuse_growth(md, req, msg->id) || !metad__path_good(req, &msg->path))
		return;
	if (msg->target.len >= LIMIT_PATH_BYTES) {
		rpc_reply_status(req, ERR_NAMETOOLONG);
		return;
	}
	md->cmd.type = STATE_CMD_SYMLINK;
	md->cmd.symlink = (struct state_cmd_symlink){
		.at = metad__path(msg->parent, &msg->path),
		.target = metad__slice(&msg->target),
		.uid = msg->uid,
		.gid = msg->gid,
		.now_ns = msg->now_ns,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__readlink(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__LookupRequest *msg = (const Craton__LookupRequest *)req->msg;
	struct state_path at = metad__path(msg->parent, &msg->path);
	Craton__ReadlinkReply reply = CRATON__READLINK_REPLY__INIT;
	struct state_inode *inode = &md->scratch->inode;
	struct slice target = {0};
	uint64_t parent;
	int status;

	if (metad__gate(md, req))
		return;
	status = state_path_check(at.path);
	if (!status)
		status = state_lookup(&md->state, &at, inode, &parent);
	if (!status)
		status = inode->type == STATE_TYPE_SYMLINK ? state_tail_get(&md->state, inode, &target) : ERR_INVAL;
	reply.target = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)target.data, .len = target.len};
	metad__reply_read(md, req, status, &reply.base);
}

void metad__truncate(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__TruncateRequest *msg = (const Craton__TruncateRequest *)req->msg;

	if (metad__gate_change(md, req) || !metad__path_good(req, &msg->path))
		return;
	md->cmd.type = STATE_CMD_TRUNCATE;
	md->cmd.truncate = (struct state_cmd_truncate){
		.at = metad__path(msg->parent, &msg->path), .size = msg->size, .now_ns = msg->now_ns};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

/* False: the request was refused. */
static bool name_good(struct rpc_req *req, const ProtobufCBinaryData *name)
{
	bool good = name->len > 0 && name->len <= LIMIT_XATTR_NAME_BYTES && !memchr(name->data, 0, name->len);

	if (!good)
		rpc_reply_status(req, name->len > LIMIT_XATTR_NAME_BYTES ? ERR_RANGE : ERR_INVAL);
	return good;
}

void metad__xattr_set(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__XattrSetRequest *msg = (const Craton__XattrSetRequest *)req->msg;

	if (metad__gate_change(md, req) || metad__refuse_growth(md, req, msg->id) || !metad__path_good(req, &msg->path) ||
		!name_good(req, &msg->name))
		return;
	if (msg->value.len > LIMIT_XATTR_BYTES || msg->flags > STATE_XATTR_REPLACE) {
		rpc_reply_status(req, msg->flags > STATE_XATTR_REPLACE ? ERR_INVAL : ERR_NOSPC);
		return;
	}
	md->cmd.type = STATE_CMD_XATTR_SET;
	md->cmd.xattr = (struct state_cmd_xattr){
		.at = metad__path(msg->parent, &msg->path),
		.name = metad__slice(&msg->name),
		.value = metad__slice(&msg->value),
		.flags = (uint8_t)msg->flags,
		.now_ns = msg->now_ns,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__xattr_remove(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__XattrRequest *msg = (const Craton__XattrRequest *)req->msg;

	if (metad__gate_change(md, req) || !metad__path_good(req, &msg->path) ||
		!name_good(req, &msg->name))
		return;
	md->cmd.type = STATE_CMD_XATTR_REMOVE;
	md->cmd.xattr = (struct state_cmd_xattr){
		.at = metad__path(msg->parent, &msg->path), .name = metad__slice(&msg->name), .now_ns = msg->now_ns};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

struct listing {
	struct metad_scratch *scratch;
	Craton__XattrReply *reply;
	size_t used;
};

/* A scan's key is gone with its next step: names are copied. Rows keep within the limits of the room. */
static void take_name(void *ctx, struct slice name)
{
	struct listing *l = ctx;
	uint8_t *to = l->scratch->attr_text + l->used;

	if (l->reply->n_names == LIMIT_XATTRS || name.len > LIMIT_XATTR_BYTES - l->used)
		return;
	memcpy(to, name.data, name.len);
	l->used += name.len;
	l->reply->names[l->reply->n_names++] = (ProtobufCBinaryData){.data = to, .len = name.len};
}

void metad__xattr_get(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__XattrRequest *msg = (const Craton__XattrRequest *)req->msg;
	struct state_path at = metad__path(msg->parent, &msg->path);
	Craton__XattrReply reply = CRATON__XATTR_REPLY__INIT;
	struct listing listing = {.scratch = md->scratch, .reply = &reply};
	struct state_inode *inode = &md->scratch->inode;
	struct slice value = {0};
	uint64_t parent;
	int status;

	if (metad__gate(md, req) || !metad__path_good(req, &msg->path))
		return;
	status = state_lookup(&md->state, &at, inode, &parent);
	reply.names = md->scratch->attr_names;
	if (!status && msg->name.len)
		status = state_xattr_get(&md->state, inode->id, metad__slice(&msg->name), &value);
	else if (!status)
		state_xattr_list(&md->state, inode->id, take_name, &listing);
	reply.value = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)value.data, .len = value.len};
	metad__reply_read(md, req, status, &reply.base);
}
