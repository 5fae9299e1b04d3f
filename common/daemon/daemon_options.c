/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_options: see daemon_options.h. One table drives both sources. Names in the configuration file that are not
 * ours are those of other programs (common/base/conf.h) and are skipped there.
 */
#include "common/daemon/daemon_options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/base/conf.h"
#include "common/base/mem.h"

enum { CONF_BYTES = 64 << 10, SECRET_FILE_BYTES = 256, PATH_ROOM = 4096 + 64 };

/* ---- files ---- */

static int read_conf(struct daemon_options *o, struct io *io, struct err *err)
{
	char *text;
	size_t len;
	int rc;

	if (!o->conf)
		return 0;
	rc = io_read_file(io, o->conf, CONF_BYTES, &text, &len);
	if (rc < 0)
		return err_set(err, rc, "cannot read the configuration %s: %s", o->conf, err_text(rc));
	rc = opt_parse_text(&o->parser, o->conf, text, len, conf_names, err);
	mem_free(text);
	return rc;
}

static int read_secret(struct daemon_options *o, struct io *io, struct err *err)
{
	const char *slash = o->conf ? strrchr(o->conf, '/') : NULL;
	char path[PATH_ROOM], *text;
	size_t len;
	int rc;

	if (o->secret_file[0] != '/' && slash)
		snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - o->conf), o->conf, o->secret_file);
	else
		snprintf(path, sizeof(path), "%s", o->secret_file);
	rc = io_read_file(io, path, SECRET_FILE_BYTES, &text, &len);
	if (rc < 0)
		return err_set(err, rc, "cannot read the secret file %s: %s", path, err_text(rc));
	rc = auth_parse_secret(slice_of(text, len), o->secret);
	memset(text, 0, len);
	mem_free(text);
	return rc < 0 ? err_set(err, ERR_INVAL, "%s does not hold a cluster secret: 64 hex digits and a newline", path)
		      : 0;
}

/* ---- meaning ---- */

int daemon_options_require(
	const struct daemon_options *o, const char *value, const char *name, const char *how, struct err *err)
{
	if (value && value[0])
		return 0;
	return err_set(err, ERR_INVAL, "%s is missing: give --%s%s (%s --help)", name, name, how, o->usage->program);
}

int daemon_options_addr(
	const struct daemon_options *o, const char *name, const char *text, struct io_addr *ret_addr, struct err *err)
{
	if (io_addr_parse(text, ret_addr) < 0)
		return err_set(err, ERR_INVAL, "--%s %s: not an address: write IP:PORT, say %s", name, text,
			o->usage->address);
	return 0;
}

int daemon_options_addrs(
	const struct daemon_options *o, const char *name, const char *text, struct rpc_addrs *ret_addrs, struct err *err)
{
	int code = rpc_addrs_parse(text, ret_addrs);

	if (code < 0)
		return err_set(err, ERR_INVAL, "--%s %s: %s: write IP:PORT, say %s, or those of a group with commas between them",
			name, text, rpc_addrs_fault(code), o->usage->address);
	return 0;
}

static int check_open(const struct daemon_options *o, const char *name, const char *text, const struct io_addr *addr,
	struct err *err)
{
	if (io_addr_is_loopback(addr) || o->plaintext)
		return 0;
	return err_set(err, ERR_INVAL,
		"--%s %s is open to the network and this version has no encryption: set plaintext = yes to allow it, or "
		"listen on 127.0.0.1",
		name, text);
}

static int derive_listen(struct daemon_options *o, struct err *err)
{
	const char *text = o->listen ? o->listen : o->metad;

	if (!o->listen && strchr(text, ','))
		return err_set(err, ERR_INVAL, "--listen is missing: metad = %s names several, say which of them this one is", text);
	if (daemon_options_addr(o, o->listen ? "listen" : "metad", text, &o->listen_addr, err) < 0 ||
		check_open(o, "listen", text, &o->listen_addr, err) < 0)
		return err->code;
	if (!o->metrics || !o->metrics[0])
		return 0;
	if (daemon_options_addr(o, "metrics", o->metrics, &o->metrics_addr, err) < 0)
		return err->code;
	return check_open(o, "metrics", o->metrics, &o->metrics_addr, err);
}

static int derive_cluster(struct daemon_options *o, struct err *err)
{
	if (daemon_options_require(o, o->cluster, "cluster", DAEMON_IN_CONF, err) < 0)
		return err->code;
	if (uuid_parse(o->cluster, &o->cluster_uuid) < 0 || uuid_is_zero(&o->cluster_uuid))
		return err_set(err, ERR_INVAL, "cluster = %s is not a uuid (8-4-4-4-12 hex digits)", o->cluster);
	return 0;
}

static int derive(struct daemon_options *o, struct err *err)
{
	snprintf(o->way_path, sizeof(o->way_path), "/dev/shm/craton-way-%u", (unsigned)geteuid());
	if (daemon_options_require(o, o->dir, "dir", " DIR", err) < 0 || derive_cluster(o, err) < 0 ||
		daemon_options_require(o, o->secret_file, "secret-file", DAEMON_IN_CONF, err) < 0 ||
		daemon_options_require(o, o->listen ? o->listen : o->metad, "listen", " IP:PORT", err) < 0)
		return err->code;
	if (strlen(o->name) == 0 || strlen(o->name) >= sizeof(((struct rpc_identity *)0)->name))
		return err_set(err, ERR_INVAL, "--name has 1 to 63 bytes");
	if (derive_listen(o, err) < 0)
		return err->code;
	if (rpc_transform_by_name(o->transform ? o->transform : "", &o->rpc_transform) < 0)
		return err_set(err, ERR_INVAL, "transform = %s is not known: none or xor", o->transform);
	return 0;
}

/* ---- calls ---- */

int daemon_options_parse(struct daemon_options *o, int argc, char **argv, struct err *err)
{
	const char *words[1];
	int word_count = 0;

	opt_init(&o->parser, o->usage->table, o);
	return opt_parse_cli(&o->parser, argc, argv, words, 0, &word_count, err);
}

int daemon_options_load(struct daemon_options *o, struct io *io, struct err *err)
{
	int rc = read_conf(o, io, err);

	if (rc == 0)
		rc = derive(o, err);
	return rc < 0 ? rc : read_secret(o, io, err);
}

int daemon_options_load_cluster(struct daemon_options *o, struct io *io, struct err *err)
{
	int rc = read_conf(o, io, err);

	return rc < 0 ? rc : derive_cluster(o, err);
}

void daemon_options_fini(struct daemon_options *o)
{
	memset(o->secret, 0, sizeof(o->secret));
	opt_fini(&o->parser);
}

char *daemon_options_help(const struct daemon_usage *usage)
{
	char *list = opt_help(usage->table);
	char *text = mem_printf("%s"
				"\n"
				"Options:\n"
				"%s"
				"\n"
				"Examples:\n"
				"%s"
				"\n"
				"Exit status: 0 stopped by SIGTERM or SIGINT, 1 failure, 2 wrong usage.\n",
		usage->intro, list, usage->examples);

	mem_free(list);
	return text;
}
