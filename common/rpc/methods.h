/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the table of every request of the system. Numbers are wire values and never reused: 0x01xx metad, 0x02xx chunkd. */
#ifndef COMMON_RPC_METHODS_H
#define COMMON_RPC_METHODS_H

#include "common/rpc/rpc.h"

extern const struct rpc_method rpc_metad_lookup, rpc_metad_readdir, rpc_metad_mkdir, rpc_metad_remove, rpc_metad_rename,
	rpc_metad_setattr, rpc_metad_policy, rpc_metad_create, rpc_metad_allocate, rpc_metad_commit, rpc_metad_abort, rpc_metad_layout,
	rpc_metad_df, rpc_metad_status, rpc_metad_register, rpc_metad_heartbeat;
extern const struct rpc_method rpc_metad_drops, rpc_metad_inventory, rpc_metad_gc;
extern const struct rpc_method rpc_metad_config, rpc_metad_report;
extern const struct rpc_method rpc_metad_session_open, rpc_metad_session_renew, rpc_metad_session_close, rpc_metad_link,
	rpc_metad_symlink, rpc_metad_readlink, rpc_metad_truncate, rpc_metad_xattr_set, rpc_metad_xattr_remove, rpc_metad_xattr_get;
extern const struct rpc_method rpc_metad_backup, rpc_metad_maintenance, rpc_metad_raft, rpc_metad_members;
extern const struct rpc_method rpc_chunkd_put, rpc_chunkd_drop_upload, rpc_chunkd_receipt, rpc_chunkd_get, rpc_chunkd_lists,
	rpc_chunkd_stat;

#endif
