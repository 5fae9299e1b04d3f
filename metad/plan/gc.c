/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/plan/gc.h"

#include "common/base/check.h"

static const uint8_t tables[] = {STATE_TABLE_GC, STATE_TABLE_GC_CUT, STATE_TABLE_GC_BLOCK};

static enum plan_next step(struct plan *plan, const struct plan_facts *facts, struct state_cmd *ret_cmd)
{
	struct plan_gc *gc = CONTAINER_OF(plan, struct plan_gc, plan);
	uint64_t before_ms = facts->now_ms > STATE_GC_READ_MS ? facts->now_ms - STATE_GC_READ_MS : 0, id;
	int code;

	if (before_ms < gc->hurry_ms)
		before_ms = gc->hurry_ms;
	if (tables[gc->at] == STATE_TABLE_GC_CUT)
		before_ms = facts->now_ms; /* its file takes no bytes until then; the blocks it leaves wait on their own */
	code = state_gc_find(facts->state, tables[gc->at], gc->from, before_ms, &id);
	gc->from = code == ERR_NOENT ? 0 : id;
	if (code == ERR_NOENT)
		gc->at = (gc->at + 1) % ARRAY_COUNT(tables);
	if (code)
		return code == ERR_NOENT && gc->at == 0 ? PLAN_REST : PLAN_GO_ON;
	ret_cmd->type = STATE_CMD_GC;
	ret_cmd->gc = (struct state_cmd_gc){.table = tables[gc->at], .from = id, .before_ms = before_ms};
	return PLAN_COMMAND;
}

static void done(struct plan *plan, int status, const struct state_result *res)
{
	if (res && !status)
		CONTAINER_OF(plan, struct plan_gc, plan)->from = res->next;
}

void plan_gc_init(struct plan_gc *gc)
{
	*gc = (struct plan_gc){.plan = {.name = "gc", .step = step, .done = done}};
}

void plan_gc_hurry(struct plan_gc *gc, uint64_t now_ms)
{
	gc->hurry_ms = now_ms;
	gc->at = 0;
	gc->from = 0;
}
