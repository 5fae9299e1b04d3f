// SPDX-License-Identifier: Apache-2.0
/* local_grow: more metads for a local store, as docs/groups.md has an operator do it. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/local_priv.h"
#include "client/cli/ports.h"
#include "client/cli/process.h"
#include "common/base/mem.h"

enum { END_TIMEOUT_MS = 60000 };

/* Of a store whose only metad it is, and runs. */
static int found(struct local *local, struct err *err)
{
	bool ran;
	int r = process_end(local->dir, "metad-1", SIGTERM, local->timeout_ms ? local->timeout_ms : END_TIMEOUT_MS, err);

	return r < 0 && r != ERR_NOENT ? r : local__launch(local, "metad-1", LOCAL_FOUNDS, &ran, err);
}

int local_found_group(struct local *local, struct err *err)
{
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);
	bool is_group;

	if (r < 0)
		return r;
	is_group = local__is_group(local);
	if (!is_group)
		r = found(local, err);
	close(lock);
	return r < 0 || is_group ? r : local__wait_ready(local, "metad-1", err);
}

/* What is on record now. */
static int look_again(struct local *local, struct err *err)
{
	struct local now;
	int r = local_load(local->dir, &now, err);

	if (r < 0)
		return r;
	local->metad_count = now.metad_count;
	local->metad_joins = now.metad_joins;
	memcpy(local->metad_ports, now.metad_ports, sizeof(now.metad_ports));
	local_fini(&now);
	return ERR_OK;
}

static int join(struct local *local, struct err *err)
{
	uint16_t port;
	int r = ports_choose(&port, 1, err);

	if (r < 0)
		return r;
	local->metad_ports[local->metad_count++] = port;
	local->metad_joins = local->metad_count;
	r = local__make_dirs(local, local->metad_count - 1, local->metad_count, err);
	return r < 0 ? r : local__save(local, err);
}

int local_join(struct local *local, struct err *err)
{
	uint64_t before = local->metad_count;
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);

	if (r < 0)
		return r;
	r = look_again(local, err);
	if (r == ERR_OK && local->metad_count == before && !local->metad_joins)
		r = join(local, err);
	close(lock);
	return r;
}

int local_joined(struct local *local, struct err *err)
{
	uint64_t joined = local->metad_joins;
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);

	if (r < 0)
		return r;
	r = look_again(local, err);
	if (r == ERR_OK && local->metad_joins == joined) {
		local->metad_joins = 0;
		r = local__rename_metads(local, err);
		if (r == ERR_OK)
			r = local__save(local, err);
	}
	close(lock);
	return r;
}
