/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maintenance: a server that is expected to be away for a while, by a row with its end in state time. It gets no new chunks; its silence is
 * not a reason to rebuild what it holds before the end. Its chunks count as everything else: up or not. A window of a backup is over: who was
 * away then may have come back since, or be lost.
 *
 * Only servers of one failure domain are away at a time: with another domain in maintenance, or down and still holding blocks, a further
 * one would leave blocks of the smallest policies with no chunk to spare.
 */
#include "metad/state/state.h"

#include "common/base/check.h"

void state__maintenance_open(struct state *s)
{
	struct state_maintenance row;
	struct kv_scan scan;
	struct state_key key;
	uint32_t id;

	state_key_table(&key, STATE_TABLE_MAINTENANCE);
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.data[0] != STATE_TABLE_MAINTENANCE)
			break;
		if (!state_key_parse_number(scan.key, STATE_TABLE_MAINTENANCE, &id) || !state_server_at(s, id) ||
			state_maintenance_decode(scan.value, &row)) {
			state__fault(s, "a row of the maintenance table cannot be decoded");
			break;
		}
		if (row.restores == s->restore.count)
			s->servers[id].maintenance_ms = row.until_ms;
	}
	kv_scan_end(&scan);
}

void state__maintenance_restored(struct state *s)
{
	for (uint32_t id = 1; id < s->server_cap; id++)
		s->servers[id].maintenance_ms = 0;
	s->fleet_version++;
}

bool state_in_maintenance(const struct state *s, uint32_t server)
{
	const struct state_server *row = state_server_at(s, server);

	return row && row->maintenance_ms > s->meta.time_ms;
}

/* One of another domain that is away, or 0. */
static uint32_t another_away(struct state *s, const struct state_server *server)
{
	bool down[STATE_SERVERS] = {false}, any = false;

	for (uint32_t id = 1; id < s->server_cap; id++) {
		const struct state_server *other = state_server_at(s, id);

		if (!other || other->domain == server->domain)
			continue;
		if (state_in_maintenance(s, id))
			return id;
		down[id] = !other->up;
		any = any || !other->up;
	}
	return any ? state__first_holder(s, down) : 0;
}

void state__maintenance(struct state *s, const struct state_cmd_maintenance *cmd, struct state_result *res)
{
	const struct state_server *server = state_server_at(s, cmd->server);
	struct state_maintenance row;
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	if (!server || cmd->for_ms > STATE_MAINTENANCE_MAX_MS) {
		res->status = server ? ERR_RANGE : ERR_NOENT;
		return;
	}
	state_key_number(&key, STATE_TABLE_MAINTENANCE, cmd->server);
	if (cmd->for_ms) {
		res->server = another_away(s, server);
		if (res->server) {
			res->status = ERR_BUSY;
			return;
		}
		res->until_ms = s->meta.time_ms + cmd->for_ms;
		row = (struct state_maintenance){.until_ms = res->until_ms, .restores = s->restore.count};
		state__put(s, &key, value, state_maintenance_encode(&row, value));
	} else {
		state__del(s, &key);
	}
	s->servers[cmd->server].maintenance_ms = res->until_ms;
	s->fleet_version++;
}
