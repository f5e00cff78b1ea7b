"""`dshpc-node job ssh`: the job that the name of a host means, found or submitted, and waited for.

It runs as the calling user, for the first connection to a job: later ones go to its listener at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.jobs import answer, node_choice, offer, rights, sbatch, submit
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.stopping import interruptible
from dshpc_setup.jobs.workspace import Workspace
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.ssh import names, place

SCHEMA, ANSWER = "dshpc.ssh-request/1", "dshpc.ssh/1"
_COLUMNS = "JobID State Reason BatchHost UserID Name"
_ASK_S = 20.0
_PAUSE_S = (0.1, 1.0)  # between two questions: at first, and later
_SERVES_S = 180  # the same of a server, which may have to read thousands of files first
_LISTENS_S = 20  # how long a job that runs may take until its listener is there
_RUNNING = ("RUNNING", "COMPLETING")
_KEYGEN_S = 20.0


@dataclass(frozen=True)
class Asked:
    """`keys`: the user's public keys. `certificate` and `ca`: what root has signed, where it was asked
    to. `request`: the job to submit where there is none; None for `job-123`. `token`: of a server that
    its job starts in place of sshd, if it is submitted now; its own programs let nobody in without it.
    """

    name: str
    linger_s: float
    keys: tuple[str, ...]
    certificate: str | None = None
    ca: str | None = None
    request: Request | None = None
    by_srun: bool = False
    token: str | None = None

    def to_json(self) -> dict[str, Any]:
        return codec.to_json(self, SCHEMA)


def main(rest: list[str]) -> int:
    """Answer what stands on stdin; the answer, or the error, is on stdout."""
    from dshpc_setup.machine.local import LocalMachine

    sbatch.forget_variables(os.environ)
    os.umask(0o077)
    try:
        if rest:
            raise usage_error("dshpc-node job ssh takes no words.")
        try:
            asked = codec.from_json(Asked, foreign.value(sys.stdin.read()), SCHEMA)
        except ValueError as error:
            raise usage_error("The request cannot be read.", str(error)) from None
        names.check(asked.name, is_server=asked.token is not None)
        said = _Search(LocalMachine(), asked).answer()
    except OSError as error:
        said = _not_kept(error).to_object()
    except DshpcError as error:
        said = error.to_object()
    sys.stdout.write(json.dumps(said) + "\n")
    return int(said["exit_code"])


def _not_kept(error: OSError) -> DshpcError:
    return DshpcError(
        f"Your sessions cannot be kept: {error.filename}: {error.strerror or error}.",
        "Keys and sockets of ssh lie in your home in the container, for nobody else to read.",
        (
            Fix(
                "See what is there",
                "dshpc exec -- sh -c 'ls -laR ~/.local/state/dshpc-ssh*'",
                step="look",
            ),
        ),
    )


class _Search:
    def __init__(self, machine: Machine, asked: Asked) -> None:
        self.machine, self.asked = machine, asked
        self.mine: str | None = None  # the job that we have submitted and that has not run yet
        self.places: list[Workspace] = []
        self.was_queued = False  # whether the job was seen to wait: then somebody has cancelled it
        self.runs = False
        self.told = ""

    def answer(self) -> dict[str, Any]:
        is_ssh = self.asked.token is None
        if is_ssh and rights.is_one_id():
            raise _one_id()
        place.enter()
        if is_ssh:
            if (key := self._uncertified()) is not None:
                return {"schema": ANSWER, "exit_code": 0, "certify": key}
            place.write(place.KEYS, "".join(f"{key}\n" for key in self.asked.keys))
        with interruptible():
            try:
                return self._found()
            except KeyboardInterrupt:
                raise self._taken_back() from None

    def _uncertified(self) -> str | None:
        """The public host key that is still to be certified; None where that is done."""
        if not os.path.exists(place.HOST_KEY):
            new = f".{place.HOST_KEY}.{os.getpid()}"
            argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dshpc", "-f", new)
            made = self.machine.run(argv, deadline_s=_KEYGEN_S, cwd=os.getcwd())
            if not made.ok:
                raise DshpcError("No host key could be made.", made.text or made.state)
            os.replace(f"{new}.pub", f"{place.HOST_KEY}.pub")
            os.replace(new, place.HOST_KEY)
        if self.asked.certificate and self.asked.ca:
            place.write(place.CERTIFICATE, self.asked.certificate)
            place.write(place.CA, self.asked.ca)
            return None
        current = place.read(place.CURRENT_CA)
        if current and place.read(place.CERTIFICATE) and place.read(place.CA) == current:
            return None
        return place.read(f"{place.HOST_KEY}.pub") or ""

    def _found(self) -> dict[str, Any]:
        while True:
            with self._alone():
                job = self._job() or self._submitted()
            running = self._waited(job)
            if running is not None:
                return self._how(running)
            if self.asked.request is None or self.was_queued:
                raise _ended(job)
            # It has ended in this moment, as the last connection had been gone for long: another one

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """An editor opens several connections at once: one of them submits."""
        handle = os.open(f"{self.asked.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _job(self) -> str | None:
        """The job of that name, where it has not ended."""
        is_server = self.asked.token is not None
        if self.asked.request is None and not is_server:
            return names.parse(self.asked.name).job
        number = self._noted("job_id")
        row = self._row(number) if number else None
        if row is None or not _goes_on(row):
            return None
        # A number may have gone to another job, where the cluster's state was removed; squeue cuts names
        called = self.asked.request.name if self.asked.request else self.asked.name
        return number if row.name and called.startswith(row.name) else None

    def _noted(self, what: str) -> str | None:
        """Of the job that was submitted last for that name."""
        try:
            return str(foreign.value(place.read(f"{self.asked.name}.json") or "{}")[what])
        except (ValueError, LookupError, TypeError):
            return None

    def _submitted(self) -> str:
        request = self.asked.request
        if request is None:
            raise _none_runs(self.asked.name)
        if self.asked.token is not None:
            socket = f"{os.getcwd()}/{self.asked.name}.sock"
            argv = tuple(word.replace(place.SOCKET, socket) for word in request.argv)
            request = replace(request, argv=argv)
        offers = node_choice.all_of(submit.load_offer(offer.FILE), asked=request)
        has = node_choice.chosen(self.machine, request, offers)
        made = submit.submit(self.machine, request, has, self.places)
        self.mine, self.was_queued = str(made["job_id"]), True
        noted = {"job_id": self.mine, "token": self.asked.token}
        place.write(f"{self.asked.name}.json", json.dumps(noted))
        placed = answer.place(request)
        _say(" ".join(note for note in made["notes"] if note not in placed))
        return self.mine

    def _row(self, number: str) -> SlurmJob | None:
        """What Slurm knows of the job: of ours alone. DshpcError where it does not answer, or it is not."""
        told = Slurm(self.machine).rows(_COLUMNS, "all", ids=(number,), deadline_s=_ASK_S)
        if not told.ok:
            from dshpc_setup import slurm_releases

            if slurm_releases.says("no_such_job").search(told.asked.text):
                return None
            raise DshpcError(
                "Slurm did not answer.", told.asked.text, ("See its state: dshpc status",),
                Exit.INCOMPLETE,
            )  # fmt: skip
        row = next(iter(told.value or ()), None)
        if row is not None and os.getuid() not in (0, row.uid):
            raise DshpcError(f"Job {number} is not yours.", "", ("List yours: dshpc job list",))
        return row

    def _waited(self, number: str) -> SlurmJob | None:
        """The job once it runs; None where it has ended. Says once why it waits."""
        began = time.monotonic()
        while True:
            row = self._row(number)
            if row is None or not _goes_on(row):
                return None
            if row.state == "RUNNING" and row.nodes:
                self.mine, self.runs = None, True
                return row
            self.was_queued |= row.state == "PENDING"
            if row.state == "PENDING" and time.monotonic() > began + _PAUSE_S[1]:
                self._say_waits(number, row.reason)
            time.sleep(_PAUSE_S[time.monotonic() > began + 3])

    def _say_waits(self, number: str, reason: str) -> None:
        text = f"job {number} is queued ({job_states.shown(reason)})"
        if text != self.told:
            self.told = text
            _say(
                f"{text}: waiting. Ctrl-C " + ("cancels it." if self.mine else "ends the waiting.")
            )

    def _taken_back(self) -> DshpcError:
        if self.mine is None and self.places and not self.runs:  # while it was submitted
            from dshpc_setup.jobs import unacknowledged

            return unacknowledged.taken_back(self.machine, self.places)
        if self.mine is None:
            return DshpcError("Interrupted.", "", (), Exit.INTERRUPTED)
        Slurm(self.machine).cancel(self.mine, deadline_s=_ASK_S)
        return DshpcError(f"Interrupted. Cancelled: job {self.mine}.", "", (), Exit.INTERRUPTED)

    def _how(self, job: SlurmJob) -> dict[str, Any]:
        """The program that joins a connection to the job's listener, which a job of `job-123` may need."""
        is_server = self.asked.token is not None
        if self.asked.request is None and not is_server and not self._listens():
            self._start_listener(job)
        wait_s = _SERVES_S if is_server else _LISTENS_S
        words = [place.ENTER, self.asked.name, f"--wait={wait_s}"]
        is_here = job.nodes[:1] == (submit.load_offer(offer.FILE).node,)
        if self.asked.by_srun or not is_here:
            words = [*_step(job), "--unbuffered", *words]
        said = {"schema": ANSWER, "exit_code": 0, "job_id": str(job.own), "enter": words}
        return {**said, "token": self._noted("token")} if is_server else said

    def _listens(self) -> bool:
        import socket

        with socket.socket(socket.AF_UNIX) as tried:
            return tried.connect_ex(f"{self.asked.name}.sock") == 0

    def _start_listener(self, job: SlurmJob) -> None:
        """A step of the job that outlives this connection, as its processes shall."""
        log = os.open(f"{self.asked.name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        listen = (place.LISTEN, f"--name={self.asked.name}", f"--linger={self.asked.linger_s}")
        try:
            os.posix_spawnp(
                "srun",
                [*_step(job), "--input=none", *listen],
                {**os.environ, "SLURM_UMASK": "0077"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
            )
        finally:
            os.close(log)
            os.close(nothing)


def _one_id() -> DshpcError:
    return DshpcError(
        "ssh into a job takes a container with several ids: this one has its root alone.",
        "sshd of root becomes another user before it speaks to a client. The built-in engine has one id "
        "where its user has no range of them.",
        ("Install newuidmap (Debian's package uidmap), with a line for you in /etc/subuid and "
         "/etc/subgid; then: configure-environment",),
    )  # fmt: skip


def _none_runs(name: str) -> DshpcError:
    return DshpcError(f"There is no job {name} of yours.", "", (f"Start one: dshpc {name}",))


def _step(job: SlurmJob) -> list[str]:
    """A step beside those of the job, with all that it has."""
    return ["srun", "--quiet", f"--jobid={job.own}", "--overlap", "-N1", "-n1", f"-w{job.nodes[0]}"]


def _goes_on(row: SlurmJob) -> bool:
    return row.state not in job_states.ENDED and row.state != "COMPLETING"


def _ended(number: str) -> DshpcError:
    return DshpcError(
        f"Job {number} has ended, or there is none of that number.",
        "",
        (f"See how it is: dshpc job show {number}", "List yours: dshpc job list"),
    )


def _say(text: str) -> None:
    if text:
        sys.stderr.write(f"dshpc: {text}\n")
        sys.stderr.flush()
