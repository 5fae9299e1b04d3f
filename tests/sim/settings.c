// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/settings.h"

#include <string.h>
#include "common/base/mem.h"

static void next(struct settings *s);

static void changed(struct client_op *op)
{
	struct settings *s = op->user;

	mem_free(op->json);
	if (op->err.code < 0)
		cluster_fail(s->cluster, "%s=%s was refused: %s", op->setting, op->value, op->err.text);
	s->pairs++;
	next(s);
}

static void next(struct settings *s)
{
	s->done = !(*s->pairs)[0] || s->cluster->failed;
	if (s->done)
		return;
	memset(&s->op, 0, sizeof(s->op));
	s->op.kind = CLIENT_CONFIG;
	s->op.setting = (*s->pairs)[0];
	s->op.value = (*s->pairs)[1];
	s->op.done = changed;
	s->op.user = s;
	cluster_client_start(s->cluster, s->cluster->first_client, &s->op);
}

static void begin(struct settings *s, struct cluster *cluster, const char *const (*pairs)[2])
{
	*s = (struct settings){.cluster = cluster, .pairs = pairs};
	next(s);
}

void settings_hasten(struct settings *s, struct cluster *cluster)
{
	static const char *const pairs[][2] = {{"server.dead_after", "6s"}, {"repair.missing_after", "3s"},
		{"repair.mass_hold", "5s"}, {"repair.domain_interval", "4s"}, {NULL, NULL}};

	begin(s, cluster, pairs);
}

void settings_slacken(struct settings *s, struct cluster *cluster)
{
	static const char *const pairs[][2] = {
		{"server.dead_after", "10m"}, {"server.down_after", "10s"}, {NULL, NULL}};

	begin(s, cluster, pairs);
}

bool settings_done(const struct settings *s)
{
	return s->done;
}
