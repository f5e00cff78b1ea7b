"""Which parts of the templates a rendering goes through: each test, loop and value, and how it came out."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

from jinja2 import BaseLoader, Environment, Template, Undefined, nodes, pass_context

Place = tuple[str, int, int, str]
"""Template, line, place among its nodes, and the outcome."""


class Branches:
    """An environment that renders as the given one does, and `seen`, which it adds to meanwhile."""

    def __init__(self, environment: Environment) -> None:
        self.seen: set[Place] = set()
        self.environment = environment.overlay(loader=_Noting(environment.loader))
        self.environment.filters = {**environment.filters, "note": self._note}

    @pass_context  # else it is called once and for all where the value is a constant
    def _note(self, _: object, value: Any, template: str, line: int, number: int) -> Any:
        self.seen.add((template, line, number, outcome(value)))
        return value


def outcome(value: Any) -> str:
    """None, true or false; of what can be counted "0", "1" or "more", as of the items of a text."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Undefined):
        return "0"  # of an inline "if" without an "else"
    if isinstance(value, str):
        count = value.count(",") + 1 if value else 0
    else:
        count = len(value) if isinstance(value, Collection) else int(value)
    return str(count) if count < 2 else "more"


class _Noting(BaseLoader):
    """Another loader's templates, in which each such value goes through the filter "note"."""

    def __init__(self, loader: BaseLoader | None) -> None:
        assert loader
        self._loader = loader

    def load(
        self,
        environment: Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002, it is BaseLoader's name
    ) -> Template:
        source, path, uptodate = self._loader.get_source(environment, name)
        tree = environment.parse(source, name, path)
        _wrap(tree, name)
        code = environment.compile(tree, name, path)
        return environment.template_class.from_code(environment, code, globals or {}, uptodate)


def _wrap(tree: nodes.Template, template: str) -> None:
    number = 0

    def noted(value: nodes.Node) -> nodes.Filter:
        nonlocal number
        number += 1
        place: list[nodes.Expr] = [nodes.Const(item) for item in (template, value.lineno, number)]
        return nodes.Filter(value, "note", place, [], None, None, lineno=value.lineno)

    for operation in list(tree.find_all((nodes.And, nodes.Or))):
        operation.left, operation.right = noted(operation.left), noted(operation.right)
    tests: list[nodes.If | nodes.CondExpr] = [
        *tree.find_all(nodes.If),
        *tree.find_all(nodes.CondExpr),
    ]
    for test in tests:
        test.test = noted(test.test)
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = noted(loop.iter)
    for output in list(tree.find_all(nodes.Output)):
        output.nodes = [
            node if isinstance(node, nodes.TemplateData) else noted(node) for node in output.nodes
        ]
