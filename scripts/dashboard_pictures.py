"""The pictures of docs/how-to/dashboard.md, anew:

    python scripts/dashboard_pictures.py PROJECT FOLDER [PICTURE...]

PROJECT is the folder of a cluster that runs, set up with `--simulate h100:4`, with jobs and a workflow
`night`. It is what the pictures show, but for what its GPUs measure, which is made up below. Whoever types
this opens the dashboard: for the overview the cluster's owner, whose doctor sees all, and for the workflow
who ran it. The pictures, all or those named, are written into FOLDER. It takes Debian's Chromium.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PICTURES = {"dashboard.png": ("/", 1470), "dashboard-workflow.png": ("/workflows/night", 790)}
LOOKED_S = 180.0  # until doctor has looked, on a machine that does other things too

SERVE = """
import sys
from dataclasses import replace
from dshpc_setup.cli import main
from dshpc_setup.dashboard.live_source import LiveSource as Live
from dshpc_setup.probes.readings.values import Reading, Readings

MEASURED = Readings(tuple(
    Reading(used, 81559, use, celsius, watts, 700.0)
    for used, use, celsius, watts in (
        (61200, 97, 66, 612.0), (58800, 95, 64, 598.0), (2150, 0, 34, 71.0), (0, 0, 31, 68.0))
))
hardware, status, holders = Live.hardware, Live.status, Live.holders

def looks(self):
    for now in hardware(self):
        yield replace(now, gpus=replace(now.gpus, simulated=False), readings=MEASURED)

Live.hardware = looks
Live.status = lambda self: replace(status(self), simulated=False)
Live.holders = lambda self, before: (told := holders(self, before)) and replace(told, simulated=False)
sys.exit(main())
"""


def main() -> int:
    if len(sys.argv) < 3 or not set(sys.argv[3:]) <= PICTURES.keys():
        print(__doc__, file=sys.stderr)
        return 64
    project, folder = sys.argv[1], Path(sys.argv[2])
    words = [sys.executable, "-c", SERVE, "dashboard", "--no-browser", "--dir", project]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        found = re.fullmatch(r"(http://\S+)/\?token=(\S+)\n", child.stdout.readline())
        if found is None:
            return 1  # it has said why
        top, token = found.groups()
        until = time.monotonic() + LOOKED_S
        while not is_there(f"{top}/api/doctor", token):
            if time.monotonic() > until:
                print(f"Doctor has not looked in {LOOKED_S:.0f} s: try it again.", file=sys.stderr)
                return 1
            time.sleep(1)
        for name in sys.argv[3:] or PICTURES:
            path, height = PICTURES[name]
            if not is_there(top + path, token):
                print(f"Without {path} there is no {name}.", file=sys.stderr)
                return 1
            take(f"{top}{path}?token={token}", folder / name, height)
    finally:
        child.terminate()
        child.wait(30)
    return 0


def is_there(address: str, token: str) -> bool:
    asked = Request(address, headers={"Authorization": f"Bearer {token}"})
    try:
        return bool(urlopen(asked, timeout=30).status == 200)
    except HTTPError as error:
        if error.code not in (400, 503):  # no such workflow; not looked yet
            raise
        return False


def take(address: str, picture: Path, height: int) -> None:
    with tempfile.TemporaryDirectory() as own:
        words = [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--hide-scrollbars",
            "--timeout=5000",
        ]
        more = [f"--window-size=1100,{height}", f"--user-data-dir={own}", f"--screenshot={picture}"]
        subprocess.run([*words, *more, address], check=True, timeout=120, stderr=subprocess.DEVNULL)
    print(picture)


if __name__ == "__main__":
    sys.exit(main())
