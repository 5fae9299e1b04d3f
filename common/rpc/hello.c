/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello: see hello.h.
 *
 * Cluster rule: the same id on both sides. A client or administrator without one (all zero) takes any cluster; a daemon
 * without one is refused, since it could only be one that lost its configuration.
 */
#include "common/rpc/hello.h"

#include <string.h>
#include "common/base/cursor.h"
#include "common/rpc/codec.h"

enum { ARENA_BYTES = 64 << 10 }; /* a HELLO is about 100 bytes */

_Static_assert((int)RPC_ROLE_METAD == (int)CRATON__ROLE__ROLE_METAD &&
		(int)RPC_ROLE_CHUNKD == (int)CRATON__ROLE__ROLE_CHUNKD &&
		(int)RPC_ROLE_CLIENT == (int)CRATON__ROLE__ROLE_CLIENT &&
		(int)RPC_ROLE_ADMIN == (int)CRATON__ROLE__ROLE_ADMIN,
	"roles on the wire are ours");

void hello_fill(const struct rpc_identity *self, Craton__Hello *ret_hello)
{
	craton__hello__init(ret_hello);
	ret_hello->protocol_version_min = HELLO_VERSION_MIN;
	ret_hello->protocol_version_max = HELLO_VERSION_MAX;
	ret_hello->cluster.data = (uint8_t *)(uintptr_t)self->cluster.bytes;
	ret_hello->cluster.len = sizeof(self->cluster.bytes);
	ret_hello->role = (Craton__Role)self->role;
	ret_hello->name = (char *)(uintptr_t)self->name;
	ret_hello->software = (char *)(uintptr_t) "craton " PACKAGE_VERSION;
}

static bool is_daemon(const struct rpc_identity *id)
{
	return id->role == RPC_ROLE_METAD || id->role == RPC_ROLE_CHUNKD;
}

/* A zero id in `id` stands for "any". */
static bool takes_any(const struct rpc_identity *id)
{
	return uuid_is_zero(&id->cluster) && !is_daemon(id);
}

static int parse_identity(const Craton__Hello *hello, struct rpc_identity *ret_id, struct err *err)
{
	struct rpc_identity id = {0};
	size_t name_len = strlen(hello->name);

	if (hello->cluster.len != 0 && hello->cluster.len != sizeof(id.cluster.bytes))
		return err_set(err, ERR_PROTO, "hello: cluster id of %zu bytes", hello->cluster.len);
	if (hello->cluster.len)
		memcpy(id.cluster.bytes, hello->cluster.data, sizeof(id.cluster.bytes));
	if ((int)hello->role < RPC_ROLE_METAD || (int)hello->role > RPC_ROLE_ADMIN)
		return err_set(err, ERR_PROTO, "hello: unknown role %d", (int)hello->role);
	if (name_len >= sizeof(id.name))
		return err_set(err, ERR_PROTO, "hello: name of %zu bytes", name_len);
	for (size_t i = 0; i < name_len; i++)
		if (hello->name[i] <= ' ' || hello->name[i] > '~')
			return err_set(err, ERR_PROTO, "hello: name with byte 0x%02x", (uint8_t)hello->name[i]);
	id.role = (uint8_t)hello->role;
	memcpy(id.name, hello->name, name_len);
	*ret_id = id;
	return 0;
}

static int check_cluster(const struct rpc_identity *self, const struct rpc_identity *peer, struct err *err)
{
	char ours[UUID_TEXT_BYTES], theirs[UUID_TEXT_BYTES];

	if (takes_any(self) || takes_any(peer))
		return 0;
	if (uuid_equal(&self->cluster, &peer->cluster) && !uuid_is_zero(&self->cluster))
		return 0;
	uuid_format(&self->cluster, ours);
	uuid_format(&peer->cluster, theirs);
	return err_set(err, ERR_WRONG_CLUSTER, "%s belongs to cluster %s, this side to %s", peer->name, theirs, ours);
}

int hello_parse(
	const struct rpc_identity *self, const void *body, size_t len, struct rpc_identity *ret_peer, struct err *err)
{
	const ProtobufCMessage *msg;
	const Craton__Hello *hello;
	struct codec_arena arena;
	struct rpc_identity peer;
	int code;

	if (len > ARENA_BYTES / 2)
		return err_set(err, ERR_MSGSIZE, "hello: body of %zu bytes", len);
	codec_arena_init(&arena, ARENA_BYTES);
	code = codec_unpack(&arena, &craton__hello__descriptor, body, len, &msg);
	if (code) {
		err_set(err, code, "hello: malformed");
		goto out;
	}
	hello = (const Craton__Hello *)msg;
	code = parse_identity(hello, &peer, err);
	if (code)
		goto out;
	*ret_peer = peer;
	if (hello->protocol_version_min > HELLO_VERSION_MAX || hello->protocol_version_max < HELLO_VERSION_MIN)
		code = err_set(err, ERR_VERSION, "%s speaks protocol versions %u to %u, this side %u to %u", peer.name,
			hello->protocol_version_min, hello->protocol_version_max, HELLO_VERSION_MIN, HELLO_VERSION_MAX);
	else
		code = check_cluster(self, &peer, err);
out:
	codec_arena_fini(&arena);
	return code;
}
