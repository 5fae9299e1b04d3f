/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_lmdb_whole.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/kv/kv_lmdb_room.h"

/* LMDB goes on with it if this returns; nothing of this process's can be believed, and no start mends it. */
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

int lmdb_whole_check_length(MDB_env *env, struct io *io, const char *path, int fd, struct err *err)
{
	uint64_t needed = lmdb_room_used(env), bytes;
	int rc = io_size(io, fd, &bytes);

	if (rc)
		return err_set(err, rc, "%s: cannot open: %s", path, err_text(rc));
	if (bytes < needed)
		return err_set(err, ERR_CORRUPT, "%s: is damaged: it has %" PRIu64 " bytes, its pages %" PRIu64, path, bytes, needed);
	return 0;
}
