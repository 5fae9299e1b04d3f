/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: the state goes on from a backup, or from the log of one replica whose group is lost, and so from the past. What was done since is not known here, but it was done: disks hold
 * chunks and generations of it, clients hold tokens, block ids and inode numbers. Nothing of it may meet what is done from now on:
 *
 *  - ids of blocks, inodes and sessions go on far beyond all that can have been given since; of the block ids in between (the window) none can be
 *    committed any more: a client that still holds data allocates anew;
 *  - sessions of the backup are lost: what their clients did since, and what they were answered, is not known. What they have open stays
 *    theirs until restore.hold is over: a file without a name may be complete in a newer backup;
 *  - epochs go on beyond a number of this restore, and none from before is good for a commit: whoever wrote to a file may have been fenced since;
 *  - incarnations of rebuilds and moves, and generations of disks, go on beyond a number of this restore; a disk may come with any
 *    generation up to there, and with a number that it was given since;
 *  - the token key is new, and the older one beside it goes as soon as all chunk servers know the new one (the leader rolls again): no
 *    token from before is good for longer;
 *  - a rebuild that was under way may have been published since: its intent is given up, but its copy gets no drop row. It may be the only one;
 *  - copies that no row names are what is left of files written since, or were moved since. For as long as the setting restore.hold says
 *    none of them is garbage: a newer backup may still be found.
 *
 * Repeated restores add up: a backup made after a restore carries its row. One made before it does not, and would repeat what that restore gave
 * away. The disks know how many restores they have lived through: it is the upper half of their generations. So all of them register again
 * after a restore, and none takes anything new before that (state_disk_knows). Whoever restores from such a
 * backup names that number, and each jump is made as often as it takes to get past all of them; if he does not, the disks are refused
 * (they have generations that the state does not know), so that nothing of one restore meets anything of the other.
 */
#include "metad/state/state.h"

#include "common/base/check.h"

void state__restore_open(struct state *s)
{
	struct state_key key;
	struct slice value;

	state_key_table(&key, STATE_TABLE_RESTORE);
	if (state__get(s, &key, &value) == 0 && state_restore_decode(value, &s->restore))
		state__fault(s, "the restore row cannot be decoded");
}

bool state_restore_closed(const struct state *s, uint64_t block)
{
	return block >= s->restore.first_block && block < s->restore.end_block;
}

uint64_t state_restore_hold_ms(const struct state *s)
{
	uint64_t end_ms = s->restore.time_ms + state_config(s, CONFIG_RESTORE_HOLD);

	return s->restore.count && s->meta.time_ms < end_ms ? end_ms - s->meta.time_ms : 0;
}

uint64_t state_restore_generation(const struct state *s)
{
	return (uint64_t)s->restore.count << STATE_RESTORE_GENERATION_SHIFT;
}

uint32_t state_restore_incarnation(const struct state *s)
{
	return s->restore.count << STATE_RESTORE_INCARNATION_SHIFT;
}

uint64_t state_restore_epoch(const struct state *s)
{
	return (uint64_t)s->restore.count << STATE_RESTORE_EPOCH_SHIFT;
}

void state__epoch_raise(const struct state *s, struct state_inode *file)
{
	uint64_t unknown = state_restore_epoch(s);

	file->epoch = (file->epoch > unknown ? file->epoch : unknown) + 1;
}

/* Each restore moved the numbers on by one jump, and none was opened so often between two of them. */
bool state_restore_lost(const struct state *s, uint64_t session)
{
	return id_number(session) < s->restore.count * STATE_RESTORE_JUMP;
}

uint32_t state_restore_next(const struct state_restore *row, uint32_t seen)
{
	return (row->count > seen ? row->count : seen) + 1;
}

bool state_restore_possible(const struct state_meta *meta, const struct state_restore *row, uint32_t seen)
{
	uint64_t ids[] = {meta->next_block, meta->next_inode, meta->next_session}, jump;

	if (row->count >= STATE_RESTORES || seen >= STATE_RESTORES)
		return false;
	jump = (state_restore_next(row, seen) - row->count) * STATE_RESTORE_JUMP;
	for (size_t i = 0; i < ARRAY_COUNT(ids); i++)
		if (id_number(ids[i]) + jump >= id_number(UINT64_MAX))
			return false;
	return true;
}

void state__restored(struct state *s, const struct state_cmd_restored *cmd, struct state_result *res)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	uint32_t count;
	uint64_t jump;

	if (!state_restore_possible(&s->meta, &s->restore, cmd->seen)) {
		res->status = ERR_RANGE;
		return;
	}
	count = state_restore_next(&s->restore, cmd->seen);
	jump = (count - s->restore.count) * STATE_RESTORE_JUMP;
	/* Of an earlier restore the window is still there, with the ids behind it that were given since. */
	if (s->restore.count == 0)
		s->restore.first_block = s->meta.floor;
	s->restore.count = count;
	s->restore.end_block = s->meta.next_block += jump;
	s->restore.time_ms = s->meta.time_ms;
	s->meta.next_inode += jump;
	s->meta.next_session += jump;
	state__maintenance_restored(s);
	state__token_keys_roll(s, cmd->salt);
	s->meta_dirty = true;
	state_key_table(&key, STATE_TABLE_RESTORE);
	state__put(s, &key, value, state_restore_encode(&s->restore, value));
}
