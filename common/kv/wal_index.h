/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_index: which entries a replicated log has, of which terms, and in which frames they lie. Pure memory: one extent
 * of 56 bytes for each frame with entries, so about 1 % of a log of frames of 4 KiB.
 *
 * Invariant: extents lie without holes; their indices, terms and segments never fall from one to the next.
 */
#ifndef COMMON_KV_WAL_INDEX_H
#define COMMON_KV_WAL_INDEX_H

#include <stdint.h>

struct wal_extent {
	uint64_t first_index, term;
	uint64_t number; /* of the frame */
	uint64_t segment, offset;
	uint32_t count; /* of entries that are still of the log: the frame may have more */
	uint32_t bytes; /* of the frame on disk */
	uint64_t through; /* bytes of all frames since the first, and this one; private */
};

/* A run of entries of one term, up to before the next run. As of raft.h. */
struct wal_run {
	uint64_t first, term;
};

struct wal_index {
	uint64_t base_index, base_term; /* of the entry before the first */
	struct wal_extent *extents;     /* a ring */
	uint32_t head, count, cap;      /* cap: 0 or a power of two */
};

void wal_index_init(struct wal_index *index, uint64_t base_index, uint64_t base_term);
void wal_index_fini(struct wal_index *index);

uint64_t wal_index_last(const struct wal_index *index); /* base_index if there are no entries */
uint64_t wal_index_last_term(const struct wal_index *index);
/* 0: not known. */
uint64_t wal_index_term(const struct wal_index *index, uint64_t entry);

/* first_index is the last one + 1. */
void wal_index_push(struct wal_index *index, const struct wal_extent *extent);
/* Entries >= from leave. Below all there are, the log then begins at `from`, behind an entry of `prev_term`. */
void wal_index_cut(struct wal_index *index, uint64_t from, uint64_t prev_term);
/* Segments below this one leave. */
void wal_index_drop(struct wal_index *index, uint64_t segment);

/* The nth extent, from 0, and the number of the one that holds an entry; count if none does. */
const struct wal_extent *wal_index_at(const struct wal_index *index, uint32_t n);
uint32_t wal_index_find(const struct wal_index *index, uint64_t entry);

/* An entry behind which `bytes` of frames lie, at least; base_index, if the log has no more. */
uint64_t wal_index_back(const struct wal_index *index, uint64_t bytes);

/* All runs, oldest first: mem_alloc'ed, the caller's; NULL if there are no entries. */
struct wal_run *wal_index_runs(const struct wal_index *index, uint32_t *ret_count);

#endif
