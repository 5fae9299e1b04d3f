/* SPDX-License-Identifier: Apache-2.0 */
/* handlers_config: settings of the store, shown and changed (state/config.h). Texts are parsed here, commands carry numbers. */
#include "metad/core.h"

#include "common/base/check.h"

bool metad__config_set(struct metad *md, enum config_id id, uint64_t value, metad_result_fn *fn, void *arg)
{
	const char *name = config_settings[id].name;

	md->cmd.type = STATE_CMD_CONFIG_SET;
	md->cmd.config_set = (struct state_cmd_config_set){.name = slice_of(name, strlen(name)), .value = value};
	return metad__submit(md, fn, arg);
}

static void wire_setting(struct metad *md, enum config_id id, size_t at)
{
	const struct config_setting *c = &config_settings[id];
	struct metad_scratch *sc = md->scratch;
	Craton__Setting *out = &sc->setting[at];

	craton__setting__init(out);
	sc->settings[at] = out;
	out->name = (char *)(uintptr_t)c->name;
	out->type = (char *)(uintptr_t)config_type_name(c->type);
	out->unit = (char *)(uintptr_t)config_unit(c->type);
	out->min = c->min;
	out->max = c->max;
	out->default_value = c->default_;
	out->value = state_config(&md->state, id);
	out->text = (char *)(uintptr_t)config_format(c->type, out->value, sc->setting_texts[at][0]);
	out->default_text = (char *)(uintptr_t)config_format(c->type, c->default_, sc->setting_texts[at][1]);
	out->help = (char *)(uintptr_t)c->help;
}

size_t metad__wire_settings(struct metad *md, bool all, Craton__Setting ***ret_settings)
{
	size_t n = 0;

	for (int i = 0; i < CONFIG_COUNT; i++)
		if (all || state_config(&md->state, (enum config_id)i) != config_settings[i].default_)
			wire_setting(md, (enum config_id)i, n++);
	*ret_settings = md->scratch->settings;
	return n;
}

static void reply(struct metad *md, struct rpc_req *req, int status, const char *error)
{
	const Craton__ConfigRequest *msg = (const Craton__ConfigRequest *)req->msg;
	Craton__ConfigReply out = CRATON__CONFIG_REPLY__INIT;
	enum config_id id;

	out.error = (char *)(uintptr_t)error;
	if (!status && !msg->name[0]) {
		out.n_settings = metad__wire_settings(md, true, &out.settings);
	} else if (!status && config_find(slice_of(msg->name, strlen(msg->name)), &id) == 0) {
		wire_setting(md, id, 0);
		out.n_settings = 1;
		out.settings = md->scratch->settings;
	}
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &out.base});
}

static void on_set(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct rpc_req *req = arg;
	const Craton__ConfigRequest *msg = (const Craton__ConfigRequest *)req->msg;

	if (res && !status)
		log_line(md->options.log, LOG_INFO, "config-set", "name=%s value=%s", msg->name, msg->value);
	reply(md, req, status, status == ERR_RANGE ? "another setting was changed meanwhile: look at both" : "");
}

void metad__config(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__ConfigRequest *msg = (const Craton__ConfigRequest *)req->msg;
	struct err err = {0};
	enum config_id id;
	uint64_t value;

	if (metad__gate(md, req))
		return;
	if (msg->name[0] && config_find(slice_of(msg->name, strlen(msg->name)), &id)) {
		err_set(&err, ERR_NOENT, "there is no setting '%.64s': `craton config ls` shows them", msg->name);
		reply(md, req, err.code, err.text);
		return;
	}
	if (!msg->value[0]) {
		reply(md, req, 0, "");
		return;
	}
	if (!msg->name[0]) {
		reply(md, req, ERR_INVAL, "a value needs the name of a setting");
		return;
	}
	if (config_parse(&config_settings[id], msg->value, &value, &err) ||
		config_check(id, value, md->state.config, &err)) {
		reply(md, req, err.code, err.text);
		return;
	}
	if (!metad__config_set(md, id, value, on_set, req))
		rpc_reply_status(req, ERR_OVERLOADED);
}
