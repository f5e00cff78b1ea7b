"""slurm_conf_extra: what may stand there, and how it meets our own lines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.plan import ExtraLine, extra, plan_cluster, wrong_settings
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings, load, together
from tests.unit.plan.made import facts, gpu


def lines(*texts: str) -> tuple[ExtraLine, ...]:
    return extra.lines(load(flags={"slurm_conf_extra": "\n".join(texts)}))


def refused(*texts: str) -> DshpcError:
    with pytest.raises(DshpcError) as caught:
        lines(*texts)
    assert caught.value.exit_code == Exit.USAGE
    return caught.value


def slurm_conf(*texts: str) -> str:
    settings = load(flags={"slurm_conf_extra": "\n".join(texts)})
    return render_slurm(plan_cluster(facts(gpu(0)), settings))["slurm.conf"]


def check_settings(settings: Settings) -> None:
    """Raises what configure-environment would before it looks at the machine."""
    if wrong := wrong_settings(settings):
        raise together(wrong)


def keys(text: str) -> list[str]:
    found = (re.match(r"([A-Za-z0-9]+)=", line) for line in text.splitlines())
    return [match[1].lower() for match in found if match]


def test_all_bad_lines_at_once() -> None:
    error = refused("KillWait=5", "ClusterName=x", "nonsense", "KillWait=6")
    assert error.brief == "3 settings are wrong."
    for number in (2, 3, 4):
        assert f"slurm_conf_extra, line {number} " in error.details
    settings = load(flags={"slurm_conf_extra": "nonsense", "partitions": "debug=30"})
    with pytest.raises(DshpcError) as caught:
        check_settings(settings)
    assert caught.value.brief == "2 settings are wrong."


def test_lines_without_blank_ones_and_comments() -> None:
    assert lines("", "# a note", "  KillWait = 10  # soon", 'SchedulerParameters="defer x"') == (
        ExtraLine("KillWait", "KillWait = 10"),
        ExtraLine("SchedulerParameters", 'SchedulerParameters="defer x"'),
    )
    assert lines("") == ()


def test_lines_of_several_keys() -> None:
    text = "PartitionName=night Nodes=ALL MaxTime=8:00:00"
    assert lines(text, "PartitionName=DEFAULT PriorityTier=2", "DownNodes=x State=DOWN") == (
        ExtraLine("PartitionName", text),
        ExtraLine("PartitionName", "PartitionName=DEFAULT PriorityTier=2"),
        ExtraLine("DownNodes", "DownNodes=x State=DOWN"),
    )


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("defer",), "line 1 is not Key=Value"),
        (("", "=3"), "line 2 is not Key=Value"),
        (("KillWait=",), "line 1 is not Key=Value"),
        (('KillWait="1',), "line 1 is not Key=Value"),
        (('MailProg="/bin/a#b"',), "line 1 is not Key=Value"),
        (("KillWait+=3",), "line 1 is not Key=Value"),
        (("KillWait=3 WaitTime=4",), "a line of its own"),
        (("SchedulerParameters=defer, batch",), 'quotes ("...")'),
        (("KillWait=3\\", "ClusterName=x"), "line 1 holds a backslash"),
        (("KillWait=3\\ # x",), "line 1 holds a backslash"),
        (("KillWait=3", "# no", "killwait=4"), "line 3 says killwait a second time"),
        (("ClusterName=x",), "clashes: ClusterName is written here. It is the setting prefix."),
        (("nodename=DEFAULT CPUs=4",), "clashes: nodename"),
        (("TaskPlugin = task/affinity",), "setting isolation"),
        (("Include /etc/slurm/more.conf",), "clashes: Include"),
        (("GresTypes=gpu,shard",), "gpu_sharing"),
        (("PartitionName=debug Nodes=ALL",), "there is a partition debug"),
        (("PartitionName=a Nodes=ALL", "PARTITIONNAME=A Nodes=ALL"), "line 2 clashes"),
        (("PartitionName=a Nodes=ALL Default=yes",), "the setting partition"),
        (('PartitionName="a b" Nodes=ALL',), "no name of a partition"),
        (("PartitionName=a Nodes",), "not a list of Key=Value"),
    ],
)
def test_what_is_refused_says_line_and_reason(texts: tuple[str, ...], words: str) -> None:
    error = refused(*texts)
    told = f"{error.brief}\n{error.details}"
    assert words in told
    assert "--slurm-conf-extra: slurm_conf_extra, line " in told


def test_a_clash_says_the_way_to_have_it_all_the_same() -> None:
    assert "# USER_CUSTOMIZED=true" in refused("ClusterName=x").resolution[0]
    assert "USER_CUSTOMIZED" not in refused("defer").resolution[0]


def test_the_place_in_the_file_is_named() -> None:
    with pytest.raises(DshpcError) as caught:
        extra.lines(load(yaml_text="prefix: lab\nslurm_conf_extra: |\n  KillWait=1\n  x\n"))
    assert caught.value.brief.startswith("dshpc.yaml:4:3: slurm_conf_extra, line 2 ")
    assert caught.value.details == "The line is: x"


@pytest.mark.parametrize(
    "line",
    [
        "SlurmctldPort=7000", "SlurmdPort=7001", "MpiDefault=pmix", "returntoservice=1",
        "MailProg=/usr/bin/mail", "InactiveLimit = 0", "SELECTTYPEPARAMETERS=CR_Core",
        "SchedulerParameters=defer", "Epilog=/opt/clean",
        "JobFileAppend=0",
    ],
)  # fmt: skip
def test_a_line_of_the_users_replaces_ours(line: str) -> None:
    text = slurm_conf(line)
    assert line in text.splitlines()
    key = line.partition("=")[0].strip().lower()
    assert len(re.findall(rf"(?im)^{key}\s*=", text)) == 1
    if key == "inactivelimit":
        assert "gives its GPU back" not in text, "a comment without its line"
    if key == "epilog":
        assert "With an epilog" not in text, "a comment without its line"
    if key == "jobfileappend":
        assert "goes on with its log" not in text, "a comment without its line"
    if key == "schedulerparameters":
        assert "begins within a second" not in text, "a comment without its line"


@pytest.mark.parametrize("key", ["Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld"])
def test_a_script_of_the_users_is_run(key: str) -> None:
    """Without plugins for it Slurm runs none, and says nothing."""
    assert 'PrEpPlugins=""' in slurm_conf("KillWait=7").splitlines()
    assert "prepplugins" not in keys(slurm_conf(f"{key}=/opt/clean"))


def test_memory_defaults_exclude_each_other() -> None:
    assert {"DefMemPerCPU", "DefMemPerGPU"} <= set(re.findall(r"DefMemPer\w+", slurm_conf()))
    for line, others in (
        ("DefMemPerNode=100", {"DefMemPerGPU"}),
        ("DefMemPerCPU=100", {"DefMemPerGPU"}),
        ("DefMemPerGPU=100", set()),
    ):
        text = slurm_conf(line)
        found = re.findall(r"DefMemPer\w+", text)
        assert sorted(found) == sorted({line.partition("=")[0], *others})


def test_tmp_disk_is_not_said_of_another_folder() -> None:
    from dshpc_setup.facts import Engine

    here = facts(engine=Engine("present", disk_mib=10240))
    for line, count in (("KillWait=1", 1), ("TmpFS=/scratch", 0)):
        plan = plan_cluster(here, load(flags={"slurm_conf_extra": line}))
        assert render_slurm(plan)["slurm.conf"].count("TmpDisk=10240") == count


def test_every_line_of_ours_is_replaced_or_refused() -> None:
    ours = set(keys(slurm_conf())) - {"nodename", "partitionname"}
    assert len(ours) > 20
    for key in sorted(ours):
        try:
            text = slurm_conf(f"{key}=7")
        except DshpcError as error:
            assert "clashes" in error.brief
        else:
            assert keys(text).count(key) == 1, key


_KEYS = st.sampled_from(
    "KillWait SchedulerParameters PartitionName DownNodes NodeName ClusterName Include MailProg".split()
)
_PIECES = st.sampled_from(
    [
        "=",
        " = ",
        "\\",
        "#",
        '"',
        "'",
        " ",
        "\t",
        "\n",
        "Nodes=ALL",
        "é",
        "1",
        "x",
        "Default=YES",
        "+=",
    ]
)
_TEXTS = st.text() | st.lists(_KEYS | _PIECES, max_size=12).map("".join)


@given(_TEXTS)
def test_any_text_is_refused_or_makes_no_line_but_its_own(text: str) -> None:
    try:
        settings = load(flags={"slurm_conf_extra": text})
        plan = plan_cluster(facts(gpu(0)), settings)
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
        assert "slurm" in error.brief
        assert "extra" in error.brief
        return
    written = render_slurm(plan)["slurm.conf"].splitlines()
    start = render_slurm(plan_cluster(facts(gpu(0)), load()))["slurm.conf"].splitlines()
    added = [line for line in written if line not in start]
    assert [line for line in added if not line.startswith("#")] == [
        item.text for item in plan.extra
    ]
    for item in plan.extra:
        assert re.match(r"[A-Za-z][A-Za-z0-9]*\s*=\s*\S", item.text)
        assert not re.search(r"[\\#]", item.text)
        assert item.text.isprintable() or "\t" in item.text
        assert item.text.count('"') % 2 == 0
    names = [key for key in keys("\n".join(written)) if key not in ("partitionname", "downnodes")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "flags",
    [
        {"slurm_conf_extra": "NodeName=x"},
        {"slurm_conf_extra": "no value"},
        {"partitions": "debug"},
        {"partitions": "a", "slurm_conf_extra": "PartitionName=a"},
    ],
)
def test_what_no_machine_can_make_right_is_found_without_one(flags: dict[str, str | None]) -> None:
    with pytest.raises(DshpcError) as caught:
        check_settings(load(flags=flags))
    assert caught.value.exit_code == Exit.USAGE
    with pytest.raises(DshpcError) as planned:
        plan_cluster(facts(gpu(0)), load(flags=flags))
    assert planned.value == caught.value


def test_what_depends_on_the_machine_is_not_judged_without_it() -> None:
    check_settings(
        load(flags={"devices": "7", "partitions": "a", "slurm_conf_extra": "KillWait=5"})
    )
