/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount: the session with the kernel: mount, serve, end.
 *
 *   checked -> connected to the store -> mounted -> serving --signal--> detached (no new opens; the kernel ends the session when the
 *   last file is closed, or LIMIT_MOUNT_LINGER_MS do) -> all requests answered -> what was written is committed -> disconnected
 *
 * An unmount from outside, or an abort of the connection, enters behind "detached". A second signal ends the waiting for open files.
 *
 * Detaching is done by a thread of its own: it must never happen that the kernel wants something of us while we wait for the kernel.
 */
#include "client/mount/mount_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "client/mount/mount_table.h"
#include "common/base/check.h"
#include "common/base/mem.h"

enum { READ_AHEAD_KIB = 8192, BACKGROUND = 64, REQUESTS_A_TURN = 64 };

static int signal_fd = -1;
static char fuse_says[512]; /* the last thing that libfuse had to say */

static void on_signal(int number)
{
	uint64_t one = 1;
	ssize_t n = write(signal_fd, &one, sizeof(one));

	(void)number;
	(void)n; /* only a full counter fails */
}

static void on_fuse_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	if (level > FUSE_LOG_WARNING)
		return;
	vsnprintf(fuse_says, sizeof(fuse_says), fmt, ap);
	fuse_says[strcspn(fuse_says, "\n")] = '\0';
}

static int fail(char *ret_error, size_t error_bytes, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ret_error, error_bytes, fmt, ap);
	va_end(ap);
	return -1;
}

int mount_check_options(const char *options, char *ret_error, size_t error_bytes)
{
	static const char *const known[] = {"ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime",
		"atime", "sync", "async", "dirsync", "allow_other"};

	for (const char *s = options; s && *s;) {
		size_t n = strcspn(s, ","), i = 0;

		while (i < ARRAY_COUNT(known) && (strlen(known[i]) != n || memcmp(known[i], s, n)))
			i++;
		if (i == ARRAY_COUNT(known))
			return fail(ret_error, error_bytes,
				"unknown mount option '%.*s': known are ro, rw, nosuid, nodev, noexec, noatime, sync, dirsync and allow_other",
				n < 100 ? (int)n : 100, s);
		s += n;
		s += *s == ',';
	}
	return 0;
}

/* ---- the session ---- */

static void op_init(void *user, struct fuse_conn_info *conn)
{
	(void)user;
	conn->max_read = MOUNT_IO_BYTES;
	conn->max_write = conn->max_write < MOUNT_IO_BYTES ? conn->max_write : MOUNT_IO_BYTES;
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND / 4 * 3;
	/* Bytes go straight between the kernel and our buffers: pages through pipes gain nothing for what is coded anyway. */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
		FUSE_CAP_WRITEBACK_CACHE);
	conn->want |= conn->capable &
		(FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_PARALLEL_DIROPS |
			FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
}

/*
 * The kernel reads 128 KiB ahead of programs if nobody says more, in requests of that size. With more, its requests are whole cells, which
 * go straight into the buffers of their answers; where we may not say so (no root, /sys read-only), the library reads ahead instead.
 */
static void set_read_ahead(struct mount *m)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", m->device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	m->reads_ahead = dprintf(fd, "%d\n", READ_AHEAD_KIB) > 0;
	close(fd);
}

static void *detach(void *arg)
{
	const struct mount *m = arg;
	struct mount_entry e;
	int code = 0;

	if (mount_table_find(m->path, &e) && !strcmp(e.device, m->device))
		code = mount_table_unmount(m->path, true);
	if (code < 0)
		mount__log("cannot detach %s: %s", m->path, strerror(-code));
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum served { SERVED, NOTHING_THERE, SESSION_OVER };

static enum served serve_one(struct mount *m)
{
	struct mount_buf *b = mount__in_get(m);
	int n = fuse_session_receive_buf(m->session, &b->fuse);

	m->current = b;
	if (n > 0)
		fuse_session_process_buf(m->session, &b->fuse);
	if (m->current)
		mount__in_put(m, b);
	m->current = NULL;
	if (n > 0 && !m->initialized) {
		m->initialized = true;
		set_read_ahead(m);
	}
	if (n > 0 || n == -EINTR)
		return SERVED;
	return n == -EAGAIN ? NOTHING_THERE : SESSION_OVER;
}

static void wait_for_room(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	while (m->requests >= LIMIT_MOUNT_REQUESTS)
		pthread_cond_wait(&m->freed, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/*
 * The kernel's end: whoever still waits there gets ENOTCONN. libfuse closes the connection only together with an unmount, which has been
 * done; it leaves that out where poll says POLLERR, as for a connection that is broken. So does the end of a pipe that nobody reads.
 */
static void break_connection(struct mount *m)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return; /* no descriptors: then the end of the process breaks it */
	close(fds[0]);
	dup2(fds[1], fuse_session_fd(m->session));
	close(fds[1]);
}

static void serve(struct mount *m)
{
	struct pollfd fds[2] = {
		{.fd = fuse_session_fd(m->session), .events = POLLIN},
		{.fd = signal_fd, .events = POLLIN},
	};
	int64_t end_ms = 0; /* detached: until then */
	pthread_t thread;
	enum served served = SERVED;
	bool detaching = false;

	while (served != SESSION_OVER && !fuse_session_exited(m->session)) {
		int64_t left_ms = end_ms ? end_ms - now_ms() : -1;
		uint64_t signals;

		if (end_ms && left_ms <= 0)
			break;
		if (poll(fds, 2, (int)left_ms) < 0 && errno != EINTR)
			break;
		if (fds[1].revents && read(signal_fd, &signals, sizeof(signals)) == (ssize_t)sizeof(signals)) {
			if (end_ms)
				break;
			end_ms = now_ms() + LIMIT_MOUNT_LINGER_MS;
			detaching = pthread_create(&thread, NULL, detach, m) == 0;
		}
		for (int i = 0; fds[0].revents && i < REQUESTS_A_TURN; i++) {
			wait_for_room(m);
			served = serve_one(m);
			if (served != SERVED)
				break;
		}
	}
	if (detaching) {
		break_connection(m);
		pthread_join(thread, NULL);
	}
}

static void wait_for_answers(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	while (m->requests > 0)
		pthread_cond_wait(&m->freed, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/* ---- before ---- */

static int set_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};

	signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signal_fd < 0)
		return -errno;
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	return 0;
}

static int check_directory(const char *path, char *ret_error, size_t error_bytes)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	int code = 0;

	if (!dir)
		return fail(ret_error, error_bytes, "%s: %s", path, strerror(errno));
	while (code == 0 && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			code = fail(ret_error, error_bytes,
				"%s is not empty: give an empty directory, what is in it would be hidden", path);
	closedir(dir);
	return code;
}

/* 0: the store can be mounted there, as far as can be seen. */
static int check_place(const char *given, char **ret_path, char *ret_error, size_t error_bytes)
{
	struct mount_entry e;
	char *path = mount_table_path(given);
	int code = 0;

	if (!path)
		return fail(ret_error, error_bytes,
			errno == ENOENT ? "%s does not exist: make it with `mkdir -p`" : "%s: %s", given,
			strerror(errno));
	if (mount_table_find(path, &e) && !strcmp(e.fstype, MOUNT_FSTYPE))
		code = fail(ret_error, error_bytes,
			"a store is mounted on %s already: `craton umount %s` ends that mount, dead or alive", path,
			path);
	else
		code = check_directory(path, ret_error, error_bytes);
	if (code == 0 && access("/dev/fuse", F_OK) < 0)
		code = fail(ret_error, error_bytes,
			"/dev/fuse is missing: load the kernel's module with `modprobe fuse`, or give the container --device /dev/fuse");
	if (code == 0 && access("/dev/fuse", R_OK | W_OK) < 0)
		code = fail(ret_error, error_bytes, "/dev/fuse: %s: it must be readable and writable", strerror(errno));
	if (code < 0)
		free(path);
	else
		*ret_path = path;
	return code;
}

/* What share of the raw space a user's bytes can have: that of the root's policy, "rs-K-M". */
static void learn_policy(struct mount *m)
{
	char name[16];
	unsigned k, parity;

	m->data_chunks = m->chunks = 1;
	if (cr_policy_get(m->store, "/", name, sizeof(name)) == 0 && sscanf(name, "rs-%u-%u", &k, &parity) == 2 &&
		k > 0) {
		m->data_chunks = k;
		m->chunks = k + parity;
	}
}

static int open_session(struct mount *m, const struct mount_options *o, char *ret_error, size_t error_bytes)
{
	struct fuse_lowlevel_ops ops = {.init = op_init};
	char options[1024], *argv[] = {"craton", "-o", options, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct mount_entry e;

	snprintf(options, sizeof(options), "fsname=craton,subtype=craton,default_permissions,max_read=%d%s%s%s",
		MOUNT_IO_BYTES, o->allow_other ? ",allow_other" : "", o->options && *o->options ? "," : "",
		o->options ? o->options : "");
	mount__name_ops(&ops);
	mount__dir_ops(&ops);
	mount__file_ops(&ops);
	mount__xattr_ops(&ops);
	fuse_set_log_func(on_fuse_log);
	m->session = fuse_session_new(&args, &ops, sizeof(ops), m);
	fuse_opt_free_args(&args);
	if (!m->session)
		return fail(ret_error, error_bytes, "cannot start a FUSE session: %s", fuse_says);
	if (fuse_session_mount(m->session, m->path) != 0)
		return fail(ret_error, error_bytes, "cannot mount on %s: %s", m->path,
			fuse_says[0] ? fuse_says : "the kernel refused; are you root, and is fusermount3 there?");
	fcntl(fuse_session_fd(m->session), F_SETFL, fcntl(fuse_session_fd(m->session), F_GETFL) | O_NONBLOCK);
	if (mount_table_find(m->path, &e))
		snprintf(m->device, sizeof(m->device), "%s", e.device);
	return 0;
}

static int connect_store(struct mount *m, const struct mount_options *o, char *ret_error, size_t error_bytes)
{
	struct cr_options options = {.config = o->config, .timeout_ms = o->timeout_ms};

	if (cr_connect(&options, &m->store) < 0)
		return fail(ret_error, error_bytes, "%s", cr_error());
	learn_policy(m);
	return 0;
}

static int run(struct mount *m, const struct mount_options *o, char *ret_error, size_t error_bytes)
{
	int code = connect_store(m, o, ret_error, error_bytes);

	if (code < 0)
		return code;
	if (mount__replier_start(m) < 0) {
		cr_disconnect(m->store);
		return fail(ret_error, error_bytes, "cannot start a thread");
	}
	code = open_session(m, o, ret_error, error_bytes);
	if (code == 0 && o->ready && o->ready(o->context) != 0)
		code = fail(ret_error, error_bytes, "stopped");
	else if (code == 0)
		serve(m);
	wait_for_answers(m);
	mount__replier_end(m);
	if (m->session) {
		fuse_session_unmount(m->session);
		fuse_session_destroy(m->session);
	}
	mount__files_end(m);
	mount__dirs_end(m);
	if (mount__writers_end(m) > 0 && code == 0)
		code = fail(ret_error, error_bytes,
			"what was written last could not be committed: the system log names the files");
	cr_disconnect(m->store);
	return code;
}

int mount_run(const struct mount_options *options, char *ret_error, size_t error_bytes)
{
	struct mount *m;
	char *path = NULL;
	int code = mount_check_options(options->options, ret_error, error_bytes);

	if (code == 0)
		code = check_place(options->mountpoint, &path, ret_error, error_bytes);
	if (code < 0)
		return code;
	m = MEM_NEW(struct mount);
	m->path = path;
	list_init(&m->open_files);
	list_init(&m->open_dirs);
	list_init(&m->writers);
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->freed, NULL);
	code = set_signals();
	code = code < 0 ? fail(ret_error, error_bytes, "cannot watch for signals: %s", strerror(-code))
			: run(m, options, ret_error, error_bytes);
	mount__pools_fini(m);
	pthread_cond_destroy(&m->freed);
	pthread_mutex_destroy(&m->lock);
	free(m->path);
	mem_free(m);
	return code;
}
