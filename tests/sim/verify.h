/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: the look of all: once every host is up again and nothing is under way, each name is what the checker says and each file is
 * read whole, without any excuse. And each chunk that a block's row counts as sealed is on its disk, and is found damaged if bits of it were flipped and only then.
 */
#ifndef TESTS_SIM_VERIFY_H
#define TESTS_SIM_VERIFY_H

#include "tests/sim/checker.h"
#include "tests/sim/faults.h"

struct verify;

struct verify_counts {
	uint64_t files, bytes, listed, chunks, damaged, unsealed;
};

/* `faults` may be NULL: it knows which chunks must be found damaged, and no others. */
struct verify *verify_new(struct cluster *cluster, struct checker *checker, const struct faults *faults);
void verify_free(struct verify *v);
void verify_start(struct verify *v);
bool verify_done(const struct verify *v);
const struct verify_counts *verify_counts(const struct verify *v);

#endif
