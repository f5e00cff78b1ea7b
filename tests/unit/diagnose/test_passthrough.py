"""What the test container saw of the GPUs: where each check fires, and where it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, catalogue, diagnose, ways
from dshpc_setup.diagnose.passthrough import CHECKS
from dshpc_setup.diagnose.proof import from_proof
from dshpc_setup.facts import Gpus
from dshpc_setup.passthrough import Attempt, findings
from dshpc_setup.passthrough.driver_files import DriverFiles, Node, handover
from dshpc_setup.passthrough.driver_search import File, Lack
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.wanted import WantedGpus
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings
from tests.unit.diagnose.known import known
from tests.unit.diagnose.proofs import after_test, beside, looked, refused
from tests.unit.passthrough.made import DRIVER, TIMEOUT, card, facts, inside, intel, on, seen, uuid

TWO = facts(card(0), card(1))
ONE = facts(card(0))
REQUEST = Handover("device-request")
NODES = Handover("devices")
INTEL = facts(intel(0))
RENDER = "/dev/dri/renderD128"
WELL = looked(seen(0, 1), TWO, REQUEST)

DENIED = inside().replace("end\n", f"closed {RENDER} - sh: Permission denied\nend\n")
LIBCUDA = "loaded libcuda.so.1 /usr/lib/libcuda.so."
NEEDY = "unloaded libcuda.so.1 ERROR: ld.so: object 'libcuda.so.1' from LD_PRELOAD cannot be preloaded " \
    "(libm.so.9: cannot open shared object file)"  # fmt: skip
MUSL = "musl /lib/ld-musl-x86_64.so.1\nuser 1000"

FIRES: dict[str, tuple[CheckInput, CheckInput]] = {
    "DSH-PT-001": (refused(findings.NO_TOOLKIT), WELL),
    findings.FEWER_GPUS: (looked(seen(0, uuids=(uuid(0),)), TWO, REQUEST), WELL),
    findings.OTHER_GPUS: (
        looked(seen(0, 1, uuids=(uuid(0), uuid(7))), TWO, REQUEST),
        looked(seen(0, 1, uuids=None), TWO, REQUEST),
    ),
    findings.MORE_GPUS: (
        looked(seen(0, 1, uuids=(uuid(0), uuid(1), uuid(7))), TWO, REQUEST),
        looked(seen(0, 1, uuids=(uuid(0), uuid(7))), TWO, REQUEST),
    ),
    findings.NODE_DENIED: (looked(DENIED, INTEL, NODES), looked(inside(RENDER), INTEL, NODES)),
    findings.NODE_DOES_NOT_OPEN: (
        looked(DENIED.replace("Permission denied", "Input/output error"), INTEL, NODES),
        looked(DENIED, INTEL, NODES),
    ),
    findings.LIBRARY_DOES_NOT_LOAD: (
        looked(seen(0, 1).replace(LIBCUDA + DRIVER, NEEDY), TWO, REQUEST),
        looked(seen(0, 1).replace("user 1000", MUSL), TWO, REQUEST),
    ),
    findings.LIBRARY_OF_ANOTHER_VERSION: (
        looked(seen(0, 1).replace(LIBCUDA + DRIVER, LIBCUDA + "535.54.03"), TWO, REQUEST),
        WELL,
    ),
    findings.TEST_HUNG: (looked(TIMEOUT, TWO, REQUEST), WELL),
    findings.IMAGE_WITHOUT_SHELL: (
        refused(findings.IMAGE_WITHOUT_SHELL),
        beside(findings.IMAGE_WITHOUT_SHELL),
    ),
    findings.IMAGE_WITHOUT_GLIBC: (
        looked(seen(0, 1, libraries=()).replace("user 1000", MUSL), TWO, REQUEST),
        looked(seen(0, 1).replace("user 1000", MUSL), TWO, REQUEST),
    ),
}


def found(where: CheckInput, identity: str) -> Finding:
    return next(each for each in diagnose(where) if each.id == identity)


@pytest.mark.parametrize("identity", FIRES)
def test_it_fires_here_and_not_beside(identity: str) -> None:
    where, near = FIRES[identity]
    told = found(where, identity)
    assert told.state == "error", told
    assert told.cause.endswith(".")
    assert told.fix
    assert found(near, identity).state == "ok"


def test_every_check_has_a_row() -> None:
    assert {check.id for check in CHECKS} == set(FIRES)
    wanted = {identity for identity in findings.TITLES if "-PT-" in identity}
    assert wanted <= set(FIRES)


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("DSH-PT-001", ("cannot use the GPUs", "Container Toolkit is not installed", "DSH-DK-007")),
        (findings.FEWER_GPUS, ("fewer GPUs", "1 of 2 GPUs", "/dev/nvidia1")),
        (findings.NODE_DENIED, ("Permission denied", RENDER)),
        (findings.LIBRARY_OF_ANOTHER_VERSION, ("another version", "535.54.03", DRIVER)),
        (findings.TEST_HUNG, ("hung", "within 60 s")),
        (findings.IMAGE_WITHOUT_GLIBC, ("musl",)),
    ],
)
def test_the_words_that_people_search_for(identity: str, words: tuple[str, ...]) -> None:
    told = found(FIRES[identity][0], identity)
    text = " ".join([told.title, told.cause, *told.evidence])
    assert [word for word in words if word not in text] == []


# -- the root of it stands on top --------------------------------------------------------------------


@pytest.mark.parametrize(
    "cause", [findings.NO_TOOLKIT, findings.RUNTIME_NOT_REGISTERED, findings.STALE_CDI_SPEC,
              findings.DRIVER_IN_IMAGE, findings.SELINUX, findings.IMAGE_WITHOUT_SHELL]
)  # fmt: skip
def test_what_explains_it_is_named(cause: str) -> None:
    told = refused(cause)
    assert found(told, cause).state == "error"
    assert found(told, cause).caused_by is None
    assert found(told, "DSH-PT-001").caused_by == cause


def test_a_refusal_that_nobody_knows_stands_by_itself() -> None:
    told = found(beside(findings.DRIVER_IN_IMAGE), "DSH-PT-001")
    assert (told.state, told.caused_by) == ("error", None)


def test_all_of_the_catalogue_may_explain_it_the_engines_first() -> None:
    (check,) = (each for each in CHECKS if each.id == "DSH-PT-001")
    assert set(check.because) == set(findings.TITLES)
    kinds = [identity.split("-")[1] for identity in check.because]
    assert kinds == sorted(kinds, key=["DK", "NV", "AM", "PT"].index)
    assert not set(check.because) & set(check.needs)


# -- when nothing is said ----------------------------------------------------------------------------


def test_what_was_not_tested_is_not_called_well() -> None:
    untested = replace(WELL, proof=None)
    assert found(untested, "DSH-PT-001").state == "info"
    others = {found(untested, identity).state for identity in FIRES if identity != "DSH-PT-001"}
    assert others == {"skipped"}


def test_a_proof_of_another_engine_fires_nothing_and_is_warned_of() -> None:
    told = FIRES[findings.TEST_HUNG][0]
    newer = replace(told, facts=on(told.facts, server_version="29.0"))
    assert found(newer, findings.TEST_HUNG).state == "skipped"
    assert found(newer, "DSH-PT-001").state == "warn"


def test_simulated_gpus_and_none_need_no_test() -> None:
    simulated = replace(
        WELL, facts=replace(WELL.facts, gpus=replace(WELL.facts.gpus, simulated=True))
    )
    none = known("vm-no-gpu")
    for where in (simulated, none):
        states = {found(where, identity).state for identity in FIRES if identity != "DSH-PT-001"}
        assert states == {"skipped"}
    gone = replace(WELL, facts=replace(WELL.facts, gpus=Gpus("error", detail="no driver")))
    assert found(gone, "DSH-PT-001").blocked_by == "DSH-GP-001"


# -- one maker for all -------------------------------------------------------------------------------


def test_it_tells_what_the_engine_said_and_no_more_than_its_end() -> None:
    said = "\n".join(f"line {number}" for number in range(40))
    row = Attempt("cdi", "fails", "it was refused", "X", (said,), (), Handover("cdi"))
    verdict = from_proof("X")(after_test(ONE, row))
    assert verdict.evidence == tuple(f"line {number}" for number in range(34, 40))
    assert verdict.cause == "CDI: it was refused."


def test_of_two_rows_the_one_that_was_tried_counts() -> None:
    rows = (
        Attempt("cdi", "impossible", "it cannot be", "X"),
        Attempt("device-request", "fails", "it was refused", "X", handover=REQUEST),
        Attempt("runtime", "impossible", "it is not there", "Y"),
    )
    told = after_test(ONE, *rows)
    assert "refused" in from_proof("X")(told).cause
    assert (from_proof("X")(told).state, from_proof("Y")(told).state) == ("error", "info")
    assert from_proof("Z")(told).state == "ok"


def test_the_check_of_each_id_is_in_the_catalogue_once() -> None:
    ids = [check.id for check in catalogue()]
    assert [identity for identity in findings.TITLES if ids.count(identity) > 1] == []


BUILTIN = on(ONE, kind="builtin", runtimes=())
CUDA = File(
    "/opt/nv/libcuda.so.550.54", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/opt/nv", "nvidia"
)
FILES = DriverFiles((Node("/dev/nvidia0", "present"),), (CUDA,))


def by_search(files: DriverFiles | None) -> CheckInput:
    return CheckInput(BUILTIN, plan=plan_cluster(BUILTIN, Settings()), driver_files=files)


@pytest.mark.parametrize(
    ("identity", "files", "said"),
    [
        (
            findings.LIBRARY_DOES_NOT_LOAD,
            replace(FILES, missing=(Lack("absent", "nvidia", "libcuda.so.1"),)),
            "libcuda.so.1: not found",
        ),
        (
            findings.LIBRARY_OF_ANOTHER_VERSION,
            replace(FILES, missing=(
                Lack("version-mismatch", "nvidia", "libcuda.so.1", "/old/libcuda.so.535", "535", "550"),
            )),
            "libcuda.so.1: /old/libcuda.so.535 is of driver 535, and 550 runs",
        ),
        (
            findings.NODE_DENIED,
            replace(FILES, nodes=(Node("/dev/nvidia0", "denied", 44),)),
            "/dev/nvidia0: denied",
        ),
    ],
)  # fmt: skip
def test_the_built_in_engines_search_is_told_without_a_test_run(
    identity: str, files: DriverFiles, said: str
) -> None:
    """With the remedy; a near-miss, in which nothing is missing, tells by what the files were found."""
    finding = found(by_search(files), identity)
    assert finding.state == "error"
    assert said in finding.evidence
    assert finding.fix
    beside = found(by_search(FILES), identity)
    assert (beside.state, beside.evidence[-1]) == ("ok", f"{CUDA.source}, by {CUDA.by}")
    assert found(by_search(None), identity).state == "skipped"


def test_a_proof_whose_files_have_moved_is_out_of_date() -> None:
    well = inside("/dev/nvidia0")
    nodes = Handover(
        "devices",
        devices=("/dev/nvidia0:/dev/nvidia0",),
        volumes=(f"{CUDA.source}:{CUDA.target}:ro",),
    )
    was = looked(well, BUILTIN, nodes)
    assert was.plan is not None
    today = handover(FILES, WantedGpus(BUILTIN, was.plan))
    assert isinstance(today, Handover)
    assert was.proof is not None
    was = replace(was, proof=replace(was.proof, handover=today), driver_files=FILES)
    assert ways.tested(was) is was.proof
    moved = replace(FILES, files=(replace(CUDA, source="/opt/new/libcuda.so.1"),))
    for files in (moved, replace(FILES, missing=(Lack("absent", "nvidia", "libcuda.so.1"),))):
        assert ways.tested(replace(was, driver_files=files)) is None
    assert ways.tested(replace(was, driver_files=None)) is was.proof
