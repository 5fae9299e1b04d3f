/* SPDX-License-Identifier: Apache-2.0 */
/* config: the table of settings, their texts, and the command that changes one. */
#include "metad/state/config.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/units.h"
#include "metad/state/state.h"

enum { SINCE_EVER = 0, SINCE_DAMAGE = 3 }; /* cluster versions (cmd.h) */
enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

/*
 * Bounds keep each setting safe whatever is chosen: layouts are cached by readers for 60 s, so what a reader may still want
 * is kept for 120 s at the least.
 */
const struct config_setting config_settings[CONFIG_COUNT] = {
	[CONFIG_SERVER_DOWN_AFTER] = {"server.down_after", CONFIG_MS, 200, 10 * MINUTE, 10 * SECOND,
		"silence after which a chunk server counts as down: no new chunks, not in margins", SINCE_EVER},
	[CONFIG_SERVER_DEAD_AFTER] = {"server.dead_after", CONFIG_MS, SECOND, 7 * DAY, 10 * MINUTE,
		"silence after which the chunks of a server are rebuilt elsewhere; longer than server.down_after",
		SINCE_EVER},
	[CONFIG_REPAIR_ENABLED] = {"repair.enabled", CONFIG_FLAG, 0, 1, 1, "rebuild missing and damaged chunks",
		SINCE_EVER},
	[CONFIG_REPAIR_MISSING_AFTER] = {"repair.missing_after", CONFIG_MS, SECOND, HOUR, MINUTE,
		"time that the writer of a block has to finish late chunks before they are rebuilt, unless it is gone",
		SINCE_EVER},
	[CONFIG_REPAIR_MASS_HOLD] = {"repair.mass_hold", CONFIG_MS, 0, 7 * DAY, HOUR,
		"pause of repair after many servers fell silent at once; 0s: go on now", SINCE_EVER},
	[CONFIG_REPAIR_DOMAIN_INTERVAL] = {"repair.domain_interval", CONFIG_MS, 0, 7 * DAY, HOUR,
		"a failure domain is taken out automatically no sooner than this after the one before", SINCE_EVER},
	[CONFIG_GC_GRACE] = {"gc.grace", CONFIG_MS, 2 * MINUTE, 30ull * DAY, 2 * MINUTE,
		"time that chunks of removed data are kept for readers that know an old layout", SINCE_EVER},
	[CONFIG_DISK_NEAR_FULL] = {"disk.near_full", CONFIG_NUMBER, 1, 100, 85,
		"percent of a disk in use from which on status warns", SINCE_EVER},
	[CONFIG_DISK_FULL] = {"disk.full", CONFIG_NUMBER, 1, 100, 95,
		"percent of a disk in use from which on it takes no new data; the rest is for repair", SINCE_EVER},
	[CONFIG_DISK_DAMAGE_LIMIT] = {"disk.damage_limit", CONFIG_NUMBER, 0, 1000 * 1000, 100,
		"damaged chunks found on a disk within a day, from which on it is taken out like one that failed; 0: never",
		SINCE_DAMAGE},
	[CONFIG_RESTORE_HOLD] = {"restore.hold", CONFIG_MS, 0, 30ull * DAY, 7 * DAY,
		"time after a restore in which nothing counts as an orphan: a newer backup may be found; 0s: not any longer",
		SINCE_EVER},
};

int config_find(struct slice name, enum config_id *ret_id)
{
	for (int i = 0; i < CONFIG_COUNT; i++)
		if (strlen(config_settings[i].name) == name.len &&
			memcmp(config_settings[i].name, name.data, name.len) == 0) {
			*ret_id = (enum config_id)i;
			return 0;
		}
	return ERR_NOENT;
}

const char *config_type_name(enum config_type type)
{
	static const char *const names[] = {"yes|no", "time", "size", "number"};

	return names[type];
}

const char *config_unit(enum config_type type)
{
	static const char *const units[] = {"", "ms", "bytes", ""};

	return units[type];
}

_Static_assert((int)CONFIG_TEXT_BYTES >= (int)UNITS_TEXT_BYTES, "sizes and durations find room");

const char *config_format(enum config_type type, uint64_t value, char text[CONFIG_TEXT_BYTES])
{
	switch (type) {
	case CONFIG_FLAG:
		return value ? "yes" : "no";
	case CONFIG_BYTES:
		return units_format_bytes(value, text);
	case CONFIG_MS:
		return units_format_ms(value, text);
	default:
		snprintf(text, CONFIG_TEXT_BYTES, "%llu", (unsigned long long)value);
		return text;
	}
}

static int parse_value(enum config_type type, const char *text, uint64_t *ret_value)
{
	switch (type) {
	case CONFIG_FLAG:
		if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
			return ERR_INVAL;
		*ret_value = text[0] == 'y';
		return 0;
	case CONFIG_MS:
		return units_parse_ms(text, ret_value);
	case CONFIG_BYTES:
		return units_parse_bytes(text, ret_value);
	default:
		return units_parse_u64(text, 0, UINT64_MAX, ret_value);
	}
}

static int range_error(const struct config_setting *c, struct err *err)
{
	char min[CONFIG_TEXT_BYTES], max[CONFIG_TEXT_BYTES];

	return err_set(err, ERR_RANGE, "%s must lie between %s and %s", c->name, config_format(c->type, c->min, min),
		config_format(c->type, c->max, max));
}

int config_parse(const struct config_setting *c, const char *text, uint64_t *ret_value, struct err *err)
{
	static const char *const forms[] = {
		"is yes or no", "is a time like 500ms, 30s, 10m or 1h", "is a size like 64K or 1G", "is a number"};
	uint64_t value;
	int code;

	if (strcmp(text, "default") == 0) {
		*ret_value = c->default_;
		return 0;
	}
	code = parse_value(c->type, text, &value);
	if (code == ERR_INVAL)
		return err_set(err, ERR_INVAL, "%s %s, not '%.64s'", c->name, forms[c->type], text);
	if (code || value < c->min || value > c->max)
		return range_error(c, err);
	*ret_value = value;
	return 0;
}

int config_check(enum config_id id, uint64_t value, const uint64_t values[CONFIG_COUNT], struct err *err)
{
	const struct config_setting *c = &config_settings[id];
	char text[CONFIG_TEXT_BYTES];

	if (value < c->min || value > c->max)
		return range_error(c, err);
	if (id == CONFIG_SERVER_DEAD_AFTER && value <= values[CONFIG_SERVER_DOWN_AFTER])
		return err_set(err, ERR_RANGE, "%s must be longer than server.down_after, which is %s", c->name,
			config_format(CONFIG_MS, values[CONFIG_SERVER_DOWN_AFTER], text));
	if (id == CONFIG_SERVER_DOWN_AFTER && value >= values[CONFIG_SERVER_DEAD_AFTER])
		return err_set(err, ERR_RANGE, "%s must be shorter than server.dead_after, which is %s", c->name,
			config_format(CONFIG_MS, values[CONFIG_SERVER_DEAD_AFTER], text));
	if (id == CONFIG_DISK_NEAR_FULL && value > values[CONFIG_DISK_FULL])
		return err_set(err, ERR_RANGE, "%s must not be above disk.full, which is %s", c->name,
			config_format(CONFIG_NUMBER, values[CONFIG_DISK_FULL], text));
	if (id == CONFIG_DISK_FULL && value < values[CONFIG_DISK_NEAR_FULL])
		return err_set(err, ERR_RANGE, "%s must not be below disk.near_full, which is %s", c->name,
			config_format(CONFIG_NUMBER, values[CONFIG_DISK_NEAR_FULL], text));
	return 0;
}

uint64_t state_config(const struct state *s, enum config_id id)
{
	return s->config[id];
}

void state__config_open(struct state *s)
{
	for (int i = 0; i < CONFIG_COUNT; i++) {
		struct state_key key;
		struct slice value;

		s->config[i] = config_settings[i].default_;
		state_key_config(&key, slice_of(config_settings[i].name, strlen(config_settings[i].name)));
		if (state__get(s, &key, &value) == 0 && state_config_decode(value, &s->config[i]))
			state__fault(s, "the row of setting %s cannot be decoded", config_settings[i].name);
	}
}

void state__config_set(struct state *s, const struct state_cmd_config_set *cmd, struct state_result *res)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	enum config_id id;

	res->status = config_find(cmd->name, &id);
	if (!res->status && config_settings[id].since > s->meta.version)
		res->status = ERR_NOENT;
	if (!res->status)
		res->status = config_check(id, cmd->value, s->config, NULL);
	if (res->status)
		return;
	s->config[id] = cmd->value;
	state_key_config(&key, cmd->name);
	if (cmd->value == config_settings[id].default_)
		state__del(s, &key);
	else
		state__put(s, &key, value, state_config_encode(cmd->value, value));
}
