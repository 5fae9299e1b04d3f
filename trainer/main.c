/* SPDX-License-Identifier: Apache-2.0 */
/* craton-train: the command. Exit codes: 0; 1 failure, or the last save failed; 2 usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "trainer/train.h"

static void main_on_signal(int number)
{
	(void)number;
	train_request_stop();
}

static void main_set_signals(void)
{
	struct sigaction stop = {.sa_handler = main_on_signal, .sa_flags = SA_RESTART},
			 ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
}

int main(int argc, char **argv)
{
	struct train_options o;
	struct train_report report;
	struct train_report_summary summary;
	struct cr_options store_options = {0};
	struct cr_store *store;
	struct terr e;
	int rc = train_options_parse(&o, argc, argv, &e);

	if (rc) {
		fprintf(stderr, "craton-train: %s\n", e.text);
		return 2;
	}
	if (o.help || o.version) {
		if (o.help)
			train_options_help(stdout);
		else
			printf("craton-train %s\n", cr_version());
		return fflush(stdout) ? 1 : 0;
	}
	main_set_signals();
	store_options.config = o.config;
	store_options.timeout_ms = (uint32_t)o.timeout_ms;
	if (cr_connect(&store_options, &store)) {
		fprintf(stderr, "craton-train: %s\n", cr_error());
		return 1;
	}
	report = (struct train_report){.out = stdout, .json = o.json};
	rc = train_run(store, &o, &report, &summary, &e);
	cr_disconnect(store);
	if (rc) {
		fprintf(stderr, "craton-train: %s\n", e.text);
		return rc == -EINVAL ? 2 : 1;
	}
	if (summary.last_save_failed) {
		fprintf(stderr, "craton-train: the last checkpoint could not be saved: see the lines above\n");
		return 1;
	}
	return 0;
}
