/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/force_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "common/base/buf.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "metad/raft_codec.h"

enum { REPORT_BYTES = 16 << 10 };
static const int64_t s_ns = 1000000000;

static const struct raft_member *find(const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return &config->members[i];
	return NULL;
}

static uint32_t voters(const struct raft_config *config)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < config->count; i++)
		count += config->members[i].voter;
	return count;
}

/* A removal that is not known as committed may never have been. */
static const struct raft_member *self(const struct force_facts *f)
{
	const struct raft_member *member = find(&f->config, f->id);

	return member || f->config.index <= f->commit ? member : find(&f->before, f->id);
}

static void make_word(const struct force_facts *f, char word[FORCE_WORD_BYTES])
{
	uint8_t bytes[sizeof(f->cluster.bytes) + 8 * (4 + RAFT_MEMBERS_MAX)];
	struct wcursor w;

	wcursor_init(&w, bytes, sizeof(bytes));
	wcursor_bytes(&w, f->cluster.bytes, sizeof(f->cluster.bytes));
	wcursor_u64(&w, f->id);
	wcursor_u64(&w, f->last_index);
	wcursor_u64(&w, f->last_term);
	wcursor_u64(&w, f->config.index);
	for (uint32_t i = 0; i < f->config.count; i++)
		wcursor_u64(&w, f->config.members[i].id);
	CHECK(!w.failed);
	snprintf(word, FORCE_WORD_BYTES, "%08" PRIx32, crc32c(bytes, w.len));
}

int force_decide(const struct force_facts *f, struct force_plan *ret_plan, struct err *err)
{
	const struct raft_member *member = self(f);

	if (f->config.count == 0)
		return err_set(err, ERR_NOENT, "%s holds a replica that no group has taken in yet: it has nothing to go on with", f->dir);
	if (!member)
		return err_set(err, ERR_PERM,
			"%s: entry %" PRIu64 " has removed replica %" PRIu64 " from the group, which went on without it: look for the directory of one that stayed",
			f->dir, f->config.index, f->id);
	if (voters(&f->config) == 1 && member->voter && find(&f->config, f->id))
		return err_set(err, ERR_EXIST,
			"%s: replica %" PRIu64 " is the only one that votes, and needs no other: start it as it is; nothing was changed", f->dir, f->id);
	if (f->term + FORCE_TERM_JUMP >= RAFT_TERM_MAX)
		return err_set(err, ERR_RANGE, "%s: term %" PRIu64 " leaves no room for another one", f->dir, f->term);
	*ret_plan = (struct force_plan){.term = f->term + FORCE_TERM_JUMP};
	ret_plan->config.count = 1;
	ret_plan->config.members[0] = *member;
	ret_plan->config.members[0].voter = true;
	ret_plan->config.last_id = ((f->config.last_id + RAFT_NUMBERS_APART - 1) / FORCE_NUMBERS + 1) * FORCE_NUMBERS;
	make_word(f, ret_plan->word);
	return 0;
}

/* ---- report ---- */

static void say_time(struct buf *b, int64_t ns)
{
	time_t s = (time_t)(ns / s_ns);
	char text[32];
	struct tm utc;

	if (ns <= 0 || !gmtime_r(&s, &utc) || !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &utc))
		return;
	buf_printf(b, "; the newest change with a time is of %s UTC", text);
}

static void say_member(struct buf *b, const struct raft_member *member, const struct rpc_addrs *founders)
{
	char text[IO_ADDR_TEXT_BYTES] = "address not known";
	struct io_addr addr;

	if (raft_place_get(member->place, &addr))
		io_addr_format(&addr, text);
	else if (member->id <= founders->count)
		io_addr_format(&founders->addrs[member->id - 1], text);
	buf_printf(b, "  metad-%" PRIu64 "  %s%s\n", member->id, text, member->voter ? "" : "  (does not vote)");
}

static void say_known(struct buf *b, const struct force_facts *f)
{
	char cluster[UUID_TEXT_BYTES];

	uuid_format(&f->cluster, cluster);
	buf_printf(b, "%s holds replica %" PRIu64 " of cluster %s.\n", f->dir, f->id, cluster);
	buf_printf(b, "Its last entry is %" PRIu64 " of term %" PRIu64, f->last_index, f->last_term);
	say_time(b, f->written_ns);
	buf_printf(b, ".\nIt knows term %" PRIu64 ", and entries up to %" PRIu64 " as committed; %" PRIu64 " are applied.\n", f->term, f->commit, f->applied);
	if (!find(&f->config, f->id))
		buf_printf(b, "Entry %" PRIu64 " removes it, and may never have been committed.\n", f->config.index);
	else if (!find(&f->config, f->id)->voter)
		buf_printf(b, "It did not vote yet: it may lack much.\n");
}

char *force_report(const struct force_facts *f, const struct force_plan *plan, const struct rpc_addrs *founders)
{
	struct buf b;
	char *text;

	buf_init(&b, REPORT_BYTES);
	say_known(&b, f);
	buf_printf(&b, "\n--force-config makes it the only member of its group, with all its entries, in term %" PRIu64 ". These are dropped for good:\n", plan->term);
	for (uint32_t i = 0; i < f->config.count; i++)
		if (f->config.members[i].id != f->id)
			say_member(&b, &f->config.members[i], founders);
	buf_printf(&b,
		"\nThat it was removed from its group after its last entry it may not know: then go on with one that stayed.\n"
		"What only they have is lost, acknowledged or not: whether there is any cannot be seen from here. If another replica is left, look at it in the\n"
		"same way before, and go on with the one whose last entry has the greater term, of equal ones the greater index. If a majority can still be\n"
		"started, start that instead. What the lost ones gave away is not given again: the state goes on as after a restore. Clients that\n"
		"were at work get errors, disks register again, and copies that no row names stay for restore.hold.\n"
		"\nNone of those that are dropped may ever be started again with its old directory. Empty it, and add the metad under a new number\n"
		"(--join, `craton meta add`); numbers go on at %" PRIu64 ".\n",
		plan->config.last_id + 1);
	CHECK(!b.failed);
	text = mem_printf("%.*s", (int)b.len, (const char *)b.data);
	buf_fini(&b);
	return text;
}
