"""What tests/integration/test_debian_base.py does as another user: own_base.py ACTION PLACE [ARGUMENT...]

    make MIRROR SECURITY EXTRA...   a base at PLACE/base: its way, seconds, packages, kinds of cached files
    enter COMMAND...                in a container of it: exit codes and what was printed
    remove                          PLACE/base

Run from a copy of the package that everybody can read, by an interpreter without packages. Prints JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dshpc_setup.builtin import enter, launch, rights, trees
from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin.wanted import Wanted
from dshpc_setup.debian import sources
from dshpc_setup.debian.base import make_base
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.local import LocalMachine

MACHINE = LocalMachine()


def act(action: str, place: Path, rest: list[str]) -> Any:
    ids = rights.need(rights.find(MACHINE), rights.current_user())
    base = place / "base"
    match action:
        case "make":
            mirror, security, *extra = rest
            made = make_base(
                MACHINE,
                mirror,
                "trixie",
                ids,
                base,
                extra=extra,
                security=security or None,
                deadline_s=500,
            )
            seconds = [round(each, 1) for each in (made.fetch_s, made.unpack_s, made.configure_s)]
            kinds = {path.suffix for path in sources.cache_folder(MACHINE.env).iterdir()}
            return [ids.way, seconds, dict(made.packages), sorted(kinds)]
        case "enter":
            root = Rootfs("0" * 64, ids, str(base), Unpacked(0, 0, 0, None))
            argv = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait")
            wanted = Wanted("base", root, str(place / "run"), argv, "base")
            launch.start(MACHINE, wanted)
            try:
                done = [
                    enter.capture(place / "run", enter.Command(("sh", "-c", each))) for each in rest
                ]
                return [[one.code, one.stdout.decode(), one.stderr.decode()] for one in done]
            finally:
                launch.stop(place / "run")
                launch.remove(MACHINE, place / "run", ids)
        case "remove":
            trees.remove(MACHINE, ids, base)
            return sorted(path.name for path in place.iterdir())
    raise AssertionError(action)


def main() -> None:
    try:
        answer = act(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    except DshpcError as error:
        sys.exit(f"{error.brief}\n{error.details}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
