/* SPDX-License-Identifier: Apache-2.0 */
/* options: what craton-metad has besides the options of every daemon (common/daemon/daemon_options.h). */
#include "metad/options.h"

#include <string.h>
#include "common/base/limits.h"
#include "common/code/ec.h"
#include "metad/replica/founding.h"
#include "metad/state/state.h"

#define OPTION(field) .offset = offsetof(struct metad_program_options, field)
#define MIB ((uint64_t)1 << 20)

static const struct opt table[] = {
	DAEMON_SERVER_OPTS(struct metad_program_options, "the metadata; exists", "metad-1", NULL,
		"address to listen on, else that of metad; port 0: any, written to DIR/address"),
	{.name = "policy",
		.type = OPT_STRING,
		OPTION(policy),
		.default_ = "rs-4-2",
		.arg = "NAME",
		.help = "policy of the root directory of a new store"},
	{.name = "cell",
		.type = OPT_BYTES,
		OPTION(cell_bytes),
		.max = LIMIT_CELL_BYTES,
		.arg = "SIZE",
		.help = "cell size of the root directory of a new store; 0: 1 MiB"},
	{.name = "chunk",
		.type = OPT_BYTES,
		OPTION(chunk_bytes),
		.max = LIMIT_CHUNK_BYTES,
		.arg = "SIZE",
		.help = "chunk size of the root directory of a new store; 0: 4 MiB"},
	{.name = "log-segment",
		.type = OPT_BYTES,
		OPTION(log_segment),
		.max = 1024 * MIB,
		.cli_only = true,
		.arg = "SIZE",
		.help = "segment size of a new log; 0: 64 MiB"},
	{.name = "replica",
		.type = OPT_U64,
		OPTION(replica),
		.max = (uint64_t)1 << 32,
		.cli_only = true,
		.arg = "N",
		.help = "of a group: which of them this is: its place in `metad`, from 1; of one that is added, the number that comes next"},
	{.name = "found",
		.type = OPT_FLAG,
		OPTION(found),
		.cli_only = true,
		.help = "with --replica: of a new store, make what --dir does not hold yet, with all others of `metad`; one of them that lost its --dir is refused. With --replica 1: a store "
			"with one metad becomes a group"},
	{.name = "join",
		.type = OPT_FLAG,
		OPTION(join),
		.cli_only = true,
		.help = "with --replica: if --dir holds nothing, wait for `craton meta add`"},
	{.name = "restore",
		.type = OPT_STRING,
		OPTION(restore),
		.cli_only = true,
		.arg = "FILE",
		.help = "make the metadata in an empty --dir from this backup, then exit; with --replica 1 --found: as those of the first of a group"},
	{.name = "restores",
		.type = OPT_U64,
		OPTION(restores),
		.max = STATE_RESTORES - 1,
		.cli_only = true,
		.arg = "N",
		.help = "with --restore or --force-config: restores that the disks have seen, as metad says where it refuses them"},
	{.name = "force",
		.type = OPT_FLAG,
		OPTION(force),
		.cli_only = true,
		.help = "with --restores: believe a number that is far from what is known"},
	{.name = "force-config",
		.type = OPT_FLAG,
		OPTION(force_config),
		.cli_only = true,
		.help = "with --replica: of a group whose majority is lost for good, make the replica in --dir its only member, then exit; says first "
			"what that may lose"},
	{.name = "confirm",
		.type = OPT_STRING,
		OPTION(confirm),
		.cli_only = true,
		.arg = "WORD",
		.help = "with --force-config: do it; the word is in what it says without"},
	DAEMON_STORE_OPTS(struct metad_program_options, "where this server is found by the others"),
	{0},
};

const struct daemon_usage metad_usage = {
	.program = "craton-metad",
	.address = "127.0.0.1:7000",
	.intro = "Usage: craton-metad --dir DIR -c craton.conf [OPTION ...]\n"
		 "       craton-metad --restore FILE [--replica 1 --found] --dir DIR -c craton.conf\n"
		 "       craton-metad --force-config [--confirm WORD] --replica N --dir DIR -c craton.conf\n"
		 "\n"
		 "The metadata server of Craton: names, layouts, and the state of every disk.\n",
	.examples = "  craton-metad --dir /var/lib/craton/metad-1 --listen 127.0.0.1:7000 -c /etc/craton/craton.conf\n"
		    "  craton-metad --dir m --listen 127.0.0.1:0 -c craton.conf    # the port is in m/address\n",
	.table = table,
};

/* Of several each must know which it is. */
static int derive_group(struct metad_program_options *o, struct err *err)
{
	struct metad_group *group = &o->server.group;

	*group = (struct metad_group){.id = o->replica, .found = o->found, .join = o->join};
	if (o->common.metad && daemon_options_addrs(&o->common, "metad", o->common.metad, &group->members, err) < 0)
		return err->code;
	if (group->members.count > 1 && o->replica == 0)
		return err_set(err, ERR_INVAL, "--replica is missing: metad = %s names %u, say which of them this is, from 1 to %u", o->common.metad,
			group->members.count, group->members.count);
	if (!o->replica && (o->found || o->join))
		return err_set(err, ERR_INVAL, "--found and --join go with --replica: they are for groups");
	if (o->found && o->join)
		return err_set(err, ERR_INVAL, "--found makes a new group, --join waits to be added to one: give one of them");
	if (o->found && o->replica > group->members.count)
		return err_set(err, ERR_INVAL, "--replica %llu: metad = %s names %u; --found is for those that make a new group of these, numbered from 1 to %u: who was added to "
			"one has another number, and starts without it", (unsigned long long)o->replica, o->common.metad, group->members.count, group->members.count);
	return 0;
}

static int derive(struct metad_program_options *o, struct err *err)
{
	const struct daemon_options *c = &o->common;

	if (!ec_policy_by_name(o->policy))
		return err_set(err, ERR_INVAL,
			"policy = %s is not known: rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6 or rs-1-2",
			o->policy);
	if (o->log_segment && (o->log_segment % MIB || o->log_segment < MIB))
		return err_set(err, ERR_INVAL, "--log-segment is a whole number of MiB");
	o->server = (struct metad_options){
		.dir = c->dir,
		.name = c->name,
		.listen = c->listen_addr,
		.metrics = c->metrics_addr,
		.cluster = c->cluster_uuid,
		.default_policy = o->policy,
		.cell_bytes = (uint32_t)o->cell_bytes,
		.chunk_bytes = o->chunk_bytes,
		.backend = &kv_lmdb,
		.log_segment_bytes = o->log_segment,
		.way_path = c->way_path,
		.transform = c->rpc_transform,
	};
	memcpy(o->server.secret, c->secret, sizeof(o->server.secret));
	if (derive_group(o, err) < 0)
		return err->code;
	return metad_check_options(&o->server, err);
}

/* What is done offline needs. */
static int derive_offline(struct metad_program_options *o, struct io *io, struct err *err)
{
	int rc = daemon_options_load_cluster(&o->common, io, err);

	return rc < 0 ? rc : daemon_options_require(&o->common, o->common.dir, "dir", " DIR", err);
}

static int derive_restore(struct metad_program_options *o, struct io *io, struct err *err)
{
	int rc = derive_offline(o, io, err);

	if (rc < 0)
		return rc;
	if (o->join)
		return err_set(err, ERR_INVAL, "--join waits to be given all metadata, --restore makes them: give one of them");
	if ((o->replica != 0) != o->found || o->replica > FOUNDING_REPLICA)
		return err_set(err, ERR_INVAL,
			"--restore makes the metadata of a store with one metad or, with --replica 1 --found, those of the first of a new group: give both, or neither");
	return 0;
}

/* What --force-config needs. */
static int derive_force(struct metad_program_options *o, struct io *io, struct err *err)
{
	int rc = derive_offline(o, io, err);

	if (rc < 0)
		return rc;
	if (!o->replica)
		return err_set(err, ERR_INVAL, "--replica is missing: say which of the group lies in --dir, the number that it had");
	if (o->found || o->join)
		return err_set(err, ERR_INVAL, "--force-config keeps what --dir holds: --found and --join do not go with it");
	return o->common.metad ? daemon_options_addrs(&o->common, "metad", o->common.metad, &o->server.group.members, err) : 0;
}

int metad_options_parse(struct io *io, struct metad_program_options *o, int argc, char **argv, struct err *err)
{
	int rc = daemon_options_parse(&o->common, argc, argv, err);

	if (rc < 0 || o->common.help || o->common.version)
		return rc;
	if (o->restore && o->force_config)
		return err_set(err, ERR_INVAL, "--restore makes what --dir does not hold, --force-config goes on with what it does: give one of them");
	if (o->confirm && !o->force_config)
		return err_set(err, ERR_INVAL, "--confirm goes with --force-config");
	if (o->restore)
		return derive_restore(o, io, err);
	if (o->force_config)
		return derive_force(o, io, err);
	if (o->restores || o->force)
		return err_set(err, ERR_INVAL, "--restores and --force go with --restore or --force-config");
	rc = daemon_options_load(&o->common, io, err);
	return rc < 0 ? rc : derive(o, err);
}

void metad_options_fini(struct metad_program_options *o)
{
	memset(o->server.secret, 0, sizeof(o->server.secret));
	daemon_options_fini(&o->common);
}
