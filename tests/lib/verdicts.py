# SPDX-License-Identifier: Apache-2.0
"""What measured rounds say: the verdicts of the proofs `bench` and `group-speed`, apart from the measuring, so that made-up rounds can try them."""

import math
import statistics

# ---- put and get against the floor (tools/prove.d/bench) ----

# GB/s of the floor, below which its share says little, for any store keeps up with a slow disk.
FLOORS = {"put_share": ("floor_put", 1.6), "get_share": ("floor_get", 2.4)}
COUNTED = 3 # rounds with a floor that counts, by which a share is judged
# Per bar, at least: shares of the floor, but degraded of a get with all servers; and CPU s/GiB, at most.
LEAST = {"sound": {"put_share": 0.60, "get_share": 0.60},
         "goal": {"put_share": 0.80, "rewrite_share": 0.60, "get_share": 0.80, "degraded_share": 0.85}}
MOST = {"sound": {"put_cpu": 1.2, "get_cpu": 0.8},
        "goal": {"put_cpu": 1.0, "rewrite_cpu": 1.0, "get_cpu": 0.55}}


def floor_counts(round_, share):
    floor, least = FLOORS[share]
    return round_[floor] >= least


def slow_floors(round_):
    """Which floors of a round are below their bounds, in words; empty if none is."""
    return " and ".join(f"{floor} {round_[floor]:.2f} GB/s is below {least}" for floor, least in FLOORS.values() if round_[floor] < least)


def judge_bench(bar, rounds):
    """[{what, median, at_least or at_most, rounds, lowered, ok}] of a bar's bounds. A share of put or get is judged by the rounds whose own floor counts; if these are
    too few, by all, and by the few, and the bar is the sound one. All else is judged by all rounds: only the floor may be slow, not the store."""
    said = []
    for what, bound in LEAST[bar].items():
        by = [r for r in rounds if floor_counts(r, what)] if what in FLOORS else rounds
        median, lowered = median_of(by, what), False
        if what in FLOORS and len(by) < COUNTED:
            lowered = bound > LEAST["sound"][what]
            bound, median, by = min(bound, LEAST["sound"][what]), min(median, median_of(rounds, what)), rounds
        said.append({"what": what, "median": round(median, 3), "at_least": bound, "rounds": len(by), "lowered": lowered, "ok": median >= bound})
    for what, bound in MOST[bar].items():
        median = median_of(rounds, what)
        said.append({"what": what, "median": round(median, 3), "at_most": bound, "rounds": len(rounds), "lowered": False, "ok": median <= bound})
    return said


def median_of(rounds, what):
    return statistics.median(r[what] for r in rounds) if rounds else math.inf


def in_words(said):
    """What a bar's bounds come to."""
    lowered = ", ".join(f"{s['what']} of a slow floor by {s['at_least']}" for s in said if s["lowered"])
    return missed(said) or ("reached" + (f", but {lowered}" if lowered else ""))


def missed(said):
    """Of what judge_bench said, in words; empty if all is reached."""
    return "; ".join(f"{s['what']} {s['median']} {'<' if 'at_least' in s else '>'} {s.get('at_least', s.get('at_most'))}" for s in said if not s["ok"])


# ---- three metads against one (tools/prove.d/group-speed) ----

P99_TIMES, CPU_TIMES = 2.0, 2.5
OFFERED = 0.98 # of the rate that is reached at least: else it was not offered
PAUSED = 0.003 # of the time, beyond which a round compares pauses of the disk
CHANCE = 0.05  # what is less likely is no chance


def group_medians(good, void):
    """Of rounds; what CPU costs is not the disk's doing, and void rounds tell it, too."""
    return {what: round(median_of(good + void if what == "cpu_times" else good, what), 3) for what in ("p99_times", "cpu_times", "reached")}


def paused_alone(void):
    """In how many rounds the disk paused under one alone, and under three alone."""
    paused = [[share > PAUSED for share in r["paused"]] for r in void]
    return paused.count([True, False]), paused.count([False, True])


def missed_by_group(median):
    """Of the medians of rounds, in words."""
    said = [f"the 99th percentile of three is {median['p99_times']:.2f} times that of one"] if median["p99_times"] > P99_TIMES else []
    said += [f"the CPU of three is {median['cpu_times']:.2f} times that of one"] if median["cpu_times"] > CPU_TIMES else []
    said += [f"only {median['reached']:.2f} of the offered load was done"] if median["reached"] < OFFERED else []
    return "; ".join(said)


def pauses_by_group(under_one, under_three):
    """In words, if pauses that were seen under three alone in so many rounds, and under one alone in so many, do not come to either alike: a sign test."""
    n = under_one + under_three
    likely = sum(math.comb(n, k) for k in range(under_three, n + 1)) / 2 ** n
    if likely > CHANCE:
        return ""
    return (f"the disk paused under three metads alone in {under_three} rounds, under one alone in {under_one}, which is no chance: look at `paused` of each "
            "round, and try another disk (CRATON_TEST_DIR)")
