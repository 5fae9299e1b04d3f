// SPDX-License-Identifier: Apache-2.0
/* io_sock: making, binding and ending TCP sockets; shared by the real back ends. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/io/io_real.h"

enum { IO_SOCK_BACKLOG = 4096 }; /* a whole training job connects at once; the kernel cuts it to somaxconn */

/*
 * Within one host there is no path to be gentle to, and pacing costs a timer for every few packets: a tenth of the CPU of a put. So where the
 * system's choice is one that paces, sockets begin with another: a connection that bbr had to itself for a moment only is paced for as
 * long as it lives, whatever it is told later. Any other choice is left alone: it costs nothing here, and one that negotiates in the first
 * packet (dctcp) must have both ends from the beginning.
 */
static const char unpaced[] = "cubic";

enum { IO_SOCK_CONGESTION_BYTES = 16 }; /* TCP_CA_NAME_MAX */

/* False: not to be had. */
static bool io_sock_congestion(int fd, char name[IO_SOCK_CONGESTION_BYTES])
{
	socklen_t len = IO_SOCK_CONGESTION_BYTES;

	memset(name, 0, IO_SOCK_CONGESTION_BYTES);
	return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0;
}

static bool io_sock_paces(const char *name)
{
	return strncmp(name, "bbr", 3) == 0; /* bbr2 and bbr3 likewise */
}

static void io_sock_unpace(int fd)
{
	char name[IO_SOCK_CONGESTION_BYTES];

	/* Not to be had everywhere; the connection works without. */
	if (io_sock_congestion(fd, name) && io_sock_paces(name))
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced, sizeof(unpaced) - 1);
}

/* Other paths get back what was taken off: the system's choice, which a new socket knows. A choice by route stands. */
static void io_sock_pace(int fd, int family)
{
	char name[IO_SOCK_CONGESTION_BYTES];
	int fresh;

	if (!io_sock_congestion(fd, name) || strcmp(name, unpaced) != 0)
		return;
	fresh = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fresh < 0)
		return;
	if (io_sock_congestion(fresh, name) && io_sock_paces(name))
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
	close(fresh);
}

int io_sock_open(const struct io_addr *to, bool is_nonblocking)
{
	int type = SOCK_STREAM | SOCK_CLOEXEC | (is_nonblocking ? SOCK_NONBLOCK : 0);
	int fd;

	if (to->family != 4 && to->family != 6)
		return ERR_INVAL;
	fd = socket(to->family == 6 ? AF_INET6 : AF_INET, type, 0);
	if (fd < 0)
		return io__err(errno);
	io_sock_unpace(fd); /* what a listener accepts begins as it is itself */
	return fd;
}

static int io_sock_ends(int fd, struct sockaddr_in6 *self, struct sockaddr_in6 *peer)
{
	socklen_t self_len = sizeof(*self), peer_len = sizeof(*peer);

	memset(self, 0, sizeof(*self));
	memset(peer, 0, sizeof(*peer));
	if (getsockname(fd, (struct sockaddr *)self, &self_len) || getpeername(fd, (struct sockaddr *)peer, &peer_len))
		return io__err(errno);
	return 0;
}

static void io_sock_tune(int fd, const struct sockaddr_in6 *self, const struct sockaddr_in6 *peer)
{
	struct io_addr from, to;
	int one = 1;

	io__addr_from_os(self, &from);
	io__addr_from_os(peer, &to);
	if (from.family != to.family || memcmp(from.ip, to.ip, sizeof(from.ip)) != 0)
		io_sock_pace(fd, self->sin6_family);
	/* Fails only if the peer is already gone, which the next operation reports. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void io_sock_accepted(int fd)
{
	struct sockaddr_in6 self, peer;

	/* Fails likewise. */
	if (io_sock_ends(fd, &self, &peer) == 0)
		io_sock_tune(fd, &self, &peer);
}

/*
 * A connect to a port of the ephemeral range where nobody listens can be given that same port as its source: TCP then connects the socket
 * to itself, and whoever should listen there never can again. Such a connection is a refused one.
 */
int io_sock_connected(int fd)
{
	struct sockaddr_in6 self, peer;
	int rc = io_sock_ends(fd, &self, &peer);

	if (rc < 0)
		return rc;
	if (memcmp(&self, &peer, sizeof(self)) == 0)
		return ERR_CONNREFUSED;
	io_sock_tune(fd, &self, &peer);
	return 0;
}

static int io_sock_bind(int fd, const struct io_addr *addr, struct io_addr *ret_bound)
{
	struct sockaddr_in6 sa;
	socklen_t len = io__addr_to_os(addr, &sa);
	int one = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		return io__err(errno);
	if (addr->family == 6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)))
		return io__err(errno);
	if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, IO_SOCK_BACKLOG))
		return io__err(errno);
	len = sizeof(sa);
	if (getsockname(fd, (struct sockaddr *)&sa, &len))
		return io__err(errno);
	io__addr_from_os(&sa, ret_bound);
	return 0;
}

int io_sock_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err)
{
	struct io_real *r = CONTAINER_OF(io, struct io_real, io);
	char text[IO_ADDR_TEXT_BYTES];
	int fd = io_sock_open(addr, r->is_nonblocking);
	int rc = fd < 0 ? fd : io_sock_bind(fd, addr, ret_bound);

	if (!rc) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return err_set(err, rc, "cannot listen on %s: %s", io_addr_format(addr, text), err_text(rc));
}

void io_sock_shutdown(struct io *io, int fd)
{
	(void)io;
	/* ENOTCONN: the peer was faster; pending operations have ended or end by that. */
	(void)shutdown(fd, SHUT_RDWR);
}
