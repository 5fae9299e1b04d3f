# SPDX-License-Identifier: Apache-2.0
"""What the machine itself gives in a run of `craton bench meta DIR`: bare echoes, and durable writes of 4 KiB."""

LEAST = {"floor_echo_per_s": 600e3, "floor_log_per_s": 12e3}
MOST = {"floor_log_p99_ms": 1.0}  # a disk that pauses makes the tail of whoever waits for it
FLOOR = [*LEAST, *MOST]


def is_slow(result, **least):
    """True: a figure that this run missed says nothing of metad. `least`: bounds in the place of those above."""
    return any(result[k] < v for k, v in {**LEAST, **least}.items()) or any(result[k] > v for k, v in MOST.items())
