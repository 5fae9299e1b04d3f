/* SPDX-License-Identifier: Apache-2.0 */
/* log_stderr: the sink of common/base/log.h that daemons and tools use. It lives here because it reads the wall clock. */
#include <stdio.h>
#include <time.h>
#include "common/base/log.h"

void log_write_stderr(void *ctx, enum log_level level, const char *line)
{
	static const char *const names[] = {
		[LOG_DEBUG] = "DEBUG", [LOG_INFO] = "INFO", [LOG_WARN] = "WARN", [LOG_ERROR] = "ERROR"};
	struct timespec now;
	struct tm utc;
	char stamp[32];

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	/* One call, so that lines of several threads do not mix. */
	fprintf(stderr, "%s.%03ldZ %s %s\n", stamp, now.tv_nsec / 1000000, names[level], line);
}
