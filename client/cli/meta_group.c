/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/meta_group.h"

#include <stdio.h>
#include <string.h>

#include "client/cli/process.h"
#include "common/base/check.h"
#include "common/io/io.h"

enum { SAY_TIMEOUT_MS = 5000, POLL_MS = 100, CATCH_UP_MS = 10 * 60 * 1000, DOWN_MS = 15 * 1000, LEADER_MS = 10 * 1000 }; /* without --timeout: whoever looks at a group that is in trouble wants to know soon */

struct meta_group_action {
	const char *name;
	int max_words;
	bool must; /* name somebody */
	enum cr_meta_action action;
	const char *words; /* that it expects */
};

static const struct meta_group_action actions[] = {
	{"ls", 1, false, CR_META_SAY, "ls expects nothing more"},
	{"transfer", 2, false, CR_META_TRANSFER, "transfer expects the NAME of who is to lead, or nothing"},
	{"add", 2, true, CR_META_ADD, "add expects the IP:PORT of a metad that was started with --replica N --join"},
	{"remove", 2, true, CR_META_REMOVE, "remove expects the NAME of a metad (craton meta ls)"},
	{"snapshot", 1, false, CR_META_SNAPSHOT, "snapshot expects nothing more"},
};

const struct meta_group_action *meta_group_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_COUNT(actions); i++)
		if (!strcmp(actions[i].name, name))
			return &actions[i];
	return NULL;
}

static void member_json(struct json *j, const struct cr_member *m)
{
	json_object(j, NULL);
	json_u64(j, "id", m->id);
	json_str(j, "name", m->name);
	json_str(j, "address", m->address);
	json_str(j, "role", m->role);
	json_str(j, "state", m->state);
	json_u64(j, "term", m->term);
	json_u64(j, "applied", m->applied);
	json_u64(j, "match", m->match);
	json_u64(j, "lag", m->lag);
	json_u64(j, "silent_ms", m->silent_ms);
	json_u64(j, "supports", m->supports);
	json_u64(j, "same", m->same);
	json_u64(j, "differs", m->differs);
	json_end_object(j);
}

static void print_json(const struct cr_members *members)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_u64(&j, "answered_by", members->answered_by);
	json_u64(&j, "leader", members->leader);
	json_u64(&j, "term", members->term);
	json_u64(&j, "commit", members->commit);
	json_u64(&j, "next_id", members->next_id);
	json_u64(&j, "cluster_version", members->cluster_version);
	json_array(&j, "replicas");
	for (uint32_t i = 0; i < members->count; i++)
		member_json(&j, &members->members[i]);
	json_end_array(&j);
	cli_json_end(&out, &j);
}

static void print_member(const struct cr_member *m)
{
	char silent[48] = "", supports[16] = "-";

	if (strcmp(m->state, "up") && m->silent_ms)
		snprintf(silent, sizeof(silent), "  silent for %llu s", (unsigned long long)(m->silent_ms / 1000));
	if (m->supports)
		snprintf(supports, sizeof(supports), "%u", m->supports);
	printf("%-10s %-21s %-9s %-7s %8llu %10llu %10llu %8s%s\n", m->name, m->address, m->role, m->state, (unsigned long long)m->term,
	       (unsigned long long)m->applied, (unsigned long long)m->lag, supports, silent);
}

static void print_differs(const struct cr_members *members, const struct cr_member *m)
{
	if (m->differs)
		printf("%s: what entries %llu to %llu changed there is not what they changed on metad-%llu: whoever has other metadata than most stops, and "
		       "is replaced; until most can say who has, nobody is added or brought up (docs/groups.md)\n", m->name, (unsigned long long)m->same + 1, (unsigned long long)m->differs,
		       (unsigned long long)members->answered_by);
}

/* What it waits for, if it is not at what the newest build knows. */
static void print_version(const struct cr_members *members)
{
	uint32_t newest = members->cluster_version;

	for (uint32_t i = 0; i < members->count; i++)
		newest = members->members[i].supports > newest ? members->members[i].supports : newest;
	if (members->cluster_version && newest > members->cluster_version)
		printf("cluster version %u; it rises as soon as all metads are up and support more\n", members->cluster_version);
	else if (members->cluster_version)
		printf("cluster version %u\n", members->cluster_version);
}

static void print_text(const struct cr_members *members)
{
	printf("%-10s %-21s %-9s %-7s %8s %10s %10s %8s\n", "METAD", "ADDRESS", "ROLE", "STATE", "TERM", "APPLIED", "LAG", "SUPPORTS");
	for (uint32_t i = 0; i < members->count; i++)
		print_member(&members->members[i]);
	for (uint32_t i = 0; i < members->count; i++)
		print_differs(members, &members->members[i]);
	print_version(members);
	if (!members->leader && members->answered_by)
		printf("nobody leads, as far as metad-%llu knows: most of them must be up, and reach each other\n",
		       (unsigned long long)members->answered_by);
}

static const struct cr_member *member_at(const struct cr_members *members, const char *address)
{
	struct io_addr wanted, addr;

	if (io_addr_parse(address, &wanted) < 0)
		return NULL;
	for (uint32_t i = 0; i < members->count; i++)
		if (io_addr_parse(members->members[i].address, &addr) == 0 && io_addr_equal(&addr, &wanted))
			return &members->members[i];
	return NULL;
}

const struct cr_member *meta_group_member(const struct cr_members *members, const char *name)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (!strcmp(members->members[i].name, name))
			return &members->members[i];
	return NULL;
}

int meta_group_wait(struct cli *cli, const char *name, const struct meta_group_waiting *waiting, struct cr_members *members)
{
	uint64_t now_ms = process_clock_ms(), deadline_ms = now_ms + CATCH_UP_MS, up_ms = now_ms;
	const struct cr_member *m;

	while ((m = meta_group_member(members, name)) && (strcmp(m->state, "up") || !strcmp(m->role, "learner"))) {
		now_ms = process_clock_ms();
		if (strcmp(m->state, "down")) /* without a leader nobody knows */
			up_ms = now_ms;
		if (now_ms > deadline_ms)
			return cli_fail(cli, "%s was added and still catches up: it votes as soon as it has; see `craton meta ls`", name);
		if (now_ms > up_ms + DOWN_MS)
			return cli_fail(cli, "%s was added and does not answer any more: look at its log, or remove it", name);
		if (waiting)
			waiting->on_wait(waiting->ctx, name);
		process_sleep_ms(POLL_MS);
		if (cr_meta_members(cli->store, CR_META_SAY, NULL, members) < 0)
			return cli_fail(cli, "%s", cr_error());
	}
	return m ? CLI_OK : cli_fail(cli, "%s was removed from the group meanwhile", name);
}

static int add(struct cli *cli, const char *address, struct cr_members *ret_members)
{
	const struct cr_member *m;
	char name[sizeof(m->name)];

	if (cr_meta_members(cli->store, CR_META_ADD, address, ret_members) < 0)
		return cli_fail(cli, "%s", cr_error());
	m = member_at(ret_members, address);
	if (!m)
		return cli_fail(cli, "the metad at %s was removed from the group meanwhile", address);
	snprintf(name, sizeof(name), "%s", m->name);
	return meta_group_wait(cli, name, NULL, ret_members);
}

/* Who led answers before the next one is known to lead. */
static int wait_for_leader(struct cli *cli, struct cr_members *members)
{
	uint64_t deadline_ms = process_clock_ms() + LEADER_MS;

	while (!members->leader && process_clock_ms() < deadline_ms) {
		process_sleep_ms(POLL_MS);
		if (cr_meta_members(cli->store, CR_META_SAY, NULL, members) < 0)
			return cli_fail(cli, "%s", cr_error());
	}
	return members->leader || !members->answered_by ? CLI_OK : cli_fail(cli, "it leads no longer, and nobody else does yet: see `craton meta ls`");
}

int meta_group_run(struct cli *cli, const struct meta_group_action *action)
{
	struct cr_members members;
	int exit_code;

	if (cli->word_count > action->max_words || (action->must && cli->word_count < 2))
		return cli_usage(cli, "%s", action->words);
	if (action->action == CR_META_SAY) {
		cli->no_hello = true; /* without a leader there is no other answer */
		cli->timeout_ms = cli->timeout_ms ? cli->timeout_ms : SAY_TIMEOUT_MS;
	}
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	if (action->action == CR_META_ADD)
		exit_code = add(cli, cli->words[1], &members);
	else if (cr_meta_members(cli->store, action->action, cli->word_count > 1 ? cli->words[1] : NULL, &members) < 0)
		exit_code = cli_fail(cli, "%s", cr_error());
	if (exit_code != CLI_OK)
		return exit_code;
	if (action->action == CR_META_TRANSFER && (exit_code = wait_for_leader(cli, &members)) != CLI_OK)
		return exit_code;
	if (cli->json)
		print_json(&members);
	else
		print_text(&members);
	return CLI_OK;
}
