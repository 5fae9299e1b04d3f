// SPDX-License-Identifier: Apache-2.0
/* faults_bits: bits of sound chunks are flipped, no more than a block can lose; and which ones were. */
#include "tests/sim/faults_priv.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum { BITS_MAX = 4 };

static unsigned node_of(const struct cr_chunk_info *info)
{
	unsigned number = 0;

	return sscanf(info->server_name, "chunkd-%u", &number) == 1 && number <= CLUSTER_CHUNKDS_MAX ? number : 0;
}

static void remember(struct faults *f, const struct cr_chunk_info *info, enum faults_damage damage)
{
	if (f->damaged_count == f->damaged_cap) {
		f->damaged_cap = f->damaged_cap ? 2 * f->damaged_cap : 32;
		f->damaged = mem_realloc(f->damaged, f->damaged_cap * sizeof(f->damaged[0]));
	}
	f->damaged[f->damaged_count++] = (struct damaged_chunk){info->block, info->index, damage};
}

/* In the trailer or in the data; bits of different bytes, so that none is flipped back. */
static void flip_chunk(struct faults *f, const struct cr_chunk_info *info)
{
	bool trailer = rng_chance(&f->rng, 1, 5);
	uint64_t from = trailer ? info->trailer_offset : info->segment_offset;
	uint64_t len = trailer ? info->trailer_bytes : info->chunk_bytes;
	uint64_t count = rng_between(&f->rng, 1, len < BITS_MAX ? len : BITS_MAX), part = len / count;
	unsigned node = node_of(info);
	char path[sizeof(info->segment) + 8];

	CHECK(node > 0 && info->segment[0] == '/');
	snprintf(path, sizeof(path), "%s", info->segment);
	for (uint64_t i = 0; i < count; i++)
		CHECK(sim_flip_bit(faults__io_of(f, node), path, from + i * part + rng_below(&f->rng, part),
			      (uint8_t)rng_below(&f->rng, 8)) == 0);
	f->bits += count;
	remember(f, info, trailer ? FAULTS_TRAILER : FAULTS_DATA);
	cluster_note(f->cluster, "flip %u bits of block %llu chunk %u %s on %s", (unsigned)count,
		(unsigned long long)info->block, info->index, trailer ? "trailer" : "data", info->server_name);
}

/* One block of those looked at, and no more of its chunks than it can lose. */
static void flip_some(struct faults *f, const struct cr_chunk_info *infos, uint64_t count)
{
	uint64_t block = infos[rng_below(&f->rng, count)].block, first = 0, last;
	int margin;

	while (infos[first].block != block)
		first++;
	for (last = first; last < count && infos[last].block == block; last++)
		;
	margin = infos[first].margin;
	if (margin <= 0)
		return;
	margin = (int)rng_between(&f->rng, 1, (uint64_t)margin);
	f->counts[FAULTS_FLIP_BITS]++;
	for (int tries = 0; margin > 0 && tries < 32; tries++) {
		uint64_t i = first + rng_below(&f->rng, last - first);

		if (infos[i].state != CR_CHUNK_OK)
			continue;
		flip_chunk(f, &infos[i]);
		((struct cr_chunk_info *)(uintptr_t)infos)[i].state = CR_CHUNK_CORRUPT;
		margin--;
	}
}

static void looked(struct client_op *op)
{
	struct faults *f = op->user;

	f->looking = false;
	if (op->err.code == 0 && op->count > 0 && !f->mending)
		flip_some(f, op->chunks, op->count);
	mem_free(op->chunks);
}

bool faults__look_for_chunks(struct faults *f)
{
	struct checker *k = f->checker;
	struct checker_entry *e = NULL;

	if (f->looking || !cluster_running(f->cluster, f->cluster->first_client) || !k->entry_count)
		return false;
	for (int tries = 0; tries < 10 && (!e || !checker_is_file(e)); tries++)
		e = k->entries[rng_below(&f->rng, k->entry_count)];
	if (!checker_is_file(e))
		return false;
	f->looking = true;
	memset(&f->look, 0, sizeof(f->look));
	f->look.kind = CLIENT_INSPECT;
	f->look.path = e->path;
	f->look.verify = true;
	f->look.done = looked;
	f->look.user = f;
	cluster_client_start(f->cluster, f->cluster->first_client, &f->look);
	return true;
}

uint64_t faults_flipped(const struct faults *f)
{
	return f->bits;
}

enum faults_damage faults_damage_of(const struct faults *f, uint64_t block, uint8_t index)
{
	for (size_t i = 0; i < f->damaged_count; i++)
		if (f->damaged[i].block == block && f->damaged[i].index == index)
			return f->damaged[i].damage;
	return FAULTS_SOUND;
}
