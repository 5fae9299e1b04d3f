/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks: entries are never removed (disk and server ids are never reused, LIMIT_DISKS bounds them). A server that comes back under
 * another address gets a new peer; the calls of the old one fail and their owners try again.
 */
#include "client/disks.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/rpc/methods.h"

#define AVOID_MIN_NS (250ull * 1000 * 1000)
#define AVOID_MAX_NS (1ull * 1000 * 1000 * 1000)
#define CHECK_EVERY_NS (1ull * 1000 * 1000 * 1000)
#define PROBE_TIMEOUT_NS (3ull * 1000 * 1000 * 1000)

void disks_init(struct disks *d, struct io *io, const struct rpc_identity *self, const struct rpc_transform *transform)
{
	*d = (struct disks){.io = io, .self = *self, .transform = transform};
	map_init(&d->disks);
	map_init(&d->servers);
}

static void something_ended(struct disks *d)
{
	CHECK(d->closing > 0);
	if (--d->closing == 0 && d->closed_asked)
		d->closed(d->ctx);
}

static void peer_closed(void *ctx)
{
	something_ended(ctx);
}

static void close_peer(struct disks *d, struct disks_server *s)
{
	struct rpc_peer *peer = s->peer;

	if (!peer)
		return;
	s->peer = NULL;
	d->closing++;
	rpc_peer_close(peer, peer_closed, d);
}

void disks_close(struct disks *d, void (*closed)(void *ctx), void *ctx)
{
	size_t pos = 0;
	uint64_t key;
	void *server;

	d->closed_asked = true;
	d->closed = closed;
	d->ctx = ctx;
	d->closing++;
	while (map_next(&d->servers, &pos, &key, &server)) {
		struct disks_server *s = server;

		if (io_pending(&s->timer))
			io_cancel(d->io, &s->timer);
		close_peer(d, s); /* ends the probe, too */
	}
	something_ended(d);
}

static void free_values(struct map *m)
{
	size_t pos = 0;
	uint64_t key;
	void *value;

	while (map_next(m, &pos, &key, &value))
		mem_free(value);
	map_fini(m);
}

void disks_fini(struct disks *d)
{
	free_values(&d->disks);
	free_values(&d->servers);
}

static void set_suspect(struct disks_server *s, bool suspect)
{
	if (s->suspect == suspect)
		return;
	s->suspect = suspect;
	s->suspect_ns = s->disks->changed_ns = io_now_ns(s->disks->io);
}

static struct disks_server *learn_server(struct disks *d, const Craton__Disk *in, const struct io_addr *addr)
{
	struct disks_server *s = map_get(&d->servers, in->server);
	char text[IO_ADDR_TEXT_BYTES];

	if (!s) {
		s = MEM_NEW(struct disks_server);
		s->id = in->server;
		s->disks = d;
		map_put(&d->servers, s->id, s);
	} else if (s->addr.port != addr->port || s->addr.family != addr->family ||
		memcmp(s->addr.ip, addr->ip, sizeof(addr->ip)) != 0) {
		close_peer(d, s);
		s->failures = 0;
		set_suspect(s, false);
	}
	s->addr = *addr;
	snprintf(s->name, sizeof(s->name), "%s",
		in->server_name && *in->server_name ? in->server_name : io_addr_format(addr, text));
	return s;
}

/* What was seen here counts more than what another client says. */
static void learn_pace(struct disks *d, struct disks_disk *disk, bool slow)
{
	uint64_t now_ns = io_now_ns(d->io);
	bool avoided = pace_avoided(&disk->pace, now_ns);

	if (!slow || disk->pace.well_in_row >= PACE_WELL)
		return;
	SOMETIMES(disks_slow_heard);
	disk->pace.hint_until_ns = now_ns + PACE_HINT_NS;
	if (!avoided)
		d->changed_ns = now_ns;
}

void disks_learn(struct disks *d, Craton__Disk *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const Craton__Disk *in = list[i];
		struct disks_disk *disk = map_get(&d->disks, in->disk);
		struct io_addr addr;

		if (in->disk == 0 || io_addr_parse(in->address ? in->address : "", &addr))
			continue;
		if (!disk) {
			if (d->disks.count >= LIMIT_DISKS)
				continue;
			disk = MEM_NEW(struct disks_disk);
			disk->id = in->disk;
			map_put(&d->disks, disk->id, disk);
		}
		disk->domain = in->domain;
		disk->up = in->up;
		disk->server = learn_server(d, in, &addr);
		learn_pace(d, disk, in->slow);
	}
}

const struct disks_disk *disks_get(const struct disks *d, uint32_t disk)
{
	return map_get(&d->disks, disk);
}

static struct rpc_peer *peer_of(struct disks *d, struct disks_server *s)
{
	if (!s->peer && !d->closed_asked) {
		/* One connection: the cells of an upload arrive in the order in which they were sent. */
		struct rpc_peer_options options = {
			.addr = s->addr,
			.self = d->self,
			.conns = 1,
			.bulk = true,
			.transform = d->transform,
		};

		s->peer = rpc_peer_new(d->io, &options);
	}
	return s->peer;
}

struct rpc_peer *disks_peer(struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	return k ? peer_of(d, k->server) : NULL;
}

const char *disks_server_name(const struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	return k ? k->server->name : "?";
}

uint32_t disks_domain(const struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	/* An unknown disk is its own domain. */
	return k ? k->domain : UINT32_MAX - disk;
}

/* ---- suspects ---- */

static void watch(struct disks_server *s);

static bool is_silence(int status)
{
	return status == ERR_CONNREFUSED || status == ERR_CONNRESET || status == ERR_HOSTUNREACH ||
		status == ERR_TIMEDOUT || status == ERR_PIPE || status == ERR_CANCELED;
}

static void suspect(struct disks_server *s)
{
	set_suspect(s, true);
	watch(s);
	s->failures++;
}

static void probe_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct disks_server *s = CONTAINER_OF(call, struct disks_server, probe);
	struct disks *d = s->disks;

	(void)msg;
	(void)payload_len;
	/* Any answer is one: a server that refuses the empty request is there. */
	if (is_silence(status))
		suspect(s);
	else
		set_suspect(s, false);
	something_ended(d);
}

static void probe_start(struct disks_server *s)
{
	struct disks *d = s->disks;
	struct rpc_peer *peer = peer_of(d, s);

	if (!peer || rpc_call_active(&s->probe))
		return;
	craton__stat_request__init(&s->probe_request);
	s->probe = (struct rpc_call){
		.method = &rpc_chunkd_stat,
		.request = &s->probe_request.base,
		.deadline_ns = io_now_ns(d->io) + PROBE_TIMEOUT_NS,
		.done = probe_done,
	};
	d->closing++;
	rpc_call_start(peer, &s->probe);
}

static void timer_done(struct io_op *op)
{
	struct disks_server *s = CONTAINER_OF(op, struct disks_server, timer);
	struct disks *d = s->disks;

	if (s->suspect && op->result == 0)
		probe_start(s);
	something_ended(d);
}

static void watch(struct disks_server *s)
{
	struct disks *d = s->disks;
	uint64_t wait_ns = AVOID_MIN_NS << (s->failures < 6 ? s->failures : 6);

	if (io_pending(&s->timer) || rpc_call_active(&s->probe) || d->closed_asked)
		return;
	d->closing++;
	io_prep_timer(&s->timer, io_now_ns(d->io) + (wait_ns < AVOID_MAX_NS ? wait_ns : AVOID_MAX_NS), timer_done);
	io_submit(d->io, &s->timer);
}

void disks_failed(struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	/* Many requests fail at once when a server goes: that is one failure. */
	if (!k || k->server->suspect)
		return;
	suspect(k->server);
}

void disks_check(struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);
	struct disks_server *s = k ? k->server : NULL;
	uint64_t now_ns = io_now_ns(d->io);

	if (!s || s->suspect || io_pending(&s->timer) || rpc_call_active(&s->probe) ||
		(s->checked_ns && now_ns - s->checked_ns < CHECK_EVERY_NS))
		return;
	s->checked_ns = now_ns;
	d->checked++;
	probe_start(s);
}

void disks_request_failed(struct disks *d, uint32_t disk, int status, uint64_t waited_ns)
{
	if (status == ERR_TIMEDOUT && waited_ns < PROBE_TIMEOUT_NS)
		disks_check(d, disk);
	else if (disks_is_failure(status))
		disks_failed(d, disk);
}

void disks_succeeded(struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	if (k) {
		k->server->failures = 0;
		set_suspect(k->server, false);
	}
}

bool disks_suspect(const struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	return !k || k->server->suspect;
}

uint64_t disks_suspect_ns(const struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	return k && k->server->suspect ? io_now_ns(d->io) - k->server->suspect_ns : 0;
}

bool disks_avoided(const struct disks *d, uint32_t disk)
{
	return disks_suspect(d, disk) || pace_avoided(&disks_get(d, disk)->pace, io_now_ns(d->io));
}

bool disks_ignored(const struct disks *d, uint32_t disk)
{
	const struct disks_disk *k = disks_get(d, disk);

	return k && k->server->id <= d->ignore_servers;
}

/* ---- slow disks ---- */

void disks_note(struct disks *d, uint32_t disk, uint64_t took_ns, uint64_t median_ns)
{
	struct disks_disk *k = map_get(&d->disks, disk);
	uint64_t now_ns = io_now_ns(d->io);
	bool before, after;

	if (!k)
		return;
	before = pace_avoided(&k->pace, now_ns);
	pace_note(&k->pace, took_ns, median_ns);
	after = pace_avoided(&k->pace, now_ns);
	if (before != after)
		d->changed_ns = now_ns;
	d->slowed += after && !before;
	if (after && !before)
		SOMETIMES(disks_slow_found);
	else if (before && !after)
		SOMETIMES(disks_slow_back);
}

bool disks_probe(struct disks *d, uint32_t disk)
{
	struct disks_disk *k = map_get(&d->disks, disk);
	uint64_t now_ns = io_now_ns(d->io);

	if (!k || k->server->suspect || !pace_avoided(&k->pace, now_ns) || !pace_probe(&k->pace, now_ns))
		return false;
	d->probed++;
	return true;
}

size_t disks_slow_list(const struct disks *d, uint32_t *out, size_t cap)
{
	size_t pos = 0, count = 0;
	uint64_t key;
	void *value;

	while (count < cap && map_next(&d->disks, &pos, &key, &value))
		if (((const struct disks_disk *)value)->pace.slow)
			out[count++] = (uint32_t)key;
	return count;
}

/* ---- disks without room ---- */

void disks_had_no_room(struct disks *d, uint32_t disk, uint64_t chunk_bytes)
{
	struct disks_disk *k = map_get(&d->disks, disk);
	uint64_t now_ns = io_now_ns(d->io);

	if (!k)
		return;
	if (k->no_room_until_ns <= now_ns || chunk_bytes < k->no_room_bytes) {
		k->no_room_bytes = chunk_bytes;
		d->changed_ns = now_ns;
	}
	k->no_room_until_ns = now_ns + DISKS_NO_ROOM_NS;
}

bool disks_without_room(const struct disks *d, uint32_t disk, uint64_t chunk_bytes)
{
	const struct disks_disk *k = disks_get(d, disk);

	return k && k->no_room_until_ns > io_now_ns(d->io) && chunk_bytes >= k->no_room_bytes;
}

size_t disks_avoid_list(const struct disks *d, uint64_t chunk_bytes, uint32_t *out, size_t cap)
{
	size_t pos = 0, count = 0;
	uint64_t key;
	void *value;

	while (count < cap && map_next(&d->disks, &pos, &key, &value))
		if (disks_avoided(d, (uint32_t)key) || disks_without_room(d, (uint32_t)key, chunk_bytes))
			out[count++] = (uint32_t)key;
	return count;
}

bool disks_is_failure(int status)
{
	switch (status) {
	case ERR_CONNREFUSED:
	case ERR_CONNRESET:
	case ERR_HOSTUNREACH:
	case ERR_TIMEDOUT:
	case ERR_PIPE:
	case ERR_IO:
	case ERR_DISK_FAILED:
	case ERR_STOPPED:
	case ERR_GENERATION:
	case ERR_WRONG_CLUSTER:
	case ERR_PROTO:
		return true;
	default:
		return false;
	}
}
