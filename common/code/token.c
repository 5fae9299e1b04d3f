/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token: capabilities and receipts as fixed little-endian layouts under HMAC-SHA256 cut to 16 bytes.
 *
 * Token, TOKEN_BYTES:
 *    0 u8 version (1)   1 u8 key id   2 u8 index   3 u8 policy   4 u8 rights   5 zeros[3]
 *    8 u64 block   16 u64 expires_ms   24 u64 max_chunk_bytes   32 u32 disk   36 u32 incarnation   40 zeros[8]
 *   48 mac[16], over bytes 0..47
 * Reserved bytes must be zero: a later layout uses a new version number.
 *
 * What a receipt's MAC covers starts with 'R' where a token has its version, so that neither can ever be taken for the
 * other, whatever the keys are. A receipt itself is never encoded: both sides know its fields and only the MAC travels.
 */
#include "common/code/token.h"

#include <openssl/crypto.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/code/hmac.h"

enum {
	TOKEN_VERSION = 1,
	TOKEN_SIGNED_BYTES = TOKEN_BYTES - TOKEN_MAC_BYTES,
	RECEIPT_SIGNED_BYTES = 40,
};

void token_hmac(const struct hmac_key *key, const void *data, size_t len, uint8_t ret_mac[TOKEN_MAC_BYTES])
{
	uint8_t mac[HMAC_BYTES];

	hmac_once(key, data, len, mac);
	memcpy(ret_mac, mac, TOKEN_MAC_BYTES);
}

static void sign(const struct token_key *key, const uint8_t *bytes, uint8_t ret_mac[TOKEN_MAC_BYTES])
{
	token_hmac(&key->key, bytes, TOKEN_SIGNED_BYTES, ret_mac);
}

void token_seal(const struct token *t, const struct token_key *key, uint8_t ret_bytes[TOKEN_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_bytes, TOKEN_SIGNED_BYTES);
	wcursor_u8(&w, TOKEN_VERSION);
	wcursor_u8(&w, key->id);
	wcursor_u8(&w, t->index);
	wcursor_u8(&w, t->policy);
	wcursor_u8(&w, t->rights);
	wcursor_zeros(&w, 3);
	wcursor_u64(&w, t->block);
	wcursor_u64(&w, t->expires_ms);
	wcursor_u64(&w, t->max_chunk_bytes);
	wcursor_u32(&w, t->disk);
	wcursor_u32(&w, t->incarnation);
	wcursor_zeros(&w, 8);
	CHECK(!w.failed && w.len == TOKEN_SIGNED_BYTES);
	sign(key, ret_bytes, ret_bytes + TOKEN_SIGNED_BYTES);
}

static const struct token_key *find_key(const struct token_key *keys, size_t key_count, uint8_t id)
{
	for (size_t i = 0; i < key_count; i++)
		if (keys[i].id == id)
			return &keys[i];
	return NULL;
}

int token_open(struct slice bytes, const struct token_key *keys, size_t key_count, struct token *ret_token)
{
	uint8_t mac[TOKEN_MAC_BYTES];
	const struct token_key *key;
	struct token t = {0};
	struct rcursor r;
	uint8_t zeros;

	if (bytes.len != TOKEN_BYTES || bytes.data[0] != TOKEN_VERSION)
		return ERR_TOKEN;
	key = find_key(keys, key_count, bytes.data[1]);
	if (!key)
		return ERR_TOKEN;
	sign(key, bytes.data, mac);
	if (CRYPTO_memcmp(mac, bytes.data + TOKEN_SIGNED_BYTES, sizeof(mac)) != 0)
		return ERR_TOKEN;

	rcursor_init(&r, bytes.data, TOKEN_SIGNED_BYTES);
	rcursor_u8(&r);
	t.key_id = rcursor_u8(&r);
	t.index = rcursor_u8(&r);
	t.policy = rcursor_u8(&r);
	t.rights = rcursor_u8(&r);
	zeros = rcursor_u8(&r) | rcursor_u8(&r) | rcursor_u8(&r);
	t.block = rcursor_u64(&r);
	t.expires_ms = rcursor_u64(&r);
	t.max_chunk_bytes = rcursor_u64(&r);
	t.disk = rcursor_u32(&r);
	t.incarnation = rcursor_u32(&r);
	if (zeros || rcursor_u64(&r) != 0 || !rcursor_done(&r))
		return ERR_TOKEN;
	*ret_token = t;
	return 0;
}

void receipt_mac(const struct receipt *rec, const struct hmac_key *key, uint8_t ret_mac[TOKEN_MAC_BYTES])
{
	uint8_t bytes[RECEIPT_SIGNED_BYTES];
	struct wcursor w;

	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_u8(&w, 'R');
	wcursor_u8(&w, TOKEN_VERSION);
	wcursor_u8(&w, rec->index);
	wcursor_zeros(&w, 1);
	wcursor_u32(&w, rec->disk);
	wcursor_u32(&w, rec->incarnation);
	wcursor_u32(&w, rec->crc);
	wcursor_u64(&w, rec->block);
	wcursor_u64(&w, rec->length);
	wcursor_u64(&w, rec->generation);
	CHECK(!w.failed && w.len == sizeof(bytes));
	token_hmac(key, bytes, sizeof(bytes), ret_mac);
}

int receipt_verify(const struct receipt *r, const struct hmac_key *key, struct slice mac)
{
	uint8_t expected[TOKEN_MAC_BYTES];

	if (mac.len != TOKEN_MAC_BYTES)
		return ERR_RECEIPT;
	receipt_mac(r, key, expected);
	return CRYPTO_memcmp(expected, mac.data, sizeof(expected)) == 0 ? 0 : ERR_RECEIPT;
}
