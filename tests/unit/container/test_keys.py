"""The key of auth/slurm: made, checked at a start, and changed in three files."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import key_set, keys
from dshpc_setup.container.key_set import Key, KeySet
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.slurm.client import parse_config
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

ME = (os.getuid(), os.getgid())
BARE = bytes(range(256)) * 4  # what versions before key sets made: 1024 bytes


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for folder in ("etc/slurm", "run/dshpc", "var/lib/dshpc/key"):
        (tmp_path / folder).mkdir(parents=True)
    Status(Paths(str(tmp_path))).ready()
    return Paths(str(tmp_path))


def stored(paths: Paths) -> KeySet:
    return key_set.parse(Path(paths.key).read_bytes())


# --- The file


def test_the_file_is_what_slurm_documents(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    (first, second) = json.loads(Path(paths.key).read_text())["keys"]
    assert (first["alg"], first["kty"], first["use"]) == ("HS256", "oct", "default")
    assert {"alg", "kty", "kid", "k"} == set(second)
    assert first["kid"] != second["kid"]
    assert len(base64.urlsafe_b64decode(first["k"] + "==")) == 64


kids = st.text(min_size=1, max_size=20)
ends = st.none() | st.integers(min_value=1, max_value=2**40)
some_keys = st.builds(Key, kids, st.binary(min_size=16, max_size=80), ends)


@given(st.lists(some_keys, min_size=1, max_size=6, unique_by=lambda key: key.kid))
def test_a_set_is_read_as_it_was_written(entries: list[Key]) -> None:
    wanted = KeySet(entries[0], tuple(entries[1:]))
    content = key_set.to_bytes(wanted)
    assert key_set.is_set(content)
    assert key_set.parse(content) == wanted


@given(st.binary(min_size=16, max_size=2000).filter(lambda text: not key_set.is_set(text)))
def test_any_bytes_are_a_key_of_an_older_version(content: bytes) -> None:
    assert key_set.parse(content) == KeySet(Key("first", content))


@given(st.binary(max_size=200), st.data())
def test_a_damaged_set_is_an_error_or_a_set_and_nothing_else(
    noise: bytes, data: st.DataObject
) -> None:
    whole = key_set.to_bytes(key_set.fresh(b"x" * 64, "k"))
    at = data.draw(st.integers(min_value=12, max_value=len(whole)))
    try:
        found = key_set.parse(whole[:at] + noise)
    except ValueError:
        return
    assert all(len(key.secret) >= 16 for key in found.keys)


def entry(
    kid: str = "a", secret: str = "eHh4eHh4eHh4eHh4eHh4eA", **more: object
) -> dict[str, object]:
    return {"alg": "HS256", "kty": "oct", "kid": kid, "k": secret, **more}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "0 of 0 keys"),
        ({"kid": "a"}, "no list"),
        (["a"], "no list"),
        ([entry(), entry()], 'the same "kid"'),
        ([entry(use="default"), entry("b", use="default")], "2 of 2 keys"),
        ([entry(secret="eHh4")], "has 3 bytes"),
        ([entry(secret="*" * 40)], "no base64"),
        ([entry(secret="a" * 41)], "no base64"),
        ([{"kid": "a"}], 'lacks "kid" or "k"'),
        ([entry(exp="soon")], "no whole number"),
        ([entry(exp=True)], "no whole number"),
    ],
)
def test_what_slurm_would_not_read_is_told(entries: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        key_set.parse(json.dumps({"keys": entries}).encode())


def test_a_set_by_hand_counts_as_slurm_counts_it() -> None:
    plain = json.dumps({"keys": [entry(), entry("b", "Pj4-Pj8_Pj4-Pj8_Pj4-PjE=", exp=9)]}, indent=4)
    found = key_set.parse(plain.encode())
    assert (found.current.kid, found.others[0].kid, found.others[0].until) == ("a", "b", 9)
    chosen = json.dumps({"keys": [entry(), entry("b", use="default")]})
    assert key_set.parse(chosen.encode()).current.kid == "b"


def test_a_secret_stands_in_no_text_of_ours() -> None:
    assert "secret" not in repr(key_set.fresh(b"secret" * 10, "k"))


# --- At a start


def test_a_key_is_made_once(paths: Paths) -> None:
    assert keys.ensure_key(paths, ME) == "A key for this deployment was made."
    path = Path(paths.key)
    content = path.read_bytes()
    assert path.stat().st_mode & 0o7777 == 0o600
    assert (path.stat().st_uid, path.stat().st_gid) == ME
    assert keys.ensure_key(paths, ME) is None
    assert path.read_bytes() == content


def test_two_deployments_have_two_keys(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    first = stored(paths)
    Path(paths.key).unlink()
    keys.ensure_key(paths, ME)
    assert stored(paths).current.secret != first.current.secret


def test_a_key_of_an_older_version_goes_on_as_the_same_key(paths: Paths) -> None:
    Path(paths.key).write_bytes(BARE)
    Path(paths.key).chmod(0o600)
    assert keys.ensure_key(paths, ME) is None
    found = stored(paths)
    assert (found.current.secret, found.current.until) == (BARE, None)
    assert found.spare is not None
    assert key_set.is_set(Path(paths.key).read_bytes())


def test_a_mode_that_let_nobody_else_in_is_put_right(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    Path(paths.key).chmod(0o400)
    note = keys.ensure_key(paths, ME)
    assert note is not None
    assert "0400" in note
    assert Path(paths.key).stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602])
def test_a_key_that_others_may_know_or_have_made_is_refused(paths: Paths, mode: int) -> None:
    keys.ensure_key(paths, ME)
    Path(paths.key).chmod(mode)
    with pytest.raises(DshpcError, match="not safe") as caught:
        keys.ensure_key(paths, ME)
    assert caught.value.resolution
    assert Path(paths.key).stat().st_mode & 0o7777 == mode


def test_a_link_in_place_of_the_key_is_refused(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * 1024)
    Path(paths.key).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DshpcError, match="not a plain file"):
        keys.ensure_key(paths, ME)


def test_a_key_that_lies_elsewhere_too_is_refused(paths: Paths, tmp_path: Path) -> None:
    keys.ensure_key(paths, ME)
    (tmp_path / "copy").hardlink_to(paths.key)
    with pytest.raises(DshpcError, match="under another name"):
        keys.ensure_key(paths, ME)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds only 0 bytes"),
        (b"x" * 15, "holds only 15 bytes"),
        (b'{"keys": [{"kid": "a",', "it is damaged"),
        (b'{"keys": []}          ', "0 of 0 keys"),
    ],
)
def test_a_short_or_damaged_key_is_refused_and_kept(
    paths: Paths, content: bytes, words: str
) -> None:
    Path(paths.key).write_bytes(content)
    Path(paths.key).chmod(0o600)
    with pytest.raises(DshpcError, match=words) as caught:
        keys.ensure_key(paths, ME)
    assert "dshpc exec --root -- rm" in caught.value.resolution[0]
    assert Path(paths.key).read_bytes() == content


def test_a_start_drops_former_keys_and_keeps_the_one_that_signs(paths: Paths) -> None:
    now = KeySet(Key("new", b"n" * 64, until=9), (Key("old", b"o" * 64, until=99),))
    Path(paths.key).write_bytes(key_set.to_bytes(now))
    Path(paths.key).chmod(0o600)
    note = keys.ensure_key(paths, ME)
    assert note is not None
    assert "former key was dropped" in note
    found = stored(paths)
    assert {key.secret for key in found.keys} == {b"n" * 64}
    assert {key.until for key in found.keys} == {None}
    assert keys.ensure_key(paths, ME) is None


# --- The three files of a change


def understood(reader: KeySet, signer: KeySet, now: float = 0) -> bool:
    """Whether a daemon that has read one file accepts what one that has read another signs."""
    key = next((key for key in reader.keys if key.kid == signer.current.kid), None)
    same = key is not None and key.secret == signer.current.secret
    return same and key is not None and (key.until is None or key.until >= now)


def files_of_a_change(before: KeySet, secret: bytes, until: int, kid: str) -> list[KeySet]:
    assert before.spare is not None
    first = key_set.known(before, before.spare, secret, kid)
    second = key_set.in_use(first)
    return [before, first, second, key_set.retired(second, until)]


@given(st.binary(min_size=64, max_size=64), st.integers(min_value=100, max_value=10**9))
def test_daemons_of_neighbouring_files_always_understand_each_other(
    secret: bytes, until: int
) -> None:
    start = key_set.fresh(b"o" * 64, "t0")
    files = files_of_a_change(start, secret, until, "t1")
    for older, newer in itertools.pairwise(files):
        assert understood(older, newer)
        assert understood(newer, older)
        assert older.current.kid != newer.current.kid
    again = key_set.without_ended(files[-1], until + 1)
    more = files_of_a_change(again, b"m" * 64, until + 999, "t2")
    assert all(understood(a, b) and understood(b, a) for a, b in itertools.pairwise(more))


def test_after_its_end_the_former_key_signs_nothing_that_is_accepted() -> None:
    *_, last = files_of_a_change(key_set.fresh(b"o" * 64, "t0"), b"n" * 64, 1000, "t1")
    former = [key for key in last.keys if key.secret == b"o" * 64]
    assert former
    assert all(key.until == 1000 for key in former)
    assert last.current.secret == b"n" * 64
    assert last.current.until is None
    assert last.spare is not None
    assert {key.secret for key in key_set.without_ended(last, 1001).keys} == {b"n" * 64}


def test_an_earlier_end_is_not_put_off() -> None:
    start = key_set.fresh(b"o" * 64, "t0")
    leaked = Key("leaked", b"l" * 64, until=10)
    before = KeySet(start.current, (leaked, *start.others))
    *_, last = files_of_a_change(before, b"n" * 64, 1000, "t1")
    assert next(key for key in last.keys if key.kid == "leaked").until == 10


@pytest.mark.parametrize("stopped_after", [0, 1, 2, 3])
def test_a_change_that_was_cut_off_starts_and_can_be_begun_anew(
    paths: Paths, stopped_after: int
) -> None:
    start = key_set.fresh(b"o" * 64, "t0")
    left = files_of_a_change(start, b"n" * 64, 1000, "t1")[stopped_after]
    Path(paths.key).write_bytes(key_set.to_bytes(left))
    Path(paths.key).chmod(0o600)
    # with the same daemons
    cleaned = key_set.without_ended(left, 500)
    *_, last = files_of_a_change(cleaned, b"m" * 64, 2000, "t2")
    assert all(key.until is not None for key in last.keys if key.secret != b"m" * 64)
    # or at the next start
    keys.ensure_key(paths, ME)
    assert stored(paths).current.secret == (b"o" if stopped_after < 2 else b"n") * 64
    assert len({key.secret for key in stored(paths).keys}) == 1


@pytest.mark.parametrize(
    ("config", "life_s"),
    [
        ("AuthInfo                = (null)\n", 60),
        ("AuthInfo                = ttl=300\n", 300),
        ("AuthInfo                = use_client_ids,ttl=300\n", 300),
        ("AuthInfo                = ttl=30\n", 60),
        ("AuthAltInfo             = ttl=300\n", 60),
        ("", 60),
    ],
)
def test_how_long_a_token_lives(config: str, life_s: int) -> None:
    assert keys.token_life_s(parse_config(config)) == life_s


# --- The change in a running cluster


class Cluster(FakeMachine):
    """Two daemons that read the key file at a reconfigure; `deaf` ones only when restarted."""

    def __init__(self, paths: Paths, deaf: dict[str, str] | None = None) -> None:
        self.signs: dict[str, str | None] = dict.fromkeys(("slurmctld", "slurmd"))
        self.paths, self.deaf, self.seen = paths, deaf or {}, list[KeySet]()
        self.states: Iterator[str] = itertools.repeat("IDLE")
        super().__init__(
            commands={
                "scontrol show config": Answer("AuthInfo = ttl=120\n"),
                "scontrol reconfigure": lambda _: self.reads("reconfigure"),
                "scontrol -o show node": lambda _: Answer(
                    f"NodeName=n State={next(self.states)}\n"
                ),
                "squeue": Answer("7|0|\n8|1|\n"),
                "s6-svc": lambda argv: self.reads(argv[1], os.path.basename(argv[2])),
            }
        )

    def reads(self, how: str, only: str | None = None) -> Answer:
        if how == "reconfigure":
            self.seen.append(stored(self.paths))
        for service in self.signs:
            if self.deaf.get(service, "reconfigure") == how and only in (None, service):
                self.signs[service] = stored(self.paths).current.kid
        return Answer()

    def is_device(self, path: str) -> bool:
        return path == "/dev/nvidia0"

    def change(self) -> KeySet:
        return keys.change(self, self.paths, self.signs.get)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TAKEN_UP_S", "_RESTARTED_S"):
        monkeypatch.setattr(keys, name, 0.0)


def test_each_file_is_in_force_before_the_next_is_written(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    before = stored(paths)
    machine = Cluster(paths)
    began = time.time()
    after = machine.change()
    ended = time.time()
    assert len(machine.seen) == 3
    assert after == stored(paths) == machine.seen[-1]
    assert set(machine.signs.values()) == {after.current.kid}
    secrets = [file.current.secret for file in machine.seen]
    assert secrets[0] == before.current.secret != secrets[1] == secrets[2]
    ends = {key.until for key in after.keys if key.secret == before.current.secret}
    (end,) = ends
    assert end is not None
    assert began + 120 <= end <= ended + 126  # the lifetime of tokens here, and a little
    assert Path(paths.key).stat().st_mode & 0o7777 == 0o600
    assert not [argv for argv in machine.ran if argv[0] == "s6-svc"]


def test_the_node_is_up_again_before_the_next_is_written(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    machine = Cluster(paths)
    said = ("UNKNOWN", "IDLE", "MIXED*", "MIXED", "UNKNOWN", "UNKNOWN", "ALLOCATED")
    machine.states = iter(said)
    machine.change()
    assert list(machine.states) == []
    asked = [argv[1] for argv in machine.ran if argv[0] == "scontrol"]
    assert asked == ["show", *("reconfigure", "-o", "-o") * 2, "reconfigure", "-o", "-o", "-o"]


def test_a_node_that_stays_away_does_not_keep_the_key(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_NODE_KNOWN_S", 0.02)
    keys.ensure_key(paths, ME)
    machine = Cluster(paths)
    machine.states = itertools.repeat("DOWN*")
    after = machine.change()
    assert set(machine.signs.values()) == {after.current.kid}


@pytest.mark.parametrize("order", ["-r", "-k"])
@pytest.mark.parametrize("service", ["slurmctld", "slurmd"])
def test_a_daemon_that_hears_no_reconfigure_is_restarted(
    paths: Paths, service: str, order: str
) -> None:
    keys.ensure_key(paths, ME)
    machine = Cluster(paths, {service: order})
    after = machine.change()
    assert machine.signs[service] == after.current.kid
    assert (
        "s6-svc",
        order,
        f"{paths.services}/{service}",
    ) in machine.ran


def test_a_daemon_that_takes_up_nothing_keeps_the_former_key_accepted(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    before = stored(paths)
    machine = Cluster(paths, {"slurmd": "never"})
    with pytest.raises(DshpcError, match="slurmd has not taken up") as caught:
        machine.change()
    assert caught.value.exit_code == Exit.INCOMPLETE
    kept = stored(paths)
    assert kept.current.secret == before.current.secret
    assert all(key.until is None for key in kept.keys)


@pytest.mark.parametrize("phase", ["starting: slurmd", "failed"])
def test_a_cluster_that_is_not_ready_keeps_its_key(
    paths: Paths, tmp_path: Path, phase: str
) -> None:
    keys.ensure_key(paths, ME)
    content = Path(paths.key).read_bytes()
    now = Status(paths)
    now.values["phase"] = phase
    now.write()
    with pytest.raises(DshpcError, match="not ready"):
        Cluster(paths).change()
    assert Path(paths.key).read_bytes() == content


@pytest.mark.parametrize(("device", "begun"), [("/dev/nvidia0", True), ("/dev/nvidia7", False)])
def test_slurmd_is_not_reconfigured_onto_a_missing_device(
    paths: Paths, tmp_path: Path, device: str, begun: bool
) -> None:
    keys.ensure_key(paths, ME)
    (tmp_path / "etc/slurm/gres.conf").write_text(f"Name=gpu Type=h100 File={device}\n")
    machine = Cluster(paths)
    if begun:
        machine.change()
        return
    with pytest.raises(DshpcError, match="/dev/nvidia7 is gone"):
        machine.change()
    assert not machine.ran


def test_a_controller_that_does_not_answer_is_told_before_anything_is_written(
    paths: Paths,
) -> None:
    keys.ensure_key(paths, ME)
    content = Path(paths.key).read_bytes()
    machine = Cluster(paths)
    machine.commands["scontrol show config"] = Answer("", 1, "Unable to contact slurm controller")
    with pytest.raises(DshpcError, match="does not answer") as caught:
        machine.change()
    assert "Unable to contact" in caught.value.details
    assert Path(paths.key).read_bytes() == content


def test_an_unsafe_key_is_not_changed(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    Path(paths.key).chmod(0o644)
    with pytest.raises(DshpcError, match="not safe"):
        Cluster(paths).change()


def test_two_changes_at_once_are_refused(paths: Paths, tmp_path: Path) -> None:
    keys.ensure_key(paths, ME)
    with open(tmp_path / "run/dshpc/key.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DshpcError, match="being changed already") as caught:
            Cluster(paths).change()
    assert caught.value.exit_code == Exit.INCOMPLETE
    Cluster(paths).change()


def test_what_was_done_is_printed_without_a_secret(
    paths: Paths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.ensure_key(paths, ME)
    machine = Cluster(paths)
    monkeypatch.setattr(keys, "_signs_with", lambda _, service: machine.signs[service])
    assert keys.rotate(machine, paths) == 0
    text = capsys.readouterr().out
    said = json.loads(text)
    assert said["schema"] == "dshpc.key/1"
    assert said["key"] == stored(paths).current.kid
    assert said["former_until"].endswith("Z")
    assert said["waiting"] == ["7"]  # and not 8, which sbatch has queued
    for key in stored(paths).keys:
        assert base64.urlsafe_b64encode(key.secret).decode().rstrip("=") not in text


# --- What a daemon signs with


def token(header: object) -> bytes:
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=")
    return head + b".e30.sig"


@pytest.mark.parametrize(
    ("text", "kid"),
    [
        (token({"alg": "HS256", "kid": "a.1"}), "a.1"),
        (token({"alg": "HS256"}), ""),
        (token([1]), None),
        (b"", None),
        (b"\xff\xfe.a.b", None),
    ],
)
def test_the_kid_of_a_token(text: bytes, kid: str | None) -> None:
    assert key_set.kid_of(text) == kid


def test_each_step_is_said_as_it_begins(paths: Paths) -> None:
    keys.ensure_key(paths, ME)
    cluster = Cluster(paths, {"slurmd": "-k"})
    said: list[str] = []
    keys.change(cluster, paths, cluster.signs.get, said.append)
    assert said == ["known", "slurmd", "in-use", "slurmd", "retired", "slurmd"]
