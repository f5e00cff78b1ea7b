"""The package again, with other words: each sentence of ours replaced as its modules are imported.

What is replaced is every literal with a blank and a letter in it, commands included, but for: documentation,
what is compared with or searched for (a reader's side: where it was a sentence of ours that was read, the
other side has other words now), regular expressions, keys, and what EXEMPT names.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "dshpc_setup"
SOURCE = Path(__file__).parents[2]

# Literals that are no words of ours, by file and the name that they are assigned to, or the function, or the
# whole file: with why
EXEMPT: dict[str, str] = {
    "slurm_releases/": "Slurm's words, by release",
    "diagnose/nvidia_kernel.py::_WANTS_OPEN": "NVIDIA's driver in the kernel's log",
    "diagnose/nvidia_starts.py::_NOT_CALLED": "NVIDIA's driver in the kernel's log",
    "engine/start_report.py::notes": "a key of dshpc.start/1: node NAME",
    "probes/amd/names.py": "product names, of which the type of a GRES is made",
    "probes/amd/rocm_smi.py": "keys of rocm-smi's JSON",
    "probes/cpu.py::_QUOTA": "a value of dshpc.facts/1",
    "probes/engine.py::(DOCKER_DESKTOP, RANCHER_DESKTOP)": "product names, a value of dshpc.facts/1",
    "probes/nvidia/jetson.py::_MODELS": "product names, of which the type of a GRES is made",
    "probes/nvidia/layers.py::parse_information": "keys of /proc/driver/nvidia",
    "probes/nvidia/smi.py::_NO_GPU": "nvidia-smi's words",
    "probes/nvidia/smi.py::_REFUSALS": "nvidia-smi's words",
    "probes/virtual.py": "makers of virtual machines, as firmware names them, and the probe's name",
    "vendors/intel/probe.py::_BOARDS": "product names, of which the type of a GRES is made",
}

_READERS = frozenset(
    "startswith endswith split partition rpartition removeprefix removesuffix replace index find count "
    "rsplit getattr hasattr cast strftime strptime TypeVar "
    "lines still_said".split()  # diagnose.kernel_log, diagnose.nvidia_evidence: of the kernel's log
)
_PATTERN = re.compile(r"\\[a-zA-Z.(\[]|\(\?|\.\*|\[\^|\[a-z|\[0-9|\w\|\w")
# Places to fill in, line ends, ids of findings: they stay, so that a template can still be filled
_KEPT = re.compile(r"(\{[^{}]*\}|%(?:\([^)]*\))?[-#0 +]*\d*\.?\d*[sdrifgxo%]|DSH-[A-Z]{2}-\d+|\n)")
_SIGNS = str.maketrans({":": "~", ";": "^", ",": "`", "(": "<", ")": ">"})
_LETTERS = "qxzvjkw"


def words(text: str, seed: str) -> str:
    """Other letters, other lengths and other punctuation; the same for the same seed."""
    rng = random.Random(seed)

    def word(match: re.Match[str]) -> str:
        size = max(1, len(match[0]) + rng.choice((-1, 0, 1)))
        made = "".join(rng.choice(_LETTERS) for _ in range(size))
        return made.capitalize() if match[0][0].isupper() else made

    parts = _KEPT.split(text)
    parts[::2] = [re.sub(r"[A-Za-z]+", word, part).translate(_SIGNS) for part in parts[::2]]
    return "".join(parts)


@dataclass
class Scrambler(ast.NodeTransformer):
    """Of one file. `used`: the exemptions that were needed; `count`: how many literals are others."""

    path: str
    seed: int
    used: set[str]
    count: int = 0
    _parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def scramble(self, tree: ast.Module) -> ast.Module:
        for node in ast.walk(tree):
            self._parents.update((child, node) for child in ast.iter_child_nodes(node))
        self.visit(tree)
        ast.fix_missing_locations(tree)
        return tree

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str) or not self._is_ours(node, node.value):
            return node
        return ast.copy_location(ast.Constant(self._other(node, node.value)), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """The texts between the values; never a format."""
        texts = [each for each in node.values if isinstance(each, ast.Constant)]
        whole = "{}".join(str(each.value) for each in texts)
        if self._is_ours(node, whole):
            for number, each in enumerate(texts):
                each.value = words(str(each.value), self._seed(node, number))
            self.count += 1
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                value.value = self.visit(value.value)
        return node

    def _other(self, node: ast.expr, text: str) -> str:
        self.count += 1
        return words(text, self._seed(node, 0))

    def _seed(self, node: ast.expr, number: int) -> str:
        return f"{self.seed} {self.path} {node.lineno} {node.col_offset} {number}"

    def _is_ours(self, node: ast.expr, text: str) -> bool:
        if " " not in text.strip() and not text.endswith(" "):
            return False
        if not re.search("[A-Za-z]", text) or _PATTERN.search(text):
            return False
        return not self._is_read(node) and not self._is_exempt(node)

    def _is_read(self, node: ast.AST) -> bool:
        """Whether it stands where something is compared, searched or looked up, or documents."""
        inner, outer = node, self._parents.get(node)
        while outer is not None and not isinstance(outer, ast.stmt):
            if isinstance(outer, ast.Call) and inner is not outer.func and _reads(outer.func):
                return True
            if isinstance(outer, ast.Attribute) and outer.attr in ("split", "splitlines"):
                return True
            if isinstance(outer, ast.Compare | ast.match_case):
                return True
            if isinstance(outer, ast.Subscript) and inner is outer.slice:
                return True
            if isinstance(outer, ast.Dict) and inner in outer.keys:
                return True
            inner, outer = outer, self._parents.get(outer)
        if isinstance(outer, ast.AnnAssign) and inner is outer.annotation:
            return True
        return isinstance(outer, ast.Expr) and outer.value is node

    def _is_exempt(self, node: ast.AST) -> bool:
        names = {self.path}
        outer: ast.AST | None = node
        while outer is not None:
            if isinstance(outer, ast.FunctionDef | ast.ClassDef):
                names.add(f"{self.path}::{outer.name}")
            if isinstance(outer, ast.Assign | ast.AnnAssign):
                target = outer.targets[0] if isinstance(outer, ast.Assign) else outer.target
                names.add(f"{self.path}::{ast.unparse(target)}")
            outer = self._parents.get(outer)
        names |= {f"{folder}/" for folder in self.path.split("/")[:1]}
        found = names & EXEMPT.keys()
        self.used |= found
        return bool(found)


def _reads(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in _READERS or ast.unparse(function.value) == "re"
    return isinstance(function, ast.Name) and function.id in _READERS


_Plain = importlib.machinery.SourceFileLoader


class _Loader(_Plain):
    """The file as it is, where nothing is changed in it but its words."""

    def __init__(self, name: str, path: str, change: Callable[[str, ast.Module], ast.Module]):
        super().__init__(name, path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
        name = Path(path).relative_to(SOURCE / PACKAGE).as_posix()
        return compile(self._change(name, tree), path, "exec", dont_inherit=True)


@dataclass
class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the package, each with its words replaced (or as `edit` changes its text)."""

    seed: int
    only: tuple[str, ...] = (
        "",
    )  # beginnings of the paths that are changed; others stay as they are
    edit: Callable[[str, ast.Module], ast.Module] = lambda _, tree: tree
    used: set[str] = field(default_factory=set)
    count: int = 0

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        file = SOURCE / Path(*name.split("."))
        source = (
            file / "__init__.py" if (file / "__init__.py").is_file() else file.with_suffix(".py")
        )
        if not source.is_file():
            return None
        plain = not source.relative_to(SOURCE / PACKAGE).as_posix().startswith(self.only)
        loader = _Plain(name, str(source)) if plain else _Loader(name, str(source), self._changed)
        folders = [str(file)] if source.parent == file else None
        return importlib.util.spec_from_file_location(
            name, source, loader=loader, submodule_search_locations=folders
        )

    def _changed(self, path: str, tree: ast.Module) -> ast.Module:
        made = Scrambler(path, self.seed, self.used)
        tree = made.scramble(self.edit(path, tree))
        self.count += made.count
        return tree


@contextlib.contextmanager
def in_other_words(finder: Finder, *with_it: str) -> Iterator[None]:
    """Meanwhile an import of the package, or of the test modules `with_it`, is of its own modules."""

    def ours(name: str) -> bool:
        return name.partition(".")[0] == PACKAGE or name in with_it

    before = {name: module for name, module in sys.modules.items() if ours(name)}
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        for name in with_it:
            room, _, own = name.rpartition(".")
            if name in before and room in sys.modules:
                setattr(sys.modules[room], own, before[name])
