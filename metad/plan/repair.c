/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/plan/repair.h"

#include <stdio.h>
#include <stdlib.h>
#include "common/base/check.h"
#include "common/code/stripe.h"

/* ---- one block ---- */

/* Its bytes can be pulled: a failed disk still serves what it can read. */
static bool is_source(const struct state *s, const struct state_chunk *c)
{
	const struct state_disk *disk = c->present && !c->damaged ? state_disk_at(s, c->disk) : NULL;
	const struct state_server *server = disk ? state_server_at(s, disk->server) : NULL;

	return server && server->up && (state_disk_counts(s, disk->id) || disk->state == STATE_DISK_FAILED);
}

static uint32_t domain_of(const struct state *s, const struct state_chunk *c)
{
	const struct state_disk *disk = state_disk_at(s, c->disk);

	return disk ? disk->domain : 0;
}

/* Why this chunk is wanted anew; 0: it is not (yet: *due_ms). */
static uint8_t cause_of(const struct state *s, const struct state_block *row, uint8_t index, uint64_t now_ms,
	bool writer_gone, uint64_t *due_ms)
{
	const struct state_chunk *c = &row->chunks[index];
	const struct state_disk *disk = state_disk_at(s, c->disk);
	uint64_t from_ms = row->time_ms + state_config(s, CONFIG_REPAIR_MISSING_AFTER);

	if (c->present && c->damaged)
		return STATE_CAUSE_DAMAGED;
	if (c->present)
		return disk && disk->out ? STATE_CAUSE_LOST : 0;
	if (writer_gone || now_ms >= from_ms)
		return STATE_CAUSE_MISSING;
	if (!*due_ms || from_ms < *due_ms)
		*due_ms = from_ms;
	return 0;
}

/* Of a whole block: a chunk of the fullest domain, if there is one that the block does not use; -1: none. */
static int crowded_index(
	const struct state *s, const struct state_block *row, const struct stripe_geom *g, uint32_t domains)
{
	uint32_t most = 1, used = 0;
	int index = -1;

	for (uint8_t i = 0; i < row->width; i++) {
		uint32_t same = 0;
		bool first = true;

		if (stripe_chunk_len(g, i) == 0)
			continue;
		for (uint8_t j = 0; j < row->width; j++) {
			if (stripe_chunk_len(g, j) == 0 ||
				domain_of(s, &row->chunks[j]) != domain_of(s, &row->chunks[i]))
				continue;
			same++;
			first = first && j >= i;
		}
		used += first;
		if (same > most) {
			most = same;
			index = i;
		}
	}
	return used < domains ? index : -1;
}

void repair_assess(const struct state *s, const struct state_block *row, uint64_t now_ms, uint32_t domains,
	bool writer_gone, struct repair_look *ret_look)
{
	struct stripe_geom g = state__geom(row);
	int here = 0, sources = 0, exist = 0, needed = stripe_data_chunks(&g), index = -1;
	struct repair_look look = {0};
	uint8_t cause = 0;

	for (uint8_t i = 0; i < row->width; i++) {
		const struct state_chunk *c = &row->chunks[i];
		uint8_t why;

		if (stripe_chunk_len(&g, i) == 0)
			continue;
		exist++;
		here += c->present && !c->damaged && state_disk_counts(s, c->disk);
		sources += is_source(s, c);
		why = cause_of(s, row, i, now_ms, writer_gone, &look.due_ms);
		/* Of several one that is no source itself: the others are then as many as can be. */
		if (why && (index < 0 || (is_source(s, &row->chunks[index]) && !is_source(s, c)))) {
			index = i;
			cause = why;
		}
	}
	if (index < 0 && here == exist && domains) {
		index = crowded_index(s, row, &g, domains);
		cause = STATE_CAUSE_SPREAD;
	}
	if (index >= 0) {
		look.needs = sources - is_source(s, &row->chunks[index]) >= needed;
		look.helpless = !look.needs;
		look.need = (struct repair_need){
			.block = row->id, .margin = (int8_t)(here - needed), .index = (uint8_t)index, .cause = cause};
	}
	*ret_look = look;
}

/* ---- the fleet ---- */

/* State time when each server stopped being up, or came back without disks that are not out yet, as its disks' rows have it; 0: neither. */
static void find_falls(const struct state *s, uint64_t fell_ms[STATE_SERVERS])
{
	memset(fell_ms, 0, STATE_SERVERS * sizeof(fell_ms[0]));
	for (uint32_t i = 1; i < s->disk_cap; i++) {
		const struct state_disk *disk = state_disk_at(s, i);
		const struct state_server *server = disk ? state_server_at(s, disk->server) : NULL;

		if (!server || (server->up && (disk->out || !state_disk_left_out(s, disk))))
			continue;
		if (disk->down_ms > fell_ms[server->id])
			fell_ms[server->id] = disk->down_ms;
	}
	for (uint32_t i = 1; i < s->server_cap; i++)
		if (s->servers[i].maintenance_ms > fell_ms[i])
			fell_ms[i] = 0; /* in maintenance it went on purpose */
}

/* Did too many fall in the window that begins when this server fell? */
static bool is_mass(const struct state *s, const uint64_t fell_ms[STATE_SERVERS], const struct state_server *first)
{
	uint64_t from_ms = fell_ms[first->id];
	uint32_t fell = 0, up = 0, domain_fell = 0, domain_up = 0;

	for (uint32_t i = 1; i < s->server_cap; i++) {
		const struct state_server *server = state_server_at(s, i);
		bool in, is_up;

		if (!server)
			continue;
		in = fell_ms[i] >= from_ms && fell_ms[i] <= from_ms + REPAIR_MASS_WINDOW_MS;
		is_up = server->up && !in;
		fell += in;
		up += is_up;
		if (server->domain == first->domain) {
			domain_fell += in;
			domain_up += is_up;
		}
	}
	return (fell > 1 && fell * 10 > fell + up) || (domain_fell > 1 && domain_up == 0);
}

uint64_t repair_hold(const struct state *s, uint64_t now_ms)
{
	uint64_t hold_ms = state_config(s, CONFIG_REPAIR_MASS_HOLD), until_ms = 0, fell_ms[STATE_SERVERS];

	find_falls(s, fell_ms);
	for (uint32_t i = 1; i < s->server_cap; i++) {
		if (!fell_ms[i] || fell_ms[i] + REPAIR_MASS_WINDOW_MS + hold_ms <= now_ms || !is_mass(s, fell_ms, &s->servers[i]))
			continue;
		if (fell_ms[i] + hold_ms > until_ms)
			until_ms = fell_ms[i] + hold_ms;
	}
	return until_ms > now_ms ? until_ms : 0;
}

/* Its server is silent for so long, or has come back without it. */
static bool is_away(struct plan_repair *p, const struct state *s, const struct state_disk *disk, uint64_t dead_ms)
{
	const struct state_server *server = state_server_at(s, disk->server);

	return server->up ? state_disk_left_out(s, disk) : p->env.silent_ms(p->env.ctx, server->id) >= dead_ms;
}

/* A disk whose chunks should be rebuilt elsewhere, and may be now. 0: none. */
static uint32_t disk_to_take_out(struct plan_repair *p, const struct state *s, uint64_t now_ms)
{
	uint64_t dead_ms = state_config(s, CONFIG_SERVER_DEAD_AFTER);

	p->out_waits_ms = 0;
	for (uint32_t i = 1; i < s->disk_cap; i++) {
		const struct state_disk *disk = state_disk_at(s, i);
		const struct state_server *server = disk ? state_server_at(s, disk->server) : NULL;
		uint64_t at_ms;

		if (!server || disk->out)
			continue;
		/* It is known why it is away; if it does not come back in time, it is silent from then on. */
		if (disk->state != STATE_DISK_FAILED && server->maintenance_ms &&
			now_ms < server->maintenance_ms + dead_ms)
			continue;
		if (disk->state != STATE_DISK_FAILED && (!is_away(p, s, disk, dead_ms) || now_ms < disk->down_ms + dead_ms))
			continue;
		at_ms = state_take_out_at(s, disk);
		if (at_ms <= now_ms)
			return i;
		if (!p->out_waits_ms || at_ms < p->out_waits_ms)
			p->out_waits_ms = at_ms;
	}
	return 0;
}

/* Are disks of another failure domain as bad, given up or not? */
static bool damages_elsewhere(
	struct plan_repair *p, const struct state *s, const struct state_disk *disk, uint64_t limit)
{
	for (uint32_t i = 1; i < s->disk_cap; i++) {
		const struct state_disk *other = state_disk_at(s, i);

		if (other && other->domain != disk->domain && p->env.damaged(p->env.ctx, i) >= limit)
			return true;
	}
	return false;
}

/*
 * A disk that is up and confirms damage again and again: what is whole on it is better elsewhere, before it is damaged, too. What damages
 * chunks in several failure domains is a fault of something else, and giving up one after the other would leave no place for data. 0: none.
 */
static uint32_t disk_to_give_up(struct plan_repair *p, const struct state *s, uint64_t now_ms)
{
	uint64_t limit = state_config(s, CONFIG_DISK_DAMAGE_LIMIT);

	for (uint32_t i = 1; i < s->disk_cap && limit; i++) {
		const struct state_disk *disk = state_disk_at(s, i);

		if (disk && state_disk_counts(s, i) && p->env.damaged(p->env.ctx, i) >= limit &&
			state_take_out_at(s, disk) <= now_ms && !damages_elsewhere(p, s, disk, limit))
			return i;
	}
	return 0;
}

static void give_up_disk(struct plan_repair *p, const struct state *s, uint32_t disk, struct state_cmd *ret_cmd)
{
	snprintf(p->text, sizeof(p->text), "%u damaged chunks were found on it within a day (disk.damage_limit)",
		p->env.damaged(p->env.ctx, disk));
	p->giving_up = disk;
	ret_cmd->type = STATE_CMD_DISK_FAILED;
	ret_cmd->disk_failed = (struct state_cmd_disk_failed){.disk = disk,
		.generation = state_disk_at(s, disk)->generation,
		.error = slice_of(p->text, strlen(p->text))};
}

/* ---- candidates ---- */

static bool is_target_busy(const struct state *s, uint32_t disk)
{
	for (uint32_t i = 0; i < s->intent_count; i++)
		if (s->intents[i].disk == disk)
			return true;
	return false;
}

/* Disks that may take a chunk of that size; `busy` ones are marked as to be avoided. */
static size_t candidates(struct plan_repair *p, const struct state *s, uint64_t chunk_bytes)
{
	size_t n = 0;

	for (uint32_t i = 1; i < s->disk_cap; i++) {
		const struct state_disk *disk = state_disk_at(s, i);
		uint64_t free_bytes;

		if (!disk || disk->state != STATE_DISK_UP || !state_disk_counts(s, i) || !state_disk_knows(s, disk) ||
			state_in_maintenance(s, disk->server))
			continue;
		free_bytes = p->env.free_bytes(p->env.ctx, disk, chunk_bytes);
		p->candidates[n++] = (struct place_disk){.disk = i,
			.domain = disk->domain,
			.free_bytes = free_bytes >= chunk_bytes ? free_bytes : 0,
			.avoid = is_target_busy(s, i)};
	}
	return n;
}

static uint32_t count_domains(struct plan_repair *p, const struct state *s)
{
	size_t count = candidates(p, s, 0);
	uint32_t n = 0;

	for (size_t i = 0; i < count; i++) {
		bool known = p->candidates[i].free_bytes == 0;

		for (size_t j = 0; j < i && !known; j++)
			known = p->candidates[j].free_bytes && p->candidates[j].domain == p->candidates[i].domain;
		n += !known;
	}
	return n;
}

static struct repair_put_off *put_off_of(struct plan_repair *p, uint64_t block)
{
	struct repair_put_off *set = p->put_off[block % ARRAY_COUNT(p->put_off)];

	for (size_t i = 0; i < REPAIR_PUT_OFF_WAYS; i++)
		if (set[i].block == block)
			return &set[i];
	return NULL;
}

/* Where the chunk should go, but to none of `not`. */
static int choose_target_but(struct plan_repair *p, const struct state *s, const struct repair_need *need, const uint32_t *not, uint32_t not_count,
	uint32_t *ret_disk)
{
	struct stripe_geom g = state__geom(&p->row);
	size_t count = candidates(p, s, stripe_chunk_len(&g, need->index)), held_count = 0;
	struct place_spot held[LIMIT_WIDTH];
	uint32_t now, best, disk;
	int code;

	for (uint8_t i = 0; i < p->row.width; i++) {
		const struct state_chunk *c = &p->row.chunks[i];

		if (i == need->index || !c->present)
			continue;
		held[held_count++] = (struct place_spot){.disk = c->disk, .domain = domain_of(s, c)};
		for (size_t j = 0; j < count; j++) /* never two chunks of a block on a disk by our own choice */
			if (p->candidates[j].disk == c->disk)
				p->candidates[j].free_bytes = 0;
	}
	for (size_t j = 0; j < count; j++)
		for (uint32_t i = 0; i < not_count; i++)
			if (p->candidates[j].disk == not[i])
				p->candidates[j].free_bytes = 0;
	code = place_next(p->candidates, count, held, held_count, g.m, p->rng, ret_disk, &now);
	for (size_t j = 0; j < count; j++)
		p->candidates[j].avoid = false;
	if (place_next(p->candidates, count, held, held_count, g.m, p->rng, &disk, &best))
		return ERR_NO_PLACEMENT;
	if (need->cause == STATE_CAUSE_SPREAD && best > 0)
		return ERR_NO_PLACEMENT;
	return code || now > best ? ERR_AGAIN : 0;
}

static uint32_t failed_count(const struct repair_put_off *f)
{
	uint32_t n = 0;

	while (n < REPAIR_FAILED_DISKS && f->disks[n])
		n++;
	return n;
}

static void note_failed(struct repair_put_off *f, uint32_t disk)
{
	uint32_t at = 0;

	while (at < REPAIR_FAILED_DISKS - 1 && f->disks[at] && f->disks[at] != disk)
		at++;
	memmove(&f->disks[1], f->disks, at * sizeof(f->disks[0]));
	f->disks[0] = disk;
}

/* ERR_AGAIN: to one that is busy, wait; ERR_NO_PLACEMENT. Where rebuilds have failed the next one goes elsewhere, if there is such a place. */
static int choose_target(struct plan_repair *p, const struct state *s, const struct repair_need *need, uint32_t *ret_disk)
{
	const struct repair_put_off *failed = put_off_of(p, need->block);
	uint32_t not_count = failed ? failed_count(failed) : 0;
	int code;

	while ((code = choose_target_but(p, s, need, failed ? failed->disks : NULL, not_count, ret_disk)) == ERR_NO_PLACEMENT && not_count)
		not_count--; /* the one that failed longest ago */
	return code;
}

/* Blocks of a file that nobody can reach are left to garbage collection: one that has a gc row. */
static bool is_reachable(struct plan_repair *p, struct state *s)
{
	struct state_key key;
	struct slice value;

	if (p->row.refcount == 0 || state_inode_get(s, p->row.inode, &p->inode))
		return p->row.refcount > 1;
	if (p->row.refcount > 1 || !(p->inode.flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED)))
		return true;
	state_key_id(&key, STATE_TABLE_GC, p->row.inode);
	return kv_get(s->kv, state_key_slice(&key), &value) != 0;
}

/*
 * Can nobody finish a chunk of the block in p->row that was late? Only the session that wrote it could. It is gone if all that there
 * are began after the commit, and if the file was left incomplete and nobody has it open to write.
 */
static bool writer_gone(struct plan_repair *p, struct state *s)
{
	if (p->row.time_ms < p->oldest_ms)
		return true;
	return state_inode_get(s, p->row.inode, &p->inode) == 0 && !(p->inode.flags & STATE_INODE_COMPLETE) &&
		!p->inode.lease;
}

static void assess(struct plan_repair *p, struct state *s, uint64_t now_ms, struct repair_look *ret_look)
{
	repair_assess(s, &p->row, now_ms, p->domains, false, ret_look);
	if (ret_look->due_ms && writer_gone(p, s))
		repair_assess(s, &p->row, now_ms, p->domains, true, ret_look);
}

/* ---- the walk ---- */

static int by_margin(const void *va, const void *vb)
{
	const struct repair_need *a = va, *b = vb;
	bool sa = a->cause == STATE_CAUSE_SPREAD, sb = b->cause == STATE_CAUSE_SPREAD;

	if (sa != sb)
		return sa ? 1 : -1; /* crowded blocks have all their chunks */
	if (a->margin != b->margin)
		return a->margin < b->margin ? -1 : 1;
	return a->block < b->block ? -1 : a->block > b->block;
}

static bool queue_has_room(const struct plan_repair *p, const struct repair_need *need)
{
	return p->queue_count < REPAIR_QUEUE || by_margin(need, &p->queue[p->queue_least]) < 0;
}

/* Into the queue, in the place of a less urgent one if that is full. */
static void queue_add(struct plan_repair *p, const struct repair_need *need)
{
	if (p->queue_count < REPAIR_QUEUE)
		p->queue[p->queue_count++] = *need;
	else
		p->queue[p->queue_least] = *need;
	if (p->queue_count < REPAIR_QUEUE)
		return;
	p->queue_least = 0;
	for (uint32_t i = 1; i < p->queue_count; i++)
		if (by_margin(&p->queue[i], &p->queue[p->queue_least]) > 0)
			p->queue_least = i;
}

static void walk_due(struct plan_repair *p, uint64_t at_ms)
{
	if (!p->walk_due_ms || at_ms < p->walk_due_ms)
		p->walk_due_ms = at_ms;
}

static bool is_put_off(struct plan_repair *p, uint64_t block, uint64_t now_ms)
{
	const struct repair_put_off *f = put_off_of(p, block);

	if (!f || now_ms >= f->until_ms)
		return false;
	walk_due(p, f->until_ms);
	return true;
}

static bool walk_wanted(const struct plan_repair *p, const struct state *s, uint64_t now_ms)
{
	if (now_ms < p->walk_next_ms)
		return false;
	return p->walk_truncated || p->walk_fleet != s->fleet_version || p->walk_blocks != s->blocks_version ||
		(p->due_ms && now_ms >= p->due_ms) || (p->unfinished && p->walk_sessions != s->sessions_ended);
}

static void walk_begin(struct plan_repair *p, const struct state *s, uint64_t now_ms)
{
	p->walking = true;
	p->walk_truncated = false;
	p->next_block = 0;
	p->walk_began_ms = now_ms;
	p->walk_due_ms = 0;
	p->walk_fleet = s->fleet_version;
	p->walk_blocks = s->blocks_version;
	p->walk_sessions = s->sessions_ended;
	p->oldest_ms = state_session_oldest_ms(s);
	if (p->oldest_ms > now_ms)
		p->oldest_ms = now_ms + 1; /* there is none: those that come now write later */
	p->unfinished = false;
	p->counted = p->counted_helpless = p->counted_no_target = 0;
	p->domains = count_domains(p, s);
	p->queue_count = p->queue_at = 0;
}

static void walk_end(struct plan_repair *p, uint64_t now_ms)
{
	uint64_t took = now_ms - p->walk_began_ms, rest = took * REPAIR_WALK_REST_FACTOR;

	p->walking = false;
	p->walk_next_ms = now_ms + (rest > REPAIR_WALK_REST_MS ? rest : REPAIR_WALK_REST_MS);
	p->due_ms = p->walk_due_ms;
	p->wanted = p->counted;
	p->helpless = p->counted_helpless;
	p->no_target = p->counted_no_target;
	qsort(p->queue, p->queue_count, sizeof(p->queue[0]), by_margin);
}

/* Now, or as soon as a target is free. */
static bool can_begin(struct plan_repair *p, struct state *s, const struct repair_need *need, uint64_t now_ms)
{
	uint32_t disk;

	if (state_intent_of(s, need->block) || is_put_off(p, need->block, now_ms) || !is_reachable(p, s))
		return false;
	p->asked++;
	if (choose_target(p, s, need, &disk) != ERR_NO_PLACEMENT)
		return true;
	if (need->cause != STATE_CAUSE_SPREAD) {
		p->counted_no_target++;
		walk_due(p, now_ms + REPAIR_RETRY_MS); /* room is no version of anything */
	}
	return false;
}

static void walk_block(struct plan_repair *p, struct state *s, uint64_t now_ms)
{
	struct repair_look look;

	assess(p, s, now_ms, &look);
	p->counted += look.needs;
	p->counted_helpless += look.helpless;
	if (look.due_ms) {
		walk_due(p, look.due_ms);
		p->unfinished = true;
	}
	if (!look.needs)
		return;
	if (!queue_has_room(p, &look.need))
		p->walk_truncated = true;
	else if (can_begin(p, s, &look.need, now_ms)) {
		p->walk_truncated = p->walk_truncated || p->queue_count == REPAIR_QUEUE;
		queue_add(p, &look.need);
	}
}

static void walk_step(struct plan_repair *p, struct state *s, uint64_t now_ms)
{
	struct kv_scan rows;
	struct state_key key;
	uint64_t id;
	bool end = false;
	int n = 0;

	p->asked = 0;
	state_key_id(&key, STATE_TABLE_BLOCK, p->next_block);
	for (kv_seek_within(s->kv, &rows, state_key_slice(&key), STATE_PREFIX_TABLE); n < PLAN_STEP_ROWS && p->asked < REPAIR_ASKS;
		kv_scan_next(&rows), n++) {
		if (!kv_scan_valid(&rows) || !state_key_parse_id(rows.key, STATE_TABLE_BLOCK, &id)) {
			end = true;
			break;
		}
		if (state_block_decode(rows.value, id, &p->row)) {
			state__fault(s, "the row of block %llu cannot be decoded", (unsigned long long)id);
			break;
		}
		p->next_block = id + 1;
		walk_block(p, s, now_ms);
	}
	kv_scan_end(&rows);
	if (end)
		walk_end(p, now_ms);
}

/* ---- actions ---- */

/* An intent whose target is gone, that came to nothing for too long, or that is from before a restore. */
static bool give_up(const struct state *s, uint64_t now_ms, struct state_cmd *ret_cmd)
{
	for (uint32_t i = 0; i < s->intent_count; i++) {
		const struct state_intent *intent = &s->intents[i];

		if (state_disk_counts(s, intent->disk) && now_ms < intent->time_ms + REPAIR_INTENT_MS &&
			!state_intent_lost(s, intent))
			continue;
		ret_cmd->type = STATE_CMD_INTENT_END;
		ret_cmd->intent_end = (struct state_cmd_intent_end){
			.block = intent->block, .index = intent->index, .incarnation = intent->incarnation};
		return true;
	}
	return false;
}

static void look_again(struct plan_repair *p, uint64_t at_ms)
{
	if (!p->due_ms || at_ms < p->due_ms)
		p->due_ms = at_ms;
}

/* The next of the queue that can be begun now. */
static bool begin_next(struct plan_repair *p, struct state *s, uint64_t now_ms, struct state_cmd *ret_cmd)
{
	uint32_t kept = p->queue_at, at = p->queue_at;
	bool found = false;

	for (uint32_t n = 0; at < p->queue_count && n < PLAN_STEP_ROWS && !found; n++, at++) {
		struct repair_need need = p->queue[at];
		struct repair_look look;
		uint32_t disk = 0;
		int code;

		/* The row of now decides, not what the walk saw. */
		if (state_block_get(s, need.block, &p->row) || state_intent_of(s, need.block) || !is_reachable(p, s))
			continue;
		assess(p, s, now_ms, &look);
		if (!look.needs)
			continue;
		code = choose_target(p, s, &look.need, &disk);
		if (code == ERR_AGAIN)
			p->queue[kept++] = look.need; /* its target is busy: it stays, others may have free ones */
		if (code == ERR_NO_PLACEMENT && look.need.cause != STATE_CAUSE_SPREAD) {
			p->no_target++;
			look_again(p, now_ms + REPAIR_RETRY_MS); /* room is no version of anything */
		}
		if (code)
			continue;
		ret_cmd->type = STATE_CMD_INTENT;
		ret_cmd->intent = (struct state_cmd_intent){.block = need.block,
			.index = look.need.index,
			.cause = look.need.cause,
			.disk = disk,
			.version = p->row.version};
		found = true;
	}
	/* What was looked at and kept goes back before what was not. */
	memmove(&p->queue[kept], &p->queue[at], (p->queue_count - at) * sizeof(p->queue[0]));
	p->queue_count -= at - kept;
	return found;
}

static enum plan_next step(struct plan *plan, const struct plan_facts *facts, struct state_cmd *ret_cmd)
{
	struct plan_repair *p = CONTAINER_OF(plan, struct plan_repair, plan);
	struct state *s = facts->state;
	uint64_t now_ms = facts->now_ms;
	uint32_t disk;

	if (give_up(s, now_ms, ret_cmd)) {
		p->walk_truncated = true; /* its block wants another one */
		return PLAN_COMMAND;
	}
	p->held_until_ms = repair_hold(s, now_ms);
	if (!state_config(s, CONFIG_REPAIR_ENABLED) || p->held_until_ms)
		return PLAN_REST;
	disk = disk_to_take_out(p, s, now_ms);
	if (disk) {
		ret_cmd->type = STATE_CMD_TAKE_OUT;
		ret_cmd->take_out.disk = disk;
		return PLAN_COMMAND;
	}
	disk = disk_to_give_up(p, s, now_ms); /* behind the one before, which is out by then */
	if (disk) {
		give_up_disk(p, s, disk, ret_cmd);
		return PLAN_COMMAND;
	}
	if (!p->walking && walk_wanted(p, s, now_ms))
		walk_begin(p, s, now_ms);
	if (p->walking) {
		walk_step(p, s, now_ms);
		return PLAN_GO_ON;
	}
	if (p->queue_count && s->intent_count < STATE_INTENTS && begin_next(p, s, now_ms, ret_cmd))
		return PLAN_COMMAND;
	return PLAN_REST;
}

static void done(struct plan *plan, int status, const struct state_result *res)
{
	struct plan_repair *p = CONTAINER_OF(plan, struct plan_repair, plan);

	(void)res;
	if (p->giving_up && !status)
		p->env.given_up(p->env.ctx, p->giving_up);
	p->giving_up = 0;
	if (status) /* the rows were others by then: look at all of them again */
		p->walk_truncated = true;
}

void plan_repair_init(
	struct plan_repair *p, const struct repair_env *env, struct rng *rng, struct place_disk *candidates)
{
	*p = (struct plan_repair){.plan = {.name = "repair", .step = step, .done = done},
		.env = *env,
		.rng = rng,
		.candidates = candidates};
}

void plan_repair_forget(struct plan_repair *p)
{
	const struct repair_env env = p->env;
	uint64_t done_count = p->done_count, failed_count = p->failed_count, done_bytes = p->done_bytes;

	plan_repair_init(p, &env, p->rng, p->candidates);
	p->done_count = done_count;
	p->failed_count = failed_count;
	p->done_bytes = done_bytes;
}

void plan_repair_failed(struct plan_repair *p, uint64_t block, uint32_t disk, uint64_t now_ms)
{
	struct repair_put_off *f = put_off_of(p, block);
	uint64_t wait_ms;

	if (!f) { /* a free place, or that of the one that comes first anyway */
		struct repair_put_off *set = p->put_off[block % ARRAY_COUNT(p->put_off)];

		f = &set[0];
		for (size_t i = 1; i < REPAIR_PUT_OFF_WAYS; i++)
			if (set[i].until_ms < f->until_ms)
				f = &set[i];
		*f = (struct repair_put_off){0};
	}
	wait_ms = f->failures < 20 ? (uint64_t)REPAIR_RETRY_MS << f->failures : REPAIR_RETRY_MAX_MS;
	if (wait_ms > REPAIR_RETRY_MAX_MS)
		wait_ms = REPAIR_RETRY_MAX_MS;
	f->block = block;
	note_failed(f, disk);
	f->failures++;
	f->until_ms = now_ms + wait_ms - rng_below(p->rng, wait_ms / REPAIR_RETRY_EARLY);
	p->failed_count++;
	look_again(p, f->until_ms);
}

void plan_repair_done(struct plan_repair *p, uint64_t block, uint64_t bytes)
{
	struct repair_put_off *f = put_off_of(p, block);

	if (f)
		*f = (struct repair_put_off){0};
	p->done_count++;
	p->done_bytes += bytes;
}
