/* SPDX-License-Identifier: Apache-2.0 */
/*
 * force_plan: what one replica that is left of a group knows, whether it may go on alone, and as what. Pure; metad/force.h does it.
 *
 * Those that are dropped may have had more than is known here: entries, a term, and members that they took in. So
 *  1. the new term is FORCE_TERM_JUMP above all that is known: no election of theirs comes to an entry of the same index and term;
 *  2. numbers of members go on behind the next full FORCE_NUMBERS: none that they gave away is given again, known here or not;
 *  3. the state goes on as after a restore (metad/state/restore.c): no id that they gave away meets one that is given from now on.
 */
#ifndef METAD_FORCE_PLAN_H
#define METAD_FORCE_PLAN_H

#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/rpc/replicas.h"
#include "metad/raft/raft.h"

enum { FORCE_NUMBERS = 100, FORCE_WORD_BYTES = 9 };
#define FORCE_TERM_JUMP (UINT64_C(1) << 20)

struct force_facts {
	const char *dir;
	struct uuid cluster;
	uint64_t id;
	struct raft_config config, before; /* the latest of log and table, and the one before it; count 0: there is none */
	uint64_t term, last_index, last_term;
	uint64_t commit, applied; /* commit: as far as is known here */
	int64_t written_ns;       /* wall time of the newest change in the log that says it; 0: none does */
};

struct force_plan {
	uint64_t term;
	struct raft_config config; /* but its index */
	char word[FORCE_WORD_BYTES]; /* what confirms: of these facts, and no others */
};

/*
 * ERR_NOENT: it has nothing to go on with; ERR_PERM: the group goes on, or went on, without it; ERR_EXIST: it needs no other as it is; ERR_RANGE:
 * numbers are used up.
 */
int force_decide(const struct force_facts *facts, struct force_plan *ret_plan, struct err *err);

/* For the operator, before anything is done: what is known, who is dropped, what may be lost. founders: where they are, if the log does not say it. mem_free it. */
char *force_report(const struct force_facts *facts, const struct force_plan *plan, const struct rpc_addrs *founders);

#endif
