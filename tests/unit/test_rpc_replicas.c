/* SPDX-License-Identifier: Apache-2.0 */
/* Whom to ask: lists of addresses, and what is made of answers. */
#include <stdio.h>
#include "common/io/io_sim.h"
#include "common/rpc/replicas.h"
#include "tests/lib/unit.h"

static struct sim *sim;
static struct rpc_replicas *replicas;
static bool closed;

static void open_three(void)
{
	const struct rpc_peer_options options = {.self = {.role = RPC_ROLE_CLIENT, .name = "test"}, .conns = 1};
	struct rpc_addrs addrs;

	ck_assert_int_eq(rpc_addrs_parse("10.0.0.1:7000,10.0.0.2:7000, 10.0.0.3:7000", &addrs), 0);
	sim = sim_new(&(struct sim_options){.seed = 1});
	replicas = rpc_replicas_new(sim_host_add(sim, "client", 1 << 20), &addrs, &options);
}

static void on_closed(void *ctx)
{
	(void)ctx;
	closed = true;
}

static bool is_closed(void *ctx)
{
	(void)ctx;
	return closed;
}

static void close_three(void)
{
	rpc_replicas_close(replicas, on_closed, NULL);
	ck_assert(sim_run(sim, is_closed, NULL, UINT64_MAX));
	sim_free(sim);
}

static const char *asked(void)
{
	static char text[IO_ADDR_TEXT_BYTES];

	return io_addr_format(rpc_peer_addr(rpc_replicas_peer(replicas)), text);
}

/* The call to whoever is asked now ends so. */
static bool ends(int status, const char *leader)
{
	struct rpc_call call = {0};

	if (leader)
		ck_assert_int_eq(io_addr_parse(leader, &call.leader), 0);
	return rpc_replicas_note(replicas, rpc_replicas_peer(replicas), status, &call);
}

START_TEST(test_lists)
{
	static const char *const wrong[] = {"", ",", "10.0.0.1", "10.0.0.1:1,", "10.0.0.1:1 10.0.0.2:1", "10.0.0.1:1,,10.0.0.2:1",
		"1.0.0.1:1,111111111111111111111111111111111111111111111111111111111111111111111:1"};
	char text[RPC_ADDRS_TEXT_BYTES];
	struct rpc_addrs addrs;

	ck_assert_int_eq(rpc_addrs_parse(" 10.0.0.1:7000 ,[::1]:7001,\t10.0.0.3:7000 ", &addrs), 0);
	ck_assert_uint_eq(addrs.count, 3);
	rpc_addrs_format(&addrs, text);
	ck_assert_str_eq(text, "10.0.0.1:7000, [::1]:7001, 10.0.0.3:7000");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(rpc_addrs_parse(wrong[i], &addrs) == ERR_INVAL, "%s", wrong[i]);
	ck_assert_int_eq(rpc_addrs_parse("10.0.0.1:1, 10.0.0.1:1", &addrs), ERR_EXIST);
	ck_assert_int_eq(rpc_addrs_parse("1.0.0.1:1,1.0.0.2:1,1.0.0.3:1,1.0.0.4:1,1.0.0.5:1,1.0.0.6:1", &addrs), ERR_MSGSIZE);
}
END_TEST

START_TEST(test_whom_to_ask)
{
	open_three();
	ck_assert_str_eq(asked(), "10.0.0.1:7000");
	ck_assert(!ends(0, NULL));
	ck_assert(!ends(ERR_NOENT, NULL)); /* an answer like any other */
	ck_assert_str_eq(asked(), "10.0.0.1:7000");
	ck_assert(ends(ERR_NOT_LEADER, "10.0.0.3:7000"));
	ck_assert_str_eq(asked(), "10.0.0.3:7000");
	ck_assert(!ends(ERR_CONNREFUSED, NULL));
	ck_assert_str_eq(asked(), "10.0.0.1:7000");
	ck_assert(!ends(ERR_TIMEDOUT, NULL));
	ck_assert_str_eq(asked(), "10.0.0.2:7000");
	close_three();
}
END_TEST

/* Whoever is asked first may be a host that is gone, or one that is far away. */
START_TEST(test_patience)
{
	const uint64_t usual_ns = 10 * RPC_REPLICAS_KNOCK_NS;

	open_three();
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(rpc_replicas_patience_ns(replicas, usual_ns), RPC_REPLICAS_KNOCK_NS);
		ck_assert_uint_eq(rpc_replicas_patience_ns(replicas, 1), 1);
		ends(ERR_TIMEDOUT, NULL);
	}
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(rpc_replicas_patience_ns(replicas, usual_ns), 2 * RPC_REPLICAS_KNOCK_NS);
		ends(ERR_CONNREFUSED, NULL);
	}
	for (int i = 0; i < 300; i++)
		ends(ERR_HOSTUNREACH, NULL);
	ck_assert_uint_eq(rpc_replicas_patience_ns(replicas, usual_ns), usual_ns);
	ends(ERR_NOT_LEADER, NULL);
	ck_assert_uint_eq(rpc_replicas_patience_ns(replicas, usual_ns), RPC_REPLICAS_KNOCK_NS);
	close_three();
}
END_TEST

/* A group changes while its clients run: who leads may be one that the configuration does not have. */
START_TEST(test_one_that_was_added)
{
	open_three();
	ck_assert(ends(ERR_NOT_LEADER, "10.0.0.4:7000"));
	ck_assert_str_eq(asked(), "10.0.0.4:7000");
	ck_assert_uint_eq(rpc_replicas_count(replicas), 4);
	ck_assert(!ends(ERR_CONNREFUSED, NULL));
	ck_assert_str_eq(asked(), "10.0.0.1:7000");
	ck_assert_uint_eq(rpc_replicas_count(replicas), 4); /* it is asked again in its turn */
	close_three();
}
END_TEST

START_TEST(test_all_that_there_are)
{
	char *const first[] = {"10.0.0.1:7000", "10.0.0.4:7000", "10.0.0.5:7000"}, *const then[] = {"10.0.0.4:7000", "10.0.0.6:7000"};
	char *const none[] = {"", "nowhere"};

	open_three();
	rpc_replicas_learn(replicas, first, 3);
	ck_assert_uint_eq(rpc_replicas_count(replicas), 5);
	rpc_replicas_learn(replicas, none, 2);
	ck_assert_uint_eq(rpc_replicas_count(replicas), 5);
	for (int i = 0; i < 4; i++)
		ends(ERR_CONNREFUSED, NULL);
	ck_assert_str_eq(asked(), "10.0.0.5:7000");
	rpc_replicas_learn(replicas, then, 2);
	ck_assert_uint_eq(rpc_replicas_count(replicas), 5); /* the configuration's, 4 and 6 */
	ck_assert_str_eq(asked(), "10.0.0.5:7000"); /* who was asked is, until that fails */
	ends(ERR_CONNREFUSED, NULL);
	ck_assert_str_eq(asked(), "10.0.0.6:7000");
	for (int i = 0; i < 5; i++) {
		ends(ERR_CONNREFUSED, NULL);
		ck_assert_str_ne(asked(), "10.0.0.5:7000");
	}
	close_three();
}
END_TEST

/* However often a group changes: what is not named any more makes room. */
START_TEST(test_many_changes)
{
	char text[IO_ADDR_TEXT_BYTES], *const texts[] = {text};

	open_three();
	for (int i = 10; i < 100; i++) {
		snprintf(text, sizeof(text), "10.0.0.%d:7000", i);
		rpc_replicas_learn(replicas, texts, 1);
		ck_assert_uint_eq(rpc_replicas_count(replicas), 4);
		while (ends(ERR_NOT_LEADER, text))
			;
		ck_assert(!ends(0, NULL));
	}
	close_three();
}
END_TEST

/* Many calls fail together: the first of them has changed whom to ask. */
START_TEST(test_calls_that_fail_together)
{
	struct rpc_call call = {0};
	struct rpc_peer *first;

	open_three();
	first = rpc_replicas_peer(replicas);
	for (int i = 0; i < 5; i++)
		rpc_replicas_note(replicas, first, ERR_CONNRESET, &call);
	ck_assert_str_eq(asked(), "10.0.0.2:7000");
	close_three();
}
END_TEST

/* In an election: nobody leads, and each of many calls waits before it asks the next one. Where one was named they all go at once. */
START_TEST(test_calls_that_are_refused_together)
{
	struct rpc_call call = {0};
	struct rpc_peer *first;

	open_three();
	for (int round = 0; round < 6; round++) {
		first = rpc_replicas_peer(replicas);
		for (int i = 0; i < 5; i++)
			ck_assert(!rpc_replicas_note(replicas, first, ERR_NOT_LEADER, &call));
	}
	ck_assert_str_eq(asked(), "10.0.0.1:7000");
	first = rpc_replicas_peer(replicas);
	ck_assert(ends(ERR_NOT_LEADER, "10.0.0.3:7000"));
	for (int i = 0; i < 5; i++)
		ck_assert(rpc_replicas_note(replicas, first, ERR_NOT_LEADER, &call));
	ck_assert_str_eq(asked(), "10.0.0.3:7000");
	close_three();
}
END_TEST

/* One of the addresses is that of another store, or of an older release: the next one is asked. */
START_TEST(test_strangers)
{
	open_three();
	ck_assert(!ends(ERR_WRONG_CLUSTER, NULL));
	ck_assert_str_eq(asked(), "10.0.0.2:7000");
	ck_assert(!ends(ERR_VERSION, NULL));
	ck_assert_str_eq(asked(), "10.0.0.3:7000");
	ck_assert(!rpc_replicas_all_strange(replicas));
	ck_assert(!ends(ERR_CONNREFUSED, NULL));
	ck_assert(!ends(ERR_TIMEDOUT, NULL)); /* what that one is was said before */
	ck_assert(!ends(ERR_WRONG_CLUSTER, NULL));
	ck_assert(!rpc_replicas_all_strange(replicas));
	ck_assert(!ends(ERR_WRONG_CLUSTER, NULL));
	ck_assert(rpc_replicas_all_strange(replicas));
	ck_assert(!ends(0, NULL)); /* another address leads elsewhere now */
	ck_assert(!rpc_replicas_all_strange(replicas));
	close_three();
}
END_TEST

/* Two that name each other: after some tries the caller waits before the next. */
START_TEST(test_two_that_name_each_other)
{
	int at_once = 0;

	open_three();
	while (ends(ERR_NOT_LEADER, at_once % 2 ? "10.0.0.1:7000" : "10.0.0.2:7000"))
		ck_assert_int_le(++at_once, 3);
	ck_assert_int_ge(at_once, 1);
	close_three();
}
END_TEST

UNIT_MAIN("rpc_replicas", test_lists, test_whom_to_ask, test_patience, test_one_that_was_added, test_all_that_there_are, test_many_changes,
	test_calls_that_fail_together, test_calls_that_are_refused_together, test_strangers, test_two_that_name_each_other)
