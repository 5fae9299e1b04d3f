// SPDX-License-Identifier: Apache-2.0
#include "common/code/hmac.h"

#include <string.h>

/* SHA-256 that begins with (key padded to a block) ^ pad. */
static void begin_keyed(SHA256_CTX *ctx, const uint8_t key[HMAC_KEY_BYTES], uint8_t pad)
{
	uint8_t block[SHA256_CBLOCK];

	memset(block, pad, sizeof(block));
	for (size_t i = 0; i < HMAC_KEY_BYTES; i++)
		block[i] ^= key[i];
	SHA256_Init(ctx);
	SHA256_Update(ctx, block, sizeof(block));
}

void hmac_key_init(struct hmac_key *k, const uint8_t key[HMAC_KEY_BYTES])
{
	begin_keyed(&k->inner, key, 0x36);
	begin_keyed(&k->outer, key, 0x5c);
}

static void begin(struct hmac *h, const struct hmac_key *k)
{
	h->inner = k->inner;
	h->outer = k->outer;
}

void hmac_init(struct hmac *h, const uint8_t key[HMAC_KEY_BYTES])
{
	struct hmac_key k;

	hmac_key_init(&k, key);
	begin(h, &k);
}

void hmac_update(struct hmac *h, const void *data, size_t len)
{
	SHA256_Update(&h->inner, data, len);
}

void hmac_fini(struct hmac *h, uint8_t ret_mac[HMAC_BYTES])
{
	uint8_t inner[HMAC_BYTES];

	SHA256_Final(inner, &h->inner);
	SHA256_Update(&h->outer, inner, sizeof(inner));
	SHA256_Final(ret_mac, &h->outer);
}

enum { LENGTH_BYTES = 8, SHORT_BYTES = SHA256_CBLOCK - 1 - LENGTH_BYTES }; /* what one block holds beside its padding */

/* The hash of the key's block and one block more, whose padding is written here. */
static void hash_short(const SHA256_CTX *keyed, const void *data, size_t len, uint8_t ret_hash[HMAC_BYTES])
{
	uint64_t bits = __builtin_bswap64((SHA256_CBLOCK + len) * 8);
	uint8_t block[SHA256_CBLOCK] = {0};
	SHA256_CTX ctx = *keyed;

	memcpy(block, data, len);
	block[len] = 0x80;
	memcpy(block + SHA256_CBLOCK - LENGTH_BYTES, &bits, LENGTH_BYTES);
	SHA256_Transform(&ctx, block);
	for (size_t i = 0; i < HMAC_BYTES / sizeof(uint32_t); i++) {
		uint32_t word = __builtin_bswap32(ctx.h[i]);

		memcpy(ret_hash + i * sizeof(word), &word, sizeof(word));
	}
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hash_short swaps");

void hmac_once(const struct hmac_key *k, const void *data, size_t len, uint8_t ret_mac[HMAC_BYTES])
{
	uint8_t inner[HMAC_BYTES];
	struct hmac h;

	if (len > SHORT_BYTES) {
		begin(&h, k);
		hmac_update(&h, data, len);
		hmac_fini(&h, ret_mac);
		return;
	}
	hash_short(&k->inner, data, len, inner);
	hash_short(&k->outer, inner, sizeof(inner), ret_mac);
}
