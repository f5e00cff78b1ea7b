"""The files of the project folder, and what of them is in force."""

from __future__ import annotations

from collections.abc import Callable

from dshpc_setup.apply.owned import short_name
from dshpc_setup.diagnose.files_in_force import configuration, in_force, overruled, refused
from dshpc_setup.diagnose.files_known import KEPT_AS, stale_files, there, written_files
from dshpc_setup.diagnose.files_unusable import (
    invalid,
    leftovers,
    manifest,
    readable,
)
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.unusable_settings import settings_file
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.errors import Fix, configure

_AGAIN = configure("Write it again")
_OTHERS = 0o077  # permission bits of everybody but the owner


def _looked_at(rule: Callable[[CheckInput], Verdict]) -> Callable[[CheckInput], Verdict]:
    """The rule, where there are files to look at."""

    def look(known: CheckInput) -> Verdict:
        return rule(known) if known.observed.files else not_here("no project folder was looked at")

    return look


def _offered(known: CheckInput) -> Verdict:
    waiting = [item.path for item in known.observed.files if item.offered]
    if not waiting:
        return fine()
    first = short_name(waiting[0])
    return note(
        "These files were edited by hand and are kept. Beside each lies what would have been "
        "written (.dshpc-new).",
        *waiting,
        fix=(
            Fix("See the difference", f"dshpc config diff {first}", step="look"),
            Fix("Take the new text", f"dshpc config accept {first}"),
            Fix("Or keep your own", f"dshpc config reject {first}", step="alternative"),
        ),
    )


def _stale(known: CheckInput) -> Verdict:
    ours = [item for item in written_files(known) if item.owner == "ours"]
    old = [item.path for item in stale_files(known)]
    if old:
        return warning(
            "The machine or the settings have changed since these files were written: the cluster "
            "is not what would be set up now.",
            *old,
            fix=(
                Fix("See what would change", "configure-environment --dry-run", step="look"),
                configure("Set it up for what is here now"),
            ),
        )
    if ours and all(item.stale is None for item in ours):
        return unknown("What would be written now is not known.")
    kept = [item for item in written_files(known) if item.owner in KEPT_AS]
    return fine(
        *(item.path for item in ours),
        *(f"{item.path} is {KEPT_AS[item.owner]}: kept as it is" for item in kept),
    )


def _customized(known: CheckInput) -> Verdict:
    own = [item.path for item in written_files(known) if item.owner == "custom"]
    if not own:
        return fine()
    return note(
        "These files hold # USER_CUSTOMIZED=true: they are used as they are and never written to, "
        "also where the machine changes.",
        *own,
        fix=(Fix("To have one written again, take that line out; then", "configure-environment"),),
    )


def _env(known: CheckInput) -> Verdict:
    env = known.observed.file(".env")
    if env is None or env.owner == "missing" or env.mode is None:
        return not_here("there is no .env")
    if not env.mode & _OTHERS:
        return fine(f".env: {env.mode:04o}")
    return warning(
        "Other users of this machine may read .env, which is for your own settings and passwords.",
        f".env: {env.mode:04o} in place of 0600",
        fix=(
            Fix(
                f"Close it, {there(known)}",
                "chmod 600 .env",
                automatic=True,
                repair=("restrict-env", ""),
            ),
        ),
    )


def _compose(known: CheckInput) -> Verdict:
    found = known.observed.file(COMPOSE_FILE)
    if found is None or found.owner != "missing":
        return fine() if found else not_here("no project folder was looked at")
    if known.observed.cluster is None:
        return not_here("no cluster was set up here")
    return fault(
        f"{COMPOSE_FILE} is missing: it says how the cluster is started, and without it dshpc up "
        "and down cannot work.",
        f"{found.path}: {found.owner}",
        fix=(_AGAIN,),
    )


def _gpu_part(known: CheckInput) -> Verdict:
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


CHECKS: tuple[Check, ...] = (
    Check("DSH-FI-001", "files", "What config/ holds is in force",
          "What config/ holds is not in force", configuration, needs=("DSH-SL-001",),
          because=("DSH-FI-005", "DSH-FI-013", "DSH-FI-008")),
    Check("DSH-FI-002", "files", "Your own files are in force as they are",
          "A file was edited and is not in force", _looked_at(in_force), needs=("DSH-SL-001",),
          because=("DSH-FI-001",)),
    Check("DSH-FI-003", "files", "No new text waits beside a file",
          "A new text waits for your answer", _looked_at(_offered)),
    Check("DSH-FI-004", "files", "The files are up to date", "The files are out of date",
          _looked_at(_stale), because=("DSH-FI-015", "DSH-FI-010")),
    Check("DSH-FI-005", "files", "The files are valid", "A file is invalid", _looked_at(invalid),
          because=("DSH-SL-006",)),
    Check("DSH-FI-006", "files", "No file is marked as your own", "A file is marked as your own",
          _looked_at(_customized)),
    Check("DSH-FI-007", "files", ".env is closed to other users", "Other users may read .env",
          _looked_at(_env)),
    Check("DSH-FI-008", "files", "It is known which files you edited",
          "The manifest of the files is missing or broken", _looked_at(manifest)),
    Check("DSH-FI-009", "files", "docker-compose.yml is there", "docker-compose.yml is missing",
          _looked_at(_compose)),
    Check("DSH-FI-010", "files", "docker-compose.yml hands over this machine's GPUs",
          "docker-compose.yml does not match the GPUs of this machine", _looked_at(_gpu_part),
          because=("DSH-GP-001", "DSH-AM-038")),
    Check("DSH-FI-011", "files", "dshpc.yaml can be used", "dshpc.yaml is wrong", settings_file),
    Check("DSH-FI-012", "files", "No write was interrupted", "A write was interrupted",
          leftovers),
    Check("DSH-FI-013", "files", "The files can be read", "A file cannot be read",
          _looked_at(readable)),
    Check("DSH-FI-014", "files", "No file of your own keeps a setting out",
          "A file of your own keeps a setting out", _looked_at(overruled)),
    Check("DSH-FI-015", "files", "No change waits that was refused",
          "The last configure-environment was refused", _looked_at(refused)),
)  # fmt: skip
