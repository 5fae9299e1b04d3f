/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ec: Reed-Solomon over GF(2^8) with ISA-L, Cauchy matrix (gf_gen_cauchy1_matrix: ISA-L's Vandermonde matrix leaves 32 of the 5,005
 * six-loss sets of rs-9-6 undecodable). k = 1 is plain copies. Thread-safe (tables are built once, under pthread_once).
 *
 * A shard shorter than `len` is treated as padded with zeros. Encoding goes slice by slice (LIMIT_UNIT_BYTES), so that data, parity
 * and checksums stay in cache: one pass.
 */
#ifndef COMMON_CODE_EC_H
#define COMMON_CODE_EC_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/limits.h"

struct ec_policy {
	uint8_t id;            /* wire and disk value; never reused */
	uint8_t k, m;
	const char *name;      /* "rs-4-2" */
};

enum { EC_POLICY_DEFAULT = 1 };

/* 1 rs-4-2, 2 rs-6-3, 3 rs-8-3, 4 rs-8-4, 5 rs-10-4, 6 rs-9-6, 7 rs-1-2. NULL if unknown. */
const struct ec_policy *ec_policy_by_id(uint8_t id);
const struct ec_policy *ec_policy_by_name(const char *name);
const struct ec_policy *ec_policy_at(size_t index); /* from 0; NULL ends */

/*
 * data[i] has data_len[i] <= len bytes (may be NULL if 0); parity[j] gets len bytes. If crcs is not NULL, crcs[i][u] (i over data, then
 * parity) gets the plain CRC32C of unit u of that shard's real bytes (the last unit may be short; an empty shard has none).
 */
void ec_encode(const struct ec_policy *p, size_t len, const uint8_t *const data[], const size_t data_len[], uint8_t *const parity[],
               uint32_t *const crcs[]);

/*
 * Rebuilds `want_count` shards. `have_idx` names exactly k distinct shards in `have`, each with have_len[i] <= len real bytes, the rest
 * zeros; out[i] gets len bytes of shard want_idx[i]. ERR_INVAL for indices out of range, doubled, or wanted and had.
 */
int ec_decode(const struct ec_policy *p, size_t len, const uint8_t have_idx[], const uint8_t *const have[], const size_t have_len[],
              const uint8_t want_idx[], size_t want_count, uint8_t *const out[]);

/* Plain CRC32C of each unit of `data` -> out[ceil(len / unit)]. */
void ec_unit_crcs(const void *data, size_t len, uint32_t *out);

#endif
