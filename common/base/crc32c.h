/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c: CRC-32C (Castagnoli, RFC 3720 appendix B.4: initial and final complement) by ISA-L; combining without the data.
 * crc32c("123456789") = 0xe3069283.
 */
#ifndef COMMON_BASE_CRC32C_H
#define COMMON_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t len);
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len);       /* crc of A, data B -> crc of AB */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);  /* crc of AB */

#endif
