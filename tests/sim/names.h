/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: a crew that makes, finds, removes, renames and links a few names at once, without any order among its workers, and keeps the
 * history of what was asked and told (tests/lib/linear.h). A store whose clients see one order of all changes, whichever metad serves
 * them and however often a request is sent, gives a history that is linearizable. Now and then the crew goes on to fresh names, so that
 * what stays unknown of the old ones does not grow without end.
 */
#ifndef TESTS_SIM_NAMES_H
#define TESTS_SIM_NAMES_H

#include "tests/lib/linear.h"
#include "tests/sim/crew.h"

struct crew *names_new(struct cluster *cluster, uint64_t seed, bool strict);
/* Between two operations of the crew: a history that is not linearizable, or of which that cannot be said, is a defect. */
void names_judge(struct crew *crew, struct linear_result *ret_result);
const struct linear_history *names_history(const struct crew *crew);

#endif
