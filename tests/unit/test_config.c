/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: texts, ranges, rows that survive a restart. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

static int set(const char *name, uint64_t value)
{
	b->cmd.type = STATE_CMD_CONFIG_SET;
	b->cmd.config_set = (struct state_cmd_config_set){.name = slice_of(name, strlen(name)), .value = value};
	return state_bed_run(b);
}

START_TEST(test_a_setting_is_a_row)
{
	uint64_t digest;

	state_bed_open(b);
	ck_assert_uint_eq(state_config(&b->s, CONFIG_SERVER_DEAD_AFTER), 600000);
	digest = state_bed_rows(b->kv, false);
	ck_assert_int_eq(set("server.dead_after", 300000), 0);
	ck_assert_uint_eq(state_config(&b->s, CONFIG_SERVER_DEAD_AFTER), 300000);
	ck_assert_uint_ne(state_bed_rows(b->kv, false), digest);
	state_close(&b->s); /* a restart */
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	ck_assert_uint_eq(state_config(&b->s, CONFIG_SERVER_DEAD_AFTER), 300000);
	ck_assert_int_eq(set("server.dead_after", 600000), 0); /* the default needs no row */
	ck_assert_uint_eq(state_bed_rows(b->kv, false), digest);
	state_bed_close(b);
}
END_TEST

/* In a log of before it the name meant nothing, and was refused. */
START_TEST(test_a_setting_of_a_later_version)
{
	state_bed_open(b);
	b->s.meta.version = b->version = STATE_CLUSTER_OLDEST;
	ck_assert_int_eq(set("disk.damage_limit", 5), ERR_NOENT);
	ck_assert_int_eq(set("gc.grace", 130000), 0);
	b->s.meta.version = b->version = 3;
	ck_assert_int_eq(set("disk.damage_limit", 5), 0);
	while (b->log_count) /* nobody has raised it in the log: it is not played again */
		mem_free((void *)(uintptr_t)b->log[--b->log_count].data);
	state_close(&b->s);
	kv_abandon(b->kv);
	sim_free(b->sim);
}
END_TEST

START_TEST(test_commands_are_checked_when_applied)
{
	uint64_t digest;

	state_bed_open(b);
	digest = state_bed_digest(b->kv);
	ck_assert_int_eq(set("server.dead", 1000), ERR_NOENT);
	ck_assert_int_eq(set("server.dead_after", 999), ERR_RANGE);
	ck_assert_int_eq(set("gc.grace", 119999), ERR_RANGE); /* readers cache layouts */
	ck_assert_int_eq(set("repair.enabled", 2), ERR_RANGE);
	ck_assert_int_eq(set("server.dead_after", 10000), ERR_RANGE); /* not longer than down_after */
	ck_assert_int_eq(set("server.down_after", 600000), ERR_RANGE);
	ck_assert_uint_eq(state_bed_digest(b->kv), digest);
	state_bed_close(b);
}
END_TEST

static void parses(enum config_id id, const char *text, int code, uint64_t value)
{
	uint64_t got = 0;
	struct err err = {0};

	ck_assert_int_eq(config_parse(&config_settings[id], text, &got, &err), code);
	if (code)
		ck_assert_msg(strstr(err.text, config_settings[id].name) != NULL, "%s", err.text);
	else
		ck_assert_uint_eq(got, value);
}

START_TEST(test_texts)
{
	char text[CONFIG_TEXT_BYTES];
	enum config_id id;

	parses(CONFIG_SERVER_DEAD_AFTER, "10m", 0, 600000);
	parses(CONFIG_SERVER_DEAD_AFTER, "1500ms", 0, 1500);
	parses(CONFIG_SERVER_DEAD_AFTER, "default", 0, 600000);
	parses(CONFIG_SERVER_DEAD_AFTER, "soon", ERR_INVAL, 0);
	parses(CONFIG_SERVER_DEAD_AFTER, "999h", ERR_RANGE, 0);
	parses(CONFIG_REPAIR_ENABLED, "no", 0, 0);
	parses(CONFIG_REPAIR_ENABLED, "yes", 0, 1);
	parses(CONFIG_REPAIR_ENABLED, "1", ERR_INVAL, 0);
	for (int i = 0; i < CONFIG_COUNT; i++) {
		const struct config_setting *c = &config_settings[i];

		ck_assert_uint_le(strlen(c->name), CONFIG_NAME_BYTES);
		ck_assert_int_eq(config_find(slice_of(c->name, strlen(c->name)), &id), 0);
		ck_assert_int_eq((int)id, i);
		ck_assert_uint_ge(c->default_, c->min);
		ck_assert_uint_le(c->default_, c->max);
		/* what is shown can be given back */
		parses((enum config_id)i, config_format(c->type, c->default_, text), 0, c->default_);
		parses((enum config_id)i, config_format(c->type, c->max, text), 0, c->max);
	}
	ck_assert_str_eq(config_format(CONFIG_MS, 90000, text), "90s");
	ck_assert_str_eq(config_format(CONFIG_MS, 1, text), "1ms");
	ck_assert_str_eq(config_format(CONFIG_MS, 0, text), "0s");
}
END_TEST

UNIT_MAIN("config", test_a_setting_is_a_row, test_a_setting_of_a_later_version, test_commands_are_checked_when_applied, test_texts)
