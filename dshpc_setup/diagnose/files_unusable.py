"""Files of the project that cannot be used: invalid, closed, broken, or half written."""

from __future__ import annotations

import shlex

from dshpc_setup.apply.owned import JOURNAL, MOUNTED
from dshpc_setup.diagnose.files_known import at, there, written_files
from dshpc_setup.diagnose.model import CheckInput, Verdict, fault, fine, not_here, note, warning
from dshpc_setup.diagnose.slurm import in_its_words
from dshpc_setup.errors import Fix, configure, told_error
from dshpc_setup.project.folder import MANIFEST


def invalid(known: CheckInput) -> Verdict:
    """All but the manifest and dshpc.yaml, which have checks of their own."""
    bad = [item for item in written_files(known) if item.state == "invalid"]
    if not bad:
        looked = (item.path for item in written_files(known) if item.owner != "missing")
        refused = _refused_by_container(known)
        return refused or fine(*(path for path in looked if path != ".env"))
    first = bad[0]
    return fault(
        f"{first.path} cannot be used: {first.detail or 'it is not a file of its kind'}.",
        *(f"{item.path}: {item.detail or 'invalid'}" for item in bad),
        fix=(
            Fix(f"Correct it with an editor, {there(known)}"),
            Fix(
                f"Or put it aside, {there(known)}, to have it written again",
                f"mv {first.path} {first.path}.old && configure-environment",
                step="alternative",
            ),
        ),
    )


def _refused_by_container(known: CheckInput) -> Verdict | None:
    """The start's own refusal, where it names a file: whether that can be used, it knows best."""
    found = known.observed.cluster
    for failure in (found.failure, found.kept_last_good) if found else ():
        if failure is None:
            continue
        file = told_error(failure).file
        if file in MOUNTED:
            return in_its_words(f"The cluster refuses {file} as it is.", failure, known)
    return None


def readable(known: CheckInput) -> Verdict:
    """In somebody else's project a closed file is no fault."""
    closed = [item for item in known.observed.files if item.state == "unreadable"]
    if not closed:
        return fine()
    first = closed[0].path
    words = tuple(f"{item.path}: {item.detail or 'unreadable'}" for item in closed)
    owner, folder = known.observed.owner, known.observed.project
    if owner is not None and folder is not None:
        as_owner = "sudo" if owner == "root" else f"sudo -u {shlex.quote(owner)}"
        order = f"{as_owner} dshpc doctor --dir {shlex.quote(folder)}"
        return warning(
            f"The project is {owner}'s, and {first} is closed to you: what is said of the files "
            "here is not complete.",
            *words,
            fix=(Fix(f"Run doctor as {owner}", order),),
        )
    path = at(known, first)
    return fault(
        f"{first} cannot be read by this user, so that no command of dshpc can use it here.",
        *words,
        fix=(
            Fix("See what it is and whose", f"ls -ld {path}", step="look"),
            Fix("Where a run under sudo left it to root, take it", f'sudo chown "$USER" {path}'),
        ),
    )


def manifest(known: CheckInput) -> Verdict:
    """Without it every file counts as edited by hand."""
    found = known.observed.file(MANIFEST)
    written = [item for item in written_files(known) if item.owner != "missing"]
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
                f"Put it aside, {there(known)}, and have it written again",
                f"mv {MANIFEST} {MANIFEST}.old && configure-environment",
            ),
        ),
    )


def leftovers(known: CheckInput) -> Verdict:
    """The journal tells of files that were about to be put in place."""
    left = known.observed.leftovers
    if not left:
        return fine()
    if JOURNAL in left:
        return warning(
            "A run was interrupted while it put new files in place: some are new, the others old.",
            *left,
            fix=(configure("Have the next run complete it"),),
        )
    return note(
        "A run was interrupted before it had written its files. The old ones are whole; these are "
        "of no use.",
        *left,
        fix=(Fix(f"Remove them, {there(known)}", f"rm {shlex.join(left)}"),),
    )
