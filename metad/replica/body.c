/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/body.h"

#include <string.h>
#include "common/base/err.h"

static void put_u64(uint8_t *out, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_u64(const uint8_t *in)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value |= (uint64_t)in[i] << (8 * i);
	return value;
}

static bool has_places(const struct raft_config *config)
{
	static const uint8_t nowhere[RAFT_PLACE_BYTES];

	for (uint32_t i = 0; i < config->count; i++)
		if (memcmp(config->members[i].place, nowhere, RAFT_PLACE_BYTES) != 0)
			return true;
	return false;
}

uint32_t body_encode_config(const struct raft_config *config, uint8_t out[BODY_CONFIG_BYTES_MAX])
{
	bool places = has_places(config);
	uint32_t at = 10;

	out[0] = places ? BODY_CONFIG_PLACES : BODY_CONFIG;
	out[1] = (uint8_t)config->count;
	put_u64(out + 2, config->last_id);
	for (uint32_t i = 0; i < config->count; i++, at += 9) {
		put_u64(out + at, config->members[i].id);
		out[at + 8] = config->members[i].voter;
		if (!places)
			continue;
		memcpy(out + at + 9, config->members[i].place, RAFT_PLACE_BYTES);
		at += RAFT_PLACE_BYTES;
	}
	return at;
}

static int decode_config(struct slice data, uint64_t index, struct raft_config *ret_config)
{
	struct raft_config config;
	bool places = data.data[0] == BODY_CONFIG_PLACES;
	size_t member_bytes = places ? 9 + RAFT_PLACE_BYTES : 9;
	const uint8_t *at = data.data + 10;

	if (data.len < 10 || data.data[1] > RAFT_MEMBERS_MAX || data.len != 10 + member_bytes * data.data[1])
		return ERR_FORMAT;
	memset(&config, 0, sizeof(config));
	config.index = index;
	config.count = data.data[1];
	config.last_id = get_u64(data.data + 2);
	for (uint32_t i = 0; i < config.count; i++, at += member_bytes) {
		if (at[8] > 1)
			return ERR_FORMAT;
		config.members[i].id = get_u64(at);
		config.members[i].voter = at[8];
		if (places)
			memcpy(config.members[i].place, at + 9, RAFT_PLACE_BYTES);
	}
	if (places && !has_places(&config))
		return ERR_FORMAT; /* one configuration has one form */
	*ret_config = config;
	return 0;
}

int body_decode(struct slice data, uint64_t index, enum body_kind *ret_kind, struct raft_config *ret_config)
{
	int rc;

	if (data.len == 0)
		return ERR_FORMAT;
	switch (data.data[0]) {
	case BODY_NOOP:
		if (data.len != 1)
			return ERR_FORMAT;
		break;
	case BODY_CONFIG:
	case BODY_CONFIG_PLACES:
		rc = decode_config(data, index, ret_config);
		if (rc)
			return rc;
		break;
	case BODY_COMMANDS:
		if (data.len == 1)
			return ERR_FORMAT;
		break;
	default:
		return ERR_FORMAT;
	}
	*ret_kind = data.data[0] == BODY_CONFIG_PLACES ? BODY_CONFIG : (enum body_kind)data.data[0];
	return 0;
}

bool body_configs_equal(const struct raft_config *a, const struct raft_config *b)
{
	if (a->index != b->index || a->count != b->count || a->last_id != b->last_id)
		return false;
	for (uint32_t i = 0; i < a->count; i++)
		if (a->members[i].id != b->members[i].id || a->members[i].voter != b->members[i].voter ||
			memcmp(a->members[i].place, b->members[i].place, RAFT_PLACE_BYTES) != 0)
			return false;
	return true;
}
