/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon put together: disks, a pool of buffers, a server, the registration with metad.
 *
 * Stopping, in this order, each step when the one before has ended: the exchanges about drops and inventory; goodbye to metad; /metrics; the server
 * (requests under way are answered); repairs; gets still waiting for the disk; of each disk its probe, and then the disk (open uploads end, the
 * index is synced); memory. What a disk was given cannot be taken back: of one that hangs all this waits, behind the goodbye, until the owner ends the
 * process.
 */
#include "chunkd/chunkd.h"

#include <stdio.h>
#include <string.h>
#include "chunkd/daemon.h"
#include "chunkd/repair.h"
#include "chunkd/drops.h"
#include "chunkd/probe.h"
#include "chunkd/inventory.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum { PATH_ROOM = 4096 + 64 };

#define MEMORY_BYTES ((uint64_t)192 << 20)

static char *copy_string(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static void copy_options(struct chunkd *ch, const struct chunkd_options *o)
{
	char **dirs = mem_array(o->disk_count ? o->disk_count : 1, sizeof(*dirs));

	ch->o = *o;
	ch->o.state_dir = copy_string(o->state_dir);
	ch->o.name = copy_string(o->name);
	ch->o.domain = copy_string(o->domain);
	for (size_t i = 0; i < o->disk_count; i++)
		dirs[i] = mem_strdup(o->disk_dirs[i]);
	ch->o.disk_dirs = (const char *const *)dirs;
	ch->log = *o->log;
	ch->log.name = ch->o.name;
	ch->o.log = &ch->log;
}

static void free_chunkd(struct chunkd *ch)
{
	daemon_handlers_fini(ch);
	bufpool_free(ch->pool);
	io_way_fini(&ch->asks);
	way_fini(&ch->way);
	for (size_t i = 0; i < ch->o.disk_count; i++)
		mem_free((void *)ch->o.disk_dirs[i]);
	mem_free((void *)ch->o.disk_dirs);
	mem_free((void *)ch->o.state_dir);
	mem_free((void *)ch->o.name);
	mem_free((void *)ch->o.domain);
	mem_free(ch->disks);
	mem_free(ch->bad);
	mem_free(ch);
}

/* ---- starting ---- */

/* The server's uuid: made at the first start, the same ever after. */
static int load_server_uuid(struct chunkd *ch, struct err *err)
{
	char path[PATH_ROOM], line[UUID_TEXT_BYTES + 1], *text;
	size_t len;
	int rc;

	snprintf(path, sizeof(path), "%s/server", ch->o.state_dir);
	rc = io_read_file(ch->io, path, sizeof(line), &text, &len);
	if (rc == 0) {
		if (len && text[len - 1] == '\n')
			text[len - 1] = 0;
		rc = uuid_parse(text, &ch->server_uuid);
		mem_free(text);
		if (rc < 0)
			err_set(err, ERR_FORMAT,
				"%s does not hold a uuid: restore it, or remove it to become a new server", path);
		return rc;
	}
	if (rc != ERR_NOENT)
		return err_set(err, rc, "cannot read %s: %s", path, err_text(rc));
	io_random(ch->io, ch->server_uuid.bytes, sizeof(ch->server_uuid.bytes));
	uuid_format(&ch->server_uuid, line);
	strcat(line, "\n");
	rc = io_write_file(ch->io, path, line, strlen(line), 0600);
	if (rc == ERR_NOENT || rc == ERR_NOTDIR)
		return err_set(err, rc, "the state directory %s does not exist: create it, or name another with --dir",
			ch->o.state_dir);
	return rc < 0 ? err_set(err, rc, "cannot write %s: %s", path, err_text(rc)) : 0;
}

static size_t path_len(const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	return len;
}

/* Before any of them is opened: opening formats an empty one. (Two names of one directory meet at its lock.) */
static int check_disks(const struct chunkd_options *o, struct err *err)
{
	if (o->disk_count == 0 || o->disk_count > LIMIT_DISKS_PER_SERVER)
		return err_set(err, ERR_INVAL, "a chunk server has 1 to %d disks: name them with --disk",
			LIMIT_DISKS_PER_SERVER);
	for (size_t i = 1; i < o->disk_count; i++)
		for (size_t j = 0; j < i; j++) {
			size_t len = path_len(o->disk_dirs[i]);

			if (len == path_len(o->disk_dirs[j]) && !memcmp(o->disk_dirs[i], o->disk_dirs[j], len))
				return err_set(err, ERR_INVAL, "--disk %s is given twice: name each disk once",
					o->disk_dirs[i]);
		}
	return 0;
}

static void set_printable(char out[DAEMON_TROUBLE_BYTES], const char *text)
{
	size_t i = 0;

	for (; text[i] && i < DAEMON_TROUBLE_BYTES - 1; i++)
		out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	out[i] = 0;
}

static void note_bad(struct chunkd *ch, const char *dir, const struct err *why)
{
	struct bad_disk *bad = &ch->bad[ch->bad_count++];

	set_printable(bad->dir, dir);
	set_printable(bad->text, why->text);
	bad->code = why->code;
}

static void log_bad(struct chunkd *ch, size_t from)
{
	for (size_t i = from; i < ch->bad_count; i++)
		log_line(&ch->log, LOG_ERROR, "disk-unusable", "dir=%s error=%s text=\"%s\"", ch->bad[i].dir,
			err_name(ch->bad[i].code), ch->bad[i].text);
}

/* Those that cannot be opened are left out; if none is left, `err` has what the first one said. */
static int open_disks(struct chunkd *ch, struct err *err)
{
	ch->disks = mem_array(ch->o.disk_count, sizeof(*ch->disks));
	ch->bad = mem_array(ch->o.disk_count, sizeof(*ch->bad));
	for (size_t i = 0; i < ch->o.disk_count; i++) {
		struct err why = {0};
		struct disk_options o = {
			.dir = ch->o.disk_dirs[i],
			.cluster = ch->o.cluster,
			.capacity_bytes = ch->o.capacity_bytes,
			.segment_bytes = ch->o.segment_bytes,
			.no_format = ch->o.no_format,
			.backend = ch->o.backend,
			.log_segment_bytes = ch->o.log_segment_bytes,
			.pool = ch->pool,
			.way = &ch->way,
			.log = &ch->log,
		};

		if (disk_open(ch->io, &o, &ch->disks[ch->disk_count], &why) == 0) {
			ch->disk_count++;
			continue;
		}
		if (ch->bad_count == 0)
			*err = why;
		note_bad(ch, ch->o.disk_dirs[i], &why);
	}
	/* What the first one said is all that is said of it when the daemon ends with that. */
	log_bad(ch, ch->disk_count ? 0 : 1);
	return ch->disk_count ? 0 : err->code;
}

static int open_server(struct chunkd *ch, struct err *err)
{
	struct rpc_server_options o = {
		.listen = ch->o.listen,
		.self = {.cluster = ch->o.cluster, .role = RPC_ROLE_CHUNKD},
		.handlers = daemon_handlers,
		.ctx = ch,
		.transform = ch->o.transform,
		.log = &ch->log,
		.refused = &ch->refused,
		.max_conns = ch->o.max_conns,
		.bulk = true,
	};

	snprintf(o.self.name, sizeof(o.self.name), "%s", ch->o.name);
	return rpc_server_open(ch->io, &o, &ch->server, err);
}

static void ignore_stopped(void *ctx)
{
	(void)ctx;
}

/* Small chunks are what waits for bulk; reads are not counted, as those of bulk ask for as much of a processor. */
static void count_for_way(void *ctx, struct io_way_sample *sample)
{
	struct chunkd *ch = ctx;

	for (size_t i = 0; i < ch->disk_count; i++) {
		struct index_stats stats = index_stats(ch->disks[i]->index);

		sample->requests += stats.beside;
		sample->entries += stats.records;
		sample->entries_ns += stats.records_ns;
	}
}

static void way_stopped(void *ctx);

int chunkd_start(struct io *io, const struct chunkd_options *o, struct chunkd **ret_chunkd, struct err *err)
{
	struct chunkd *ch;
	int rc = check_disks(o, err);

	if (rc < 0)
		return rc;
	ch = MEM_NEW(struct chunkd);
	ch->io = io;
	copy_options(ch, o);
	list_init(&ch->free_gets);
	ch->pool = bufpool_new(io, o->memory_bytes ? o->memory_bytes : MEMORY_BYTES);
	way_init(&ch->way, io, o->way_path, o->way_bytes_per_s, o->memory_bytes ? o->memory_bytes : MEMORY_BYTES, &ch->log);
	ch->o.way_path = NULL;
	rc = load_server_uuid(ch, err);
	if (rc == 0)
		rc = open_disks(ch, err);
	if (rc == 0)
		rc = open_server(ch, err);
	if (rc == 0)
		rc = daemon_metrics_open(ch, err);
	if (rc < 0) {
		/* Disks that are open close as the loop runs on, if it does. */
		chunkd_stop(ch, ignore_stopped, NULL);
		return rc;
	}
	ch->repairs = repairs_new(ch);
	ch->drops = drops_new(ch);
	ch->inventory = inventory_new(ch);
	ch->probes = probes_new(ch);
	ch->registrar = registrar_new(ch);
	io_way_start(&ch->asks, io,
		&(struct io_way_options){.path = ch->way.path, .count = count_for_way, .stopped = way_stopped, .log = &ch->log, .ctx = ch});
	*ret_chunkd = ch;
	return 0;
}

struct io_addr chunkd_addr(const struct chunkd *ch)
{
	return rpc_server_addr(ch->server);
}

bool chunkd_is_registered(const struct chunkd *ch)
{
	return ch->registered;
}

size_t chunkd_disk_count(const struct chunkd *ch)
{
	return ch->disk_count;
}

/* ---- stopping ---- */

static void disk_closed(void *ctx)
{
	struct chunkd *ch = ctx;
	void (*stopped)(void *ctx) = ch->stopped;
	void *stopped_ctx = ch->stopped_ctx;

	if (--ch->disks_open)
		return;
	free_chunkd(ch);
	stopped(stopped_ctx);
}

static void disk_quiet(void *ctx, struct disk *disk)
{
	struct chunkd *ch = ctx;

	for (size_t i = 0; i < ch->disk_count; i++)
		if (ch->disks[i] == disk)
			ch->disks[i] = NULL;
	disk_close(disk, disk_closed, ch);
}

/* Each disk by itself: one that hangs keeps no other from a clean end. */
void daemon_idle(struct chunkd *ch)
{
	if (!ch->stopping || !ch->server_closed || ch->gets)
		return;
	ch->disks_open = ch->disk_count + 1;
	if (ch->probes)
		probes_close(ch->probes, disk_quiet, ch);
	else
		for (size_t i = 0; i < ch->disk_count; i++)
			disk_quiet(ch, ch->disks[i]);
	disk_closed(ch);
}

static void repairs_closed(void *ctx)
{
	struct chunkd *ch = ctx;

	ch->repairs = NULL;
	ch->server_closed = true;
	daemon_idle(ch);
}

static void server_closed(void *ctx)
{
	struct chunkd *ch = ctx;

	if (ch->repairs)
		repairs_close(ch->repairs, repairs_closed, ch);
	else
		repairs_closed(ch);
}

static void metrics_closed(void *ctx)
{
	struct chunkd *ch = ctx;

	if (ch->server)
		rpc_server_close(ch->server, server_closed, ch);
	else
		server_closed(ch);
}

static void registrar_closed(void *ctx)
{
	daemon_metrics_close(ctx, metrics_closed);
}

static void inventory_closed(void *ctx)
{
	struct chunkd *ch = ctx;

	registrar_close(ch->registrar, registrar_closed, ch);
}

static void drops_closed(void *ctx)
{
	struct chunkd *ch = ctx;

	inventory_close(ch->inventory, inventory_closed, ch);
}

void chunkd_waits_for(const struct chunkd *ch, char *text, size_t text_bytes)
{
	text[0] = 0;
	for (size_t i = 0; i < ch->disk_count; i++) {
		const struct disk *d = ch->disks[i];

		if (!d || (sched_depth(&d->sched) == 0 && !d->identity.busy && !d->drops && !(ch->probes && probes_writing(ch->probes, d))))
			continue;
		snprintf(text, text_bytes, "%s does not end what it was given", d->dir);
		return;
	}
	if (ch->disks_open)
		snprintf(text, text_bytes, "%zu disks are not closed yet", ch->disks_open);
}

static void way_stopped(void *ctx)
{
	struct chunkd *ch = ctx;

	if (ch->registrar)
		drops_close(ch->drops, drops_closed, ch);
	else
		registrar_closed(ch);
}

void chunkd_stop(struct chunkd *ch, void (*stopped)(void *ctx), void *ctx)
{
	CHECK(!ch->stopping);
	ch->stopping = true;
	ch->stopped = stopped;
	ch->stopped_ctx = ctx;
	io_way_stop(&ch->asks);
	if (io_way_idle(&ch->asks))
		way_stopped(ch);
}
