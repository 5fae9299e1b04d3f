/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/mem.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/check.h"
#include "tests/lib/unit.h"

START_TEST(test_allocations)
{
	char *p = mem_alloc(0), *text;
	uint8_t *zeros = mem_array(1000, 3);

	ck_assert_ptr_nonnull(p);
	p = mem_realloc(p, 10);
	memcpy(p, "123456789", 10);
	p = mem_realloc(p, 100000);
	ck_assert_str_eq(p, "123456789");
	for (int i = 0; i < 3000; i++)
		ck_assert_uint_eq(zeros[i], 0);
	text = mem_printf("%s-%d", "disk", 7);
	ck_assert_str_eq(text, "disk-7");
	mem_free(text);
	text = mem_strdup("copy");
	ck_assert_str_eq(text, "copy");
	mem_free(text);
	mem_free(zeros);
	mem_free(p);
	mem_free(NULL);
	p = mem_aligned(4096, 5000);
	ck_assert_uint_eq((uintptr_t)p % 4096, 0);
	mem_free(p);
}
END_TEST

/* Runs `body` in a child with stderr in a pipe; returns what it printed; it must die of SIGABRT. */
static void dies(void (*body)(void), char *ret_text, size_t bytes)
{
	int fds[2], status;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL); /* Check's own handlers are not wanted here */
		dup2(fds[1], 2);
		body();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], ret_text + len, bytes - 1 - len)) > 0)
		len += (size_t)n;
	ret_text[len] = 0;
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void fail_check(void)
{
	CHECK(1 + 1 == 3);
}

static void overflow_array(void)
{
	mem_array(SIZE_MAX / 2, 3);
}

struct thing {
	uint32_t magic;
};

static void wrong_magic(void)
{
	struct thing *t = MEM_NEW(struct thing);

	t->magic = 2;
	CHECK_MAGIC(t, 1u);
}

START_TEST(test_a_failed_check_says_where_and_aborts)
{
	char text[4096];

	dies(fail_check, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "test_mem.c"));
	ck_assert_ptr_nonnull(strstr(text, "1 + 1 == 3"));
	dies(overflow_array, text, sizeof(text));
	dies(wrong_magic, text, sizeof(text));
}
END_TEST

UNIT_MAIN("mem", test_allocations, test_a_failed_check_says_where_and_aborts)
