/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token: capabilities (metad -> client -> chunkd) and receipts (chunkd -> client -> metad). HMAC-SHA256 (RFC 2104) cut to 16 bytes, by
 * libcrypto; compared in constant time. Pure, thread-safe.
 */
#ifndef COMMON_CODE_TOKEN_H
#define COMMON_CODE_TOKEN_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/slice.h"
#include "common/code/hmac.h"

enum {
	TOKEN_KEY_BYTES = 32,
	TOKEN_MAC_BYTES = 16,
	TOKEN_BYTES = 64,        /* encoded, MAC included */
	TOKEN_INDEX_ANY = 255,
	TOKEN_READ = 1,
	TOKEN_WRITE = 2,
};

struct token {
	uint64_t block;
	uint64_t expires_ms;      /* state time */
	uint64_t max_chunk_bytes; /* writes */
	uint32_t disk;            /* 0: any (reads) */
	uint32_t incarnation;     /* writes */
	uint8_t key_id;           /* set by token_seal */
	uint8_t index;            /* or TOKEN_INDEX_ANY (reads; spares) */
	uint8_t policy;
	uint8_t rights;
};

/* Each chunk that is written or read has a token: the key is prepared. */
struct token_key {
	uint8_t id;
	struct hmac_key key;
};

void token_seal(const struct token *t, const struct token_key *key, uint8_t ret_bytes[TOKEN_BYTES]);
/* ERR_TOKEN: wrong length, version, unknown key id, or MAC. Expiry and meaning are the caller's to check. */
int token_open(struct slice bytes, const struct token_key *keys, size_t key_count, struct token *ret_token);

struct receipt {
	uint64_t block;
	uint64_t length;
	uint64_t generation;
	uint32_t disk;
	uint32_t incarnation;
	uint32_t crc;             /* of the whole chunk, plain */
	uint8_t index;
};

void receipt_mac(const struct receipt *r, const struct hmac_key *key, uint8_t ret_mac[TOKEN_MAC_BYTES]);
int receipt_verify(const struct receipt *r, const struct hmac_key *key, struct slice mac); /* ERR_RECEIPT */

/* HMAC-SHA256/128 over data; chunk trailers use it too. */
void token_hmac(const struct hmac_key *key, const void *data, size_t len, uint8_t ret_mac[TOKEN_MAC_BYTES]);

#endif
