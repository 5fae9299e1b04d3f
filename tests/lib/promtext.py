# SPDX-License-Identifier: Apache-2.0
"""promtext: a strict reader of Prometheus' text format 0.0.4, stricter than Prometheus itself: what it would let pass and promtool
complain about is an error here too."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
UNITS = ("_seconds", "_bytes")


class Malformed(Exception):
    pass


def labels_of(text):
    labels, at = {}, 0
    while at < len(text or ""):
        m = LABEL.match(text, at)
        if not m or m.group(1) in labels:
            raise Malformed(f"labels {text!r}")
        labels[m.group(1)] = m.group(2)
        at = m.end()
    if (text or "").endswith(","):
        raise Malformed(f"labels {text!r}")
    return labels


def check_histogram(name, series):
    """Buckets rise and end in +Inf, which is the count."""
    by_labels = {}
    for sample, labels, value in series:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        by_labels.setdefault(rest, []).append((sample, labels, value))
    for rest, samples in by_labels.items():
        buckets = [(float(l["le"]), v) for s, l, v in samples if s == name + "_bucket"]
        counts = [v for s, _, v in samples if s == name + "_count"]
        sums = [v for s, _, v in samples if s == name + "_sum"]
        if len(counts) != 1 or len(sums) != 1 or buckets != sorted(buckets) or buckets[-1] != (float("inf"), counts[0]):
            raise Malformed(f"histogram {name}{dict(rest)}")
        if any(a[1] > b[1] for a, b in zip(buckets, buckets[1:])):
            raise Malformed(f"histogram {name}{dict(rest)}: buckets fall")


def parse(text):
    """{metric: {"type", "help", "samples": [(name, labels, value)]}}; Malformed."""
    if not text.endswith("\n"):
        raise Malformed("no newline at the end")
    metrics, seen, current = {}, set(), None
    for line in text.split("\n")[:-1]:
        m = re.fullmatch(rf"# HELP ({NAME}) (.+)", line)
        if m:
            if m.group(1) in metrics:
                raise Malformed(f"{m.group(1)} is described twice")
            current = m.group(1)
            metrics[current] = {"help": m.group(2), "type": None, "samples": []}
            continue
        m = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line)
        if m:
            if m.group(1) != current or metrics[current]["type"] or metrics[current]["samples"]:
                raise Malformed(f"TYPE out of place: {line!r}")
            metrics[current]["type"] = m.group(2)
            continue
        m = SAMPLE.match(line)
        if not m or not current or not metrics[current]["type"]:
            raise Malformed(f"line {line!r}")
        name, labels, value = m.group(1), labels_of(m.group(2)), float(m.group(3))
        if name not in [current + s for s in SUFFIXES.get(metrics[current]["type"], ("",))]:
            raise Malformed(f"{name} among the values of {current}")
        key = (name, tuple(sorted(labels.items())))
        if key in seen:
            raise Malformed(f"{key} comes twice")
        seen.add(key)
        metrics[current]["samples"].append((name, labels, value))
    for name, metric in metrics.items():
        if not metric["samples"]:
            raise Malformed(f"{name} has no values")
        if not metric["help"].endswith("."):
            raise Malformed(f"the help of {name} is no sentence")
        if not name.startswith("craton_") or (metric["type"] == "counter") != name.endswith("_total"):
            raise Malformed(f"{name} is not named as a {metric['type']}")
        if metric["type"] == "histogram":
            if not name.endswith(UNITS):
                raise Malformed(f"{name} has no unit")
            check_histogram(name, metric["samples"])
    return metrics


def value(metrics, name, **labels):
    """The one value of that name whose labels hold these."""
    found = [v for n, l, v in metrics[name]["samples"] if all(l.get(k) == w for k, w in labels.items())]
    if len(found) != 1:
        raise KeyError(f"{name}{labels}: {len(found)} values")
    return found[0]
