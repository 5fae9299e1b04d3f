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
#include "common/base/limits.h"
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
		__atomic_store_n(
			&known, __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_SSE4_2 ? 1 : 2, __ATOMIC_RELAXED);
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

/* Times x^(8 * LIMIT_UNIT_BYTES), by the value of each four bits, from the lowest on: lists of units are combined all day. */
static const uint32_t unit_power[8][16] = {
	{0x00000000, 0xc7cacead, 0x8a79ebab, 0x4db32506, 0x111fa1a7, 0xd6d56f0a, 0x9b664a0c, 0x5cac84a1, 0x223f434e,
		0xe5f58de3, 0xa846a8e5, 0x6f8c6648, 0x3320e2e9, 0xf4ea2c44, 0xb9590942, 0x7e93c7ef},
	{0x00000000, 0x447e869c, 0x88fd0d38, 0xcc838ba4, 0x14166c81, 0x5068ea1d, 0x9ceb61b9, 0xd895e725, 0x282cd902,
		0x6c525f9e, 0xa0d1d43a, 0xe4af52a6, 0x3c3ab583, 0x7844331f, 0xb4c7b8bb, 0xf0b93e27},
	{0x00000000, 0x5059b204, 0xa0b36408, 0xf0ead60c, 0x448abee1, 0x14d30ce5, 0xe439dae9, 0xb46068ed, 0x89157dc2,
		0xd94ccfc6, 0x29a619ca, 0x79ffabce, 0xcd9fc323, 0x9dc67127, 0x6d2ca72b, 0x3d75152f},
	{0x00000000, 0x17c68d75, 0x2f8d1aea, 0x384b979f, 0x5f1a35d4, 0x48dcb8a1, 0x70972f3e, 0x6751a24b, 0xbe346ba8,
		0xa9f2e6dd, 0x91b97142, 0x867ffc37, 0xe12e5e7c, 0xf6e8d309, 0xcea34496, 0xd965c9e3},
	{0x00000000, 0x7984a1a1, 0xf3094342, 0x8a8de2e3, 0xe3fef075, 0x9a7a51d4, 0x10f7b337, 0x69731296, 0xc211961b,
		0xbb9537ba, 0x3118d559, 0x489c74f8, 0x21ef666e, 0x586bc7cf, 0xd2e6252c, 0xab62848d},
	{0x00000000, 0x81cf5ac7, 0x0672c37f, 0x87bd99b8, 0x0ce586fe, 0x8d2adc39, 0x0a974581, 0x8b581f46, 0x19cb0dfc,
		0x9804573b, 0x1fb9ce83, 0x9e769444, 0x152e8b02, 0x94e1d1c5, 0x135c487d, 0x929312ba},
	{0x00000000, 0x33961bf8, 0x672c37f0, 0x54ba2c08, 0xce586fe0, 0xfdce7418, 0xa9745810, 0x9ae243e8, 0x995ca931,
		0xaacab2c9, 0xfe709ec1, 0xcde68539, 0x5704c6d1, 0x6492dd29, 0x3028f121, 0x03beead9},
	{0x00000000, 0x37552493, 0x6eaa4926, 0x59ff6db5, 0xdd54924c, 0xea01b6df, 0xb3fedb6a, 0x84abfff9, 0xbf455269,
		0x881076fa, 0xd1ef1b4f, 0xe6ba3fdc, 0x6211c025, 0x5544e4b6, 0x0cbb8903, 0x3beead90},
};
_Static_assert(LIMIT_UNIT_BYTES == 1 << 14, "unit_power is made for it");

static uint32_t before_a_unit(uint32_t crc)
{
	uint32_t product = 0;

	for (int i = 0; i < 8; i++)
		product ^= unit_power[i][crc >> 4 * i & 15];
	return product;
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	if (len_b == LIMIT_UNIT_BYTES)
		return before_a_unit(crc_a) ^ crc_b;
	for (int i = 0; len_b; i++, len_b >>= 1)
		if (len_b & 1)
			crc_a = poly_mul(byte_powers[i], crc_a);
	return crc_a ^ crc_b;
}
