/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known: what a metad had before it crashed, and must have again when it is back.
 *
 *  1. One log: its replay, which is over when the start is, comes to the same rows as before, if it comes to the same entry.
 *  2. A replica of a group: its log has what it had said to be durable (for this its leader has counted it), its slots the term and the vote
 *     that it may have given, or later ones.
 *  3. A group: the rows after an entry are the same wherever it is applied. Where a crashed replica was is a question to all of them that have
 *     not been there, itself among them: its start ends with the rows that its table had durably, and it applies its log again as the
 *     group's leader says how far that is committed. A replica that gets behind that entry by a snapshot is not asked.
 *
 * The rows: all that commands write. What follows from those (the blocks of a disk) is looked at as those look that use it.
 */
#ifndef TESTS_SIM_KNOWN_H
#define TESTS_SIM_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

struct cluster;
struct cluster_node;
struct metad;

enum { KNOWN_ROWS_MAX = 16 };

/* Of a node. */
struct known {
	struct {
		uint64_t index, digest;
	} table; /* one log; index 0: not known */
	struct {
		bool is_known;
		uint64_t durable, durable_term; /* the last entry that was; 0: the log was just beginning anew */
		uint64_t term, vote;
	} log;
	uint64_t looked;    /* a replica's rows after entries up to this one are not asked for any more */
	uint64_t snapshots; /* that took the place of its rows by then */
};

/* Of a group: the rows after some entries, as they were where a replica crashed. The oldest are forgotten. */
struct known_rows {
	struct {
		uint64_t index, digest;
	} rows[KNOWN_ROWS_MAX];
	uint64_t count;
};

uint64_t known_digest(struct cluster *c, struct metad *md);
/* Of the row that says who is in the group. */
uint64_t known_group(struct metad *md);

/* Between two events, of a metad: it is about to crash; it will be stopped, and has time to write more; it was started. */
void known_crash(struct cluster_node *n);
void known_stop(struct cluster_node *n);
void known_start(struct cluster_node *n);

#endif
