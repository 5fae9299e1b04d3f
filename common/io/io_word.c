/* SPDX-License-Identifier: Apache-2.0 */
/* The file has 16 bytes: when it was said, on the host's monotonic clock, in this host's byte order; and the same inverted. */
#include "common/io/io_word.h"

static void open_anew(struct io_word *word)
{
	if (word->fd >= 0)
		io_close(word->io, word->fd);
	word->opened_ns = io_now_ns(word->io);
	word->error = io_open(word->io, word->path, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_OWN, 0600, &word->fd);
	if (word->error < 0)
		word->fd = -1;
}

/* Below 0: there is nothing to read or write. */
static int look(struct io_word *word)
{
	if (io_now_ns(word->io) - word->opened_ns >= IO_WORD_OPEN_NS)
		open_anew(word);
	return word->error;
}

int io_word_open(struct io_word *word, struct io *io, const char *path)
{
	*word = (struct io_word){.io = io, .path = path, .fd = -1};
	open_anew(word);
	return word->error;
}

void io_word_close(struct io_word *word)
{
	if (word->path && word->fd >= 0)
		io_close(word->io, word->fd);
	*word = (struct io_word){.io = word->io, .fd = -1};
}

int io_word_say(struct io_word *word)
{
	uint64_t now_ns, said[2];
	int64_t n;

	if (!word->path)
		return 0;
	if (look(word) < 0)
		return word->error;
	now_ns = io_clock_ns(word->io);
	said[0] = now_ns;
	said[1] = ~now_ns;
	n = io_pwrite(word->io, word->fd, said, sizeof(said), 0);
	return n < 0 ? (int)n : 0;
}

bool io_word_heard(struct io_word *word, uint64_t within_ns)
{
	uint64_t said[2], now_ns;

	if (!word->path || look(word) < 0)
		return false;
	if (io_pread(word->io, word->fd, said, sizeof(said), 0) != sizeof(said) || said[0] != ~said[1])
		return false;
	now_ns = io_clock_ns(word->io);
	return said[0] <= now_ns && now_ns - said[0] <= within_ns;
}
