/* SPDX-License-Identifier: Apache-2.0 */
/* handlers_maintenance: servers that may be away for a while (state/maintenance.c). */
#include "metad/core.h"

#include <stdio.h>
#include <stdlib.h>
#include "common/base/check.h"

static void reply(struct metad *md, struct rpc_req *req, int status, uint32_t server, uint64_t for_ms, const char *error)
{
	const struct state_server *row = state_server_at(&md->state, server);
	Craton__MaintenanceReply out = CRATON__MAINTENANCE_REPLY__INIT;

	out.server = server;
	out.name = (char *)(uintptr_t)(row ? row->name : "");
	out.for_ms = for_ms;
	out.error = (char *)(uintptr_t)error;
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &out.base});
}

/* By name, of several the one that is up; else by number. 0: none. *ret_several: several of that name, all down. */
static uint32_t find(const struct metad *md, const char *text, bool *ret_several)
{
	uint32_t found = 0, count = 0;
	char *end;

	*ret_several = false;
	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);

		if (!server || strcmp(server->name, text))
			continue;
		if (server->up)
			return id;
		found = id;
		count++;
	}
	*ret_several = count > 1;
	if (count)
		return found;
	found = (uint32_t)strtoul(text, &end, 10);
	return *text && !*end && state_server_at(&md->state, found) ? found : 0;
}

static void on_done(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	const Craton__MaintenanceRequest *msg = (const Craton__MaintenanceRequest *)req->msg;
	bool several;
	uint32_t id = find(md, msg->server, &several);
	const struct state_server *other = res ? state_server_at(&md->state, res->server) : NULL;
	char text[512];

	if (status == ERR_BUSY && other) {
		snprintf(text, sizeof(text),
			"%s of another failure domain %s: only one domain may be away at a time; bring it back, or wait until "
			"its chunks are rebuilt",
			other->name, state_in_maintenance(&md->state, other->id) ? "is in maintenance" : "is down");
		reply(md, req, status, id, 0, text);
		return;
	}
	if (!status && res)
		log_line(md->options.log, LOG_INFO, "maintenance", "server=%u for_ms=%llu", id, (unsigned long long)msg->for_ms);
	reply(md, req, status, id, msg->for_ms, "");
}

void metad__maintenance(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__MaintenanceRequest *msg = (const Craton__MaintenanceRequest *)req->msg;
	bool several;
	uint32_t id;

	if (metad__gate(md, req))
		return;
	id = find(md, msg->server, &several);
	if (!id) {
		reply(md, req, ERR_NOENT, 0, 0, "there is no such server: `craton status` has their names");
		return;
	}
	if (several) {
		reply(md, req, ERR_INVAL, 0, 0, "several servers have had this name and none is up: give the number of `craton status --json`");
		return;
	}
	if (msg->for_ms > STATE_MAINTENANCE_MAX_MS) {
		reply(md, req, ERR_RANGE, id, 0, "maintenance lasts 24 h at most: what is away for longer is to be rebuilt elsewhere");
		return;
	}
	md->cmd.type = STATE_CMD_MAINTENANCE;
	md->cmd.maintenance = (struct state_cmd_maintenance){.server = id, .for_ms = msg->for_ms};
	metad__submit_req(md, on_done, req);
}
