/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checker: the model of what the store has acknowledged, and the judge of what it shows.
 *
 * A name may be, at one time, one of several things: nothing, a directory, or a file with one of the contents that were put there.
 * Usually it is exactly one. While an operation on it is under way it may be the old or the new one; an operation whose outcome stays
 * unknown (no answer, a broken connection) leaves both possible for good, and the name is not changed any more (`doubtful`): the
 * request may take effect late. Each possibility carries the time span in which it held, so that a look at a name that others are
 * changing is judged by all that was possible while it lasted.
 *
 * The bytes of a content follow from its id and the offset, so that no byte can stand in for another.
 */
#ifndef TESTS_SIM_CHECKER_H
#define TESTS_SIM_CHECKER_H

#include <stdbool.h>
#include <stdint.h>
#include "tests/sim/cluster.h"

enum { CHECKER_PATH_BYTES = 48, CHECKER_NOTHING = 0, CHECKER_DIRECTORY = 1 };
#define CHECKER_UNSURE UINT64_MAX /* seen: one of several files that look alike, such as empty ones */

struct content {
	uint64_t id; /* CHECKER_NOTHING, CHECKER_DIRECTORY, or a file's */
	uint64_t bytes;
};

/*
 * A file that is written in the open (not atomic) may be seen with any length from what was synced when the look began to its
 * content's; and as complete or not unless its writer had closed it by then.
 */

void content_fill(struct content content, uint64_t offset, uint8_t *buf, uint64_t len);
bool content_matches(struct content content, uint64_t offset, const uint8_t *buf, uint64_t len);

struct checker_synced {
	uint64_t tick, bytes;
};

struct checker_state {
	struct content content;
	bool in_the_open;              /* else it is there whole */
	struct checker_synced *synced; /* the answers that its writer got, in order */
	uint32_t synced_count, synced_cap;
	uint64_t closed;   /* tick; 0: not known to be */
	uint64_t from, to; /* in ticks of the checker; to UINT64_MAX: still possible */
};

struct checker_entry {
	char path[CHECKER_PATH_BYTES];
	uint32_t owner;
	struct checker_state *states;
	uint32_t state_count, state_cap;
	bool busy;     /* an operation that changes it is under way */
	bool doubtful; /* the outcome of one is unknown for good */
	struct checker_entry
		*twin;        /* of a rename in doubt: either both halves took effect or none; set in the source */
	struct content moved; /* what that rename moved */
	struct content seen;  /* what the last look of all found here */
	uint64_t listed;      /* tick of the last listing that showed it */
};

struct checker {
	struct cluster *cluster;
	struct checker_entry **entries;
	uint32_t entry_count, entry_cap;
	uint64_t tick;
	uint64_t next_content;
	/* what was done */
	uint64_t reads, bytes_read, reads_failed, names_checked, acknowledged, refused, doubts;
};

enum checker_outcome { CHECKER_DONE, CHECKER_NOT_DONE, CHECKER_UNKNOWN };

struct checker *checker_new(struct cluster *cluster);
void checker_free(struct checker *k);

struct checker_entry *checker_find(struct checker *k, const char *path);
/* Known from now on, and nothing is there. */
struct checker_entry *checker_add(struct checker *k, uint32_t owner, const char *path);
struct content checker_new_content(struct checker *k, uint64_t bytes);

/* What it certainly is: not busy, not doubtful. */
struct content checker_certain(const struct checker_entry *e);
bool checker_is_file(const struct checker_entry *e); /* certainly */
bool checker_is_dir(const struct checker_entry *e);
bool checker_is_nothing(const struct checker_entry *e);

/* A change to `next` begins and ends. */
void checker_begin(struct checker *k, struct checker_entry *e, struct content next);
void checker_end(struct checker *k, struct checker_entry *e, enum checker_outcome outcome);
/* A file written in the open: begun, made, so much of it synced, and how it ended: done, or it stays as it is for good. */
void checker_stream_begin(struct checker *k, struct checker_entry *e, struct content next);
/* One that goes on behind what is certainly there. */
void checker_append_begin(struct checker *k, struct checker_entry *e, struct content next);
void checker_stream_made(struct checker *k, struct checker_entry *e);
void checker_stream_synced(struct checker *k, struct checker_entry *e, uint64_t bytes);
void checker_stream_end(struct checker *k, struct checker_entry *e, enum checker_outcome outcome);
void checker_rename_begin(struct checker *k, struct checker_entry *from, struct checker_entry *to);
void checker_rename_end(
	struct checker *k, struct checker_entry *from, struct checker_entry *to, enum checker_outcome outcome);

/* ---- looks ---- */

/* Whether e may have been `content` at some time since tick `since`. */
bool checker_possible(const struct checker_entry *e, uint64_t since, struct content content);
bool checker_possible_file(const struct checker_entry *e, uint64_t since);
/* It was the same one thing since then. */
bool checker_stable(const struct checker_entry *e, uint64_t since);

/* The candidates for an open file: what it can be, narrowed by every look. */
struct checker_look {
	struct checker_entry *entry;
	uint64_t since;
	struct content may[8]; /* whole, however much of it was there */
	uint32_t may_count;
	uint64_t bytes; /* when it was opened */
};
void checker_look_begin(struct checker *k, struct checker_look *look, struct checker_entry *e);
/* It was opened and has this size. */
void checker_look_opened(struct checker *k, struct checker_look *look, uint64_t bytes);
/* [offset, offset + len) was asked for, `got` bytes came. */
void checker_look_read(
	struct checker *k, struct checker_look *look, uint64_t offset, const uint8_t *buf, uint64_t len, uint64_t got);

/* A listing of `dir` that began at tick `since` shows this entry. */
void checker_listed(struct checker *k, const char *dir, const struct cr_dirent *entry, uint64_t since);
/* It ended: what it did not show cannot have been there all the time. */
void checker_list_end(struct checker *k, const char *dir, uint64_t since);

/* The last look of all: each rename in doubt took effect with both halves or with none. */
void checker_seen(struct checker_entry *e, struct content content);
void checker_check_twins(struct checker *k);

#endif
