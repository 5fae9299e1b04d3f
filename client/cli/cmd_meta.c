/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/meta_group.h"
#include "client/cli/store_files.h"
#include "client/cli/tool.h"
#include "common/base/mem.h"
#include "common/code/backup.h"

struct values {
	struct cli_common common;
	uint64_t restores;
	bool force, group;
};

static const struct opt opts[] = {
	CLI_COMMON_OPTS(struct values),
	{.name = "restores", .type = OPT_U64, .offset = offsetof(struct values, restores), .arg = "N",
         .of = "restore", .help = "number of restores that the disks have seen, as metad says where it refuses them"},
	{.name = "force", .type = OPT_FLAG, .offset = offsetof(struct values, force), .of = "restore", .help = "also if N is far from what the backup knows"},
	{.name = "group", .type = OPT_FLAG, .offset = offsetof(struct values, group), .of = "restore", .help = "as the first metad of a new group, replica 1"},
	{0},
};

/* A backup on its way into a file; what arrives is checked before it is written. */
struct taking {
	int fd;
	struct backup_check check;
	struct err err;
};

static int write_all(int fd, const char *data, size_t len, struct err *err)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, err_from_errno(errno), "cannot write the backup: %s", strerror(errno));
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int take_part(const void *data, size_t len, void *user)
{
	struct taking *t = user;
	int r = t->check.number == 0 ? backup_check_header(&t->check, slice_of(data, len), &t->err)
	                             : backup_check_section(&t->check, slice_of(data, len), NULL, NULL, &t->err);

	return r < 0 ? r : write_all(t->fd, data, len, &t->err);
}

static void print_done(const struct cli *cli, const struct taking *t, const char *path)
{
	struct buf out;
	struct json j;

	buf_init(&out, 16 << 10);
	json_init(&j, &out);
	json_object(&j, NULL);
	json_name(&j, "file", path);
	json_u64(&j, "bytes", t->check.bytes);
	json_u64(&j, "rows", t->check.rows);
	json_u64(&j, "applied_index", t->check.header.applied_index);
	json_end_object(&j);
	if (cli->json)
		cli_print_json(&out);
	else
		printf("%s: %llu rows as of index %llu, %llu bytes\n", path, (unsigned long long)t->check.rows,
		       (unsigned long long)t->check.header.applied_index, (unsigned long long)t->check.bytes);
	buf_fini(&out);
}

/* 0, or what went wrong in t->err or cr_error(). */
static int take(struct cli *cli, struct taking *t)
{
	int r = cr_meta_backup(cli->store, take_part, t);

	if (r < 0 && !t->err.code)
		return err_set(&t->err, ERR_IO, "%s", cr_error());
	if (r == 0 && !t->check.ended)
		return err_set(&t->err, ERR_PROTO, "metad ended the backup before its last section; use a client of its version");
	return r;
}

/* Whoever holds its lock may write it; what a backup that was killed has left is written over. */
static int open_temp(const char *temp, int *ret_fd, struct err *err)
{
	struct stat mine, named;
	int fd = open(temp, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_set(err, err_from_errno(errno), "cannot write %s: %s", temp, strerror(errno));
	/* Another backup may have given the file its own name since it was opened: it is no temporary one any more. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &mine) < 0 || stat(temp, &named) < 0 || mine.st_ino != named.st_ino ||
	    mine.st_dev != named.st_dev) {
		close(fd);
		return err_set(err, ERR_BUSY, "another backup is being written to %s: wait for it, or name another file", temp);
	}
	*ret_fd = fd;
	return ftruncate(fd, 0) < 0 ? err_set(err, err_from_errno(errno), "cannot write %s: %s", temp, strerror(errno)) : 0;
}

/* Under another name until it is whole and durable: a file of that name is a backup. */
static int into_file(struct cli *cli, struct taking *t, const char *path)
{
	char *temp = mem_printf("%s.tmp", path);
	int r;

	t->fd = -1;
	r = open_temp(temp, &t->fd, &t->err);
	if (r == 0)
		r = take(cli, t);
	if (r == 0)
		r = store_publish(t->fd, temp, path, &t->err);
	if (t->fd >= 0 && r != 0)
		unlink(temp);
	if (t->fd >= 0)
		close(t->fd);
	mem_free(temp);
	return r;
}

static int backup(struct cli *cli, const char *path)
{
	struct taking t = {.fd = STDOUT_FILENO};
	bool to_stdout = !strcmp(path, "-");
	int exit_code, r;

	if (to_stdout && cli->json)
		return cli_usage(cli, "the backup itself goes to standard output: leave --json out, or name a file");
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	r = to_stdout ? take(cli, &t) : into_file(cli, &t, path);
	if (r != 0)
		return cli_fail(cli, "%s", t.err.text);
	if (!to_stdout)
		print_done(cli, &t, path);
	return CLI_OK;
}

static int restore(struct cli *cli, const char *dir, const char *file)
{
	const struct values *v = cli->values;
	char *config = tool_config(cli), restores[24];
	const char *args[] = {"--restore", file, "--dir", dir, "-c", config, "--restores", restores, NULL, NULL, NULL, NULL, NULL};
	size_t count = 8;
	int exit_code;

	if (!config)
		return CLI_FAILED;
	snprintf(restores, sizeof(restores), "%llu", (unsigned long long)v->restores);
	if (v->force)
		args[count++] = "--force";
	if (v->group) {
		args[count++] = "--replica";
		args[count++] = "1";
		args[count++] = "--found";
	}
	exit_code = tool_run(cli, "craton-metad", args);
	mem_free(config);
	return exit_code;
}

static int run(struct cli *cli)
{
	const struct meta_group_action *group = meta_group_find(cli->words[0]);
	bool is_backup = !strcmp(cli->words[0], "backup");

	if (group)
		return meta_group_run(cli, group);
	if (!is_backup && strcmp(cli->words[0], "restore"))
		return cli_usage(cli, "there is no action '%s'; there are ls, add, remove, transfer, snapshot, backup, restore", cli->words[0]);
	if (cli->word_count != (is_backup ? 2 : 3))
		return cli_usage(cli, is_backup ? "backup expects FILE" : "restore expects DIR and FILE");
	return is_backup ? backup(cli, cli->words[1]) : restore(cli, cli->words[1], cli->words[2]);
}

const struct cli_command cmd_meta = {
	.name = "meta",
	.args = "ls | add IP:PORT | remove NAME | transfer [NAME] | snapshot | backup FILE | restore DIR FILE [--group] [--restores N [--force]]",
	.summary = "look after the metads; save the metadata, and make them anew from a backup",
	.details = "`ls` shows the metads, who of them leads, and how many log entries each of them lacks (docs/groups.md). It needs no leader.\n"
	           "`add` adds the metad that listens at IP:PORT and was started with --replica N --join, N being next_id of `ls --json`: it gets all\n"
	           "metadata, then votes; this is waited for. `remove` removes NAME (or its number, or address); if it leads, another takes over first.\n"
	           "`transfer` hands leadership over to NAME (or its number, or address), else to the one that has most of the log.\n"
	           "`snapshot` has the metad that leads write its table out now: a restart has less of the log to apply then.\n"
	           "`backup` writes all metadata as they are now, while the store goes on, to FILE (`-`: standard output). Chunks are not in it.\n"
	           "`restore` makes the metadata in DIR, where no metadata lie, of a backup of the configuration's cluster; metad is not running\n"
	           "there and is started after it. Files written after the backup are not known then, files removed after it are there again, but\n"
	           "their chunks may be gone. Where another backup was restored meanwhile, metad refuses the disks and names the N to restore with.\n"
	           "With --group they are those of replica 1 of a new group, which others are added to. docs/DEPLOY.md says what else follows.\n"
	           "JSON: ls, add, remove, transfer, snapshot: answered_by, leader, term, commit, next_id, cluster_version, replicas [id, name, address,\n"
	           "role (leader|follower|learner|candidate|unknown), state (up|down|unknown), term, applied, match, lag, silent_ms, supports (cluster\n"
	           "version, at most; 0: not known), same, differs (not 0: its metadata differ since some entry between these)]; backup: file, bytes, rows, applied_index; restore: text.\n\n"
	           "Examples:\n"
	           "  craton meta ls\n"
	           "  craton meta ls --json | jq '.replicas[] | select(.state != \"up\")'\n"
	           "  craton meta transfer metad-2 -c /var/tmp/store/craton.conf\n"
	           "  craton meta remove metad-3 -c /var/tmp/store/craton.conf\n"
	           "  craton meta snapshot\n"
	           "  craton meta backup /backup/craton-meta\n"
	           "  craton meta backup - | ssh backup-host 'cat >craton-meta'\n"
	           "  craton meta restore /var/lib/craton/metad /backup/craton-meta\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 3,
	.run = run,
};
