"""Run in a container in place of its first process: that one, and `dshpc-node start` killed once.

    python3 kill_start.py PHASE|SECONDS INIT

PHASE: as soon as the status is at that step of the start, or already beyond it. SECONDS: that long
after the start began. What was killed, and at which step, stands in /killed: it is done once only.
"""

import os
import signal
import sys
import time

PHASE = "/run/dshpc/phase"


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def phase() -> str:
    return read(PHASE).partition("\n")[0]


def find() -> int:
    """The process id of `dshpc-node start`; 0 as long as there is none."""
    for name in os.listdir("/proc"):
        if name.isdigit() and "dshpc-node\0start" in read(f"/proc/{name}/cmdline"):
            return int(name)
    return 0


def kill(when: str) -> None:
    until = time.monotonic() + 60
    pid = 0
    while not pid and time.monotonic() < until:
        pid = find()
    if when.replace(".", "").isdigit():
        time.sleep(float(when))
    else:
        wait_phase(when, until)
    late = ""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        late = "too late: "
    while os.path.exists(f"/proc/{pid}"):  # until then it may go a step on, or not be reaped yet
        time.sleep(0.01)
    with open("/killed.new", "w", encoding="utf-8") as file:
        file.write(f"{late}{phase() or 'before its first step'}\n")
    os.rename("/killed.new", "/killed")


def wait_phase(step: str, until: float) -> None:
    """Until the start is at that step; some are so short that they are seen once they are over."""
    while time.monotonic() < until:
        now = phase()
        if now == f"starting: {step}" or now in ("ready", "failed"):
            return
        if f'"name": "{step}"' in read("/run/dshpc/status.json"):
            return


if __name__ == "__main__":
    if not os.path.exists("/killed") and os.fork() == 0:
        kill(sys.argv[1])
        os._exit(0)
    os.execv(sys.argv[2], sys.argv[2:])
