"""Every machine in tests/machines: its plan, and of some the files of /etc/slurm, letter by letter.

The files are a function of the plan and the templates. So each machine's plan is written down, and the
function only on as many machines as go through all that a template does on any: a changed line of a
template changes a few golden files, and a changed plan those of its machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment, meta

from dshpc_setup import resources
from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import ClusterPlan, ExtraLine, Partition, Sharing, plan_cluster
from dshpc_setup.render import configuration
from dshpc_setup.render.configuration import CONFIG_FILES, LUA_FILES, render_slurm
from dshpc_setup.settings import Settings
from tests.unit.machine.branches import Branches, Place
from tests.unit.machine.planned import read, written
from tests.unit.machine.test_machines import FOLDER, NAMES, look

FILES = (*CONFIG_FILES, *LUA_FILES)
GOLDEN = sorted(FOLDER.glob("*/expected/etc-slurm/*"))
MOST = 12
"""Golden files that a change of one line of a template may touch."""

REWRITE = "where it is meant: pytest tests/unit/machine --rewrite-machines, and read the change"


def owner(golden: Path) -> str:
    """The machine whose file it is."""
    return golden.parts[-4]


@cache
def plan_of(name: str) -> ClusterPlan | DshpcError:
    """Under the default settings."""
    try:
        return plan_cluster(look(name), Settings())
    except DshpcError as error:
        return error


PLANS = {name: plan for name in NAMES if isinstance(plan := plan_of(name), ClusterPlan)}


@pytest.mark.parametrize("name", NAMES)
def test_plan_is_as_expected(name: str, rewrite: bool) -> None:
    """plan.json; where no plan can be made, error.txt in its stead with the words."""
    folder, plan = FOLDER / name / "expected", plan_of(name)
    if isinstance(plan, DshpcError):
        file, found = "error.txt", "\n".join([plan.brief, plan.details, *plan.resolution, ""])
    else:
        file, found = "plan.json", written(plan)
    if rewrite:
        folder.mkdir(exist_ok=True)
        for each in ("plan.json", "error.txt"):
            (folder / each).unlink(missing_ok=True)
        (folder / file).write_text(found)
    assert (folder / file).exists(), "write it with --rewrite-machines, and read it"
    assert found == (folder / file).read_text(), REWRITE


@pytest.mark.parametrize("name", PLANS)
def test_what_is_rendered_hangs_on_nothing_but_what_the_golden_file_holds(name: str) -> None:
    assert render_slurm(read(written(PLANS[name]))) == render_slurm(PLANS[name])


def test_a_golden_file_holds_all_that_a_plan_can_have() -> None:
    plan = PLANS["wsl2-three-gpus"]
    assert plan.device_links
    whole = replace(
        plan,
        sharing=Sharing("shard", 12),
        more_partitions=(Partition("short", "1:00:00"), Partition("long")),
        extra=(ExtraLine("KillWait", "KillWait=5"),),
        ambiguous={"nvidia": ("gpu0", "gpu1")},
        isolation="enforced",
    )
    assert read(written(whole)) == replace(whole, gpus=())
    assert written(whole).count("\n") > written(plan).count("\n")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{owner(path)}-{path.name}")
def test_file_is_as_expected(path: Path, rewrite: bool) -> None:
    found = render_slurm(PLANS[owner(path)], [path.name])[path.name]
    if rewrite:
        path.write_text(found)
    assert found == path.read_text(), REWRITE


@pytest.mark.parametrize("file", FILES)
def test_golden_files_go_through_all_that_any_machine_does(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test, loop and value of the template and of what it includes, with each of its outcomes."""
    branches = Branches(configuration._environment())
    monkeypatch.setattr(configuration, "_environment", lambda: branches.environment)
    seen: dict[str, frozenset[Place]] = {}
    for name, plan in PLANS.items():
        branches.seen.clear()
        assert render_slurm(plan, [file]).keys() == {file}
        seen[name] = frozenset(branches.seen)
    golden = frozenset[Place]().union(*(seen[owner(path)] for path in GOLDEN if path.name == file))
    missing = {name: sorted(places - golden) for name, places in seen.items() if places - golden}
    assert not missing, f"{file} of one of these machines is to be a golden file: {missing}"


@pytest.mark.parametrize("template", sorted(path.name for path in resources.templates().iterdir()))
def test_a_changed_line_touches_few_golden_files(template: str) -> None:
    touched = [path for path in GOLDEN if template in parts(f"{path.name}.j2")]
    assert len(touched) <= MOST


def parts(template: str) -> set[str]:
    """A template and all that it includes."""
    found = {template}
    environment = configuration._environment()
    assert environment.loader
    source, _, _ = environment.loader.get_source(environment, template)
    for included in meta.find_referenced_templates(environment.parse(source)):
        assert included, "an include is a name and no expression"
        found |= parts(included)
    return found


def test_golden_files_are_of_files_and_machines_that_there_are() -> None:
    assert {path.name for path in GOLDEN} == set(FILES)
    assert {owner(path) for path in GOLDEN} <= PLANS.keys()


def test_a_machine_whose_gpus_are_known_has_a_line_for_each() -> None:
    """What the goldens must show whoever wrote them: near misses of one machine differ there."""
    names = ("h100x8", "h100x8-one-lost", "vm-no-gpu")
    texts = {name: render_slurm(PLANS[name])["gres.conf"] for name in names}
    lines = {
        name: [line for line in text.splitlines() if line.startswith("Name")]
        for name, text in texts.items()
    }
    assert [len(found) for found in lines.values()] == [8, 7, 0]
    assert "/dev/nvidia3 " not in "\n".join(lines["h100x8-one-lost"])


# The sieve itself: a template that would tell two machines apart where no golden file does


def test_each_outcome_of_a_test_a_loop_and_a_value_is_a_place_of_its_own() -> None:
    text = "{% for a in list %}{{ a or 'x' }}{% if a and b %}y{% endif %}{{ 1 if b else 2 }}\n{% endfor %}"
    environment = Environment(loader=DictLoader({"all": "{% include 'some' %}", "some": text}))
    branches = Branches(environment)

    def places(**values: object) -> frozenset[Place]:
        branches.seen.clear()
        template = branches.environment.get_template("all")
        assert template.render(values) == environment.get_template("all").render(values)
        return frozenset(branches.seen)

    found = [
        places(list=list_, b=b)
        for list_ in ([], ["a"], ["a,b"], [""], ["a", "a"], [None])
        for b in (True, False)
    ]
    distinct = set(found)
    assert len(distinct) == len(found) - 1, "only the empty loop does not ask for b"
    assert {place[0] for place in set().union(*found)} == {"some"}
