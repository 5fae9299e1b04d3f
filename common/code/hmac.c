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

void hmac_init(struct hmac *h, const uint8_t key[HMAC_KEY_BYTES])
{
	begin_keyed(&h->inner, key, 0x36);
	begin_keyed(&h->outer, key, 0x5c);
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
