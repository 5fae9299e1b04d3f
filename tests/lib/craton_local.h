/* SPDX-License-Identifier: Apache-2.0 */
/*
 * craton_local: craton.h over a local directory (cr_options.config names it), for the trainer's unit tests only, so that
 * they need no store. Plain POSIX, no coding, no checksums. Faults by countdown: the n-th call from now that changes
 * something fails with -EIO; then all later ones do too (a store that is gone), or only that one (a passing fault).
 */
#ifndef TESTS_LIB_CRATON_LOCAL_H
#define TESTS_LIB_CRATON_LOCAL_H

#include <stdbool.h>
#include "client/craton.h"

void craton_local_fail_after(long calls, bool once); /* calls < 0: never */
long craton_local_changes(void);                     /* calls that changed something, so far */

#endif
