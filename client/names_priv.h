/* SPDX-License-Identifier: Apache-2.0 */
/* names_priv: what names.c and names_store.c share: an operation under way, and what a kind of operation is. */
#ifndef CLIENT_NAMES_PRIV_H
#define CLIENT_NAMES_PRIV_H

#include "client/client_priv.h"

struct name_call {
	struct session_call call;
	struct client *client;
	struct client_op *op;
	const struct name_kind *kind;
	struct write_allocate *first; /* create */
	char path[CR_PATH_MAX], path2[CR_PATH_MAX];
	Craton__Policy policy;
	union {
		ProtobufCMessage base;
		Craton__LookupRequest lookup;
		Craton__ReaddirRequest readdir;
		Craton__MkdirRequest mkdir;
		Craton__RemoveRequest remove;
		Craton__RenameRequest rename;
		Craton__SetattrRequest setattr;
		Craton__PolicyRequest policy;
		Craton__CreateRequest create;
		Craton__LinkRequest link;
		Craton__SymlinkRequest symlink;
		Craton__TruncateRequest truncate;
		Craton__XattrSetRequest xattr_set;
		Craton__XattrRequest xattr;
		Craton__EmptyRequest empty;
		Craton__ConfigRequest config;
		Craton__GcRequest gc;
		Craton__BackupRequest backup;
		Craton__MembersRequest members;
		Craton__MaintenanceRequest maintenance;
	} request;
};

struct name_kind {
	const struct rpc_method *method;
	const char *verb;
	size_t id_at; /* where the request has its id; 0: it changes nothing, and may be repeated */
	bool has_path;
	int (*make)(struct name_call *n);                               /* 0 or op->err is set */
	void (*take)(struct name_call *n, const ProtobufCMessage *msg); /* an answer with status 0 */
};

/* Of an answer that cannot be right; and of one that says nothing beyond its status. */
int names__bad_answer(struct name_call *n);
void names__take_nothing(struct name_call *n, const ProtobufCMessage *msg);

/* NULL: not an operation on the whole store. */
const struct name_kind *names__store_kind(enum client_op_kind kind);
/* What a refusal says beyond its code; "" for nothing. */
const char *names__store_refusal(const struct name_call *n, const ProtobufCMessage *msg);

#endif
