#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same seed gives the same events, event by event, with faults and without; in a process of its own or as one of several runs,
# and whatever the environment's size and the addresses are. Another seed gives others.
set -eu
sim=${CRATON_BUILD:-build}/tests/sim/craton-sim
ops=200
count=0

hashes() { # faults seed runs
	"$sim" --hash --ops $ops --faults "$1" --seed "$2" --runs "$3"
}

for faults in none all; do
	for seed in 1 2 3 4; do
		first=$(hashes $faults $seed 1)
		second=$(PADDING=$(head -c $((seed * 777)) /dev/zero | tr '\0' x) hashes $faults $seed 1)
		if [ "$first" != "$second" ]; then
			echo "seed $seed, faults $faults: '$first', then '$second'; compare two transcripts:"
			echo "  $sim --ops $ops --faults $faults --seed $seed --events FILE"
			exit 1
		fi
		count=$((count + 1))
	done
	together=$(hashes $faults 1 4)
	alone=$(for seed in 1 2 3 4; do hashes $faults $seed 1; done)
	if [ "$together" != "$alone" ]; then
		printf 'faults %s: in one process\n%s\neach alone\n%s\n' "$faults" "$together" "$alone"
		exit 1
	fi
	different=$(echo "$alone" | cut -d ' ' -f 2 | sort -u | wc -l)
	if [ "$different" != 4 ]; then
		echo "faults $faults: four seeds gave $different different hashes"
		exit 1
	fi
done
"$sim" --twice --ops $ops --seed 5 --runs 4 >/dev/null || {
	"$sim" --twice --ops $ops --seed 5 --runs 4 | grep DETERMINISTIC
	exit 1
}
echo "$count seeds gave the same events twice, and each seed others"
