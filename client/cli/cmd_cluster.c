/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/store_files.h"
#include "common/base/ids.h"
#include "common/base/mem.h"
#include "common/rpc/replicas.h"

struct values {
	struct cli_common common;
	const char *metad;
	bool plaintext;
};

static const struct opt opts[] = {
	{.name = "metad", .type = OPT_STRING, .offset = offsetof(struct values, metad), .arg = "IP:PORT,...",
	 .of = "init", .help = "where metad will be found by all parts of the cluster; three or five of a group"},
	{.name = "plaintext", .type = OPT_FLAG, .offset = offsetof(struct values, plaintext),
	 .of = "init", .help = "allow addresses beyond loopback, without encryption"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int check_address(const struct cli *cli, const struct values *v)
{
	struct rpc_addrs addrs;
	bool is_local = true;
	int code;

	if (!v->metad)
		return cli_usage(cli, "--metad is missing: give the address of the host that will run metad, say --metad 10.0.0.1:7000");
	code = rpc_addrs_parse(v->metad, &addrs);
	if (code < 0)
		return cli_usage(cli, "--metad %s: %s: write IP:PORT, say 10.0.0.1:7000, or those of a group with commas between them", v->metad, rpc_addrs_fault(code));
	for (uint32_t i = 0; i < addrs.count; i++) {
		is_local = is_local && io_addr_is_loopback(&addrs.addrs[i]);
		if (addrs.addrs[i].port == 0)
			return cli_usage(cli, "--metad %s: not an address: a port is 0; write IP:PORT, say 10.0.0.1:7000", v->metad);
	}
	if (addrs.count % 2 == 0)
		return cli_usage(cli, "--metad %s: %u metads bear the loss of no more than %u do: name one, three or five", v->metad, addrs.count,
		                 addrs.count - 1);
	if (!is_local && !v->plaintext)
		return cli_usage(cli,
		                 "--metad %s is open to the network and this version has no encryption: add --plaintext if that network is "
		                 "trusted, or use 127.0.0.1",
		                 v->metad);
	return CLI_OK;
}

static int check_new(const struct cli *cli, const char *const *paths)
{
	for (size_t i = 0; paths[i]; i++)
		if (access(paths[i], F_OK) == 0)
			return cli_fail(cli, "%s exists: there is a cluster already; name another directory, or remove it to make a new one", paths[i]);
	return CLI_OK;
}

static void print_done(const struct cli *cli, const char *cluster, const char *conf, const char *secret)
{
	struct buf out;
	struct json j;

	if (!cli->json) {
		printf("Made cluster %s: %s and %s.\nCopy both to each host of the cluster; keep the secret readable by the daemons alone.\n", cluster,
		       conf, secret);
		return;
	}
	cli_json_begin(&out, &j);
	json_str(&j, "cluster", cluster);
	json_name(&j, "config", conf);
	json_name(&j, "secret", secret);
	cli_json_end(&out, &j);
}

/* The configuration last: where it is, all is. */
static int write_files(const struct cli *cli, const char *conf, const char *secret)
{
	const struct values *v = cli->values;
	struct store_conf text = {.made_by = "craton cluster init", .metad = v->metad, .secret_file = "secret", .plaintext = v->plaintext};
	char cluster[UUID_TEXT_BYTES];
	struct uuid uuid;
	struct err err = {0};

	if (store_random(&uuid, sizeof(uuid), &err) < 0)
		return cli_fail(cli, "%s", err.text);
	uuid_format(&uuid, cluster);
	text.cluster = cluster;
	if (store_write_secret(secret, &err) < 0 || store_write_conf(conf, &text, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	print_done(cli, cluster, conf, secret);
	return CLI_OK;
}

static int run(struct cli *cli)
{
	const char *dir = cli->words[1];
	char *conf, *secret;
	int exit_code;

	if (strcmp(cli->words[0], "init"))
		return cli_usage(cli, "there is no action '%s'; there is init", cli->words[0]);
	if (cli->word_count != 2)
		return cli_usage(cli, "init expects DIR");
	exit_code = check_address(cli, cli->values);
	if (exit_code != CLI_OK)
		return exit_code;
	conf = mem_printf("%s/craton.conf", dir);
	secret = mem_printf("%s/secret", dir);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		exit_code = cli_fail(cli, "cannot make the directory %s: %s", dir, strerror(errno));
	if (exit_code == CLI_OK)
		exit_code = check_new(cli, (const char *const[]){conf, secret, NULL});
	if (exit_code == CLI_OK)
		exit_code = write_files(cli, conf, secret);
	mem_free(conf);
	mem_free(secret);
	return exit_code;
}

const struct cli_command cmd_cluster = {
	.name = "cluster",
	.args = "init DIR",
	.summary = "make the configuration of a new cluster",
	.details = "Writes DIR/craton.conf (cluster id, address of metad) and DIR/secret (mode 0600), which all hosts of the cluster share. It\n"
	           "starts nothing; docs/DEPLOY.md goes on from here. Files that exist are never replaced.\n"
	           "JSON: cluster, config, secret.\n\n"
	           "Examples:\n"
	           "  craton cluster init /etc/craton --metad 10.0.0.1:7000 --plaintext\n"
	           "  craton cluster init ./conf --metad 127.0.0.1:7000\n"
	           "  craton cluster init ./three --metad 127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
