"""What of the project's files the running cluster works with."""

from __future__ import annotations

from dshpc_setup.apply.owned import MOUNTED, short_name
from dshpc_setup.diagnose.files_known import KEPT_AS, stale_files
from dshpc_setup.diagnose.model import CheckInput, Verdict, fine, not_here, unknown, warning
from dshpc_setup.diagnose.slurm import in_its_words
from dshpc_setup.diagnose.slurm_known import reconfigure
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import ProjectFile


def configuration(known: CheckInput) -> Verdict:
    """Whether the last reading of config/ was refused."""
    found = known.observed.cluster
    if found is None:  # asked for by itself (--only), without what it needs
        return not_here("no cluster is set up here")
    if found.kept_last_good is not None:
        cause = "It was refused; the last good configuration is in force."
        return in_its_words(cause, found.kept_last_good, known)
    return fine() if found.phase == "ready" else unknown("The start has not come so far.")


def in_force(known: CheckInput) -> Verdict:
    """Files that a user made his own, against what the container last read of them."""
    now = known.observed.cluster
    read = now.config_sha256 if now is not None and now.ready else None
    own = [
        item
        for item in known.observed.files
        if item.path in MOUNTED and item.owner in ("custom", "edited") and item.sha256 is not None
    ]
    late = [item for item in own if read and item.sha256 != read.get(short_name(item.path))]
    compose = known.observed.file(COMPOSE_FILE)
    another = now is not None and now.compose_late
    if late or another:
        return _not_in_force(late, compose if another else None)
    if read is None:
        return unknown("The container does not say which files it has read.")
    if compose is not None and compose.owner in ("custom", "edited"):
        own.append(compose)
    return fine(*(f"{item.path} is {KEPT_AS[item.owner]}, and in force" for item in own))


def _not_in_force(late: list[ProjectFile], compose: ProjectFile | None) -> Verdict:
    """`late` are of config/; `compose` is given where the container was made from another text."""
    causes, fixes, words = [], [], [item.path for item in late]
    if late:
        causes.append("Slurm works with an earlier text of what was changed in config/ since.")
        fixes += [
            Fix(
                "See what would change",
                f"dshpc config diff {short_name(late[0].path)}",
                step="look",
            ),
            reconfigure("Put them into effect; running jobs are not affected"),
        ]
    if compose is not None:
        causes.append(f"The container was made from another text of {COMPOSE_FILE}.")
        words.append(f"{compose.path} ({KEPT_AS.get(compose.owner, 'written again')})")
        fixes.append(Fix("Make the container from it; jobs that run are interrupted", "dshpc up"))
    return warning(" ".join(causes), *words, fix=tuple(fixes))


def overruled(known: CheckInput) -> Verdict:
    """Settings that go into a file of the user's own, which does not have what they say."""
    found = known.observed.overruled
    if not found:
        return fine()
    fixes: dict[str, Fix] = {}
    for each in found:
        fixes.setdefault(each.to_add, Fix(each.to_add, "dshpc reconfigure"))
        words, command = each.to_give_up
        fixes.setdefault(command, Fix(words, command, step="alternative"))
    return warning(
        "A setting goes into a file that is your own, which is used as it is: the setting changes "
        "nothing.",
        *(each.why for each in found),
        fix=(*fixes.values(), Fix("See all settings", "dshpc config show", step="look")),
    )


def refused(known: CheckInput) -> Verdict:
    """Only where something waits to be put in force, or cannot even be planned: else what was refused is
    of the past."""
    found = known.observed.refused
    if found is None or not (stale_files(known) or known.plan is None):
        return fine()
    return in_its_words(
        "The last configure-environment changed nothing: what was to be put in force was refused.",
        found,
        known,
    )
