/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c: the running value is kept in its final, complemented form, so that 0 is the CRC of no bytes and the CRC of AB needs
 * only the CRC of A. ISA-L's crc32_iscsi neither complements its start nor its result: both are done here.
 *
 * Combining: appending len_b zero bytes to A multiplies its CRC by x^(8 len_b) modulo the polynomial; the complements of start
 * and end cancel out, so crc(AB) = crc(A) * x^(8 len_b) + crc(B). Powers x^(2^i) come from a table of 64 entries. Polynomials
 * are reflected: bit 31 is x^0.
 */
#include "common/base/crc32c.h"

#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

enum {
	PIECE_BYTES = 1 << 30, /* ISA-L takes an int length */
	SHORT_BYTES = 256,     /* up to here the processor's own instruction is faster than to fold */
};

#define POLY 0x82f63b78u
#define ONE 0x80000000u

/* x^(8 * 2^i) modulo the polynomial. */
static const uint32_t byte_powers[64] = {0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a,
	0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269,
	0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
	0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000,
	0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16,
	0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3,
	0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000,
	0x20000000, 0x08000000, 0x00800000, 0x00008000};

#ifdef __x86_64__
static bool has_instruction(void)
{
	static int known; /* 1 yes, 2 no: all threads find the same */
	unsigned eax, ebx, ecx = 0, edx;

	if (!__atomic_load_n(&known, __ATOMIC_RELAXED))
		__atomic_store_n(&known, __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_SSE4_2 ? 1 : 2, __ATOMIC_RELAXED);
	return __atomic_load_n(&known, __ATOMIC_RELAXED) == 1;
}

/* Rows and keys are some ten to hundred bytes long. */
__attribute__((target("sse4.2"))) static uint32_t short_crc(const uint8_t *p, size_t len, uint32_t state)
{
	uint64_t wide = state;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		wide = __builtin_ia32_crc32di(wide, v);
	}
	state = (uint32_t)wide;
	for (; len > 0; p++, len--)
		state = __builtin_ia32_crc32qi(state, *p);
	return state;
}
#else
static bool has_instruction(void)
{
	return false;
}

static uint32_t short_crc(const uint8_t *p, size_t len, uint32_t state)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)p, (int)len, state);
}
#endif

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t len)
{
	/* The library does not write to it; its prototype lacks the const. */
	unsigned char *p = (unsigned char *)(uintptr_t)data;
	uint32_t state = ~crc;

	if (len <= SHORT_BYTES && has_instruction())
		return ~short_crc(p, len, state);
	while (len > 0) {
		size_t piece = len < PIECE_BYTES ? len : PIECE_BYTES;

		state = crc32_iscsi(p, (int)piece, state);
		p += piece;
		len -= piece;
	}
	return ~state;
}

uint32_t crc32c(const void *data, size_t len)
{
	return crc32c_extend(0, data, len);
}

static uint32_t poly_mul(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; bit; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? b >> 1 ^ POLY : b >> 1;
	}
	return product;
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	for (int i = 0; len_b; i++, len_b >>= 1)
		if (len_b & 1)
			crc_a = poly_mul(byte_powers[i], crc_a);
	return crc_a ^ crc_b;
}
