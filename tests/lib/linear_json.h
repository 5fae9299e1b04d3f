/* SPDX-License-Identifier: Apache-2.0 */
/* linear_json: histories as lines of JSON; docs/HISTORIES.md has the form. */
#ifndef TESTS_LIB_LINEAR_JSON_H
#define TESTS_LIB_LINEAR_JSON_H

#include <stdio.h>
#include "common/base/err.h"
#include "tests/lib/linear.h"

/* 0, or ERR_IO with errno set. */
int linear_write(FILE *out, const struct linear_history *h);
/* Adds to the history. ERR_IO, or ERR_CORRUPT: err names the line. */
int linear_read(FILE *in, struct linear_history *h, struct err *err);

#endif
