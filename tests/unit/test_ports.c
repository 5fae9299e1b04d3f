/* SPDX-License-Identifier: Apache-2.0 */
/* ports: none twice, and none that somebody uses. */
#include "client/cli/ports.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/lib/unit.h"

static uint16_t drawn, stays; /* how often each number is drawn, one after the other */

/* In the place of the C library's. */
ssize_t getrandom(void *buf, size_t len, unsigned flags)
{
	uint16_t number = (uint16_t)(drawn++ / stays);

	(void)flags;
	ck_assert_uint_eq(len, sizeof(number));
	memcpy(buf, &number, sizeof(number));
	return (ssize_t)len;
}

START_TEST(test_none_comes_twice)
{
	uint16_t ports[5];
	struct err err = {0};

	drawn = 0;
	stays = 3;
	ck_assert_msg(ports_choose(ports, 5, &err) == 0, "%s", err.text);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(ports_try(ports[i]), 0);
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(ports[i], ports[j]);
	}
}
END_TEST

START_TEST(test_one_in_use_is_passed_over)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	uint16_t port, other;
	struct err err = {0};

	drawn = 4000;
	stays = 1;
	ck_assert_int_eq(ports_choose(&port, 1, &err), 0);
	sa.sin_port = htons(port);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(ports_try(port), ERR_ADDRINUSE);
	drawn--;
	ck_assert_int_eq(ports_choose(&other, 1, &err), 0);
	ck_assert_uint_ne(port, other);
	close(fd);
}
END_TEST

START_TEST(test_none_is_found)
{
	uint16_t ports[2];
	struct err err = {0};

	drawn = 0;
	stays = 1000; /* the first one, again and again */
	ck_assert_int_eq(ports_choose(ports, 2, &err), ERR_ADDRINUSE);
	ck_assert_ptr_nonnull(strstr(err.text, "no free port"));
}
END_TEST

UNIT_MAIN("ports", test_none_comes_twice, test_one_in_use_is_passed_over, test_none_is_found)
