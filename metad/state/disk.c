/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk: servers, disks, failure domains; who may register as what.
 *
 * Each registration gives a disk its next generation. Receipts name the generation, so nothing that a disk promised
 * before it was registered again can be committed after. A disk keeps its generation in its superblock, written before
 * it seals anything in it, and shows it in its heartbeats; `confirmed` is the greatest one that it has shown. What a
 * disk says at a registration must lie between `confirmed` and the row's generation: in between lie registrations whose
 * answers it never stored. Below lies an old image of the disk: refused. A disk that is up at one server is refused at
 * another one: the same disk twice.
 *
 * A disk that names a number which this cluster never gave to that uuid belongs to another cluster.
 *
 * A disk that has failed since its server opened it is registered with the others, for its number and generation, and stays what it is: failed, and
 * out if it was taken out. One that was not known to have failed is down; its heartbeat says why. Else each time that a server has
 * been away its failed disk would be taken for good, until the next heartbeat.
 *
 * Of servers of one name only one is up at a time, so that a name means one of them. One that is down gives its name
 * up: a machine that replaces it may have it.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"

static void set_text(char out[STATE_TEXT_BYTES], struct slice text)
{
	size_t len = text.len < STATE_TEXT_BYTES ? text.len : STATE_TEXT_BYTES - 1;

	memset(out, 0, STATE_TEXT_BYTES);
	if (len)
		memcpy(out, text.data, len);
}

/* Number in a table of uuid -> number; 0 if it is not there. */
static uint32_t number_by_uuid(struct state *s, enum state_table table, const struct uuid *uuid)
{
	struct state_key key;
	struct slice value;
	uint32_t number;

	state_key_uuid(&key, table, uuid);
	if (state__get(s, &key, &value))
		return 0;
	if (state_number_decode(value, &number)) {
		state__fault(s, "a uuid row of table %u cannot be decoded", table);
		return 0;
	}
	return number;
}

static void put_uuid_number(struct state *s, enum state_table table, const struct uuid *uuid, uint32_t number)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_uuid(&key, table, uuid);
	state__put(s, &key, value, state_number_encode(number, value));
}

const struct state_server *state_server_by_uuid(const struct state *s, const struct uuid *uuid)
{
	for (uint32_t i = 1; i < s->server_cap; i++)
		if (s->servers[i].id && uuid_equal(&s->servers[i].uuid, uuid))
			return &s->servers[i];
	return NULL;
}

bool state_name_taken(const struct state *s, const struct uuid *uuid, struct slice name)
{
	for (uint32_t i = 1; i < s->server_cap; i++) {
		const struct state_server *server = &s->servers[i];

		if (server->id && server->up && strlen(server->name) == name.len &&
			memcmp(server->name, name.data, name.len) == 0 && !uuid_equal(&server->uuid, uuid))
			return true;
	}
	return false;
}

/* 0: there is none of that name. */
static uint32_t domain_find(const struct state *s, struct slice name)
{
	for (uint32_t i = 1; i < s->domain_cap; i++)
		if (s->domains[i].id && strlen(s->domains[i].name) == name.len &&
			memcmp(s->domains[i].name, name.data, name.len) == 0)
			return i;
	return 0;
}

static bool domain_is_used(const struct state *s, uint32_t domain)
{
	for (uint32_t i = 1; i < s->server_cap; i++)
		if (s->servers[i].id && s->servers[i].domain == domain)
			return true;
	for (uint32_t i = 1; i < s->disk_cap; i++)
		if (s->disks[i].id && s->disks[i].domain == domain)
			return true;
	return false;
}

/* The number of a domain that is to be made: a new one, or, when there are no more, that of one without servers. 0: neither. */
static uint32_t domain_number(const struct state *s)
{
	if (s->meta.next_domain < STATE_SERVERS)
		return s->meta.next_domain;
	for (uint32_t i = 1; i < s->domain_cap; i++)
		if (s->domains[i].id && !domain_is_used(s, i))
			return i;
	return 0;
}

/* The domain of that name; made if it is new. */
static uint32_t domain_by_name(struct state *s, struct slice name)
{
	struct state_domain domain = {.id = domain_find(s, name)};
	struct state_key key;

	if (domain.id)
		return domain.id;
	domain.id = domain_number(s);
	CHECK(domain.id);
	if (domain.id == s->meta.next_domain) {
		s->meta.next_domain++;
		s->meta_dirty = true;
	} else {
		const char *old = s->domains[domain.id].name;

		state_key_domain_name(&key, slice_of(old, strlen(old)));
		state__del(s, &key);
	}
	set_text(domain.name, name);
	state__domain_put(s, &domain);
	return domain.id;
}

bool state_disk_knows(const struct state *s, const struct state_disk *disk)
{
	return s->restore.count == 0 || disk->generation > state_restore_generation(s);
}

/* That the disk may have been given; see restore.c. */
static uint64_t greatest_generation(const struct state *s, const struct state_disk *row)
{
	uint64_t unknown = state_restore_generation(s);

	return row->generation > unknown ? row->generation : unknown;
}

bool state_disk_ahead(struct state *s, const struct uuid *uuid, uint64_t generation)
{
	static const struct state_disk none;
	const struct state_disk *row = state_disk_at(s, number_by_uuid(s, STATE_TABLE_DISK_UUID, uuid));

	return generation > greatest_generation(s, row ? row : &none);
}

static int check_disk(struct state *s, const struct state_cmd_register *cmd, uint32_t at, uint32_t server)
{
	const struct state_register_disk *d = &cmd->disks[at];
	uint32_t number = number_by_uuid(s, STATE_TABLE_DISK_UUID, &d->uuid);
	const struct state_disk *row;
	bool restored = s->restore.count > 0;

	for (uint32_t i = 0; i < at; i++)
		if (uuid_equal(&cmd->disks[i].uuid, &d->uuid))
			return ERR_EXIST;
	if (number == 0 && d->disk && !restored)
		return ERR_WRONG_CLUSTER;
	if (number == 0) /* after a restore: it may have been registered in the time that is not known here */
		return d->generation > state_restore_generation(s) ? ERR_GENERATION : 0;
	row = state_disk_at(s, number);
	if (!row) {
		state__fault(s, "disk %u has a uuid but no row", number);
		return ERR_CORRUPT;
	}
	if (d->disk && d->disk != number && !restored)
		return ERR_WRONG_CLUSTER;
	if (d->generation < row->confirmed || d->generation > greatest_generation(s, row))
		return ERR_GENERATION;
	if (row->server != server && state_disk_counts(s, number)) /* draining ones serve, too */
		return ERR_EXIST;
	return 0;
}

static void take_back(struct state_disk *disk)
{
	disk->state = disk->state == STATE_DISK_DRAINING ? STATE_DISK_DRAINING : STATE_DISK_UP;
	disk->out = disk->left = false;
	memset(disk->error, 0, sizeof(disk->error));
}

static void still_failed(const struct state *s, struct state_disk *disk)
{
	if (disk->state == STATE_DISK_FAILED)
		return;
	if (disk->state != STATE_DISK_DOWN)
		disk->down_ms = s->meta.time_ms;
	disk->state = STATE_DISK_DOWN;
}

static void register_disk(struct state *s, const struct state_register_disk *d, const struct state_server *server,
	struct state_disk_result *res)
{
	uint32_t number = number_by_uuid(s, STATE_TABLE_DISK_UUID, &d->uuid);
	struct state_disk disk = {0};

	if (number) {
		disk = *state_disk_at(s, number);
	} else {
		disk.id = s->meta.next_disk++;
		disk.uuid = d->uuid;
		put_uuid_number(s, STATE_TABLE_DISK_UUID, &d->uuid, disk.id);
		s->meta_dirty = true;
	}
	disk.server = server->id;
	disk.domain = server->domain;
	disk.storage_class = d->storage_class;
	disk.generation = greatest_generation(s, &disk) + 1;
	disk.capacity_bytes = d->capacity_bytes;
	memcpy(disk.salt, d->salt, sizeof(disk.salt));
	set_text(disk.path, d->path);
	if (d->failed)
		still_failed(s, &disk);
	else
		take_back(&disk);
	state__disk_put(s, &disk);
	res->disk = disk.id;
	res->generation = disk.generation;
	res->salt = state_disk_at(s, disk.id)->salt;
}

static uint32_t new_disks(struct state *s, const struct state_cmd_register *cmd)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cmd->disk_count; i++)
		n += number_by_uuid(s, STATE_TABLE_DISK_UUID, &cmd->disks[i].uuid) == 0;
	return n;
}

bool state_disk_left_out(const struct state *s, const struct state_disk *disk)
{
	return s->meta.version >= STATE_CLUSTER_LEFT_OUT && disk->state == STATE_DISK_DOWN;
}

/*
 * Disks of the server that are up become down, but for those of the list. At most LIMIT_DISKS_PER_SERVER can be up. `came_up`: those that were
 * down with their server are away on their own account from now on; those that were so already go on being it, so that a server that comes and
 * goes does not keep them for ever. `keep` NULL: the server goes.
 */
static void disks_down(
	struct state *s, uint32_t server, bool came_up, const struct state_disk_result *keep, uint32_t keep_count)
{
	for (uint32_t i = 1; i < s->disk_cap; i++) {
		struct state_disk *disk = &s->disks[i];
		bool kept = false;

		if (disk->id == 0 || disk->server != server)
			continue;
		if (disk->state != STATE_DISK_UP && !(came_up && state_disk_left_out(s, disk)))
			continue;
		for (uint32_t j = 0; j < keep_count && !kept; j++)
			kept = keep[j].status == 0 && keep[j].disk == disk->id;
		if (kept || disk->left)
			continue;
		disk->state = STATE_DISK_DOWN;
		disk->down_ms = s->meta.time_ms;
		disk->left = keep && s->meta.version >= STATE_CLUSTER_LEFT_ONCE;
		state__disk_put(s, disk);
	}
}

void state__register(struct state *s, const struct state_cmd_register *cmd, struct state_result *res)
{
	const struct state_server *known = state_server_by_uuid(s, &cmd->uuid);
	struct state_server server = {0};
	bool came_up = !known || !known->up;
	uint32_t good = 0;

	if (cmd->name.len == 0 || cmd->domain.len == 0 || cmd->disk_count == 0) {
		res->status = ERR_INVAL;
		return;
	}
	if (s->meta.next_disk + new_disks(s, cmd) > LIMIT_DISKS || (!known && s->meta.next_server >= STATE_SERVERS) ||
		(!domain_find(s, cmd->domain) && !domain_number(s))) {
		res->status = ERR_NOSPC;
		return;
	}
	if (state_name_taken(s, &cmd->uuid, cmd->name)) {
		res->status = ERR_EXIST;
		return;
	}
	res->count = cmd->disk_count;
	for (uint32_t i = 0; i < cmd->disk_count; i++) {
		res->disks[i] = (struct state_disk_result){.status = check_disk(s, cmd, i, known ? known->id : 0)};
		good += res->disks[i].status == 0;
		if (res->disks[i].status && !res->status)
			res->status = res->disks[i].status;
	}
	if (good == 0)
		return; /* a server without a single disk that may serve is not registered; status says why */
	res->status = 0;

	if (known)
		server = *known;
	else
		server.id = s->meta.next_server++;
	server.uuid = cmd->uuid;
	server.up = true;
	set_text(server.name, cmd->name);
	set_text(server.address, cmd->address);
	set_text(server.version, cmd->version);
	server.domain = domain_by_name(s, cmd->domain);
	if (!known)
		put_uuid_number(s, STATE_TABLE_SERVER_UUID, &cmd->uuid, server.id);
	state__server_put(s, &server);
	s->meta_dirty = true;
	res->server = server.id;
	for (uint32_t i = 0; i < cmd->disk_count; i++)
		if (!res->disks[i].status)
			register_disk(s, &cmd->disks[i], &server, &res->disks[i]);
	disks_down(s, server.id, came_up, res->disks, res->count); /* those that it has no more, or that were refused */
}

/* Its disks keep their state but for those that are up: they count again only after a new registration. */
void state__server_down(struct state *s, const struct state_cmd_server_down *cmd, struct state_result *res)
{
	const struct state_server *row = state_server_at(s, cmd->server);
	struct state_server server;

	if (!row) {
		res->status = ERR_NOENT;
		return;
	}
	if (!row->up)
		return;
	server = *row;
	server.up = false;
	state__server_put(s, &server);
	disks_down(s, cmd->server, false, NULL, 0);
}

void state__disk_failed(struct state *s, const struct state_cmd_disk_failed *cmd, struct state_result *res)
{
	const struct state_disk *row = state_disk_at(s, cmd->disk);
	struct state_disk disk;

	if (!row || row->generation != cmd->generation) {
		res->status = row ? ERR_GENERATION : ERR_NOENT;
		return;
	}
	if (row->state == STATE_DISK_FAILED)
		return;
	disk = *row;
	disk.state = STATE_DISK_FAILED;
	disk.down_ms = s->meta.time_ms;
	set_text(disk.error, cmd->error);
	state__disk_put(s, &disk);
}

void state__confirm(struct state *s, const struct state_cmd_confirm *cmd, struct state_result *res)
{
	const struct state_disk *row = state_disk_at(s, cmd->disk);
	struct state_disk disk;

	if (!row || cmd->generation > row->generation) {
		res->status = row ? ERR_GENERATION : ERR_NOENT;
		return;
	}
	if (cmd->generation <= row->confirmed)
		return;
	disk = *row;
	disk.confirmed = cmd->generation;
	state__disk_put(s, &disk);
}

uint64_t state_take_out_at(const struct state *s, const struct state_disk *disk)
{
	uint64_t interval_ms = state_config(s, CONFIG_REPAIR_DOMAIN_INTERVAL), at_ms = 0;

	for (uint32_t i = 1; i < s->disk_cap; i++) {
		const struct state_disk *other = &s->disks[i];

		if (other->id && other->out_ms && other->domain != disk->domain && other->out_ms + interval_ms > at_ms)
			at_ms = other->out_ms + interval_ms;
	}
	return at_ms;
}

/*
 * A disk that failed, or whose server is down, is given up for now: its chunks are rebuilt elsewhere. However the leader
 * came to that, a second failure domain has to wait: a fault of the network or of ours must not set the whole store
 * in motion. A registration takes it back.
 */
void state__take_out(struct state *s, const struct state_cmd_take_out *cmd, struct state_result *res)
{
	const struct state_disk *row = state_disk_at(s, cmd->disk);
	const struct state_server *server = row ? state_server_at(s, row->server) : NULL;
	struct state_disk disk;

	if (!server)
		res->status = ERR_NOENT;
	else if (row->state != STATE_DISK_FAILED && server->up && !state_disk_left_out(s, row))
		res->status = ERR_STALE;
	else if (s->meta.time_ms < state_take_out_at(s, row))
		res->status = ERR_BUSY;
	if (res->status || row->out)
		return;
	disk = *row;
	disk.out = true;
	disk.out_ms = s->meta.time_ms ? s->meta.time_ms : 1;
	state__disk_put(s, &disk);
	if (disk.state == STATE_DISK_FAILED)
		SOMETIMES(state_failed_disk_out);
	else if (!server->up)
		SOMETIMES(state_dead_server_out);
}
