/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check: assertions about our own code that stay on in every build; never about bytes from outside. And the checked way back
 * from a member to its parent.
 */
#ifndef COMMON_BASE_CHECK_H
#define COMMON_BASE_CHECK_H

#include <stddef.h>

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func);

#define CHECK(expr) ((expr) ? (void)0 : check_failed(#expr, __FILE__, __LINE__, __func__))
#define CHECK_UNREACHABLE() check_failed("unreachable", __FILE__, __LINE__, __func__)

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
/* For a parent whose first words include `uint32_t magic`. */
#define CHECK_MAGIC(p, value) CHECK((p) && (p)->magic == (value))

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
