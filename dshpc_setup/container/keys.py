"""The deployment's key of auth/slurm: made, checked at every start, changed while jobs run.

The file is a JSON Web Key Set (Slurm reads it as slurm.jwks since 24.05): tokens name the key that
signed them by its `kid`, and a key may have an end. A file of an older version of ours is the bytes of
one key; the next start turns it into a set of that one.

Only slurmctld and slurmd hold keys. Clients and slurmstepd have their tokens made and checked by a
daemon, through its socket (SACK, src/plugins/auth/slurm/sack.c): a job that runs has no key to
lose. What must outlive a change is a token on its way, and none is good for longer than its
lifetime (60 s, or `ttl=` of AuthInfo).
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping

from dshpc_setup.container import accounting, jobs, other_nodes
from dshpc_setup.container.exclusive import alone
from dshpc_setup.container.key_set import (
    LEAST_BYTES,
    KeySet,
    fresh,
    in_use,
    is_set,
    kid_of,
    known,
    parse,
    retired,
    settled,
    to_bytes,
    without_ended,
)
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_bytes
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import FROM_HOST, Paths
from dshpc_setup.slurm_releases import SHIPPED

SCHEMA = "dshpc.key/1"
STEP_SCHEMA = "dshpc.key-step/1"  # a line for each step, for the host's dshpc
_KEY_BYTES = 64  # the block of HMAC-SHA256: more is hashed down to less
_SPARE_S = 5
_ASK_S = 20.0
_TAKEN_UP_S = 5.0
_RESTARTED_S = 10.0
_NODE_KNOWN_S = 5.0
_POLL_S = 0.01

Signer = Callable[[str], str | None]
Say = Callable[[str], None]


# At a start


def ensure_key(paths: Paths, slurm: tuple[int, int]) -> str | None:
    """The deployment's key in its place, before the daemons start; a sentence about what was done.

    Raises DshpcError where it is not safe to use or damaged; such a file is left as it is.
    """
    path = paths.key
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        _write(paths, fresh(os.urandom(_KEY_BYTES), _new_kid()), slurm)
        return "A key for this deployment was made."
    content, keys = _load(path, found)
    notes = [_fixed(path, found, slurm)]
    # What a former key signed is gone with the processes of before this start
    kept = settled(keys, _new_kid())
    if not is_set(content) or kept != keys:
        _write(paths, kept, slurm)
    if any(key.secret != kept.current.secret for key in keys.others):
        notes.append("The former key was dropped: nothing of before this start uses it.")
    return " ".join(filter(None, notes)) or None


def refuse_unusable(paths: Paths) -> None:
    """Raises what `ensure_key` would of a key that is there, and writes nothing."""
    if os.path.lexists(paths.key):
        _load(paths.key, os.lstat(paths.key))


def _fixed(path: str, found: os.stat_result, slurm: tuple[int, int]) -> str | None:
    mode = stat.S_IMODE(found.st_mode)
    if mode == 0o600 and (found.st_uid, found.st_gid) == slurm:
        return None
    try:
        os.chown(path, *slurm)
        os.chmod(path, 0o600)
    except OSError as error:
        raise cannot_write(path, error) from None
    return f"The key had mode {mode:04o} and owner {found.st_uid}: set to 0600 and Slurm's user."


def _load(path: str, found: os.stat_result) -> tuple[bytes, KeySet]:
    problem = why_refused(found)
    if problem:
        raise _unsafe(path, problem)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DshpcError(
            f"The key {path} cannot be read: {error.strerror or error}.",
            "",
            (
                Fix(
                    "See how its volume is",
                    "dshpc exec --root -- ls -la /var/lib/dshpc/key",
                    step="look",
                ),
            ),
        ) from None
    try:
        return content, parse(content)
    except (ValueError, KeyError) as error:
        # JSONDecodeError holds the whole text: its words alone are said
        raise _unsafe(path, f"it is damaged ({error})") from None


def why_refused(found: os.stat_result) -> str | None:
    """Why a key is refused rather than put right: someone else may know it or have made it."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    if found.st_nlink != 1:
        return "the same file also lies under another name"
    if found.st_size < LEAST_BYTES:
        return f"it holds only {found.st_size} bytes"
    if found.st_mode & 0o044:
        return "every user can read it" if found.st_mode & 0o004 else "its group can read it"
    if found.st_mode & 0o022:
        return "others than its owner can change it"
    return None


def _unsafe(path: str, problem: str) -> DshpcError:
    return DshpcError(
        f"The key {path} is not safe to use: {problem}.",
        "Whoever has this key can run jobs as any user.",
        (
            Fix(
                "Remove it, so that the next start makes a new one (running jobs are lost)",
                f"dshpc exec --root -- rm {path} && dshpc restart",
            ),
        ),
    )


def _write(paths: Paths, keys: KeySet, owner: tuple[int, int]) -> None:
    replace_bytes(paths.key, to_bytes(keys), 0o600, owner)


def _new_kid() -> str:
    """Says when the key was made; it stands in every token and is no secret."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(3).hex()}"


# While the cluster runs


def token_life_s(config: Mapping[str, str]) -> int:
    """How long a token is good for, by the configuration in force."""
    found = re.search(r".*\bttl=(\d+)", config.get("AuthInfo", ""))
    return max(SHIPPED.defaults.token_s, int(found[1]) if found else 0)


def rotate(machine: Machine, paths: Paths) -> int:
    """A new key while jobs go on; prints what was done as JSON (schema dshpc.key/1).

    Killed at any moment it leaves keys with which every daemon knows what the others sign.
    """
    began = time.monotonic()
    waiting = jobs.waiting_clients(machine)
    name, _, value = FROM_HOST.partition("=")
    say = _told_to_host if machine.env.get(name) == value else lambda _: None
    keys = change(machine, paths, lambda service: _signs_with(paths, service), say)
    ends = max(key.until or 0 for key in keys.others)
    told = {
        "schema": SCHEMA,
        "exit_code": int(Exit.OK),
        "key": keys.current.kid,
        "former_until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends)),
        "waiting": waiting,
        "ms": round((time.monotonic() - began) * 1000, 1),
    }
    if away := other_nodes.away(machine, _own_node(paths)):
        told["away"] = away
    print(json.dumps(told))
    return Exit.OK


def _told_to_host(step: str) -> None:
    print(json.dumps({"schema": STEP_SCHEMA, "step": step}), flush=True)


def change(machine: Machine, paths: Paths, signs_with: Signer, say: Say = lambda _: None) -> KeySet:
    """The three files, each in force in both daemons before the next one is written.

    `signs_with` tells the `kid` that a daemon signs with now, None where it does not answer. `say` is
    told each step as it begins: "known", "in-use", "retired", and the daemon that has to be restarted.
    """
    with alone(paths, "dshpc key rotate"):
        _refuse_unready(machine, paths)
        found = os.lstat(paths.key)
        _, keys = _load(paths.key, found)
        config = Slurm(machine).config(deadline_s=_ASK_S)
        if config.value is None:
            raise _not_now("Slurm's controller does not answer.", config.asked.text)
        life_s = token_life_s(config.value)
        owner = (found.st_uid, found.st_gid)

        def in_force(step: str, wanted: KeySet) -> KeySet:
            say(step)
            _write(paths, wanted, owner)
            _taken_up(machine, paths, wanted.current.kid, signs_with, say)
            return wanted

        now = without_ended(keys, time.time())
        if now.spare is None:
            raise _not_now("It was made by an older version.", "The next start puts it right.")
        now = in_force("known", known(now, now.spare, os.urandom(_KEY_BYTES), _new_kid()))
        now = in_force("in-use", in_use(now))
        until = int(time.time()) + life_s + _SPARE_S
        return in_force("retired", retired(now, until))


def _refuse_unready(machine: Machine, paths: Paths) -> None:
    """Where the daemons would not come back from a reconfigure, nothing is begun."""
    from dshpc_setup.container import status
    from dshpc_setup.container.check import missing_device
    from dshpc_setup.container.config import Candidate

    phase = (status.read(paths) or {}).get("phase", "starting")
    if phase != "ready":
        raise _not_now("The cluster is not ready.", f"It is: {phase}.")
    files = ("slurm.conf", "gres.conf")
    texts = {name: read_text(f"{paths.etc_slurm}/{name}") or "" for name in files}
    node = (read_text(f"{paths.run}/node") or "").strip()
    missing = missing_device(Candidate(texts, {}, {}), machine.is_device, node)
    if missing is not None:  # slurmd ends on it
        entry, path = missing
        raise DshpcError(
            f"The key was not changed: the device {path} is gone since the last start.",
            f"gres.conf names it: {entry.line}",
            (Fix("Let the cluster see the machine as it is now", "dshpc reconfigure"),),
        )


def _taken_up(machine: Machine, paths: Paths, kid: str, signs_with: Signer, say: Say) -> None:
    """Until both daemons sign with the key; one that a reconfigure does not reach is restarted."""
    accounting.renew_key(machine, paths)
    there = other_nodes.up(machine, _own_node(paths))
    since = other_nodes.moment() if there else 0.0
    done = Slurm(machine).reconfigure(deadline_s=_ASK_S)
    for service in ("slurmctld", "slurmd"):
        if done.ok and _signed(signs_with, service, kid, _TAKEN_UP_S):
            continue
        say(service)
        if not _restarted(machine, paths, service, kid, signs_with):
            raise _not_now(f"{service} has not taken up the new key.", done.text)
    _node_known(machine, paths)
    if there and (late := other_nodes.late(machine, there, since)):
        raise _not_now(
            f"Not every node has taken up the new key: {', '.join(late)}.", "They answer, but late."
        )


def _restarted(machine: Machine, paths: Paths, service: str, kid: str, signs_with: Signer) -> bool:
    """The daemon alone, which jobs outlive; whether it signs with the key then."""
    # A slurmd that was not understood for a while does not end on TERM (seen with 24.11.5)
    for order in ("-r", "-k"):
        machine.run(["s6-svc", order, f"{paths.services}/{service}"], deadline_s=_ASK_S)
        if _signed(signs_with, service, kid, _RESTARTED_S):
            return True
    return False


def slurmd_takes_up(machine: Machine, paths: Paths) -> bool:
    """Whether slurmd signs with the key that lies there now, once it alone was restarted."""
    _, keys = _load(paths.key, os.lstat(paths.key))
    return _restarted(
        machine, paths, "slurmd", keys.current.kid, lambda service: _signs_with(paths, service)
    )


def _own_node(paths: Paths) -> str:
    return (read_text(f"{paths.run}/node") or "").strip()


def _node_known(machine: Machine, paths: Paths) -> None:
    """Until slurmctld takes the node for up again: an srun that asks before is put off for a minute."""
    from dshpc_setup.container import daemons

    node = _own_node(paths)

    def is_up() -> bool:
        found = daemons.show_node(machine, node)
        return found is not None and found.registered

    _within(_NODE_KNOWN_S, is_up)


def _signed(signs_with: Signer, service: str, kid: str, deadline_s: float) -> bool:
    return _within(deadline_s, lambda: signs_with(service) == kid)


def _within(deadline_s: float, true: Callable[[], bool]) -> bool:
    until = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def _not_now(brief: str, details: str) -> DshpcError:
    return DshpcError(
        f"The change of the key did not end: {brief}",
        f"{details}\nThe former key is still accepted. Running jobs are not affected.".strip(),
        (
            Fix("See the cluster's state", "dshpc status", step="look"),
            Fix("Then start over", "dshpc key rotate", step="after"),
        ),
        Exit.INCOMPLETE,
    )


def _signs_with(paths: Paths, service: str) -> str | None:
    """The `kid` of a token that the daemon makes for us, "" for a token without."""
    import socket
    import struct

    path = {"slurmctld": "/run/slurmctld/sack.socket", "slurmd": "/run/slurm/sack.socket"}[service]
    # src/common/sack_api.c: version, length without it, SACK_CREATE, whoever may read it, no payload
    request = struct.pack("!HIIII", 0, 16, 64001, 0xFFFFFFFF, 0)
    answer = b""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(1.0)
        try:
            asked.connect(paths.at(path))
            asked.sendall(request)
            while part := asked.recv(65536):
                answer += part
        except OSError:
            return None
    return kid_of(answer[4:].rstrip(b"\0"))
