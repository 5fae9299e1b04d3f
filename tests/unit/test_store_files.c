/* SPDX-License-Identifier: Apache-2.0 */
/* store_files: what is reported as written is durable with its name: file, rename, directory, in this order; and what cannot be is an error. */
#include "client/cli/store_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/lib/unit.h"

static char folder[64], path[80];
static char events[16]; /* 'f': a file was synced, 'd': a directory, 'r': renamed before that */
static char refuse;     /* the event that fails with EIO */

static int note(char event)
{
	events[strlen(events)] = event;
	if (event != refuse)
		return 0;
	errno = EIO;
	return -1;
}

/* In the place of the C library's. */
int fsync(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	if (S_ISDIR(st.st_mode) && access(path, F_OK) == 0)
		note('r');
	return note(S_ISDIR(st.st_mode) ? 'd' : 'f');
}

static void make_folder(void)
{
	snprintf(folder, sizeof(folder), "/tmp/craton-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	memset(events, 0, sizeof(events));
	refuse = 0;
}

static void remove_folder(void)
{
	char temp[96];

	snprintf(temp, sizeof(temp), "%s.new", path);
	unlink(temp);
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(test_name_and_bytes_are_durable)
{
	struct err err = {0};
	char text[8] = "";
	int fd;

	make_folder();
	ck_assert_int_eq(store_write_file(path, "hello", 0600, &err), 0);
	ck_assert_str_eq(events, "frd");
	fd = open(path, O_RDONLY);
	ck_assert_int_eq(read(fd, text, sizeof(text)), 5);
	ck_assert_str_eq(text, "hello");
	close(fd);
	remove_folder();
}
END_TEST

START_TEST(test_failed_syncs_are_told)
{
	static const char which[] = "fd";

	for (int i = 0; which[i]; i++) {
		struct err err = {0};

		make_folder();
		refuse = which[i];
		ck_assert_int_eq(store_write_file(path, "hello", 0600, &err), ERR_IO);
		ck_assert_ptr_nonnull(strstr(err.text, "cannot write"));
		ck_assert_int_eq(access(path, F_OK) == 0, which[i] == 'd');
		remove_folder();
	}
}
END_TEST

UNIT_MAIN("store_files", test_name_and_bytes_are_durable, test_failed_syncs_are_told)
