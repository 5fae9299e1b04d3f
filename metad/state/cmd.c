/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd: one writer and one reader for each command, side by side. Counts are checked against their limits before
 * anything is read into an array; a body must be used up to its last byte.
 */
#include "metad/state/cmd.h"

#include "common/base/check.h"
#include "common/base/err.h"
#include "common/code/ec.h"
#include "metad/state/cmd_codec.h"
#include "metad/state/config.h"

static void put_format(struct wcursor *w, const struct state_cmd *c)
{
	put_uuid(w, &c->format.cluster);
	put_policy(w, &c->format.policy);
	wcursor_bytes(w, c->format.salt, STATE_SALT_BYTES);
	wcursor_u64(w, (uint64_t)c->format.now_ns);
}

static void get_format(struct rcursor *r, struct state_cmd *c)
{
	get_uuid(r, &c->format.cluster);
	get_policy(r, &c->format.policy);
	rcursor_copy(r, c->format.salt, STATE_SALT_BYTES);
	c->format.now_ns = (int64_t)rcursor_u64(r);
}

static void put_tick(struct wcursor *w, const struct state_cmd *c)
{
	(void)w, (void)c;
}

static void get_tick(struct rcursor *r, struct state_cmd *c)
{
	(void)r, (void)c;
}

static void put_mkdir(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->mkdir.at);
	wcursor_u32(w, c->mkdir.mode);
	wcursor_u32(w, c->mkdir.uid);
	wcursor_u32(w, c->mkdir.gid);
	wcursor_u64(w, (uint64_t)c->mkdir.now_ns);
	wcursor_u8(w, c->mkdir.parents);
}

static void get_mkdir(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->mkdir.at);
	c->mkdir.mode = rcursor_u32(r);
	c->mkdir.uid = rcursor_u32(r);
	c->mkdir.gid = rcursor_u32(r);
	c->mkdir.now_ns = (int64_t)rcursor_u64(r);
	c->mkdir.parents = get_bool(r);
}

static void put_remove(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->remove.at);
	wcursor_u64(w, (uint64_t)c->remove.now_ns);
	wcursor_u8(w, c->remove.directory);
}

static void get_remove(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->remove.at);
	c->remove.now_ns = (int64_t)rcursor_u64(r);
	c->remove.directory = get_bool(r);
}

static void put_rename(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->rename.from);
	put_path(w, &c->rename.to);
	wcursor_u64(w, (uint64_t)c->rename.now_ns);
	wcursor_u8(w, c->rename.noreplace);
}

static void get_rename(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->rename.from);
	get_path(r, &c->rename.to);
	c->rename.now_ns = (int64_t)rcursor_u64(r);
	c->rename.noreplace = get_bool(r);
}

static void put_setattr(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->setattr.at);
	wcursor_u32(w, c->setattr.mask);
	wcursor_u32(w, c->setattr.mode);
	wcursor_u32(w, c->setattr.uid);
	wcursor_u32(w, c->setattr.gid);
	wcursor_u64(w, (uint64_t)c->setattr.mtime_ns);
	wcursor_u64(w, (uint64_t)c->setattr.now_ns);
}

static void get_setattr(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->setattr.at);
	c->setattr.mask = rcursor_u32(r);
	c->setattr.mode = rcursor_u32(r);
	c->setattr.uid = rcursor_u32(r);
	c->setattr.gid = rcursor_u32(r);
	c->setattr.mtime_ns = (int64_t)rcursor_u64(r);
	c->setattr.now_ns = (int64_t)rcursor_u64(r);
}

static void put_set_policy(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->policy.at);
	put_policy(w, &c->policy.policy);
}

static void get_set_policy(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->policy.at);
	get_policy(r, &c->policy.policy);
}

static void put_create(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->create.at);
	wcursor_u32(w, c->create.mode);
	wcursor_u32(w, c->create.uid);
	wcursor_u32(w, c->create.gid);
	wcursor_u64(w, (uint64_t)c->create.now_ns);
	wcursor_u8(w, c->create.exclusive);
	wcursor_u8(w, c->create.hidden);
}

static void get_create(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->create.at);
	c->create.mode = rcursor_u32(r);
	c->create.uid = rcursor_u32(r);
	c->create.gid = rcursor_u32(r);
	c->create.now_ns = (int64_t)rcursor_u64(r);
	c->create.exclusive = get_bool(r);
	c->create.hidden = get_bool(r);
}

static void put_receipt(struct wcursor *w, const struct state_receipt *receipt)
{
	wcursor_u8(w, receipt->index);
	wcursor_u32(w, receipt->disk);
	wcursor_u32(w, receipt->incarnation);
	wcursor_u64(w, receipt->generation);
}

static void get_receipt(struct rcursor *r, struct state_receipt *receipt)
{
	receipt->index = rcursor_u8(r);
	receipt->disk = rcursor_u32(r);
	receipt->incarnation = rcursor_u32(r);
	receipt->generation = rcursor_u64(r);
}

static void put_commit_block(struct wcursor *w, const struct state_commit_block *b)
{
	wcursor_u64(w, b->block);
	wcursor_u8(w, b->policy);
	wcursor_u8(w, b->receipt_count);
	wcursor_u32(w, b->cell_bytes);
	wcursor_u64(w, b->length);
	wcursor_u64(w, b->file_offset);
	for (int i = 0; i < b->width; i++) {
		wcursor_u32(w, b->crcs[i]);
		wcursor_u32(w, b->intended[i]);
	}
	for (int i = 0; i < b->receipt_count; i++)
		put_receipt(w, &b->receipts[i]);
}

static void get_commit_block(struct rcursor *r, struct state_commit_block *b)
{
	const struct ec_policy *policy;

	b->block = rcursor_u64(r);
	b->policy = rcursor_u8(r);
	b->receipt_count = rcursor_u8(r);
	b->cell_bytes = rcursor_u32(r);
	b->length = rcursor_u64(r);
	b->file_offset = rcursor_u64(r);
	policy = ec_policy_by_id(b->policy);
	if (!policy || b->receipt_count > policy->k + policy->m) {
		r->failed = true;
		return;
	}
	b->width = (uint8_t)(policy->k + policy->m);
	for (int i = 0; i < b->width; i++) {
		b->crcs[i] = rcursor_u32(r);
		b->intended[i] = rcursor_u32(r);
	}
	for (int i = 0; i < b->receipt_count; i++)
		get_receipt(r, &b->receipts[i]);
}

static void put_commit(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->commit.inode);
	wcursor_u64(w, c->commit.epoch);
	wcursor_u64(w, c->commit.size);
	wcursor_u64(w, (uint64_t)c->commit.now_ns);
	wcursor_u8(w, c->commit.complete);
	wcursor_u8(w, (uint8_t)c->commit.block_count);
	for (uint32_t i = 0; i < c->commit.block_count; i++)
		put_commit_block(w, &c->commit.blocks[i]);
}

static void get_commit(struct rcursor *r, struct state_cmd *c)
{
	c->commit.tail = (struct slice){0};
	c->commit.tail_offset = 0;
	c->commit.inode = rcursor_u64(r);
	c->commit.epoch = rcursor_u64(r);
	c->commit.size = rcursor_u64(r);
	c->commit.now_ns = (int64_t)rcursor_u64(r);
	c->commit.complete = get_bool(r);
	c->commit.block_count = rcursor_u8(r);
	if (c->commit.block_count > LIMIT_COMMIT_BLOCKS)
		r->failed = true;
	for (uint32_t i = 0; i < c->commit.block_count && !r->failed; i++)
		get_commit_block(r, &c->commit.blocks[i]);
}

static void put_commit_tail(struct wcursor *w, const struct state_cmd *c)
{
	put_commit(w, c);
	wcursor_u64(w, c->commit.tail_offset);
	put_bytes(w, c->commit.tail);
}

static void get_commit_tail(struct rcursor *r, struct state_cmd *c)
{
	get_commit(r, c);
	c->commit.tail_offset = rcursor_u64(r);
	c->commit.tail = get_bytes(r, LIMIT_TAIL_BYTES);
}

static void put_abort(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->abort.inode);
	wcursor_u64(w, c->abort.epoch);
}

static void get_abort(struct rcursor *r, struct state_cmd *c)
{
	c->abort.inode = rcursor_u64(r);
	c->abort.epoch = rcursor_u64(r);
}

static void put_reserve(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->reserve.count);
}

static void get_reserve(struct rcursor *r, struct state_cmd *c)
{
	c->reserve.count = rcursor_u64(r);
}

_Static_assert(LIMIT_DISKS_PER_SERVER <= 64, "a bit for each disk of a registration");

static void put_register(struct wcursor *w, const struct state_cmd *c)
{
	const struct state_cmd_register *g = &c->register_;
	uint64_t failed = 0;

	put_uuid(w, &g->uuid);
	put_bytes(w, g->name);
	put_bytes(w, g->address);
	put_bytes(w, g->domain);
	put_bytes(w, g->version);
	wcursor_u8(w, (uint8_t)g->disk_count);
	for (uint32_t i = 0; i < g->disk_count; i++) {
		put_uuid(w, &g->disks[i].uuid);
		wcursor_u32(w, g->disks[i].disk);
		wcursor_u64(w, g->disks[i].generation);
		wcursor_u64(w, g->disks[i].capacity_bytes);
		wcursor_u8(w, g->disks[i].storage_class);
		wcursor_bytes(w, g->disks[i].salt, STATE_SALT_BYTES);
		put_bytes(w, g->disks[i].path);
		failed |= (uint64_t)g->disks[i].failed << i;
	}
	if (failed)
		wcursor_u64(w, failed);
}

static void get_register(struct rcursor *r, struct state_cmd *c)
{
	struct state_cmd_register *g = &c->register_;
	uint64_t failed;
	bool said;

	get_uuid(r, &g->uuid);
	g->name = get_bytes(r, STATE_TEXT_BYTES - 1);
	g->address = get_bytes(r, STATE_TEXT_BYTES - 1);
	g->domain = get_bytes(r, STATE_TEXT_BYTES - 1);
	g->version = get_bytes(r, STATE_TEXT_BYTES - 1);
	g->disk_count = rcursor_u8(r);
	if (g->disk_count > LIMIT_DISKS_PER_SERVER) {
		r->failed = true;
		return;
	}
	for (uint32_t i = 0; i < g->disk_count && !r->failed; i++) {
		get_uuid(r, &g->disks[i].uuid);
		g->disks[i].disk = rcursor_u32(r);
		g->disks[i].generation = rcursor_u64(r);
		g->disks[i].capacity_bytes = rcursor_u64(r);
		g->disks[i].storage_class = rcursor_u8(r);
		rcursor_copy(r, g->disks[i].salt, STATE_SALT_BYTES);
		g->disks[i].path = get_bytes(r, STATE_TEXT_BYTES - 1);
	}
	said = rcursor_left(r) > 0;
	failed = said ? rcursor_u64(r) : 0;
	if (said && (!failed || (g->disk_count < 64 && failed >> g->disk_count)))
		r->failed = true; /* of none, or of disks that are not there: nobody writes that */
	for (uint32_t i = 0; i < g->disk_count; i++)
		g->disks[i].failed = failed >> i & 1;
}

static void put_server_down(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->server_down.server);
}

static void get_server_down(struct rcursor *r, struct state_cmd *c)
{
	c->server_down.server = rcursor_u32(r);
}

static void put_disk_failed(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->disk_failed.disk);
	wcursor_u64(w, c->disk_failed.generation);
	put_bytes(w, c->disk_failed.error);
}

static void get_disk_failed(struct rcursor *r, struct state_cmd *c)
{
	c->disk_failed.disk = rcursor_u32(r);
	c->disk_failed.generation = rcursor_u64(r);
	c->disk_failed.error = get_bytes(r, STATE_TEXT_BYTES - 1);
}

static void put_confirm(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->confirm.disk);
	wcursor_u64(w, c->confirm.generation);
}

static void get_confirm(struct rcursor *r, struct state_cmd *c)
{
	c->confirm.disk = rcursor_u32(r);
	c->confirm.generation = rcursor_u64(r);
}

static void put_token_roll(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_bytes(w, c->token_roll.salt, STATE_SALT_BYTES);
}

static void get_token_roll(struct rcursor *r, struct state_cmd *c)
{
	rcursor_copy(r, c->token_roll.salt, STATE_SALT_BYTES);
}

static void put_config_set(struct wcursor *w, const struct state_cmd *c)
{
	put_bytes(w, c->config_set.name);
	wcursor_u64(w, c->config_set.value);
}

static void get_config_set(struct rcursor *r, struct state_cmd *c)
{
	c->config_set.name = get_bytes(r, CONFIG_NAME_BYTES);
	c->config_set.value = rcursor_u64(r);
}

static void put_intent(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->intent.block);
	wcursor_u8(w, c->intent.index);
	wcursor_u8(w, c->intent.cause);
	wcursor_u32(w, c->intent.disk);
	wcursor_u32(w, c->intent.version);
}

static void get_intent(struct rcursor *r, struct state_cmd *c)
{
	c->intent.block = rcursor_u64(r);
	c->intent.index = rcursor_u8(r);
	c->intent.cause = rcursor_u8(r);
	c->intent.disk = rcursor_u32(r);
	c->intent.version = rcursor_u32(r);
	if (c->intent.cause < STATE_CAUSE_LOST || c->intent.cause > STATE_CAUSE_SPREAD)
		r->failed = true;
}

static void put_intent_end(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->intent_end.block);
	wcursor_u8(w, c->intent_end.index);
	wcursor_u32(w, c->intent_end.incarnation);
}

static void get_intent_end(struct rcursor *r, struct state_cmd *c)
{
	c->intent_end.block = rcursor_u64(r);
	c->intent_end.index = rcursor_u8(r);
	c->intent_end.incarnation = rcursor_u32(r);
}

static void put_sealed(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->sealed.block);
	wcursor_u32(w, c->sealed.version);
	wcursor_u32(w, c->sealed.crc);
	put_receipt(w, &c->sealed.receipt);
}

static void get_sealed(struct rcursor *r, struct state_cmd *c)
{
	c->sealed.block = rcursor_u64(r);
	c->sealed.version = rcursor_u32(r);
	c->sealed.crc = rcursor_u32(r);
	get_receipt(r, &c->sealed.receipt);
}

static void put_damaged(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->damaged.block);
	wcursor_u8(w, c->damaged.index);
	wcursor_u32(w, c->damaged.disk);
	wcursor_u32(w, c->damaged.incarnation);
}

static void get_damaged(struct rcursor *r, struct state_cmd *c)
{
	c->damaged.block = rcursor_u64(r);
	c->damaged.index = rcursor_u8(r);
	c->damaged.disk = rcursor_u32(r);
	c->damaged.incarnation = rcursor_u32(r);
}

static void put_take_out(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->take_out.disk);
}

static void get_take_out(struct rcursor *r, struct state_cmd *c)
{
	c->take_out.disk = rcursor_u32(r);
}

static void put_gc(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u8(w, c->gc.table);
	wcursor_u64(w, c->gc.from);
	wcursor_u64(w, c->gc.before_ms);
}

static void get_gc(struct rcursor *r, struct state_cmd *c)
{
	c->gc.table = rcursor_u8(r);
	c->gc.from = rcursor_u64(r);
	c->gc.before_ms = rcursor_u64(r);
}

static void put_forget_drops(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->forget_drops.disk);
	wcursor_u64(w, c->forget_drops.from);
}

static void get_forget_drops(struct rcursor *r, struct state_cmd *c)
{
	c->forget_drops.disk = rcursor_u32(r);
	c->forget_drops.from = rcursor_u64(r);
}

static void put_copies(struct wcursor *w, const struct state_cmd *c)
{
	CHECK(c->copies.count <= STATE_COPIES);
	wcursor_u32(w, c->copies.disk);
	wcursor_u64(w, c->copies.generation);
	wcursor_u16(w, (uint16_t)c->copies.count);
	for (uint32_t i = 0; i < c->copies.count; i++) {
		wcursor_u64(w, c->copies.copies[i].block);
		wcursor_u8(w, c->copies.copies[i].index);
		wcursor_u32(w, c->copies.copies[i].incarnation);
	}
}

static void get_copies(struct rcursor *r, struct state_cmd *c)
{
	c->copies.disk = rcursor_u32(r);
	c->copies.generation = rcursor_u64(r);
	c->copies.count = rcursor_u16(r);
	if (c->copies.count > STATE_COPIES)
		r->failed = true;
	for (uint32_t i = 0; i < c->copies.count && !r->failed; i++) {
		c->copies.copies[i].block = rcursor_u64(r);
		c->copies.copies[i].index = rcursor_u8(r);
		c->copies.copies[i].incarnation = rcursor_u32(r);
	}
}

static void put_raise(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u16(w, c->raise.version);
}

static void get_raise(struct rcursor *r, struct state_cmd *c)
{
	c->raise.version = rcursor_u16(r);
}

static void put_maintenance(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u32(w, c->maintenance.server);
	wcursor_u64(w, c->maintenance.for_ms);
}

static void get_maintenance(struct rcursor *r, struct state_cmd *c)
{
	c->maintenance.server = rcursor_u32(r);
	c->maintenance.for_ms = rcursor_u64(r);
}

static void put_restored(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_bytes(w, c->restored.salt, STATE_SALT_BYTES);
	if (c->restored.seen)
		wcursor_u32(w, c->restored.seen);
}

static void get_restored(struct rcursor *r, struct state_cmd *c)
{
	rcursor_copy(r, c->restored.salt, STATE_SALT_BYTES);
	c->restored.seen = 0;
	if (rcursor_left(r)) {
		c->restored.seen = rcursor_u32(r);
		if (!c->restored.seen)
			r->failed = true; /* none are not written */
	}
}

static const struct {
	void (*put)(struct wcursor *w, const struct state_cmd *cmd);
	void (*get)(struct rcursor *r, struct state_cmd *cmd);
} codecs[] = {
	[STATE_CMD_FORMAT] = {put_format, get_format},
	[STATE_CMD_TICK] = {put_tick, get_tick},
	[STATE_CMD_MKDIR] = {put_mkdir, get_mkdir},
	[STATE_CMD_REMOVE] = {put_remove, get_remove},
	[STATE_CMD_RENAME] = {put_rename, get_rename},
	[STATE_CMD_SETATTR] = {put_setattr, get_setattr},
	[STATE_CMD_POLICY] = {put_set_policy, get_set_policy},
	[STATE_CMD_CREATE] = {put_create, get_create},
	[STATE_CMD_COMMIT] = {put_commit, get_commit},
	[STATE_CMD_ABORT] = {put_abort, get_abort},
	[STATE_CMD_RESERVE] = {put_reserve, get_reserve},
	[STATE_CMD_REGISTER] = {put_register, get_register},
	[STATE_CMD_SERVER_DOWN] = {put_server_down, get_server_down},
	[STATE_CMD_DISK_FAILED] = {put_disk_failed, get_disk_failed},
	[STATE_CMD_CONFIRM] = {put_confirm, get_confirm},
	[STATE_CMD_TOKEN_ROLL] = {put_token_roll, get_token_roll},
	[STATE_CMD_RAISE] = {put_raise, get_raise},
	[STATE_CMD_CONFIG_SET] = {put_config_set, get_config_set},
	[STATE_CMD_MAINTENANCE] = {put_maintenance, get_maintenance},
	[STATE_CMD_RESTORED] = {put_restored, get_restored},
	[STATE_CMD_INTENT] = {put_intent, get_intent},
	[STATE_CMD_INTENT_END] = {put_intent_end, get_intent_end},
	[STATE_CMD_LOCATION] = {put_sealed, get_sealed},
	[STATE_CMD_DAMAGED] = {put_damaged, get_damaged},
	[STATE_CMD_TAKE_OUT] = {put_take_out, get_take_out},
	[STATE_CMD_GC] = {put_gc, get_gc},
	[STATE_CMD_DROPPED] = {put_copies, get_copies},
	[STATE_CMD_ORPHANS] = {put_copies, get_copies},
	[STATE_CMD_FORGET_DROPS] = {put_forget_drops, get_forget_drops},
	[STATE_CMD_MISSING] = {put_copies, get_copies},
	[STATE_CMD_SESSION_OPEN] = {state__put_session_open, state__get_session_open},
	[STATE_CMD_SESSION_END] = {state__put_session_end, state__get_session_end},
	[STATE_CMD_RELEASE] = {state__put_release, state__get_release},
	[STATE_CMD_OPEN_WRITE] = {put_create, get_create},
	[STATE_CMD_COMMIT_TAIL] = {put_commit_tail, get_commit_tail},
	[STATE_CMD_LINK] = {state__put_link, state__get_link},
	[STATE_CMD_SYMLINK] = {state__put_symlink, state__get_symlink},
	[STATE_CMD_XATTR_SET] = {state__put_xattr, state__get_xattr},
	[STATE_CMD_XATTR_REMOVE] = {state__put_xattr, state__get_xattr},
	[STATE_CMD_TRUNCATE] = {state__put_truncate, state__get_truncate},
};

void state_entry_encode(const struct state_entry *entry, uint8_t out[STATE_ENTRY_HEADER_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, STATE_ENTRY_HEADER_BYTES);
	wcursor_u8(&w, STATE_ENTRY_VERSION);
	wcursor_u8(&w, 0);
	wcursor_u16(&w, entry->cluster_version);
	wcursor_u32(&w, entry->count);
	wcursor_u64(&w, entry->time_ms);
	CHECK(!w.failed && w.len == STATE_ENTRY_HEADER_BYTES);
}

int state_entry_decode(struct rcursor *r, struct state_entry *ret_entry)
{
	uint8_t version = rcursor_u8(r), reserved = rcursor_u8(r);

	if (!r->failed && version != STATE_ENTRY_VERSION)
		return ERR_VERSION;
	ret_entry->cluster_version = rcursor_u16(r);
	ret_entry->count = rcursor_u32(r);
	ret_entry->time_ms = rcursor_u64(r);
	return r->failed || reserved ? ERR_CORRUPT : 0;
}

void state_cmd_encode(const struct state_cmd *cmd, struct wcursor *w)
{
	size_t start = w->len, len;
	struct wcursor header;

	CHECK(cmd->type < ARRAY_COUNT(codecs) && codecs[cmd->type].put);
	wcursor_zeros(w, STATE_CMD_HEADER_BYTES);
	if (cmd->request.session) {
		wcursor_u64(w, cmd->request.session);
		wcursor_u64(w, cmd->request.seq);
		wcursor_u8(w, cmd->request.ahead);
	}
	codecs[cmd->type].put(w, cmd);
	if (w->failed) {
		w->len = start;
		return;
	}
	len = w->len - start - STATE_CMD_HEADER_BYTES;
	wcursor_init(&header, w->data + start, STATE_CMD_HEADER_BYTES);
	wcursor_u16(&header, cmd->type);
	wcursor_u16(&header, cmd->request.session ? STATE_CMD_REQUEST : 0);
	wcursor_u32(&header, (uint32_t)len);
}

int state_cmd_decode(struct rcursor *r, struct state_cmd *ret_cmd)
{
	struct state_request *request = &ret_cmd->request;
	struct rcursor body;
	struct slice bytes;
	uint16_t flags;

	ret_cmd->type = rcursor_u16(r);
	flags = rcursor_u16(r);
	bytes = rcursor_slice(r, rcursor_u32(r));
	if (r->failed || flags & ~STATE_CMD_REQUEST)
		return ERR_CORRUPT;
	if (ret_cmd->type >= ARRAY_COUNT(codecs) || !codecs[ret_cmd->type].get)
		return ERR_VERSION;
	rcursor_init(&body, bytes.data, bytes.len);
	*request = (struct state_request){0};
	if (flags & STATE_CMD_REQUEST) {
		request->session = rcursor_u64(&body);
		request->seq = rcursor_u64(&body);
		request->ahead = rcursor_u8(&body);
		if (!request->session || request->ahead >= STATE_WINDOW || request->seq <= request->ahead)
			return ERR_CORRUPT;
	}
	codecs[ret_cmd->type].get(&body, ret_cmd);
	return rcursor_done(&body) ? 0 : ERR_CORRUPT;
}
