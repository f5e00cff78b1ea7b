#!/bin/bash
# Runs the script handed in as `beside` while the machine has other work: one process that computes
# without end, one that writes to the disk. On the guest's one processor that leaves it a third of
# the time, and answers that take seconds in place of tenths.
set -u

FILE=/var/tmp/busy-load
compute() { while :; do :; done; }
write() { while :; do dd if=/dev/zero of="$FILE" bs=1M count=128 conv=fsync 2>/dev/null; done; }

load=()
compute &
load+=($!)
write &
load+=($!)
trap 'kill "${load[@]}" 2>/dev/null; rm -f "$FILE"' EXIT
echo "busy: ${#load[@]} other processes run beside the script"
"$(dirname "$0")/beside" "$@"
