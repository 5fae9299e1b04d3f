/* SPDX-License-Identifier: Apache-2.0 */
/*
 * craton.h: the public interface of libcraton.
 *
 * A store is reached through one `struct cr_store`, a file through `struct cr_file`. Both are opaque. Every function may be
 * called from any thread; one file may be used by several threads at once, except that writes to it are taken in the order
 * in which the calls were made and nothing may be called on a handle after (or while) it is closed.
 *
 * Results: 0 or a count >= 0 on success, a negative errno value on failure. `cr_error()` then tells, for the calling thread,
 * in one line what went wrong and what to do. Errors of their own:
 *   -EIO         more chunks of a block are lost or corrupt than its policy can bear; the line names file and offset.
 *   -ENOSPC      no chunk server has room (only this write failed; the store goes on).
 *   -EOPNOTSUPP  a write that does not start where the last one ended.
 *   -ETIMEDOUT   the store did not answer within `timeout_ms`.
 *   -ESTALE      the file was replaced or its lease was taken over by another writer.
 *   -EMFILE      the client has 8192 files open.
 * A change whose answer was lost is asked for again until `timeout_ms`, and takes effect once. Only if the store has
 * meanwhile given this client up (a minute of silence) its outcome stays unknown; the line of cr_error() says so.
 * Out parameters are named `ret_x` and are written on success only.
 *
 * Writing: data become part of the file when `cr_fsync` or `cr_close` returns 0: then they are erasure coded on k+m disks,
 * each of which has synced them, and the metadata naming them is synced too. A file opened with CR_ATOMIC appears under its
 * name only then, whole; any older file of that name is replaced in the same instant. A file opened without it is visible
 * at once and reports `complete == 0` until it was closed.
 *
 * Reading: every byte returned was checked against a CRC32C that leads up to the proof in the metadata; lost or corrupt
 * chunks are rebuilt on the way. Never are other bytes returned than those acknowledged to the writer.
 */
#ifndef CRATON_H
#define CRATON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CR_NAME_MAX 255   /* bytes of one path component */
#define CR_PATH_MAX 4096  /* bytes of a path, final NUL included */

struct cr_store;
struct cr_file;
struct cr_dir;

/* Text for the last failure of a craton call in this thread; never NULL; valid until the next craton call of the thread. */
const char *cr_error(void);

/* "1.2.3" */
const char *cr_version(void);

/* ---- store ---- */

struct cr_options {
	const char *config;     /* path of craton.conf; NULL: CRATON_CONF, ~/.config/craton/craton.conf, /etc/craton/craton.conf */
	uint32_t timeout_ms;    /* greatest time one metadata call or one cell may take, retries included; 0: 30000 */
	uint64_t buffer_bytes;  /* memory for data in flight, all files together; 0: 192 MiB; at least 64 MiB */
	uint32_t ignore_servers; /* for measurements: what lies on the chunk servers with the numbers 1 to this one is read as if it were lost */
	uint32_t no_hello;      /* not 0: nothing is asked yet, the first call finds out whether metad answers */
};

/*
 * Reads the configuration, starts the library's threads, says hello to metad. `options` may be NULL. A metad that does not answer is waited
 * for as long as `timeout_ms` says if that is given, else for the configuration's time, but no longer than 3 s.
 */
int cr_connect(const struct cr_options *options, struct cr_store **ret_store);

/* Waits for calls in flight, aborts files still open for writing, frees everything. NULL is allowed. */
void cr_disconnect(struct cr_store *store);

/* ---- names ---- */

enum { CR_TYPE_FILE = 1, CR_TYPE_DIR = 2, CR_TYPE_SYMLINK = 3 };

struct cr_stat {
	uint64_t inode;
	uint64_t size;          /* bytes; directories: number of entries */
	int64_t mtime_ns;       /* since 1970, from the clock of the host that set it */
	int64_t ctime_ns;
	uint32_t mode;          /* POSIX permission bits */
	uint32_t uid, gid;
	uint32_t nlink;
	uint8_t type;           /* CR_TYPE_* */
	uint8_t complete;       /* files: 1 once closed by its writer */
};

int cr_stat(struct cr_store *store, const char *path, struct cr_stat *ret_stat);
int cr_mkdir(struct cr_store *store, const char *path, uint32_t mode);
int cr_mkdir_parents(struct cr_store *store, const char *path, uint32_t mode);  /* as mkdir -p */
int cr_rmdir(struct cr_store *store, const char *path);
int cr_unlink(struct cr_store *store, const char *path);

enum { CR_RENAME_NOREPLACE = 1 };
/* Atomic; replaces a file, or an empty directory by a directory, unless CR_RENAME_NOREPLACE. */
int cr_rename(struct cr_store *store, const char *from, const char *to, uint32_t flags);

enum { CR_SET_MODE = 1, CR_SET_UID = 2, CR_SET_GID = 4, CR_SET_MTIME = 8 };
int cr_setattr(struct cr_store *store, const char *path, uint32_t mask, const struct cr_stat *values);

/* Another name for a file; it goes with its last one. */
int cr_link(struct cr_store *store, const char *from, const char *to);
/* A symbolic link. The library never follows one: opening it is -ELOOP. */
int cr_symlink(struct cr_store *store, const char *target, const char *path);
/* The target's length (without a NUL); its bytes if they fit. -ERANGE: `size` is not 0 and too small. */
ssize_t cr_readlink(struct cr_store *store, const char *path, char *buf, size_t size);
/* Shorter: what is behind the new end is gone. Longer: reads find zeros there. Whoever is writing the file is fenced. */
int cr_truncate(struct cr_store *store, const char *path, uint64_t size);

/* Extended attributes of files and directories: at most 64 each, names and values of 32 KiB together (-ENOSPC). */
enum { CR_XATTR_CREATE = 1, CR_XATTR_REPLACE = 2 };  /* -EEXIST, -ENODATA */
int cr_setxattr(struct cr_store *store, const char *path, const char *name, const void *value, size_t size, uint32_t flags);
/* As readlink. -ENODATA: no such attribute. The list is names, each with its NUL. */
ssize_t cr_getxattr(struct cr_store *store, const char *path, const char *name, void *value, size_t size);
ssize_t cr_listxattr(struct cr_store *store, const char *path, char *list, size_t size);
int cr_removexattr(struct cr_store *store, const char *path, const char *name);

struct cr_dirent {
	char name[CR_NAME_MAX + 1];
	struct cr_stat stat;
};
/* Entries come in the byte order of their names; each entry that exists during the whole listing comes exactly once. */
int cr_opendir(struct cr_store *store, const char *path, struct cr_dir **ret_dir);
int cr_readdir(struct cr_dir *dir, struct cr_dirent *ret_entry);  /* 1: an entry; 0: the end; < 0: error */
void cr_closedir(struct cr_dir *dir);

/* ---- policies ---- */

/* Policy ("rs-4-2") under which new files in this directory are written; inherited from the nearest parent that has one. */
int cr_policy_get(struct cr_store *store, const char *path, char *ret_name, size_t name_bytes);
/* An empty name removes the directory's own policy. Existing files keep theirs. -EINVAL for an unknown policy. */
int cr_policy_set(struct cr_store *store, const char *path, const char *name);

/* ---- files ---- */

enum {
	CR_READ = 1,      /* open an existing file for reading */
	CR_WRITE = 2,     /* create a file, or replace all of an existing one, for sequential writing */
	CR_EXCL = 4,      /* with CR_WRITE: -EEXIST if the name exists */
	CR_ATOMIC = 8,    /* with CR_WRITE: the file appears under its name when it is closed */
	CR_SEQUENTIAL = 64, /* with CR_READ: asynchronous reads that follow one another are read ahead, too (one copy more) */
	CR_APPEND = 16,   /* with CR_WRITE: an existing file is kept and written on at its end; any earlier writer is fenced */
};

int cr_open(struct cr_store *store, const char *path, uint32_t flags, uint32_t mode, struct cr_file **ret_file);
int cr_fstat(struct cr_file *file, struct cr_stat *ret_stat);

/* Blocking. Reads up to `len` bytes at `offset`; fewer only at the end of the file. */
ssize_t cr_pread(struct cr_file *file, void *buf, size_t len, uint64_t offset);
/* Blocking. Appends all `len` bytes, which are copied (once) before the call returns. `offset` must be where the last one
 * ended, else -EOPNOTSUPP. An error of earlier data is reported by the next call, and by every later one: the file is then
 * good only for cr_abort. */
ssize_t cr_pwrite(struct cr_file *file, const void *buf, size_t len, uint64_t offset);
/* All bytes written so far are durable and part of the file. */
int cr_fsync(struct cr_file *file);
/* cr_fsync, then completes (CR_ATOMIC: publishes) the file. The handle is gone whatever is returned. */
int cr_close(struct cr_file *file);
/* Closes without publishing. A CR_ATOMIC file leaves no trace but space to be reclaimed. */
void cr_abort(struct cr_file *file);

/*
 * Asynchronous forms. The caller owns `op` and the buffer and keeps both untouched until `done` was called: exactly once, in
 * a thread of the library, never from inside the call that started it. `done` must not block nor call blocking functions of
 * this header; it may start other asynchronous ones and may free `op`. `op->result` is what the blocking form would return,
 * `op->error` what cr_error() would say. Nothing is copied: buffers given to cr_pwrite_async are encoded and sent in place.
 */
struct cr_op {
	void (*done)(struct cr_op *op);  /* set by the caller */
	void *user;                      /* for the caller */
	int64_t result;
	char error[256];
	void *cr_private[24];
};
void cr_pread_async(struct cr_file *file, void *buf, size_t len, uint64_t offset, struct cr_op *op);
/* `done` comes when the bytes are committed (as by fsync), which may wait for a block to fill: follow the last write by
 * cr_fsync_async or cr_close_async. */
void cr_pwrite_async(struct cr_file *file, const void *buf, size_t len, uint64_t offset, struct cr_op *op);
/* `done` comes when the bytes were copied, as of cr_pwrite: the buffer is the caller's again, the bytes are not durable yet. */
void cr_pwrite_copy_async(struct cr_file *file, const void *buf, size_t len, uint64_t offset, struct cr_op *op);
void cr_fsync_async(struct cr_file *file, struct cr_op *op);
void cr_close_async(struct cr_file *file, struct cr_op *op);

/*
 * ---- by inode ----
 *
 * For those who hold on to inodes, such as a file system: things are named by an inode number (cr_stat.inode), or by one name in a
 * directory (no path: "." and ".." and names with '/' are -EINVAL). An inode number is never used again, and stays good while the file
 * has a name; there is nothing to be given back. All of them are asynchronous and follow the rules of cr_op; names and values are copied
 * before they return, what `ret_x` points to stays the caller's and untouched until `done`, and is set on success only.
 */
#define CR_INODE_ROOT 1

/* -ENOENT, -ENOTDIR. */
void cr_lookup_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_stat *ret_stat, struct cr_op *op);
/* -ENOENT: it is gone. nlink 0: it was removed or replaced, and is still there for those who have it open. */
void cr_getattr_async(struct cr_store *store, uint64_t inode, struct cr_stat *ret_stat, struct cr_op *op);
/* mask: CR_SET_*. */
void cr_setattr_async(struct cr_store *store, uint64_t inode, uint32_t mask, const struct cr_stat *values,
                      struct cr_stat *ret_stat, struct cr_op *op);
/* Of `values` mode, uid and gid are taken. */
void cr_mkdir_async(struct cr_store *store, uint64_t dir, const char *name, const struct cr_stat *values,
                    struct cr_stat *ret_stat, struct cr_op *op);
void cr_unlink_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_op *op);
void cr_rmdir_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_op *op);
/* As cr_rename. */
void cr_rename_async(struct cr_store *store, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to,
                     uint32_t flags, struct cr_op *op);
/* As cr_truncate. */
void cr_truncate_async(struct cr_store *store, uint64_t inode, uint64_t size, struct cr_op *op);
void cr_link_async(struct cr_store *store, uint64_t inode, uint64_t to_dir, const char *to, struct cr_stat *ret_stat,
                   struct cr_op *op);
/* Of `values` uid and gid are taken. */
void cr_symlink_async(struct cr_store *store, const char *target, uint64_t dir, const char *name,
                      const struct cr_stat *values, struct cr_stat *ret_stat, struct cr_op *op);
/* These four as those without _async; op->result is the length. `value` and `list` stay the caller's until `done`. */
void cr_readlink_async(struct cr_store *store, uint64_t inode, char *buf, size_t size, struct cr_op *op);
void cr_getxattr_async(struct cr_store *store, uint64_t inode, const char *name, void *value, size_t size, struct cr_op *op);
void cr_listxattr_async(struct cr_store *store, uint64_t inode, char *list, size_t size, struct cr_op *op);
void cr_setxattr_async(struct cr_store *store, uint64_t inode, const char *name, const void *value, size_t size,
                       uint32_t flags, struct cr_op *op);
void cr_removexattr_async(struct cr_store *store, uint64_t inode, const char *name, struct cr_op *op);
/* Up to `count` entries whose names come behind `after` ("": all), with their attributes; op->result is how many. */
void cr_readdir_async(struct cr_store *store, uint64_t dir, const char *after, struct cr_dirent *entries,
                      uint32_t count, int *ret_end, struct cr_op *op);
/* An existing file; flags: CR_READ, with or without CR_SEQUENTIAL, or CR_WRITE | CR_APPEND. nlink 0: it has lost its last name, and
 * is still there (for reading) for those who have it open. */
void cr_open_async(struct cr_store *store, uint64_t inode, uint32_t flags, struct cr_file **ret_file,
                   struct cr_stat *ret_stat, struct cr_op *op);
/* As cr_open with CR_WRITE; flags: CR_EXCL, CR_ATOMIC or none. Of `values` mode, uid and gid are taken. */
void cr_create_async(struct cr_store *store, uint64_t dir, const char *name, uint32_t flags, const struct cr_stat *values,
                     struct cr_file **ret_file, struct cr_stat *ret_stat, struct cr_op *op);

/* ---- looking inside ---- */

enum cr_chunk_state {
	CR_CHUNK_OK = 0,        /* present (verify: and every unit read and right) */
	CR_CHUNK_MISSING = 1,   /* never sealed, or its disk does not have it */
	CR_CHUNK_DOWN = 2,      /* its server does not answer */
	CR_CHUNK_CORRUPT = 3,   /* found so and not made anew yet; verify: `bad_units` or `bad_trailer` say where */
};

struct cr_chunk_info {
	uint64_t block;
	uint64_t file_offset;      /* of the block's first byte */
	uint64_t block_bytes;
	char policy[16];
	uint8_t k, m;
	uint8_t index;             /* 0..k-1 data, k..k+m-1 parity */
	uint8_t state;             /* enum cr_chunk_state */
	int8_t margin;             /* of the block: chunks that may still be lost; -1 or less: bytes are lost */
	uint8_t crowded;           /* of the block */
	uint8_t bad_trailer;
	uint32_t disk, server;
	char server_name[64];
	char segment[256];         /* path of the segment file on its server; empty if unknown */
	uint64_t segment_offset;   /* of the chunk's first byte in it */
	uint64_t chunk_bytes;
	uint64_t trailer_offset;   /* in the segment file */
	uint32_t trailer_bytes;
	const uint32_t *bad_units; /* numbers of 16 KiB units of this chunk; valid during the callback */
	uint32_t bad_unit_count;
};
/* Calls `each` for every chunk, block by block; stops and returns its result if that is not 0. */
int cr_inspect(struct cr_store *store, const char *path, int verify,
               int (*each)(const struct cr_chunk_info *chunk, void *user), void *user);

#define CR_DF_UNKNOWN UINT64_MAX
struct cr_df {
	uint64_t total_bytes, free_bytes;   /* raw, of all disks that are not failed */
	uint64_t pending_bytes;             /* raw, of deleted data not reclaimed yet */
	uint64_t file_count, dir_count;
	uint64_t file_bytes;                /* user data */
	uint64_t available_bytes;           /* user data that fits yet, under the root's policy; of the free space some is kept for repair.
	                                       CR_DF_UNKNOWN: an older metad does not say */
};
int cr_df(struct cr_store *store, struct cr_df *ret_df);
void cr_df_async(struct cr_store *store, struct cr_df *ret_df, struct cr_op *op);

/* What was deleted and is not reclaimed yet; counts of work are since metad started. */
struct cr_gc {
	uint64_t pending_bytes;             /* raw */
	uint64_t files_waiting;             /* removed, replaced, given up or cut files whose blocks are still there */
	uint64_t copies_waiting;            /* chunks that are to be dropped on some disk */
	int more_waiting;                   /* there are more of both than were counted */
	uint64_t grace_ms;                  /* between the last name of a chunk and its drop */
	uint64_t floor, next_block;         /* block ids below the floor are closed: copies of them that nothing names are garbage */
	uint64_t floor_in_ms;               /* until the floor may rise; 0: nothing is above it, or it may now */
	uint64_t copies_dropped, orphans_found, missing_found, inventories, inventories_refused;
};
/* start: what was deleted so far does not wait for readers any more, and chunk servers take an inventory now. */
int cr_gc(struct cr_store *store, int start, struct cr_gc *ret_gc);

/* The status of the whole store as one JSON object (docs/cli.md names its fields); free() it. */
int cr_status_json(struct cr_store *store, char **ret_json);

/*
 * Settings of the store, as one JSON object (docs/cli.md); free() it. name NULL: all. With a value ("10m", "yes", "64K",
 * "default") the setting is changed first. -ENOENT: no such setting; -EINVAL, -ERANGE: the value, cr_error() says why.
 */
int cr_config_json(struct cr_store *store, const char *name, const char *value, char **ret_json);

/*
 * A backup of the metadata, as they are now, while the store goes on: `each` gets it part by part (a header, then sections; docs/FORMATS.md)
 * and stops it by returning another number than 0, which is then the result. -EBUSY: another one is being made. What was received is a
 * backup only if 0 is returned.
 */
int cr_meta_backup(struct cr_store *store, int (*each)(const void *data, size_t len, void *user), void *user);

/*
 * The metads of the store. Whoever leads answers; without a leader whoever is asked first, with what it knows by itself. A store of one metad is a
 * group of one, whose id is 0.
 */
enum { CR_MEMBERS_MAX = 9 };
struct cr_member {
	uint64_t id, term;
	uint64_t applied, match, lag; /* log entries: durable there and committed; durable there; that it lacks */
	uint64_t silent_ms;
	char name[64], address[64];
	char role[16];  /* leader, follower, learner (catches up, does not vote yet), candidate, unknown */
	char state[16]; /* up, down, unknown */
	uint32_t supports; /* the greatest cluster version that its build knows; 0: not known just now */
	/* Not 0: its metadata are others than those of who answers since some log entry behind `same` and up to `differs`. */
	uint64_t same, differs;
};
struct cr_members {
	uint64_t answered_by, leader; /* ids; leader 0: not known */
	uint64_t term, commit, next_id;
	uint32_t cluster_version; /* of the metadata; 0: not known */
	uint32_t count;
	struct cr_member members[CR_MEMBERS_MAX];
};
enum cr_meta_action {
	CR_META_SAY = 0,
	CR_META_TRANSFER, /* leadership goes to `member` (name, id or address); NULL: to whoever has most of the log */
	CR_META_SNAPSHOT, /* who leads writes its table out now */
	CR_META_ADD,      /* `member`: address of one that waits to be added. It is a learner at first, and votes when it has caught up */
	CR_META_REMOVE,   /* `member`; if it leads, another one takes over first */
};
/* -EBUSY, -EINVAL, -ENOENT: refused, cr_error() says why. */
int cr_meta_members(struct cr_store *store, enum cr_meta_action action, const char *member, struct cr_members *ret_members);

/*
 * The server, by name or number, may be away for so long (24 h at most; 0: no more) without its chunks being rebuilt elsewhere. -EBUSY:
 * one of another failure domain is away already.
 */
int cr_server_maintenance(struct cr_store *store, const char *server, uint64_t for_ms);

#ifdef __cplusplus
}
#endif
#endif
