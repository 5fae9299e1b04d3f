/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intent: a chunk of a committed block on another disk than before: rebuilt or moved.
 *
 *     INTENT (block, index, target; the block's row counts out a new incarnation) --> the target seals a copy
 *       --LOCATION--> the row names the copy, the intent is gone        or --INTENT_END--> gone, nothing has changed
 *
 * Invariants:
 *  1. Nothing is published that does not match its proof: the CRC of the receipt must be the one that the block's commit
 *     recorded, whatever the leader says.
 *  2. A copy comes into a row only by its intent (LOCATION) or above the floor by its commit, also one that is sent
 *     again for a late chunk (block.c): below the floor, what neither row nor intent names can never be wanted again.
 *  3. Compare-and-set: what was decided on another version of the row is refused; the placement that results is
 *     checked as a commit's is: never more than m chunks in a domain.
 *  4. An incarnation is given once: the counter is in the row and only rises.
 *  5. At most one intent for a block, so that no two moves can crowd it together.
 *
 * The old copy, if there was one, is named by nothing from here on: garbage, with a drop row. So is the copy of an intent
 * that was given up.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"

/* ---- rows and their copies in memory ---- */

const struct state_intent *state_intent_of(const struct state *s, uint64_t block)
{
	return map_get(&s->intent_of, block);
}

/* False: the block has one already. */
static bool remember(struct state *s, struct state_intent *at)
{
	return map_put(&s->intent_of, at->block, at) == NULL;
}

static void intent_put(struct state *s, const struct state_intent *intent)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	CHECK(s->intent_count < STATE_INTENTS);
	s->intents[s->intent_count] = *intent;
	CHECK(remember(s, &s->intents[s->intent_count++]));
	state_key_intent(&key, intent->block, intent->index);
	state__put(s, &key, value, state_intent_encode(intent, value));
}

static void intent_del(struct state *s, const struct state_intent *intent)
{
	struct state_intent *at, *last;
	struct state_key key;

	state_key_intent(&key, intent->block, intent->index);
	state__del(s, &key);
	map_remove(&s->intent_of, intent->block);
	at = &s->intents[intent - s->intents];
	last = &s->intents[--s->intent_count];
	if (at == last)
		return;
	*at = *last; /* takes its place */
	map_put(&s->intent_of, at->block, at);
}

void state__intents_open(struct state *s)
{
	struct kv_scan scan;
	struct state_key key;
	uint64_t block;
	uint8_t index;

	state_key_table(&key, STATE_TABLE_INTENT);
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.len == 0 || scan.key.data[0] != STATE_TABLE_INTENT)
			break;
		if (s->intent_count == STATE_INTENTS || !state_key_parse_intent(scan.key, &block, &index) ||
			state_intent_decode(scan.value, block, index, &s->intents[s->intent_count]) ||
			!remember(s, &s->intents[s->intent_count])) {
			state__fault(s, "the rows of intents cannot be decoded");
			break;
		}
		s->intent_count++;
	}
	kv_scan_end(&scan);
}

bool state_intent_lost(const struct state *s, const struct state_intent *intent)
{
	return intent->incarnation < state_restore_incarnation(s);
}

/* The intent goes without its copy, which may be there or not: nothing names it any more. */
static void intent_give_up(struct state *s, const struct state_intent *intent)
{
	struct state_copy copy = {.block = intent->block, .index = intent->index, .incarnation = intent->incarnation};

	if (!state_intent_lost(s, intent))
		state__drop_put(s, intent->disk, &copy, 0);
	intent_del(s, intent);
	SOMETIMES(state_intent_given_up);
}

void state__intents_drop(struct state *s, uint64_t block)
{
	const struct state_intent *intent = state_intent_of(s, block);

	if (intent)
		intent_give_up(s, intent);
}

/* ---- begin and end ---- */

/* The block's row, if the chunk is one that exists and the decision was made on this version. */
static int block_check(struct state *s, uint64_t block, uint8_t index, uint32_t version, struct state_block *ret_row)
{
	struct stripe_geom g;
	int code = state_block_get(s, block, ret_row);

	if (code)
		return code;
	g = state__geom(ret_row);
	if (index >= ret_row->width || stripe_chunk_len(&g, index) == 0)
		return ERR_INVAL;
	return ret_row->version == version ? 0 : ERR_STALE;
}

void state__intent(struct state *s, const struct state_cmd_intent *cmd, struct state_result *res)
{
	struct state_block *row = &s->blocks[0];
	const struct state_disk *disk = state_disk_at(s, cmd->disk);

	res->status = block_check(s, cmd->block, cmd->index, cmd->version, row);
	if (res->status)
		return;
	if (!disk || disk->state != STATE_DISK_UP || !state_disk_counts(s, disk->id) || !state_disk_knows(s, disk))
		res->status = ERR_NO_PLACEMENT;
	else if (state_intent_of(s, cmd->block))
		res->status = ERR_BUSY;
	else if (s->intent_count == STATE_INTENTS || row->next_incarnation == UINT32_MAX)
		res->status = ERR_OVERLOADED;
	if (res->status)
		return;
	if (row->next_incarnation < state_restore_incarnation(s))
		row->next_incarnation = state_restore_incarnation(s);
	res->incarnation = row->next_incarnation++;
	state__block_put(s, row);
	intent_put(s,
		&(struct state_intent){
			.block = cmd->block,
			.index = cmd->index,
			.cause = cmd->cause,
			.disk = cmd->disk,
			.incarnation = res->incarnation,
			.time_ms = s->meta.time_ms,
		});
}

void state__intent_end(struct state *s, const struct state_cmd_intent_end *cmd, struct state_result *res)
{
	const struct state_intent *intent = state_intent_of(s, cmd->block);

	if (!intent || intent->index != cmd->index || intent->incarnation != cmd->incarnation) {
		res->status = ERR_NOENT; /* ended already */
		return;
	}
	intent_give_up(s, intent);
}

/* ---- a sealed copy becomes the chunk ---- */

/* May this copy be the block's chunk? *row is then as it shall be. */
static int take_copy(struct state *s, const struct state_cmd_sealed *cmd, struct state_block *row)
{
	const struct state_receipt *r = &cmd->receipt;
	const struct state_disk *disk = state_disk_at(s, r->disk);
	struct state_copy copy = {.block = row->id, .index = r->index, .incarnation = r->incarnation};
	struct state_chunk *c = &row->chunks[r->index];
	struct stripe_geom g = state__geom(row);
	struct state_drop drop;

	if (cmd->crc != c->crc)
		return ERR_CORRUPT;
	if (!disk || !state_disk_counts(s, disk->id) || disk->generation != r->generation)
		return ERR_GENERATION;
	if (state_drop_get(s, r->disk, &copy, &drop) != ERR_NOENT)
		return ERR_STALE; /* as good as gone */
	c->disk = r->disk;
	c->incarnation = r->incarnation;
	c->present = true;
	c->damaged = false;
	return state__most_in_a_domain(s, row, &row->crowded) > g.m ? ERR_NO_PLACEMENT : 0;
}

static void publish(struct state *s, struct state_block *row, uint8_t index, bool was_present)
{
	row->version++;
	state__block_put(s, row);
	if (!was_present)
		state__raw_bytes_count(s, row, index, true);
}

void state__location(struct state *s, const struct state_cmd_sealed *cmd, struct state_result *res)
{
	const struct state_intent *intent = state_intent_of(s, cmd->block);
	const struct state_receipt *r = &cmd->receipt;
	struct state_block *row = &s->blocks[0];
	struct state_chunk old;
	bool spreads;

	if (!intent || intent->index != r->index || intent->disk != r->disk || intent->incarnation != r->incarnation) {
		res->status = ERR_NOENT;
		return;
	}
	res->status = block_check(s, cmd->block, r->index, cmd->version, row);
	if (res->status)
		return;
	old = row->chunks[r->index];
	res->status = take_copy(s, cmd, row);
	if (res->status)
		return;
	spreads = intent->cause == STATE_CAUSE_SPREAD;
	intent_del(s, intent);
	if (old.present)
		state__drop_put(s, old.disk,
			&(struct state_copy){.block = row->id, .index = r->index, .incarnation = old.incarnation},
			state_chunk_bytes(row, r->index));
	publish(s, row, r->index, old.present);
	SOMETIMES(state_chunk_published);
	if (spreads)
		SOMETIMES(state_block_spread);
}

/* Its own disk has read the copy again. It stays where it is, and readable where it is good, until another one is there. */
void state__damaged(struct state *s, const struct state_cmd_damaged *cmd, struct state_result *res)
{
	struct state_block *row = &s->blocks[0];
	struct state_chunk *c = &row->chunks[cmd->index < LIMIT_WIDTH ? cmd->index : 0];

	res->status = state_block_get(s, cmd->block, row);
	if (res->status)
		return;
	if (cmd->index >= row->width || !c->present || c->disk != cmd->disk || c->incarnation != cmd->incarnation) {
		res->status = ERR_STALE; /* it was replaced meanwhile */
		return;
	}
	if (c->damaged)
		return;
	c->damaged = true;
	row->version++;
	state__block_put(s, row);
}
