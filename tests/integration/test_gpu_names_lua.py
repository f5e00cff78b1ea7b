"""The two Lua files by the Lua of Slurm's own plugins, in the image: no cluster, many texts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.container import nodes
from dshpc_setup.facts import GpuDevice
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.plan import ClusterPlan, GresLine, devices, names
from dshpc_setup.render.configuration import render_slurm
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.engines("builtin", "docker")

# Reads a line {"chunk": ...} and answers with what the chunk returns, by Lua's own library
_DRIVER = """
import ctypes, glob, json, sys
lua = ctypes.CDLL(glob.glob("/usr/lib/*/liblua5.1.so.0")[0])
lua.luaL_newstate.restype = lua.lua_tolstring.restype = ctypes.c_void_p
for line in sys.stdin:
    state = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(state)
    text = json.loads(line).encode()
    failed = lua.luaL_loadstring(state, text) or lua.lua_pcall(state, 0, 1, 0)
    size = ctypes.c_size_t()
    at = lua.lua_tolstring(state, -1, ctypes.byref(size))
    said = ctypes.string_at(at, size.value).decode("utf-8", "surrogateescape") if at else None
    print(json.dumps([failed, said]), flush=True)
    lua.lua_close(state)
"""

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def gpu(index: int, kind: str, name: str) -> GpuDevice:
    return GpuDevice(index, "nvidia", name, slurm_type=kind, device_files=(f"/dev/nvidia{index}",))


def plan(*gpus: GpuDevice) -> ClusterPlan:
    lines = [GresLine(item.slurm_type, "nvidia", item.device_files, item.index) for item in gpus]
    said = names.aliases(gpus, lines)
    size = (8, 1000, 100)
    return ClusterPlan("c", "n", "debug", *size, gres=tuple(lines), aliases=said, gpus=gpus)


# Two H100, one T4 and three small ones that the vendor's name means first
NODE = plan(
    gpu(0, "h100", "NVIDIA H100 80GB HBM3"),
    gpu(1, "h100", "NVIDIA H100 80GB HBM3"),
    gpu(2, "t4", "Tesla T4"),
    *(gpu(index, "l4", "NVIDIA L4") for index in (3, 4, 5)),
)
TEXTS = render_slurm(NODE)


def by_index(*gpus: GpuDevice) -> dict[str, str]:
    """The texts for a node on which each GPU has a type of its own."""
    made = plan(*gpus)
    typed = devices.typed_by_index(made.gres, gpus)
    said, ambiguous = names.for_any(made.aliases, made.gres, typed)
    found = replace(made, gres=tuple(typed), gres_type="index", aliases=said, ambiguous=ambiguous)
    return render_slurm(found)


TWO = by_index(*(gpu(index, "h100", "NVIDIA H100") for index in (0, 1)))
MIXED = by_index(*NODE.gpus)


class Lua:
    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def run(self, chunk: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{json.dumps(chunk)}\n")
        self._child.stdin.flush()
        failed, said = json.loads(self._child.stdout.readline())
        assert failed == 0, said
        return str(said)

    def cli(
        self,
        options: Mapping[str, str],
        job_gpus: str | None = None,
        texts: Mapping[str, str] = TEXTS,
    ) -> dict[str, str]:
        """What cli_filter makes of a command's options."""
        has = f"os.getenv = function(n) return ({_table(_job(job_gpus))})[n] end"
        return self._changed(texts["cli_filter.lua"], options, "slurm_cli_pre_submit(t, 0)", has)

    def submit(self, job: Mapping[str, str], texts: Mapping[str, str] = TEXTS) -> dict[str, str]:
        """What job_submit makes of a job."""
        return self._changed(texts["job_submit.lua"], job, "slurm_job_submit(t, {}, 0)", "")

    def modify(self, job: Mapping[str, str]) -> dict[str, str]:
        """What job_submit makes of a change of a job."""
        call = "slurm_job_modify(t, {}, {}, 0)"
        return self._changed(TEXTS["job_submit.lua"], job, call, "")

    def _changed(
        self, text: str, values: Mapping[str, str], call: str, before: str
    ) -> dict[str, str]:
        chunk = f"""
local told = ""
slurm = {{ SUCCESS = 0, ERROR = -1, log_user = function(text) told = text:format() end,
          log_info = function() end }}
{before}
(function() {text} end)()
local t = {_table(values)}
local code = {call}
if code ~= 0 then t = {{ code = code, told = told }} end
local out = {{}}
for key, value in pairs(t) do
   out[#out + 1] = (key .. "\\1" .. value):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
end
return table.concat(out, " ")
"""
        words = [
            bytes.fromhex(word).decode(errors="surrogateescape").partition("\1")
            for word in self.run(chunk).split()
        ]
        return {key: value for key, _, value in words}


def _job(places: str | None) -> dict[str, str]:
    return {} if places is None else {"SLURM_JOB_GPUS": places, "SLURM_JOB_ID": "7"}


def _table(values: Mapping[str, str]) -> str:
    items = ", ".join(f"[{_quoted(key)}] = {_quoted(value)}" for key, value in values.items())
    return f"{{ {items} }}"


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in text.encode(errors="surrogateescape")) + '"'


@pytest.fixture(scope="module")
def lua(standard: Cluster) -> Iterator[Lua]:
    argv = standard.within("python3", "-c", _DRIVER, stdin=True)
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as child:
        yield Lua(child)
        assert child.stdin is not None
        child.stdin.close()


CASES = [
    ("gpu:nvidia:1", "gpu:l4:1"),
    ("gpu:nvidia", "gpu:l4"),
    ("gpu:NVIDIA:3", "gpu:l4:3"),
    ("gpu:nvidia:4", "gpu:l4:4"),  # more than there are of any: Slurm says so
    ("gpu:nvidia_h100_80gb_hbm3:2", "gpu:h100:2"),
    ("gpu=tesla_t4=1", "gpu=t4=1"),
    ("gres/gpu:nvidia:1", "gres/gpu:l4:1"),
    ("gres:gpu:nvidia:1", "gres:gpu:l4:1"),
    ("gpu:nvidia:1,shard:2", "gpu:l4:1,shard:2"),
    ("gpu:tesla_t4:1,gpu:nvidia:1", "gpu:t4:1,gpu:l4:1"),
]
UNCHANGED = [
    *("gpu", "gpu:1", "gpu:0", "gpu:h100:1", "gpu:bogus:1", "none", "shard:nvidia:1", "mps:50"),
    *(
        "gpu:nvidia:x",
        "gpu:nvidia:1:2",
        "gpu:nvidia:",
        "gpu::1",
        "gpu:nvidia:-1",
        ",,",
        "gpu:,gpu:",
    ),
    *("gpunvidia:1", "license:nvidia:1", "gpu:nvidiaa:1", " gpu:nvidia:1"),
]


@pytest.mark.parametrize(("said", "meant"), [*CASES, *((text, text) for text in UNCHANGED)])
def test_gres(lua: Lua, said: str, meant: str) -> None:
    assert lua.cli({"gres": said, "type": "srun"}) == {"gres": meant, "type": "srun"}


@pytest.mark.parametrize("option", ["gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"])
@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("nvidia:1", "l4:1"),
        ("nvidia", "l4"),
        ("tesla_t4:1,nvidia:2", "t4:1,l4:2"),
        ("2", "2"),
        ("h100:1", "h100:1"),
    ],
)
def test_options_that_are_about_gpus_alone(lua: Lua, option: str, said: str, meant: str) -> None:
    assert lua.cli({option: said}) == {option: meant}


def test_the_first_type_of_which_there_are_enough(lua: Lua) -> None:
    few = {"gres": "gpu:nvidia:2", "type": "srun"}
    assert lua.cli(few, "0,1,2")["gres"] == "gpu:h100:2"
    assert lua.cli({**few, "gres": "gpu:nvidia:1"}, "2")["gres"] == "gpu:t4:1"
    assert lua.cli(few, "2")["gres"] == "gpu:l4:2"  # Slurm says that the job has not so many
    assert lua.cli({**few, "type": "sbatch"}, "0,1,2")["gres"] == "gpu:l4:2"  # a new job


def test_types_in_capitals(lua: Lua) -> None:
    assert lua.cli({"gpus": "H100:2,T4"}) == {"gpus": "h100:2,t4"}
    assert lua.submit({"tres_per_node": "gres/gpu:L4:1"}) == {"tres_per_node": "gres/gpu:l4:1"}


@pytest.mark.parametrize("said", ["v100:1", "v100", "h100x:1", "a%s%d:2", "1g.10gb=1"])
def test_a_gpu_that_the_node_has_not(lua: Lua, said: str) -> None:
    for field in FIELDS:
        told = lua.submit({field: f"gres/gpu:{said}"})
        name = said.replace("=", ":").partition(":")[0].replace("%", "?")
        assert told == {
            "code": "2072",
            "told": f"this cluster has no GPU named {name}, it has: h100 (2), t4 (1), l4 (3)",
        }
    assert lua.submit({"tres_per_node": "gres/gpu:2k,gres/shard:v100:1"}) == {
        "tres_per_node": "gres/gpu:2k,gres/shard:v100:1"
    }


FIELDS = ["tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"]


@pytest.mark.parametrize("field", FIELDS)
def test_the_controller_means_the_same(lua: Lua, field: str) -> None:
    for said, meant in CASES:
        prefixed = said if said.startswith("gres") else f"gres/{said}".replace(",", ",gres/")
        wanted = meant if meant.startswith("gres") else f"gres/{meant}".replace(",", ",gres/")
        assert lua.submit({field: prefixed}) == {field: wanted}


def test_no_job_writes_a_second_line_into_the_log_of_ended_jobs(lua: Lua) -> None:
    for called in (lua.submit, lua.modify):
        name = {"name": "x\nJobId=7 UserId=root(0)\x1b[1m\x7f\u2028"}
        assert called(name) == {"name": "x?JobId=7 UserId=root(0)?[1m??"}
        fine = {"name": "Größe %d 'x'", "work_dir": "/home/me/my work\t%s"}
        assert called(fine) == fine
        told = called({"work_dir": "/tmp/a\nJobId=7 UserId=root(0)"})
        assert (told["code"], "holds a line break" in told["told"]) == ("-1", True)


# What a terminal obeys: an escape, CSI of eight bits as UTF-8 has it, as a byte alone and in a sequence
# that is too long, and the letters turned around
OBEYED = ("\x1b[2J", "\u009b2J", "\udc9b2J", "\udce0\udc80\udc9b2J", "\x7f", "\u202e", "\u2066")


@pytest.mark.parametrize("sign", OBEYED)
def test_no_text_of_a_job_commands_a_terminal(lua: Lua, sign: str) -> None:
    for called in (lua.submit, lua.modify):
        (shown,) = called({"comment": f"a{sign}b"}).values()
        assert shown.startswith("a")
        assert "?" in shown
        assert not {"\x1b", "\x9b", "\udc9b", "\x7f", "\u202e", "\u2066"} & set(shown)
        for field in ("work_dir", "std_out", "features", "wckey", "alloc_node"):
            told = called({field: f"/a{sign}b"})
            assert (told["code"], "control character" in told["told"]) == ("-1", True)


@pytest.mark.parametrize("sign", OBEYED)
def test_no_name_of_a_step_commands_a_terminal(lua: Lua, sign: str) -> None:
    (shown,) = lua.cli({"job-name": f"a{sign}b"}).values()
    assert shown.startswith("a")
    assert "?" in shown
    assert not {"\x1b", "\x9b", "\udc9b", "\x7f", "\u202e", "\u2066"} & set(shown)
    assert lua.cli({"job-name": "Größe 'x'"}) == {"job-name": "Größe 'x'"}


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(
    text=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=20)
)
def test_texts_of_every_language_stay(lua: Lua, text: str) -> None:
    said = {"name": text, "comment": text, "work_dir": f"/{text}", "std_out": f"/{text}"}
    assert lua.submit(said) == said


def test_a_heterogeneous_job_is_refused_at_once(lua: Lua) -> None:
    told = lua.submit({"het_job_offset": "0"})
    assert (told["code"], "needs a node of its own" in told["told"]) == ("-1", True)


WORD = st.sampled_from(
    ["gpu", "gres/", "nvidia", "NVIDIA", "tesla_t4", "h100", "l4", "shard", ":", "=", ",", "1", "2"]
)
TEXT = st.one_of(st.lists(WORD, max_size=10).map("".join), st.text(max_size=30))


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(text=TEXT.filter(lambda text: "\1" not in text))
def test_twice_is_as_once_and_what_has_no_alias_stays(lua: Lua, text: str) -> None:
    for option in ("gres", "gpus"):
        once = lua.cli({option: text})
        assert lua.cli(once) == once
        if not any(name in text.lower() for name in (*NODE.aliases, *NODE.gres_counts)):
            assert once == {option: text}
        assert once[option].count(",") == text.count(",")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("gpu:h100:2", "gpu:2"),
        ("gpu:H100", "gpu:1"),
        ("gpu:nvidia:1", "gpu:1"),
        ("gpu:nvidia_h100=2", "gpu:2"),
        ("gres/gpu:nvidia:2,shard:1", "gres/gpu:2,shard:1"),
        *(
            (text, text)
            for text in ("gpu:gpu1:1", "gpu:2", "gpu", "gpu:t4:1", "gpu:h100:", "mps:50")
        ),
    ],
)
def test_any_gpu_where_each_has_a_type(lua: Lua, said: str, meant: str) -> None:
    assert lua.cli({"gres": said}, texts=TWO) == {"gres": meant}
    if said.startswith("gpu:"):
        bare = {"gpus": said.removeprefix("gpu:")}
        assert lua.cli(bare, texts=TWO) == {"gpus": meant.removeprefix("gpu:")}


def test_steps_where_each_has_a_type(lua: Lua) -> None:
    step = {"gres": "gpu:h100:1", "type": "srun"}
    assert lua.cli(step, "1", texts=TWO) == {**step, "gres": "gpu:1"}


@pytest.mark.parametrize(
    ("said", "types"),
    [
        ("h100:1", "gpu0, gpu1"),
        ("Tesla_T4", "gpu2"),
        ("nvidia:2", "gpu0, gpu1, gpu2, gpu3, gpu4, gpu5"),
    ],
)
def test_an_ambiguous_name_is_refused_with_what_it_could_mean(
    lua: Lua, said: str, types: str
) -> None:
    assert lua.cli({"gpus": said}, texts=MIXED) == {"gpus": said}
    told = lua.submit({"tres_per_job": f"gres/gpu:{said}"}, texts=MIXED)
    name = said.partition(":")[0]
    assert told["code"] == "2072"
    assert told["told"] == (
        f"request GPUs by index here, {name} is the name of several (gres_type: index): {types}"
    )
    fine = {"tres_per_job": "gres/gpu:gpu2:1,gres/gpu:2"}
    assert lua.submit(fine, texts=MIXED) == fine


def test_another_name_is_not_there_at_all(lua: Lua) -> None:
    told = lua.submit({"tres_per_job": "gres/gpu:v100:1"}, texts=MIXED)
    assert told["told"].startswith("this cluster has no GPU named v100, it has: gpu0 (1), gpu1 (1)")


def _offer(node: str, *types: str, owner: int | None = None) -> Offer:
    gpus = (OfferedGpu(0, None, kind, kind, kind, "nvidia", 1024, None) for kind in types)
    return Offer(node, 8, 1024, tuple(gpus), own_work=node != "n", carried_work="/w", owner=owner)


# Three without the work folder: two for all, one of user 7
OFFERS = (_offer("n", "h100"), _offer("b", "t4", "t4"), _offer("c"), _offer("d", "l4", owner=7))
MANY = render_slurm(replace(NODE, role="controller", srun_ports=(61001, 61999)))


@pytest.mark.parametrize(
    ("uid", "job", "told"),
    [
        (8, {}, "b c"),
        (7, {}, "b c d"),
        (0, {}, "b c"),
        (0, {"req_nodes": "d"}, "d"),
        (7, {"partition": "owners"}, "d"),
        (7, {"partition": "debug"}, "b c"),
        (8, {"exc_nodes": "b"}, "c"),
        (8, {"tres_per_node": "gres/gpu:h100:1"}, ""),
        (8, {"tres_per_node": "gres/gpu:1"}, "b"),
        (7, {"tres_per_node": "gres/gpu:2"}, "b"),
        (7, {"tres_per_job": "gres/gpu:2"}, "b d"),
        (8, {"tres_per_node": "gres/gpu:t4:2"}, "b"),
        (8, {"tres_per_node": "gres/gpu:t4:3"}, ""),
        (7, {"tres_per_job": "gres/gpu:t4:1,gres/gpu:l4:1"}, "b d"),
        (8, {"work_dir": "/x"}, ""),
        (8, {"work_dir": "/x", "script": "#!/bin/sh"}, "b c"),
    ],
)
def test_which_nodes_without_the_work_folder_a_job_may_come_to(
    lua: Lua, uid: int, job: dict[str, str], told: str
) -> None:
    table = nodes.table(OFFERS, {7: "ada"}.__getitem__)
    chunk = f"""
local told, read = {{}}, dofile
local function said(text) told[#told + 1] = text:match("^node (%S+) has not this work folder") end
slurm = {{ SUCCESS = 0, ERROR = -1, NO_VAL = 1, NO_VAL16 = 2, log_user = said, log_info = function() end }}
dofile = function(path)
   if path:match("gpus.lua$") then {table} end
   return read(path)
end
(function() {MANY["job_submit.lua"]} end)()
local code = slurm_job_submit({_table({"work_dir": "/w/x", **job})}, {{}}, {uid})
return table.concat(told, " ") .. ":" .. code
"""
    assert lua.run(chunk) == f"{told}:0"
