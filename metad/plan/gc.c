/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/plan/gc.h"

#include <string.h>
#include "common/base/check.h"

enum { LOOK_MS = 5000 }; /* files come when sessions have let go of them, with the time at which they lost their names: some are due at once */

static const uint8_t tables[PLAN_GC_TABLES] = {STATE_TABLE_GC, STATE_TABLE_GC_CUT, STATE_TABLE_GC_BLOCK, STATE_TABLE_BLOCK_GONE};

/* Drop rows of a disk that is gone; one disk after the other, from where the last command ended. */
static bool forget_drops(struct plan_gc *gc, struct state *s, struct state_cmd *ret_cmd)
{
	for (; gc->disk < s->disk_cap; gc->disk++, gc->drops_from = 0) {
		const struct state_disk *disk = state_disk_at(s, gc->disk);
		struct state_copy from = {.block = gc->drops_from};
		struct state_drop_list list;
		bool any;

		if (!disk || !state_drops_forgotten(s, disk))
			continue;
		any = state_drop_begin(s, disk->id, &from, &list) == 0 && list.copy.block < s->meta.floor;
		state_drop_end(&list);
		if (!any)
			continue;
		ret_cmd->type = STATE_CMD_FORGET_DROPS;
		ret_cmd->forget_drops = (struct state_cmd_forget_drops){.disk = disk->id, .from = gc->drops_from};
		return true;
	}
	gc->disk = 0;
	gc->drops_from = 0;
	return false;
}

/* As state_gc_find, over the table where the plan is; ERR_NOENT without a look while nothing can be due. */
static int look(struct plan_gc *gc, const struct plan_facts *facts, uint64_t before_ms, uint64_t *ret_id)
{
	struct plan_gc_look *l = &gc->looks[gc->at];
	uint64_t floor = tables[gc->at] == STATE_TABLE_BLOCK_GONE ? facts->state->meta.floor : 0;
	int code;

	if (gc->from == 0) {
		if (facts->now_ms < l->quiet_until_ms && floor == l->quiet_floor)
			return ERR_NOENT;
		*l = (struct plan_gc_look){.began_ms = facts->now_ms, .soonest_ms = facts->now_ms};
	}
	code = state_gc_find(facts->state, tables[gc->at], gc->from, before_ms, ret_id, &l->soonest_ms);
	l->named |= code == 0;
	/* Only what takes more than a step is spared. A cut is due at once; in a hurry there may be more at any time. */
	if (code == ERR_NOENT && gc->from && !l->named && tables[gc->at] != STATE_TABLE_GC_CUT && facts->now_ms >= gc->hurry_ms + STATE_GC_READ_MS) {
		l->quiet_until_ms = l->soonest_ms + STATE_GC_READ_MS;
		if (l->quiet_until_ms > l->began_ms + LOOK_MS)
			l->quiet_until_ms = l->began_ms + LOOK_MS;
		l->quiet_floor = floor;
	}
	return code;
}

static enum plan_next step(struct plan *plan, const struct plan_facts *facts, struct state_cmd *ret_cmd)
{
	struct plan_gc *gc = CONTAINER_OF(plan, struct plan_gc, plan);
	uint64_t before_ms = facts->now_ms > STATE_GC_READ_MS ? facts->now_ms - STATE_GC_READ_MS : 0, id;
	int code;

	if (before_ms < gc->hurry_ms)
		before_ms = gc->hurry_ms;
	if (tables[gc->at] == STATE_TABLE_GC_CUT)
		before_ms = facts->now_ms; /* its file takes no bytes until then; the blocks it leaves wait on their own */
	code = look(gc, facts, before_ms, &id);
	gc->from = code == ERR_NOENT ? 0 : id;
	if (code == ERR_NOENT)
		gc->at = (gc->at + 1) % PLAN_GC_TABLES;
	if (code == ERR_NOENT && gc->at == 0)
		return (gc->forgetting = forget_drops(gc, facts->state, ret_cmd)) ? PLAN_COMMAND : PLAN_REST;
	if (code)
		return PLAN_GO_ON;
	gc->forgetting = false;
	ret_cmd->type = STATE_CMD_GC;
	ret_cmd->gc = (struct state_cmd_gc){.table = tables[gc->at], .from = id, .before_ms = before_ms};
	return PLAN_COMMAND;
}

static void done(struct plan *plan, int status, const struct state_result *res)
{
	struct plan_gc *gc = CONTAINER_OF(plan, struct plan_gc, plan);

	if (!res || status)
		return;
	if (gc->forgetting)
		gc->drops_from = res->next;
	else
		gc->from = res->next;
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
	memset(gc->looks, 0, sizeof(gc->looks));
}
