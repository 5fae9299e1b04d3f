/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handlers_disk: what chunk servers say: registrations and heartbeats.
 *
 * Both are authenticated with the cluster secret: who does not hold it can neither add a disk nor speak for one. A
 * registration becomes a command; keys never cross the wire, the reply carries the salts they are derived from. A
 * heartbeat is answered at once from memory; only what must outlive this
 * process becomes a command: a failed disk, a goodbye, a generation that the disk has shown to know. Who is not known
 * as it says is told to register again.
 */
#include "metad/core.h"

#include <stdio.h>
#include "common/base/check.h"
#include "common/rpc/auth.h"

enum { NONCE_MIN_BYTES = 8, NAME_MAX_BYTES = 63, REFUSAL_BYTES = 300 };

static void wire_keys(struct metad *md, Craton__TokenKey ***ret_keys, size_t *ret_count)
{
	struct metad_scratch *sc = md->scratch;
	size_t n = 0;

	for (int i = 0; i < STATE_TOKEN_KEYS; i++) {
		struct state_token_key *key = &md->state.meta.token_keys[i];

		if (key->id == 0)
			continue;
		craton__token_key__init(&sc->key[n]);
		sc->key[n].id = key->id;
		sc->key[n].salt = (ProtobufCBinaryData){.data = key->salt, .len = sizeof(key->salt)};
		sc->keys[n] = &sc->key[n];
		n++;
	}
	*ret_keys = sc->keys;
	*ret_count = n;
}

static uint64_t server_key(const Craton__RegisterRequest *msg)
{
	return repeats_key(0, slice_of(msg->server_uuid.data, msg->server_uuid.len));
}

/* Counted. It asks again: is this one to be logged? Those that are too many to be told apart are logged here. */
static bool is_news(struct metad *md, const Craton__RegisterRequest *msg, const char *path, int status, uint64_t *ret_times)
{
	uint64_t whose = server_key(msg), key;
	enum repeats_news news;

	refused_count(&md->refused, status == ERR_ACCES ? REFUSED_SECRET : REFUSED_REGISTRATION, io_now_ns(md->io), NULL);
	key = repeats_key(whose, slice_of(msg->name, strlen(msg->name)));
	key = repeats_key(key, slice_of(path, strlen(path)));
	key = repeats_key(key, slice_of(&status, sizeof(status)));
	news = repeats_say(&md->refusals, whose, key, io_now_ns(md->io) / 1000000, ret_times);
	if (news == REPEATS_NEWS_OF_OTHERS)
		log_line(md->options.log, LOG_WARN, "others-refused",
			"times=%llu text=so many servers and disks are refused that these are not named", (unsigned long long)*ret_times);
	return news == REPEATS_NEWS;
}

static void refuse(struct metad *md, struct rpc_req *req, int status, const char *text)
{
	const Craton__RegisterRequest *msg = (const Craton__RegisterRequest *)req->msg;
	Craton__RegisterReply reply = CRATON__REGISTER_REPLY__INIT;
	uint64_t times;

	reply.error = (char *)(uintptr_t)text;
	if (is_news(md, msg, "", status, &times))
		log_line(md->options.log, LOG_WARN, "register-refused", "server=%s address=%s error=%s times=%llu text=%s",
			msg->name, msg->address, err_name(status), (unsigned long long)times, text);
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
}

static const char *disk_refusal(int status)
{
	switch (status) {
	case ERR_WRONG_CLUSTER:
		return "this disk is registered already, but not in these metadata, which are new, or another store's: do not empty it; if metad's directory "
		       "was lost, restore a backup of it (`craton meta restore`)";
	case ERR_GENERATION:
		return "this is an old image of the disk: a newer one was registered; use an empty directory";
	case ERR_EXIST:
		return "a disk of this identity serves already, or another server of this name is up: use an empty "
		       "directory, give each server its own --name";
	case ERR_NOSPC:
		return "the cluster has as many servers or disks as it can ever have";
	default:
		return "the registration is not valid";
	}
}

/* The same of a disk of the request; `text` is room for it. */
static const char *refusal_of(struct metad *md, const Craton__DiskRegister *disk, int status, char text[REFUSAL_BYTES])
{
	struct uuid uuid;

	memcpy(uuid.bytes, disk->uuid.data, sizeof(uuid.bytes));
	if (status != ERR_GENERATION || !state_disk_ahead(&md->state, &uuid, disk->generation))
		return disk_refusal(status);
	snprintf(text, REFUSAL_BYTES,
		"the disk knows newer metadata than these, which are older or of an older backup: stop this metad, and restore a "
		"backup (if it was written to, one of itself) with `--restores %llu`",
		(unsigned long long)(disk->generation >> STATE_RESTORE_GENERATION_SHIFT));
	return text;
}

static void on_registered(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	struct metad_scratch *sc = md->scratch;
	const Craton__RegisterRequest *msg = (const Craton__RegisterRequest *)req->msg;
	Craton__RegisterReply reply = CRATON__REGISTER_REPLY__INIT;
	char text[REFUSAL_BYTES];
	uint64_t times;

	if (res && !status)
		repeats_forget(&md->refusals, server_key(msg));
	for (uint32_t i = 0; res && i < res->count; i++) {
		const struct state_disk_result *r = &res->disks[i];
		Craton__DiskRegistered *out = &sc->registered[i];

		craton__disk_registered__init(out);
		sc->registereds[i] = out;
		out->disk = r->disk;
		out->generation = r->generation;
		out->status = r->status;
		if (r->status == 0) {
			out->receipt_salt =
				(ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)r->salt, .len = STATE_SALT_BYTES};
			metad__fleet_registered(md, r->disk);
			log_line(md->options.log, LOG_INFO, "disk-registered",
				"disk=%u generation=%llu server=%s path=%s", r->disk, (unsigned long long)r->generation,
				msg->name, msg->disks[i]->path);
		} else {
			reply.error = (char *)(uintptr_t)refusal_of(md, msg->disks[i], r->status, text);
			if (is_news(md, msg, msg->disks[i]->path, r->status, &times))
				log_line(md->options.log, LOG_WARN, "disk-refused",
					"server=%s path=%s error=%s times=%llu text=%s", msg->name, msg->disks[i]->path,
					err_name(r->status), (unsigned long long)times, reply.error);
		}
	}
	if (res) {
		reply.disks = sc->registereds;
		reply.n_disks = res->count;
	}
	/* A text means that it is refused, and that asking again soon is in vain. Without a result nothing was decided. */
	if (res && status && !reply.error[0])
		reply.error = (char *)(uintptr_t)disk_refusal(status);
	if (!status) {
		reply.server = res->server;
		metad__heard(md, res->server, req->conn_id);
		wire_keys(md, &reply.token_keys, &reply.n_token_keys);
		reply.heartbeat_ms = (uint32_t)metad__heartbeat_ms(md);
	}
	reply.state_time_ms = metad__now_ms(md);
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
}

static bool text_good(const char *text, size_t min, size_t max)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return len >= min && len <= max;
}

/* NULL, or what is wrong with the request. */
static const char *check_register(const Craton__RegisterRequest *msg)
{
	struct io_addr addr;

	if (msg->server_uuid.len != sizeof(struct uuid) || msg->nonce.len < NONCE_MIN_BYTES ||
		msg->nonce.len > STATE_TEXT_BYTES)
		return "server_uuid needs 16 bytes, nonce 8 to 256";
	if (!text_good(msg->name, 1, NAME_MAX_BYTES) || !text_good(msg->domain, 0, STATE_TEXT_BYTES - 1) ||
		!text_good(msg->version, 0, STATE_TEXT_BYTES - 1))
		return "name needs 1 to 63 printable characters, domain and version at most 255";
	if (!text_good(msg->address, 1, STATE_TEXT_BYTES - 1) || io_addr_parse(msg->address, &addr) || addr.port == 0)
		return "address is not of the form HOST:PORT with a numeric host";
	if (msg->n_disks == 0 || msg->n_disks > LIMIT_DISKS_PER_SERVER)
		return "a server has 1 to 64 disks";
	for (size_t i = 0; i < msg->n_disks; i++)
		if (msg->disks[i]->uuid.len != sizeof(struct uuid) ||
			!text_good(msg->disks[i]->path, 0, STATE_TEXT_BYTES - 1) ||
			msg->disks[i]->storage_class > UINT8_MAX)
			return "a disk needs a uuid of 16 bytes, a path of at most 255 characters and a storage class";
	return NULL;
}

static struct slice text_slice(const char *text)
{
	return slice_of(text, strlen(text));
}

/*
 * A directory that was copied holds the server's and the disks' identities, too. While the original is up and its
 * connection open, who comes with them from another address is the copy: taken in, it would serve an old image as the
 * disk. A server that was restarted has lost its old connection; one whose host died is down after a while.
 */
static bool is_copy(struct metad *md, const struct rpc_req *req, const struct state_server *known)
{
	const Craton__RegisterRequest *msg = (const Craton__RegisterRequest *)req->msg;
	uint64_t conn_id = known ? md->servers[known->id].conn_id : 0;

	return known && known->up && conn_id && conn_id != req->conn_id && strcmp(known->address, msg->address) != 0;
}

/* Commands that name a server, and people, mean one: another one of its name is refused while it is up. */
static bool name_taken(const struct metad *md, const Craton__RegisterRequest *msg)
{
	struct uuid uuid;

	memcpy(uuid.bytes, msg->server_uuid.data, sizeof(uuid.bytes));
	return state_name_taken(&md->state, &uuid, text_slice(msg->name));
}

void metad__register(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__RegisterRequest *msg = (const Craton__RegisterRequest *)req->msg;
	struct state_cmd_register *cmd = &md->cmd.register_;
	const struct state_server *known;
	const char *wrong;

	if (metad__gate(md, req))
		return;
	wrong = check_register(msg);
	if (wrong) {
		refuse(md, req, ERR_INVAL, wrong);
		return;
	}
	if (auth_register_verify(md->options.secret, md->options.cluster.bytes, msg)) {
		refuse(md, req, ERR_ACCES,
			"the registration is not signed with this cluster's secret: compare the secret files");
		return;
	}
	memcpy(cmd->uuid.bytes, msg->server_uuid.data, sizeof(cmd->uuid.bytes));
	known = state_server_by_uuid(&md->state, &cmd->uuid);
	if (is_copy(md, req, known)) {
		refuse(md, req, ERR_EXIST,
			"a server of this identity is up at another address: its directory was copied; use empty ones");
		return;
	}
	if (name_taken(md, msg)) {
		refuse(md, req, ERR_EXIST,
			"another server of this name is up: give each its own --name, or stop the other one first");
		return;
	}
	md->cmd.type = STATE_CMD_REGISTER;
	cmd->name = text_slice(msg->name);
	cmd->address = text_slice(msg->address);
	cmd->domain = text_slice(msg->domain[0] ? msg->domain : msg->name);
	cmd->version = text_slice(msg->version);
	cmd->disk_count = (uint32_t)msg->n_disks;
	for (size_t i = 0; i < msg->n_disks; i++) {
		const Craton__DiskRegister *d = msg->disks[i];
		struct state_register_disk *out = &cmd->disks[i];

		memcpy(out->uuid.bytes, d->uuid.data, sizeof(out->uuid.bytes));
		out->disk = d->disk;
		out->generation = d->generation;
		out->capacity_bytes = d->capacity_bytes;
		out->storage_class = (uint8_t)d->storage_class;
		out->path = text_slice(d->path);
		out->failed = d->failed;
		io_random(md->io, out->salt, sizeof(out->salt));
	}
	metad__submit_req(md, on_registered, req);
}

/* ---- heartbeats ---- */

static void on_confirmed(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)status, (void)res;
	md->disks[(uint32_t)(uintptr_t)arg].confirming = 0;
}

static void on_failed(struct metad *md, void *arg, int status, const struct state_result *res)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	const struct state_disk *disk = state_disk_at(&md->state, id);

	md->disks[id].failing = false;
	if (res && !status && disk)
		log_line(md->options.log, LOG_ERROR, "disk-failed", "disk=%u path=%s error=%s", id, disk->path,
			disk->error);
}

enum { FREE_CLASSES = 3 };

/* Older chunk servers sum what is free by class: of chunks up to 64 KiB, up to 4 MiB, and above. */
static void take_free_of_classes(struct fleet_disk *f, const uint64_t classes[FREE_CLASSES])
{
	for (uint32_t i = 0; i < LIMIT_ROOM_SIZES; i++) {
		uint64_t bytes = (uint64_t)LIMIT_ROOM_BYTES << i;

		f->free_bytes[i] = classes[bytes <= 64 << 10 ? 0 : bytes <= 4 << 20 ? 1 : 2];
	}
	for (int i = 0; i < FREE_CLASSES; i++) /* all that is free */
		if (classes[i] > f->free_bytes[0])
			f->free_bytes[0] = classes[i];
}

static void take_free(struct fleet_disk *f, const Craton__DiskBeat *beat)
{
	if (beat->n_free_bytes == FREE_CLASSES) {
		take_free_of_classes(f, beat->free_bytes);
		return;
	}
	for (size_t i = 0; i < LIMIT_ROOM_SIZES; i++) {
		/* A short list means one figure for all sizes above, too. */
		size_t at = i < beat->n_free_bytes ? i : beat->n_free_bytes - 1;

		f->free_bytes[i] = beat->n_free_bytes ? beat->free_bytes[at] : 0;
	}
}

/* False: this is not the disk that the row speaks of, or it does not know that the metadata were restored since. */
static bool take_beat(struct metad *md, const Craton__HeartbeatRequest *msg, const Craton__DiskBeat *beat)
{
	const struct state_disk *disk = state_disk_at(&md->state, beat->disk);
	struct fleet_disk *f;

	if (!disk || disk->server != msg->server || disk->generation != beat->generation ||
		!state_disk_knows(&md->state, disk))
		return false;
	f = &md->disks[disk->id];
	f->beat_generation = beat->generation;
	snprintf(f->stuck, sizeof(f->stuck), "%s", !beat->failed && text_good(beat->error, 1, STATE_TEXT_BYTES - 1) ? beat->error : "");
	f->capacity_bytes = beat->capacity_bytes;
	f->chunks = beat->chunks;
	take_free(f, beat);
	/* A disk that failed may not hold what it was given. */
	if (!beat->failed && disk->confirmed < beat->generation && f->confirming != beat->generation) {
		md->cmd.type = STATE_CMD_CONFIRM;
		md->cmd.confirm = (struct state_cmd_confirm){.disk = disk->id, .generation = beat->generation};
		if (metad__submit(md, on_confirmed, (void *)(uintptr_t)disk->id))
			f->confirming = beat->generation;
	}
	if (beat->failed && disk->state != STATE_DISK_FAILED && !f->failing) {
		size_t len = strnlen(beat->error, STATE_TEXT_BYTES - 1);

		md->cmd.type = STATE_CMD_DISK_FAILED;
		md->cmd.disk_failed = (struct state_cmd_disk_failed){
			.disk = disk->id,
			.generation = beat->generation,
			.error = slice_of(beat->error, len),
		};
		f->failing = metad__submit(md, on_failed, (void *)(uintptr_t)disk->id);
	}
	return true;
}

static bool troubles_good(const Craton__HeartbeatRequest *msg)
{
	if (msg->n_troubles > LIMIT_DISKS_PER_SERVER)
		return false;
	for (size_t i = 0; i < msg->n_troubles; i++)
		if (!text_good(msg->troubles[i]->path, 1, STATE_TEXT_BYTES - 1) ||
			!text_good(msg->troubles[i]->error, 1, STATE_TEXT_BYTES - 1))
			return false;
	return true;
}

static void reply_heartbeat(struct metad *md, struct rpc_req *req, int status, bool again)
{
	const Craton__HeartbeatRequest *msg = (const Craton__HeartbeatRequest *)req->msg;
	Craton__HeartbeatReply reply = CRATON__HEARTBEAT_REPLY__INIT;
	struct repair_orders *orders = again || msg->stopping ? NULL : metad__repair_orders(md, msg, &reply);

	reply.state_time_ms = metad__now_ms(md);
	reply.register_again = again;
	reply.heartbeat_ms = (uint32_t)metad__heartbeat_ms(md);
	wire_keys(md, &reply.token_keys, &reply.n_token_keys);
	reply.floor = md->state.meta.floor;
	reply.inventory_round = md->gc.round;
	reply.n_metads = metad__members_addrs(md, &reply.metads);
	reply.drop_disks = md->scratch->drop_disks;
	for (size_t i = 0; i < msg->n_disks && !again; i++)
		if (metad__drops_due(md, msg->disks[i]->disk))
			reply.drop_disks[reply.n_drop_disks++] = msg->disks[i]->disk;
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
	metad__repair_orders_free(orders);
}

static void on_goodbye(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	const Craton__HeartbeatRequest *msg = (const Craton__HeartbeatRequest *)req->msg;

	if (res && !status)
		log_line(md->options.log, LOG_INFO, "server-stopped", "server=%u", msg->server);
	reply_heartbeat(md, req, res ? 0 : status, false);
}

void metad__heartbeat(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__HeartbeatRequest *msg = (const Craton__HeartbeatRequest *)req->msg;
	const struct state_server *server;
	bool again;

	if (metad__gate(md, req))
		return;
	if (msg->n_disks > LIMIT_DISKS_PER_SERVER || msg->server_uuid.len != sizeof(struct uuid) ||
		!troubles_good(msg)) {
		rpc_reply_status(req, ERR_INVAL);
		return;
	}
	if (auth_heartbeat_verify(md->options.secret, md->options.cluster.bytes, msg)) {
		metad__count_refused(md, req, REFUSED_SECRET);
		rpc_reply_status(req, ERR_ACCES);
		return;
	}
	server = state_server_at(&md->state, msg->server);
	again = !server || !server->up ||
		memcmp(server->uuid.bytes, msg->server_uuid.data, sizeof(server->uuid.bytes)) != 0;
	if (again) {
		reply_heartbeat(md, req, 0, !msg->stopping);
		return;
	}
	metad__heard(md, msg->server, req->conn_id);
	metad__take_troubles(md, msg->server, msg->troubles, msg->n_troubles);
	for (size_t i = 0; i < msg->n_disks; i++)
		again = !take_beat(md, msg, msg->disks[i]) || again;
	metad__repair_results(md, msg);
	if (!msg->stopping) {
		reply_heartbeat(md, req, 0, again);
		return;
	}
	md->cmd.type = STATE_CMD_SERVER_DOWN;
	md->cmd.server_down = (struct state_cmd_server_down){.server = msg->server};
	metad__submit_req(md, on_goodbye, req);
}
