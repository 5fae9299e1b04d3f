/* SPDX-License-Identifier: Apache-2.0 */
/* What an order must satisfy before anything is done for it: lengths, counts and sources agree with its policy and token. Pure. */
#include "chunkd/repair_priv.h"

#include <stdio.h>
#include <string.h>

static int take_sources(struct repair_job *job, const Craton__RepairOrder *o)
{
	for (size_t i = 0; i < o->n_sources; i++) {
		const Craton__RepairSource *in = o->sources[i];
		struct repair_source *s;

		if (in->index >= (uint32_t)job->policy->k + job->policy->m)
			return ERR_INVAL;
		s = &job->sources[in->index];
		if (in->index == job->copy.index || stripe_chunk_len(&job->geom, (uint8_t)in->index) == 0 ||
			io_addr_parse(in->address, &s->addr))
			continue;
		s->job = job;
		s->named = true;
		s->disk = in->disk;
		s->incarnation = in->incarnation;
		snprintf(s->server, sizeof(s->server), "%s", in->server_name);
		job->sets.available |= (uint16_t)(1u << in->index);
	}
	job->sets.needed = stripe_data_chunks(&job->geom);
	return 0;
}

static bool agrees(const Craton__RepairOrder *o, const struct ec_policy *policy, const struct token *token)
{
	uint32_t width = (uint32_t)policy->k + policy->m;

	return token->policy == policy->id && o->index < width && o->n_chunk_crcs == width && o->cell_bytes > 0 &&
		o->cell_bytes <= LIMIT_CELL_BYTES && o->cell_bytes % LIMIT_UNIT_BYTES == 0 && o->length > 0 &&
		o->length <= (uint64_t)policy->k * LIMIT_CHUNK_BYTES && o->n_sources <= LIMIT_WIDTH;
}

int repair__order_take(struct repair_job *job, const Craton__RepairOrder *o, const struct token *token)
{
	job->policy = o->policy <= UINT8_MAX ? ec_policy_by_id((uint8_t)o->policy) : NULL;
	if (!job->policy || !agrees(o, job->policy, token))
		return ERR_INVAL;
	job->geom = (struct stripe_geom){
		.k = job->policy->k, .m = job->policy->m, .cell_bytes = o->cell_bytes, .length = o->length};
	if (stripe_chunk_len(&job->geom, job->copy.index) == 0 || stripe_chunk_len(&job->geom, 0) > LIMIT_CHUNK_BYTES)
		return ERR_INVAL;
	job->disk_number = o->disk;
	job->check = o->check;
	for (size_t i = 0; i < o->n_chunk_crcs; i++)
		job->crcs[i] = o->chunk_crcs[i];
	if (o->check)
		return 0;
	if (o->read_token.len != sizeof(job->read_token) || stripe_chunk_len(&job->geom, 0) > token->max_chunk_bytes)
		return ERR_INVAL;
	memcpy(job->read_token, o->read_token.data, sizeof(job->read_token));
	return take_sources(job, o);
}
