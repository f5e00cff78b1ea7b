"""The files of the project folder, and what of them is in force."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from dshpc_setup.apply import JOURNAL
from dshpc_setup.cluster.config_files import MOUNTED, short_name
from dshpc_setup.diagnose.host import in_settings_file
from dshpc_setup.diagnose.model import (
    Check,
    Known,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm import in_its_words
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.fixes import Fix
from dshpc_setup.observed import ProjectFile
from dshpc_setup.project import MANIFEST

WRITTEN = (*MOUNTED, COMPOSE_FILE, ".env")
"""What configure-environment writes, by path in the project folder."""

_AGAIN = Fix("Write it anew", "configure-environment", automatic=True)
_OTHERS = 0o077  # permission bits of everybody but the owner


def _configuration(known: Known) -> Verdict:
    found = known.observed.cluster
    if found is None:  # asked for by itself (--only), without what it needs
        return not_here("no cluster is set up here")
    if found.kept_last_good is not None:
        cause = "It was refused; the last good configuration is in force."
        return in_its_words(cause, found.kept_last_good)
    return fine() if found.phase == "ready" else unknown("The start has not come so far.")


def _looked_at(rule: Callable[[Known], Verdict]) -> Callable[[Known], Verdict]:
    """The rule, where there are files to look at."""

    def look(known: Known) -> Verdict:
        return rule(known) if known.observed.files else not_here("no project folder was looked at")

    return look


def _written(known: Known) -> list[ProjectFile]:
    return [item for item in known.observed.files if item.path in WRITTEN]


def _in_force(known: Known) -> Verdict:
    """Files that a user made his own, against what the container last read of them."""
    now = known.observed.cluster
    read = now.config_sha256 if now is not None and now.ready else None
    if read is None:
        return unknown("The container does not say which files it has read.")
    own = [
        item
        for item in known.observed.files
        if item.path in MOUNTED and item.owner in ("custom", "edited") and item.sha256 is not None
    ]
    late = [item for item in own if item.sha256 != read.get(short_name(item.path))]
    if not late:
        return fine(*(f"{item.path} is in force" for item in own))
    return warning(
        "These files were changed after the container read them: Slurm works with the earlier text.",
        *(item.path for item in late),
        fix=(
            Fix("See what would change", f"dshpc config diff {short_name(late[0].path)}"),
            Fix("Put them into effect; jobs go on", "dshpc reconfigure", automatic=True),
        ),
    )


def _offered(known: Known) -> Verdict:
    waiting = [item.path for item in known.observed.files if item.offered]
    if not waiting:
        return fine()
    first = short_name(waiting[0])
    return note(
        "These files were edited by hand and are kept. Beside each lies what would have been "
        "written (.dshpc-new).",
        *waiting,
        fix=(
            Fix("See the difference", f"dshpc config diff {first}"),
            Fix("Take the new text", f"dshpc config accept {first}"),
            Fix("Or keep your own", f"dshpc config reject {first}"),
        ),
    )


def _stale(known: Known) -> Verdict:
    """Of our own files only: what somebody edited is his, and is kept."""
    ours = [item for item in _written(known) if item.owner == "ours"]
    old = [item.path for item in ours if item.stale]
    if old:
        return warning(
            "The machine or the settings have changed since these files were written: the cluster "
            "is not what would be set up now.",
            *old,
            fix=(
                Fix("See what would change", "configure-environment --dry-run"),
                Fix("Set it up for what is here now", "configure-environment", automatic=True),
            ),
        )
    if ours and all(item.stale is None for item in ours):
        return unknown("What would be written now is not known.")
    return fine(*(item.path for item in ours))


def _invalid(known: Known) -> Verdict:
    """All but the manifest and dshpc.yaml, which have checks of their own."""
    bad = [item for item in _written(known) if item.state == "invalid"]
    if not bad:
        return fine()
    first = bad[0]
    return fault(
        f"{first.path} cannot be used: {first.detail or 'it is no file of its kind'}.",
        *(f"{item.path}: {item.detail or 'invalid'}" for item in bad),
        fix=(
            Fix("Correct it there with an editor, in the project folder"),
            Fix(
                "Or give it up, to have it written anew",
                f"mv {first.path} {first.path}.old && configure-environment",
            ),
        ),
    )


def _readable(known: Known) -> Verdict:
    closed = [item for item in known.observed.files if item.state == "unreadable"]
    if not closed:
        return fine()
    first = closed[0].path
    return fault(
        f"{first} cannot be read, so that neither dshpc nor the cluster can use it.",
        *(f"{item.path}: {item.detail or 'unreadable'}" for item in closed),
        fix=(
            Fix("See what it is and whose", f"ls -ld {first}"),
            Fix("Where a run under sudo left it to root, take it", f'sudo chown "$USER" {first}'),
        ),
    )


def _customized(known: Known) -> Verdict:
    own = [item.path for item in _written(known) if item.owner == "custom"]
    if not own:
        return fine()
    return note(
        "These files hold # USER_CUSTOMIZED=true: they are used as they are and never written to, "
        "also where the machine changes.",
        *own,
        fix=(
            Fix(
                "To have one written again, take that line out; then",
                "configure-environment",
            ),
        ),
    )


def _env(known: Known) -> Verdict:
    env = known.observed.file(".env")
    if env is None or env.owner == "missing" or env.mode is None:
        return not_here("there is no .env")
    if not env.mode & _OTHERS:
        return fine(f".env: {env.mode:04o}")
    return warning(
        "Other users of this machine may read .env, which is for your own settings and passwords.",
        f".env: {env.mode:04o} in place of 0600",
        fix=(Fix("Close it, in the project folder", "chmod 600 .env", automatic=True),),
    )


def _manifest(known: Known) -> Verdict:
    """Without it every file counts as edited by hand."""
    found = known.observed.file(MANIFEST)
    written = [item for item in _written(known) if item.owner != "missing"]
    if found is None or not written:
        return not_here("nothing was written here yet")
    if found.state == "good" and found.owner != "missing":
        return fine()
    if found.owner == "missing":
        return warning(
            f"{MANIFEST} is missing: it is not known any more which files you edited, so all of "
            "them are kept as they are.",
            *(item.path for item in written),
            fix=(
                Fix(
                    "Start it again: what is as it would be written counts as not edited",
                    "configure-environment",
                ),
                Fix("Take the new texts of the others", "dshpc config accept --all"),
            ),
        )
    return fault(
        f"{MANIFEST} is broken: it is not known which files you edited, and the container does not "
        "start with it.",
        f"{MANIFEST}: {found.detail or found.state}",
        fix=(
            Fix(
                "Put it aside, and have it written anew",
                f"mv {MANIFEST} {MANIFEST}.old && configure-environment",
            ),
        ),
    )


def _compose(known: Known) -> Verdict:
    found = known.observed.file(COMPOSE_FILE)
    if found is None or found.owner != "missing":
        return fine() if found else not_here("no project folder was looked at")
    if known.observed.cluster is None:
        return not_here("no cluster was set up here")
    return fault(
        f"{COMPOSE_FILE} is missing: it says how the cluster is started, and without it dshpc up "
        "and down cannot work.",
        fix=(_AGAIN,),
    )


def _gpu_part(known: Known) -> Verdict:
    """How docker-compose.yml hands over GPUs, against how it would now."""
    wanted, written = known.observed.wanted_gpus, known.observed.written_gpus
    if written is None:
        return not_here(f"there is no {COMPOSE_FILE} that can be read")
    if wanted is None:
        return unknown("What would be written now is not known.")
    read = (
        f"written: {', '.join(written) or 'no GPU'}",
        f"here now: {', '.join(wanted) or 'no GPU'}",
    )
    if set(wanted) == set(written):
        return fine(*read)
    if not written:
        cause = f"{COMPOSE_FILE} hands no GPU to the cluster, and this machine has some."
    elif not wanted:
        cause = f"{COMPOSE_FILE} hands over GPUs that this machine cannot give."
    else:
        cause = f"{COMPOSE_FILE} hands over GPUs in another way than this machine needs."
    found = known.observed.file(COMPOSE_FILE)
    kept = found is not None and found.owner in ("custom", "edited")
    step = (
        Fix(
            "It is your own text: see what would be written", "dshpc config diff docker-compose.yml"
        )
        if kept
        else _AGAIN
    )
    return warning(cause, *read, fix=(step,))


def _settings_file(known: Known) -> Verdict:
    error = known.observed.settings_error
    if error is None or not in_settings_file(error):
        return fine()
    return fault(
        "dshpc.yaml cannot be used: nothing can be planned or written before it is corrected.",
        *error.splitlines(),
        fix=(Fix("Correct the place that is named; the settings are listed by", "dshpc config set --help"),),
    )  # fmt: skip


def _leftovers(known: Known) -> Verdict:
    left = known.observed.leftovers
    if not left:
        return fine()
    if JOURNAL in left:
        return warning(
            "A run was interrupted while it put new files in place: some are new, the others old.",
            *left,
            fix=(Fix("Have the next run complete it", "configure-environment", automatic=True),),
        )
    return note(
        "A run was interrupted before it had written its files. The old ones are whole; these are "
        "of no use.",
        *left,
        fix=(Fix("Remove them, in the project folder", f"rm {shlex.join(left)}"),),
    )


CHECKS: tuple[Check, ...] = (
    Check("DSH-FI-001", "files", "What config/ holds is in force",
          "What config/ holds is not in force", _configuration, needs=("DSH-SL-001",),
          because=("DSH-FI-005", "DSH-FI-013", "DSH-FI-008")),
    Check("DSH-FI-002", "files", "Your own files are in force as they are",
          "A file was edited and is not in force", _looked_at(_in_force), needs=("DSH-SL-001",),
          because=("DSH-FI-001",)),
    Check("DSH-FI-003", "files", "No new text waits beside a file",
          "A new text waits for your answer", _looked_at(_offered)),
    Check("DSH-FI-004", "files", "The files are up to date", "The files are out of date",
          _looked_at(_stale), because=("DSH-FI-010",)),
    Check("DSH-FI-005", "files", "The files are valid", "A file is invalid", _looked_at(_invalid)),
    Check("DSH-FI-006", "files", "No file is marked as your own", "A file is marked as your own",
          _looked_at(_customized)),
    Check("DSH-FI-007", "files", ".env is closed to other users", "Other users may read .env",
          _looked_at(_env)),
    Check("DSH-FI-008", "files", "It is known which files you edited",
          "The manifest of the files is missing or broken", _looked_at(_manifest)),
    Check("DSH-FI-009", "files", "docker-compose.yml is there", "docker-compose.yml is missing",
          _looked_at(_compose)),
    Check("DSH-FI-010", "files", "docker-compose.yml hands over this machine's GPUs",
          "docker-compose.yml does not match the GPUs of this machine", _looked_at(_gpu_part),
          because=("DSH-GP-001", "DSH-AM-038")),
    Check("DSH-FI-011", "files", "dshpc.yaml can be used", "dshpc.yaml is wrong", _settings_file),
    Check("DSH-FI-012", "files", "No write was interrupted", "A write was interrupted",
          _leftovers),
    Check("DSH-FI-013", "files", "The files can be read", "A file cannot be read",
          _looked_at(_readable)),
)  # fmt: skip
