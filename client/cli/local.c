/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/local_priv.h"
#include "client/cli/ports.h"
#include "client/cli/process.h"
#include "client/cli/store_files.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/code/ec.h"

enum { CONF_BYTES = 64 << 10, START_TIMEOUT_MS = 60000, PORT_TIMEOUT_MS = 15000, LOCK_TIMEOUT_MS = 60000, POLL_MS = 20 };

struct recorded {
	uint64_t chunkd, capacity, metad, joins, unnamed, ports[LIMIT_METADS];
	const char *policy;
};

#define MADE_BY "craton local up"
#define FOUNDED "metads-founded"

#define PORT_OPT(text, i) \
	{.name = text, .type = OPT_U64, .offset = offsetof(struct recorded, ports[i]), .default_ = "0", .max = 65535}
_Static_assert(LIMIT_METADS == 5, "a port of each is on record");

static const struct opt recorded_opts[] = {
	{.name = "chunkd", .type = OPT_U64, .offset = offsetof(struct recorded, chunkd), .default_ = "6", .min = 1, .max = LOCAL_CHUNKD_MAX},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct recorded, capacity), .default_ = "8G"},
	{.name = "metad", .type = OPT_U64, .offset = offsetof(struct recorded, metad), .default_ = "1", .min = 1, .max = LIMIT_METADS},
	{.name = "metad-joins", .type = OPT_U64, .offset = offsetof(struct recorded, joins), .default_ = "0", .max = LIMIT_METADS},
	{.name = "metads-unnamed", .type = OPT_U64, .offset = offsetof(struct recorded, unnamed), .default_ = "0", .max = 1},
	PORT_OPT("metad-port", 0),
	PORT_OPT("metad-port-2", 1),
	PORT_OPT("metad-port-3", 2),
	PORT_OPT("metad-port-4", 3),
	PORT_OPT("metad-port-5", 4),
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

int local__lock(const char *dir, uint64_t timeout_ms, int *ret_fd, struct err *err)
{
	uint64_t deadline = process_clock_ms() + (timeout_ms ? timeout_ms : LOCK_TIMEOUT_MS);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 ? -1 : flock(fd, LOCK_EX | LOCK_NB);

	while (fd >= 0 && r < 0 && (errno == EWOULDBLOCK || errno == EINTR) && process_clock_ms() < deadline) {
		process_sleep_ms(POLL_MS);
		r = flock(fd, LOCK_EX | LOCK_NB);
	}
	if (r < 0) {
		r = errno == EWOULDBLOCK
			? err_set(err, ERR_TIMEDOUT, "another craton local is at work in %s and does not end: end it, `fuser %s` says which it is", dir, dir)
			: err_set(err, err_from_errno(errno), "cannot lock %s: %s", dir, strerror(errno));
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

	if (!real) {
		int error = errno;
		char *quoted = cli_quoted(dir);

		err_set(err, err_from_errno(error), "cannot open %s: %s; make a store with: craton local up %s", dir, strerror(error), quoted);
		mem_free(quoted);
		return err_from_errno(error);
	}
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
		                            .policy = recorded.policy, .metad_count = recorded.metad, .metad_joins = recorded.joins,
		                            .metads_unnamed = recorded.unnamed, .arena = parser};
		memcpy(ret_local->metad_ports, recorded.ports, sizeof(recorded.ports));
	} else {
		opt_fini(parser);
		mem_free(parser);
	}
	mem_free(path);
	mem_free(text);
	free(real);
	return n < 0 ? n : ERR_OK;
}

/* The number of a folder of a daemon that was started, or 0. */
static uint64_t started_number(const char *dir, const char *entry, const char *kind, uint64_t max)
{
	size_t len = strlen(kind);
	uint64_t number = strncmp(entry, kind, len) ? 0 : strtoull(entry + len, NULL, 10);
	char *pid = mem_printf("%s/%s/pid", dir, entry);

	if (number > max || access(pid, F_OK) < 0)
		number = 0;
	mem_free(pid);
	return number;
}

int local_look(const char *dir, struct local *ret_local, struct err *err)
{
	struct local local = {.policy = ""};
	int r = local_load(dir, ret_local, err);
	char *real = r < 0 ? realpath(dir, NULL) : NULL;
	DIR *folder = real ? opendir(real) : NULL;
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		uint64_t metad = started_number(real, entry->d_name, "metad-", LIMIT_METADS);
		uint64_t chunkd = started_number(real, entry->d_name, "chunkd-", LOCAL_CHUNKD_MAX);

		local.metad_count = metad > local.metad_count ? metad : local.metad_count;
		local.chunkd_count = chunkd > local.chunkd_count ? chunkd : local.chunkd_count;
	}
	if (folder)
		closedir(folder);
	if (local_daemon_count(&local)) {
		if (r == ERR_NOENT)
			err_set(err, r, "%s/local.conf is missing", real);
		local.dir = mem_strdup(real);
		*ret_local = local;
		r = ERR_OK;
	}
	free(real);
	return r;
}

int local__look_again(struct local *local, struct err *err)
{
	struct local now;
	int r = local_load(local->dir, &now, err);

	if (r < 0)
		return r;
	local->chunkd_count = now.chunkd_count;
	local->metad_count = now.metad_count;
	local->metad_joins = now.metad_joins;
	local->metads_unnamed = now.metads_unnamed;
	memcpy(local->metad_ports, now.metad_ports, sizeof(now.metad_ports));
	local_fini(&now);
	return ERR_OK;
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

int local__save(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/local.conf", local->dir);
	char *joins = mem_printf("metad-joins = %llu\n", (unsigned long long)local->metad_joins);
	char *text = mem_printf("# written by " MADE_BY "\nchunkd = %llu\ncapacity = %llu\npolicy = %s\nmetad = %llu\n%smetad-port = %llu\n",
	                        (unsigned long long)local->chunkd_count, (unsigned long long)local->capacity_bytes, local->policy,
	                        (unsigned long long)local->metad_count, local->metads_unnamed ? "metads-unnamed = 1\n" : "",
	                        (unsigned long long)local->metad_ports[0]);
	int r;

	for (uint64_t i = 1; i < local->metad_count; i++) {
		char *more = mem_printf("%smetad-port-%llu = %llu\n%s", text, (unsigned long long)i + 1, (unsigned long long)local->metad_ports[i],
		                        i + 1 == local->metad_joins ? joins : "");

		mem_free(text);
		text = more;
	}
	r = store_write_file(path, text, 0644, err);
	mem_free(path);
	mem_free(joins);
	mem_free(text);
	return r;
}

static int choose_ports(struct local *local, struct err *err)
{
	uint16_t ports[LIMIT_METADS];
	int r = ports_choose(ports, local->metad_count, err);

	for (uint64_t i = 0; r == ERR_OK && i < local->metad_count; i++)
		local->metad_ports[i] = ports[i];
	return r;
}

static int write_conf(const struct local *local, const char *cluster, struct err *err)
{
	char *path = mem_printf("%s/craton.conf", local->dir), *secret = mem_printf("%s/secret", local->dir);
	char metad[LIMIT_METADS * 24] = "";
	int r;

	for (uint64_t i = 0; i < local->metad_count; i++)
		snprintf(metad + strlen(metad), sizeof(metad) - strlen(metad), "%s127.0.0.1:%llu", i ? ", " : "",
		         (unsigned long long)local->metad_ports[i]);
	r = store_write_conf(path,
	                         &(struct store_conf){.made_by = MADE_BY, .cluster = cluster, .metad = metad, .secret_file = secret},
	                         err);

	mem_free(path);
	mem_free(secret);
	return r;
}

static int make_secret(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/secret", local->dir);
	int r = store_write_secret(path, err);

	mem_free(path);
	return r;
}

int local__make_dirs(const struct local *local, uint64_t first, uint64_t end, struct err *err)
{
	int r = ERR_OK;

	for (uint64_t i = first; r == ERR_OK && i < end; i++) {
		char name[LOCAL_NAME_BYTES], *sub;

		local_daemon_name(local, i, name);
		sub = mem_printf("%s/%s", local->dir, name);
		r = make_dir(sub, 0755, err);
		mem_free(sub);
		sub = mem_printf("%s/%s/disk", local->dir, name);
		if (r == ERR_OK && i >= local->metad_count)
			r = make_dir(sub, 0755, err);
		mem_free(sub);
	}
	return r;
}

/* An entry, of a folder one that is not empty. What cannot be looked at may be one. */
static bool holds(const char *dir, const char *part)
{
	char *path = mem_printf("%s/%s", dir, part);
	DIR *folder = opendir(path);
	bool has = folder ? false : errno != ENOENT;
	struct dirent *entry;

	while (folder && !has && (entry = readdir(folder)))
		has = strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	if (folder)
		closedir(folder);
	mem_free(path);
	return has;
}

/* Table or log (metad/ledger.c), also those that are being made of a backup, or made a group's. */
static bool metad_has_metadata(const struct local *local, const char *name)
{
	static const char *const parts[] = {"log", "kv", "table-0", "table-1", "founding", "restoring"};
	char *dir = mem_printf("%s/%s", local->dir, name);
	bool has = false;

	for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
		has |= holds(dir, parts[i]);
	mem_free(dir);
	return has;
}

/* A new store takes no file of another one: but of an `up` that was interrupted before its local.conf, and craton.conf is the first one of it. */
static int check_foreign(const struct local *local, struct err *err)
{
	static const char ours[] = "# written by " MADE_BY "\n";
	char *conf = mem_printf("%s/craton.conf", local->dir), *secret = mem_printf("%s/secret", local->dir), text[sizeof(ours)];
	int n = read_file(conf, text, sizeof(text)), r = ERR_OK;
	bool interrupted = n > 0 && !strcmp(text, ours), founded = local_was_founded(local), remains = founded || metad_has_metadata(local, "metad-1");

	if (interrupted && remains)
		r = err_set(err, ERR_EXIST, "%s/local.conf is missing, and the store was up before: put it back, or write its lines anew: chunkd = N, capacity = "
		            "SIZE, policy = NAME, metad = N, metad-port = PORT", local->dir);
	else if (n == ERR_NOENT && remains)
		r = err_set(err, ERR_EXIST, "%s/%s is left of an earlier store: put its craton.conf, secret and local.conf back, or remove what is left of it",
		            local->dir, founded ? FOUNDED : "metad-1");
	else if (!interrupted && (n != ERR_NOENT || access(secret, F_OK) == 0))
		r = err_set(err, ERR_EXIST, "%s exists but was not made by " MADE_BY "; choose another directory", n != ERR_NOENT ? conf : secret);
	mem_free(conf);
	mem_free(secret);
	return r;
}

static int make_new(const char *real, const struct local *wanted, struct err *err)
{
	struct local local = {.dir = (char *)real, .chunkd_count = wanted->chunkd_count ? wanted->chunkd_count : 6,
	                      .capacity_bytes = wanted->capacity_bytes ? wanted->capacity_bytes : (uint64_t)8 << 30,
	                      .policy = wanted->policy ? wanted->policy : "rs-4-2",
	                      .metad_count = wanted->metad_count ? wanted->metad_count : 1};
	char cluster[UUID_TEXT_BYTES];
	struct uuid uuid;
	int r = check_foreign(&local, err);

	if (r < 0 || (r = store_random(&uuid, sizeof(uuid), err)) < 0 || (r = choose_ports(&local, err)) < 0)
		return r;
	uuid_format(&uuid, cluster);
	if ((r = write_conf(&local, cluster, err)) < 0 || (r = make_secret(&local, err)) < 0 || (r = local__make_dirs(&local, 0, local_daemon_count(&local), err)) < 0)
		return r;
	return local__save(&local, err); /* last: its presence says that the store was made, and that a folder that is missing was lost */
}

static int check_wanted(const struct local *wanted, struct err *err)
{
	if (wanted->policy && !ec_policy_by_name(wanted->policy))
		return err_set(err, ERR_INVAL, "there is no policy '%s'; known are rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6, rs-1-2",
		               wanted->policy);
	if (wanted->capacity_bytes && wanted->capacity_bytes < (uint64_t)256 << 20)
		return err_set(err, ERR_INVAL, "a capacity of %llu bytes is too small; at least 256M", (unsigned long long)wanted->capacity_bytes);
	if (wanted->metad_count && wanted->metad_count % 2 == 0)
		return err_set(err, ERR_INVAL, "%llu metads bear the loss of no more than %llu do: ask for one, three or five",
		               (unsigned long long)wanted->metad_count, (unsigned long long)wanted->metad_count - 1);
	return ERR_OK;
}

/* What an existing store may be asked for: the same, or more chunk servers. */
static int adopt(struct local *local, const struct local *wanted, struct err *err)
{
	uint64_t before = local_daemon_count(local);
	int r;

	if (wanted->policy && strcmp(wanted->policy, local->policy)) {
		char *path = mem_printf("%s/craton.conf", local->dir), *conf = cli_quoted(path);

		err_set(err, ERR_EXIST, "this store was made with policy %s; change it with: craton policy set / %s -c %s", local->policy,
		        wanted->policy, conf);
		mem_free(path);
		mem_free(conf);
		return ERR_EXIST;
	}
	if (wanted->capacity_bytes && wanted->capacity_bytes != local->capacity_bytes)
		return err_set(err, ERR_EXIST, "this store was made with a capacity of %llu bytes a chunk server; leave --capacity out",
		               (unsigned long long)local->capacity_bytes);
	if (wanted->metad_count && wanted->metad_count < local->metad_count)
		return err_set(err, ERR_INVAL, "this store has %llu metads; `up` adds some and takes none out: craton meta remove NAME does (docs/groups.md)",
		               (unsigned long long)local->metad_count);
	if (wanted->chunkd_count && wanted->chunkd_count < local->chunkd_count)
		return err_set(err, ERR_INVAL, "this store has %llu chunk servers; it can grow but not shrink", (unsigned long long)local->chunkd_count);
	if (wanted->chunkd_count <= local->chunkd_count)
		return ERR_OK;
	local->chunkd_count = wanted->chunkd_count;
	r = local__make_dirs(local, before, local_daemon_count(local), err);
	return r < 0 ? r : local__save(local, err);
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
	r = local__lock(real, wanted->timeout_ms, &lock, err);
	if (r == ERR_OK) {
		r = access(path, F_OK) == 0 ? ERR_OK : make_new(real, wanted, err);
		if (r == ERR_OK)
			r = local_load(real, &local, err);
		if (r == ERR_OK)
			r = adopt(&local, wanted, err);
		close(lock);
	}
	mem_free(path);
	free(real);
	local.timeout_ms = wanted->timeout_ms;
	local.on_wait = wanted->on_wait;
	local.ctx = wanted->ctx;
	if (r < 0)
		local_fini(&local);
	else
		*ret_local = local;
	return r;
}

uint64_t local_daemon_count(const struct local *local)
{
	return local->metad_count + local->chunkd_count;
}

void local_daemon_name(const struct local *local, uint64_t index, char ret_name[LOCAL_NAME_BYTES])
{
	if (index < local->metad_count)
		snprintf(ret_name, LOCAL_NAME_BYTES, "metad-%llu", (unsigned long long)index + 1);
	else
		snprintf(ret_name, LOCAL_NAME_BYTES, "chunkd-%llu", (unsigned long long)(index - local->metad_count + 1));
}

int local_check_name(const struct local *local, const char *name, struct err *err)
{
	char known[LOCAL_NAME_BYTES];

	for (uint64_t i = 0; i < local_daemon_count(local); i++) {
		local_daemon_name(local, i, known);
		if (!strcmp(known, name))
			return ERR_OK;
	}
	if (local->metad_count > 1)
		return err_set(err, ERR_NOENT, "there is no daemon '%s' in %s; it has metad-1 to metad-%llu and chunkd-1 to chunkd-%llu", name, local->dir,
		               (unsigned long long)local->metad_count, (unsigned long long)local->chunkd_count);
	return err_set(err, ERR_NOENT, "there is no daemon '%s' in %s; it has metad-1 and chunkd-1 to chunkd-%llu", name, local->dir,
	               (unsigned long long)local->chunkd_count);
}

/* The kernel may hold the port of a killed metad a little longer than its process (io_uring is taken down behind it). */
static int wait_for_port(uint16_t port)
{
	uint64_t deadline = process_clock_ms() + PORT_TIMEOUT_MS;
	int r;

	while ((r = ports_try(port)) < 0 && process_clock_ms() < deadline)
		process_sleep_ms(POLL_MS);
	return r;
}

static bool metad_has(const struct local *local, const char *name)
{
	char *path = mem_printf("%s/metad-1/%s", local->dir, name);
	bool has = access(path, F_OK) == 0;

	mem_free(path);
	return has;
}

/* Also the one metad of a store may have become one of a group, whose others are not of this folder: docs/groups.md. */
bool local__is_group(const struct local *local)
{
	return local->metad_count > 1 || metad_has(local, "table-0") || metad_has(local, "founding");
}

/* craton.conf, of the same cluster, with the ports that are on record now. */
static int rename_metads(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/craton.conf", local->dir), *text = mem_alloc(CONF_BYTES), cluster[64] = "";
	int n = read_file(path, text, CONF_BYTES), r;
	const char *line = n > 0 ? strstr(text, "cluster = ") : NULL;

	if (!line || sscanf(line, "cluster = %63s", cluster) != 1)
		r = err_set(err, ERR_FORMAT, "%s has no line 'cluster = UUID'; restore it, or make a new store elsewhere", path);
	else
		r = write_conf(local, cluster, err);
	mem_free(path);
	mem_free(text);
	return r;
}

int local__name_metads(struct local *local, struct err *err)
{
	int r;

	local->metads_unnamed = true;
	r = local__save(local, err);
	if (r == ERR_OK)
		r = rename_metads(local, err);
	if (r < 0)
		return r;
	local->metads_unnamed = false;
	return local__save(local, err);
}

/* Gives the metad of a store of one, or one that joins and says itself where it is, another port if the one on record is taken. Of a group the others know it: ERR_ADDRINUSE. */
static int settle_port(struct local *local, uint64_t metad, struct err *err)
{
	uint16_t port = (uint16_t)local->metad_ports[metad];
	int r;

	if (wait_for_port(port) == ERR_OK)
		return ERR_OK;
	if (local__is_group(local) && metad + 1 != local->metad_joins)
		return err_set(err, ERR_ADDRINUSE, "port %u of 127.0.0.1, of metad-%llu, is used by another program: end that, the other metads know no other",
		               port, (unsigned long long)metad + 1);
	r = local__look_again(local, err);
	if (r == ERR_OK)
		r = ports_choose(&port, 1, err);
	if (r < 0)
		return r;
	local->metad_ports[metad] = port;
	return local__name_metads(local, err);
}

bool local_was_founded(const struct local *local)
{
	char *path = mem_printf("%s/" FOUNDED, local->dir);
	bool founded = access(path, F_OK) == 0;

	mem_free(path);
	return founded;
}

int local_founded(const struct local *local, struct err *err)
{
	char *path = mem_printf("%s/" FOUNDED, local->dir);
	int r = local_was_founded(local) ? ERR_OK : store_write_file(path, "the metadata were made: no metad that lost its own is made anew\n", 0644, err);

	mem_free(path);
	return r;
}

static int start_metad(const struct local *local, const char *name, uint64_t metad, enum local_start_as as, struct err *err)
{
	char *program = process_program("craton-metad"), *conf = mem_printf("%s/craton.conf", local->dir);
	char *dir = mem_printf("%s/%s", local->dir, name), *listen = mem_printf("127.0.0.1:%llu", (unsigned long long)local->metad_ports[metad]);
	char *replica = mem_printf("%llu", (unsigned long long)metad + 1);
	char *argv[] = {program, "-c", conf, "--name", (char *)name, "--dir", dir, "--listen", listen, "--metrics", "127.0.0.1:0",
	                "--policy", (char *)local->policy, /* a list ends at NULL */ as != LOCAL_AS_IT_IS || local__is_group(local) ? "--replica" : NULL, replica,
	                as == LOCAL_FOUNDS ? "--found" : as == LOCAL_JOINS ? "--join" : NULL, NULL};
	int r = program ? process_start(local->dir, name, argv, err)
	                : err_set(err, ERR_NOENT, "craton-metad is neither beside craton nor in PATH; install it with: make install");

	mem_free(program);
	mem_free(conf);
	mem_free(dir);
	mem_free(listen);
	mem_free(replica);
	return r;
}

static int start_chunkd(const struct local *local, const char *name, struct err *err)
{
	char *program = process_program("craton-chunkd"), *conf = mem_printf("%s/craton.conf", local->dir);
	char *dir = mem_printf("%s/%s", local->dir, name), *disk = mem_printf("%s/%s/disk", local->dir, name);
	char *capacity = mem_printf("%llu", (unsigned long long)local->capacity_bytes);
	char *argv[] = {program, "-c", conf, "--name", (char *)name, "--dir", dir, "--disk", disk, "--listen", "127.0.0.1:0",
	                "--metrics", "127.0.0.1:0", "--capacity", capacity, "--beside-metad", "32M", NULL};
	int r = program ? process_start(local->dir, name, argv, err)
	                : err_set(err, ERR_NOENT, "craton-chunkd is neither beside craton nor in PATH; install it with: make install");

	mem_free(program);
	mem_free(conf);
	mem_free(dir);
	mem_free(disk);
	mem_free(capacity);
	return r;
}

/* 0: it is a chunk server's. */
static uint64_t metad_number(const char *name)
{
	return !strncmp(name, "metad-", 6) ? strtoull(name + 6, NULL, 10) : 0;
}

int local__launch(struct local *local, const char *name, enum local_start_as as, bool *ret_ran, struct err *err)
{
	uint64_t metad = metad_number(name);
	int r = local->metads_unnamed ? local__look_again(local, err) : ERR_OK;

	*ret_ran = process_pid(local->dir, name) != 0;
	if (r == ERR_OK && local->metads_unnamed)
		r = local__name_metads(local, err);
	if (!*ret_ran && metad && r == ERR_OK)
		r = settle_port(local, metad - 1, err);
	if (!*ret_ran && r == ERR_OK)
		r = metad ? start_metad(local, name, metad - 1, as, err) : start_chunkd(local, name, err);
	return r;
}

int local__wait_ready(const struct local *local, const char *name, struct err *err)
{
	uint64_t timeout_ms = local->timeout_ms > START_TIMEOUT_MS ? local->timeout_ms : START_TIMEOUT_MS;

	return process_wait_ready(local->dir, name, timeout_ms, local->on_wait, local->ctx, err);
}

static int start(struct local *local, const char *name, enum local_start_as as, bool *ret_started, struct err *err)
{
	int lock, r = local__lock(local->dir, local->timeout_ms, &lock, err);
	bool ran;

	*ret_started = false;
	if (r < 0)
		return r;
	r = local__launch(local, name, as, &ran, err);
	close(lock); /* from here on process_pid() tells the others */
	if (r == ERR_OK)
		r = local__wait_ready(local, name, err);
	*ret_started = r == ERR_OK && !ran;
	return r;
}

int local_check_replica(const struct local *local, const char *name, struct err *err)
{
	if (metad_has_metadata(local, name))
		return ERR_OK;
	return err_set(err, ERR_NOENT, "%s/%s holds no replica, though the group has led: it must not come back under its number: craton meta remove %s, "
	               "and add one under the next number (docs/groups.md, Growing)", local->dir, name, name);
}

static int check_metad(const struct local *local, const char *name, struct err *err)
{
	char *conf, *quoted;

	if (!local_was_founded(local) || metad_has_metadata(local, name))
		return ERR_OK;
	if (metad_number(name) == local->metad_joins)
		return err_set(err, ERR_NOENT, "%s/%s holds nothing, and is to join the group: craton local up goes on with that", local->dir, name);
	if (local->metad_count > 1)
		return local_check_replica(local, name, err);
	conf = mem_printf("%s/craton.conf", local->dir);
	quoted = cli_quoted(conf);
	err_set(err, ERR_NOENT, "%s/%s holds no metadata, and the store was up before: put the directory back; if it is the only metad, restore a backup into it: "
	        "craton meta restore DIR FILE -c %s (docs/DEPLOY.md); one of a group is replaced (docs/groups.md)", local->dir, name, quoted);
	mem_free(conf);
	mem_free(quoted);
	return ERR_NOENT;
}

static int check_chunkd(const struct local *local, const char *name, struct err *err)
{
	char *disk = mem_printf("%s/%s/disk", local->dir, name), *quoted;
	int r = ERR_OK;

	if (access(disk, F_OK) < 0 && errno == ENOENT) {
		quoted = cli_quoted(disk);
		r = err_set(err, ERR_NOENT, "%s is missing: put it back; if it is lost for good, mkdir -p %s lets %s begin with an empty disk", disk, quoted, name);
		mem_free(quoted);
	}
	mem_free(disk);
	return r;
}

int local_check_files(const struct local *local, const char *name, struct err *err)
{
	if (process_pid(local->dir, name))
		return ERR_OK;
	return metad_number(name) ? check_metad(local, name, err) : check_chunkd(local, name, err);
}

int local_start_joining(struct local *local, const char *name, bool *ret_started, struct err *err)
{
	return start(local, name, LOCAL_JOINS, ret_started, err);
}

int local_start(struct local *local, const char *name, bool *ret_started, struct err *err)
{
	uint64_t metad = metad_number(name);
	bool joins = metad && metad == local->metad_joins;
	/* A replica that lost its directory has forgotten what it acknowledged: it is made only while the group has never led. */
	bool found = metad && !joins && local->metad_count > 1 && !local_was_founded(local);
	int r = local_check_files(local, name, err);
	struct err unsaid;

	*ret_started = false;
	if (r < 0)
		return r;
	r = start(local, name, joins ? LOCAL_JOINS : found ? LOCAL_FOUNDS : LOCAL_AS_IT_IS, ret_started, err);
	/* It may have led, and nobody lived to note that: then it refuses to be founded again. */
	if (r < 0 && found && !process_pid(local->dir, name))
		r = start(local, name, LOCAL_AS_IT_IS, ret_started, err);
	/* That it serves is reason enough to note it if it is alone. On a full disk the next start does. */
	if (r == ERR_OK && metad && local->metad_count == 1)
		(void)local_founded(local, &unsaid);
	return r;
}
