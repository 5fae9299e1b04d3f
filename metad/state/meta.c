/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: the state as a whole: opening it over a table, formatting, state time and the floor, ranges of block ids, token
 * keys.
 *
 * Block ids are reserved in ranges, one row each with the state time of the reservation. A leader hands ids of a range
 * out only for STATE_RANGE_ISSUE_MS, tokens live LIMIT_TOKEN_LIFE_MS: STATE_FLOOR_DELAY_MS after the reservation no
 * token for its ids can be valid, and the floor passes it. Ranges are passed in order, so that the floor is one number.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "metad/state/attrs.h"
#include "metad/state/dirs.h"

enum { FIRST_CAP = 16 };

/* Makes room for index `id` in one of the arrays by id. */
static void *grow(void *array, uint32_t *cap, uint32_t id, size_t bytes)
{
	uint32_t old = *cap, want = old ? old : FIRST_CAP;

	while (want <= id)
		want *= 2;
	if (want == old)
		return array;
	array = mem_realloc(array, want * bytes);
	memset((uint8_t *)array + old * bytes, 0, (want - old) * bytes);
	*cap = want;
	return array;
}

/* Commands keep ids of disks, servers and domains within this; a row beyond it is damage. */
static bool id_plausible(uint32_t id)
{
	return id >= 1 && id < STATE_SERVERS;
}

static void load_disk(struct state *s, uint32_t id, struct slice value)
{
	s->disks = grow(s->disks, &s->disk_cap, id, sizeof(*s->disks));
	if (state_disk_decode(value, id, &s->disks[id]))
		state__fault(s, "the row of disk %u cannot be decoded", id);
}

static void load_server(struct state *s, uint32_t id, struct slice value)
{
	s->servers = grow(s->servers, &s->server_cap, id, sizeof(*s->servers));
	if (state_server_decode(value, id, &s->servers[id]))
		state__fault(s, "the row of server %u cannot be decoded", id);
}

static void load_domain(struct state *s, uint32_t id, struct slice value)
{
	s->domains = grow(s->domains, &s->domain_cap, id, sizeof(*s->domains));
	if (value.len == 0 || value.len >= STATE_TEXT_BYTES) {
		state__fault(s, "the row of domain %u cannot be decoded", id);
		return;
	}
	s->domains[id].id = id;
	memcpy(s->domains[id].name, value.data, value.len);
}

static void load_table(
	struct state *s, enum state_table table, void (*load)(struct state *s, uint32_t id, struct slice value))
{
	struct kv_scan scan;
	struct state_key key;
	uint32_t id;

	state_key_table(&key, table);
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.len == 0 || scan.key.data[0] != (uint8_t)table)
			break;
		if (!state_key_parse_number(scan.key, table, &id) || !id_plausible(id)) {
			state__fault(s, "table %u has a malformed key", table);
			break;
		}
		load(s, id, scan.value);
	}
	kv_scan_end(&scan);
}

/* Who indexes by the server of a disk, or asks for its name, relies on that there is one. */
static void check_fleet(struct state *s)
{
	for (uint32_t i = 1; i < s->disk_cap; i++)
		if (s->disks[i].id && (!state_server_at(s, s->disks[i].server) || !state_domain_at(s, s->disks[i].domain)))
			state__fault(s, "the row of disk %u names a server or a domain that has no row", i);
	for (uint32_t i = 1; i < s->server_cap; i++)
		if (s->servers[i].id && !state_domain_at(s, s->servers[i].domain))
			state__fault(s, "the row of server %u names a domain that has no row", i);
}

int state_open(struct state *s, struct kv *kv)
{
	return state_open_as(s, kv, STATE_CLUSTER_VERSION);
}

int state_open_as(struct state *s, struct kv *kv, uint16_t supports)
{
	struct state_key key;
	struct slice value;

	memset(s, 0, sizeof(*s));
	s->kv = kv;
	s->supports = supports;
	s->intents = mem_array(STATE_INTENTS, sizeof(*s->intents));
	map_init(&s->intent_of);
	state__config_open(s);
	state__dirs_open(s);
	state__attrs_open(s);
	map_init(&s->sessions);
	list_init(&s->sessions_dirty);
	state_key_table(&key, STATE_TABLE_META);
	if (state__get(s, &key, &value) == 0) {
		s->formatted = true;
		if (state_meta_is_newer(value))
			err_set(&s->fault, ERR_VERSION, "a newer binary wrote the metadata: use that one");
		if (state_meta_decode(value, &s->meta))
			state__fault(s, "the meta row cannot be decoded");
		if (!s->fault.code && s->meta.version > s->supports)
			err_set(&s->fault, ERR_VERSION,
				"the metadata are of cluster version %u, this binary speaks %u: use a newer binary", s->meta.version, s->supports);
		load_table(s, STATE_TABLE_DISK, load_disk);
		load_table(s, STATE_TABLE_SERVER, load_server);
		load_table(s, STATE_TABLE_DOMAIN, load_domain);
		check_fleet(s);
		state__intents_open(s);
		state__sessions_load(s);
		state__restore_open(s);
		state__maintenance_open(s);
	}
	return s->fault.code;
}

void state_close(struct state *s)
{
	if (s->kv)
		state__sessions_free(s);
	mem_free(s->disks);
	mem_free(s->servers);
	mem_free(s->domains);
	mem_free(s->intents);
	map_fini(&s->intent_of);
	state__dirs_close(s);
	state__attrs_close(s);
	memset(s, 0, sizeof(*s));
}

const struct state_disk *state_disk_at(const struct state *s, uint32_t id)
{
	return id < s->disk_cap && s->disks[id].id ? &s->disks[id] : NULL;
}

const struct state_server *state_server_at(const struct state *s, uint32_t id)
{
	return id < s->server_cap && s->servers[id].id ? &s->servers[id] : NULL;
}

const struct state_domain *state_domain_at(const struct state *s, uint32_t id)
{
	return id < s->domain_cap && s->domains[id].id ? &s->domains[id] : NULL;
}

bool state_disk_counts(const struct state *s, uint32_t disk)
{
	const struct state_disk *d = state_disk_at(s, disk);

	const struct state_server *server = d ? state_server_at(s, d->server) : NULL;

	return server && server->up && (d->state == STATE_DISK_UP || d->state == STATE_DISK_DRAINING);
}

struct state_disk *state__disk_edit(struct state *s, uint32_t id)
{
	s->fleet_version++;
	s->disks = grow(s->disks, &s->disk_cap, id, sizeof(*s->disks));
	return &s->disks[id];
}

void state__disk_put(struct state *s, const struct state_disk *disk)
{
	struct state_disk *copy = state__disk_edit(s, disk->id);
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	if (copy != disk)
		*copy = *disk;
	state_key_number(&key, STATE_TABLE_DISK, disk->id);
	state__put(s, &key, value, state_disk_encode(disk, value));
}

void state__server_put(struct state *s, const struct state_server *server)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	s->fleet_version++;
	s->servers = grow(s->servers, &s->server_cap, server->id, sizeof(*s->servers));
	if (&s->servers[server->id] != server)
		s->servers[server->id] = *server;
	state_key_number(&key, STATE_TABLE_SERVER, server->id);
	state__put(s, &key, value, state_server_encode(server, value));
}

void state__domain_put(struct state *s, const struct state_domain *domain)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	s->fleet_version++;
	s->domains = grow(s->domains, &s->domain_cap, domain->id, sizeof(*s->domains));
	s->domains[domain->id] = *domain;
	state_key_number(&key, STATE_TABLE_DOMAIN, domain->id);
	state__put(s, &key, (const uint8_t *)domain->name, strlen(domain->name));
	state_key_domain_name(&key, slice_of(domain->name, strlen(domain->name)));
	state__put(s, &key, value, state_number_encode(domain->id, value));
}

bool state_policy_valid(const struct state_policy *p)
{
	return ec_policy_by_id(p->id) && p->cell_bytes > 0 && p->cell_bytes <= LIMIT_CELL_BYTES &&
		p->cell_bytes % LIMIT_UNIT_BYTES == 0 && p->chunk_bytes >= p->cell_bytes &&
		p->chunk_bytes <= LIMIT_CHUNK_BYTES && p->chunk_bytes % p->cell_bytes == 0;
}

void state__format(struct state *s, const struct state_cmd_format *cmd, struct state_result *res)
{
	struct state_inode *root = &s->inodes[0];
	struct state_meta entry = s->meta; /* time and version, as the entry says */

	if (!state_policy_valid(&cmd->policy)) {
		state__fault(s, "the format command has an impossible policy");
		return;
	}
	s->meta = (struct state_meta){
		.cluster = cmd->cluster,
		.version = entry.version,
		.time_ms = entry.time_ms,
		.next_inode = INODE_ROOT + 1,
		.next_block = 1,
		.floor = 1,
		.next_disk = 1,
		.next_server = 1,
		.next_domain = 1,
		.next_session = 1,
		.dir_count = 1,
	};
	s->meta.token_keys[0].id = 1;
	s->meta.token_keys[0].created_ms = entry.time_ms;
	memcpy(s->meta.token_keys[0].salt, cmd->salt, STATE_SALT_BYTES);
	s->meta_dirty = true;
	s->formatted = true;
	*root = (struct state_inode){
		.id = INODE_ROOT,
		.type = STATE_TYPE_DIR,
		.mode = 0755,
		.nlink = 2,
		.mtime_ns = cmd->now_ns,
		.ctime_ns = cmd->now_ns,
		.parent = INODE_ROOT,
		.policy = cmd->policy,
	};
	state__inode_put(s, root);
	res->status = 0;
}

/* The oldest range row; ERR_NOENT if there is none. */
static int first_range(struct state *s, uint64_t *ret_first, struct state_range *ret_range)
{
	struct kv_scan scan;
	struct state_key key;
	int code = ERR_NOENT;

	state_key_table(&key, STATE_TABLE_RANGE);
	kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE);
	if (kv_scan_valid(&scan) && scan.key.data[0] == STATE_TABLE_RANGE) {
		code = 0;
		if (!state_key_parse_id(scan.key, STATE_TABLE_RANGE, ret_first) ||
			state_range_decode(scan.value, ret_range)) {
			state__fault(s, "a row of the range table cannot be decoded");
			code = ERR_CORRUPT;
		}
	}
	kv_scan_end(&scan);
	return code;
}

uint64_t state_floor_due_ms(struct state *s)
{
	struct state_range range;
	uint64_t first;

	return first_range(s, &first, &range) ? 0 : range.time_ms + STATE_FLOOR_DELAY_MS;
}

void state__tick(struct state *s, struct state_result *res)
{
	for (int i = 0; i < STATE_TICK_RANGES; i++) {
		struct state_range range;
		struct state_key key;
		uint64_t first;

		if (first_range(s, &first, &range) || range.time_ms + STATE_FLOOR_DELAY_MS > s->meta.time_ms)
			break;
		state_key_id(&key, STATE_TABLE_RANGE, first);
		state__del(s, &key);
		s->meta.floor = first + range.count;
		s->meta_dirty = true;
	}
	res->status = 0;
}

void state__reserve(struct state *s, const struct state_cmd_reserve *cmd, struct state_result *res)
{
	struct state_range range = {.count = cmd->count, .time_ms = s->meta.time_ms};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	if (cmd->count == 0 || cmd->count > UINT32_MAX ||
		id_number(s->meta.next_block) + cmd->count > id_number(UINT64_MAX)) {
		res->status = ERR_RANGE;
		return;
	}
	res->first_block = s->meta.next_block;
	res->range_time_ms = range.time_ms;
	state_key_id(&key, STATE_TABLE_RANGE, s->meta.next_block);
	state__put(s, &key, value, state_range_encode(&range, value));
	s->meta.next_block += cmd->count;
	s->meta_dirty = true;
}

void state__token_keys_roll(struct state *s, const uint8_t salt[STATE_SALT_BYTES])
{
	struct state_token_key *keys = s->meta.token_keys;
	uint8_t next = keys[0].id == UINT8_MAX ? 1 : (uint8_t)(keys[0].id + 1);

	memmove(&keys[1], &keys[0], sizeof(keys[0]) * (STATE_TOKEN_KEYS - 1));
	keys[0].id = next;
	keys[0].created_ms = s->meta.time_ms;
	memcpy(keys[0].salt, salt, STATE_SALT_BYTES);
	s->meta_dirty = true;
}

/* Never down: of two raises that cross the lower one says nothing. */
void state__raise(struct state *s, const struct state_cmd_raise *cmd, struct state_result *res)
{
	(void)res;
	if (cmd->version > s->supports) {
		err_set(&s->fault, ERR_VERSION,
			"the cluster is raised to version %u, this binary speaks %u: use a newer binary", cmd->version, s->supports);
		return;
	}
	if (cmd->version <= s->meta.version)
		return;
	s->meta.version = cmd->version;
	s->meta_dirty = true;
}

void state__token_roll(struct state *s, const struct state_cmd_token_roll *cmd, struct state_result *res)
{
	state__token_keys_roll(s, cmd->salt);
	res->status = 0;
}

bool state_restore_keys_old(const struct state *s)
{
	const struct state_token_key *keys = s->meta.token_keys;

	return s->restore.count && keys[1].id && keys[0].created_ms <= s->restore.time_ms;
}
