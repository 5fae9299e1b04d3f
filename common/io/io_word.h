/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_word: one word that the programs of a user on one host have for each other, whatever stores they belong to: a file in memory
 * (/dev/shm) that says when somebody said it last. It is heard for a while and forgotten when the host goes down; one that is lost, or torn
 * as it is read, is not heard: nothing of safety may hang on it.
 *
 * A file of another user, a link or anything else than a file is refused when it is opened (IO_OPEN_OWN): a word is no way for strangers to
 * slow a daemon down. One loop's thread.
 *
 * Somebody may remove the file; then those who have it open would speak and listen in vain. So each opens it anew once in a while, whoever is there
 * makes it, and after IO_WORD_OPEN_NS all have the same one again.
 */
#ifndef COMMON_IO_IO_WORD_H
#define COMMON_IO_IO_WORD_H

#include "common/io/io.h"

#define IO_WORD_OPEN_NS (10ull * 1000 * 1000 * 1000)

struct io_word {
	struct io *io;
	const char *path;   /* NULL: closed; saying it does nothing, and it is never heard */
	int fd;             /* -1: it could not be opened, */
	int error;          /* for this reason */
	uint64_t opened_ns; /* when that was tried last */
};

/*
 * Makes the file if there is none. Below 0: it cannot be opened, or is not ours; that is tried again by those who say or hear it. The path is the
 * caller's until io_word_close.
 */
int io_word_open(struct io_word *word, struct io *io, const char *path);
void io_word_close(struct io_word *word); /* harmless if it is zeroed */
/* Below 0: it could not be opened or written. */
int io_word_say(struct io_word *word);
/* It was said within the last so many ns. */
bool io_word_heard(struct io_word *word, uint64_t within_ns);

#endif
