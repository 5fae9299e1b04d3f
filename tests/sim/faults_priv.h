/* SPDX-License-Identifier: Apache-2.0 */
/* faults_priv: what the files of the faults share. */
#ifndef TESTS_SIM_FAULTS_PRIV_H
#define TESTS_SIM_FAULTS_PRIV_H

#include "tests/sim/faults.h"

enum { FAULTS_LINKS_MAX = CLUSTER_NODES_MAX * CLUSTER_NODES_MAX / 2 };

struct node_fault {
	struct faults *f;
	unsigned node;
	uint64_t back_ns;    /* away until then; 0: not away */
	uint64_t stopped_ns; /* when the stop began */
	bool sick;           /* trouble with a disk is pending or has struck: it is crashed when its time is over */
	bool heals;          /* but first the disk is well again for a while */
	uint64_t slow_until_ns, delay_until_ns, full_until_ns;
	uint64_t well_ns; /* when its last fault ended */
};

struct link_fault {
	unsigned a, b;
	uint64_t until_ns; /* 0: none */
};

struct damaged_chunk {
	uint64_t block;
	uint8_t index;
	enum faults_damage damage;
};

struct faults {
	struct cluster *cluster;
	struct checker *checker;
	enum faults_mode mode;
	uint64_t without;
	struct faults_hooks hooks;
	struct rng rng;
	uint64_t next_ns; /* the next new fault */
	struct node_fault nodes[CLUSTER_NODES_MAX];
	struct link_fault links[FAULTS_LINKS_MAX];
	bool armed, hit; /* a crash waits for an acknowledgement; it has come */
	enum faults_kind armed_kind;
	bool drop_armed;  /* a crash waits for orders to drop */
	uint64_t lull_ns; /* until when faults are rare */
	bool mending;
	struct client_op look;
	bool looking;
	uint64_t counts[FAULTS_KINDS];
	uint64_t bits;
	struct damaged_chunk *damaged;
	size_t damaged_count, damaged_cap;
};

/* ---- faults.c ---- */
uint64_t faults__now_ns(const struct faults *f);
/* Short ones more often than long ones. */
uint64_t faults__some_time(struct faults *f, uint64_t least_ns, uint64_t most_ns);
struct io *faults__io_of(struct faults *f, unsigned node);
bool faults__is_well(const struct faults *f, unsigned node);
/* A chunk server that may go away now; 0: none (0 is metad's number). */
unsigned faults__some_chunkd(struct faults *f);
unsigned faults__some_daemon(struct faults *f);
unsigned faults__some_metad(struct faults *f);
unsigned faults__some_client(struct faults *f);
void faults__some_loss(struct faults *f, unsigned node);
void faults__crash(struct faults *f, unsigned node, uint64_t most_ns);

/* ---- faults_kind.c ---- */
/* False: it cannot be now. */
bool faults__strike(struct faults *f, enum faults_kind kind);
void faults__crash_all(struct faults *f);
/* A chunk server that is dropping copies; 0: none. */
unsigned faults__dropping(const struct faults *f);
/* Its disk is slow for a moment; then it crashes. */
void faults__crash_dropping(struct faults *f, unsigned node);

/* ---- faults_rot.c ---- */
/* Starts a daemon that was stopped, with a bit flipped at rest. False: nothing was done. */
bool faults__start_rotten(struct faults *f, unsigned node);

/* ---- faults_bits.c ---- */
/* Looks at a file's chunks; when that has ended, bits are flipped. */
bool faults__look_for_chunks(struct faults *f);

#endif
