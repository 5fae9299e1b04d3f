/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_name: requests on names. Reads are answered from the table at once; changes become commands once the form of
 * their paths is known to be good, so that nothing absurd ever enters the log.
 */
#include "metad/core.h"

#include "common/base/check.h"

/* What becomes of a read: the replica ends if what was read cannot be believed. */
static int read_status(struct metad *md, int status)
{
	struct err err = {0};
	int code = state_failure(&md->state, &err);

	if (!code)
		return status;
	metad__fatal(md, code, err.text);
	return ERR_STOPPED;
}

void metad__reply_read(struct metad *md, struct rpc_req *req, int status, const ProtobufCMessage *msg)
{
	status = read_status(md, status);
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = status ? NULL : msg});
}

void metad__lookup(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__LookupRequest *msg = (const Craton__LookupRequest *)req->msg;
	struct state_path at = metad__path(msg->parent, &msg->path);
	Craton__AttrReply reply = CRATON__ATTR_REPLY__INIT;
	struct state_attr attr;
	Craton__Attr out;
	int status;

	if (metad__gate(md, req))
		return;
	status = state_path_check(at.path);
	if (!status)
		status = state_lookup_attr(&md->state, &at, &attr, &reply.parent);
	if (!status) {
		metad__wire_attr(&attr, &out);
		reply.attr = &out;
	}
	metad__reply_read(md, req, status, &reply.base);
}

/* What the listing stands on, packed; *at moves behind it. */
static int take_entry(struct metad *md, const struct state_listing *listing, uint8_t **at)
{
	struct state_attr attr;
	int code = state_attr_get(&md->state, listing->dirent.inode, &attr);

	if (code == ERR_NOENT)
		state__fault(
			&md->state, "inode %llu has an entry but no row", (unsigned long long)listing->dirent.inode);
	if (code)
		return code;
	*at = metad__wire_entry(*at, listing->name, &attr);
	return 0;
}

static int list_dir(struct metad *md, const Craton__ReaddirRequest *msg, struct slice *ret_packed)
{
	struct slice after = metad__slice(&msg->after);
	size_t want = msg->max_entries;
	uint8_t *begin = md->scratch->listing, *at = begin;
	struct state_listing listing;
	int code = state_inode_get(&md->state, msg->inode, &md->scratch->inode);

	if (code)
		return code;
	if (md->scratch->inode.type != STATE_TYPE_DIR)
		return ERR_NOTDIR;
	if (after.len > LIMIT_NAME_BYTES)
		return ERR_NAMETOOLONG;
	if (want == 0 || want > LIMIT_READDIR_ENTRIES)
		want = LIMIT_READDIR_ENTRIES;
	code = state_list_begin(&md->state, msg->inode, after, &listing);
	for (size_t count = 0; !code && count < want; count++) {
		code = take_entry(md, &listing, &at);
		if (!code)
			code = state_list_next(&md->state, &listing);
	}
	state_list_end(&listing);
	at = metad__wire_end(at, code == ERR_NOENT);
	*ret_packed = slice_of(begin, (size_t)(at - begin));
	return code == ERR_NOENT ? 0 : code;
}

void metad__readdir(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	struct rpc_reply reply = {0};

	if (metad__gate(md, req))
		return;
	reply.status = list_dir(md, (const Craton__ReaddirRequest *)req->msg, &reply.packed);
	reply.status = read_status(md, reply.status);
	if (reply.status)
		reply.packed = slice_of(NULL, 0);
	rpc_reply(req, &reply);
}

/* The result of a command that answers with attributes. */
void metad__on_attr(struct metad *md, void *arg, int status, const struct state_result *res)
{
	Craton__AttrReply reply = CRATON__ATTR_REPLY__INIT;
	Craton__Attr attr;

	(void)md;
	if (!status) {
		metad__wire_attr(&res->attr, &attr);
		reply.attr = &attr;
		reply.parent = res->parent;
	}
	rpc_reply(arg, &(struct rpc_reply){.status = status, .msg = status ? NULL : &reply.base});
}

bool metad__path_good(struct rpc_req *req, const ProtobufCBinaryData *path)
{
	int code = state_path_check(metad__slice(path));

	if (code)
		rpc_reply_status(req, code);
	return code == 0;
}

void metad__mkdir(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__MkdirRequest *msg = (const Craton__MkdirRequest *)req->msg;

	if (metad__gate_change(md, req) || metad__refuse_growth(md, req, msg->id) || !metad__path_good(req, &msg->path))
		return;
	md->cmd.type = STATE_CMD_MKDIR;
	md->cmd.mkdir = (struct state_cmd_mkdir){
		.at = metad__path(msg->parent, &msg->path),
		.mode = msg->mode,
		.uid = msg->uid,
		.gid = msg->gid,
		.now_ns = msg->now_ns,
		.parents = msg->parents,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__remove(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__RemoveRequest *msg = (const Craton__RemoveRequest *)req->msg;

	if (metad__gate_change(md, req) || !metad__path_good(req, &msg->path))
		return;
	md->cmd.type = STATE_CMD_REMOVE;
	md->cmd.remove = (struct state_cmd_remove){
		.at = metad__path(msg->parent, &msg->path),
		.now_ns = msg->now_ns,
		.directory = msg->directory,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__rename(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__RenameRequest *msg = (const Craton__RenameRequest *)req->msg;

	if (metad__gate_change(md, req) || !metad__path_good(req, &msg->from_path) || !metad__path_good(req, &msg->to_path))
		return;
	md->cmd.type = STATE_CMD_RENAME;
	md->cmd.rename = (struct state_cmd_rename){
		.from = metad__path(msg->from_parent, &msg->from_path),
		.to = metad__path(msg->to_parent, &msg->to_path),
		.now_ns = msg->now_ns,
		.noreplace = msg->noreplace,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

void metad__setattr(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__SetattrRequest *msg = (const Craton__SetattrRequest *)req->msg;

	if (metad__gate_change(md, req) || !metad__path_good(req, &msg->path))
		return;
	md->cmd.type = STATE_CMD_SETATTR;
	md->cmd.setattr = (struct state_cmd_setattr){
		.at = metad__path(msg->parent, &msg->path),
		.mask = msg->mask,
		.mode = msg->mode,
		.uid = msg->uid,
		.gid = msg->gid,
		.mtime_ns = msg->mtime_ns,
		.now_ns = msg->now_ns,
	};
	metad__submit_change(md, metad__on_attr, req, msg->id);
}

static void on_policy(struct metad *md, void *arg, int status, const struct state_result *res)
{
	Craton__PolicyReply reply = CRATON__POLICY_REPLY__INIT;
	Craton__Policy policy;

	(void)md;
	if (!status) {
		metad__wire_policy(&res->policy, &policy);
		reply.policy = &policy;
		reply.own = res->policy_own;
	}
	rpc_reply(arg, &(struct rpc_reply){.status = status, .msg = status ? NULL : &reply.base});
}

static void get_policy(struct metad *md, struct rpc_req *req, const struct state_path *at)
{
	Craton__PolicyReply reply = CRATON__POLICY_REPLY__INIT;
	struct state_inode *inode = &md->scratch->inode;
	struct state_policy found;
	Craton__Policy policy;
	uint64_t parent;
	bool own;
	int status = state_lookup(&md->state, at, inode, &parent);

	if (!status)
		status = state_policy_get(&md->state, inode, &found, &own);
	if (!status) {
		metad__wire_policy(&found, &policy);
		reply.policy = &policy;
		reply.own = own;
	}
	metad__reply_read(md, req, status, &reply.base);
}

/* What the message leaves open is filled in: a policy says k and m, the sizes have defaults. */
static struct state_policy policy_of(const struct metad *md, const Craton__Policy *msg)
{
	struct state_policy p = {0};

	if (!msg || msg->policy == 0)
		return p;
	p.id = msg->policy <= UINT8_MAX ? (uint8_t)msg->policy : UINT8_MAX;
	p.cell_bytes = msg->cell_bytes ? msg->cell_bytes : md->options.cell_bytes;
	p.chunk_bytes = msg->chunk_bytes ? msg->chunk_bytes : md->options.chunk_bytes;
	return p;
}

void metad__policy(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__PolicyRequest *msg = (const Craton__PolicyRequest *)req->msg;
	struct state_path at = metad__path(msg->parent, &msg->path);
	struct state_policy policy = policy_of(md, msg->policy);

	if ((msg->set ? metad__gate_change(md, req) : metad__gate(md, req)) || !metad__path_good(req, &msg->path))
		return;
	if (!msg->set) {
		get_policy(md, req, &at);
		return;
	}
	if (policy.id && !state_policy_valid(&policy)) {
		rpc_reply_status(req, ERR_INVAL);
		return;
	}
	md->cmd.type = STATE_CMD_POLICY;
	md->cmd.policy = (struct state_cmd_policy){.at = at, .policy = policy};
	metad__submit_change(md, on_policy, req, msg->id);
}
