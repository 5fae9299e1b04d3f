/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem: allocation that does not fail: every size asked for is bounded by limits.h, so running out is a wrong limit of the
 * machine, and the process stops with a line that says so. Data from outside never decides a size before it was bounded.
 */
#ifndef COMMON_BASE_MEM_H
#define COMMON_BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                    /* uninitialised */
void *mem_zalloc(size_t bytes);
void *mem_array(size_t count, size_t bytes);      /* zeroed, multiplication checked */
void *mem_realloc(void *p, size_t bytes);
void *mem_aligned(size_t align, size_t bytes);    /* free with mem_free */
char *mem_strdup(const char *s);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void mem_free(void *p);

#define MEM_NEW(type) ((type *)mem_zalloc(sizeof(type)))

#endif
