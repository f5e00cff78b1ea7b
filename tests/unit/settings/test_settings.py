from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.plan import wrong_settings
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings, WrongSetting, load, read
from dshpc_setup.settings.wrong import Kind


def test_defaults_are_those_of_the_dataclass() -> None:
    assert load() == Settings()
    assert {item.name: item.default for item in DECLARATIONS} == {
        item.name: getattr(Settings(), item.name) for item in DECLARATIONS
    }


def test_precedence_flag_environment_remembered_file_default() -> None:
    layers = {
        "flags": {"prefix": "from-flag"},
        "env": {"DSHPC_PREFIX": "from-env"},
        "remembered": {"prefix": "from-memory"},
        "yaml_text": "prefix: from-file\n",
    }
    expected = [
        ("from-flag", "flag", "--prefix"),
        ("from-env", "environment", "DSHPC_PREFIX"),
        ("from-memory", "remembered", "--prefix of an earlier run"),
        ("from-file", "file", "dshpc.yaml:1:1"),
        ("dshpc", "default", "default"),
    ]
    for value, origin, where in expected:
        settings = load(**layers)  # type: ignore[arg-type]
        source = settings.sources["prefix"]
        assert (settings.prefix, source.origin, source.where) == (value, origin, where)
        if layers:
            del layers[next(iter(layers))]


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        ("gpu: [", "dshpc.yaml:1:7", "valid YAML"),
        ("prefix: lab\ngpuu: amd\n", "dshpc.yaml:2:1", "no setting 'gpuu'"),
        ("- a\n", "dshpc.yaml:1:1", "key: value"),
        ("prefix: Lab\n", "dshpc.yaml:1:1", "lower-case"),
        ("gpu: nvidja\n", "dshpc.yaml:1:1", "did you mean nvidia?"),
        ("gpu: amd\ngpu: amd\n", "dshpc.yaml:2:1", "second time"),
        ("devices: {a: 1}\n", "dshpc.yaml:1:1", "single value"),
        ("a: *b\n", "dshpc.yaml:1:4", "valid YAML"),
        ("gpu: amd\n? [a, b]\n: c\n", "dshpc.yaml:2:3", "name of a setting"),
        ("? {a: b}\n: c\n", "dshpc.yaml:1:3", "name of a setting"),
        ("partitions:\n- short: 30\n", "dshpc.yaml:1:1", "partitions takes a single value"),
        ("prefix: a\0b\n", "dshpc.yaml", "valid YAML"),
        ("devices: " + "[" * 3000 + "]" * 3000, "dshpc.yaml", "too deep"),
    ],
)
def test_a_broken_file_is_refused_with_line_and_column(text: str, where: str, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        load(yaml_text=text)
    assert caught.value.brief.startswith(where + ":")
    assert word in caught.value.brief
    assert caught.value.exit_code == Exit.USAGE
    (step,) = caught.value.resolution
    assert where in step or "dshpc config unset" in step


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = "prefx: lab\ngpu: nvidja\ngpu: amd\nshm_size: big\npartitions:\n- a: 1\nwork: /data\nzzzzzzz: 1\n"
    with pytest.raises(DshpcError) as caught:
        load(yaml_text=text, env={"DSHPC_ISOLATION": "strict"})
    error = caught.value
    assert (error.brief, error.exit_code) == ("7 settings are wrong.", Exit.USAGE)
    told = [line for line in error.details.splitlines() if not line.startswith("  ")]
    assert [line.split(": ")[0] for line in told] == [
        "DSHPC_ISOLATION",
        "dshpc.yaml:1:1",
        "dshpc.yaml:2:1",
        "dshpc.yaml:3:1",
        "dshpc.yaml:4:1",
        "dshpc.yaml:5:1",
        "dshpc.yaml:8:1",
    ]
    assert "  Did you mean 'prefix'?" in error.details.splitlines()
    assert error.details.count("There are:") == 1, "the list of all settings, once"


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("devices: [0, a]\n", "dshpc.yaml:1:14", "devices, item 2 is 'a'"),
        ("devices: 0,1,0\n", "dshpc.yaml:1:1", "devices, item 3 is 0, and so is item 1"),
        ("work: x\ndevices:\n- 0,,1\n- b\n", "dshpc.yaml:4:3", "devices, item 4 is 'b'"),
        (
            "partitions:\n- a\n- A=30\n",
            "dshpc.yaml:3:3",
            "partitions, item 2 is 'A=30', and item 1",
        ),
        ("partitions: a,b=\n", "dshpc.yaml:1:1", "partitions, item 2 is 'b=', which names no time"),
        ('slurm_conf_extra: [A=1, "B=\\e"]\n', "dshpc.yaml:1:25", "slurm_conf_extra, line 2 holds"),
    ],
)
def test_a_wrong_item_is_named_with_its_place(text: str, where: str, said: str) -> None:
    with pytest.raises(DshpcError) as caught:
        load(yaml_text=text)
    assert caught.value.brief.startswith(f"{where}: {said}")


def test_a_wrong_item_of_a_flag() -> None:
    with pytest.raises(DshpcError) as caught:
        load(flags={"devices": "0,x"})
    assert caught.value.brief.startswith("--devices: devices, item 2 is 'x', ")


def test_what_a_flag_hides_is_checked_as_well() -> None:
    text = "gpu: voodoo\nwork: x\nslurm_conf_extra: |\n  # a note\n\n  GresTypes=gpu\n"
    for layer in ({"flags": {"gpu": "amd"}}, {"env": {"DSHPC_GPU": "amd"}}):
        found = read(yaml_text=text, **layer)  # type: ignore[arg-type]
        assert found.settings.gpu == "amd"
        assert [each.where for each in found.wrong] == ["dshpc.yaml:1:1"]
    found = read(yaml_text=text, remembered={"slurm_conf_extra": "KillWait=5", "gpu": "amd"})
    assert found.settings.slurm_conf_extra == "KillWait=5"
    assert [each.where for each in wrong_settings(found.settings)] == ["dshpc.yaml:6:3"]


def test_the_others_are_read_where_one_is_wrong() -> None:
    found = read(yaml_text="simulate: h100:2\nisolation: enforce\n")
    assert (found.settings.simulate, found.settings.isolation) == ("h100:2", "default")
    assert [each.setting for each in found.wrong] == ["isolation"]


def test_of_one_mistake_the_error_is_that_one() -> None:
    with pytest.raises(DshpcError, match="shm_size = 'big'"):
        load(yaml_text="shm_size: big\n")


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(DshpcError) as caught:
        load(yaml_text="prefx: a\n")
    assert "Did you mean 'prefix'?" in caught.value.details


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prefix", "-a"),
        ("prefix", "a-"),
        ("prefix", "a" * 41),
        ("prefix", "a b"),
        ("prefix", "9a"),
        ("devices", "0,0"),
        ("devices", "gpu0"),
        ("devices", "0;rm"),
        ("reserve_mib", "-1"),
        ("reserve_mib", "1g"),
        ("shm_size", "0g"),
        ("shm_size", "big"),
        ("partition", "a b"),
        ("work", "a\nb"),
        ("work", ""),
        ("work", "  "),
        ("base_image", "--all-tags"),
        ("base_image", "debian trixie"),
        ("base_image", "Debian"),
        ("base_image", "debian:"),
        ("base_image", ""),
        ("base_image", "debian:trixie\n"),
        ("apt_mirror", "http://x y; z"),
        ("apt_mirror", "file:///srv/debian"),
        ("apt_mirror", "http://x/'a'"),
        ("apt_mirror", "http://x/\x1b[0m"),
        ("apt_mirror", "http://"),
        ("apt_mirror", "--x"),
        ("cuda_runtime", "maybe"),
        ("prefix", "default"),
        ("partition", "Default"),
        ("devices", "\u0663"),
        ("reserve_mib", "\u0663"),
        ("shm_size", "1\u0663g"),
        ("partitions", "a b"),
        ("partitions", "a=soon"),
        ("partitions", "short="),
        ("partitions", "a=30, short = "),
        ("partitions", "a=1:00:00:00"),
        ("partitions", "a=\u0663"),
        ("partitions", "a,A=30"),
        ("partitions", "default=30"),
        ("partitions", "=30"),
        ("partitions", "a=0"),
        ("partitions", "a=00:00"),
        ("partitions", "a=0-0"),
        ("gpu_sharing", "shard"),
        ("gpu_sharing", "shard:1"),
        ("gpu_sharing", "shard:129"),
        ("gpu_sharing", "shard:\u0663"),
        ("gpu_sharing", "mps:50"),
        ("gres_type", "uuid"),
        ("gres_type", "Index"),
        ("isolation", "strict"),
        ("slurm_conf_extra", "a=1\r\nb=2"),
        ("slurm_conf_extra", "a=1\x85b=2"),
        ("slurm_conf_extra", "a=1\u2028b=2"),
        ("slurm_conf_extra", "a=\u202e1"),
    ],
)
def test_a_bad_value_is_wrong_usage_and_names_the_flag(name: str, text: str) -> None:
    with pytest.raises(DshpcError) as caught:
        load(flags={name: text})
    assert caught.value.exit_code == Exit.USAGE
    assert caught.value.brief.startswith(BY_NAME[name].flag)


def test_a_partition_without_its_time_is_told_both_ways_to_say_it() -> None:
    with pytest.raises(DshpcError) as caught:
        load(flags={"partitions": "long=7-0,short="})
    assert "'short=', which names no time limit: short=1:00:00" in caught.value.brief
    assert load(flags={"partitions": "short,"}).partitions == (("short", "INFINITE"),)


def test_a_bad_profile_is_named_where_it_stands() -> None:
    for source, where in (
        ({"yaml_text": "simulate: h10:2\n"}, "dshpc.yaml:1:1: simulate = h10:2: "),
        ({"env": {"DSHPC_SIMULATE": "h10:2"}}, "DSHPC_SIMULATE: simulate = h10:2: "),
        ({"flags": {"simulate": "h10:2"}}, "--simulate h10:2: "),
    ):
        with pytest.raises(DshpcError) as caught:
            load(**source)
        assert caught.value.brief.startswith(where)
        assert "h100" in caught.value.details


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("base_image", "debian"),
        ("base_image", "dshpc-base:trixie-amd64"),
        ("base_image", "registry.example.org:5000/lab__x/y"),
        ("base_image", "localhost/a/b-c.d:1.2_x"),
        ("base_image", "[::1]:5000/debian:trixie-slim"),
        ("base_image", "debian@sha256:" + "0a" * 32),
        ("base_image", "sha256:" + "0a" * 32),
        ("apt_mirror", ""),
        ("apt_mirror", "http://mirror.example.org/debian"),
        ("apt_mirror", "https://10.0.0.1:8443/repos/deb~x/./debian/"),
        ("apt_mirror", "http://[fd00::1]:80/debian"),
    ],
)
def test_images_and_mirrors_of_every_kind(name: str, text: str) -> None:
    assert getattr(load(flags={name: text}), name) == text


def test_a_login_in_the_mirror_is_refused_and_not_repeated() -> None:
    with pytest.raises(DshpcError) as caught:
        load(flags={"apt_mirror": "https://ada:secret@example.org/debian"})
    assert "login" in caught.value.brief
    assert "secret" not in str(caught.value) + caught.value.brief + caught.value.details


def test_lists_in_yaml_are_lists() -> None:
    assert load(yaml_text="devices: [0, 2]\n").devices == ("0", "2")
    assert load(yaml_text="devices: GPU-0a, 3\n").devices == ("GPU-0a", "3")


def test_simulate_none_switches_a_remembered_simulation_off() -> None:
    assert load(flags={"simulate": "none"}, remembered={"simulate": "h100:2"}).simulate == ""


def test_the_container_gets_the_settings_it_needs_and_reads_them_back() -> None:
    settings = load(flags={"prefix": "lab", "simulate": "h100:2", "work": "/data", "devices": "0"})
    env = settings.container_env()
    assert env == {"DSHPC_PREFIX": "lab", "DSHPC_SIMULATE": "h100:2"}
    inside = load(env=env)
    assert (inside.prefix, inside.simulate) == ("lab", "h100:2")


@given(st.text(max_size=60))
def test_any_file_text_is_settings_or_a_usage_error(text: str) -> None:
    try:
        load(yaml_text=text)
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
        first = error.details if "settings are wrong" in error.brief else error.brief
        assert first.startswith("dshpc.yaml")


@given(st.sampled_from([item.name for item in DECLARATIONS]), st.text(max_size=30))
def test_any_flag_text_is_a_value_or_a_usage_error(name: str, text: str) -> None:
    try:
        settings = load(flags={name: text})
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
    else:
        assert settings.sources[name].origin == "flag"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("short=30", (("short", "30"),)),
        ("short = 1:00:00 , long=7-0", (("short", "1:00:00"), ("long", "7-0"))),
        ("a=0:01,b=0-1", (("a", "0:01"), ("b", "0-1"))),
        ("a=5:30,b=1-12:30,c=1-12:30:05", (("a", "5:30"), ("b", "1-12:30"), ("c", "1-12:30:05"))),
        ("any,Ever=Infinite", (("any", "INFINITE"), ("Ever", "INFINITE"))),
    ],
)
def test_partitions_and_their_longest_times(text: str, expected: tuple[object, ...]) -> None:
    assert load(flags={"partitions": text}).partitions == expected


@pytest.mark.parametrize("text", ["none", "mps", "shard:2", "shard:128"])
def test_ways_to_share(text: str) -> None:
    assert load(flags={"gpu_sharing": text}).gpu_sharing == text


def test_further_lines_are_a_text_or_a_list() -> None:
    expected = "KillWait=10\nWaitTime=3"
    block = load(yaml_text="slurm_conf_extra: |\n  KillWait=10\n  WaitTime=3\n")
    items = load(yaml_text="slurm_conf_extra:\n  - KillWait=10\n  - WaitTime=3\n")
    assert block.slurm_conf_extra == items.slurm_conf_extra == expected
    assert block.live_env() == {"DSHPC_SLURM_CONF_EXTRA": f"{expected}\n"}


@pytest.mark.parametrize(
    ("kind", "steps", "remedy"),
    [
        ("value", ("Give it another name.", "Or none."), "Give it another name."),
        (
            "value",
            (),
            "Correct it: dshpc config set gpu VALUE. To take it out: dshpc config unset gpu",
        ),
        ("twice", (), "Take one of them out. To take out both: dshpc config unset gpu"),
        ("file", (), "Correct dshpc.yaml:3:1 and run again."),
    ],
)
def test_what_to_do_about_a_wrong_setting(kind: Kind, steps: tuple[str, ...], remedy: str) -> None:
    """The value's own reader knows best."""
    wrong = WrongSetting(kind, "file", "dshpc.yaml:3:1", "no.", setting="gpu", steps=steps)
    assert wrong.remedy == remedy


@pytest.mark.parametrize("text", ["off", "127.0.0.1:8410", "127.8.0.1:1024", "[::1]:65535"])
def test_the_dashboard_is_served_on_the_loopback(text: str) -> None:
    assert load(flags={"dashboard": text}, env={}).dashboard == text


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "0.0.0.0:8410",
        "10.0.0.1:8410",
        "[::]:8410",
        "127.0.0.1",
        "localhost:8410",
        "127.0.0.1:80",
    ],
)
def test_the_dashboard_is_served_nowhere_else(text: str) -> None:
    with pytest.raises(DshpcError, match="dashboard"):
        load(flags={"dashboard": text}, env={})
