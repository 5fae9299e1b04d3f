/* SPDX-License-Identifier: Apache-2.0 */
#include "client/report.h"

#include "client/client_priv.h"

static const uint64_t SECOND_NS = 1000 * 1000 * 1000ull;

enum { REPORT_REST_S = 1, REPORT_AGAIN_S = 60, REPORT_CALL_S = 5 };

static void report_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct report *r = CONTAINER_OF(call, struct report, call);
	struct client *client = CONTAINER_OF(r, struct client, report);

	(void)status, (void)msg; /* what was not heard is found again */
	client->background--;
	client_check_closed(client);
}

/* All that was not told yet. */
static void report_send(struct client *client)
{
	struct report *r = &client->report;
	uint64_t now_ns = io_now_ns(client->io);

	craton__report_request__init(&r->request);
	r->request.copies = r->messages;
	for (size_t i = 0; i < REPORT_COPIES; i++) {
		struct report_copy *c = &r->copies[i];
		Craton__CopyReport *m = &r->message[r->request.n_copies];

		if (!c->block || c->told_ns)
			continue;
		c->told_ns = now_ns;
		craton__copy_report__init(m);
		m->block = c->block;
		m->index = c->index;
		m->disk = c->disk;
		m->incarnation = c->incarnation;
		m->status = c->status;
		r->messages[r->request.n_copies++] = m;
	}
	r->sent_ns = now_ns;
	r->call = (struct session_call){
		.method = &rpc_metad_report,
		.request = &r->request.base,
		.timeout_ns = REPORT_CALL_S * SECOND_NS,
		.done = report_done,
	};
	client->background++;
	session_start(&client->session, &r->call);
}

void report_copy(struct client *client, uint64_t block, uint8_t index, uint32_t disk, uint32_t incarnation, int status)
{
	struct report *r = &client->report;
	uint64_t now_ns = io_now_ns(client->io);
	struct report_copy *c;

	if (client->closing)
		return;
	for (size_t i = 0; i < REPORT_COPIES; i++) {
		c = &r->copies[i];
		if (c->block == block && c->index == index && c->incarnation == incarnation &&
			(!c->told_ns || now_ns - c->told_ns < REPORT_AGAIN_S * SECOND_NS))
			return;
	}
	c = &r->copies[r->next++ % REPORT_COPIES];
	*c = (struct report_copy){
		.block = block, .index = index, .disk = disk, .incarnation = incarnation, .status = status};
	if (!session_call_active(&r->call) && (!r->sent_ns || now_ns - r->sent_ns >= REPORT_REST_S * SECOND_NS))
		report_send(client);
}
