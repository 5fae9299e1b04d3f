/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_rows: how many rows a command may change at most, before it is run: whoever gathers commands into an entry keeps
 * the table in memory within its bound by it. The meta row and those of sessions are not counted here: they are
 * written once an entry.
 */
#include "metad/state/state.h"

enum {
	NAME_ROWS = 2,                     /* an entry, and its directory's row */
	LOST_ROWS = 3,                     /* a file that loses its name: its row, its lease, what tells that it goes */
	FORGOTTEN_ROWS = 3 + LIMIT_XATTRS, /* a directory that goes: its row and all that may hang on it */
	CUT_ROWS = 3,                      /* of an extent that is cut off: its own, the block's, a gc_block row */
	WIDE_ROWS = 2, /* of a server or disk, whose texts make it longer than others: it counts twice */
	TAIL_ROWS = LIMIT_TAIL_BYTES /
		STATE_ROW_MEMORY_BYTES, /* a tail that is written again did not come with the command */
};

static uint32_t components(struct slice path)
{
	uint32_t n = 1;

	for (size_t i = 0; i < path.len; i++)
		n += path.data[i] == '/';
	return n;
}

static uint32_t commit_rows(const struct state_cmd_commit *cmd)
{
	const uint32_t rows =
		3 + NAME_ROWS + LOST_ROWS; /* the file, its lease and tail; publishing; what that replaces */

	return rows + 2 * cmd->block_count; /* itself, its extent */
}

uint32_t state_cmd_rows(const struct state_cmd *cmd)
{
	switch (cmd->type) {
	case STATE_CMD_TICK:
		return STATE_TICK_RANGES;
	case STATE_CMD_MKDIR:
		return (1 + NAME_ROWS) * (cmd->mkdir.parents ? components(cmd->mkdir.at.path) : 1);
	case STATE_CMD_REMOVE:
		return NAME_ROWS + (cmd->remove.directory ? FORGOTTEN_ROWS : LOST_ROWS);
	case STATE_CMD_RENAME: /* only apply knows whether it replaces a directory */
		return 1 + 2 * NAME_ROWS + (cmd->rename.noreplace ? 0 : FORGOTTEN_ROWS);
	case STATE_CMD_CREATE:
	case STATE_CMD_OPEN_WRITE:
		return 3 + NAME_ROWS + LOST_ROWS; /* the file, a lease that is given up, one that is taken */
	case STATE_CMD_COMMIT:
	case STATE_CMD_COMMIT_TAIL:
		return commit_rows(&cmd->commit);
	case STATE_CMD_ABORT:
		return LOST_ROWS;
	case STATE_CMD_REGISTER:
		return WIDE_ROWS * (5 + 2 * cmd->register_.disk_count + LIMIT_DISKS_PER_SERVER);
	case STATE_CMD_SERVER_DOWN:
		return WIDE_ROWS * (1 + LIMIT_DISKS_PER_SERVER);
	case STATE_CMD_DISK_FAILED:
	case STATE_CMD_CONFIRM:
	case STATE_CMD_TAKE_OUT:
		return WIDE_ROWS;
	case STATE_CMD_INTENT:
		return 2;
	case STATE_CMD_INTENT_END:
		return 2;
	case STATE_CMD_LOCATION:
		return 4; /* the block, the intent, a drop row, the file */
	case STATE_CMD_DAMAGED:
		return 1;
	case STATE_CMD_GC:
		return STATE_COMMAND_ROWS;
	case STATE_CMD_DROPPED:
	case STATE_CMD_ORPHANS:
		return cmd->copies.count;
	case STATE_CMD_MISSING:
		return 2 * cmd->copies.count;
	case STATE_CMD_FORGET_DROPS:
		return STATE_FORGET_DROPS;
	case STATE_CMD_SESSION_END: /* its row is written once more when leases are left */
		return STATE_END_LEASES * LOST_ROWS + STATE_SESSION_ROW_BYTES / STATE_ROW_MEMORY_BYTES + 1;
	case STATE_CMD_RELEASE:
		return 2 * cmd->release.count;
	case STATE_CMD_LINK:
	case STATE_CMD_SYMLINK:
		return 2 + NAME_ROWS;
	case STATE_CMD_XATTR_SET:
	case STATE_CMD_XATTR_REMOVE:
		return 2;
	case STATE_CMD_TRUNCATE:
		return 4 + LIMIT_CUT_EXTENTS * CUT_ROWS +
			TAIL_ROWS; /* the file, its lease, a gc_cut row, an extent that is shortened */
	default: /* FORMAT, SETATTR, POLICY, RESERVE, TOKEN_ROLL, MAINTENANCE, RESTORED, CONFIG_SET, SESSION_OPEN */
		return 1;
	}
}

uint32_t state_cmd_derived_rows(const struct state_cmd *cmd)
{
	uint32_t rows = 0;

	switch (cmd->type) {
	case STATE_CMD_COMMIT:
	case STATE_CMD_COMMIT_TAIL:
		for (uint32_t i = 0; i < cmd->commit.block_count; i++) /* one for each chunk that is new there */
			rows += cmd->commit.blocks[i].receipt_count;
		return rows;
	case STATE_CMD_LOCATION:
		return 2; /* there, and no more where it was */
	case STATE_CMD_MISSING:
		return cmd->copies.count;
	default: /* GC counts them among its rows; others change no chunks */
		return 0;
	}
}

/* Other commands of the session that are under way count their replies themselves. */
uint32_t state_session_rows(const struct state *s, const struct state_request *request)
{
	const struct state_session *session = request->session ? state_session_at(s, request->session) : NULL;
	uint64_t low = request->seq - request->ahead, held;
	uint32_t bytes = STATE_SESSION_ROW_BYTES - STATE_WINDOW * (3 + STATE_REPLY_BYTES);

	if (!session)
		return 0;
	held = state_session_held(session, low);
	for (int ahead = 0; ahead <= request->ahead; ahead++)
		bytes += held >> ahead & 1 ? 0 : 3 + STATE_REPLY_BYTES;
	for (; held; held &= held - 1)
		bytes += 3u + session->replies[(low + (unsigned)__builtin_ctzll(held)) % STATE_WINDOW].len;
	return bytes / STATE_ROW_MEMORY_BYTES + 1;
}
