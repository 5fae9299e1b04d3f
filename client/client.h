/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: the core of libcraton, asynchronous, on one loop and one thread; api.c wraps it as craton.h (threads, blocking calls), the
 * simulator drives it directly. Every function is called on the loop's thread. The caller owns each operation until its `done`, which is
 * called exactly once and never from inside the call that started it. `err` in a finished operation: code 0 or an err code and a line
 * that names path (and offset) and the next step.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include "client/craton.h"
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/io/io.h"
#include "common/rpc/replicas.h"

struct client;
struct client_file;

struct client_options {
	struct rpc_addrs metads;
	struct uuid cluster;
	const char *name;                /* for logs of the daemons; NULL: "client" */
	uint64_t timeout_ns;             /* 0: 30 s */
	uint64_t buffer_bytes;           /* 0: 192 MiB */
	const struct rpc_transform *transform;
	uint32_t ignore_servers;         /* see craton.h */
	uint32_t tail_bytes;             /* a file's last bytes, up to so many, are kept in the metadata; at most LIMIT_TAIL_BYTES */
};

struct client *client_new(struct io *io, const struct client_options *options);
void client_close(struct client *client, void (*closed)(void *ctx), void *ctx);

/* One operation on names or the whole store; see craton.h for meaning. Fields are read at start; results are set before `done`. */
enum client_op_kind {
	CLIENT_STAT, CLIENT_MKDIR, CLIENT_MKDIR_PARENTS, CLIENT_RMDIR, CLIENT_UNLINK, CLIENT_RENAME, CLIENT_SETATTR, CLIENT_READDIR,
	CLIENT_POLICY_GET, CLIENT_POLICY_SET, CLIENT_DF, CLIENT_GC, CLIENT_STATUS, CLIENT_CONFIG,
	CLIENT_LINK,                     /* path2: the new name */
	CLIENT_SYMLINK, CLIENT_READLINK, /* path2: the target; or buf, len -> count */
	CLIENT_TRUNCATE,                 /* to `offset` bytes */
	/* path2: the attribute; buf, len: its value; GET and LIST: room for it -> count, the value's or list's length */
	CLIENT_XATTR_SET, CLIENT_XATTR_GET, CLIENT_XATTR_LIST, CLIENT_XATTR_REMOVE,
	CLIENT_BACKUP,                   /* the next part: backup (0 at first) and offset in and out -> buf (mem_alloc'ed, the caller's), count, end */
	CLIENT_MEMBERS,                  /* flags: enum cr_meta_action; setting: member -> members */
	CLIENT_MAINTENANCE,              /* setting: server; offset: for so many ms, 0: no more */
	CLIENT_OPEN,                     /* -> ret_file */
	CLIENT_INSPECT,                  /* some blocks from `offset` on -> chunks, and `offset` to go on from, or `end` */
	CLIENT_READ, CLIENT_WRITE, CLIENT_FSYNC, CLIENT_CLOSE, CLIENT_ABORT, CLIENT_FSTAT,
};

/* client_op.flags of CLIENT_WRITE: done as soon as the bytes are copied; otherwise buf stays until they are committed. */
enum { CLIENT_WRITE_COPY = 1 };
/* client_op.flags of CLIENT_GC. */
enum { CLIENT_GC_START = 1 };
/* client_op.flags of CLIENT_MEMBERS, beside the action: who knows of no leader does not answer. */
enum { CLIENT_MEMBERS_LED = 1 << 16 };
/* client_op.flags of CLIENT_READ: read on ahead if reads are sequential. */
enum { CLIENT_READ_AHEAD = 1 };

struct client_op {
	enum client_op_kind kind;
	void (*done)(struct client_op *op);
	/* in */
	/* Absolute; "." and ".." are resolved as text. Where the directory is given: one name in it, or "" for itself (`inode`, `path`
	 * may then be any inode). READDIR goes on with `inode` alone once it has been found. */
	const char *path, *path2;
	uint64_t inode, inode2;          /* directories of path, path2; 0: the root */
	uint32_t flags, mode, mask;
	struct cr_stat attr;             /* SETATTR in; STAT, FSTAT, OPEN out */
	struct client_file *file;
	void *buf;                       /* READ: out; WRITE: in, stays until done */
	uint64_t len, offset;
	/* READDIR: names after `after`, up to entry_cap into entries */
	char after[CR_NAME_MAX + 1];
	struct cr_dirent *entries;
	uint32_t entry_cap;
	char policy[16];
	const char *setting, *value;     /* CONFIG: NULL: all; NULL: as it is */
	bool verify;                     /* INSPECT: read everything */
	uint64_t timeout_ns;             /* operations on names; 0: the client's */
	/* out */
	struct err err;
	uint64_t count;                  /* bytes read or written; entries */
	bool end;                        /* READDIR: no more entries */
	struct client_file *ret_file;
	struct cr_df df;
	struct cr_gc gc;
	struct cr_chunk_info *chunks;    /* INSPECT: `count` of them, one mem_alloc for all, the caller's */
	struct cr_members *members;      /* MEMBERS: the caller's, filled */
	uint64_t backup;                 /* BACKUP */
	char *json;                      /* STATUS, CONFIG: mem_alloc'ed, the caller's */
	void *user;
	uint64_t priv[48];               /* private */
};
void client_start(struct client *client, struct client_op *op);

#endif
