/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_lmdb_whole.h"

#include <stdio.h>
#include <stdlib.h>

/* As LMDB itself would, but with the name of the file: no start mends it. */
static void on_senseless_page(MDB_env *env, const char *text)
{
	const char *path = "";

	(void)mdb_env_get_path(env, &path);
	fprintf(stderr, "craton: %s: is damaged, and LMDB cannot go on: %s\n", path, text);
	abort();
}

int lmdb_whole_watch(MDB_env *env)
{
	return mdb_env_set_assert(env, on_senseless_page);
}
