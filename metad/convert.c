/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert: the directory of a store with one metad becomes that of the first replica of a group, at the start that asks for it.
 *
 *   opened as one log: nothing is damaged, of another cluster, or newer than this build --> decided (metad/replica/founding.h) --> opened as a group's
 *
 * Whatever refuses the start before that is decided has changed nothing that one metad minds.
 */
#include "metad/core.h"

#include "common/base/check.h"

int metad__convert(struct metad *md, const struct ledger_options *options, struct err *err)
{
	const struct metad_group one = {0};
	struct ledger_options o = *options;
	int code;

	CHECK(options->group->id && !md->ledger);
	o.group = &one;
	code = ledger_open(md->io, &o, &md->ledger, err);
	if (code)
		return code;
	code = metad__check_state(md, err);
	if (!code)
		code = ledger_decide_group(md->ledger, md->dir, md->state.restore.count, err);
	state_close(&md->state);
	ledger_abandon(md->ledger);
	md->ledger = NULL;
	if (!code)
		log_line(md->options.log, LOG_INFO, "becomes-a-group", "dir=%s replica=%llu", md->dir, (unsigned long long)options->group->id);
	return code;
}
