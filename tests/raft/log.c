/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica: on its disk, on the way there, and as the core has it. */
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/raft/world_private.h"

uint64_t world__log_last(const struct world_log *log)
{
	return log->base_index + log->count;
}

const struct world_entry *world__log_at(const struct world_log *log, uint64_t index)
{
	return index > log->base_index && index <= world__log_last(log) ? &log->entries[index - log->base_index - 1]
									: NULL;
}

#ifndef WORLD_SMALL
void world__log_push(struct world_log *log, const struct world_entry *entry)
{
	if (log->count == log->cap) {
		log->cap = log->cap ? 2 * log->cap : 64;
		log->entries = mem_realloc(log->entries, log->cap * sizeof(*log->entries));
	}
	log->entries[log->count++] = *entry;
}

void world__log_copy(struct world_log *to, const struct world_log *from)
{
	struct world_entry *entries = to->entries;
	uint32_t cap = to->cap;

	if (cap < from->count) {
		cap = from->cap;
		entries = mem_realloc(entries, cap * sizeof(*entries));
	}
	if (from->count)
		memcpy(entries, from->entries, from->count * sizeof(*entries));
	*to = *from;
	to->entries = entries;
	to->cap = cap;
}

void world__log_fini(struct world_log *log)
{
	mem_free(log->entries);
}
#else
void world__log_push(struct world_log *log, const struct world_entry *entry)
{
	CHECK(log->count < WORLD_ENTRIES);
	log->entries[log->count++] = *entry;
}

void world__log_copy(struct world_log *to, const struct world_log *from)
{
	*to = *from;
}

void world__log_fini(struct world_log *log)
{
	(void)log;
}
#endif

void world__log_cut(struct world_log *log, uint64_t from)
{
	if (from <= world__log_last(log))
		log->count = (uint32_t)(from - log->base_index - 1);
}

uint64_t world__hash(uint64_t hash, const struct world_entry *e)
{
	hash = (hash ^ e->value ^ (e->term << 40) ^ e->config) * 0x9e3779b97f4a7c15u;
	return hash ^ (hash >> 29);
}

void world__log_compact(struct world_log *log, uint64_t index)
{
	uint32_t gone;

	if (index <= log->base_index)
		return;
	CHECK(index <= world__log_last(log));
	gone = (uint32_t)(index - log->base_index);
	for (uint32_t i = 0; i < gone; i++) {
		log->base_hash = world__hash(log->base_hash, &log->entries[i]);
		if (log->entries[i].config)
			log->base_config = log->entries[i].config;
	}
	log->base_term = log->entries[gone - 1].term;
	log->base_index = index;
	log->count -= gone;
	memmove(log->entries, log->entries + gone, log->count * sizeof(*log->entries));
}

uint32_t world__log_config(const struct world_log *log, uint32_t *ret_before)
{
	uint32_t latest = 0;

	for (uint32_t i = log->count; i > 0; i--) {
		uint32_t config = log->entries[i - 1].config;

		if (config && latest) {
			*ret_before = config;
			return latest;
		}
		if (config)
			latest = config;
	}
	*ret_before = log->base_config;
	return latest ? latest : log->base_config;
}

uint32_t world__log_latest(const struct world_log *log)
{
	for (uint32_t i = log->count; i > 0; i--)
		if (log->entries[i - 1].config)
			return log->entries[i - 1].config;
	return log->base_config;
}
