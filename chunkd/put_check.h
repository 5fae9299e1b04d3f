/* SPDX-License-Identifier: Apache-2.0 */
/* put_check: what a cell must satisfy before any of it is written. Pure. */
#ifndef CHUNKD_PUT_CHECK_H
#define CHUNKD_PUT_CHECK_H

#include "chunkd/put.h"
#include "proto/chunkd.pb-c.h"

/* A message with so much payload; copy and policy are the token's to say. Slices lie in the message. */
void put_check_read(const Craton__PutRequest *m, uint32_t payload_len, struct put_request *ret_request);
/* Lengths and offsets agree with each other and with the limits. ERR_INVAL. */
int put_check_request(const struct put_request *r);
/* r->len (> 0) bytes against their checksums, which become ret_crcs on success. ERR_CORRUPT. */
int put_check_bytes(const struct put_request *r, const uint8_t *data, uint32_t *ret_crcs);
/* The chunk as its seal describes it; `crcs` has all its units. ERR_INVAL: lengths or lists do not agree; ERR_CORRUPT. */
int put_check_seal(const struct put_request *r, uint8_t policy, const uint32_t *crcs);

#endif
