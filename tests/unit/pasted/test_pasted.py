"""From a pasted text to its causes: many lines, prefixes, noise, and the catalogues that it shares."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import pasted
from dshpc_setup.diagnose import catalogue
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import RULES
from dshpc_setup.passthrough.rules import Rule
from dshpc_setup.pasted import Harmless, harmless, told
from dshpc_setup.pasted.signs import FIRST, LAST, NEXT
from tests.unit.diagnose.kernel_texts import POSTED, RAS, Posted
from tests.unit.diagnose.test_kernel_texts import OF_THE_LOG, faults, with_log

SIGNS = (*FIRST, *NEXT, *LAST)


def finding(text: str) -> str | None:
    found = told(text)
    return None if found is None else found.finding


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The headings of the troubleshooting guides that this project came from
        ("GPU detected but Docker passthrough failed", "DSH-PT-001"),
        ("Insufficient GPU memory", "DSH-GP-008"),
        ("CUDA libraries not accessible", "DSH-PT-051"),
        ("\"No GPU detected\" during setup", "DSH-GP-001"),
        ("GPU visible on host but not in container", "DSH-PT-001"),
        ("Container built without GPU, now I have one", "DSH-SL-021"),
        ("slurmdbd(primary) at lab is DOWN", "DSH-SL-057"),
        ("error: Sending PersistInit msg: Connection refused", "DSH-SL-057"),
        ("sacctmgr: error: Sending PersistInit msg: No route to host", "DSH-SL-057"),
        ("CUDA version mismatch", "DSH-NV-023"),
        # A missing tool: in a container it is the GPU that is missing, on a machine the driver
        ("nvidia-smi: command not found", "DSH-SL-022"),
        ("sh: 1: nvidia-smi: not found", "DSH-SL-022"),
        ("sudo: nvidia-smi: command not found", "DSH-NV-062"),
        ("Command 'nvidia-smi' not found, but can be installed with:", "DSH-NV-062"),
        # Names of errors
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "DSH-SL-022"),
        ("cudaErrorSystemNotReady", "DSH-NV-019"),
        ("ggml_cuda: cudaMalloc failed: out of memory", "DSH-GP-008"),
        ("the provided PTX was compiled with an unsupported toolchain.", "DSH-NV-023"),
        ("GeForce GTX 1080 with CUDA capability sm_61 is not compatible with the current", "DSH-NV-078"),
        ("RTX 5090 with CUDA capability sm_120 is not compatible with the current", "DSH-NV-025"),
        ("pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded", "DSH-NV-062"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "DSH-NV-025"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'", "DSH-NV-078"),
        ("nvidia-smi: /lib/libc.so.6: version `GLIBC_2.34' not found", "DSH-PT-058"),
        # Tables
        ("1c:00.0 3D controller: NVIDIA Corporation GA100 [A100] (rev ff)", "DSH-NV-020"),
        ("Size Used Avail Use% Mounted on\n/dev/sda1 20G 20G 0 100% /\n", "DSH-DK-081"),
        # SELinux
        ('avc:  denied  { read } for comm="x" path="/dev/nvidiactl" scontext=a', "DSH-DK-014"),
        # Slurm
        ("slurmctld: fatal: mkdir(/var/spool): Permission denied", "DSH-SL-009"),
        ("fatal: We were configured to autodetect nvml functionality, but we weren't able", "DSH-SL-021"),
        ("Node unexpectedly rebooted", "DSH-SL-018"),
        ("slurmstepd: error: TaskProlog failed status=3", "DSH-SL-052"),
        ("7 debug train ada PD 0:00 1 (launch failed requeued held)", "DSH-SL-051"),
        ("7 debug train ada PD 0:00 1 (JobHeldUser)", "DSH-SL-051"),
        ("slurmd: error: [job 7] prolog failed status=1:0", "DSH-SL-016"),
        ("error: Munge decode failed: Rewound credential", "DSH-SL-028"),
        # Engine and compose
        ("The command 'docker' could not be found in this WSL 2 distro.", "DSH-DK-086"),
        ("The command 'docker' could not be found in this WSL 1 distro.", "DSH-HO-001"),
        ("unknown flag: --gpus", "DSH-DK-083"),
        ("zsh: command not found: docker", "DSH-DK-086"),
        ("zsh: command not found: docker-compose", "DSH-DK-002"),
        ("Error response from daemon: authorization denied by plugin opa: request rejected", "DSH-DK-074"),
        ("Error response from daemon: plugin opa failed with error: AuthZPlugin.AuthZReq: x", "DSH-DK-074"),
        ('image operating system "linux" cannot be used on this platform', "DSH-DK-001"),
        ("no matching manifest for windows/amd64 10.0.19044 in the manifest list entries", "DSH-DK-001"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", "DSH-DK-069"),
        ("WSL 2 requires an update to its kernel component.", "DSH-HO-001"),
        # Files of Slurm's, numbers of errors alone
        ("gres.conf: Invalid GRES record", "DSH-FI-005"),
        ("slurmd: fatal: Invalid GRES record for gpu, count does not match File value", "DSH-FI-005"),
        ("cuInit failed: unknown error 999", "DSH-NV-015"),
        ("cuInit(0) returned 999", "DSH-NV-015"),
        ("nvidia-nvlink: SXid 12028", "DSH-NV-101"),
        ("SXid (PCI:0000:a9:00.0): 20034", "DSH-NV-101"),
        ("got Xid 79 overnight", "DSH-NV-081"),
        # A specification that the toolkit alone makes
        ("failed to inject CDI devices: unresolvable CDI devices management.nvidia.com/gpu=GPU-e78e68c0",
         "DSH-DK-017"),
        # One file alone: of the card, or of a part that it does without
        ("amdgpu 0000:03:00.0: Direct firmware load for amdgpu/navi10_gpu_info.bin failed with error -2",
         "DSH-AM-101"),
        ("amdgpu 0000:03:00.0: Direct firmware load for amdgpu/gc_11_0_0_mes_2.bin failed with error -2",
         None),
    ],
)  # fmt: skip
def test_a_line_alone(text: str, expected: str | None) -> None:
    assert finding(text) == expected


def test_noise_prefixes_and_wrapped_lines() -> None:
    text = (
        "\x1b[33mWARN\x1b[0m[0000] version is obsolete\n[+] Running 1/1\n"
        "web-1  | Traceback (most recent call last):\n"
        'web-1  |   File "/app/images.py", line 412, in f\n'
        "web-1  | RuntimeError: The NVIDIA driver on your\n   system is too old (found version 11040).\n"
        "web-1 exited with code 1\n"
    )
    assert finding(text) == "DSH-NV-023"
    assert finding(
        "NVIDIA-SMI has failed because it couldn\u2019t communicate with the NVIDIA driver."
    ) == ("DSH-NV-062")


def test_a_message_of_the_driver_over_two_lines() -> None:
    lines = (
        "[ 4.5] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1b82)",
        "{}NVRM: installed in this system is not supported by open",
        "{}NVRM: nvidia.ko because it does not include the required GPU",
        "{}NVRM: System Processor (GSP).",
    )
    for indent in ("", "               ", "[ 4.6] "):
        assert finding("\n".join(lines).format(indent, indent, indent)) == "DSH-NV-005"


def test_what_is_more_telling_comes_before_its_consequence() -> None:
    lost = "CUDA Error: no CUDA-capable device is detected\n{}\nReboot the system"
    found = told(
        lost.format("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.")
    )
    assert found is not None
    assert found.finding == "DSH-NV-020"
    assert "DSH-SL-022" in found.besides
    assert found.words == "GPU is lost"


def test_what_depends_on_the_machine_is_told_beside_it() -> None:
    found = told(
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]'
    )
    assert found is not None
    assert found.finding == findings.NO_TOOLKIT
    assert {findings.NOT_RESTARTED, findings.SNAP, findings.DESKTOP_VM} <= set(found.besides)
    assert found.finding not in found.besides
    assert len(set(found.besides)) == len(found.besides)


def test_the_context_decides() -> None:
    text = "Failed to initialize NVML: Unknown Error"
    assert finding(text) == findings.LOST_ON_RELOAD
    assert (
        finding(f"{text}\n$ grep no-cgroups config.toml\nno-cgroups = true") == findings.NO_CGROUPS
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "out of memory",
        "cp: cannot stat '/data/x': No such file or directory",
        "bash: ./a.out: cannot execute binary file: Exec format error",
        "fatal: early EOF\nfatal: the remote end hung up: unexpected EOF",
        "chmod: changing permissions of 'x': Operation not permitted",
        "mkdir /sys/fs/cgroup/cpuset/docker/x: no space left on device",
        "modprobe: FATAL: Module fake_nvidia_driver not found in directory /lib/modules/6.1",
        "modprobe: ERROR: could not insert 'vboxdrv': Key was rejected by service",
        "CUDA error: device-side assert triggered",
        "XID group 0 None 4",
        "1c:00.0 3D controller: NVIDIA Corporation GA100 [A100] (rev a1)",
        "Size Used Avail Use% Mounted on\n/dev/loop0 64M 64M 0 100% /snap/core20/2318",
        "request to query NVSwitch failed: [NV_WARN_NOTHING_TO_DO]\nnv-fabricmanager failed",
    ],
)
def test_what_no_rule_knows(text: str) -> None:
    assert told(text) is None


CONTAINER = Path(__file__).parents[3] / "container/rootfs/usr/local/lib/dshpc"


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("health", "The start failed; 'dshpc-node status' in the container", "DSH-SL-006"),
        ("health", "The start was ended from outside", "DSH-SL-007"),
        ("health", "The controller does not answer:", "DSH-SL-008"),
        ("health", "The state volume has no room or cannot be written", "DSH-SL-027"),
        ("as-user", "dshpc: the cluster did not start", "DSH-SL-006"),
        ("as-user", "dshpc: the cluster did not get ready", "DSH-SL-007"),
    ],
)
def test_what_the_cluster_says_itself(script: str, words: str, expected: str) -> None:
    assert words in (CONTAINER / script).read_text(encoding="utf-8")
    assert finding(words) == expected


def test_a_node_that_the_health_check_tells_of() -> None:
    assert finding("Node gpu1 is drained by root: for repair") == "DSH-SL-012"
    assert finding("Node gpu1 is being drained by root: for repair") == "DSH-SL-012"
    assert finding("Node gpu1 is down*: Not responding") == "DSH-SL-018"
    assert finding("Node gpu1 is idle.") is None


# The catalogues that it shares


def test_the_catalogue_of_refusals_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Rule(findings.TOOLKIT_MODE, "quux engine says no", "it says no")
    assert finding("Error: quux engine says no") is None
    monkeypatch.setattr(pasted, "RULES", (new, *RULES))
    assert finding("Error: quux engine says no") == findings.TOOLKIT_MODE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NVRM: nvidia.ko requires use of the NVIDIA open kernel modules", "DSH-NV-005"),
        ("NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error", "DSH-NV-081"),
        ("kfd kfd: amdgpu: skipped device 1002:67df, PCI rejects atomics", "DSH-AM-044"),
        ("amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!", "DSH-AM-085"),
        ("i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in x [1]", "DSH-GP-021"),
    ],
)  # fmt: skip
def test_the_checks_of_the_kernels_log_count(line: str, expected: str) -> None:
    for stamp in (
        "",
        "[ 4503.250017] ",
        "Nov 14 10:46:51 host kernel: ",
        "kern:     err: [2024]: ",
    ):
        assert finding(f"noise before\n{stamp}{line}\nnoise after") == expected


@pytest.mark.parametrize("posted", POSTED, ids=lambda it: f"{it.finding}-{it.link[8:]}")
def test_a_posted_log_is_explained_as_doctor_tells_it(posted: Posted) -> None:
    found = told(posted.text)
    assert (found and found.finding) == posted.finding
    if found is not None:
        doctor = faults(with_log(posted.machine, posted.text))
        assert not doctor[found.finding].caused_by, "it is the root there as well"
        others = {each for each in doctor if each in OF_THE_LOG}
        assert others <= {found.finding, *found.besides}


@pytest.mark.parametrize(("line", "state"), RAS)
def test_amds_own_counts_are_explained_as_doctor_tells_them(line: str, state: str) -> None:
    assert finding(line) == (None if state == "ok" else "DSH-AM-102")


def test_what_doctor_only_notes_is_no_cause() -> None:
    line = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149"
    assert told(line) is None
    noted = harmless(line)
    assert isinstance(noted, Harmless)
    assert noted.finding == "DSH-NV-081"
    assert "Xid 45 (once)" in noted.says
    switch = "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion interrupt"
    assert told(switch) is None
    assert (noted := harmless(switch)) is not None
    assert noted.finding == "DSH-NV-101"
    assert harmless("NVRM: Xid (PCI:0000:dc:00): 79, GPU has fallen off the bus.") is None
    assert harmless("nothing of a GPU") is None


# The table


def test_each_sign_names_findings_of_the_catalogue_once() -> None:
    ids = {check.id for check in catalogue()}
    for sign in SIGNS:
        assert set(sign.findings) <= ids, sign
        assert len(set(sign.findings)) == len(sign.findings) > 0, sign
        assert re.compile(sign.words).groups <= 1, sign
        assert re.search(sign.words, "") is None, sign


@given(st.text() | st.text(alphabet=st.sampled_from("nvidia-smi: \n'\"\\GPU0NVRM[.]/")))
def test_any_text_can_be_pasted(text: str) -> None:
    found = told(text)
    assert found is None or "\n" not in found.words


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a",
            "nvidia ",
            "/dev/nvidia0",
            "NVRM: ",
            "could not select device driver ",
            "GPU MIG Xid ",
        ),
        *(
            "\n",
            '\\"',
            "exec /",
            "nodes ",
            "error relocating ",
            "unresolvable CDI devices nvidia.com/",
        ),
    ],
)
def test_a_long_text_takes_no_long_time(piece: str) -> None:
    begun = time.process_time()
    told(piece * (2_000_000 // len(piece)))
    assert time.process_time() - begun < 5
