"""A validator for the keywords of JSON Schema that the published schemas use."""

import json
import re
from collections.abc import Iterator, Sequence

from rlbench.report.reference_table import DATA

SCHEMAS = {path.stem: path for path in (DATA / "schema").glob("*.json")}

KINDS = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}
KINDS["null"] = type(None)
WORDS = {"$schema", "title", "description", "$defs", "$ref", "anyOf", "const", "enum", "pattern", "minimum", "type"}
WORDS |= {"required", "properties", "additionalProperties", "items"}


def schema_of(name: str) -> dict[str, object]:
    """The published schema of a document."""
    schema: dict[str, object] = json.loads(SCHEMAS[name].read_text(encoding="utf-8"))
    return schema


def check_document(words: Sequence[str], text: str) -> None:
    """Assert that what a command with ``--json`` prints is of the schema that is published for it."""
    document = json.loads(text)
    schemas = [schema_of(name) for name in schema_names(words)]
    faults = [[*complaints(schema, document, schema)] for schema in schemas]
    assert not all(faults), (words, faults)


def schema_names(words: Sequence[str]) -> list[str]:
    """The schemas of a command, of which one fits."""
    verb, *others = [word for word in words if not word.startswith("-")]
    of_options = {"table --parity": "parity", "show --documented": "documented", "eval --policy": "eval-policy"}
    of_options |= {"verify --replay": "replay", "run --dry-run": "dry-run"}
    for name, schema in of_options.items():
        if verb == name.partition(" ")[0] and name.partition(" ")[2] in words:
            return [schema]
    match verb, others:
        case "data", ["generate" | "import", *_]:
            return ["data-generate"]
        case "data", ["show", *_]:
            return ["data-show", "data-show-play"]
        case "data", [kind, *_]:
            return [f"data-{kind}"]
        case "export", [kind, *_]:
            return ["export" if kind == "tensorboard" else "export-file"]
    return [verb]


def complaints(  # noqa: C901 - a word of JSON Schema each
    schema: dict[str, object], value: object, root: dict[str, object], where: str = "$"
) -> Iterator[str]:
    """Every place of ``value`` that does not fit, and why."""
    unknown = set(schema) - WORDS
    assert not unknown, f"{where}: the schema says {unknown}, which nobody checks here"
    match schema:
        case {"$ref": str(name)}:
            yield from complaints(root["$defs"][name.rpartition("/")[2]], value, root, where)
        case {"anyOf": list(choices)}:
            if all(any(True for _ in complaints(choice, value, root, where)) for choice in choices):
                yield f"{where}: {value!r} is none of the choices"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r}"
    if "pattern" in schema and not re.search(str(schema["pattern"]), str(value)):
        yield f"{where}: {value!r}"
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        yield f"{where}: {value!r}"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, KINDS[n]) and (n == "boolean" or not isinstance(value, bool)) for n in names):
            yield f"{where}: {value!r} is no {names}"
    if isinstance(value, dict):
        yield from _branches(schema, value, root, where)
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from complaints(schema["items"], item, root, f"{where}[{place}]")


def _branches(
    schema: dict[str, object], value: dict[str, object], root: dict[str, object], where: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    yield from (f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, inside in value.items():
        if name in properties:
            yield from complaints(properties[name], inside, root, f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{where}: {name} is unknown"
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from complaints(schema["additionalProperties"], inside, root, f"{where}.{name}")
