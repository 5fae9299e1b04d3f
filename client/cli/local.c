/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/local.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/process.h"
#include "client/cli/store_files.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/code/ec.h"

enum { CONF_BYTES = 64 << 10, START_TIMEOUT_MS = 60000, PORT_TIMEOUT_MS = 15000, PORT_POLL_MS = 20 };

struct recorded {
	uint64_t chunkd, capacity, port;
	const char *policy;
};

static const struct opt recorded_opts[] = {
	{.name = "chunkd", .type = OPT_U64, .offset = offsetof(struct recorded, chunkd), .default_ = "6", .min = 1, .max = LOCAL_CHUNKD_MAX},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct recorded, capacity), .default_ = "8G"},
	{.name = "metad-port", .type = OPT_U64, .offset = offsetof(struct recorded, port), .default_ = "0", .max = 65535},
	{.name = "policy", .type = OPT_STRING, .offset = offsetof(struct recorded, policy), .default_ = "rs-4-2"},
	{0},
};

static int read_file(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return err_from_errno(errno);
	n = read(fd, text, bytes - 1);
	close(fd);
	if (n < 0)
		return err_from_errno(errno);
	text[n] = '\0';
	return (int)n;
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return err_set(err, err_from_errno(errno), "cannot make the directory %s: %s", path, strerror(errno));
	return ERR_OK;
}

/* Of several that make a store or start its daemons at once the others wait. Until close(*ret_fd). */
static int lock_dir(const char *dir, int *ret_fd, struct err *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX) < 0) {
		int r = err_set(err, err_from_errno(errno), "cannot lock %s: %s", dir, strerror(errno));

		if (fd >= 0)
			close(fd);
		return r;
	}
	*ret_fd = fd;
	return ERR_OK;
}

int local_load(const char *dir, struct local *ret_local, struct err *err)
{
	char *real = realpath(dir, NULL), *path, *text;
	struct recorded recorded = {0};
	struct opt_parser *parser;
	int n;

	if (!real)
		return err_set(err, err_from_errno(errno), "cannot open %s: %s; make a store with: craton local up %s", dir, strerror(errno), dir);
	path = mem_printf("%s/local.conf", real);
	text = mem_alloc(CONF_BYTES);
	parser = MEM_NEW(struct opt_parser);
	opt_init(parser, recorded_opts, &recorded);
	n = read_file(path, text, CONF_BYTES);
	if (n < 0)
		n = err_set(err, n, n == ERR_NOENT ? "there is no store in %s; make one with: craton local up DIR" : "cannot read the store in %s", real);
	else
		n = opt_parse_text(parser, path, text, (size_t)n, NULL, err);
	if (n == 0) {
		*ret_local = (struct local){.dir = mem_strdup(real), .chunkd_count = recorded.chunkd, .capacity_bytes = recorded.capacity,
		                            .policy = recorded.policy, .metad_port = recorded.port, .arena = parser};
	} else {
		opt_fini(parser);
		mem_free(parser);
	}
	mem_free(path);
	mem_free(text);
	free(real);
	return n < 0 ? n : ERR_OK;
}

void local_fini(struct local *local)
{
	if (local->arena) {
		opt_fini(local->arena);
		mem_free(local->arena);
	}
	mem_free(local->dir);
	*local = (struct local){0};
}

static int save(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/local.conf", local->dir);
	char *text = mem_printf("# written by craton local up\nchunkd = %llu\ncapacity = %llu\npolicy = %s\nmetad-port = %llu\n",
	                        (unsigned long long)local->chunkd_count, (unsigned long long)local->capacity_bytes, local->policy,
	                        (unsigned long long)local->metad_port);
	int r = store_write_file(path, text, 0644, err);

	mem_free(path);
	mem_free(text);
	return r;
}

/* ERR_ADDRINUSE if somebody uses the port now. */
static int try_port(uint16_t port)
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

/* A port that nobody uses, below the range from which outgoing connections take theirs: metad must find it free after a restart. */
static int free_port(uint16_t *ret_port, struct err *err)
{
	enum { PORT_MIN = 20000, PORT_COUNT = 12000, PORT_TRIES = 200 };

	for (int i = 0; i < PORT_TRIES; i++) {
		uint16_t random;
		int r = store_random(&random, sizeof(random), err);

		if (r < 0)
			return r;
		*ret_port = (uint16_t)(PORT_MIN + random % PORT_COUNT);
		if (try_port(*ret_port) == ERR_OK)
			return ERR_OK;
	}
	return err_set(err, ERR_ADDRINUSE, "no free port was found on 127.0.0.1 from %d to %d", PORT_MIN, PORT_MIN + PORT_COUNT - 1);
}

static int write_conf(const struct local *local, const char *cluster, struct err *err)
{
	char *path = mem_printf("%s/craton.conf", local->dir), *secret = mem_printf("%s/secret", local->dir);
	char *metad = mem_printf("127.0.0.1:%llu", (unsigned long long)local->metad_port);
	int r = store_write_conf(path,
	                         &(struct store_conf){.made_by = "craton local up", .cluster = cluster, .metad = metad, .secret_file = secret},
	                         err);

	mem_free(path);
	mem_free(secret);
	mem_free(metad);
	return r;
}

static int make_secret(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/secret", local->dir);
	int r = store_write_secret(path, err);

	mem_free(path);
	return r;
}

static int make_new(const char *real, const struct local *wanted, struct err *err)
{
	struct local local = {.dir = (char *)real, .chunkd_count = wanted->chunkd_count ? wanted->chunkd_count : 6,
	                      .capacity_bytes = wanted->capacity_bytes ? wanted->capacity_bytes : (uint64_t)8 << 30,
	                      .policy = wanted->policy ? wanted->policy : "rs-4-2"};
	char *conf = mem_printf("%s/craton.conf", real), cluster[UUID_TEXT_BYTES];
	struct uuid uuid;
	uint16_t port = 0;
	int r = ERR_OK;

	if (access(conf, F_OK) == 0)
		r = err_set(err, ERR_EXIST, "%s exists but was not made by craton local up; choose another directory", conf);
	mem_free(conf);
	if (r < 0 || (r = store_random(&uuid, sizeof(uuid), err)) < 0 || (r = free_port(&port, err)) < 0)
		return r;
	uuid_format(&uuid, cluster);
	local.metad_port = port;
	if ((r = make_secret(&local, err)) < 0 || (r = write_conf(&local, cluster, err)) < 0)
		return r;
	return save(&local, err); /* last: its presence says that the store was made */
}

static int check_wanted(const struct local *wanted, struct err *err)
{
	if (wanted->policy && !ec_policy_by_name(wanted->policy))
		return err_set(err, ERR_INVAL, "there is no policy '%s'; known are rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6, rs-1-2",
		               wanted->policy);
	if (wanted->capacity_bytes && wanted->capacity_bytes < (uint64_t)256 << 20)
		return err_set(err, ERR_INVAL, "a capacity of %llu bytes is too small; at least 256M", (unsigned long long)wanted->capacity_bytes);
	return ERR_OK;
}

/* What an existing store may be asked for: the same, or more chunk servers. */
static int adopt(struct local *local, const struct local *wanted, struct err *err)
{
	if (wanted->policy && strcmp(wanted->policy, local->policy))
		return err_set(err, ERR_EXIST, "this store was made with policy %s; change it with: craton policy set / %s -c %s/craton.conf",
		               local->policy, wanted->policy, local->dir);
	if (wanted->capacity_bytes && wanted->capacity_bytes != local->capacity_bytes)
		return err_set(err, ERR_EXIST, "this store was made with a capacity of %llu bytes a chunk server; leave --capacity out",
		               (unsigned long long)local->capacity_bytes);
	if (wanted->chunkd_count && wanted->chunkd_count < local->chunkd_count)
		return err_set(err, ERR_INVAL, "this store has %llu chunk servers; it can grow but not shrink", (unsigned long long)local->chunkd_count);
	if (wanted->chunkd_count <= local->chunkd_count)
		return ERR_OK;
	local->chunkd_count = wanted->chunkd_count;
	return save(local, err);
}

/* The absolute path of what may not exist yet, in a place that does; NULL: it does not either. mem_free() it. */
static char *place_of(const char *dir)
{
	char *real = realpath(dir, NULL), *parent, *slash, *place = NULL;
	size_t len = strlen(dir);

	if (real) {
		place = mem_strdup(real);
		free(real);
		return place;
	}
	while (len > 1 && dir[len - 1] == '/')
		len--;
	parent = mem_printf("%.*s", (int)len, dir);
	slash = strrchr(parent, '/');
	if (slash)
		*slash = '\0';
	real = realpath(!slash ? "." : *parent ? parent : "/", NULL);
	if (real)
		place = mem_printf("%s/%s", strcmp(real, "/") ? real : "", slash ? slash + 1 : parent);
	free(real);
	mem_free(parent);
	return place;
}

/* A store may lie beside foreign files, but not where the system or everybody has theirs: its folders would be lost among them. */
static int check_place(const char *dir, struct err *err)
{
	static const char *const themselves[] = {"/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr/local", "/var",
	                                         "/var/lib", "/var/tmp", "/dev/shm"};
	static const char *const with_all_below[] = {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr",
	                                             "/var/log", "/var/cache", "/var/spool"};
	static const char *const but[] = {"/dev/shm/", "/usr/local/"};
	char *place = place_of(dir);
	bool bad = false, allowed = false;

	for (size_t i = 0; place && i < ARRAY_COUNT(themselves); i++)
		bad |= !strcmp(place, themselves[i]);
	for (size_t i = 0; place && i < ARRAY_COUNT(but); i++)
		allowed |= !strncmp(place, but[i], strlen(but[i]));
	for (size_t i = 0; place && !allowed && i < ARRAY_COUNT(with_all_below); i++) {
		size_t len = strlen(with_all_below[i]);

		bad |= !strncmp(place, with_all_below[i], len) && (place[len] == '\0' || place[len] == '/');
	}
	if (bad)
		err_set(err, ERR_INVAL, "%s is a folder of the system: give the store one of its own, such as /var/tmp/craton", place);
	else if (place && (bad = strchr(place, '\n') != NULL))
		err_set(err, ERR_INVAL, "%s has a line break in its name, which craton.conf cannot hold: choose another folder", place);
	mem_free(place);
	return bad ? ERR_INVAL : ERR_OK;
}

static int make_dirs(const struct local *local, struct err *err)
{
	int r = ERR_OK;

	for (uint64_t i = 0; r == ERR_OK && i < local_daemon_count(local); i++) {
		char name[LOCAL_NAME_BYTES], *sub;

		local_daemon_name(local, i, name);
		sub = mem_printf("%s/%s", local->dir, name);
		r = make_dir(sub, 0755, err);
		mem_free(sub);
		sub = mem_printf("%s/%s/disk", local->dir, name);
		if (r == ERR_OK && i > 0)
			r = make_dir(sub, 0755, err);
		mem_free(sub);
	}
	return r;
}

int local_create(const char *dir, const struct local *wanted, struct local *ret_local, struct err *err)
{
	struct local local = {0};
	char *real, *path;
	int r, lock;

	if ((r = check_place(dir, err)) < 0 || (r = check_wanted(wanted, err)) < 0 || (r = make_dir(dir, 0755, err)) < 0)
		return r;
	real = realpath(dir, NULL);
	if (!real)
		return err_set(err, err_from_errno(errno), "cannot open %s: %s", dir, strerror(errno));
	path = mem_printf("%s/local.conf", real);
	r = lock_dir(real, &lock, err);
	if (r == ERR_OK) {
		r = access(path, F_OK) == 0 ? ERR_OK : make_new(real, wanted, err);
		if (r == ERR_OK)
			r = local_load(real, &local, err);
		if (r == ERR_OK && (r = adopt(&local, wanted, err)) == ERR_OK)
			r = make_dirs(&local, err);
		close(lock);
	}
	mem_free(path);
	free(real);
	if (r < 0)
		local_fini(&local);
	else
		*ret_local = local;
	return r;
}

uint64_t local_daemon_count(const struct local *local)
{
	return 1 + local->chunkd_count;
}

void local_daemon_name(const struct local *local, uint64_t index, char ret_name[LOCAL_NAME_BYTES])
{
	(void)local;
	if (index == 0)
		snprintf(ret_name, LOCAL_NAME_BYTES, "metad-1");
	else
		snprintf(ret_name, LOCAL_NAME_BYTES, "chunkd-%llu", (unsigned long long)index);
}

int local_check_name(const struct local *local, const char *name, struct err *err)
{
	char known[LOCAL_NAME_BYTES];

	for (uint64_t i = 0; i < local_daemon_count(local); i++) {
		local_daemon_name(local, i, known);
		if (!strcmp(known, name))
			return ERR_OK;
	}
	return err_set(err, ERR_NOENT, "there is no daemon '%s' in %s; it has metad-1 and chunkd-1 to chunkd-%llu", name, local->dir,
	               (unsigned long long)local->chunkd_count);
}

/* The kernel may hold the port of a killed metad a little longer than its process (io_uring is taken down behind it). */
static int wait_for_port(uint16_t port)
{
	uint64_t deadline = process_clock_ms() + PORT_TIMEOUT_MS;
	int r;

	while ((r = try_port(port)) < 0 && process_clock_ms() < deadline)
		process_sleep_ms(PORT_POLL_MS);
	return r;
}

int local_settle_port(struct local *local, struct err *err)
{
	char *path = mem_printf("%s/craton.conf", local->dir), *text = mem_alloc(CONF_BYTES), cluster[64] = "";
	uint16_t port = (uint16_t)local->metad_port;
	int r = ERR_OK;

	if (wait_for_port(port) < 0) {
		const char *line;
		int n = read_file(path, text, CONF_BYTES);

		line = n > 0 ? strstr(text, "cluster = ") : NULL;
		if (!line || sscanf(line, "cluster = %63s", cluster) != 1)
			r = err_set(err, ERR_FORMAT, "%s has no line 'cluster = UUID'; restore it, or make a new store elsewhere", path);
		else
			r = free_port(&port, err);
		if (r == ERR_OK) {
			local->metad_port = port;
			r = write_conf(local, cluster, err);
		}
		if (r == ERR_OK)
			r = save(local, err);
	}
	mem_free(path);
	mem_free(text);
	return r;
}

static int start_metad(const struct local *local, const char *name, struct err *err)
{
	char *program = process_program("craton-metad"), *conf = mem_printf("%s/craton.conf", local->dir);
	char *dir = mem_printf("%s/%s", local->dir, name), *listen = mem_printf("127.0.0.1:%llu", (unsigned long long)local->metad_port);
	char *argv[] = {program, "-c", conf, "--name", (char *)name, "--dir", dir, "--listen", listen, "--metrics", "127.0.0.1:0",
	                "--policy", (char *)local->policy, NULL};
	int r = program ? process_start(local->dir, name, argv, err)
	                : err_set(err, ERR_NOENT, "craton-metad is neither beside craton nor in PATH; install it with: make install");

	mem_free(program);
	mem_free(conf);
	mem_free(dir);
	mem_free(listen);
	return r;
}

static int start_chunkd(const struct local *local, const char *name, struct err *err)
{
	char *program = process_program("craton-chunkd"), *conf = mem_printf("%s/craton.conf", local->dir);
	char *dir = mem_printf("%s/%s", local->dir, name), *disk = mem_printf("%s/%s/disk", local->dir, name);
	char *capacity = mem_printf("%llu", (unsigned long long)local->capacity_bytes);
	char *argv[] = {program, "-c", conf, "--name", (char *)name, "--dir", dir, "--disk", disk, "--listen", "127.0.0.1:0",
	                "--metrics", "127.0.0.1:0", "--capacity", capacity, NULL};
	int r = program ? process_start(local->dir, name, argv, err)
	                : err_set(err, ERR_NOENT, "craton-chunkd is neither beside craton nor in PATH; install it with: make install");

	mem_free(program);
	mem_free(conf);
	mem_free(dir);
	mem_free(disk);
	mem_free(capacity);
	return r;
}

int local_start(struct local *local, const char *name, bool *ret_started, struct err *err)
{
	bool metad = !strncmp(name, "metad", 5), runs;
	int lock, r = lock_dir(local->dir, &lock, err);

	*ret_started = false;
	if (r < 0)
		return r;
	runs = process_pid(local->dir, name) != 0;
	if (!runs && metad)
		r = local_settle_port(local, err);
	if (!runs && r == ERR_OK)
		r = metad ? start_metad(local, name, err) : start_chunkd(local, name, err);
	close(lock); /* from here on process_pid() tells the others */
	if (r == ERR_OK)
		r = process_wait_ready(local->dir, name, START_TIMEOUT_MS, err);
	*ret_started = r == ERR_OK && !runs;
	return r;
}
