/* SPDX-License-Identifier: Apache-2.0 */
/* craton-metad: one metadata server on a real loop, or what is done to its directory offline: --restore, --force-config. */
#include <stdio.h>
#include "common/base/check.h"
#include "common/daemon/daemon_main.h"
#include "metad/force.h"
#include "metad/options.h"
#include "metad/restore.h"

struct metad_program {
	struct daemon daemon;
	struct metad_program_options options;
	struct metad *server;
	bool ended; /* what is done offline */
};

static struct metad_program *program_of(struct daemon *d)
{
	return CONTAINER_OF(d, struct metad_program, daemon);
}

static int parse(struct daemon *d, int argc, char **argv, struct err *err)
{
	return metad_options_parse(d->io, &program_of(d)->options, argc, argv, err);
}

static void fini(struct daemon *d)
{
	metad_options_fini(&program_of(d)->options);
}

static int start(struct daemon *d, struct err *err)
{
	struct metad_program *p = program_of(d);
	struct metad_options *o = &p->options.server;

	o->log = &d->log;
	o->on_fatal = daemon_main_fatal; /* metad has logged it */
	o->ctx = d;
	o->max_conns = d->max_conns;
	return metad_start(d->io, o, &p->server, err);
}

static struct io_addr address(struct daemon *d)
{
	return metad_addr(program_of(d)->server);
}

static struct io_addr metrics(struct daemon *d)
{
	return metad_metrics_addr(program_of(d)->server);
}

static void stop(struct daemon *d, void (*stopped)(void *ctx), void *ctx)
{
	metad_stop(program_of(d)->server, stopped, ctx);
}

/* ---- offline ---- */

static void on_ended(void *ctx, int code, const char *text)
{
	struct metad_program *p = ctx;

	if (code < 0)
		fprintf(stderr, "%s: %s\n", metad_usage.program, text);
	else
		printf("%s\n", text);
	p->daemon.exit_code = code == ERR_INVAL && p->options.force_config ? 2 : code < 0;
	p->ended = true;
	io_stop(p->daemon.io);
}

static int run_to_end(struct metad_program *p, struct err *err)
{
	int rc = 0;

	while (rc == 0 && !p->ended)
		rc = io_run(p->daemon.io);
	return rc < 0 ? err_set(err, rc, "the event loop failed: %s", err_text(rc)) : 0;
}

static int restore(struct metad_program *p, struct err *err)
{
	restore_start(p->daemon.io,
		&(struct restore_options){.dir = p->options.common.dir,
			.file = p->options.restore,
			.cluster = p->options.common.cluster_uuid,
			.restores = (uint32_t)p->options.restores,
			.force = p->options.force,
			.replica = p->options.replica,
			.backend = &kv_lmdb,
			.log_segment_bytes = p->options.log_segment,
			.done = on_ended,
			.ctx = p});
	return run_to_end(p, err);
}

static void on_report(void *ctx, const char *text)
{
	(void)ctx;
	printf("%s\n", text);
	fflush(stdout);
}

static int force_config(struct metad_program *p, struct err *err)
{
	struct force_options o = {.dir = p->options.common.dir,
		.cluster = p->options.common.cluster_uuid,
		.id = p->options.replica,
		.founders = &p->options.server.group.members,
		.confirm = p->options.confirm,
		.restores = (uint32_t)p->options.restores,
		.restores_forced = p->options.force,
		.backend = &kv_lmdb,
		.log_segment_bytes = p->options.log_segment,
		.report = on_report,
		.done = on_ended,
		.ctx = p};

	force_start(p->daemon.io, &o);
	return run_to_end(p, err);
}

static int run(struct daemon *d, struct err *err)
{
	struct metad_program *p = program_of(d);

	if (p->options.restore)
		return restore(p, err);
	return p->options.force_config ? force_config(p, err) : daemon_main_serve(d, err);
}

static const struct daemon_program program = {
	.parse = parse, .fini = fini, .run = run, .start = start, .address = address, .metrics = metrics, .stop = stop};

int main(int argc, char **argv)
{
	/* static: the loop, which is not freed, stays reachable for a leak checker */
	static struct metad_program p = {
		.daemon = {.program = &program, .options = &p.options.common},
		.options.common.usage = &metad_usage,
	};

	return daemon_main(&p.daemon, argc, argv);
}
