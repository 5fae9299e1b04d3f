// SPDX-License-Identifier: Apache-2.0
/*
 * io_addr: numeric addresses as text and as the kernel's structures. Names are never resolved: that blocks and may
 * lie.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include "common/io/io.h"
#include "common/io/io_real.h"

static int io_addr_parse_port(const char *text, uint16_t *ret_port)
{
	uint32_t port = 0;

	if (!*text || strlen(text) > 5)
		return ERR_INVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return ERR_INVAL;
		port = port * 10 + (uint32_t)(*text - '0');
	}
	if (port > UINT16_MAX)
		return ERR_INVAL;
	*ret_port = (uint16_t)port;
	return 0;
}

int io_addr_parse(const char *text, struct io_addr *ret_addr)
{
	struct io_addr addr = {0};
	char host[IO_ADDR_TEXT_BYTES];
	const char *colon = strrchr(text, ':');
	bool is_v6 = text[0] == '[';
	size_t len;

	if (!colon)
		return ERR_INVAL;
	len = (size_t)(colon - text);
	if (is_v6) {
		if (len < 3 || text[len - 1] != ']')
			return ERR_INVAL;
		text++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof(host))
		return ERR_INVAL;
	memcpy(host, text, len);
	host[len] = 0;
	addr.family = is_v6 ? 6 : 4;
	if (inet_pton(is_v6 ? AF_INET6 : AF_INET, host, addr.ip) != 1)
		return ERR_INVAL;
	if (io_addr_parse_port(colon + 1, &addr.port))
		return ERR_INVAL;
	*ret_addr = addr;
	return 0;
}

const char *io_addr_format(const struct io_addr *addr, char text[IO_ADDR_TEXT_BYTES])
{
	char host[INET6_ADDRSTRLEN] = "";

	if (addr->family == 4) {
		(void)inet_ntop(AF_INET, addr->ip, host, sizeof(host));
		snprintf(text, IO_ADDR_TEXT_BYTES, "%s:%u", host, addr->port);
	} else if (addr->family == 6) {
		(void)inet_ntop(AF_INET6, addr->ip, host, sizeof(host));
		snprintf(text, IO_ADDR_TEXT_BYTES, "[%s]:%u", host, addr->port);
	} else {
		snprintf(text, IO_ADDR_TEXT_BYTES, "none");
	}
	return text;
}

bool io_addr_equal(const struct io_addr *a, const struct io_addr *b)
{
	return a->family == b->family && a->port == b->port && memcmp(a->ip, b->ip, a->family == 4 ? 4 : sizeof(a->ip)) == 0;
}

bool io_addr_is_loopback(const struct io_addr *addr)
{
	static const uint8_t v6_loopback[16] = {[15] = 1};
	static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (addr->family == 4)
		return addr->ip[0] == 127;
	if (addr->family != 6)
		return false;
	if (!memcmp(addr->ip, v6_loopback, 16))
		return true;
	return !memcmp(addr->ip, v4_mapped, 12) && addr->ip[12] == 127;
}

socklen_t io__addr_to_os(const struct io_addr *addr, struct sockaddr_in6 *ret_sa)
{
	memset(ret_sa, 0, sizeof(*ret_sa));
	if (addr->family == 6) {
		ret_sa->sin6_family = AF_INET6;
		ret_sa->sin6_port = htons(addr->port);
		memcpy(&ret_sa->sin6_addr, addr->ip, 16);
		return sizeof(*ret_sa);
	} else {
		struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(addr->port)};

		memcpy(&v4.sin_addr, addr->ip, 4);
		memcpy(ret_sa, &v4, sizeof(v4));
		return sizeof(v4);
	}
}

void io__addr_from_os(const struct sockaddr_in6 *sa, struct io_addr *ret_addr)
{
	*ret_addr = (struct io_addr){0};
	if (sa->sin6_family == AF_INET6) {
		ret_addr->family = 6;
		ret_addr->port = ntohs(sa->sin6_port);
		memcpy(ret_addr->ip, &sa->sin6_addr, 16);
	} else if (sa->sin6_family == AF_INET) {
		struct sockaddr_in v4;

		memcpy(&v4, sa, sizeof(v4));
		ret_addr->family = 4;
		ret_addr->port = ntohs(v4.sin_port);
		memcpy(ret_addr->ip, &v4.sin_addr, 4);
	}
}
