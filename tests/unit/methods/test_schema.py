"""What the published schema takes is what the checker takes: the same declaration, two readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.methods.schema import PUBLISHED, SCHEMA, published
from dshpc_setup.methods.structure import differences, nearest

ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ODD = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.0, 1.5, 1e300, 10**12, "", "a", "a\n", "1", "x" * 70, "8.0",
     "2h", "a b", "\0", "/abs", [], ["a"], [1], {}, {"a": "b"}, {"a b": "c"}, {"A": 1}, "auto"]
)  # fmt: skip


def near(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that have the schema's form, and some that nearly have."""
    examples = st.sampled_from(schema["examples"]) if "examples" in schema else st.nothing()
    choices = [examples, ODD]
    if "enum" in schema:
        choices.append(st.sampled_from(schema["enum"]))
    for bound in ("minimum", "maximum"):
        if bound in schema:
            choices.append(st.sampled_from([schema[bound] - 1, schema[bound], schema[bound] + 1]))
    if "items" in schema:
        choices += [st.lists(near(schema["items"]), max_size=3)] * 2
    if "properties" in schema:
        keys = {name: near(each) for name, each in schema["properties"].items()}
        must = {name: keys.pop(name) for name in schema["required"]}
        choices += [st.fixed_dictionaries(must, optional=keys)] * 3
        choices.append(st.dictionaries(st.sampled_from([*keys, "extra"]), ODD, max_size=3))
    return st.one_of(choices)


@given(near(SCHEMA))
def test_the_checker_and_the_schema_agree(value: Any) -> None:
    assert VALIDATOR.is_valid(value) == (not list(differences(value)))


@pytest.mark.parametrize("key", sorted(SCHEMA["properties"]["resources"]["properties"]))
@given(data=st.data())
def test_they_agree_of_each_resource(key: str, data: st.DataObject) -> None:
    schema = SCHEMA["properties"]["resources"]["properties"][key]
    value = data.draw(near(schema) | st.text(max_size=12) | st.integers() | FINITE)
    agreed = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert agreed == (not list(differences(value, schema)))


def test_the_schema_is_a_schema_and_each_part_is_described() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for schema in every(SCHEMA):
        assert schema["examples"], schema
        for example in schema["examples"]:
            assert jsonschema.Draft202012Validator(schema).is_valid(example), schema
        for part in schema.get("properties", {}).values():
            assert part["description"].endswith(".")


def every(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema and all schemas in it."""
    inner = [*schema.get("properties", {}).values()]
    for key in ("items", "additionalProperties", "propertyNames"):
        inner += [schema[key]] if schema.get(key) else []
    return [schema, *(each for part in inner for each in every(part))]


def test_the_published_file_is_that_of_the_declaration() -> None:
    """Made anew by: dshpc method schema > docs/schemas/method.schema.json"""
    file = ROOT / "docs" / "schemas" / PUBLISHED
    assert file.read_text(encoding="utf-8") == published()
    assert json.loads(published()) == SCHEMA


def test_the_checker_knows_every_word_that_the_schema_uses() -> None:
    known = set(
        "$schema title description type properties required additionalProperties examples pattern "
        "minimum maximum minLength maxLength minItems maxItems items enum default propertyNames"
        .split()
    )  # fmt: skip
    for schema in every(SCHEMA):
        assert set(schema) <= known


def test_shipped_methods_have_the_form() -> None:
    files = sorted(resources.methods().glob("*/method.json"))
    assert files
    for file in files:
        assert VALIDATOR.is_valid(json.loads(file.read_text(encoding="utf-8"))), file


def test_the_nearest_word() -> None:
    assert nearest("GPUS", ["gpus", "cpus"]) == "gpus"
    assert nearest("comand", ["command", "name"]) == "command"
    assert nearest("zzz", ["command", "name"]) is None
