"""The project's files: where each check fires, where it must not, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.files import CHECKS
from dshpc_setup.diagnose.slurm import in_its_words
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Observed
from tests.unit.diagnose.known import findings, known
from tests.unit.diagnose.tables import Tables

W = "workstation-rtx4090"
FIRES = {
    "DSH-FI-001": ("files-refused", "files-edited-in-force"),
    "DSH-FI-002": ("files-edited-late", "files-edited-in-force"),
    "DSH-FI-004": ("files-stale", "files-edited-in-force"),
    "DSH-FI-005": ("files-invalid", "files-closed"),
    "DSH-FI-007": ("files-env-open", "files-env-missing"),
    "DSH-FI-008": ("files-manifest-missing", "files-never-set-up"),
    "DSH-FI-009": ("files-compose-missing", "files-healthy"),
    "DSH-FI-010": ("files-other-gpus", "files-same-gpus"),
    "DSH-FI-011": ("files-unknown-setting", "host-unknown-setting"),
    "DSH-FI-012": ("files-half-written", "files-healthy"),
    "DSH-FI-013": ("files-closed", "files-invalid"),
    "DSH-FI-014": ("files-setting-kept-out", "files-customized"),
    "DSH-FI-015": ("files-change-refused", "files-stale"),
}
"""Id -> a case of the workstation where it must fire, and its near miss."""

NOTES = {
    "DSH-FI-003": ("files-offered", "files-edited-in-force"),
    "DSH-FI-006": ("files-customized", "files-edited-in-force"),
    "DSH-FI-012": ("files-leftover", "files-healthy"),
}
"""The same for what is worth knowing only."""

MORE = {
    ("DSH-FI-001", "files-never-set-up"): "blocked",
    ("DSH-FI-002", "files-customized"): "ok",
    ("DSH-FI-002", "files-never-set-up"): "blocked",
    ("DSH-FI-004", "files-staleness-unknown"): "skipped",
    ("DSH-FI-004", "files-healthy"): "ok",
    ("DSH-FI-005", "files-yaml-invalid"): "ok",
    ("DSH-FI-005", "files-manifest-broken"): "ok",
    ("DSH-FI-008", "files-manifest-broken"): "error",
    ("DSH-FI-008", "files-healthy"): "ok",
    ("DSH-FI-008", "healthy"): "skipped",
    ("DSH-FI-009", "files-never-set-up"): "skipped",
    ("DSH-FI-010", "files-no-gpu-written"): "warn",
    ("DSH-FI-010", "files-own-gpus"): "warn",
    ("DSH-FI-010", "files-healthy"): "skipped",
    ("DSH-FI-011", "files-yaml-invalid"): "error",
}

WORDS = {
    ("DSH-FI-001", "files-refused"): "slurmctld refuses config/slurm.conf.",
    ("DSH-FI-002", "files-edited-late"): "dshpc reconfigure",
    ("DSH-FI-003", "files-offered"): "dshpc config diff gres.conf",
    ("DSH-FI-004", "files-stale"): "configure-environment --dry-run",
    ("DSH-FI-005", "files-invalid"): "line 3: Slurm expects KEY=VALUE",
    ("DSH-FI-006", "files-customized"): "USER_CUSTOMIZED=true",
    ("DSH-FI-007", "files-env-open"): "0644 in place of 0600",
    ("DSH-FI-008", "files-manifest-missing"): "dshpc config accept --all",
    ("DSH-FI-008", "files-manifest-broken"): "mv config/manifest.json config/manifest.json.old",
    ("DSH-FI-009", "files-compose-missing"): "docker-compose.yml is missing",
    ("DSH-FI-010", "files-other-gpus"): "here now: cdi nvidia.com/gpu=all",
    ("DSH-FI-010", "files-no-gpu-written"): "written: no GPU",
    ("DSH-FI-010", "files-own-gpus"): "dshpc config diff docker-compose.yml",
    ("DSH-FI-011", "files-unknown-setting"): "Did you mean 'gpu'?",
    ("DSH-FI-012", "files-leftover"): "rm config/.slurm.conf.dshpc-tmp",
    ("DSH-FI-014", "files-setting-kept-out"): "does not have: KillWait=60",
    ("DSH-FI-015", "files-change-refused"): "Slurm knows no 'KillWaitt' there",
    ("DSH-FI-013", "files-closed"): "ls -ld /home/someone/cluster/config/gres.conf",
}

AUTOMATIC = {
    ("DSH-FI-002", "files-edited-late"): "dshpc reconfigure",
    ("DSH-FI-004", "files-stale"): "configure-environment",
    ("DSH-FI-007", "files-env-open"): "chmod 600 .env",
    ("DSH-FI-009", "files-compose-missing"): "configure-environment",
    ("DSH-FI-010", "files-other-gpus"): "configure-environment",
    ("DSH-FI-010", "files-own-gpus"): None,
    ("DSH-FI-005", "files-invalid"): None,
}


def found(about: CheckInput, identity: str) -> Finding:
    return next(finding for finding in diagnose(about, CHECKS) if finding.id == identity)


def of(case: str, identity: str) -> Finding:
    return findings(f"{W}/{case}")[identity]


class TestFiles(Tables):
    checks = CHECKS
    before = f"{W}/"
    fires = FIRES
    notes = NOTES
    states = MORE
    words = WORDS


@pytest.mark.parametrize(("identity", "case"), AUTOMATIC)
def test_what_doctor_may_do_by_itself(identity: str, case: str) -> None:
    steps = [fix.command for fix in of(case, identity).fix if fix.automatic]
    expected = AUTOMATIC[identity, case]
    assert steps == ([] if expected is None else [expected])


@pytest.mark.parametrize("case", ["files-healthy", "files-same-gpus", "healthy"])
def test_well_kept_files_have_nothing(case: str) -> None:
    states = {finding.state for finding in diagnose(known(f"{W}/{case}"), CHECKS)}
    assert states <= {"ok", "skipped"}


def test_without_a_folder_all_is_skipped_or_well() -> None:
    for finding in diagnose(replace(known(W), observed=Observed()), CHECKS):
        assert finding.state in ("ok", "skipped"), finding


def test_a_refused_text_is_the_root_of_files_that_are_not_in_force() -> None:
    both = known(f"{W}/files-refused")
    late = known(f"{W}/files-edited-late").observed
    cluster = both.observed.cluster
    assert cluster is not None
    assert late.cluster is not None
    seen = replace(
        both.observed, cluster=replace(cluster, config_sha256=late.cluster.config_sha256)
    )
    assert found(replace(both, observed=seen), "DSH-FI-002").caused_by == "DSH-FI-005"
    invalid = replace(seen, files=known(f"{W}/files-invalid").observed.files)
    assert found(replace(both, observed=invalid), "DSH-FI-001").caused_by == "DSH-FI-005"


def test_what_was_refused_explains_that_the_files_are_out_of_date() -> None:
    """Doctor advised configure-environment, which refused it again."""
    assert of("files-change-refused", "DSH-FI-004").caused_by == "DSH-FI-015"
    assert of("files-change-refused", "DSH-FI-015").caused_by is None
    about = known(f"{W}/files-change-refused")
    healthy = known(f"{W}/files-healthy").observed.files
    past = replace(about, observed=replace(about.observed, files=healthy))
    assert found(past, "DSH-FI-015").state == "ok", "nothing waits to be put in force"


def test_other_gpus_explain_that_the_files_are_out_of_date() -> None:
    assert of("files-other-gpus", "DSH-FI-004").caused_by == "DSH-FI-010"
    assert of("files-stale", "DSH-FI-004").caused_by is None


def test_a_compose_file_without_gpus_explains_a_container_without() -> None:
    here = known(f"{W}/slurm-gpu-not-in-container")
    seen = replace(here.observed, written_gpus=(), wanted_gpus=("nvidia all by device request",))
    every = {finding.id: finding for finding in diagnose(replace(here, observed=seen))}
    assert every["DSH-FI-010"].caused_by is None
    assert every["DSH-SL-022"].caused_by == "DSH-FI-010"


def test_what_the_container_refused_can_be_pasted_in_the_folder_that_is_named() -> None:
    told = {
        "brief": "No.",
        "details": "line 3",
        "fixes": [
            Fix("Correct config/gres.conf", place="project").to_json(),
            Fix(
                "Then put it into effect", "dshpc reconfigure", step="after", place="project"
            ).to_json(),
        ],
    }
    here = replace(known("workstation-rtx4090"), observed=Observed(project="/srv/a b"))
    assert in_its_words("So.", told, here).fix == (
        Fix("Correct config/gres.conf, in /srv/a b"),
        Fix("Then put it into effect, in /srv/a b", "dshpc reconfigure", step="after"),
    )
    nowhere = replace(here, observed=Observed())
    assert in_its_words("So.", told, nowhere).fix[0].words.endswith("in the project folder")


def with_compose(
    owner: str, *notes: str, late: bool = False, case: str = "files-edited-in-force"
) -> CheckInput:
    """The case with a compose file of that owner, and notes of `dshpc status` about it."""
    here = known(f"{W}/{case}")
    assert here.observed.cluster is not None
    files = tuple(
        replace(item, owner=owner) if item.path == "docker-compose.yml" else item
        for item in here.observed.files
    )
    cluster = replace(here.observed.cluster, notes=notes, compose_late=late)
    return replace(here, observed=replace(here.observed, files=files, cluster=cluster))


def test_an_edited_compose_file_is_in_force_or_is_said_not_to_be() -> None:
    fine = found(with_compose("edited"), "DSH-FI-002")
    assert fine.state == "ok"
    assert "docker-compose.yml is edited, and in force" in fine.evidence
    told = found(with_compose("edited", late=True), "DSH-FI-002")
    assert told.state == "warn"
    assert told.evidence == ("docker-compose.yml (edited)",)
    assert [fix.command for fix in told.fix] == ["dshpc up"]
    other = "docker-compose.yml is yours, and a newer text waits beside it: dshpc config diff x"
    assert found(with_compose("edited", other), "DSH-FI-002").state == "ok"


def test_an_edited_file_is_named_beside_those_that_are_up_to_date() -> None:
    told = found(with_compose("edited"), "DSH-FI-004")
    assert "docker-compose.yml is edited: kept as it is" in told.evidence
    assert "docker-compose.yml" in found(with_compose("ours"), "DSH-FI-004").evidence


@pytest.mark.parametrize(
    ("file", "state"), [("config/gres.conf", "error"), (None, "ok"), ("config/other", "ok")]
)
def test_a_file_that_the_start_refuses_is_not_valid(file: str | None, state: str) -> None:
    here = known(f"{W}/files-healthy")
    assert here.observed.cluster is not None
    failure = {"brief": "No.", "details": "", "resolution": ["Correct it."], "file": file}
    cluster = replace(here.observed.cluster, phase="failed", failure=failure)
    now = replace(here, observed=replace(here.observed, cluster=cluster))
    told = {finding.id: finding for finding in diagnose(now)}["DSH-FI-005"]
    assert told.state == state
    assert told.evidence
    assert (told.caused_by == "DSH-SL-006") is (state == "error")


def test_another_users_project_is_left_to_him() -> None:
    here = known(f"{W}/files-closed")
    told = found(replace(here, observed=replace(here.observed, owner="root")), "DSH-FI-013")
    assert told.state == "warn"
    assert "The project is root's" in told.cause
    assert [fix.command for fix in told.fix] == ["sudo dshpc doctor --dir /home/someone/cluster"]
    his = found(replace(here, observed=replace(here.observed, owner="anna")), "DSH-FI-013")
    assert his.fix[0].command == "sudo -u anna dshpc doctor --dir /home/someone/cluster"
