/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/store_status.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/units.h"

enum { REFUSED_SHOWN_MS = 3600 * 1000 };

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static uint64_t num(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

int store_status_fetch(struct cr_store *store, struct store_status *ret_status)
{
	struct store_status status = {0};
	const json_t *server;
	const char *health;
	json_t *root;
	size_t i;
	int r = cr_status_json(store, &status.json);

	if (r < 0)
		return r;
	root = json_loads(status.json, 0, NULL);
	health = str(root, "health");
	if (!root || !*health) {
		json_decref(root);
		free(status.json);
		return -EPROTO;
	}
	status.exit_code = !strcmp(health, "ok") ? STATUS_EXIT_OK : !strcmp(health, "warn") ? STATUS_EXIT_WARN : STATUS_EXIT_ERROR;
	json_array_foreach(json_object_get(root, "servers"), i, server) {
		status.servers++;
		status.servers_up += !strcmp(str(server, "state"), "up");
	}
	json_decref(root);
	*ret_status = status;
	return 0;
}

void store_status_fini(struct store_status *status)
{
	free(status->json);
	*status = (struct store_status){0};
}

bool store_status_is_up(const struct store_status *status, const char *address)
{
	json_t *root = json_loads(status->json, 0, NULL);
	const json_t *server;
	bool up = false;
	size_t i;

	json_array_foreach(json_object_get(root, "servers"), i, server)
		up |= !strcmp(str(server, "address"), address) && !strcmp(str(server, "state"), "up");
	json_decref(root);
	return up;
}

char *store_status_errors(const struct store_status *status)
{
	json_t *root = json_loads(status->json, 0, NULL);
	char *errors = mem_strdup(""), *more;
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(root, "reasons"), i, o) {
		if (strcmp(str(o, "severity"), "error"))
			continue;
		more = mem_printf("%sBut:           %s (%s)\n", errors, str(o, "text"), str(o, "code"));
		mem_free(errors);
		errors = more;
	}
	json_decref(root);
	return errors;
}

/* What the metad that answers has refused, if it was within the last hour: it says who tries, and harms nothing. */
static void print_refused(const json_t *refused, FILE *f)
{
	const json_t *o;
	bool any = false;
	size_t i;

	json_array_foreach(refused, i, o) {
		if (num(o, "ago_ms") > REFUSED_SHOWN_MS)
			continue;
		fprintf(f, "%s%llu %s (%llu s ago)", any ? ", " : "refused  ", (unsigned long long)num(o, "count"), str(o, "cause"),
		        (unsigned long long)num(o, "ago_ms") / 1000);
		any = true;
	}
	if (any)
		fprintf(f, "\n");
}

static void print_disk(const json_t *disk, FILE *f)
{
	char free_text[UNITS_TEXT_BYTES], capacity[UNITS_TEXT_BYTES];

	fprintf(f, "    disk %-4llu %-8s %10s free of %-10s %8llu chunks  %s%s%s\n", (unsigned long long)num(disk, "disk"), str(disk, "state"),
	        units_format_bytes(num(disk, "free_bytes"), free_text), units_format_bytes(num(disk, "capacity_bytes"), capacity),
	        (unsigned long long)num(disk, "chunks"), str(disk, "path"), *str(disk, "error") ? "  " : "", str(disk, "error"));
}

void store_status_print(const struct store_status *status, FILE *f)
{
	json_t *root = json_loads(status->json, 0, NULL);
	const json_t *blocks = json_object_get(root, "blocks"), *disks = json_object_get(root, "disks"), *o, *disk;
	size_t i, d;

	fprintf(f, "health   %s\n", str(root, "health"));
	json_array_foreach(json_object_get(root, "reasons"), i, o)
		fprintf(f, "         %s: %s (%s)\n", str(o, "severity"), str(o, "text"), str(o, "code"));
	fprintf(f, "blocks   %llu full, %llu crowded, %llu degraded, %llu at risk, %llu lost\n", (unsigned long long)num(blocks, "full"),
	        (unsigned long long)num(blocks, "crowded"), (unsigned long long)num(blocks, "degraded"),
	        (unsigned long long)num(blocks, "at_risk"), (unsigned long long)num(blocks, "lost"));
	o = json_object_get(root, "repair");
	if (num(o, "wanted") || num(o, "active") || num(o, "done"))
		fprintf(f, "repair   %llu blocks wait, %llu under way, %llu done since metad started\n",
			(unsigned long long)num(o, "wanted"), (unsigned long long)num(o, "active"), (unsigned long long)num(o, "done"));
	print_refused(json_object_get(root, "refused"), f);
	json_array_foreach(json_object_get(root, "settings"), i, o)
		fprintf(f, "%s%s = %s (default %s)\n", i ? "         " : "settings ", str(o, "name"), str(o, "text"),
		        str(o, "default_text"));
	fprintf(f, "servers  %llu of %llu up\n", (unsigned long long)status->servers_up, (unsigned long long)status->servers);
	json_array_foreach(json_object_get(root, "servers"), i, o) {
		fprintf(f, "  %-14s %-5s %-21s domain %s\n", str(o, "name"), str(o, "state"), str(o, "address"), str(o, "domain"));
		json_array_foreach(disks, d, disk)
			if (num(disk, "server") == num(o, "server"))
				print_disk(disk, f);
	}
	json_decref(root);
}

/* "30s", in the unit of the setting. */
static const char *setting_bound(const json_t *setting, const char *key, char text[UNITS_TEXT_BYTES])
{
	const char *unit = str(setting, "unit");

	if (strcmp(unit, "ms") == 0)
		return units_format_ms(num(setting, key), text);
	if (strcmp(unit, "bytes") == 0)
		return units_format_bytes(num(setting, key), text);
	snprintf(text, UNITS_TEXT_BYTES, "%llu%s", (unsigned long long)num(setting, key), unit);
	return text;
}

static void print_setting(const json_t *o, FILE *f)
{
	char min[UNITS_TEXT_BYTES], max[UNITS_TEXT_BYTES], range[2 * UNITS_TEXT_BYTES + 8];

	if (strcmp(str(o, "type"), "yes|no") == 0)
		snprintf(range, sizeof(range), "yes or no");
	else
		snprintf(range, sizeof(range), "%s to %s", setting_bound(o, "min", min), setting_bound(o, "max", max));
	fprintf(f, "%-24s %-8s default %-8s %-7s %-14s %s\n", str(o, "name"), str(o, "text"), str(o, "default_text"), str(o, "type"),
	        range, str(o, "help"));
}

void store_settings_print(const char *text, bool value_only, FILE *f)
{
	json_t *root = json_loads(text, 0, NULL);
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(root, "settings"), i, o) {
		if (value_only)
			fprintf(f, "%s\n", str(o, "text"));
		else
			print_setting(o, f);
	}
	json_decref(root);
}
