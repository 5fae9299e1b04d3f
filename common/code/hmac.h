/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hmac: HMAC-SHA256 (RFC 2104), in one go or piece by piece, over libcrypto's SHA-256. Its own HMAC looks up the algorithm and allocates
 * a context each time, which takes five times as long as the hashing of a receipt; a commit has dozens of them, a heartbeat one. A key that is
 * used often is prepared once: half of a short HMAC is hashing the key.
 */
#ifndef COMMON_CODE_HMAC_H
#define COMMON_CODE_HMAC_H

#include <stddef.h>
#include <stdint.h>

/* SHA256_Init and its kin are called deprecated, as they cannot be given another provider's SHA. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

enum { HMAC_KEY_BYTES = 32, HMAC_BYTES = SHA256_DIGEST_LENGTH };

struct hmac {
	SHA256_CTX inner, outer;
};

/* A key after its hashing. */
struct hmac_key {
	SHA256_CTX inner, outer;
};

void hmac_key_init(struct hmac_key *k, const uint8_t key[HMAC_KEY_BYTES]);
/* The whole of it, under a prepared key. */
void hmac_once(const struct hmac_key *k, const void *data, size_t len, uint8_t ret_mac[HMAC_BYTES]);

void hmac_init(struct hmac *h, const uint8_t key[HMAC_KEY_BYTES]);
void hmac_update(struct hmac *h, const void *data, size_t len);
void hmac_fini(struct hmac *h, uint8_t ret_mac[HMAC_BYTES]);

#endif
