/* SPDX-License-Identifier: Apache-2.0 */
#include "client/path.h"

#include <string.h>
#include "common/base/limits.h"

int path_check_name(const char *name, struct err *err)
{
	if (!strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
		return err_set(err, ERR_INVAL, "'%.200s' is no name in a directory", name);
	if (strnlen(name, LIMIT_NAME_BYTES + 1) > LIMIT_NAME_BYTES)
		return err_set(err, ERR_NAMETOOLONG, "name '%.40s...' is longer than %d bytes", name, LIMIT_NAME_BYTES);
	return 0;
}

bool path_wants_dir(const char *path)
{
	size_t n = strlen(path);

	if (n > 1 && path[n - 1] == '.' && path[n - 2] == '/')
		n--;
	return n > 0 && path[n - 1] == '/';
}

int path_resolve(const char *path, char ret_path[CR_PATH_MAX], struct err *err)
{
	size_t len = 0, depth = 0;

	if (!path || path[0] != '/')
		return err_set(err, ERR_INVAL,
			"path '%.200s' does not start with '/': give the path from the store's root", path ? path : "");
	if (strnlen(path, CR_PATH_MAX) == CR_PATH_MAX)
		return err_set(err, ERR_NAMETOOLONG, "path is longer than %d bytes", CR_PATH_MAX - 1);
	while (*path) {
		size_t n = strcspn(path, "/");

		if (n > LIMIT_NAME_BYTES)
			return err_set(err, ERR_NAMETOOLONG, "name '%.40s...' is longer than %d bytes", path,
				LIMIT_NAME_BYTES);
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && ret_path[len - 1] != '/')
				len--;
			if (len > 0)
				len--;
			depth -= depth > 0;
		} else if (n > 0 && !(n == 1 && path[0] == '.')) {
			if (++depth > LIMIT_PATH_DEPTH)
				return err_set(
					err, ERR_NAMETOOLONG, "path has more than %d components", LIMIT_PATH_DEPTH);
			if (len > 0)
				ret_path[len++] = '/';
			memcpy(ret_path + len, path, n);
			len += n;
		}
		path += n;
		path += *path == '/';
	}
	ret_path[len] = '\0';
	return 0;
}
