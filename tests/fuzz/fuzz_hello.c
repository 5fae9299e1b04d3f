/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a HELLO: the first bytes that a stranger may send. Byte 0: who listens. */
#include <stddef.h>
#include <string.h>
#include "common/base/check.h"
#include "common/rpc/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rpc_identity self = {.role = RPC_ROLE_METAD, .name = "metad-1"}, peer;
	struct err err = {0};
	int code;

	if (size == 0)
		return 0;
	self.role = (uint8_t)(1 + data[0] % 4);
	if (data[0] & 0x80)
		memset(self.cluster.bytes, 1, sizeof(self.cluster.bytes));
	memset(&peer, 0xff, sizeof(peer));
	code = hello_parse(&self, data + 1, size - 1, &peer, &err);
	CHECK(code == err.code);
	CHECK(code == 0 || code == ERR_PROTO || code == ERR_MSGSIZE || code == ERR_VERSION ||
		code == ERR_WRONG_CLUSTER);
	if (code == 0 || code == ERR_VERSION || code == ERR_WRONG_CLUSTER) {
		CHECK(peer.role >= RPC_ROLE_METAD && peer.role <= RPC_ROLE_ADMIN);
		CHECK(strnlen(peer.name, sizeof(peer.name)) < sizeof(peer.name));
	}
	return 0;
}
