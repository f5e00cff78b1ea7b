"""The srun that gives a shell: in a job of its own, or in one that runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

NAME = "terminal"
_SHELL = ("bash", "-l")


@dataclass(frozen=True)
class Wanted:
    """What the job is to have; None is as Slurm has it."""

    gpus: int = 0
    gpu_type: str | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    minutes: int | None = None


def new(wanted: Wanted) -> tuple[str, ...]:
    kind = f"{wanted.gpu_type}:" if wanted.gpu_type else ""
    options = {
        "gres": f"gpu:{kind}{wanted.gpus}" if wanted.gpus else None,
        "cpus-per-task": wanted.cpus,
        "mem": f"{wanted.memory_mb}M" if wanted.memory_mb else None,
        "time": wanted.minutes,
    }
    said = (f"--{name}={value}" for name, value in options.items() if value is not None)
    return ("srun", f"--job-name={NAME}", *said, "--pty", *_SHELL)


def within(job: str) -> tuple[str, ...]:
    """Beside what runs there, with the same GPUs."""
    return ("srun", f"--jobid={job}", "--overlap", "--pty", *_SHELL)
