/* SPDX-License-Identifier: Apache-2.0 */
/* A word that is said is heard for a while, by all who have the same file open; nothing else is heard. */
#include "common/io/io_word.h"

#include <sys/stat.h>
#include "tests/lib/io_world.h"
#include "tests/lib/unit.h"

#define SECOND_NS 1000000000ull

static const char *path_of(struct world *w, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	return path;
}

IO_TEST(test_said_is_heard)
{
	struct io_word says, hears;

	ck_assert_int_eq(io_word_open(&hears, w->io, path_of(w, "word")), 0);
	ck_assert(!io_word_heard(&hears, SECOND_NS));
	ck_assert_int_eq(io_word_open(&says, w->io, path_of(w, "word")), 0);
	ck_assert(!io_word_heard(&hears, SECOND_NS));
	ck_assert_int_eq(io_word_say(&says), 0);
	ck_assert(io_word_heard(&hears, 3600 * SECOND_NS));
	io_word_close(&says);
	ck_assert(io_word_heard(&hears, 3600 * SECOND_NS));
	io_word_close(&hears);
	ck_assert(!io_word_heard(&hears, 3600 * SECOND_NS));
	ck_assert_int_eq(io_word_say(&hears), 0); /* to nobody */
}

IO_TEST(test_what_is_torn_or_foreign_is_not_heard)
{
	static const struct {
		uint64_t bytes[2];
		size_t len;
	} wrong[] = {{{5, 5}, 16}, {{1, ~2ull}, 16}, {{7, ~7ull}, 15}, {{~0ull, 0}, 16}};
	struct io_word word;

	ck_assert_int_eq(io_word_open(&word, w->io, path_of(w, "word")), 0);
	for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
		int fd;

		ck_assert_int_eq(io_open(w->io, path_of(w, "word"), IO_OPEN_WRITE | IO_OPEN_TRUNCATE, 0, &fd), 0);
		ck_assert_int_eq(io_pwrite(w->io, fd, wrong[i].bytes, wrong[i].len, 0), (int64_t)wrong[i].len);
		io_close(w->io, fd);
		ck_assert(!io_word_heard(&word, 3600 * SECOND_NS));
	}
	io_word_close(&word);
	ck_assert_int_lt(io_word_open(&word, w->io, path_of(w, "none/word")), 0);
	ck_assert(!io_word_heard(&word, SECOND_NS));
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

START_TEST(test_it_is_forgotten)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 1});
	struct io *host = sim_host_add(sim, "host-1", 64 << 20);
	struct io_word word;

	ck_assert_int_eq(io_word_open(&word, host, "/word"), 0);
	ck_assert_int_eq(io_word_say(&word), 0);
	sim_run(sim, never, NULL, sim_now_ns(sim) + SECOND_NS / 2);
	ck_assert(io_word_heard(&word, SECOND_NS));
	sim_run(sim, never, NULL, sim_now_ns(sim) + SECOND_NS);
	ck_assert(!io_word_heard(&word, SECOND_NS));
	io_word_close(&word);
	sim_free(sim);
}
END_TEST

/* Who said it, and who heard it, still have the removed file open: after a while both have the same one again. */
START_TEST(test_a_removed_file_is_opened_again)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 1});
	struct io *host = sim_host_add(sim, "host-1", 64 << 20);
	struct io_word says, hears;

	ck_assert_int_eq(io_word_open(&says, host, "/word"), 0);
	ck_assert_int_eq(io_word_open(&hears, host, "/word"), 0);
	ck_assert_int_eq(io_unlink(host, "/word"), 0);
	sim_run(sim, never, NULL, sim_now_ns(sim) + IO_WORD_OPEN_NS);
	ck_assert_int_eq(io_word_say(&says), 0);
	ck_assert(io_word_heard(&hears, SECOND_NS));
	/* What is in the way is said, and over when it is gone. */
	ck_assert_int_eq(io_unlink(host, "/word"), 0);
	ck_assert_int_eq(io_mkdir(host, "/word", 0700), 0);
	sim_run(sim, never, NULL, sim_now_ns(sim) + IO_WORD_OPEN_NS);
	ck_assert_int_lt(io_word_say(&says), 0);
	ck_assert_int_lt(io_word_say(&says), 0);
	ck_assert(!io_word_heard(&hears, 3600 * SECOND_NS));
	ck_assert_int_eq(io_rename(host, "/word", "/away"), 0);
	sim_run(sim, never, NULL, sim_now_ns(sim) + IO_WORD_OPEN_NS);
	ck_assert_int_eq(io_word_say(&says), 0);
	ck_assert(io_word_heard(&hears, SECOND_NS));
	io_word_close(&says);
	io_word_close(&hears);
	sim_free(sim);
}
END_TEST

/* What somebody else may have put in the way is not opened. */
START_TEST(test_only_a_file_of_ours)
{
	char dir[] = "/tmp/test-io-word-XXXXXX", path[64], other[64];
	struct io_word word;
	struct err err = {0};
	struct io *io;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(io_new(IO_BACKEND_EPOLL, &io, &err), 0);
	snprintf(path, sizeof(path), "%s/word", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	ck_assert_int_eq(io_open(io, other, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	io_close(io, fd);
	ck_assert_int_eq(symlink(other, path), 0);
	ck_assert_int_eq(io_word_open(&word, io, path), ERR_PERM);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(io_word_open(&word, io, path), ERR_PERM);
	ck_assert_int_eq(unlink(path), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(io_open(io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0666, &fd), 0);
		io_close(io, fd);
		ck_assert_int_eq(chown(path, 65534, 65534), 0);
		ck_assert_int_lt(io_word_open(&word, io, path), 0);
		ck_assert_int_eq(unlink(path), 0);
	}
	ck_assert_int_eq(unlink(other), 0);
	ck_assert_int_eq(rmdir(dir), 0);
	io_free(io);
}
END_TEST

UNIT_MAIN("io_word", IO_TESTS(test_said_is_heard), IO_TESTS(test_what_is_torn_or_foreign_is_not_heard), test_it_is_forgotten, test_a_removed_file_is_opened_again,
	test_only_a_file_of_ours)
