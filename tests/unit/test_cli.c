/* SPDX-License-Identifier: Apache-2.0 */
/* cli: which failures of one path leave the others untried. */
#include "client/cli/cli.h"

#include <errno.h>
#include "tests/lib/unit.h"

static int tried, fails_with;

static int one(struct cli *cli, const char *word)
{
	(void)word;
	return tried++ == 0 ? cli_fail_store(cli, fails_with) : CLI_OK;
}

static int tried_after(int failure)
{
	static const char *words[] = {"/a", "/b", "/c"};
	struct cli cli = {.command = "truncate", .words = words, .word_count = 3};

	tried = 0;
	fails_with = failure;
	ck_assert_int_eq(cli_each_word(&cli, one), CLI_FAILED);
	return tried;
}

START_TEST(test_each_word_unless_the_store_is_away)
{
	static const int others[] = {-ENOENT, -EIO, -EACCES, -ENOSPC}, away[] = {-ETIMEDOUT, -EAGAIN, -ECONNREFUSED, -EHOSTUNREACH};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_msg(tried_after(others[i]) == 3, "%d", others[i]);
	for (size_t i = 0; i < sizeof(away) / sizeof(away[0]); i++)
		ck_assert_msg(tried_after(away[i]) == 1, "%d", away[i]);
}
END_TEST

UNIT_MAIN("cli", test_each_word_unless_the_store_is_away)
