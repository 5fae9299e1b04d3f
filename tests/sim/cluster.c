// SPDX-License-Identifier: Apache-2.0
/*
 * cluster: see the header. Geometry and times are small, so that a few hundred operations meet many blocks, log segments and time-outs:
 * all of it is given through the options of daemons and client, which know nothing of a simulation.
 */
#include "tests/sim/cluster.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/kv.h"
#include "metad/core.h"

enum { METAD_PORT = 7000, CHUNKD_PORT = 7100, OLDER_STARTS = 3, TABLE_SEEDS = 8 };

#define MIB ((uint64_t)1 << 20)
#define DISK_BYTES (1024 * MIB) /* sparse: what is written counts */
#define LOG_SEGMENT_BYTES MIB
#define LOG_KEEP_BYTES (MIB / 8)
#define DATA_SEGMENT_BYTES (8 * MIB)
#define CAPACITY_BYTES (512 * MIB)
#define CHUNKD_MEMORY_BYTES (64 * MIB)
#define CLIENT_BUFFER_BYTES (64 * MIB)
#define CLIENT_TIMEOUT_NS (6 * CLUSTER_S)
#define DOWN_AFTER_MS 2500

/* ---- notes ---- */

static void write_event(void *ctx, const char *line)
{
	fprintf(((struct cluster *)ctx)->options.events, "%s\n", line);
}

void cluster_note(struct cluster *c, const char *fmt, ...)
{
	char *line = c->ring[c->notes++ % CLUSTER_RING];
	uint64_t now_us = sim_now_ns(c->sim) / 1000;
	va_list ap;
	int n;

	n = snprintf(line, CLUSTER_NOTE_BYTES, "%llu.%06llu ", (unsigned long long)(now_us / 1000000),
		(unsigned long long)(now_us % 1000000));
	va_start(ap, fmt);
	vsnprintf(line + n, (size_t)(CLUSTER_NOTE_BYTES - n), fmt, ap);
	va_end(ap);
	sim_note(c->sim, "%s", line + n);
	if (c->options.transcript)
		fprintf(c->options.transcript, "%s\n", line);
}

static void write_log(void *ctx, enum log_level level, const char *line)
{
	(void)level;
	cluster_note(ctx, "%s", line);
}

void cluster_fail(struct cluster *c, const char *fmt, ...)
{
	va_list ap;

	if (c->failed)
		return;
	c->failed = true;
	va_start(ap, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	cluster_note(c, "FAILED: %s", c->text);
}

void cluster_print_ring(const struct cluster *c, int fd)
{
	uint64_t count = c->notes < CLUSTER_RING ? c->notes : CLUSTER_RING;

	for (uint64_t i = c->notes - count; i < c->notes; i++) {
		const char *line = c->ring[i % CLUSTER_RING];

		if (write(fd, "  ", 2) < 0 || write(fd, line, strlen(line)) < 0 || write(fd, "\n", 1) < 0)
			return;
	}
}

/* ---- the three kinds of node ---- */

static void on_fatal(void *ctx, int code, const char *text)
{
	struct cluster_node *n = ctx;

	cluster_note(n->cluster, "fatal %s %s %s", n->name, err_name(code), text);
	n->fatal = code;
	if (n->cluster->options.strict)
		cluster_fail(n->cluster, "%s gave up without a fault: %s: %s", n->name, err_name(code), text);
}

static unsigned founders(const struct cluster *c)
{
	return c->options.metads ? c->options.metads : 1;
}

/* What configurations name: where others are, the group says. */
static struct rpc_addrs metads_of(const struct cluster *c)
{
	struct rpc_addrs addrs = {.count = founders(c)};

	for (unsigned i = 0; i < addrs.count; i++)
		addrs.addrs[i] = cluster_metad_addr(c, cluster_metad_node(c, i));
	return addrs;
}

static int start_metad(struct cluster_node *n, struct err *err)
{
	struct cluster *c = n->cluster;
	struct metad_options o = {
		.dir = n->dir,
		.name = n->name,
		.listen = sim_host_addr(n->io, METAD_PORT),
		.cluster = c->id,
		.default_policy = c->options.policy ? c->options.policy : "rs-4-2",
		.cell_bytes = CLUSTER_CELL_BYTES,
		.chunk_bytes = CLUSTER_CHUNK_BYTES,
		.backend = &kv_mem,
		.log_segment_bytes = LOG_SEGMENT_BYTES,
		/* Who joins or was away for long gets a snapshot, else entries. */
		.log_keep_bytes = c->options.seed % 2 ? LOG_KEEP_BYTES : 0,
		.down_after_ms = DOWN_AFTER_MS,
		.supports = n->starts < n->older_starts ? STATE_CLUSTER_VERSION - 1 : STATE_CLUSTER_VERSION,
		.table_unread = c->options.seed % TABLE_SEEDS != TABLE_SEEDS - 1,
		.transform = c->options.transform ? &rpc_transform_xor : NULL,
		.log = &n->log,
		.on_fatal = on_fatal,
		.ctx = n,
	};
	int rc;

	if (c->options.metads)
		o.group = (struct metad_group){.id = n->replica,
			.members = metads_of(c),
			.found = n->replica <= founders(c) && !n->founded,
			.join = n->replica > founders(c)};
	memcpy(o.secret, c->secret, sizeof(o.secret));
	rc = metad_start(n->io, &o, &n->metad, err);
	if (rc == ERR_EXIST && o.group.found) { /* from now on it is there, or it was lost */
		n->founded = true;
		o.group.found = false;
		rc = metad_start(n->io, &o, &n->metad, err);
	}
	if (rc == ERR_NOENT && n->founded)
		cluster_fail(c, "%s has lost its replica: %s", n->name, err->text);
	return rc;
}

static const char *const disk_paths[CLUSTER_DISKS_MAX] = {"/disk-1", "/disk-2"};

const char *cluster_disk_path(unsigned disk)
{
	CHECK(disk < CLUSTER_DISKS_MAX);
	return disk_paths[disk];
}

static int start_chunkd(struct cluster_node *n, struct err *err)
{
	struct cluster *c = n->cluster;
	unsigned domain = c->options.domains ? (n->number - CLUSTER_CHUNKD) % c->options.domains : n->number;
	char domain_name[16];
	struct chunkd_options o = {
		.state_dir = "/state",
		.name = n->name,
		.domain = domain_name,
		.disk_dirs = disk_paths,
		.disk_count = c->options.disks[n->number - CLUSTER_CHUNKD],
		.capacity_bytes = CAPACITY_BYTES,
		.segment_bytes = DATA_SEGMENT_BYTES,
		.listen = sim_host_addr(n->io, CHUNKD_PORT),
		.metads = metads_of(c),
		.cluster = c->id,
		.backend = &kv_mem,
		.log_segment_bytes = LOG_SEGMENT_BYTES,
		.memory_bytes = CHUNKD_MEMORY_BYTES,
		.transform = c->options.transform ? &rpc_transform_xor : NULL,
		.log = &n->log,
		.on_fatal = on_fatal,
		.ctx = n,
	};

	snprintf(domain_name, sizeof(domain_name), "rack-%u", domain);
	memcpy(o.secret, c->secret, sizeof(o.secret));
	return chunkd_start(n->io, &o, &n->chunkd, err);
}

static void start_client(struct cluster_node *n)
{
	struct cluster *c = n->cluster;
	struct client_options o = {
		.metads = metads_of(c),
		.cluster = c->id,
		.name = n->name,
		.timeout_ns = CLIENT_TIMEOUT_NS,
		.buffer_bytes = CLIENT_BUFFER_BYTES,
		.transform = c->options.transform ? &rpc_transform_xor : NULL,
		/* None in half of the runs; so small that most files have blocks, or as large as may be. */
		.tail_bytes = c->options.seed % 2 ? 0 : c->options.seed % 4 ? 2000 : LIMIT_TAIL_BYTES,
	};

	n->client = client_new(n->io, &o);
}

/* ---- life ---- */

struct start {
	struct cluster_node *n;
	struct err *err;
	int code;
};

static void start_run(void *ctx)
{
	struct start *s = ctx;

	if (cluster_is_metad(s->n->cluster, s->n->number))
		s->code = start_metad(s->n, s->err);
	else if (cluster_is_client(s->n->cluster, s->n->number))
		start_client(s->n);
	else
		s->code = start_chunkd(s->n, s->err);
}

/* 0 also if the host was stopped on the way. */
static int start_node(struct cluster *c, unsigned node, struct err *err)
{
	struct cluster_node *n = &c->nodes[node];
	struct start start = {n, err, 0};

	CHECK(n->state == CLUSTER_CRASHED || n->state == CLUSTER_STOPPED);
	if (n->state == CLUSTER_CRASHED)
		sim_host_restart(n->io);
	cluster_note(c, "start %s", n->name);
	n->fatal = 0;
	if (!sim_try(c->sim, start_run, &start)) {
		n->state = CLUSTER_RUNNING;
		cluster_crash(c, node);
		return 0;
	}
	if (start.code < 0) {
		n->state = CLUSTER_CRASHED;
		sim_host_crash(n->io);
		return start.code;
	}
	if (n->metad)
		known_start(n);
	n->starts++;
	c->starts++;
	n->state = CLUSTER_RUNNING;
	return 0;
}

void cluster_start(struct cluster *c, unsigned node)
{
	struct err err = {0};
	int code = start_node(c, node, &err);

	if (code < 0)
		cluster_fail(c, "%s does not start: %s: %s", c->nodes[node].name, err_name(code), err.text);
}

bool cluster_try_start(struct cluster *c, unsigned node)
{
	struct err err = {0};
	int code = start_node(c, node, &err);

	if (code == 0)
		return true;
	cluster_note(c, "start of %s failed: %s", c->nodes[node].name, err.text);
	c->start_code = code;
	snprintf(c->start_text, sizeof(c->start_text), "%s", err.text);
	if (!err.text[0])
		cluster_fail(c, "%s does not start and does not say why: %s", c->nodes[node].name, err_name(code));
	return false;
}

static void forget(struct cluster_node *n)
{
	n->metad = NULL;
	n->chunkd = NULL;
	n->client = NULL;
	n->fatal = 0;
}

void cluster_crash(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];

	CHECK(n->state != CLUSTER_CRASHED);
	cluster_note(c, "crash %s", n->name);
	if (cluster_is_metad(c, node))
		known_crash(n);
	n->state = CLUSTER_CRASHED;
	c->crashes++;
	sim_host_crash(n->io);
	forget(n);
}

static void stopped(void *ctx)
{
	struct cluster_node *n = ctx;

	cluster_note(n->cluster, "stopped %s", n->name);
	n->state = CLUSTER_STOPPED;
	forget(n);
}

void cluster_stop(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];

	CHECK(n->state == CLUSTER_RUNNING);
	cluster_note(c, "stop %s", n->name);
	n->state = CLUSTER_STOPPING;
	c->stops++;
	known_stop(n);
	if (n->metad)
		metad_stop(n->metad, stopped, n);
	else if (n->chunkd)
		chunkd_stop(n->chunkd, stopped, n);
	else
		client_close(n->client, stopped, n);
}

bool cluster_running(const struct cluster *c, unsigned node)
{
	return c->nodes[node].state == CLUSTER_RUNNING;
}

bool cluster_all_stopped(const struct cluster *c)
{
	for (unsigned i = 0; i < c->node_count; i++)
		if (c->nodes[i].state == CLUSTER_RUNNING || c->nodes[i].state == CLUSTER_STOPPING)
			return false;
	return true;
}

bool cluster_all_registered(const struct cluster *c)
{
	for (unsigned i = 0; i < c->node_count; i++)
		if (!cluster_running(c, i) || (c->nodes[i].chunkd && !chunkd_is_registered(c->nodes[i].chunkd)))
			return false;
	return true;
}

bool cluster_is_client(const struct cluster *c, unsigned node)
{
	return node >= c->first_client && node < c->client_end;
}

bool cluster_is_metad(const struct cluster *c, unsigned node)
{
	return node == CLUSTER_METAD || node >= c->client_end;
}

unsigned cluster_metads(const struct cluster *c)
{
	return c->node_count - c->client_end + 1;
}

unsigned cluster_metad_node(const struct cluster *c, unsigned i)
{
	return i ? c->client_end + i - 1 : CLUSTER_METAD;
}

struct io_addr cluster_metad_addr(const struct cluster *c, unsigned node)
{
	return sim_host_addr(c->nodes[node].io, METAD_PORT);
}

struct metad *cluster_metad(struct cluster *c)
{
	struct metad *found = NULL;

	for (unsigned i = 0; i < cluster_metads(c); i++) {
		unsigned node = cluster_metad_node(c, i);
		struct metad *md = cluster_running(c, node) ? c->nodes[node].metad : NULL;

		if (!md || md->failed || md->role.term < c->term)
			continue;
		/* An older leader may not know yet: whoever stands still learns nothing. And the one after it may be gone again. */
		found = md->ready ? md : md->role.term > c->term ? NULL : found;
		c->term = md->role.term;
	}
	return found;
}

bool cluster_metads_are_even(const struct cluster *c)
{
	for (unsigned i = 0; i < cluster_metads(c); i++) {
		const struct cluster_node *n = &c->nodes[cluster_metad_node(c, i)];

		if (!cluster_running(c, n->number) || !n->metad->state.kv ||
			ledger_applied(n->metad->ledger) != ledger_applied(c->nodes[CLUSTER_METAD].metad->ledger))
			return false;
	}
	return true;
}

void cluster_check_metads(struct cluster *c)
{
	uint64_t digest = known_digest(c, c->nodes[CLUSTER_METAD].metad);

	CHECK(cluster_metads_are_even(c));
	for (unsigned i = 1; i < cluster_metads(c); i++)
		if (known_digest(c, c->nodes[cluster_metad_node(c, i)].metad) != digest ||
			known_group(c->nodes[cluster_metad_node(c, i)].metad) != known_group(c->nodes[CLUSTER_METAD].metad))
			cluster_fail(c, "%s has other rows than metad-1 at index %llu", c->nodes[cluster_metad_node(c, i)].name,
				(unsigned long long)ledger_applied(c->nodes[CLUSTER_METAD].metad->ledger));
}

void cluster_client_start(struct cluster *c, unsigned node, struct client_op *op)
{
	CHECK(cluster_is_client(c, node) && cluster_running(c, node));
	c->client_ops++;
	client_start(c->nodes[node].client, op);
}

unsigned cluster_may_miss(const struct cluster *c)
{
	/* With fewer domains than chunks a server holds two of a block. */
	unsigned domains = c->options.domains ? c->options.domains : c->options.chunkds;

	return domains < 6 ? CLUSTER_M / 2 : CLUSTER_M;
}

/* ---- making ---- */

static void make_dir(struct io *io, const char *path)
{
	CHECK(io_mkdir(io, path, 0755) == 0);
	CHECK(io_sync_dir(io, "/") == 0);
}

static void give_dir(struct cluster_node *n, uint64_t replica)
{
	n->replica = replica;
	snprintf(n->dir, sizeof(n->dir), "/metad-%u-%u", (unsigned)replica, ++n->dirs);
	make_dir(n->io, n->dir);
}

static void add_node(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];

	n->cluster = c;
	n->number = node;
	if (cluster_is_metad(c, node))
		snprintf(n->name, sizeof(n->name), "metad-%u", node == CLUSTER_METAD ? 1 : node - c->client_end + 2);
	else if (cluster_is_client(c, node))
		snprintf(n->name, sizeof(n->name), "client-%u", node - c->first_client + 1);
	else
		snprintf(n->name, sizeof(n->name), "chunkd-%u", node);
	n->io = sim_host_add(c->sim, n->name, DISK_BYTES);
	n->log = (struct log){.min_level = LOG_INFO, .write = write_log, .ctx = c, .name = n->name};
	n->state = CLUSTER_STOPPED;
	if (cluster_is_metad(c, node)) {
		give_dir(n, node == CLUSTER_METAD ? 1 : node - c->client_end + 2);
	} else if (!cluster_is_client(c, node)) {
		make_dir(n->io, "/state");
		for (unsigned i = 0; i < c->options.disks[node - CLUSTER_CHUNKD]; i++)
			make_dir(n->io, disk_paths[i]);
	}
}

static void hear_sync(void *ctx, struct io *io, enum sim_sync kind, const char *path)
{
	struct cluster *c = ctx;

	for (unsigned i = 0; i < c->node_count; i++)
		if (c->nodes[i].io == io)
			c->options.synced(c->options.ctx, i, kind, path);
}

struct cluster *cluster_new(const struct cluster_options *options)
{
	struct cluster *c = MEM_NEW(struct cluster);
	struct sim_options o = {
		.seed = options->seed,
		.transcript = options->events ? write_event : NULL,
		.synced = options->synced ? hear_sync : NULL,
		.ctx = c,
	};
	struct rng rng;

	CHECK(options->metads <= CLUSTER_METADS_MAX && options->chunkds <= CLUSTER_CHUNKDS_MAX && options->clients <= CLUSTER_CLIENTS_MAX);
	c->options = *options;
	c->first_client = CLUSTER_CHUNKD + options->chunkds;
	c->client_end = c->first_client + options->clients;
	c->node_count = c->client_end + founders(c) - 1;
	c->sim = sim_new(&o);
	rng_init(&rng, options->seed ^ 0x636c7573746572);
	rng_bytes(&rng, c->id.bytes, sizeof(c->id.bytes));
	rng_bytes(&rng, c->secret, sizeof(c->secret));
	for (unsigned i = 0; i < c->node_count; i++)
		add_node(c, i);
	for (unsigned i = 0; i < options->metads; i++) /* a newer build comes to one after the other, amid all else */
		c->nodes[cluster_metad_node(c, i)].older_starts = (uint32_t)rng_below(&rng, OLDER_STARTS + 1);
	return c;
}

void cluster_start_again(struct cluster *c, unsigned node)
{
	for (int tries = 0; tries < 3 && !c->failed && !cluster_running(c, node); tries++)
		cluster_start(c, node);
}

unsigned cluster_add_metad(struct cluster *c)
{
	unsigned node = c->node_count;

	CHECK(c->options.metads && node < CLUSTER_NODES_MAX);
	c->node_count++;
	add_node(c, node);
	cluster_start_again(c, node);
	return node;
}

void cluster_mend_disk(struct cluster *c, unsigned node)
{
	struct io *io = c->nodes[node].io;

	sim_fault_after(io, SIM_FAULT_READ, 0, 0);
	sim_fault_after(io, SIM_FAULT_WRITE, 0, 0);
	sim_fault_after(io, SIM_FAULT_SYNC, 0, 0);
	sim_dir_fail(io, NULL, 0);
	sim_disk_full(io, false);
	sim_disk_leave(io, UINT64_MAX);
	sim_stop_at_sync(io, 0, NULL, NULL);
}

static void put_down(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];

	cluster_crash(c, node);
	sim_host_restart(n->io);
	cluster_mend_disk(c, node);
	n->state = CLUSTER_STOPPED;
}

void cluster_empty_metad(struct cluster *c, unsigned node, uint64_t replica)
{
	struct cluster_node *n = &c->nodes[node];

	put_down(c, node);
	n->known = (struct known){.looked = 0};
	n->founded = false;
	give_dir(n, replica);
	cluster_start_again(c, node);
}

void cluster_renew_metad(struct cluster *c, unsigned node)
{
	put_down(c, node);
	c->nodes[node].older_starts = 0;
	cluster_start_again(c, node);
}

void cluster_start_all(struct cluster *c)
{
	for (unsigned i = 0; i < c->node_count && !c->failed; i++)
		cluster_start_again(c, i);
}

void cluster_free(struct cluster *c)
{
	sim_free(c->sim);
	mem_free(c);
}
