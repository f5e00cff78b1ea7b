"""Out of memory: what libraries say as they give up, and what only sounds like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.jobs.ended_by_memory import OutOfMemory, judge

GPU = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU 0; 7.79 GiB total capacity",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: HIP error: out of memory",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes",
    "pycuda._driver.MemoryError: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    "error 2: cudaErrorMemoryAllocation",
    "hipErrorOutOfMemory: out of memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
]
EITHER = [
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 11.95MiB.",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: out of memory while trying to allocate 1.00GiB",
    "ResourceExhaustedError: OOM when allocating tensor with shape[64,3] by allocator GPU_0_bfc",
]
HOST = [
    "MemoryError",
    "MemoryError: Unable to allocate",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory:",
    "OSError: [Errno 12] Cannot allocate memory",
    'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    "Error: cannot allocate vector of size 7.5 Gb",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=17.batch.",
]
NEITHER = [
    "If you see CUDA out of memory, use a smaller batch",
    "INFO: out of memory protection is on",
    "RuntimeError: CUDA error: invalid device ordinal",
    "except MemoryError:",
    "RESOURCE_EXHAUSTED: Quota exceeded",
    "ResourceExhausted: 429 too many requests",
    "torch.OutOfMemoryErrorHandler is installed",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "Killed",
    "",
]


@pytest.mark.parametrize("line", GPU)
def test_a_gpus(line: str) -> None:
    assert judge(f"epoch 1\n{line}\nmore\n", has_gpu=True, killed=False) == OutOfMemory("gpu", line)


@pytest.mark.parametrize("line", EITHER)
def test_of_what_the_job_computes_on(line: str) -> None:
    assert judge(line, has_gpu=True, killed=False) == OutOfMemory("gpu", line)
    assert judge(line, has_gpu=False, killed=False) == OutOfMemory("host", line)


def test_tensorflow_on_the_processor_of_a_gpu_job() -> None:
    line = "OOM when allocating tensor on /job:localhost/device:CPU:0 by allocator cpu"
    assert judge(line, has_gpu=True, killed=False) == OutOfMemory("host", line)


@pytest.mark.parametrize("line", HOST)
def test_the_machines(line: str) -> None:
    assert judge(line, has_gpu=True, killed=False) == OutOfMemory("host", line)


@pytest.mark.parametrize("line", NEITHER)
def test_what_only_sounds_like_it(line: str) -> None:
    assert judge(line, has_gpu=True, killed=False) is None


def traceback(last: str, frame: str = "    train()") -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 1, in main\n{frame}\n{last}\n'


DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


@pytest.mark.parametrize(
    "log",
    [
        traceback(GPU[0]) + "wandb: run ended\n" * 60,
        traceback(GPU[0]) + CAUSE + traceback("TrainingFailed: epoch 3"),
        traceback(f"[rank0]: {GPU[0]}") + traceback(TORCHRUN) + "=====\nscripts/train.py FAILED\n",
        traceback("KeyError: 'x'") + DURING + traceback(GPU[0]),
        f"{GPU[0]}\n" + "giving up\n" * 10,
    ],
)
def test_what_the_program_said_last(log: str) -> None:
    found = judge("epoch\n" * 500 + log, has_gpu=True, killed=False)
    assert found is not None
    assert found.of == "gpu"


@pytest.mark.parametrize(
    "log",
    [
        f"{GPU[0]}\nretrying with half the batch\n" + traceback("KeyError: 'loss'"),
        traceback(GPU[0]) + "retrying\n" + traceback("KeyError: 'loss'"),
        traceback(GPU[0]) + DURING + traceback("KeyError: 'loss'"),
        traceback(GPU[0]) + traceback("KeyError: 'loss'") + traceback(TORCHRUN),
        f"{GPU[0]}\n" + "epoch\n" * 200 + "error: no such file\n",
        traceback(GPU[0]) + "epoch\n" * 200 + "error: no such file\n",
        traceback("KeyError: 'x'", frame="    raise torch.OutOfMemoryError(text)"),
        traceback("[rank0]: KeyError: 'x'", frame="[rank0]:     except torch.OutOfMemoryError:"),
    ],
)
def test_what_the_program_went_on_after(log: str) -> None:
    assert judge(log, has_gpu=True, killed=False) is None


def test_killed_while_the_kernel_ended_processes() -> None:
    found = judge("Killed", has_gpu=False, killed=True)
    assert found is not None
    assert found.of == "host"
    assert "memory_mb" in found.advice
    # What the log says is closer to the cause
    both = judge(GPU[0], has_gpu=True, killed=True)
    assert both is not None
    assert both.of == "gpu"
    assert "gpu_memory_mb" in both.advice


@given(st.text(), st.booleans(), st.booleans())
def test_a_log_may_hold_anything(text: str, has_gpu: bool, killed: bool) -> None:
    log = f"{text}\n{text}CUDA_ERROR_OUT_OF_MEMORY {text}"
    found = judge(log, has_gpu=has_gpu, killed=killed)
    if found is None:
        assert not killed
        return
    assert found.line.isprintable()
    assert len(found.line) <= 303
