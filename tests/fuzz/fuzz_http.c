/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of HTTP requests: judged without a look behind their end; what is judged good stays so, whatever follows. */
#include "common/base/check.h"
#include "common/rpc/metrics_http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int whole = metrics_http_judge(slice_of(data, size));

	CHECK(whole == 0 || whole == 200 || (whole >= 400 && whole < 600));
	CHECK(whole != 0 || size < METRICS_HTTP_HEAD_BYTES);
	for (size_t len = 0; len < size && len < 512; len++) {
		int part = metrics_http_judge(slice_of(data, len));

		CHECK(part != 200 || whole == 200 || whole == 400); /* a zero byte behind it */
	}
	return 0;
}
