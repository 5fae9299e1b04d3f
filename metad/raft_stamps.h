/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft_stamps: what makes a letter between replicas one of now. Pure.
 *
 * The signature of a letter that somebody recorded is right for ever. So there is a stamp on it, under the signature: the life of the replica that it is
 * for, which is drawn at each start, and a number. A replica takes a letter only with its own life on it, and with a greater number than any before it
 * of the same sender and series: once, and not behind one that left later.
 *
 *     who writes                                    who it is for
 *     no stamp, or one of an earlier life    -->    refuses, and says its life and the greatest number that it took: what is wanted
 *     that life, a greater number            -->    takes it
 *
 * So it is asked for once by each start, of either side, and costs an exchange. Numbers are of the sender, for all that it writes; who starts again goes
 * on above those of its life before, as it is told them. Letters of one connection come in their order, those of several need not: hence series.
 *
 * Who is no longer known here leaves its greatest number in the floor, above which everybody begins that is not known: so nobody's letters are ever taken twice.
 */
#ifndef METAD_RAFT_STAMPS_H
#define METAD_RAFT_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

enum { RAFT_LIFE_BYTES = 16 };
enum raft_series { RAFT_SERIES_MESSAGES, RAFT_SERIES_SNAPSHOTS, RAFT_SERIES_KNOCKS, RAFT_SERIES };

struct raft_stamp {
	uint8_t life[RAFT_LIFE_BYTES];
	uint64_t number; /* 0: there is no stamp */
};

/* Of the replica here. */
struct raft_stamps {
	uint8_t life[RAFT_LIFE_BYTES];
	uint64_t number; /* of the last stamp that was given away */
	uint64_t floor;
};

/* Of another one, as long as it is known. */
struct raft_stamps_other {
	uint8_t life[RAFT_LIFE_BYTES];
	bool lives; /* it has said which life is its own */
	uint64_t taken[RAFT_SERIES];
};

void raft_stamps_init(struct raft_stamps *s, const uint8_t life[RAFT_LIFE_BYTES]);
void raft_stamps_meet(const struct raft_stamps *s, struct raft_stamps_other *ret_other);
void raft_stamps_part(struct raft_stamps *s, const struct raft_stamps_other *other);

/* ---- who writes ---- */

/* For a letter to who lives this life. */
struct raft_stamp raft_stamps_next(struct raft_stamps *s, const uint8_t life[RAFT_LIFE_BYTES]);
/* The other one (NULL: it is not known) wants greater numbers than this one, and this life. */
void raft_stamps_told(struct raft_stamps *s, struct raft_stamps_other *other, const struct raft_stamp *wanted);

/* ---- who it is for; other: who writes; NULL: it is not known ---- */

/* False: it was taken before, or is of another life, or behind one that was taken. */
bool raft_stamps_take(struct raft_stamps *s, struct raft_stamps_other *other, enum raft_series series,
	const struct raft_stamp *stamp);
/* What is to be told then. */
struct raft_stamp raft_stamps_wanted(const struct raft_stamps *s, const struct raft_stamps_other *other);

#endif
