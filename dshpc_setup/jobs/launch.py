"""What sbatch's script becomes: it sets a job's variables, runs its words and writes how it ended.

It starts each job, so imports are counted here. It is no door to the world: what it starts is the
job itself, with no shell between, in the process group that slurmstepd has made for the step.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from dshpc_setup import signals
from dshpc_setup.documents import foreign
from dshpc_setup.jobs import (
    end_record,
    environments,
    gpu_variables,
    memory_kills,
    own_workspace,
    safe_open,
)
from dshpc_setup.jobs.end_record import JOBS_TOLD
from dshpc_setup.jobs.own_workspace import OwnWorkspace
from dshpc_setup.jobs.signal_origin import Witness
from dshpc_setup.jobs.workspace import (
    LOG,
    OWN,
    PARAMS,
    REQUEST,
    RESULT,
    RESULT_SCHEMA,
    of_task,
)

NOT_FOUND, NOT_RUN = 127, 126  # as a shell says it
_LATER_S = 0.5
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDS = frozenset(("SIGTERM", "SIGINT", "SIGHUP"))


def main() -> int:
    """Run the job whose workspace this folder is; the result is its exit code."""
    folder = os.getcwd()
    try:
        at = own_workspace.opened(folder)
    except OSError as error:
        _say(
            f"{folder} is no workspace of this user's: was the job's own removed? ({error.strerror})"
        )
        return NOT_FOUND
    is_carried = os.path.exists(f"{OWN}/carried/{os.environ.get('SLURM_JOB_ID')}")
    if not is_carried and not _others_are_carried(at, os.environ):
        return _run(at, folder)
    from dshpc_setup.jobs import carried

    name = carried.run_name(os.environ)
    refused = carried.begin(at, name)
    code = _run(at, folder, carried_as=name) if not refused else _refused(at, refused)
    if not carried.end(at, name):
        _say(
            "not all that it wrote is back on the controller's machine: nobody there has fetched it"
        )
    return code


def _others_are_carried(at: OwnWorkspace, environ: Mapping[str, str]) -> bool:
    """Whether it has nodes that have not the work folder, beside this one."""
    if environ.get("SLURM_JOB_NUM_NODES", "1") == "1":
        return False
    from dshpc_setup.slurm import slurm_conf

    try:
        with open(safe_open.file(REQUEST, at.own, os.getuid()), encoding="utf-8") as file:
            carriers = frozenset(foreign.of_file(file).get("carriers") or ())
    except (OSError, ValueError, TypeError, AttributeError):  # told once it is read to be run
        return False
    return not carriers.isdisjoint(slurm_conf.node_names(environ.get("SLURM_JOB_NODELIST", "")))


def _refused(at: OwnWorkspace, why: str) -> int:
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    run = _Run(at, int(task) if task else None, [""])
    return run.not_started(why, NOT_RUN, time.time())


def _run(at: OwnWorkspace, folder: str, *, carried_as: str | None = None) -> int:
    there = f"carried/{carried_as}.request"  # of a job that has nodes without the work folder, too
    name = there if carried_as and os.path.exists(f"{OWN}/{there}") else REQUEST
    try:
        with open(safe_open.file(name, at.own, os.getuid()), encoding="utf-8") as file:
            request = foreign.of_file(file)
        task = _task(request, os.environ)
        own_workspace.keep_log_private(at)
        keep_before(at, task)
        had_log = carried_as or own_workspace.size(at, of_task(LOG, task))
        if os.environ.get("SLURM_RESTART_COUNT") and had_log:
            _say("the job starts again; what stands above is of the run before")
        variables = prepared(at, request, task)
        os.environ.update(variables)
        argv = words(request, os.environ)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        _say(f"{folder}/{OWN}/{REQUEST} does not say what to run: {error}")
        return NOT_FOUND
    if not at.is_still_there():
        _say(f"{folder}/{OWN} is gone: the job was taken back")
        return NOT_FOUND
    run = _Run(at, task, argv)
    if environment := request.get("environment"):
        try:
            environments.hold(str(environment))
        except OSError as error:
            why = (
                f"its environment {environment} is not there any more: {error.strerror}. "
                "Submit it again, which rebuilds it."
            )
            return run.not_started(why, NOT_RUN, time.time())
    if image := request.get("image"):
        try:
            environments.hold(str(image))
        except OSError as error:
            why = (
                f"its image {image} is not there any more: {error.strerror}. "
                "Submit it again, which unpacks it again."
            )
            return run.not_started(why, NOT_RUN, time.time())
    where = str(request.get("cwd") or variables["JOB_WORKSPACE"])
    try:
        os.chdir(where)
    except OSError as error:
        why = f"the folder {where}, in which it was to run, cannot be entered: {error.strerror}."
        return run.not_started(why, NOT_RUN, time.time())
    return run.run()


def _task(request: Mapping[str, Any], environ: Mapping[str, str]) -> int | None:
    """Of an array, which task this is; a job that an array's task submitted has its variables, too."""
    return int(environ["SLURM_ARRAY_TASK_ID"]) if request.get("is_array") else None


def prepared(at: OwnWorkspace, request: Mapping[str, Any], task: int | None) -> dict[str, str]:
    """The variables of the job, with the folder and the files that they name made."""
    folder = own = at.path
    if task is not None:
        own = f"{folder}/task-{task}"
        own_workspace.make_folder(at, f"task-{task}")
    params = f"{folder}/{OWN}/{of_task(PARAMS, task)}"
    given: Any = request.get("parameters") or ({},)
    write_json(of_task(PARAMS, task), given[task or 0], at.own)
    found = {str(key): str(value) for key, value in request["resources"].get("env", {}).items()}
    found.update(JOB_WORKSPACE=own, PARAMS_FILE=params)
    inputs = [str(path) for path in request.get("inputs") or ()]
    found["INPUT_FILES"] = json.dumps(inputs)
    if inputs:
        found["INPUT_FILE"] = inputs[0]
    if environment := request.get("environment"):
        path = found.get("PATH") or os.environ.get("PATH", os.defpath)
        found.update(environments.variables(str(environment), path))
    if request.get("method_dir"):
        found["METHOD_DIR"] = str(request["method_dir"])
    if request.get("requires"):
        requires = of_task("requires.json", task)
        found["REQUIRES_FILE"] = f"{folder}/{OWN}/{requires}"
        write_json(requires, request["requires"], at.own)
    return found


def words(request: Mapping[str, Any], environ: MutableMapping[str, str]) -> list[str]:
    """What to run: with srun before it where the job has several tasks."""
    argv = [str(word) for word in request["argv"]]
    if not argv:
        raise ValueError("it names no program")
    resources = request["resources"]
    tasks = max(resources.get("tasks") or 1, resources.get("nodes") or 1)
    if environment := request.get("environment"):
        argv = environments.activated(str(environment), argv)
    if image := request.get("image"):
        from dshpc_setup.jobs import images

        argv = images.argv(str(image), argv, tasks=tasks)
    elif tasks > 1:
        argv = ["srun", "--", *argv]
    if tasks == 1:
        return argv
    # srun no longer takes a job's CPUs per task over (release notes of 22.05)
    if "SLURM_CPUS_PER_TASK" in environ:
        environ.setdefault("SRUN_CPUS_PER_TASK", environ["SLURM_CPUS_PER_TASK"])
    return argv


def keep_before(at: OwnWorkspace, task: int | None) -> None:
    """The result of an earlier run of the same job stands beside: Slurm runs it again."""
    before = of_task("result.before.json", task)
    with contextlib.suppress(FileNotFoundError):
        os.replace(of_task(RESULT, task), before, src_dir_fd=at.own, dst_dir_fd=at.own)


class _Run:
    """One run of the words, from its start to the written result."""

    def __init__(self, at: OwnWorkspace, task: int | None, argv: list[str]) -> None:
        self.at, self.task, self.argv = at, task, argv
        self.by_srun = argv[0] == "srun" and "--" in argv[1:3]
        self.child = 0
        self.told: list[str] = []  # signals that came to us
        self.due: list[int] = []  # those that its program may have to be handed
        self.witness = Witness(_STOPS)
        self.kills = memory_kills.count()
        self.log = of_task(LOG, task)
        self.log_from = own_workspace.size(at, self.log)

    def run(self) -> int:
        started = time.time()
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        for number in _STOPS:
            signal.signal(number, self._forward)
        signal.signal(signal.SIGALRM, self._deliver)
        try:
            # Python ignores SIGPIPE and SIGXFSZ; what it starts shall not
            self.child = os.posix_spawnp(
                self.argv[0], self.argv, os.environ,
                setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, *_STOPS],
            )  # fmt: skip
        except OSError as error:
            return self.not_started(*self._why(error), started)
        self.witness.begin()  # what came before its program was there, it has not heard
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        _, status, usage = os.wait4(self.child, 0)
        self.child = 0
        end_record.write(os.environ, os.waitstatus_to_exitcode(status))
        self.witness.end()
        return self._end(status, usage.ru_maxrss, started)

    def _forward(self, number: int, _frame: object) -> None:
        """A bit later: by then it is known whether all of the job's processes were told."""
        self.told.append(signal.Signals(number).name)
        self.due.append(number)
        signal.setitimer(signal.ITIMER_REAL, _LATER_S)

    def _deliver(self, *_: object) -> None:
        """What only we were told."""
        heard = self.witness.heard() if self.child else None
        while self.due:
            number = self.due.pop(0)
            # It may have ended in this moment
            with contextlib.suppress(ProcessLookupError):
                if self.child and number != heard:
                    os.kill(self.child, number)

    def _why(self, error: OSError) -> tuple[str, int]:
        word = self.argv[0]
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        if isinstance(error, FileNotFoundError) and not ("/" in word and os.path.exists(word)):
            why = _not_found(word)
        elif isinstance(error, FileNotFoundError):
            why = f"{word} cannot be started: the program that its first line names is not there."
        elif error.errno == 8:  # ENOEXEC
            why = f"{word} cannot be started: it is no program, and has no #! line."
        else:
            why = f"{word} cannot be started: {error.strerror or error}."
        return why, code

    def not_started(self, why: str, code: int, started: float) -> int:
        """What is said and written of a run that did not begin; the result is the exit code."""
        _say(why)
        self._write({"exit_code": code, "signal": None, "not_started": why}, started)
        return code

    def _end(self, status: int, max_rss_kib: int, started: float) -> int:
        code = os.waitstatus_to_exitcode(status)
        killed = signals.name_of(-code) if code < 0 else None
        code = 128 - code if code < 0 else code
        found = None
        if code != 0 and not _ENDS.intersection(self.told):  # else it ended because it was told to
            from dshpc_setup.jobs import ended_by_memory

            killed_by_kernel = code == 128 + signal.SIGKILL and memory_kills.count() > self.kills
            found = ended_by_memory.judge(
                own_workspace.tail(self.at, self.log, self.log_from, ended_by_memory.TAIL_BYTES),
                has_gpu=_has_gpu(os.environ),
                killed=killed_by_kernel,
            )
        if found is not None:
            _say(f"the job was out of {found.words}: {found.line}\n  {found.advice}")
        result = {
            "exit_code": code,
            "signal": killed,
            # Of several tasks the program that we waited for is srun
            "max_rss_mib": None if self.by_srun else -(-max_rss_kib // 1024),
            "out_of_memory": None if found is None else found.of,
            "out_of_memory_line": None if found is None else found.line,
        }
        self._write(result, started)
        return code

    def _write(self, found: Mapping[str, Any], started: float) -> None:
        """Never at the price of the job's own exit code: the disk may be full.

        Nothing of a run that was cut short as the container stops: Slurm has not seen it end, and runs it
        again.
        """
        if os.path.exists(JOBS_TOLD):
            return
        environ = os.environ
        result = {
            "schema": RESULT_SCHEMA,
            "job_id": environ.get("SLURM_JOB_ID"),
            "task": self.task,
            "restarts": int(environ.get("SLURM_RESTART_COUNT") or 0),
            "started": round(started, 3),
            "ended": round(time.time(), 3),
            "max_rss_mib": None,
            "out_of_memory": None,
            "out_of_memory_line": None,
            **found,
            "told_to_stop": self.told[0] if self.told else None,
            "gpus": {name: environ[name] for name in gpu_variables.names(environ)},
        }
        name = of_task(RESULT, self.task)
        try:
            write_json(name, result, self.at.own)
        except OSError as error:
            path = f"{self.at.path}/{OWN}/{name}"
            _say(f"how the job ended could not be written to {path}: {error.strerror}")


def _not_found(word: str) -> str:
    """What has a slash is looked for as a file, and the rest in PATH alone."""
    if len(word.split()) > 1:
        return (
            f"{word}: there is no command with these spaces in its name. Write its words apart; a line for a "
            "shell is given to one: sh -c 'LINE'"
        )
    if "/" in word:
        path = os.path.normpath(os.path.join(_folder(), word))
        return (
            f"{word}: there is no file {path} in the cluster's container. Of this machine it has the work "
            "folder alone."
        )
    if os.path.isfile(word):
        return (
            f"{word}: there is no such command in the cluster's container. A file of this name lies in the "
            f"folder {_folder()}: ./{word}"
        )
    package = "r-base-core" if word in ("R", "Rscript") else "PACKAGE"
    return (
        f"{word}: there is no such command in the cluster's container. "
        f"What Debian has is put there by: dshpc env add --apt {package}"
    )


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed meanwhile
        return "."


def write_json(name: str, value: object, at: int) -> None:
    """The old file or the new, never half of one; values of parameters may be secret."""
    safe_open.replace(name, json.dumps(value, ensure_ascii=False, indent=1) + "\n", at)


def _has_gpu(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"))


def _say(text: str) -> None:
    """Into the job's log. Not through sys.stderr: what a full disk left there would fail once more at
    the interpreter's end, which would then end with 120 in place of the job's code."""
    with contextlib.suppress(OSError):
        os.write(2, f"dshpc: {text}\n".encode(errors="replace"))
