// SPDX-License-Identifier: Apache-2.0
/* local_grow: more metads for a local store, as docs/groups.md has an operator do it. */
#include <signal.h>
#include <unistd.h>

#include "client/cli/local_priv.h"
#include "client/cli/ports.h"
#include "client/cli/process.h"
#include "common/base/mem.h"

/* The first metad. */
static int launch(struct local *local, enum local_start_as as, struct err *err)
{
	bool ran;
	int r = local__launch(local, "metad-1", as, &ran, err);

	return r < 0 ? r : local__wait_ready(local, "metad-1", err);
}

/* However short a user waits: one that was told to end does so. */
static int end_first(struct local *local, struct err *err)
{
	uint64_t most_ms = local->timeout_ms > LOCAL_END_TIMEOUT_MS ? local->timeout_ms : LOCAL_END_TIMEOUT_MS;
	struct err why;
	int r = process_end(local->dir, "metad-1", SIGTERM, most_ms, &why);

	if (r == ERR_TIMEDOUT)
		return err_set(err, r, "%.200s, and does so still: `craton local up` starts it again", why.text);
	if (r < 0 && r != ERR_NOENT) {
		*err = why;
		return r;
	}
	return ERR_OK;
}

/* Of a store whose only metad it is, and runs. Where that is refused it runs as before. */
static int found(struct local *local, struct err *err)
{
	struct err why, again;
	int r = end_first(local, err);

	if (r < 0)
		return r;
	r = launch(local, LOCAL_FOUNDS, err);
	if (r == ERR_OK || process_pid(local->dir, "metad-1"))
		return r;
	why = *err;
	if (launch(local, LOCAL_AS_IT_IS, &again) < 0)
		err_set(err, r, "%.200s; and metad-1 does not run again as before: %.200s", why.text, again.text);
	return r;
}

static int join(struct local *local, uint64_t number, struct err *err)
{
	uint16_t port;
	int r;

	if (number == 0)
		return err_set(err, ERR_INVAL, "metad-1 is of an older build, which does not say what number the next one gets: start it anew first (craton local stop, craton local start)");
	if (number != local->metad_count + 1)
		return err_set(err, ERR_INVAL, "the group gives the number %llu to the next metad, and its folder would be metad-%llu: metads were added or removed by hand, or the metadata are from a "
		               "backup: others are added by hand, too (docs/groups.md, Growing)", (unsigned long long)number, (unsigned long long)local->metad_count + 1);
	r = local__is_group(local) ? ERR_OK : found(local, err);
	if (r == ERR_OK)
		r = ports_choose(&port, 1, err);
	if (r < 0)
		return r;
	local->metad_ports[local->metad_count++] = port;
	local->metad_joins = local->metad_count;
	r = local__make_dirs(local, local->metad_count - 1, local->metad_count, err);
	return r < 0 ? r : local__save(local, err);
}

int local_join(struct local *local, uint64_t number, struct err *err)
{
	uint64_t before = local->metad_count;
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);

	if (r < 0)
		return r;
	r = local__look_again(local, err);
	if (r == ERR_OK && local->metad_count == before && !local->metad_joins)
		r = join(local, number, err);
	close(lock);
	return r;
}

int local_joined(struct local *local, struct err *err)
{
	uint64_t joined = local->metad_joins;
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);

	if (r < 0)
		return r;
	r = local__look_again(local, err);
	if (r == ERR_OK && local->metad_joins == joined) {
		local->metad_joins = 0;
		r = local__name_metads(local, err);
	}
	close(lock);
	return r;
}
