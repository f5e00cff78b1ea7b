"""What runs on the other machine, in plain sh: one that joins, and one that takes all of it back.

Both lie in the folder there. No word of a user's stands in them: words come by stdin.
"""

from __future__ import annotations

from collections.abc import Mapping

# Words come by stdin, a line each, and an empty line. Then stdin stays open for as long as who asked is
# there: its end, be it by Ctrl-C or by the network, ends the run, and a new folder goes with it.
_JOIN = """#!/bin/sh
# join new|kept
cd "$(dirname "$0")/.." || exit 2
fate=$1
set --
while IFS= read -r word && [ -n "$word" ]; do set -- "$@" "$word"; done
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH
exec 3<&0 </dev/null
echo "$$" >.carried/pid
setsid ./configure-environment "$@" 3<&- >/dev/null &
run=$!
(
    while read -r word <&3; do :; done
    kill -TERM -- "-$run"
) >/dev/null 2>&1 &
watch=$!
wait "$run"
code=$?
kill "$watch" 2>/dev/null
rm -f .carried/pid
[ "$code" -eq 0 ] || [ "$fate" != new ] || sh .carried/clean >/dev/null 2>&1
exit "$code"
"""

_CLEAN = """#!/bin/sh
# The node, its program and its folder are gone afterwards; 3 where the node could not be removed.
cd "$(dirname "$0")/.." || exit 2
folder=$(pwd -P)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH
if [ -e .dshpc/runtime.json ]; then
    ./dshpc destroy --yes --stop-jobs </dev/null || exit 3
fi
cd / && rm -rf -- "$folder"
"""

SCRIPTS: Mapping[str, str] = {"join": _JOIN, "clean": _CLEAN}
WAIT_FOR_END_S = 120


def unpack(folder: str) -> str:
    """The command that lays an archive of stdin into the folder; a new one goes again where it fails."""
    return _quoted(
        f'folder={folder}; [ -e "$folder" ] || new=yes; mkdir -p "$folder/.carried" && '
        'chmod go-w "$folder" && rm -rf "$folder/.carried/packages-"* && tar -xzf - -C "$folder" || '
        '{ [ -z "$new" ] || rm -rf -- "$folder"; exit 2; }'
    )


def store(folder: str, name: str) -> str:
    """The command that keeps stdin as a file of that name, or none of it."""
    return _quoted(
        f'file={folder}/.carried/{name}; cat >"$file.part" && mv "$file.part" "$file" || '
        '{ rm -f "$file.part"; exit 2; }'
    )


def ended(folder: str, *, remove: bool) -> str:
    """The command that waits until a run there has ended; with `remove`, what is left of it goes."""
    waits = (
        f'at={folder}/.carried; n=0; while [ -s "$at/pid" ] && [ $n -lt {WAIT_FOR_END_S} ] && '
        'kill -0 "$(cat "$at/pid")"; do sleep 1; n=$((n+1)); done 2>/dev/null; '
    )
    return _quoted(waits + ('[ ! -e "$at/clean" ] || exec sh "$at/clean"' if remove else "true"))


def _quoted(inner: str) -> str:
    """For whatever shell the user has there: no part of it has a single quote."""
    return f"sh -c '{inner}'"
