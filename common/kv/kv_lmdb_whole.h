/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_lmdb_whole: damage of the file itself, which LMDB's pages have no checksums against. What a row's checksum does not show must at least
 * end the process with words. Used by kv_lmdb alone, on the thread that opens.
 */
#ifndef COMMON_KV_KV_LMDB_WHOLE_H
#define COMMON_KV_KV_LMDB_WHOLE_H

#include <lmdb.h>

/* Before it is opened: a page that makes no sense where LMDB does not expect one aborts, and says which file it is of. 0, or LMDB's error. */
int lmdb_whole_watch(MDB_env *env);

#endif
