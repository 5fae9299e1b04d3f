/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_impl: what the files of the simulator share. Private to common/io.
 *
 * sim.c       events, turns, operations, hash and transcript
 * sim_host.c  a machine: descriptors, clocks, memory, boot and crash
 * sim_fault.c what goes wrong on purpose
 * sim_net.c   connections
 * sim_disk.c  the bytes of files: what is visible, what is durable, what a crash leaves
 * sim_name.c  directories, open files, the synchronous calls
 *
 * Determinism: every choice comes from sim->rng in an order given by virtual time and order of calls; nothing is ever
 * decided by a pointer's value, by real time or by the order of a hash table.
 */
#ifndef COMMON_IO_SIM_IMPL_H
#define COMMON_IO_SIM_IMPL_H

#include <setjmp.h>
#include "common/base/rng.h"
#include "common/io/io_backend.h"
#include "common/io/io_heap.h"
#include "common/io/io_sim.h"

enum { SIM_HOSTS_MAX = 250, SIM_SECTOR = 4096, SIM_WORKERS_MAX = LIMIT_DISKS_PER_SERVER * LIMIT_DISK_CALLS };

struct sim_inode;

struct sim_event {
	struct io_heap_node node;
	void (*run)(struct sim *sim, struct sim_event *event);
} __attribute__((may_alias));

/* What io_op.slot holds here. */
struct sim_op {
	struct sim_event event;
	uint64_t progress;
	uint32_t crc; /* of what is sent or written: what is received and read follows from that */
	uint32_t stage;
	struct sim_host *host;
	void *object; /* open file, or the near end of a connection being made */
} __attribute__((may_alias));
_Static_assert(sizeof(struct sim_op) <= sizeof(((struct io_op *)0)->slot), "sim_op fits");

enum sim_fd_kind { SIM_FD_NONE, SIM_FD_FILE, SIM_FD_LISTENER, SIM_FD_END };
struct sim_fd {
	enum sim_fd_kind kind;
	void *object;
};

struct sim_fault_row {
	uint64_t left; /* operations until it strikes; 0: off */
	uint64_t more; /* so many times in a row, once it has */
	int code;
};

struct sim_disk {
	uint64_t sectors_total, sectors_used, sectors_taken; /* taken: by somebody else */
	uint64_t free_at_ns; /* when what was queued is transferred */
	uint32_t slow_factor;
	uint64_t next_inode;
	struct list inodes; /* all, in order of creation */
	struct sim_inode *root;
	struct sim_fault_row faults[3];
	bool is_full;
	uint64_t failing_tree; /* 0: none */
	int failing_code;
	bool failing_reads; /* and nothing else */
	uint64_t stalled_tree, stalled_until_ns;
	enum sim_loss loss;
	struct {
		uint64_t left; /* syncs until it strikes; 0: off */
		void (*stopped)(void *ctx);
		void *ctx;
	} stop;
};

struct sim_buffer {
	struct list link;
	void *data;
	size_t bytes;
};

struct sim_host {
	struct io io; /* first */
	struct sim *sim;
	char *name;
	uint32_t number; /* from 1 */
	bool is_up;
	uint32_t life; /* counts crashes */
	struct rng entropy;
	int64_t wall_offset_ns;

	struct sim_event turn;
	uint64_t busy_until_ns;
	uint64_t cost_ns;         /* of synchronous calls in this turn or offload */
	uint64_t workers[IO_LANE_KV + 1][SIM_WORKERS_MAX]; /* of each lane: when it is free */
	uint64_t work_stall_ns;   /* of the next piece of work for a processor */
	struct list ops;          /* with an event to come */
	struct list ready, batch; /* have their results; batch: of the turn at hand */
	struct io_post *post_first, **post_end;

	struct sim_fd *fds;
	size_t fd_cap;
	struct list buffers;
	struct list listeners;
	uint16_t next_port;
	uint64_t net_free_ns; /* when the network card has sent what was queued */
	uint64_t delay_ns;    /* at most, of each segment */
	uint32_t cut[SIM_HOSTS_MAX / 32 + 1];
	struct sim_disk disk;
};

struct sim {
	struct sim_options options;
	struct rng rng;      /* of the simulation */
	struct rng workload; /* sim_random */
	uint64_t now_ns;
	struct io_heap events;
	uint64_t event_count, event_hash;
	struct sim_host *hosts[SIM_HOSTS_MAX];
	uint32_t host_count;
	uint64_t next_conn;
	struct list buffers; /* that no host holds */
	jmp_buf *way_out;         /* of what runs now; NULL: nothing of a host does */
	struct sim_host *stopped; /* at a sync */
};

/* ---- sim.c ---- */

static inline struct sim_host *sim_host_of(struct io *io)
{
	return CONTAINER_OF(io, struct sim_host, io);
}

static inline uint64_t sim__disk_left(const struct sim_disk *disk)
{
	return disk->sectors_total - disk->sectors_used - disk->sectors_taken;
}

static inline struct sim_op *sim_op_of(struct io_op *op)
{
	return (struct sim_op *)op->slot;
}

static inline struct io_op *sim_op_of_event(struct sim_event *event)
{
	return CONTAINER_OF(CONTAINER_OF(event, struct sim_op, event), struct io_op, slot);
}

void sim__schedule(struct sim *sim, struct sim_event *event, uint64_t at_ns);
void sim__unschedule(struct sim *sim, struct sim_event *event); /* no-op if it is not scheduled */
/* The operation has its result; unlinks it from where it waited. */
void sim__ready(struct sim_host *host, struct io_op *op, int64_t result);
/* Waits for its event: in host->ops. */
void sim__op_later(
	struct sim_host *host, struct io_op *op, uint64_t at_ns, void (*run)(struct sim *, struct sim_event *));
/* One event for hash and transcript. host may be NULL. */
void sim__log(struct sim *sim, const struct sim_host *host, const char *what, int64_t a, int64_t result, uint32_t crc);
void sim__turn(struct sim *sim, struct sim_event *event);
/* Of the table of calls. */
void sim__submit(struct io *io, struct io_op *op);
void sim__cancel(struct io *io, struct io_op *op);
void sim__post(struct io *io, struct io_post *post);
void sim__hook_added(struct io *io);

/* ---- sim_host.c ---- */

/* An operation forgotten by a crash. */
void sim__drop_op(struct io_op *op);
/* At the end of the simulation: what descriptors name, of all hosts; then the hosts; then buffers that nobody holds. */
void sim__host_drop_fds(struct sim_host *host);
void sim__host_free(struct sim_host *host);
void sim__buffers_free(struct sim *sim);
int sim__fd_new(struct sim_host *host, enum sim_fd_kind kind, void *object);
void *sim__fd_get(struct sim_host *host, int fd, enum sim_fd_kind kind); /* NULL: not one of these */
void sim__fd_drop(struct sim_host *host, int fd);

/* ---- sim_fault.c ---- */

/* A sync is about to take effect: tells who listens, and does not return if the host is to stop here. */
void sim__sync_point(struct sim_host *host, enum sim_sync kind, const char *path);
/* 0 or the error that strikes an operation on the inode now. */
int sim__disk_fault(struct sim_host *host, const struct sim_inode *inode, enum sim_fault what);
/* The same for what no countdown counts. */
int sim__disk_broken(const struct sim_host *host, const struct sim_inode *inode);
/* How long nothing of the inode completes. */
uint64_t sim__disk_stalled_ns(const struct sim_host *host, const struct sim_inode *inode);

/* ---- sim_net.c ---- */

bool sim__net_submit(struct sim_host *host, struct io_op *op); /* false: not a network operation */
void sim__net_cancel(struct sim_host *host, struct io_op *op);
int sim__net_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err);
void sim__net_shutdown(struct io *io, int fd);
void sim__net_close(struct sim_host *host, enum sim_fd_kind kind, void *object);
void sim__net_crash_op(struct sim_host *host, struct io_op *op); /* a CONNECT that was under way */
void sim__net_crash_fd(struct sim_host *host, enum sim_fd_kind kind, void *object);
void sim__net_free_fd(enum sim_fd_kind kind, void *object); /* at the end of the simulation */
void sim__net_reset(struct sim_host *host, const struct sim_host *other);

/* ---- sim_disk.c ---- */

struct sim_inode *sim__inode_new(struct sim_disk *disk, bool is_dir);
void sim__inode_get(struct sim_inode *inode);
void sim__inode_put(struct sim_disk *disk, struct sim_inode *inode);
/* It ends at `bytes`, which it had at least. */
void sim__inode_truncate(struct sim_disk *disk, struct sim_inode *inode, uint64_t bytes);
uint64_t sim__inode_read(const struct sim_inode *inode, void *buf, size_t len, uint64_t offset);
int sim__inode_write(struct sim_disk *disk, struct sim_inode *inode, const struct iovec *iov, int iov_count,
	uint64_t offset, bool is_durable);
int sim__inode_allocate(struct sim_disk *disk, struct sim_inode *inode, uint64_t offset, uint64_t len);
/* A sync covers what was written before it began. */
void sim__inode_sync_begin(struct sim_inode *inode, uint64_t *ret_seq, uint64_t *ret_bytes);
void sim__inode_sync_end(struct sim_inode *inode, uint64_t seq, uint64_t bytes);
/* A failed one: what it covered stays visible, and no later sync makes it durable (as Linux does). */
void sim__inode_sync_failed(struct sim_inode *inode, uint64_t seq, bool is_direct);
void sim__inode_flip(struct sim_inode *inode, uint64_t offset, uint8_t bit);
void sim__inode_crash(struct sim *sim, struct sim_disk *disk, struct sim_inode *inode);
void sim__inode_free(struct sim_disk *disk, struct sim_inode *inode);

bool sim__disk_submit(struct sim_host *host, struct io_op *op); /* false: not a disk operation */
void sim__disk_cancel(struct sim_host *host, struct io_op *op);
void sim__disk_crash_op(struct sim_host *host, struct io_op *op); /* a write under way may have reached the disk */
void sim__disk_init(struct sim_disk *disk, uint64_t bytes);
void sim__disk_crash(struct sim_host *host);
void sim__disk_fini(struct sim_disk *disk);
/* How long an operation of so many bytes takes from now. */
uint64_t sim__disk_delay(struct sim_host *host, uint64_t bytes);
/* A synchronous call, of so many bytes, on the inode (NULL: there is none). */
void sim__disk_cost(struct sim_host *host, const struct sim_inode *inode, uint64_t bytes);

/* ---- sim_name.c ---- */

struct sim_dir_entry {
	char *name;
	struct sim_inode *inode; /* in a list of changes NULL: removed */
	char *gone;              /* in a list of changes: the name that a rename took away, or NULL */
};

struct sim_dir_list {
	struct sim_dir_entry *entries;
	size_t count, cap;
};

struct sim_file {
	struct sim_host *host;
	struct sim_inode *inode;
	char *path; /* that it was opened by */
	bool can_write, is_direct;
	uint32_t in_flight;
};

struct sim_inode {
	struct list link; /* in disk->inodes */
	uint64_t number;
	uint64_t tree; /* number of the directory of the root that it was made below; 0: the root */
	uint32_t refs;
	bool is_dir;
	/* a file */
	uint64_t bytes, durable_bytes;
	uint64_t write_seq;
	uint32_t syncs;        /* under way */
	uint64_t sync_max_seq; /* the latest that one of them covers */
	struct sim_sector_chunk **chunks;
	size_t chunk_count;
	struct list dirty;     /* sectors written and not synced */
	struct list forgotten; /* sectors whose sync failed */
	struct sim_file *locked_by;
	/* a directory: live = durable + changes */
	struct sim_dir_list live, durable, changes;
};

void sim__name_close(struct sim_host *host, struct sim_file *file);
void sim__name_abandon(struct sim_host *host, struct sim_file *file); /* a crash: operations may have been in flight */
void sim__name_crash(struct sim *sim, struct sim_disk *disk, struct sim_inode *dir);
void sim__name_free(struct sim_disk *disk, struct sim_inode *dir); /* its lists */
void sim__file_free(struct sim_file *file);
struct sim_inode *sim__name_find(struct sim_host *host, const char *path);
bool sim__file_takes(const struct sim_file *file, const struct iovec *iov, int iov_count, uint64_t offset);

int sim__name_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd);
int sim__name_size(struct io *io, int fd, uint64_t *ret_bytes);
int sim__name_allocate(struct io *io, int fd, uint64_t offset, uint64_t len);
int sim__name_truncate(struct io *io, int fd, uint64_t bytes);
int64_t sim__name_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset);
int64_t sim__name_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset);
int sim__name_fdatasync(struct io *io, int fd);
int sim__name_mkdir(struct io *io, const char *path, uint32_t mode);
int sim__name_rename(struct io *io, const char *from, const char *to);
int sim__name_unlink(struct io *io, const char *path);
int sim__name_sync_dir(struct io *io, const char *path);
int sim__name_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
int sim__name_lock(struct io *io, int fd);
int sim__name_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free);

#endif
