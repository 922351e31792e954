"""Tasks and families as text: {"name": ..., parameters} to the object, and the object back to text.

A name is a key of TASKS or FAMILIES, or `module:attribute` for one of the user's own: a class, a
factory, or a ready value. What comes out must be a frozen dataclass, since its fields are what a
run's configuration writes down and reads back.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from training.families import FAMILIES
from training.tasks import TASKS

_PARTS = {
    "task": ("vocabulary", "n_positions", "kinds", "batch", "evaluation"),
    "family": ("frozen", "initialise", "forward", "hook_names"),
}
_TABLES: dict[str, Mapping[str, Any]] = {"task": TASKS, "family": FAMILIES}


def resolve(role: str, value: Any) -> Any:
    """The task or family that `value` names or is.

    role: "task" or "family". value: the object itself, a name, or a mapping with the key `name`
    and the parameters beside it (lists become tuples). Raises ValueError with one line.
    """
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Mapping):
        parameters = {str(key): _tuples(entry) for key, entry in value.items()}
        name = parameters.pop("name", None)
        if not isinstance(name, str):
            raise ValueError(f"{role} needs a name, got {dict(value)!r}; {_allowed(role)}")
        value = _make(role, name, parameters)
    _check(role, value)
    return value


def describe(role: str, value: Any) -> dict[str, Any]:
    """`value` as JSON: its name and its fields. `resolve` reads it back to an equal object.

    Equal objects give equal JSON: 1 in a field of floats is written 1.0. Raises ValueError, one
    line for all fields that are not of their annotated type.
    """
    kind = type(value)
    name = next((key for key, known in _TABLES[role].items() if known is kind), None)
    if name is None:
        if "<locals>" in kind.__qualname__:
            raise ValueError(
                f"{role} {kind.__qualname__} is defined inside a function, so no run could be"
                " read back; define it at the top level of a module"
            )
        name = f"{kind.__module__}:{kind.__qualname__}"
    fields, wrong = _written(role, kind, {f.name: getattr(value, f.name) for f in _fields(kind)})
    if wrong:
        raise ValueError("; ".join(wrong))
    return {"name": name, **fields}


def _allowed(role: str) -> str:
    return f"allowed: {', '.join(sorted(_TABLES[role]))}, or module:attribute"


def _fields(kind: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(kind) if f.init]


@cache
def _types(kind: type) -> dict[str, tuple[TypeAdapter, str]]:
    """Field to what checks it and how it is annotated; without those that pydantic cannot check."""
    found = {}
    names = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    for f in _fields(kind):
        try:
            hint = get_type_hints(SimpleNamespace(__annotations__={f.name: f.type}), names)[f.name]
            adapter = TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))
        except (NameError, AttributeError, TypeError, SyntaxError, PydanticUserError):
            continue
        found[f.name] = adapter, getattr(f.type, "__name__", str(f.type))
    return found


def _written(role: str, kind: type, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values of fields as JSON, in their annotated types, and a line for each that is wrong."""
    written, wrong, types = {}, [], _types(kind)
    for name, value in values.items():
        try:
            written[name] = plain = _plain(role, name, value)
            if name in types:
                adapter, allowed = types[name]
                read = adapter.validate_json(json.dumps(plain))
                written[name] = adapter.dump_python(read, mode="json")
        except ValidationError as error:
            finite = any(entry["type"] == "finite_number" for entry in error.errors())
            allowed = f"{allowed}, finite" if finite else allowed
            wrong.append(f"{role}.{name} got {value!r}; allowed: {allowed}")
        except ValueError as error:
            wrong.append(str(error))
    return written, wrong


def _make(role: str, name: str, parameters: dict[str, Any]) -> Any:
    maker = _TABLES[role].get(name)
    if maker is None:
        if ":" not in name:
            raise ValueError(f"{role} got the name {name!r}; {_allowed(role)}")
        maker = _load(role, name)
    if dataclasses.is_dataclass(maker) and not isinstance(maker, type):
        if parameters:
            raise ValueError(
                f"{role} {name} is a ready value and takes no parameters, got {sorted(parameters)}"
            )
        return maker
    if not callable(maker):
        raise ValueError(f"{role} {name} is {maker!r}; allowed: a class, a factory or a value")
    if isinstance(maker, type) and dataclasses.is_dataclass(maker):
        wrong = _misfits(role, name, maker, parameters)
        if wrong:
            raise ValueError("; ".join(wrong))
    try:
        return maker(**parameters)
    except TypeError as error:
        raise ValueError(f"{role} {name}: {error}; got {parameters!r}") from error


def _misfits(role: str, name: str, kind: type, parameters: Mapping[str, Any]) -> list[str]:
    """A line for what is unknown or missing, and one for each value of the wrong type."""
    known = {f.name: f for f in _fields(kind)}
    unknown = sorted(set(parameters) - set(known))
    missing = sorted(
        key
        for key, f in known.items()
        if key not in parameters
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    )
    wrong = []
    if unknown or missing:
        parts = [f"unknown {', '.join(unknown)}"] if unknown else []
        parts += [f"missing {', '.join(missing)}"] if missing else []
        wrong.append(f"{role} {name}: {' and '.join(parts)}; allowed: {', '.join(known) or 'none'}")
    right = {key: value for key, value in parameters.items() if key in known}
    return wrong + _written(role, kind, right)[1]


def _load(role: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{role} {name!r}: cannot import module {module!r} ({error});"
            " is its folder on the Python path?"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{role} {name!r}: {module!r} has no attribute {attribute!r}")
        found = getattr(found, part)
    return found


def _check(role: str, value: Any) -> None:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise ValueError(f"{role} got {value!r}; allowed: an instance of a frozen dataclass")
    if not type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ValueError(f"{role} {type(value).__name__} can change; make the dataclass frozen")
    absent = object()
    lacks = [p for p in _PARTS[role] if inspect.getattr_static(value, p, absent) is absent]
    if lacks:
        raise ValueError(f"{role} {type(value).__name__} lacks {', '.join(lacks)}")
    describe(role, value)


def _tuples(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_tuples(entry) for entry in value)
    return value


def _plain(role: str, name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(role, name, entry) for entry in value]
    raise ValueError(
        f"{role}.{name} is a {type(value).__name__}, which a configuration cannot write down;"
        " allowed: numbers, text, and tuples of them"
    )
