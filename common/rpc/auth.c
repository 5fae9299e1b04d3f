/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: everything here is HMAC-SHA256 under the cluster secret. What is hashed starts with its purpose ("craton
 * token", "craton register", "craton heartbeat") and every field with its length as u32, so that no two different inputs
 * hash the same bytes.
 */
#include "common/rpc/auth.h"

#include <openssl/crypto.h>
#include <string.h>
#include "common/code/hmac.h"

enum { AUTH_MAC_BYTES = HMAC_BYTES };
_Static_assert((int)AUTH_SECRET_BYTES == (int)HMAC_KEY_BYTES, "the secret is the key");

static void hash_bytes(struct hmac *h, const void *data, size_t len)
{
	uint8_t prefix[4] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16), (uint8_t)(len >> 24)};

	hmac_update(h, prefix, sizeof(prefix));
	hmac_update(h, data, len);
}

static void hash_text(struct hmac *h, const char *text)
{
	hash_bytes(h, text, strlen(text));
}

static void hash_u64(struct hmac *h, uint64_t v)
{
	uint8_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	hash_bytes(h, bytes, sizeof(bytes));
}

int auth_derive(const uint8_t secret[AUTH_SECRET_BYTES], const char *label, struct slice salt, uint8_t ret_key[32])
{
	struct hmac h;

	if (salt.len != AUTH_SALT_BYTES)
		return ERR_FORMAT;
	hmac_init(&h, secret);
	hash_text(&h, "craton ");
	hash_text(&h, label);
	hash_bytes(&h, salt.data, salt.len);
	hmac_fini(&h, ret_key);
	return 0;
}

void auth_register(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16],
	const Craton__RegisterRequest *request, uint8_t ret_mac[32])
{
	struct hmac h;

	hmac_init(&h, secret);
	hash_text(&h, "craton register");
	hash_bytes(&h, cluster, 16);
	hash_bytes(&h, request->server_uuid.data, request->server_uuid.len);
	hash_text(&h, request->name);
	hash_text(&h, request->address);
	hash_text(&h, request->domain);
	hash_text(&h, request->version);
	hash_bytes(&h, request->nonce.data, request->nonce.len);
	hash_u64(&h, request->n_disks);
	for (size_t i = 0; i < request->n_disks; i++) {
		hash_bytes(&h, request->disks[i]->uuid.data, request->disks[i]->uuid.len);
		hash_u64(&h, request->disks[i]->disk);
		hash_u64(&h, request->disks[i]->generation);
		hash_u64(&h, request->disks[i]->capacity_bytes);
		hash_u64(&h, request->disks[i]->storage_class);
		hash_text(&h, request->disks[i]->path);
		if (request->disks[i]->failed) /* as an older build does it where none has failed */
			hash_u64(&h, 1);
	}
	hmac_fini(&h, ret_mac);
}

static int mac_verify(const uint8_t mac[AUTH_MAC_BYTES], const ProtobufCBinaryData *given)
{
	if (given->len != AUTH_MAC_BYTES)
		return ERR_ACCES;
	return CRYPTO_memcmp(mac, given->data, AUTH_MAC_BYTES) == 0 ? 0 : ERR_ACCES;
}

int auth_register_verify(
	const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__RegisterRequest *request)
{
	uint8_t mac[AUTH_MAC_BYTES];

	auth_register(secret, cluster, request, mac);
	return mac_verify(mac, &request->auth);
}

static void hash_beat(struct hmac *h, const Craton__DiskBeat *beat)
{
	hash_u64(h, beat->disk);
	hash_u64(h, beat->generation);
	hash_u64(h, beat->capacity_bytes);
	hash_u64(h, beat->n_free_bytes);
	for (size_t i = 0; i < beat->n_free_bytes; i++)
		hash_u64(h, beat->free_bytes[i]);
	hash_u64(h, beat->chunks);
	hash_u64(h, beat->failed != 0);
	hash_text(h, beat->error);
	hash_u64(h, beat->queue);
}

static void hash_repair(struct hmac *h, const Craton__RepairResult *r)
{
	hash_u64(h, r->block);
	hash_u64(h, r->index);
	hash_u64(h, r->incarnation);
	hash_u64(h, r->disk);
	hash_u64(h, r->generation);
	hash_u64(h, r->check != 0);
	hash_u64(h, (uint64_t)(int64_t)r->status);
	hash_u64(h, r->crc);
	hash_bytes(h, r->mac.data, r->mac.len);
	hash_u64(h, r->n_culprits);
	for (size_t i = 0; i < r->n_culprits; i++) {
		hash_u64(h, r->culprits[i]->index);
		hash_u64(h, r->culprits[i]->disk);
		hash_u64(h, r->culprits[i]->incarnation);
		hash_u64(h, (uint64_t)(int64_t)r->culprits[i]->status);
		hash_text(h, r->culprits[i]->text);
	}
	hash_text(h, r->text);
}

void auth_heartbeat(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16],
	const Craton__HeartbeatRequest *request, uint8_t ret_mac[32])
{
	struct hmac h;

	hmac_init(&h, secret);
	hash_text(&h, "craton heartbeat");
	hash_bytes(&h, cluster, 16);
	hash_u64(&h, request->server);
	hash_bytes(&h, request->server_uuid.data, request->server_uuid.len);
	hash_u64(&h, request->stopping != 0);
	hash_u64(&h, request->n_disks);
	for (size_t i = 0; i < request->n_disks; i++)
		hash_beat(&h, request->disks[i]);
	hash_u64(&h, request->n_repairs);
	for (size_t i = 0; i < request->n_repairs; i++)
		hash_repair(&h, request->repairs[i]);
	hash_u64(&h, request->n_troubles);
	for (size_t i = 0; i < request->n_troubles; i++) {
		hash_text(&h, request->troubles[i]->path);
		hash_text(&h, request->troubles[i]->error);
	}
	hmac_fini(&h, ret_mac);
}

int auth_heartbeat_verify(
	const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__HeartbeatRequest *request)
{
	uint8_t mac[AUTH_MAC_BYTES];

	auth_heartbeat(secret, cluster, request, mac);
	return mac_verify(mac, &request->auth);
}

static void hash_copies(struct hmac *h, Craton__CopyId *const *copies, size_t count)
{
	hash_u64(h, count);
	for (size_t i = 0; i < count; i++) {
		hash_u64(h, copies[i]->block);
		hash_u64(h, copies[i]->index);
		hash_u64(h, copies[i]->incarnation);
	}
}

void auth_drops(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__DropsRequest *request,
	uint8_t ret_mac[32])
{
	struct hmac h;

	hmac_init(&h, secret);
	hash_text(&h, "craton drops");
	hash_bytes(&h, cluster, 16);
	hash_u64(&h, request->server);
	hash_bytes(&h, request->server_uuid.data, request->server_uuid.len);
	hash_u64(&h, request->disk);
	hash_u64(&h, request->generation);
	hash_copies(&h, request->done, request->n_done);
	hash_copies(&h, &request->after, request->after ? 1 : 0);
	hmac_fini(&h, ret_mac);
}

int auth_drops_verify(
	const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__DropsRequest *request)
{
	uint8_t mac[AUTH_MAC_BYTES];

	auth_drops(secret, cluster, request, mac);
	return mac_verify(mac, &request->auth);
}

void auth_inventory(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16],
	const Craton__InventoryRequest *request, uint8_t ret_mac[32])
{
	struct hmac h;

	hmac_init(&h, secret);
	hash_text(&h, "craton inventory");
	hash_bytes(&h, cluster, 16);
	hash_u64(&h, request->server);
	hash_bytes(&h, request->server_uuid.data, request->server_uuid.len);
	hash_u64(&h, request->disk);
	hash_u64(&h, request->generation);
	hash_u64(&h, request->mode);
	hash_u64(&h, request->from);
	hash_u64(&h, request->to);
	hash_u64(&h, request->n_ranges);
	for (size_t i = 0; i < request->n_ranges; i++) {
		hash_u64(&h, request->ranges[i]->range);
		hash_u64(&h, request->ranges[i]->count);
		hash_u64(&h, request->ranges[i]->digest);
	}
	hash_copies(&h, request->copies, request->n_copies);
	hmac_fini(&h, ret_mac);
}

int auth_inventory_verify(
	const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__InventoryRequest *request)
{
	uint8_t mac[AUTH_MAC_BYTES];

	auth_inventory(secret, cluster, request, mac);
	return mac_verify(mac, &request->auth);
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int auth_parse_secret(struct slice text, uint8_t ret_secret[AUTH_SECRET_BYTES])
{
	uint8_t secret[AUTH_SECRET_BYTES];

	if (text.len == 2 * AUTH_SECRET_BYTES + 1 && text.data[text.len - 1] == '\n')
		text.len--;
	if (text.len != 2 * AUTH_SECRET_BYTES)
		return ERR_FORMAT;
	for (size_t i = 0; i < AUTH_SECRET_BYTES; i++) {
		int hi = hex_digit(text.data[2 * i]), lo = hex_digit(text.data[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return ERR_FORMAT;
		secret[i] = (uint8_t)(hi << 4 | lo);
	}
	memcpy(ret_secret, secret, sizeof(secret));
	return 0;
}
