/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: what the cluster secret (32 bytes, a file of mode 0600 holding 64 hex digits) is used for. Keys are derived, never sent: HMAC-SHA256
 * of "craton <label>" and the salt under the secret. Pure.
 */
#ifndef COMMON_RPC_AUTH_H
#define COMMON_RPC_AUTH_H

#include <stdint.h>
#include "common/base/err.h"
#include "common/base/slice.h"
#include "proto/metad.pb-c.h"

enum { AUTH_SECRET_BYTES = 32, AUTH_SALT_BYTES = 16 };

/* label "token", "receipt" or "raft"; salt AUTH_SALT_BYTES, else ERR_FORMAT */
int auth_derive(const uint8_t secret[AUTH_SECRET_BYTES], const char *label, struct slice salt, uint8_t ret_key[32]);
/* MAC over the cluster and all fields of the request but `auth`. */
void auth_register(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__RegisterRequest *request,
                   uint8_t ret_mac[32]);
/* Constant time. ERR_ACCES. */
int auth_register_verify(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__RegisterRequest *request);
/* The same for a heartbeat. No nonce: one that is replayed says what was true in the generation that it names. */
void auth_heartbeat(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__HeartbeatRequest *request,
                    uint8_t ret_mac[32]);
int auth_heartbeat_verify(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__HeartbeatRequest *request);
/* The same for what a chunk server says about its copies. Replayed, it says again what was true in that generation. */
void auth_drops(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__DropsRequest *request,
                uint8_t ret_mac[32]);
int auth_drops_verify(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__DropsRequest *request);
void auth_inventory(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__InventoryRequest *request,
                    uint8_t ret_mac[32]);
int auth_inventory_verify(const uint8_t secret[AUTH_SECRET_BYTES], const uint8_t cluster[16], const Craton__InventoryRequest *request);
/* The content of a secret file: 64 hex digits and an optional newline. ERR_FORMAT. */
int auth_parse_secret(struct slice text, uint8_t ret_secret[AUTH_SECRET_BYTES]);

#endif
