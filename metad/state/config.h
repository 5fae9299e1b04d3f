/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: settings of the whole store: rows, changed by a command, the same in every replica. One table says for each its
 * name, unit, range, default and help; `craton config` and docs/cli.md show it. A row exists only where a setting is not at
 * its default.
 *
 * Numbers of the enum are of this program; rows and commands carry names, which are never given a new meaning.
 */
#ifndef METAD_STATE_CONFIG_H
#define METAD_STATE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/slice.h"

struct state;

enum config_id {
	CONFIG_SERVER_DOWN_AFTER,
	CONFIG_SERVER_DEAD_AFTER,
	CONFIG_REPAIR_ENABLED,
	CONFIG_REPAIR_MISSING_AFTER,
	CONFIG_REPAIR_MASS_HOLD,
	CONFIG_REPAIR_DOMAIN_INTERVAL,
	CONFIG_GC_GRACE,
	CONFIG_DISK_NEAR_FULL,
	CONFIG_DISK_FULL,
	CONFIG_RESTORE_HOLD,
	CONFIG_DISK_DAMAGE_LIMIT,
	CONFIG_COUNT,
};

enum config_type { CONFIG_FLAG, CONFIG_MS, CONFIG_BYTES, CONFIG_NUMBER };

struct config_setting {
	const char *name; /* at most CONFIG_NAME_BYTES */
	enum config_type type;
	uint64_t min, max, default_;
	const char *help; /* one line */
	uint16_t since;   /* cluster version; before it there is no such setting. 0: it was always there */
};

enum { CONFIG_NAME_BYTES = 48, CONFIG_TEXT_BYTES = 32 };

extern const struct config_setting config_settings[CONFIG_COUNT];

/* ERR_NOENT: no such setting. */
int config_find(struct slice name, enum config_id *ret_id);
const char *config_type_name(enum config_type type); /* "time" */
const char *config_unit(enum config_type type);      /* of the number: "ms"; "" where there is none */
/* From text as people write it ("10m", "64K", "yes"); "default" is the default. ERR_INVAL, ERR_RANGE with a line in err. */
int config_parse(const struct config_setting *setting, const char *text, uint64_t *ret_value, struct err *err);
/* The other way round: "10m", "120s", "yes", "64.0 KiB". */
const char *config_format(enum config_type type, uint64_t value, char text[CONFIG_TEXT_BYTES]);
/* Is this value possible beside the others (`values` by id)? ERR_RANGE, with a line in err (may be NULL). */
int config_check(enum config_id id, uint64_t value, const uint64_t values[CONFIG_COUNT], struct err *err);

/* Now, in this state. */
uint64_t state_config(const struct state *s, enum config_id id);

#endif
