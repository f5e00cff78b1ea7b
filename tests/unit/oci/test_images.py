"""Images that nobody vouches for: read, laid out layer by layer, and never beyond the folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.oci import bundle, entering, packing, runtime, sif, words
from dshpc_setup.oci.model import Fault, ImageError, Start
from tests.integration import hand_images as hand
from tests.integration.hand_images import folder, layer, link, member

PC = "x86_64"
BASE = [
    folder("etc/"),
    folder("usr/bin/"),
    link("bin", "usr/bin"),
    member("etc/old", b"old"),
    member("etc/kept"),
]


def laid_out(tmp_path: Path, *layers: bytes, form: str = "docker") -> Path:
    files = hand.docker(layers) if form == "docker" else hand.oci(layers)
    return made(hand.archive(tmp_path / "image.tar", files), tmp_path)


def made(image: Path, tmp_path: Path) -> Path:
    into = tmp_path / "into"
    into.mkdir()
    with bundle.found(image, tmp_path, os.uname().machine) as found:
        bundle.make(LocalMachine(), found, into)
    return into / "rootfs"


def fault(image: Path, tmp_path: Path) -> Fault:
    with pytest.raises(ImageError) as caught:
        made(image, tmp_path)
    return caught.value.fault


@pytest.mark.parametrize("form", ["docker", "oci"])
def test_later_layers_count(tmp_path: Path, form: str) -> None:
    second = layer([
        member("etc/.wh.old"), member("bin/tool", b"new"), folder("srv/"), member("srv/x"),
        link("kept", "etc"),
    ])  # fmt: skip
    third = layer(
        [
            member("srv/new"),
            member("srv/.wh..wh..opq"),
            member("kept"),
            link("etc/kept", "/nowhere"),
        ]
    )
    root = laid_out(tmp_path, layer(BASE), second, third, form=form)
    assert not (root / "etc/old").exists()
    assert (root / "usr/bin/tool").read_bytes() == b"new"
    assert (root / "bin").is_symlink()
    assert os.listdir(root / "srv") == ["new"]
    assert (root / "kept").is_file()
    assert os.readlink(root / "etc/kept") == "/nowhere"
    told = json.loads((root.parent / "config.json").read_text())
    assert told["process"]["env"] == list(hand.ENVIRONMENT)
    assert (told["process"]["cwd"], told["process"]["args"]) == ("/etc", ["sh"])
    assert not (root.parent / "removed").exists()


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("etc/../../out")],
        [link("way", "../../.."), member("way/../../out")],
        [link("way", "/file"), member("file"), member("way/x")],
        [link("a", "b"), link("b", "a"), member("a/x")],
    ],
)
def test_what_leads_out_is_refused(tmp_path: Path, members: Sequence[Any]) -> None:
    image = hand.archive(tmp_path / "image.tar", hand.oci([layer(members)]))
    assert fault(image, tmp_path) == "unsafe"
    assert not (tmp_path / "out").exists()


def test_a_link_to_somewhere_is_of_the_images_root(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    members = [
        link("up", "../../../../.."),
        member(f"up{tmp_path}/outside/x"),
        link("all", "/"),
        member("all/y"),
    ]
    root = laid_out(tmp_path, layer(members))
    assert os.listdir(tmp_path / "outside") == []
    assert (root / str(tmp_path / "outside/x").lstrip("/")).is_file()
    assert (root / "y").is_file()


_NAMES = st.sampled_from(
    ["a", "b", "..", ".wh.a", ".wh..wh..opq", ".wh...", ".wh.", "a/b", "/a", "a/../b", "."]
)
_MEMBERS = st.lists(
    st.one_of(
        st.builds(folder, _NAMES),
        st.builds(lambda name: member(name, b"x"), _NAMES),
        st.builds(link, _NAMES, st.sampled_from(["/", "..", "a", "../../b", "b/..", "/a/b"])),
    ),
    max_size=8,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_MEMBERS, min_size=1, max_size=3))
def test_no_layers_reach_beyond_their_folder(tmp_path: Path, layers: list[list[Any]]) -> None:
    top = tmp_path / os.urandom(6).hex()
    top.mkdir()
    try:
        laid_out(top, *map(layer, layers))
    except ImageError as error:
        assert error.fault in ("unsafe", "no-image", "write", "truncated")
    assert set(os.listdir(top)) <= {"image.tar", "into"}
    assert set(os.listdir(tmp_path)) <= {
        each.name for each in tmp_path.iterdir() if len(each.name) == 12
    }


@pytest.mark.parametrize(
    "first", [b"", b"\x5f\x2a\x4d\x18\x01\x00\x00\x00x"], ids=["plain", "note"]
)
def test_layers_packed_by_zstd(tmp_path: Path, first: bytes) -> None:
    layers = [layer(BASE), layer([member("usr/bin/tool", os.urandom(300_000))])]
    image = hand.archive(tmp_path / "image.tar", hand.oci(layers, pack=hand.zstd))
    # The whole archive, too
    (tmp_path / "image.tar.zst").write_bytes(first + hand.zstd(image.read_bytes()))
    root = made(tmp_path / "image.tar.zst", tmp_path)
    assert (root / "usr/bin/tool").stat().st_size == 300_000
    assert (root / "etc/old").read_bytes() == b"old"


def test_what_is_wrong_with_a_layer_of_zstd(tmp_path: Path) -> None:
    whole = layer([member("x", os.urandom(200_000))])

    def of(pack: Callable[[bytes], bytes]) -> Fault:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(tmp_path / "into")
        return fault(hand.archive(tmp_path / "image.tar", hand.oci([whole], pack=pack)), tmp_path)

    packed = packing.zstd.compress(whole)
    assert of(lambda _: packed[:100_000]) == "truncated"
    assert of(lambda _: packed[:1000] + bytes(1000) + packed[2000:]) in ("truncated", "damaged")
    # A window of 2 GiB would take as much memory
    assert of(lambda _: b"\x28\xb5\x2f\xfd\x00\xa8" + packed[6:]) == "truncated"


@pytest.mark.parametrize("pack", [hand.zstd, hand.zipped], ids=["zstd", "gzip"])
def test_what_lies_behind_the_last_file_is_counted(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshpc_setup.oci.unpacking.most_bytes", lambda _: 1 << 20)
    image = hand.oci([layer(BASE) + bytes(8 << 20)], pack=pack)
    assert fault(hand.archive(tmp_path / "image.tar", image), tmp_path) == "too-large"


@pytest.mark.parametrize("theirs", [link(".dshpc", "/tmp"), member(".dshpc/driver/libcuda.so")])
def test_an_image_has_nothing_where_the_way_in_lays_down_its_own(
    tmp_path: Path, theirs: Any
) -> None:
    """It would come into LD_LIBRARY_PATH and PATH; a link there leads to where others write."""
    root = laid_out(tmp_path, layer([*BASE, theirs]))
    assert not (root / ".dshpc").is_symlink()
    assert os.listdir(root / ".dshpc/driver") == []


def test_what_is_no_image(tmp_path: Path) -> None:
    whole = hand.archive(tmp_path / "whole.tar", hand.oci([layer(BASE)]))
    cases: dict[str, tuple[Fault, bytes]] = {
        "text": ("no-image", b"hello, I am no image at all" * 100),
        "empty": ("no-image", b""),
        "other": ("no-image", layer([member("x", b"y")])),
        "cut": ("truncated", whole.read_bytes()[:3000]),
    }
    for name, (wanted, data) in cases.items():
        (tmp_path / name).write_bytes(data)
        if (tmp_path / "into").exists():
            (tmp_path / "into").rmdir()
        assert fault(tmp_path / name, tmp_path) == wanted, name
    (tmp_path / "into").rmdir()
    assert fault(tmp_path / "none", tmp_path) == "absent"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "into").rmdir()
    assert fault(tmp_path / "pipe", tmp_path) == "no-image"


def test_another_processor_and_another_content(tmp_path: Path) -> None:
    other = hand.archive(tmp_path / "other.tar", hand.oci([layer(BASE)], "m68k"))
    assert fault(other, tmp_path) == "architecture"
    (tmp_path / "into").rmdir()
    wrong = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    damaged = hand.archive(tmp_path / "damaged.tar", hand.oci([layer(BASE)], digests=[wrong]))
    assert fault(damaged, tmp_path) == "damaged"


def test_a_file_of_zeros_stops_before_the_disk_is_full(tmp_path: Path) -> None:
    """Packed to a thousandth: of a hundred gigabytes no byte is written."""
    image = hand.docker([layer([member("x")])])
    name = next(each for each in image if each.endswith("layer.tar"))
    info = member("zeros", size=100 << 30)[0]
    image[name] = info.tobuf() + bytes(1024)
    assert fault(hand.archive(tmp_path / "image.tar", image), tmp_path) in ("too-large", "no-room")


def test_every_fault_has_words() -> None:
    from typing import get_args

    said = {words.told(ImageError(each, "w"), "x.tar", PC).brief for each in get_args(Fault)}
    assert len(said) == len(get_args(Fault))


# --- SIF ---------------------------------------------------------------------------------------


def head(
    count: int = 1,
    at: int = 128,
    *,
    kind: int = 0x4004,
    system: int = 1,
    processor: bytes = b"02\0",
) -> bytes:
    extra = struct.pack("<ii3s", system, 2, processor)
    part = struct.pack(
        "<i?3I7q128s384s", kind, True, 1, 1, 0, 4096, 100, 100, 0, 0, 0, 0, b"", extra
    )
    return struct.pack(
        "<32s10s3s3s16s8q", b"#!", b"SIF_MAGIC", b"01", processor, b"", 0, 0, 0, count, at, len(part), 0, 0
    ) + part  # fmt: skip


def test_where_a_sif_has_its_root() -> None:
    assert sif.is_sif(head())
    assert sif.partition(io.BytesIO(head()), 5000, PC) == sif.Partition(4096, 100)


@pytest.mark.parametrize(
    ("data", "size", "wanted"),
    [
        (head()[:100], 100, "truncated"),
        (head(), 4000, "truncated"),
        (head(at=1 << 40), 5000, "truncated"),
        (head(count=1 << 40), 5000, "truncated"),
        (head(kind=0x4001), 5000, "no-image"),
        (head(system=5), 5000, "encrypted"),
        (head(system=2), 5000, "file-system"),
        (head(processor=b"04\0"), 5000, "architecture"),
    ],
)
def test_sifs_that_are_none_for_here(data: bytes, size: int, wanted: str) -> None:
    with pytest.raises(ImageError) as caught:
        sif.partition(io.BytesIO(data), size, PC)
    assert caught.value.fault == wanted


def test_the_variables_of_a_sif_are_read_and_not_run() -> None:
    script = 'export PATH="/a:/b"\nexport A="${A:-"x y"}"\nexport B="$(id)"\nrm -rf /\n'
    assert sif.environment(script) == ("PATH=/a:/b", "A=x y")


def sif_file(tmp_path: Path) -> Path:
    file = tmp_path / "image.sif"
    file.write_bytes(head().ljust(4096, b"\0") + b"s" * 100)
    return file


class Unsquashing(LocalMachine):
    """unsquashfs, which lists and unpacks what a test lays down."""

    def __init__(self, listing: str, lay_down: Callable[[Path], None]) -> None:
        super().__init__()
        self._listing, self._lay_down = listing, lay_down
        self.unpacked = False

    def which(self, program: str) -> str | None:
        return program

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if "-lls" in argv:
            for line in self._listing.splitlines():
                options["on_line"](line)
            return CommandResult(tuple(argv), "present", 0, "", "", 0.0)
        words = shlex.split(argv[-1])
        self.unpacked = True
        root = Path(words[words.index("-d") + 1])
        root.mkdir()
        self._lay_down(root)
        return CommandResult(tuple(argv), "present", 0, "", "", 0.0)


def unsquashed(machine: Unsquashing, tmp_path: Path, meanwhile: bytes = b"") -> str:
    """config.json of a SIF's bundle."""
    into = tmp_path / "into"
    into.mkdir()
    file = sif_file(tmp_path)
    with bundle.found(file, tmp_path, PC) as found:
        if meanwhile:
            file.write_bytes(head().ljust(4096, b"\0") + meanwhile)
        bundle.make(machine, found, into)
    return (into / "config.json").read_text()


LISTED = "-rw-r--r-- root/root              1000 2026-11-27 00:26 squashfs-root/a\n"


@pytest.mark.parametrize("link", [sif.ENVIRONMENT, ".singularity.d/env", ".singularity.d"])
def test_no_link_of_a_sif_has_our_files_read(tmp_path: Path, link: str) -> None:
    """The script of its variables is read on the machine, where a link of it leads to the machine's."""
    ours = tmp_path / "ours"
    (ours / sif.ENVIRONMENT).parent.mkdir(parents=True)
    (ours / sif.ENVIRONMENT).write_text('export TOKEN="s3cret"\n')

    def lay_down(root: Path) -> None:
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(ours / link)

    assert "s3cret" not in unsquashed(Unsquashing(LISTED, lay_down), tmp_path)


def test_a_sif_with_a_script_without_an_end(tmp_path: Path) -> None:
    def lay_down(root: Path) -> None:
        (root / sif.ENVIRONMENT).parent.mkdir(parents=True)
        with open(root / sif.ENVIRONMENT, "wb") as file:
            file.write(b'export A="b"\n')
            file.truncate(1 << 40)

    assert "A=b" not in unsquashed(Unsquashing(LISTED, lay_down), tmp_path)


@pytest.mark.parametrize(
    "listing",
    [
        # each is within the limit of one file
        "".join(
            f"-rw-r--r-- root/root         900000000 2026-11-27 00:26 squashfs-root/{n}\n"
            for n in range(9)
        ),
        # long ids leave no blank before the size
        "-rw-r--r-- 4294967295/4294967295999999999999 2026-11-27 00:26 x 1 2026-11-27 00:26 y\n",
        "lrwxrwxrwx root/root                1 2026-11-27 00:26 squashfs-root/l -> a\n" * 300_000,
    ],
    ids=["many", "glued", "empty"],
)
def test_a_sif_is_measured_before_it_is_unpacked(tmp_path: Path, listing: str) -> None:
    machine = Unsquashing(listing, lambda _: None)
    with pytest.raises(ImageError) as caught:
        unsquashed(machine, tmp_path)
    assert caught.value.fault == "too-large"
    assert not machine.unpacked


def test_what_is_unpacked_of_a_sif_is_what_it_is_called_by(tmp_path: Path) -> None:
    """Somebody who may write the file would have another one kept under the name of a right one."""
    machine = Unsquashing(LISTED, lambda _: None)
    with pytest.raises(ImageError) as caught:
        unsquashed(machine, tmp_path, meanwhile=b"t" * 100)
    assert caught.value.fault == "damaged"
    assert not machine.unpacked


# --- the way in --------------------------------------------------------------------------------

MOUNTS = "\n".join(
    f"1 1 0:1 / {at} rw - ext4 x rw"
    for at in (
        "/", "/proc", "/proc/sys", "/dev", "/tmp", "/lab", "/lab/.dshpc", "/home", "/data\\040sets",
        "/opt/mine", "/var/lib/dshpc/key", "/var/lib/dshpc/home", "/etc/hosts", "/usr/lib/libcuda.so.1",
        "/config",
    )
)  # fmt: skip


def test_which_folders_of_the_node_are_data() -> None:
    wanted = ["/data sets", "/home", "/lab", "/opt/mine", "/var/lib/dshpc/home"]
    assert entering.folders_of_data(MOUNTS, "/home/ada") == wanted
    assert entering.folders_of_data("", "/home/ada") == ["/home/ada"]
    line = "1 1 0:1 / /opt/driver/libcuda.so.1 rw - ext4 x rw"
    assert entering.places_of_driver(line)[-1] == "/opt/driver"


def test_the_jobs_variables_win_but_for_places() -> None:
    job = {
        "PATH": "/node",
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": "/node",
        "SHELL": "/bin/bash",
    }
    image = {"env": ["PATH=/image", "CUDA_VISIBLE_DEVICES=none", "NEW=1", "BROKEN"]}
    runtime.lay_over(job, image, has_driver=True)
    assert job == {
        "PATH": f"/image:{entering.DRIVER}", "CUDA_VISIBLE_DEVICES": "0", "NEW": "1",
        "LD_LIBRARY_PATH": entering.DRIVER,
    }  # fmt: skip


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1)
)
def test_words_come_as_they_were(given_words: list[str]) -> None:
    quoted = runtime.quoted(given_words)
    assert "'" not in "".join(quoted)
    assert runtime.unquoted(quoted) == given_words
    assert runtime.unquoted(["a", "b'c"]) == ["a", "b'c"]


def test_a_bundle_of_others(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(bundle.config(Start(), 1, 1)))
    with pytest.raises(OSError, match="No such file"):
        runtime.described(str(tmp_path))
    (tmp_path / "rootfs").mkdir()
    assert runtime.described(str(tmp_path))[0] == str(tmp_path / "rootfs")
    for text in ("[]", "{}", '{"root": {"path": "/"}}', '{"root": {"path": 1}}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="root"):
            runtime.described(str(tmp_path))
