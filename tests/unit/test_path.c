/* SPDX-License-Identifier: Apache-2.0 */
#include "client/path.h"

#include <string.h>
#include "common/base/limits.h"
#include "tests/lib/unit.h"

static const char *resolve(const char *path)
{
	static char out[CR_PATH_MAX];
	struct err err = {0};

	return path_resolve(path, out, &err) == 0 ? out : err_name(err.code);
}

START_TEST(test_resolution)
{
	ck_assert_str_eq(resolve("/"), "");
	ck_assert_str_eq(resolve("/a/b"), "a/b");
	ck_assert_str_eq(resolve("//a//b/./c/../d/"), "a/b/d");
	ck_assert_str_eq(resolve("/../a"), "a");
	ck_assert_str_eq(resolve("/a/../.."), "");
	ck_assert_str_eq(resolve("/a/..b/...c/.d"), "a/..b/...c/.d");
	ck_assert_str_eq(resolve("a/b"), "ERR_INVAL");
	ck_assert_str_eq(resolve(""), "ERR_INVAL");
}
END_TEST

START_TEST(test_bounds)
{
	static char path[CR_PATH_MAX + 2];

	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	ck_assert_str_eq(resolve(path), "ERR_NAMETOOLONG");
	path[257] = '\0';
	ck_assert_str_eq(resolve(path), "ERR_NAMETOOLONG");
	path[256] = '\0';
	ck_assert_str_eq(resolve(path), path + 1);
	for (int i = 0; i < 129; i++)
		memcpy(path + 2 * i, "/d", 3);
	ck_assert_str_eq(resolve(path), "ERR_NAMETOOLONG");
	path[256] = '\0';
	ck_assert_str_eq(resolve(path), path + 1);
}
END_TEST

START_TEST(test_names)
{
	char name[LIMIT_NAME_BYTES + 2];
	struct err err = {0};

	ck_assert_int_eq(path_check_name("", &err), 0);
	ck_assert_int_eq(path_check_name("...", &err), 0);
	ck_assert_int_eq(path_check_name(".", &err), ERR_INVAL);
	ck_assert_int_eq(path_check_name("..", &err), ERR_INVAL);
	ck_assert_int_eq(path_check_name("a/b", &err), ERR_INVAL);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ck_assert_int_eq(path_check_name(name, &err), ERR_NAMETOOLONG);
	ck_assert_int_eq(path_check_name(name + 1, &err), 0);
}
END_TEST

START_TEST(test_wants_dir)
{
	ck_assert(path_wants_dir("/"));
	ck_assert(path_wants_dir("/a/"));
	ck_assert(path_wants_dir("/a//"));
	ck_assert(path_wants_dir("/a/."));
	ck_assert(!path_wants_dir("/a"));
	ck_assert(!path_wants_dir("/a."));
	ck_assert(!path_wants_dir("/a/..b"));
	ck_assert(!path_wants_dir(""));
	ck_assert(!path_wants_dir("."));
}
END_TEST

UNIT_MAIN("path", test_wants_dir, test_resolution, test_bounds, test_names)
