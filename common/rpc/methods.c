/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/methods.h"
#include "common/base/limits.h"
#include "proto/chunkd.pb-c.h"
#include "proto/metad.pb-c.h"
#include "proto/raft.pb-c.h"

#define METHOD(ident, number, text, request_, response_, in_bytes, out_bytes)                                \
	const struct rpc_method ident = {                                                                    \
		.id = (number),                                                                              \
		.name = (text),                                                                              \
		.request = &craton__##request_##__descriptor,                                                \
		.response = &craton__##response_##__descriptor,                                              \
		.request_payload = (in_bytes),                                                               \
		.response_payload = (out_bytes),                                                             \
	}

METHOD(rpc_metad_lookup, 0x0101, "metad.lookup", lookup_request, attr_reply, 0, 0);
METHOD(rpc_metad_readdir, 0x0102, "metad.readdir", readdir_request, readdir_reply, 0, 0);
METHOD(rpc_metad_mkdir, 0x0103, "metad.mkdir", mkdir_request, attr_reply, 0, 0);
METHOD(rpc_metad_remove, 0x0104, "metad.remove", remove_request, attr_reply, 0, 0);
METHOD(rpc_metad_rename, 0x0105, "metad.rename", rename_request, attr_reply, 0, 0);
METHOD(rpc_metad_setattr, 0x0106, "metad.setattr", setattr_request, attr_reply, 0, 0);
METHOD(rpc_metad_policy, 0x0107, "metad.policy", policy_request, policy_reply, 0, 0);
METHOD(rpc_metad_create, 0x0108, "metad.create", create_request, create_reply, 0, 0);
METHOD(rpc_metad_allocate, 0x0109, "metad.allocate", allocate_request, allocate_reply, 0, 0);
METHOD(rpc_metad_commit, 0x010a, "metad.commit", commit_request, commit_reply, 0, 0);
METHOD(rpc_metad_abort, 0x010b, "metad.abort", abort_request, attr_reply, 0, 0);
METHOD(rpc_metad_layout, 0x010c, "metad.layout", layout_request, layout_reply, 0, 0);
METHOD(rpc_metad_df, 0x010d, "metad.df", empty_request, df_reply, 0, 0);
METHOD(rpc_metad_status, 0x010e, "metad.status", empty_request, status_reply, 0, 0);
METHOD(rpc_metad_register, 0x010f, "metad.register", register_request, register_reply, 0, 0);
METHOD(rpc_metad_heartbeat, 0x0110, "metad.heartbeat", heartbeat_request, heartbeat_reply, 0, 0);
METHOD(rpc_metad_drops, 0x0130, "metad.drops", drops_request, drops_reply, 0, 0);
METHOD(rpc_metad_inventory, 0x0131, "metad.inventory", inventory_request, inventory_reply, 0, 0);
METHOD(rpc_metad_gc, 0x0132, "metad.gc", gc_request, gc_reply, 0, 0);
METHOD(rpc_metad_session_open, 0x0120, "metad.session_open", session_open_request, session_open_reply, 0, 0);
METHOD(rpc_metad_session_renew, 0x0121, "metad.session_renew", session_renew_request, session_renew_reply, 0, 0);
METHOD(rpc_metad_session_close, 0x0122, "metad.session_close", session_close_request, session_renew_reply, 0, 0);
METHOD(rpc_metad_link, 0x0123, "metad.link", link_request, attr_reply, 0, 0);
METHOD(rpc_metad_symlink, 0x0124, "metad.symlink", symlink_request, attr_reply, 0, 0);
METHOD(rpc_metad_readlink, 0x0125, "metad.readlink", lookup_request, readlink_reply, 0, 0);
METHOD(rpc_metad_truncate, 0x0126, "metad.truncate", truncate_request, attr_reply, 0, 0);
METHOD(rpc_metad_xattr_set, 0x0127, "metad.xattr_set", xattr_set_request, attr_reply, 0, 0);
METHOD(rpc_metad_xattr_remove, 0x0128, "metad.xattr_remove", xattr_request, attr_reply, 0, 0);
METHOD(rpc_metad_xattr_get, 0x0129, "metad.xattr_get", xattr_request, xattr_reply, 0, 0);

METHOD(rpc_metad_report, 0x0141, "metad.report", report_request, empty_request, 0, 0);
METHOD(rpc_metad_backup, 0x0150, "metad.backup", backup_request, backup_reply, 0, 0);
METHOD(rpc_metad_maintenance, 0x0151, "metad.maintenance", maintenance_request, maintenance_reply, 0, 0);
METHOD(rpc_metad_raft, 0x0160, "metad.raft", raft_request, raft_reply, 0, 0);
METHOD(rpc_metad_members, 0x0161, "metad.members", members_request, members_reply, 0, 0);
METHOD(rpc_metad_config, 0x0140, "metad.config", config_request, config_reply, 0, 0);

METHOD(rpc_chunkd_put, 0x0201, "chunkd.put", put_request, put_reply, LIMIT_CELL_BYTES, 0);
METHOD(rpc_chunkd_drop_upload, 0x0202, "chunkd.drop_upload", drop_upload_request, put_reply, 0, 0);
METHOD(rpc_chunkd_receipt, 0x0203, "chunkd.receipt", receipt_request, put_reply, 0, 0);
METHOD(rpc_chunkd_get, 0x0204, "chunkd.get", get_request, get_part, 0, LIMIT_CELL_BYTES);
METHOD(rpc_chunkd_lists, 0x0205, "chunkd.lists", lists_request, lists_reply, 0, 0);
METHOD(rpc_chunkd_stat, 0x0206, "chunkd.stat", stat_request, stat_reply, 0, 0);
