/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT_MIN = 20000, PORT_COUNT = 12000, PORT_TRIES = 200 };

int ports_try(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1, r = ERR_OK;

	if (fd < 0)
		return err_from_errno(errno);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 1) < 0)
		r = err_from_errno(errno);
	close(fd);
	return r;
}

static bool is_among(uint16_t port, const uint16_t *ports, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (ports[i] == port)
			return true;
	return false;
}

int ports_choose(uint16_t *ret_ports, size_t count, struct err *err)
{
	size_t found = 0;

	for (int i = 0; i < PORT_TRIES && found < count; i++) {
		uint16_t random;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return err_set(err, ERR_IO, "cannot get random bytes: %s", strerror(errno));
		ret_ports[found] = (uint16_t)(PORT_MIN + random % PORT_COUNT);
		if (!is_among(ret_ports[found], ret_ports, found) && ports_try(ret_ports[found]) == ERR_OK)
			found++;
	}
	if (found < count)
		return err_set(err, ERR_ADDRINUSE, "no free port was found on 127.0.0.1 from %d to %d: end what uses them", PORT_MIN,
		               PORT_MIN + PORT_COUNT - 1);
	return ERR_OK;
}
