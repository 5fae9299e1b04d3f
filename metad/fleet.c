/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet: what is known of servers and disks beside their rows: when they were heard, how much room they have, their
 * keys. All of it is the leader's own memory and starts empty: until its first heartbeat a disk that another process has heard is taken to
 * be empty (its chunkd refuses what does not fit), and silence is counted from the start of this process.
 */
#include "metad/core.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/rpc/auth.h"

enum {
	HEARTBEATS_UNTIL_DOWN = 10,
	HEARTBEATS_UNTIL_REPORT = 2,
	HEARTBEATS_UNTIL_AWAITED = 100, /* a disk that never reports is waited for a fiftieth of the time */
	HEARTBEAT_MIN_MS = 20,
	HEARTBEAT_MAX_MS = 1000, /* what is changed here is known everywhere soon, however long silence is borne */
};

static const uint64_t MS_NS = 1000 * 1000;

static uint64_t down_after_ms(const struct metad *md)
{
	return state_config(&md->state, CONFIG_SERVER_DOWN_AFTER);
}

uint64_t metad__heartbeat_ms(const struct metad *md)
{
	uint64_t ms = down_after_ms(md) / HEARTBEATS_UNTIL_DOWN;

	return ms < HEARTBEAT_MIN_MS ? HEARTBEAT_MIN_MS : ms > HEARTBEAT_MAX_MS ? HEARTBEAT_MAX_MS : ms;
}

const struct hmac_key *metad__receipt_key(struct metad *md, const struct state_disk *disk)
{
	struct fleet_disk *f = &md->disks[disk->id];
	uint8_t key[HMAC_KEY_BYTES];

	if (f->key_generation != disk->generation) {
		CHECK(auth_derive(md->options.secret, "receipt", slice_of(disk->salt, sizeof(disk->salt)), key) == 0);
		hmac_key_init(&f->receipt_key, key);
		f->key_generation = disk->generation;
	}
	return &f->receipt_key;
}

const struct token_key *metad__token_key(struct metad *md)
{
	const struct state_token_key *key = &md->state.meta.token_keys[0];
	uint8_t derived[TOKEN_KEY_BYTES];

	if (key[1].id && key->created_ms + METAD_TOKEN_SETTLE_MS > metad__now_ms(md))
		key++;
	if (md->token_key.id != key->id) {
		CHECK(auth_derive(md->options.secret, "token", slice_of(key->salt, sizeof(key->salt)), derived) == 0);
		hmac_key_init(&md->token_key.key, derived);
		md->token_key.id = key->id;
	}
	return &md->token_key;
}

uint64_t metad__disk_capacity(const struct metad *md, const struct state_disk *disk)
{
	const struct fleet_disk *f = &md->disks[disk->id];

	return f->beat_generation ? f->capacity_bytes : disk->capacity_bytes;
}

uint64_t metad__disk_free(const struct metad *md, const struct state_disk *disk, uint64_t chunk_bytes)
{
	const struct fleet_disk *f = &md->disks[disk->id];
	uint32_t size = 0;

	if (!f->beat_generation)
		return disk->capacity_bytes;
	/* Of a length between two sizes the smaller one's: the disk itself refuses what does not fit, and nothing that fits is lost. */
	while (size + 1 < LIMIT_ROOM_SIZES && (uint64_t)LIMIT_ROOM_BYTES << (size + 1) <= chunk_bytes)
		size++;
	return f->free_bytes[size];
}

bool metad__disk_reported(const struct metad *md, const struct state_disk *disk)
{
	return md->disks[disk->id].beat_generation == disk->generation || disk->confirmed == disk->generation;
}

bool metad__disk_reports_soon(const struct metad *md, const struct state_disk *disk)
{
	uint64_t from_ns = md->disks[disk->id].registered_ns, wait_ns = HEARTBEATS_UNTIL_REPORT * metad__heartbeat_ms(md) * MS_NS;

	return disk->state == STATE_DISK_UP && from_ns && io_now_ns(md->io) - from_ns < wait_ns && !metad__disk_reported(md, disk);
}

bool metad__reports_soon(const struct metad *md)
{
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);

		if (disk && metad__disk_reports_soon(md, disk))
			return true;
	}
	return false;
}

uint64_t metad__disk_reserve(const struct metad *md, const struct state_disk *disk)
{
	return metad__disk_capacity(md, disk) / 100 * (100 - state_config(&md->state, CONFIG_DISK_FULL));
}

uint32_t metad__disk_used_percent(const struct metad *md, const struct state_disk *disk)
{
	uint64_t capacity = metad__disk_capacity(md, disk), left = metad__disk_free(md, disk, 0);

	return capacity == 0 || left >= capacity ? 0 : (uint32_t)((double)(capacity - left) * 100 / (double)capacity);
}

void metad__heard(struct metad *md, uint32_t server, uint64_t conn_id)
{
	struct fleet_server *f = &md->servers[server];

	f->heard_ns = io_now_ns(md->io);
	f->conn_id = conn_id;
	f->beat_ms = metad__heartbeat_ms(md);
}

uint64_t metad__silent_ms(const struct metad *md, uint32_t server)
{
	uint64_t heard = md->servers[server].heard_ns, now = io_now_ns(md->io);

	if (heard < md->started_ns)
		heard = md->started_ns;
	return now > heard ? (now - heard) / MS_NS : 0;
}

bool metad__is_slow(const struct metad *md, uint32_t disk)
{
	return md->disks[disk].slow_until_ms > metad__now_ms(md);
}

enum { HALF_DAY_MS = 12 * 3600 * 1000 };

uint32_t metad__damaged(const struct metad *md, uint32_t disk)
{
	const struct fleet_damage *d = &md->disks[disk].damage;
	uint64_t half = metad__now_ms(md) / HALF_DAY_MS;

	if (half == d->half)
		return d->before + d->count;
	return half == d->half + 1 ? d->count : 0;
}

void metad__note_damaged(struct metad *md, uint32_t disk)
{
	struct fleet_damage *d = &md->disks[disk].damage;
	uint64_t half = metad__now_ms(md) / HALF_DAY_MS;

	if (half != d->half)
		*d = (struct fleet_damage){.half = half, .before = metad__damaged(md, disk)};
	d->count++;
}

void metad__note_given_up(struct metad *md, uint32_t disk)
{
	const struct state_disk *row = state_disk_at(&md->state, disk);

	md->disks[disk].given_up = true;
	log_line(md->options.log, LOG_ERROR, "disk-given-up", "disk=%u path=%s error=\"%s\"", disk, row ? row->path : "",
		row ? row->error : "");
}

void metad__fleet_registered(struct metad *md, uint32_t disk)
{
	struct fleet_disk old = md->disks[disk], *f = &md->disks[disk];
	uint64_t now_ns = io_now_ns(md->io), again_ns = HEARTBEATS_UNTIL_AWAITED * metad__heartbeat_ms(md) * MS_NS;

	*f = (struct fleet_disk){.registered_ns = now_ns};
	/* Who registers again and again and never reports is waited for once, for a while. */
	if (old.registered_ns && !old.beat_generation && now_ns - old.registered_ns < again_ns)
		f->registered_ns = old.registered_ns;
	if (old.given_up)
		return;
	f->damage = old.damage;
}

void metad__note_slow(struct metad *md, const uint32_t *disks, size_t count)
{
	uint32_t known = 0, slow = 0;

	if (count == 0)
		return;
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		known += state_disk_at(&md->state, id) != NULL;
		slow += metad__is_slow(md, id);
	}
	for (size_t i = 0; i < count && i < METAD_AVOID_DISKS; i++) {
		if (!state_disk_at(&md->state, disks[i]))
			continue;
		if (!metad__is_slow(md, disks[i]) && slow > 0 && (slow + 1) * METAD_SLOW_SHARE > known)
			continue;
		slow += !metad__is_slow(md, disks[i]);
		md->disks[disks[i]].slow_until_ms = metad__now_ms(md) + METAD_SLOW_MS;
	}
}

void metad__conn_closed(void *ctx, uint64_t conn_id)
{
	struct metad *md = metad__of(ctx);

	for (uint32_t id = 1; id < md->state.server_cap && id <= STATE_SERVERS; id++)
		if (md->servers[id].conn_id == conn_id)
			md->servers[id].conn_id = 0;
}

/* They are printable and of bounded length: the handler has looked. */
void metad__take_troubles(struct metad *md, uint32_t server, Craton__DiskTrouble *const *troubles, size_t count)
{
	struct fleet_server *f = &md->servers[server];

	if (f->trouble_count != count) {
		mem_free(f->troubles);
		f->troubles = count ? mem_array(count, sizeof(*f->troubles)) : NULL;
		f->trouble_count = (uint32_t)count;
	}
	for (size_t i = 0; i < count; i++) {
		snprintf(f->troubles[i].path, STATE_TEXT_BYTES, "%s", troubles[i]->path);
		snprintf(f->troubles[i].error, STATE_TEXT_BYTES, "%s", troubles[i]->error);
	}
}

const char *metad__trouble(const struct metad *md, uint32_t server, const char *path)
{
	const struct fleet_server *f = &md->servers[server];

	for (uint32_t i = 0; i < f->trouble_count; i++)
		if (!strcmp(f->troubles[i].path, path))
			return f->troubles[i].error;
	return NULL;
}

static void free_troubles(struct metad *md)
{
	for (uint32_t id = 1; id <= STATE_SERVERS; id++)
		mem_free(md->servers[id].troubles);
}

void metad__fleet_forget(struct metad *md)
{
	free_troubles(md);
	memset(md->servers, 0, (STATE_SERVERS + 1) * sizeof(*md->servers));
	memset(md->disks, 0, (LIMIT_DISKS + 1) * sizeof(*md->disks));
}

void metad__fleet_fini(struct metad *md)
{
	free_troubles(md);
	mem_free(md->servers);
	mem_free(md->disks);
}

static void on_down(struct metad *md, void *arg, int status, const struct state_result *res)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	const struct state_server *server = state_server_at(&md->state, id);

	md->servers[id].downing = false;
	if (res && status == 0 && server)
		log_line(md->options.log, LOG_WARN, "server-down", "server=%u name=%s silent_ms=%llu", id, server->name,
			(unsigned long long)metad__silent_ms(md, id));
}

/* Where the setting was made shorter a moment ago, a server still speaks as rarely as it was told before; if another process told it that, who knows how often. */
static uint64_t patience_ms(const struct metad *md, uint32_t server)
{
	uint64_t beat_ms = md->servers[server].beat_ms, set = down_after_ms(md), told = 2 * (beat_ms ? beat_ms : HEARTBEAT_MAX_MS);

	return set > told ? set : told;
}

/* Down is a row that a command writes, not an opinion of this process: all replicas count the same in a commit. */
void metad__check_silence(struct metad *md)
{
	uint64_t now_ns = io_now_ns(md->io);

	/* If it was we who stood still (stopped, out of CPU), nobody else was silent: they are given their time anew. */
	if (md->silence_checked_ns && now_ns - md->silence_checked_ns > down_after_ms(md) * MS_NS / 2)
		md->started_ns = now_ns;
	md->silence_checked_ns = now_ns;
	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);

		if (!server || !server->up || md->servers[id].downing)
			continue;
		if (metad__silent_ms(md, id) < patience_ms(md, id))
			continue;
		md->cmd.type = STATE_CMD_SERVER_DOWN;
		md->cmd.server_down = (struct state_cmd_server_down){.server = id};
		md->servers[id].downing = metad__submit(md, on_down, (void *)(uintptr_t)id);
	}
}
