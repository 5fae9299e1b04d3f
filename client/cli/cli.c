/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/mem.h"

enum { CLI_LINE_BYTES = 1024, CLI_JSON_BYTES = 64 << 10 };

static void complain(const struct cli *cli, const char *fmt, va_list ap)
{
	char line[CLI_LINE_BYTES], *shown;
	struct buf out;
	struct json j;

	vsnprintf(line, sizeof(line), fmt, ap);
	shown = cli_printable(line); /* one line, whatever is in the names */
	fprintf(stderr, "%scraton%s%s: %s\n", cli->drawn ? "\r\033[K" : "", cli->command ? " " : "", cli->command ? cli->command : "", shown);
	mem_free(shown);
	if (!cli->json)
		return;
	cli_json_begin(&out, &j);
	json_str(&j, "error", line);
	cli_json_end(&out, &j);
}

int cli_fail(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(cli, fmt, ap);
	va_end(ap);
	return CLI_FAILED;
}

bool cli_is_away(int r)
{
	switch (r) {
	case -ETIMEDOUT:
	case -EAGAIN: /* no metad leads, or all are busy: it was asked again for as long as it may take */
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -EPIPE:
	case -ESHUTDOWN:
		return true;
	default:
		return false;
	}
}

int cli_fail_store(struct cli *cli, int r)
{
	cli->away |= cli_is_away(r);
	cli->full |= r == -ENOSPC;
	return cli_fail(cli, "%s", cr_error());
}

int cli_each_word(struct cli *cli, int (*one)(struct cli *cli, const char *word))
{
	int exit_code = CLI_OK;

	for (int i = 0; i < cli->word_count && !cli->away; i++)
		if (one(cli, cli->words[i]) != CLI_OK)
			exit_code = CLI_FAILED;
	return exit_code;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(cli, fmt, ap);
	va_end(ap);
	fprintf(stderr, "Try: craton%s%s --help\n", cli->command ? " " : "", cli->command ? cli->command : "");
	return CLI_USAGE;
}

int cli_connect(struct cli *cli)
{
	struct cr_options options = {.config = cli->config, .timeout_ms = (uint32_t)cli->timeout_ms, .ignore_servers = cli->ignore_servers,
	                             .no_hello = cli->no_hello};
	int r = cr_connect(&options, &cli->store);

	if (r < 0)
		return cli_fail(cli, "%s", cr_error());
	return CLI_OK;
}

void cli_print_json(struct buf *out)
{
	fwrite(out->data, 1, out->len, stdout);
	fputc('\n', stdout);
	fflush(stdout);
	buf_clear(out);
}

void cli_json_begin(struct buf *out, struct json *j)
{
	buf_init(out, CLI_JSON_BYTES);
	json_init(j, out);
	json_object(j, NULL);
}

void cli_json_end(struct buf *out, struct json *j)
{
	json_end_object(j);
	cli_print_json(out);
	buf_fini(out);
}

int cli_done(const struct cli *cli)
{
	if (cli->json)
		printf("{}\n");
	return CLI_OK;
}

uint32_t cli_dir_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0777 & ~mask;
}

void cli_format_mode(uint32_t mode, char ret_text[10])
{
	static const char bits[] = "rwxrwxrwx";

	for (int i = 0; i < 9; i++)
		ret_text[i] = mode & (0400u >> i) ? bits[i] : '-';
	ret_text[9] = '\0';
}

void cli_format_time(int64_t ns, char ret_text[32])
{
	time_t t = (time_t)(ns / 1000000000);
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(ret_text, 32, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(ret_text, 32, "-");
}

char *cli_printable(const char *name)
{
	struct buf out;
	char *text;

	buf_init(&out, 8 << 10);
	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		if (*c < 0x20 || *c == 0x7f)
			buf_printf(&out, "\\x%02x", *c);
		else
			buf_append(&out, c, 1);
	}
	buf_append(&out, "", 1);
	text = mem_strdup((const char *)out.data);
	buf_fini(&out);
	return text;
}

char *cli_last_name(const char *path)
{
	size_t n = strlen(path), begin;

	while (n > 0 && path[n - 1] == '/')
		n--;
	for (begin = n; begin > 0 && path[begin - 1] != '/'; begin--)
		;
	return mem_printf("%.*s", (int)(n - begin), path + begin);
}

char *cli_quoted(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./,:+@%";
	struct buf out;
	char *text;

	if (*word && word[strspn(word, plain)] == '\0')
		return mem_strdup(word);
	buf_init(&out, 32 << 10);
	buf_append(&out, "'", 1);
	for (; *word; word++) {
		if (*word == '\'')
			buf_append(&out, "'\\''", 4);
		else
			buf_append(&out, word, 1);
	}
	buf_append(&out, "'", 2); /* and the NUL */
	text = mem_strdup((const char *)out.data);
	buf_fini(&out);
	return text;
}
