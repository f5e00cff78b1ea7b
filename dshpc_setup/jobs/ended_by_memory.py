"""Whether a job that failed was out of memory, by what it printed last and by the kernel's count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.terminal.sanitize import plain

Of = Literal["host", "gpu"]
TAIL_BYTES = 64 * 1024
_MOST = 300  # letters of the line that is shown
_LAST = 20  # lines at the end that may tell of it, where no traceback does
_NEAR = 120  # lines within which a traceback is of the end: a launcher of processes prints much

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):$")
# The one before is the cause of this one
_CAUSED = "The above exception was the direct cause of the following exception:"
# torchrun ends so; why is in the traceback of the process that failed
_OF_A_CHILD = re.compile(r"\bmultiprocessing\.errors\.ChildFailedError\b")
# A traceback's source line names exceptions, too
_QUOTED = re.compile(r"(?:\[\w+\]:)?(?: {4}|\t)")

# How libraries say it as they give up. PyTorch 1.x to 2.x (also on ROCm), CuPy, the CUDA driver and
# runtime, HIP, cuBLAS, cuDNN. Words about memory in general are none: a program may print advice.
_GPU = re.compile(
    r"\b(?:CUDA|HIP|XPU) out of memory\. Tried to allocate"
    r"|\b(?:torch|cupy)[\w.]*\.OutOfMemoryError\b"
    r"|\b(?:CUDA|HIP) error: out of memory"
    r"|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b|\bhipErrorOutOfMemory\b"
    r"|\bCU(?:BLAS|DNN)_STATUS_ALLOC_FAILED\b"
)
# XLA and TensorFlow say the same of a GPU's memory and of the machine's
_EITHER = re.compile(
    r"\bRESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)"
    r"|\bResourceExhaustedError\b.*\bOOM when allocating|\bOOM when allocating tensor\b",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"^(?:MemoryError\b|numpy\.\S*\b_?ArrayMemoryError\b)|\bstd::bad_alloc\b"
    r"|\bDefaultCPUAllocator: can't allocate memory|\bjava\.lang\.OutOfMemoryError\b"
    r"|\[Errno 12\] Cannot allocate memory|^Error: cannot allocate vector of size"
    r"|\bDetected \d+ oom[_-]kill event"
)
_ON_CPU = re.compile(r"device:CPU:|\ballocator cpu\b", re.IGNORECASE)


@dataclass(frozen=True)
class OutOfMemory:
    """`line` is what says so."""

    of: Of
    line: str

    @property
    def words(self) -> str:
        return "GPU memory" if self.of == "gpu" else "memory"

    @property
    def advice(self) -> str:
        if self.of == "gpu":
            return (
                "Use a smaller batch or model, or ask for a larger GPU: `gpu_memory_mb` in "
                "method.json, or dshpc run --gpu-memory SIZE."
            )
        return (
            "Read less at a time, or ask for more memory: `memory_mb` in method.json, "
            "or dshpc run --memory SIZE."
        )


def judge(tail: str, *, has_gpu: bool, killed: bool) -> OutOfMemory | None:
    """Of a job that failed; `killed`: by SIGKILL, while the kernel ended processes for want of memory.

    A program may have gone on after it was out of memory: only its last words count.
    """
    for line in reversed(_last_words(tail)):
        of = _of(line.strip(), has_gpu)
        if of is not None:
            return OutOfMemory(of, _shown(line))
    if killed:
        return OutOfMemory(
            "host", "the kernel killed it: it had used all the memory that it may use."
        )
    return None


def _last_words(tail: str) -> list[str]:
    """The last traceback and what follows it; of a log without one, its last lines."""
    said = [line.rstrip() for line in tail.splitlines() if line.strip()][-_NEAR:]
    end = len(said)
    begin = _begin(said, end)
    while begin is not None:
        of_a_child = any(_OF_A_CHILD.search(line) for line in said[begin:end])
        if not of_a_child and not (begin and said[begin - 1].endswith(_CAUSED)):
            break
        end, begin = begin, _begin(said, begin)
    found = said[-_LAST:] if begin is None else said[begin:]
    return [line for line in found if not _QUOTED.match(line)]


def _begin(said: list[str], end: int) -> int | None:
    """Where the last traceback before that line begins."""
    return next((at for at in reversed(range(end)) if _TRACEBACK.search(said[at])), None)


def _of(line: str, has_gpu: bool) -> Of | None:
    if _GPU.search(line):
        return "gpu"
    if _EITHER.search(line):
        return "gpu" if has_gpu and not _ON_CPU.search(line) else "host"
    return "host" if _HOST.search(line) else None


def _shown(line: str) -> str:
    """On one line, and with no sign that moves a terminal's cursor."""
    whole = plain(line.strip())
    return whole if len(whole) <= _MOST else f"{whole[:_MOST]}..."
