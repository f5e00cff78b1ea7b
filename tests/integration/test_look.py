"""The look's script, really run by the shells that images have."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dshpc_setup.passthrough.expected import COMPUTE_LIBRARY, MANAGEMENT_LIBRARY
from dshpc_setup.passthrough.look import SCRIPT, Seen, SeenNode, parse

STANDINS = Path(__file__).parents[1] / "standins"
VERSION = "550.163.01"
SHELLS: dict[str, list[str]] = {
    "dash": ["dash"],
    "bash": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
}

SMI = """\
#!/bin/sh
echo 'WARNING: infoROM is corrupted at gpu 0000:1A:00.0' >&2
echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)'
echo '  MIG 1g.10gb     Device  0: (UUID: MIG-01)'
exit 14
"""


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return SHELLS[request.param]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CUDA and NVML as a driver lays them down: a link to the file of its version."""
    folder = tmp_path_factory.mktemp("driver")
    for source, name in (("nvidia/libcuda.c", "libcuda"), ("nvml/nvml.c", "libnvidia-ml")):
        target = folder / f"{name}.so.{VERSION}"
        argv = ["cc", "-shared", "-fPIC", "-o", str(target), str(STANDINS / source)]
        subprocess.run(argv, check=True, timeout=120)
        (folder / f"{name}.so.1").symlink_to(target.name)
    return folder


def look(
    shell: Sequence[str],
    *,
    nodes: Sequence[str] = (),
    wanted: Sequence[str] = (),
    path: str = os.environ["PATH"],
    user: int | None = None,
    **env: str,
) -> Seen:
    """What the script says; `user`: run as that one, with no group."""
    done = subprocess.run(
        [*shell, "-c", SCRIPT, "sh", *nodes, "--", *wanted],
        env={"PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        user=user,
        group=user,
        extra_groups=None if user is None else (),
    )
    assert not done.stderr or "cannot change locale" in done.stderr  # bash, before the script
    return parse(done.stdout)


@pytest.fixture
def closed_node(tmp_path: Path) -> str:
    """A device node that its owner alone may open."""
    node = tmp_path / "renderD128"
    os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    return str(node)


def test_nodes_open_or_are_absent(shell: list[str], tmp_path: Path) -> None:
    seen = look(shell, nodes=["/dev/null", "/dev/zero", str(tmp_path / "nvidia9")])
    assert seen.nodes["/dev/null"] == SeenNode("open", "1:3")
    assert seen.nodes["/dev/zero"] == SeenNode("open", "1:5")
    assert seen.nodes[str(tmp_path / "nvidia9")] == SeenNode("absent")
    assert seen.ended


def test_a_node_that_is_denied_says_so_in_one_line(shell: list[str], closed_node: str) -> None:
    seen = look(shell, nodes=[closed_node, "/dev/null"], user=65534, LC_ALL="de_DE.UTF-8")
    assert seen.nodes[closed_node] == SeenNode("denied", "1:3", words="Permission denied")
    assert seen.nodes["/dev/null"].state == "open"  # the shell has gone on
    assert seen.user == "65534 65534"


def test_a_number_without_a_driver_and_a_file_are_no_device(
    shell: list[str], tmp_path: Path
) -> None:
    nobody, file = tmp_path / "nvidia0", tmp_path / "a file * [x]"
    os.mknod(nobody, 0o666 | stat.S_IFCHR, os.makedev(240, 77))
    file.touch()
    seen = look(shell, nodes=[str(nobody), str(file)])
    assert (seen.nodes[str(nobody)].state, seen.nodes[str(nobody)].number) == ("error", "240:77")
    assert seen.nodes[str(nobody)].words == "No such device or address"
    file.unlink()
    plain = tmp_path / "plain"
    plain.touch()
    assert look(shell, nodes=[str(plain)]).nodes[str(plain)].words == "it is no device node"


def test_libraries_are_loaded_and_their_version_is_read(shell: list[str], libraries: Path) -> None:
    wanted = (MANAGEMENT_LIBRARY, COMPUTE_LIBRARY)
    seen = look(shell, wanted=wanted, LD_LIBRARY_PATH=str(libraries))
    assert {name: seen.libraries[name].loads for name in wanted} == dict.fromkeys(wanted, True)
    assert {seen.libraries[name].version for name in wanted} == {VERSION}


def test_a_library_that_is_not_there(shell: list[str], libraries: Path, tmp_path: Path) -> None:
    (tmp_path / MANAGEMENT_LIBRARY).symlink_to(libraries / f"libnvidia-ml.so.{VERSION}")
    wanted = (MANAGEMENT_LIBRARY, COMPUTE_LIBRARY)
    seen = look(shell, wanted=wanted, LD_LIBRARY_PATH=str(tmp_path))
    assert seen.libraries[MANAGEMENT_LIBRARY].loads
    lost = seen.libraries[COMPUTE_LIBRARY]
    assert not lost.loads
    assert "cannot be preloaded (cannot open shared object file)" in lost.words


def test_a_library_that_lacks_another_or_is_none(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / MANAGEMENT_LIBRARY).write_text("no library")
    source = tmp_path / "needy.c"
    source.write_text("int needed(void); int cuInit(void) { return needed(); }")
    (tmp_path / "needed.c").write_text("int needed(void) { return 0; }")
    build = ["cc", "-shared", "-fPIC", "-o"]
    needed = tmp_path / "libneeded.so"
    subprocess.run([*build, str(needed), str(tmp_path / "needed.c")], check=True, timeout=60)
    subprocess.run(
        [*build, str(tmp_path / COMPUTE_LIBRARY), str(source), f"-L{tmp_path}", "-lneeded"],
        check=True,
        timeout=60,
    )
    needed.unlink()
    wanted = (MANAGEMENT_LIBRARY, COMPUTE_LIBRARY)
    seen = look(shell, wanted=wanted, LD_LIBRARY_PATH=str(tmp_path))
    assert not seen.libraries[MANAGEMENT_LIBRARY].loads
    assert not seen.libraries[COMPUTE_LIBRARY].loads
    assert "libneeded.so" in seen.libraries[COMPUTE_LIBRARY].words


def test_the_list_of_nvidia_smi_with_its_warnings(shell: list[str], tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    seen = look(shell, path=f"{tmp_path}:{os.environ['PATH']}")
    assert (seen.uuids, seen.listing_code) == (("GPU-0a", "MIG-01"), 14)
    assert seen.listing is not None
    assert seen.listing.startswith("WARNING: infoROM")


def test_an_image_without_the_tools(shell: list[str], libraries: Path, tmp_path: Path) -> None:
    """No id, no stat, no readlink: less is known, and nothing is taken for a fault."""
    program = shutil.which(shell[0])
    assert program is not None
    (tmp_path / shell[0]).symlink_to(program)
    argv = [program, *shell[1:]]
    seen = look(
        argv,
        nodes=["/dev/null"],
        wanted=[COMPUTE_LIBRARY],
        path=str(tmp_path),
        LD_LIBRARY_PATH=str(libraries),
    )
    assert seen.nodes["/dev/null"].state == "open"
    assert seen.libraries[COMPUTE_LIBRARY].loads
    assert seen.listing is None
    assert seen.ended
