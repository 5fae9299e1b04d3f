/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_sim: the third back end of io.h: a whole cluster in one process and one thread, in virtual time. Each host has an address,
 * a clock, entropy and a file system of its own. All choices come from one seed: the same seed and the same program give the same
 * event-log hash, always.
 *
 * Disks: a write is visible at once and durable only by io_fdatasync / IO_SYNC / IO_DSYNC (names: by io_sync_dir). A crash keeps
 * what is durable; of each unsynced write (4 KiB sector by sector) it keeps, loses or tears by chance, or as told. Network: ordered
 * byte streams with latency and bandwidth; connections break by crash, reset and cut; bytes arrive in pieces of random sizes.
 */
#ifndef COMMON_IO_IO_SIM_H
#define COMMON_IO_IO_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/io/io.h"

struct sim;

/* What makes something durable: io_fdatasync or IO_SYNC; io_sync_dir; a write with IO_DSYNC. The path: as the file was opened. */
enum sim_sync { SIM_SYNC_FILE, SIM_SYNC_DIR, SIM_SYNC_WRITE };

struct sim_options {
	uint64_t seed;
	uint64_t net_latency_min_ns, net_latency_max_ns;   /* 0: 20 us .. 200 us */
	uint64_t disk_latency_min_ns, disk_latency_max_ns; /* 0: 30 us .. 500 us */
	uint64_t net_bytes_per_s, disk_bytes_per_s;        /* 0: 5e9, 2e9 */
	void (*transcript)(void *ctx, const char *line);   /* NULL, or a readable line for each event */
	/* NULL, or called at each sync, before it takes effect. */
	void (*synced)(void *ctx, struct io *host, enum sim_sync kind, const char *path);
	void *ctx;
};

struct sim *sim_new(const struct sim_options *options);
void sim_free(struct sim *sim);

/* A host that is up, with an empty disk of `disk_bytes` and the IPv4 address 10.0.0.N (N from 1, in order of creation). */
struct io *sim_host_add(struct sim *sim, const char *name, uint64_t disk_bytes);
struct io_addr sim_host_addr(struct io *host, uint16_t port);

/*
 * Crash: every operation of the host is dropped WITHOUT its `done` being called, its connections break. The objects that lived on
 * it are abandoned: their memory is forgotten, never closed (tests run without leak checking for them). Restart: the host is up
 * again, on what its disk kept; the caller starts its daemon anew.
 */
void sim_host_crash(struct io *host);
void sim_host_restart(struct io *host);
bool sim_host_is_up(const struct io *host);

/* What crashes of the host leave of what is not durable, names and writes in flight among it. */
enum sim_loss {
	SIM_LOSS_ANY,  /* each sector is kept, lost or torn, by chance */
	SIM_LOSS_ALL,  /* nothing of it stays */
	SIM_LOSS_TORN, /* most sectors are torn */
	SIM_LOSS_NONE, /* the process dies, not the host: all is seen as before, and no more durable than before */
};
void sim_set_loss(struct io *host, enum sim_loss loss);

/*
 * Crash at a sync: the nth next one of the host (n from 1; 0: none) does not come to pass. What the host was doing, however deep in
 * its own code, is broken off there, and `stopped` is called between two events: it crashes the host.
 */
void sim_stop_at_sync(struct io *host, uint64_t n, void (*stopped)(void *ctx), void *ctx);
/* Runs what a host does outside of sim_run, such as the start of a daemon. False: it was broken off at a sync; crash the host. */
bool sim_try(struct sim *sim, void (*run)(void *ctx), void *ctx);

/* Messages between a and b vanish (connections stall, then break at their users' deadlines) until healed. */
void sim_cut(struct io *a, struct io *b);
/* What goes from a to b alone vanishes, and neither connects to the other: a is not heard, and hears. */
void sim_cut_one_way(struct io *a, struct io *b);
void sim_heal(struct io *a, struct io *b);
/* All connections between a and b break; what was on its way may be lost. */
void sim_reset(struct io *a, struct io *b);
/* Each segment to and from the host takes up to so much longer: those of different connections overtake each other. 0: as before. */
void sim_net_delay(struct io *host, uint64_t most_ns);

/* Faults by countdown: the nth next disk write (or sync, or read) of the host fails with `code`. n from 1; 0 switches off. */
enum sim_fault { SIM_FAULT_READ, SIM_FAULT_WRITE, SIM_FAULT_SYNC };
void sim_fault_after(struct io *host, enum sim_fault what, uint64_t n, int code);
/* And so many more behind it. */
void sim_faults_after(struct io *host, enum sim_fault what, uint64_t n, uint64_t more, int code);
/* Every disk operation of the host takes `factor` times as long. */
void sim_disk_slow(struct io *host, uint32_t factor);
/* No disk operation of the host completes for so long. */
void sim_disk_stall(struct io *host, uint64_t ns);
/* No sector can be allocated any more: somebody else has filled the file system. */
void sim_disk_full(struct io *host, bool is_full);
/* Somebody else takes all room of the file system but for so much. UINT64_MAX: he gives it back. */
void sim_disk_leave(struct io *host, uint64_t bytes);
/* Everything below this directory of the root fails with `code`, as when a disk of several is gone. NULL: nothing does. */
void sim_dir_fail(struct io *host, const char *path, int code);
/* The same of reads only, as when a disk takes what is written and has lost what it held. */
void sim_dir_unreadable(struct io *host, const char *path, int code);
/* Files below this directory of the root only. One directory at a time. */
void sim_dir_stall(struct io *host, const char *path, uint64_t ns);
/* The next piece of work that the host has for a processor (IO_LANE_CPU) is done so much later, as on one that gets none. */
void sim_work_stall(struct io *host, uint64_t ns);
/* The host takes no turn for so long, as a machine that is paused: what completes meanwhile is delivered together then. Its disk goes on. */
void sim_host_pause(struct io *host, uint64_t ns);
void sim_wall_jump(struct io *host, int64_t delta_ns);
/* Flips one bit of a file as it lies on the host's disk, durable and visible. */
int sim_flip_bit(struct io *host, const char *path, uint64_t byte_offset, uint8_t bit);
int64_t sim_read_raw(struct io *host, const char *path, void *buf, size_t len, uint64_t offset);

/*
 * Runs events until `until(ctx)` is true, or until virtual time reaches at_most_ns (UINT64_MAX: until nothing is left to happen).
 * True: until() held.
 */
bool sim_run(struct sim *sim, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ns);
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_event_count(const struct sim *sim);
/* Of all events so far: kind, host, time, result, CRC of data. */
uint64_t sim_event_hash(const struct sim *sim);
/* Adds an event of the program's own to the log and the hash. */
void sim_note(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The simulation's own randomness, for workloads and schedules. */
uint64_t sim_random(struct sim *sim);

#endif
