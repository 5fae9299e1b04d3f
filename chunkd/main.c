/* SPDX-License-Identifier: Apache-2.0 */
/* craton-chunkd: one chunk server on a real loop, or --format or --rebuild-index of one disk. */
#include <stdio.h>
#include "chunkd/disk.h"
#include "chunkd/options.h"
#include "chunkd/rebuild.h"
#include "common/base/check.h"
#include "common/daemon/daemon_main.h"

struct chunkd_program {
	struct daemon daemon;
	struct chunkd_program_options options;
	struct chunkd *server;
	bool rebuilt;
};

static struct chunkd_program *program_of(struct daemon *d)
{
	return CONTAINER_OF(d, struct chunkd_program, daemon);
}

static int parse(struct daemon *d, int argc, char **argv, struct err *err)
{
	return chunkd_options_parse(d->io, &program_of(d)->options, argc, argv, err);
}

static void fini(struct daemon *d)
{
	chunkd_options_fini(&program_of(d)->options);
}

static void on_fatal(void *ctx, int code, const char *text)
{
	struct daemon *d = ctx;

	log_line(&d->log, LOG_ERROR, "fatal", "error=%s text=\"%s\"", err_name(code), text);
	daemon_main_fatal(d, code, text);
}

static int start(struct daemon *d, struct err *err)
{
	struct chunkd_program *p = program_of(d);
	struct chunkd_options *o = &p->options.server;
	int rc;

	o->log = &d->log;
	o->on_fatal = on_fatal;
	o->ctx = d;
	o->max_conns = d->max_conns;
	rc = chunkd_start(d->io, o, &p->server, err);
	if (rc == 0)
		snprintf(d->ready, sizeof(d->ready), " disks=%zu", chunkd_disk_count(p->server));
	return rc;
}

static struct io_addr address(struct daemon *d)
{
	return chunkd_addr(program_of(d)->server);
}

static struct io_addr metrics(struct daemon *d)
{
	return chunkd_metrics_addr(program_of(d)->server);
}

static void stop(struct daemon *d, void (*stopped)(void *ctx), void *ctx)
{
	chunkd_stop(program_of(d)->server, stopped, ctx);
}

static void waits_for(struct daemon *d, char *text, size_t text_bytes)
{
	chunkd_waits_for(program_of(d)->server, text, text_bytes);
}

/* ---- --rebuild-index ---- */

static void on_rebuilt(void *ctx, int code, const char *text)
{
	struct chunkd_program *p = ctx;

	if (code < 0)
		fprintf(stderr, "%s: %s\n", chunkd_usage.program, text);
	else
		printf("%s\n", text);
	p->daemon.exit_code = code < 0;
	p->rebuilt = true;
	io_stop(p->daemon.io);
}

static int rebuild(struct chunkd_program *p, struct err *err)
{
	struct io *io = p->daemon.io;
	int rc = 0;

	rebuild_start(io,
		&(struct rebuild_options){.dir = p->options.disks.items[0],
			.backend = &kv_lmdb,
			.log_segment_bytes = p->options.log_segment,
			.done = on_rebuilt,
			.ctx = p});
	while (rc == 0 && !p->rebuilt)
		rc = io_run(io);
	return rc < 0 ? err_set(err, rc, "the event loop failed: %s", err_text(rc)) : 0;
}

/* ---- --format ---- */

static int format(struct chunkd_program *p, struct err *err)
{
	struct log log = {.min_level = LOG_ERROR, .write = log_write_stderr, .name = chunkd_usage.program};
	const char *dir = p->options.disks.items[0];
	struct format_superblock sb;
	char uuid[UUID_TEXT_BYTES];
	int rc = disk_format(p->daemon.io,
		&(struct disk_options){.dir = dir,
			.cluster = p->options.common.cluster_uuid,
			.capacity_bytes = p->options.capacity,
			.segment_bytes = p->options.segment,
			.log = &log},
		&sb, err);

	if (rc < 0)
		return rc;
	uuid_format(&sb.disk_uuid, uuid);
	printf("%s is disk %s of cluster %s: serve it with --disk %s\n", dir, uuid, p->options.common.cluster, dir);
	return 0;
}

static int run(struct daemon *d, struct err *err)
{
	struct chunkd_program *p = program_of(d);

	if (p->options.format)
		return format(p, err);
	return p->options.rebuild_index ? rebuild(p, err) : daemon_main_serve(d, err);
}

static const struct daemon_program program = {
	.parse = parse,
	.fini = fini,
	.run = run,
	.start = start,
	.address = address,
	.metrics = metrics,
	.stop = stop,
	.waits_for = waits_for,
};

int main(int argc, char **argv)
{
	/* static: the loop, which is not freed, stays reachable for a leak checker */
	static struct chunkd_program p = {
		.daemon = {.program = &program, .options = &p.options.common},
		.options.common.usage = &chunkd_usage,
	};

	return daemon_main(&p.daemon, argc, argv);
}
