/* SPDX-License-Identifier: Apache-2.0 */
/* options: what craton-chunkd has besides the options of every daemon (common/daemon/daemon_options.h). */
#include "chunkd/options.h"

#include <string.h>
#include "common/base/limits.h"

#define OPTION(field) .offset = offsetof(struct chunkd_program_options, field)
#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

static const struct opt table[] = {
	DAEMON_SERVER_OPTS(struct chunkd_program_options, "state of this server; exists", "chunkd-1", "127.0.0.1:0",
		"address to listen on; port 0: any, written to DIR/address"),
	{.name = "disk",
		.type = OPT_LIST,
		OPTION(disks),
		.cli_only = true,
		.arg = "DIR",
		.help = "a disk: a directory that exists; may be given several times"},
	{.name = "domain",
		.type = OPT_STRING,
		OPTION(domain),
		.cli_only = true,
		.arg = "NAME",
		.help = "failure domain (host, rack); without it the server is one of its own"},
	{.name = "advertise",
		.type = OPT_STRING,
		OPTION(advertise),
		.cli_only = true,
		.arg = "IP:PORT",
		.help = "address that others use; without it the one listened on"},
	{.name = "capacity",
		.type = OPT_BYTES,
		OPTION(capacity),
		.max = (uint64_t)1 << 50,
		.arg = "SIZE",
		.help = "most space to take on each disk; 0: what the file system has, less 5 %"},
	{.name = "segment",
		.type = OPT_BYTES,
		OPTION(segment),
		.max = 16 * GIB,
		.arg = "SIZE",
		.help = "segment size of a new disk; 0: 1 GiB, on small disks 64 MiB"},
	{.name = "log-segment",
		.type = OPT_BYTES,
		OPTION(log_segment),
		.max = GIB,
		.cli_only = true,
		.arg = "SIZE",
		.help = "segment size of a new index log; 0: 16 MiB"},
	{.name = "memory",
		.type = OPT_BYTES,
		OPTION(memory),
		.default_ = "192M",
		.min = 64 * MIB,
		.max = 64 * GIB,
		.arg = "SIZE",
		.help = "most memory for data in flight"},
	{.name = "beside-metad",
		.type = OPT_BYTES,
		OPTION(beside_metad),
		.max = 1024 * GIB,
		.arg = "SIZE",
		.help = "bulk that each disk writes a second while a metad, or small chunks, of this host are short of time or disk; 0: all it can; for stores of one host"},
	{.name = "no-format",
		.type = OPT_FLAG,
		OPTION(no_format),
		.cli_only = true,
		.help = "never format a disk: an empty directory is an error, as where one is not mounted"},
	{.name = "format",
		.type = OPT_FLAG,
		OPTION(format),
		.cli_only = true,
		.help = "make a disk of the cluster of one empty --disk, then exit"},
	{.name = "rebuild-index",
		.type = OPT_FLAG,
		OPTION(rebuild_index),
		.cli_only = true,
		.help = "make the index of one --disk anew from its chunks, offline, then exit"},
	DAEMON_STORE_OPTS(struct chunkd_program_options, "the metadata server"),
	{0},
};

const struct daemon_usage chunkd_usage = {
	.program = "craton-chunkd",
	.address = "127.0.0.1:7101",
	.intro = "Usage: craton-chunkd --dir DIR --disk DIR [--disk DIR ...] -c craton.conf [OPTION ...]\n"
		 "       craton-chunkd --format --disk DIR -c craton.conf\n"
		 "       craton-chunkd --rebuild-index --disk DIR\n"
		 "\n"
		 "The chunk server of Craton: keeps chunks of files on disks and serves them to clients.\n",
	.examples = "  craton-chunkd --dir /var/lib/craton/chunkd-1 --disk /mnt/ssd1 --disk /mnt/ssd2 \\\n"
		    "      --name chunkd-1 --listen 127.0.0.1:7101 -c /etc/craton/craton.conf\n"
		    "  craton-chunkd --dir s --disk d --capacity 8G --listen 127.0.0.1:0 -c craton.conf    "
		    "# the port is in s/address\n",
	.table = table,
};

static int derive_addresses(struct chunkd_program_options *o, struct err *err)
{
	static const uint8_t any[16];
	const struct io_addr *listen = &o->common.listen_addr;
	struct chunkd_options *d = &o->server;

	if (daemon_options_addrs(&o->common, "metad", o->common.metad, &d->metads, err) < 0)
		return err->code;
	if (o->advertise && daemon_options_addr(&o->common, "advertise", o->advertise, &d->advertise, err) < 0)
		return err->code;
	if (!d->advertise.family && memcmp(listen->ip, any, listen->family == 4 ? 4 : 16) == 0)
		return err_set(err, ERR_INVAL,
			"--listen %s is every address: say with --advertise which one others shall use",
			o->common.listen);
	return 0;
}

static int check_segments(const struct chunkd_program_options *o, struct err *err)
{
	if ((o->segment && (o->segment % MIB || o->segment < 8 * MIB)) || (o->log_segment && o->log_segment % MIB))
		return err_set(err, ERR_INVAL, "segments are whole MiB, those of data at least 8M");
	return 0;
}

static int one_disk(const struct chunkd_program_options *o, const char *option, struct err *err)
{
	if (o->disks.count == 1)
		return 0;
	return err_set(err, ERR_INVAL, "%s works on one disk: name it with --disk", option);
}

/* What --format needs. */
static int derive_format(struct chunkd_program_options *o, struct io *io, struct err *err)
{
	int rc = daemon_options_load_cluster(&o->common, io, err);

	return rc < 0 ? rc : check_segments(o, err);
}

static int derive(struct chunkd_program_options *o, struct err *err)
{
	const struct daemon_options *c = &o->common;
	const char *disk = o->disks.count ? o->disks.items[0] : NULL;

	if (daemon_options_require(c, disk, "disk", " DIR", err) < 0 ||
		daemon_options_require(c, c->metad, "metad", DAEMON_IN_CONF, err) < 0)
		return err->code;
	if (o->disks.count > LIMIT_DISKS_PER_SERVER)
		return err_set(err, ERR_INVAL, "--disk is given %zu times, a server has at most %d disks",
			o->disks.count, LIMIT_DISKS_PER_SERVER);
	if (check_segments(o, err) < 0)
		return err->code;
	o->server = (struct chunkd_options){
		.state_dir = c->dir,
		.name = c->name,
		.domain = o->domain,
		.disk_dirs = o->disks.items,
		.disk_count = o->disks.count,
		.capacity_bytes = o->capacity,
		.segment_bytes = o->segment,
		.no_format = o->no_format,
		.listen = c->listen_addr,
		.metrics = c->metrics_addr,
		.cluster = c->cluster_uuid,
		.backend = &kv_lmdb,
		.log_segment_bytes = o->log_segment,
		.memory_bytes = o->memory,
		.way_path = c->way_path,
		.way_bytes_per_s = o->beside_metad,
		.transform = c->rpc_transform,
	};
	memcpy(o->server.secret, c->secret, sizeof(o->server.secret));
	return derive_addresses(o, err);
}

int chunkd_options_parse(struct io *io, struct chunkd_program_options *o, int argc, char **argv, struct err *err)
{
	int rc = daemon_options_parse(&o->common, argc, argv, err);

	if (rc < 0 || o->common.help || o->common.version)
		return rc;
	if (o->rebuild_index)
		return one_disk(o, "--rebuild-index", err);
	if (o->format)
		return one_disk(o, "--format", err) < 0 ? err->code : derive_format(o, io, err);
	rc = daemon_options_load(&o->common, io, err);
	return rc < 0 ? rc : derive(o, err);
}

void chunkd_options_fini(struct chunkd_program_options *o)
{
	memset(o->server.secret, 0, sizeof(o->server.secret));
	daemon_options_fini(&o->common);
}
