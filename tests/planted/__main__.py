"""python -m tests.planted [--only WORD] [--list]

Plants each fault of faults.py into a copy of the checkout, and runs the tests that must catch it. Exit code:
0 where all were caught, 1 where one was not, 2 where the tests fail without any.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.planted import trial
from tests.planted.faults import FAULTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="those with it in file or words")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only in f"{fault.file}: {fault.what}"]
    if options.list:
        print(*(f"{fault.file}: {fault.what}" for fault in chosen), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="dshpc-planted-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(trial.ROOT, copy, ignore=shutil.ignore_patterns(*trial.LEFT_OUT))
        return _all(chosen, copy)


def _all(chosen: list[trial.Fault], copy: Path) -> int:
    tests = list(dict.fromkeys(test for fault in chosen for test in fault.tests))
    print(f"without a fault: {len(tests)} files or tests", flush=True)
    sound, said = trial.run(copy, tests)
    if sound != 0:
        print(said, "The tests fail as they are: nothing can be said.", sep="\n")
        return 2
    left = []
    for fault in chosen:
        caught = trial.is_caught(copy, fault)
        print("caught    " if caught else "NOT CAUGHT", f"{fault.file}: {fault.what}", flush=True)
        left += [] if caught else [fault]
    print(f"{len(chosen) - len(left)} of {len(chosen)} faults were caught")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
