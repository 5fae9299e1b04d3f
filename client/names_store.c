/* SPDX-License-Identifier: Apache-2.0 */
/* names_store: operations on the whole store, for the frame in names.c: its space, state, settings, garbage and backup. */
#include "client/names_priv.h"

#include <stdio.h>
#include <string.h>
#include "client/status_json.h"

static int make_config(struct name_call *n)
{
	Craton__ConfigRequest *r = &n->request.config;

	craton__config_request__init(r);
	if (n->op->setting)
		r->name = (char *)(uintptr_t)n->op->setting;
	if (n->op->value)
		r->value = (char *)(uintptr_t)n->op->value;
	return 0;
}

static int make_backup(struct name_call *n)
{
	craton__backup_request__init(&n->request.backup);
	n->request.backup.id = n->op->backup;
	n->request.backup.offset = n->op->offset;
	return 0;
}

static int make_maintenance(struct name_call *n)
{
	craton__maintenance_request__init(&n->request.maintenance);
	n->request.maintenance.server = (char *)(uintptr_t)n->op->setting;
	n->request.maintenance.for_ms = n->op->offset;
	return 0;
}

static int make_members(struct name_call *n)
{
	craton__members_request__init(&n->request.members);
	n->request.members.action = n->op->flags & ~(uint32_t)CLIENT_MEMBERS_LED;
	n->request.members.led = (n->op->flags & CLIENT_MEMBERS_LED) != 0;
	if (n->op->setting)
		n->request.members.member = (char *)(uintptr_t)n->op->setting;
	return 0;
}

static int make_empty(struct name_call *n)
{
	craton__empty_request__init(&n->request.empty);
	return 0;
}

static int make_gc(struct name_call *n)
{
	craton__gc_request__init(&n->request.gc);
	n->request.gc.start = (n->op->flags & CLIENT_GC_START) != 0;
	return 0;
}

static void take_df(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__DfReply *r = (const Craton__DfReply *)msg;

	n->op->df = (struct cr_df){
		.total_bytes = r->total_bytes,
		.free_bytes = r->free_bytes,
		.pending_bytes = r->pending_bytes,
		.file_count = r->file_count,
		.dir_count = r->dir_count,
		.file_bytes = r->file_bytes,
		.available_bytes = r->available_known || r->available_bytes ? r->available_bytes : CR_DF_UNKNOWN,
	};
}

static void take_gc(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__GcReply *r = (const Craton__GcReply *)msg;

	n->op->gc = (struct cr_gc){
		.pending_bytes = r->pending_bytes,
		.files_waiting = r->files_waiting,
		.copies_waiting = r->copies_waiting,
		.more_waiting = r->more_waiting,
		.grace_ms = r->grace_ms,
		.floor = r->floor,
		.next_block = r->next_block,
		.floor_in_ms = r->floor_in_ms,
		.copies_dropped = r->copies_dropped,
		.orphans_found = r->orphans_found,
		.missing_found = r->missing_found,
		.inventories = r->inventories,
		.inventories_refused = r->inventories_refused,
	};
}

static void take_member(struct cr_member *out, const Craton__MemberStatus *m)
{
	*out = (struct cr_member){.id = m->id,
		.term = m->term,
		.applied = m->applied,
		.match = m->match,
		.lag = m->lag,
		.silent_ms = m->silent_ms,
		.supports = m->supports,
		.same = m->same,
		.differs = m->differs};
	snprintf(out->name, sizeof(out->name), "%s", m->name);
	snprintf(out->address, sizeof(out->address), "%s", m->address);
	snprintf(out->role, sizeof(out->role), "%s", m->role);
	snprintf(out->state, sizeof(out->state), "%s", m->state);
}

static void take_members(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__MembersReply *r = (const Craton__MembersReply *)msg;
	struct cr_members *out = n->op->members;

	if (r->n_members > CR_MEMBERS_MAX) {
		names__bad_answer(n);
		return;
	}
	out->answered_by = r->answered_by;
	out->leader = r->leader;
	out->term = r->term;
	out->commit = r->commit;
	out->next_id = r->next_id;
	out->cluster_version = r->cluster_version;
	out->count = (uint32_t)r->n_members;
	for (size_t i = 0; i < r->n_members; i++)
		take_member(&out->members[i], r->members[i]);
}

static void take_status(struct name_call *n, const ProtobufCMessage *msg)
{
	n->op->json = status_json((const Craton__StatusReply *)msg);
	if (!n->op->json)
		names__bad_answer(n);
}

static void take_config(struct name_call *n, const ProtobufCMessage *msg)
{
	n->op->json = config_json((const Craton__ConfigReply *)msg);
	if (!n->op->json)
		names__bad_answer(n);
}

static void take_backup(struct name_call *n, const ProtobufCMessage *msg)
{
	const Craton__BackupReply *r = (const Craton__BackupReply *)msg;
	struct client_op *op = n->op;

	if (r->id == 0 || r->data.len == 0) {
		names__bad_answer(n);
		return;
	}
	op->buf = mem_alloc(r->data.len);
	memcpy(op->buf, r->data.data, r->data.len);
	op->count = r->data.len;
	op->backup = r->id;
	op->offset += r->data.len;
	op->end = r->end;
}

const char *names__store_refusal(const struct name_call *n, const ProtobufCMessage *msg)
{
	if (!msg)
		return "";
	switch (n->op->kind) {
	case CLIENT_CONFIG:
		return ((const Craton__ConfigReply *)msg)->error;
	case CLIENT_BACKUP:
		return ((const Craton__BackupReply *)msg)->error;
	case CLIENT_MEMBERS:
		return ((const Craton__MembersReply *)msg)->error;
	case CLIENT_MAINTENANCE:
		return ((const Craton__MaintenanceReply *)msg)->error;
	default:
		return "";
	}
}

static const struct name_kind kinds[] = {
	[CLIENT_DF] = {&rpc_metad_df, "df", 0, false, make_empty, take_df},
	[CLIENT_GC] = {&rpc_metad_gc, "gc", 0, false, make_gc, take_gc},
	[CLIENT_STATUS] = {&rpc_metad_status, "status", 0, false, make_empty, take_status},
	[CLIENT_CONFIG] = {&rpc_metad_config, "config", 0, false, make_config, take_config},
	[CLIENT_BACKUP] = {&rpc_metad_backup, "backup", 0, false, make_backup, take_backup},
	[CLIENT_MEMBERS] = {&rpc_metad_members, "meta", 0, false, make_members, take_members},
	[CLIENT_MAINTENANCE] = {&rpc_metad_maintenance, "maintenance", 0, false, make_maintenance, names__take_nothing},
};

const struct name_kind *names__store_kind(enum client_op_kind kind)
{
	return kind < ARRAY_COUNT(kinds) && kinds[kind].method ? &kinds[kind] : NULL;
}
