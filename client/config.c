/* SPDX-License-Identifier: Apache-2.0 */
/* config: one option table; relative paths in it are relative to the file. */
#include "client/config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/conf.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/opt.h"

enum { CONFIG_MAX_BYTES = 64 << 10 };

struct config_text {
	const char *cluster, *metad, *secret_file, *transform;
	bool plaintext;
	uint64_t timeout_ms, tail_bytes;
};

#define AT(field) offsetof(struct config_text, field)
static const struct opt config_table[] = {
	{.name = "cluster",
		.type = OPT_STRING,
		.offset = AT(cluster),
		.arg = "UUID",
		.help = "id of the store; none: any"},
	{.name = "metad",
		.type = OPT_STRING,
		.offset = AT(metad),
		.arg = "IP:PORT,...",
		.help = "address of the metadata daemon, or of each of a group"},
	{.name = "secret-file",
		.type = OPT_STRING,
		.offset = AT(secret_file),
		.arg = "FILE",
		.help = "the cluster secret"},
	{.name = "transform",
		.type = OPT_STRING,
		.offset = AT(transform),
		.arg = "NAME",
		.help = "what bytes on the wire pass through"},
	{.name = "plaintext",
		.type = OPT_FLAG,
		.offset = AT(plaintext),
		.help = "allow unencrypted connections beyond loopback"},
	{.name = "timeout",
		.type = OPT_MS,
		.offset = AT(timeout_ms),
		.default_ = "30s",
		.min = 100,
		.max = 3600 * 1000,
		.arg = "TIME",
		.help = "greatest time one metadata call or one cell may take, retries included"},
	{.name = "tails",
		.type = OPT_BYTES,
		.offset = AT(tail_bytes),
		.default_ = "0",
		.max = LIMIT_TAIL_BYTES,
		.arg = "SIZE",
		.help = "small files, and last bytes of files, that are kept in the metadata"},
	{0},
};

/* The first candidate that exists. `path` given: that one or none. */
static int find_file(
	struct io *io, const char *path, struct config *c, char **ret_text, size_t *ret_len, struct err *err)
{
	const char *env = getenv("CRATON_CONF"), *home = getenv("HOME");
	char *in_home = mem_printf("%s/.config/craton/craton.conf", home ? home : "");
	const char *tries[] = {in_home, "/etc/craton/craton.conf"};
	int code = ERR_NOENT;

	if (!path && env && *env)
		path = env;
	if (path) {
		code = io_read_file(io, path, CONFIG_MAX_BYTES, ret_text, ret_len);
		snprintf(c->path, sizeof(c->path), "%s", path);
		if (code < 0)
			err_set(err, code, "configuration %s: %s", path, err_text(code));
		goto out;
	}
	for (size_t i = 0; i < ARRAY_COUNT(tries); i++) {
		code = io_read_file(io, tries[i], CONFIG_MAX_BYTES, ret_text, ret_len);
		snprintf(c->path, sizeof(c->path), "%s", tries[i]);
		if (code != ERR_NOENT)
			break;
	}
	if (code == ERR_NOENT)
		err_set(err, code,
			"no configuration: give one with -c FILE or CRATON_CONF=FILE (`craton local up DIR` writes DIR/craton.conf)");
	else if (code < 0)
		err_set(err, code, "configuration %s: %s", c->path, err_text(code));
out:
	mem_free(in_home);
	return code;
}

static void path_beside(const char *file, const char *name, char *out, size_t out_bytes)
{
	const char *slash = strrchr(file, '/');

	if (name[0] == '/' || !slash)
		snprintf(out, out_bytes, "%s", name);
	else
		snprintf(out, out_bytes, "%.*s/%s", (int)(slash - file), file, name);
}

static int take(const struct config_text *t, struct config *c, struct err *err)
{
	const char *transform = t->transform ? t->transform : "";
	bool is_local = true;
	int code;

	if (!t->metad)
		return err_set(err, ERR_INVAL, "%s: `metad = HOST:PORT` is missing", c->path);
	code = rpc_addrs_parse(t->metad, &c->metads);
	if (code < 0)
		return err_set(err, ERR_INVAL,
			"%s: metad = %.200s: %s: write 127.0.0.1:7000 or [::1]:7000, or those of a group with commas between them",
			c->path, t->metad, rpc_addrs_fault(code));
	if (t->cluster && uuid_parse(t->cluster, &c->cluster) < 0)
		return err_set(err, ERR_INVAL, "%s: cluster = %.200s: not a UUID", c->path, t->cluster);
	if (rpc_transform_by_name(transform, &c->transform) < 0)
		return err_set(
			err, ERR_INVAL, "%s: unknown transform %.200s: known are none and xor", c->path, transform);
	for (uint32_t i = 0; i < c->metads.count; i++)
		is_local = is_local && io_addr_is_loopback(&c->metads.addrs[i]);
	if (!is_local && !t->plaintext)
		return err_set(err, ERR_INVAL,
			"%s: metad = %.200s is not on this host: say `plaintext = yes` to go there without encryption",
			c->path, t->metad);
	c->plaintext = t->plaintext;
	c->timeout_ms = t->timeout_ms;
	c->tail_bytes = (uint32_t)t->tail_bytes;
	if (t->secret_file)
		path_beside(c->path, t->secret_file, c->secret_file, sizeof(c->secret_file));
	return 0;
}

int config_load(struct io *io, const char *path, struct config *ret_config, struct err *err)
{
	struct config *c = MEM_NEW(struct config);
	struct config_text t = {0};
	struct opt_parser p;
	char *text;
	size_t len;
	int code = find_file(io, path, c, &text, &len, err);

	if (code < 0)
		goto out;
	opt_init(&p, config_table, &t);
	code = opt_parse_text(&p, c->path, text, len, conf_names, err);
	if (code == 0)
		code = take(&t, c, err);
	opt_fini(&p);
	mem_free(text);
	if (code == 0)
		*ret_config = *c;
out:
	mem_free(c);
	return code;
}
