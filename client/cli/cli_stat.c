/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/cli_stat.h"

const char *cli_stat_type(const struct cr_stat *st)
{
	return st->type == CR_TYPE_DIR ? "directory" : st->type == CR_TYPE_SYMLINK ? "link" : "file";
}

void cli_stat_json(struct json *j, const struct cr_stat *st)
{
	json_str(j, "type", cli_stat_type(st));
	json_u64(j, "size", st->size);
	json_u64(j, "mode", st->mode);
	json_u64(j, "uid", st->uid);
	json_u64(j, "gid", st->gid);
	json_u64(j, "nlink", st->nlink);
	json_i64(j, "mtime_ns", st->mtime_ns);
	json_i64(j, "ctime_ns", st->ctime_ns);
	json_u64(j, "inode", st->inode);
	if (st->type == CR_TYPE_FILE)
		json_bool(j, "complete", st->complete);
}
