/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_priv: what the files of the mount share.
 *
 * Threads: one (mount_run's caller) reads the kernel's requests and starts a call of craton.h for each; the answers come in the
 * library's thread, which replies to the kernel; answers with many bytes are left to a third one, so that the library's thread, which
 * fetches and checks all that is read, does not copy them to the kernel as well. What they share is under `lock`.
 *
 * The kernel's node number is the store's inode number: there is no table of inodes and nothing to forget.
 */
#ifndef CLIENT_MOUNT_MOUNT_PRIV_H
#define CLIENT_MOUNT_MOUNT_PRIV_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "client/craton.h"
#include "client/mount/mount.h"
#include "common/base/limits.h"
#include "common/base/list.h"

enum { MOUNT_IO_BYTES = 1 << 20 }; /* greatest read or write of one request */

/* ---- attributes that the kernel was told (mount_req.c) ---- */

struct mount_told {
	uint64_t inode, size;
	int64_t mtime_ns, ctime_ns;
	uint64_t cuts; /* mount.cuts when this inode, or one that shares the place, got another length by other means than writing */
};

/* ---- buffers: made when first needed, then used again (first touch of fresh memory is dear) ---- */

struct mount_buf {
	struct mount_buf *next;
	struct fuse_buf fuse; /* of requests: libfuse allocates its memory */
	void *data;           /* of answers: MOUNT_IO_BYTES */
};

struct mount_pool {
	struct mount_buf *free;
	uint32_t made;
};

/* ---- files ---- */

/* A file being written (mount_writer.c), shared by all handles of this mount that may write to it. All of it under mount.lock. */
struct mount_writer {
	struct list link;     /* mount.writers */
	uint64_t inode;
	struct cr_file *file; /* NULL: nothing was written since it was flushed or cut */
	uint64_t end;         /* bytes accepted: where the next write must start */
	uint64_t synced;      /* bytes known to be committed */
	uint32_t refs;        /* handles, and requests in flight that need it */
	uint32_t writes;      /* requests in flight */
	int error;            /* errno of the first write that was lost; sticky */
	bool busy;            /* one request opens, closes or cuts the file ... */
	struct list queue;    /* ... for which these wait: mount_req.wait */
	bool unfinished;      /* synced, but not closed, and so not complete */
	uint64_t hidden_dir;  /* it was removed while it was written: there it lies under mount__hidden_name until the last handle goes; 0: no */
};

/* Tables of descriptors (one for the threads of a process) through which a handle was written to; the reading thread's. */
enum { MOUNT_OWNERS = 8 };
struct mount_owners {
	uint64_t ids[MOUNT_OWNERS];   /* as the kernel names them in fuse_file_info.lock_owner */
	uint32_t count;
	bool all;                     /* there were more: anybody may be one */
};

struct mount_handle {
	struct list link;             /* mount.open_files */
	uint64_t inode;
	struct cr_file *reader;       /* NULL: opened for writing only, or just created */
	struct mount_writer *writer;  /* NULL: opened for reading */
	uint64_t seen_cuts;           /* mount.cuts before it was opened: the reader may not know of later ones */
	struct mount_owners owners;
};

struct mount {
	struct fuse_session *session;
	struct cr_store *store;
	char *path;                   /* of the mount point */
	char device[32];
	uint32_t data_chunks, chunks; /* of the root's policy: what share of the raw space holds user data */
	pthread_mutex_t lock;
	pthread_cond_t freed;         /* a buffer was freed, or a request has ended */
	struct mount_pool in, out;
	struct mount_buf *current;    /* holds the request that is being started; the reading thread's */
	uint32_t requests, handles;
	struct list open_files, open_dirs; /* of both together: `handles` */
	struct list writers;
	struct list replies;          /* mount_req.reply: for the third thread */
	pthread_cond_t replies_wake;
	pthread_t replier;
	bool replier_stop;
	bool initialized;             /* the kernel's first request was answered; the reading thread's */
	bool reads_ahead;             /* the kernel does, far enough; set before the first file is opened */
	uint64_t cuts;                /* counts truncations */
	struct mount_told told[LIMIT_MOUNT_TOLD];
};

/* ---- one request ---- */

struct mount_req {
	struct cr_op op; /* first */
	struct mount *mount;
	fuse_req_t fuse;                     /* NULL: nobody waits for an answer */
	void (*answer)(struct mount_req *r); /* op has ended: go on or end */
	void (*failed)(struct mount_req *r, int error); /* what a failure has to undo; called once, answers by mount__req_error */
	uint64_t inode;
	struct cr_stat stat;
	struct cr_stat values;
	uint32_t mask;
	struct fuse_file_info fi;
	struct mount_handle *handle;
	struct mount_writer *writer;         /* a reference, put when the request ends */
	uint64_t sync_end;                   /* what the writer had accepted when its fsync was started */
	struct cr_file *file;
	struct mount_buf *in, *out;
	size_t len;
	uint64_t offset;
	const char *data;                    /* writes: in `in` */
	bool append;                         /* writes: at the end, wherever that is */
	bool is_write;                       /* counted in writer->writes */
	uint64_t cut;                        /* the length that the file is to get */
	void (*after)(struct mount_req *r);  /* what the writer's part of this request is followed by */
	struct list wait;                    /* mount_writer.queue */
	char *name;                          /* unlink, rename: in directory `inode` */
	uint64_t from_dir;                   /* rename: what is to get that name */
	char *from_name;
	bool hid;                            /* rename: it gave the file that it replaces its other name */
	bool plus;                           /* listings: with attributes */
	struct cr_df df;
	struct mount_dir *dir;
	struct list reply;
};

/* Counted: at LIMIT_MOUNT_REQUESTS no more are read from the kernel. */
struct mount_req *mount__req_new(struct mount *m, fuse_req_t fuse, void (*answer)(struct mount_req *r));
/* The next call of this request is about to be started. */
void mount__req_then(struct mount_req *r, void (*answer)(struct mount_req *r));
/* After the answer. */
void mount__req_end(struct mount_req *r);
/* Answers with the first `len` bytes of r->out and ends. */
void mount__req_data(struct mount_req *r, size_t len);
/* Answers with an errno (positive, 0: done) and ends. */
void mount__req_error(struct mount_req *r, int error);
/* The errno of r's call that has failed; 0: it has not. */
int mount__failure(const struct mount_req *r);

/* The third thread. 0 or a negative errno; it ends when all requests have. */
int mount__replier_start(struct mount *m);
void mount__replier_end(struct mount *m);

/* What is the matter when nobody is there to be told: one line. */
void mount__log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct mount_buf *mount__in_get(struct mount *m);    /* both wait for one; the reading thread only */
struct mount_buf *mount__out_get(struct mount *m);
struct mount_buf *mount__in_keep(struct mount *m);   /* the memory of the request being started now belongs to the caller */
void mount__in_put(struct mount *m, struct mount_buf *b);
void mount__out_put(struct mount *m, struct mount_buf *b);
void mount__pools_fini(struct mount *m);

/* ---- attributes ---- */

mode_t mount__type(uint8_t type); /* CR_TYPE_* to S_IF* */
/* For the kernel, which will believe them: with what a writer here has accepted beyond. */
void mount__attr(struct mount *m, const struct cr_stat *in, struct stat *out);
void mount__entry(struct mount *m, const struct cr_stat *in, struct fuse_entry_param *out);
/* A write has made the file so long for the kernel, too; with the lock held. */
void mount__told_grown(struct mount *m, uint64_t inode, uint64_t size);
/* The file got another length by other means than a write; with the lock held. */
void mount__told_cut(struct mount *m, uint64_t inode, uint64_t size);
uint64_t mount__told_cuts(struct mount *m);
/* True if there may have been one since mount__told_cuts() said so. */
bool mount__told_was_cut(struct mount *m, uint64_t inode, uint64_t since);
/* True if `in` is what the kernel was last told of this inode. */
bool mount__told_same(struct mount *m, const struct cr_stat *in);
/* True if the kernel may believe that the file has bytes behind `end`, or a writer here has them. */
bool mount__told_beyond(struct mount *m, uint64_t inode, uint64_t end);

/* ---- writers (mount_writer.c) ---- */

/* The one of this inode, or NULL; with the lock held. */
struct mount_writer *mount__writer_find(struct mount *m, uint64_t inode);
/* The same, with a reference more. */
struct mount_writer *mount__writer_get(struct mount *m, uint64_t inode);
/* The same, made if there is none: with this file open, or none, of this size. */
struct mount_writer *mount__writer_make(struct mount *m, uint64_t inode, struct cr_file *file, uint64_t size);
void mount__writer_put(struct mount *m, struct mount_writer *w);
/* It keeps the name that it had, after all: the hidden one goes. */
void mount__writer_named(struct mount *m, struct mount_writer *w);
/* True if there is one of any inode. */
bool mount__writers_any(struct mount *m);
/* Where a file lies that was removed while it was written. */
#define MOUNT_HIDDEN_PREFIX ".craton-removed-"
enum { MOUNT_HIDDEN_BYTES = 48 };
void mount__hidden_name(uint64_t inode, char ret_name[MOUNT_HIDDEN_BYTES]);
/* True: it has accepted bytes that are not committed; with the lock held. */
bool mount__writer_dirty(const struct mount_writer *w);
/* True: all that was asked to be written is committed, and the file complete; nothing is under way. */
bool mount__writer_settled(struct mount *m, const struct mount_writer *w);
/* The errno of the first write that was lost; 0: none was, as far as is known. */
int mount__writer_error(struct mount *m, const struct mount_writer *w);
/*
 * What r->writer is to do. Failures end the request; success goes on with `after`, in any thread. write: r->data, len, offset or append;
 * it answers itself. flush: commits and completes. sync: commits. cut: another length.
 */
void mount__writer_write(struct mount_req *r);
void mount__writer_flush(struct mount_req *r, void (*after)(struct mount_req *r));
void mount__writer_sync(struct mount_req *r, void (*after)(struct mount_req *r));
void mount__writer_cut(struct mount_req *r, uint64_t size, void (*after)(struct mount_req *r));
/* At the end, when no request is in flight: commits what was written and gives the files up. How many have failed. */
uint32_t mount__writers_end(struct mount *m);

/* What the kernel has never released. */
void mount__files_end(struct mount *m);
void mount__dirs_end(struct mount *m);

/* One more handle, into its list; false: there are too many. */
bool mount__handle_add(struct mount *m, struct list *handles, struct list *link);
void mount__handle_drop(struct mount *m, struct list *link);

/* Operations, by file; see fuse_lowlevel.h. */
void mount__name_ops(struct fuse_lowlevel_ops *ops);
void mount__dir_ops(struct fuse_lowlevel_ops *ops);
void mount__file_ops(struct fuse_lowlevel_ops *ops);
void mount__xattr_ops(struct fuse_lowlevel_ops *ops);
/* setattr is both: first mount_file.c cuts the file, or commits what a writer here has (which sets the time, too), ... */
void mount__resize(struct mount_req *r, uint64_t size);
void mount__settle(struct mount_req *r);
/* ... then mount_name.c does the rest and answers. */
void mount__setattr_rest(struct mount_req *r);

#endif
