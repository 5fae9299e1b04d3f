/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io: THE contract with the kernel. Everything that waits, persists, sends, tells the time or draws entropy goes through here.
 *
 * A `struct io` is one event loop: one thread of a real process, or one host in the simulator. The caller owns every operation
 * (`struct io_op`, embedded in its parent), fills it with one of the io_prep_* functions and gives it away with io_submit:
 *
 *     idle --io_submit--> submitted --(kernel)--> done(op) called exactly once --> idle
 *                             \--io_cancel: done comes sooner, with ERR_CANCELED or with the real result if that won the race
 *
 * `done` is called from io_run only, never from inside io_submit or io_cancel; it may submit the same op again and may free its
 * parent. A cancel is not a completion: buffers belong to the kernel until `done`. Nothing here is thread-safe except io_post,
 * io_clock_ns and, where said so, the synchronous file functions.
 *
 * A *turn* of the loop: all completions at hand are delivered, then the turn hooks run (work gathered during the turn leaves as
 * one log write, one send), then new operations go to the kernel with one system call.
 *
 * Back ends: io_uring.c, io_epoll.c (where io_uring is forbidden, as in most containers; files by offload), io_sim.c (virtual
 * time, network and disks). Results are counts >= 0 or err codes (common/base/err.h).
 */
#ifndef COMMON_IO_IO_H
#define COMMON_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "common/base/err.h"
#include "common/base/list.h"

struct log;

struct io;
struct io_op;
typedef void io_done_fn(struct io_op *op);

/* ---- addresses ---- */

enum { IO_ADDR_TEXT_BYTES = 64 };

struct io_addr {
	uint8_t family;   /* 0 none, 4, 6 */
	uint16_t port;    /* host order */
	uint8_t ip[16];   /* network order; IPv4 in the first four bytes */
};

/* "127.0.0.1:7000", "[::1]:7000"; numeric only. ERR_INVAL. */
int io_addr_parse(const char *text, struct io_addr *ret_addr);
const char *io_addr_format(const struct io_addr *addr, char text[IO_ADDR_TEXT_BYTES]);
bool io_addr_equal(const struct io_addr *a, const struct io_addr *b);
bool io_addr_is_loopback(const struct io_addr *addr);

/* ---- operations ---- */

enum io_kind {
	IO_READ = 1, /* result: bytes; short only at end of file */
	IO_WRITE,    /* result: all bytes or an error; IO_DSYNC: durable when done (RWF_DSYNC) */
	IO_SYNC,     /* fdatasync: covers writes completed before it was submitted */
	IO_ACCEPT,   /* result: new connection's fd (TCP_NODELAY set); peer in op->accept.peer */
	IO_CONNECT,  /* result: new connection's fd (TCP_NODELAY set) */
	IO_SEND,     /* result: all bytes or an error */
	IO_RECV,     /* result: bytes > 0 (all of them with IO_RECV_ALL), 0: peer closed before the first byte, or an error */
	IO_TIMER,    /* result: 0 when due; ERR_CANCELED */
	IO_OFFLOAD,  /* result: 0; op->offload.run was called on a worker thread (the simulator: inline, cost in virtual time) */
};

enum { IO_DSYNC = 1, IO_RECV_ALL = 2 };

enum io_lane {
	IO_LANE_CPU,   /* encoding, checksums: a few workers, at most the number of cores */
	IO_LANE_FILE,  /* blocking file-system calls: workers for LIMIT_DISK_CALLS of each disk that a server may have */
	IO_LANE_KV,    /* commits of a kv, one of each at a time: a worker for each disk, and which one does the next is not said */
};

struct io_op {
	uint32_t magic;   /* private */
	uint8_t kind;     /* enum io_kind */
	uint8_t state;    /* private */
	uint16_t flags;
	int fd;
	io_done_fn *done;
	int64_t result;
	union {
		struct {
			const struct iovec *iov; /* caller's, unchanged and valid until done */
			int iov_count;           /* <= IO_IOV_MAX */
			uint64_t offset;
		} rw;                            /* READ, WRITE, SEND, RECV (the last two without offset) */
		struct {
			struct io_addr peer;
		} accept;
		struct {
			struct io_addr to;
		} connect;
		struct {
			uint64_t at_ns;          /* io_now_ns scale */
		} timer;
		struct {
			void (*run)(struct io_op *op);
			uint8_t lane;            /* enum io_lane */
		} offload;
	};
	struct list link;                        /* private */
	uint64_t slot[8];                        /* private to the back end */
};

enum { IO_IOV_MAX = 64 };

void io_prep_read(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint64_t offset, io_done_fn *done);
void io_prep_write(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint64_t offset, uint16_t flags,
                   io_done_fn *done);
void io_prep_sync(struct io_op *op, int fd, io_done_fn *done);
void io_prep_accept(struct io_op *op, int fd, io_done_fn *done);
void io_prep_connect(struct io_op *op, const struct io_addr *to, io_done_fn *done);
void io_prep_send(struct io_op *op, int fd, const struct iovec *iov, int iov_count, io_done_fn *done);
void io_prep_recv(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint16_t flags, io_done_fn *done);
void io_prep_timer(struct io_op *op, uint64_t at_ns, io_done_fn *done);
void io_prep_offload(struct io_op *op, enum io_lane lane, void (*run)(struct io_op *op), io_done_fn *done);

void io_submit(struct io *io, struct io_op *op);
/* For an op that is submitted and not done; otherwise a no-op. */
void io_cancel(struct io *io, struct io_op *op);
/* True between io_submit and the start of `done`; false for a zeroed op. */
bool io_pending(const struct io_op *op);
/* Of a read, write, send or receive: as prepared, not what was done of it. */
size_t io_op_bytes(const struct io_op *op);

/* ---- the loop ---- */

struct io_turn_hook {
	void (*run)(struct io_turn_hook *hook);
	struct list link;
};
void io_turn_hook_init(struct io_turn_hook *hook, void (*run)(struct io_turn_hook *hook));
/* Runs once at the end of the current turn; adding an already added hook is a no-op. Hooks may add hooks: same turn. */
void io_at_turn_end(struct io *io, struct io_turn_hook *hook);
/* Before the hook's owner is freed; a no-op if it was not added. */
void io_turn_hook_remove(struct io *io, struct io_turn_hook *hook);

struct io_post {
	void (*run)(struct io_post *post);
	struct io_post *next; /* private */
};
/* From any thread: `run` is called on the loop's thread, in order of posting. Wakes the loop. */
void io_post(struct io *io, struct io_post *post);

/*
 * Real back ends: runs until io_stop; returns 0 or the error that ended the loop. Every io_run of a loop is called by the same
 * thread; setting up before the first one may be another's. Nothing submitted goes to the kernel before it.
 */
int io_run(struct io *io);
void io_stop(struct io *io);

uint64_t io_now_ns(struct io *io);              /* monotonic, of this turn (cached) */
uint64_t io_clock_ns(struct io *io);            /* monotonic, read now; thread-safe */
void io_worker_rest(uint64_t ns);               /* a worker sleeps, so that others get its processor; no loop that serves; thread-safe */
int64_t io_wall_ns(struct io *io);              /* since 1970; may jump; serves mtime and ctime, and where members of a group take turns */
void io_random(struct io *io, void *out, size_t len); /* secrets: getrandom; the simulator: seeded */

/* ---- sockets, synchronous parts ---- */

/* Port 0: any; *ret_bound tells. ERR_ADDRINUSE and the like, with the address in err's text. */
int io_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err);
/*
 * For the start of a daemon: an address in use is tried again for 10 s, blocking, which `log` is told. The kernel may hold the port of a
 * process that was killed a little longer than it lived, for io_uring is taken down behind it. ERR_STOPPED: io_stop, or a signal that stops the loop,
 * came meanwhile.
 */
int io_listen_wait(struct io *io, const struct io_addr *addr, const struct log *log, int *ret_fd, struct io_addr *ret_bound, struct err *err);
/* Any fd. No operation may be in flight on it. */
void io_close(struct io *io, int fd);
/* Ends both directions: pending receives and sends complete with 0 or ERR_CONNRESET. */
void io_shutdown(struct io *io, int fd);

/* ---- files, synchronous parts: start-up, and inside offload `run` functions (these are thread-safe) ---- */

enum {
	IO_OPEN_WRITE = 1,   /* else read only */
	IO_OPEN_CREATE = 2,
	IO_OPEN_EXCL = 4,
	IO_OPEN_DIRECT = 8,  /* O_DIRECT; ERR_INVAL where the file system has none: the caller decides on the fallback */
	IO_OPEN_TRUNCATE = 16,
	IO_OPEN_OWN = 32,    /* ERR_PERM unless it is a file, not a link, of the user who runs this */
};
enum { IO_DIRECT_ALIGN = 4096 }; /* of memory, offset and length of every I/O on a direct fd */

int io_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd);
int io_size(struct io *io, int fd, uint64_t *ret_bytes);
/* fallocate without emulation: blocks are reserved, size grows to offset + len, content zero. ERR_NOSPC, ERR_OPNOTSUPP. */
int io_allocate(struct io *io, int fd, uint64_t offset, uint64_t len);
/* The file ends at `bytes`, which it had at least: what was behind is gone, and its blocks are free. Not durable by itself. */
int io_truncate(struct io *io, int fd, uint64_t bytes);
int64_t io_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset);        /* all, or less at the end of file */
int64_t io_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset); /* all or error */
int io_fdatasync(struct io *io, int fd);
int io_mkdir(struct io *io, const char *path, uint32_t mode);   /* ERR_EXIST */
int io_rename(struct io *io, const char *from, const char *to);
int io_unlink(struct io *io, const char *path);
int io_sync_dir(struct io *io, const char *path);               /* makes creations, renames and removals in it durable */
int io_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx); /* byte order */
int io_lock(struct io *io, int fd);                              /* exclusive, advisory, until close; ERR_BUSY */
int io_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free);
/* Whole file into a mem_alloc'ed string with a NUL behind; ERR_FBIG beyond max_bytes. */
int io_read_file(struct io *io, const char *path, size_t max_bytes, char **ret_text, size_t *ret_len);
/* Atomic and durable replacement: temporary file, sync, rename, directory sync. */
int io_write_file(struct io *io, const char *path, const void *data, size_t len, uint32_t mode);

/* ---- buffers for bulk data ---- */

/*
 * Aligned to 4 KiB (2 MiB where large), touched once at creation (first touch of fresh memory is dear) and, where the back end
 * can, registered with the kernel, which I/O to or from them then uses by itself. Free before io_free.
 */
void *io_buffer_alloc(struct io *io, size_t bytes);
void io_buffer_free(struct io *io, void *buf, size_t bytes);

/* ---- back ends ---- */

enum io_backend { IO_BACKEND_AUTO, IO_BACKEND_URING, IO_BACKEND_EPOLL };

/* AUTO: io_uring where the kernel lets us, else epoll. CRATON_IO=uring|epoll in the environment overrides AUTO. */
int io_new(enum io_backend backend, struct io **ret_io, struct err *err);
/*
 * For experiments (tests/faulty): `fault` is "slow-disk=N": every operation on a file takes N times as long as it would; NULL or empty: none
 * does. Before the first operation; not in the simulator. ERR_INVAL.
 */
int io_slow_down(struct io *io, const char *fault, struct err *err);
bool io_is_slowed(const struct io *io);
void io_free(struct io *io);                       /* not from inside the loop; no operation may be in flight */
const char *io_backend_name(const struct io *io);  /* "uring", "epoll", "sim" */
bool io_is_simulated(const struct io *io);

/* SIGINT and SIGTERM call io_stop on this loop; SIGPIPE is ignored. Once per process. */
int io_stop_on_signals(struct io *io);

#endif
