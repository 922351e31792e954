"""RunConfig: everything that determines one run, strict, with a canonical text and its hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from training.families import Family
from training.naming import describe, resolve
from training.tasks import Task

SCHEMA_VERSION = 1
Built = TypeVar("Built")


class ConfigError(ValueError):
    """A configuration that cannot be run; one line names every field at fault."""


class Strict(BaseModel):
    """Unknown keys, other types, NaN and infinity are refused; values do not change."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False
    )


def to_tuple(value: Any) -> Any:
    """Lists, as JSON and YAML have them, become tuples."""
    return tuple(value) if isinstance(value, list) else value


class Optimiser(Strict):
    """The update rule, as in torch.optim: weight decay is decoupled in adamw only.

    lr: constant; a checkpoint's time is step * lr. momentum: of sgd. betas: of adam and adamw.
    """

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    betas: Annotated[tuple[float, float], BeforeValidator(to_tuple)] = (0.9, 0.999)

    @model_validator(mode="after")
    def _consistent(self) -> Optimiser:
        wrong = []
        if self.momentum and self.name != "sgd":
            wrong.append(f"momentum got {self.momentum}, but only sgd has one (adam has betas)")
        if self.betas != (0.9, 0.999) and self.name == "sgd":
            wrong.append(f"betas got {list(self.betas)}, but sgd has none (it has momentum)")
        if not all(0 <= beta < 1 for beta in self.betas):
            wrong.append(f"betas got {list(self.betas)}; allowed: two numbers in [0, 1)")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


SEEDS = 2**63
"""Seeds are below it; torch and numpy take no larger ones."""


class Seeds(Strict):
    """Three sources of chance, apart: the initial weights, the training batches, the evaluation."""

    init: int = Field(default=0, ge=0, lt=SEEDS)
    data: int = Field(default=0, ge=0, lt=SEEDS)
    eval: int = Field(default=0, ge=0, lt=SEEDS)


class Stop(Strict):
    """When to end before the last step.

    loss: solved once the validation loss is below it at an evaluation.
    patience: stopped once the best validation loss has not fallen by the share `margin` within so
    many steps.
    """

    loss: float | None = Field(default=None, gt=0)
    patience: int | None = Field(default=None, ge=1)
    margin: float = Field(default=0.01, ge=0, lt=1)


class Checkpoints(Strict):
    """Which steps are kept besides the first and the last.

    doubling: 1, 2, 4, ..., 512. every: then its multiples; None for none. steps: one's own.
    """

    doubling: bool = True
    every: int | None = Field(default=512, ge=1)
    steps: Annotated[tuple[int, ...], BeforeValidator(to_tuple)] = ()


class RunConfig(Strict):
    """One member of a study: one task, one model, one optimiser, one set of seeds.

    task, family: the object, a name, `module:attribute`, or a mapping of the name and parameters.
    train_size: how many sequences of the task's training pool are used; None for all.
    eval_every, eval_size: steps between evaluations, and how many held-out sequences they use. Kept
    steps are evaluated too.
    device: cpu, cuda or cuda:<index>; equal bits are promised on the cpu.

    Raises ConfigError (a ValueError), one line for all that is wrong.
    """

    study: str = "study"
    task: Annotated[Task, PlainValidator(lambda value: resolve("task", value))]
    family: Annotated[Family, PlainValidator(lambda value: resolve("family", value))]
    optimiser: Optimiser = Optimiser()
    steps: int = Field(ge=1, lt=10**8)
    batch_size: int = Field(default=64, ge=1)
    train_size: int | None = Field(default=None, ge=1)
    seeds: Seeds = Seeds()
    dtype: Literal["float32", "float64"] = "float32"
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda|cuda:\d+)$")
    eval_every: int = Field(default=50, ge=1)
    eval_size: int = Field(default=1000, ge=1)
    stop: Stop = Stop()
    checkpoints: Checkpoints = Checkpoints()

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise ConfigError(one_line(error, type(self))) from None

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        wrong = []
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.study):
            wrong.append(
                f"study got {self.study!r}; allowed: letters, digits, dot, dash and underscore,"
                " since it names a folder"
            )
        outside = [step for step in self.checkpoints.steps if not 0 <= step <= self.steps]
        if outside:
            wrong.append(f"checkpoints.steps got {outside}; allowed: 0 to steps = {self.steps}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> RunConfig:
        """A configuration from plain values, as JSON holds it (schema_version may be there)."""
        plain = dict(data)
        version = plain.pop("schema_version", SCHEMA_VERSION)
        plain.pop("run_id", None)
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"schema_version got {version!r}; this version reads {SCHEMA_VERSION}: open it with"
                " the version that wrote it"
            )
        return cls(**plain)

    @classmethod
    def from_yaml(cls, path: str | Path) -> RunConfig:
        """A configuration from a YAML file. Raises ConfigError naming the file."""
        return read_yaml(path, "task, family, steps", cls.from_mapping)

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed; a mapping changes only the named parts of its section.

        `config.replace(train_size=60, seeds={"data": 3}, task={"lengths": [4]})`. A mapping with a
        `name` is a task or family of its own.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        for name, change in changes.items():
            part = fields.get(name)
            if isinstance(part, Strict) and isinstance(change, Mapping):
                change = {key: getattr(part, key) for key in type(part).model_fields} | dict(change)
            elif name in ("task", "family") and isinstance(change, Mapping):
                change = change if "name" in change else describe(name, part) | dict(change)
            fields[name] = change
        return type(self)(**fields)

    def canonical(self) -> dict[str, Any]:
        """Everything as plain JSON values; equal configurations give equal text."""
        plain = self.model_dump(mode="json", exclude={"task", "family"})
        plain["task"] = describe("task", self.task)
        plain["family"] = describe("family", self.family)
        plain["schema_version"] = SCHEMA_VERSION
        return plain

    @property
    def run_id(self) -> str:
        """The first 12 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return digest(self.canonical())


def digest(plain: Mapping[str, Any]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of sorted JSON."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_yaml(path: str | Path, keys: str, build: Callable[[dict[str, Any]], Built]) -> Built:
    """What `build` makes of the mapping in a YAML file. Raises ConfigError naming the file.

    keys: what belongs in it, for the error.
    """
    path = Path(path)
    try:
        data = yaml.load(path.read_text(), Loader=_Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{path}: got {_short(data)}; allowed: a mapping with {keys}")
    try:
        return build(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 as a number (YAML 1.1 wants 1.0e-3) and refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        merge = "tag:yaml.org,2002:merge"
        own = [key for key, _ in node.value if key.tag != merge]
        keys = [self.construct_object(key, deep=True) for key in own]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"the key {', '.join(repeated)} is there twice")
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """Every inconsistency of a pydantic error in one line: field, what it got, what is allowed."""
    return "; ".join(_inconsistency(entry, model) for entry in error.errors())


def _inconsistency(entry: Any, model: type[BaseModel]) -> str:
    location = [str(part) for part in entry["loc"]]
    field = ".".join(location)
    if entry["type"] == "extra_forbidden":
        return f"unknown key {field}; allowed: {', '.join(_keys(location[:-1], model))}"
    if entry["type"] == "missing":
        return f"{field} is missing"
    if entry["type"] == "value_error":
        message = str(entry["ctx"]["error"])
        named = not field or message.startswith(field)
        return message if named else f"{field}: {message}"
    return f"{field} got {_short(entry['input'])}; {_allowed(entry)}"


_WORDS = {
    **{"int_type": "a whole number", "float_type": "a number", "bool_type": "true or false"},
    **{"string_type": "text", "tuple_type": "a list", "list_type": "a list"},
    **{"dict_type": "a mapping", "mapping_type": "a mapping", "model_type": "a mapping"},
    **{"greater_than": "above {gt:g}", "greater_than_equal": "{ge} or more"},
    **{"less_than": "below {lt}", "less_than_equal": "at most {le}"},
    "finite_number": "a finite number",
}


def _allowed(entry: Any) -> str:
    if entry["type"] in _WORDS:
        return "allowed: " + _WORDS[entry["type"]].format(**entry.get("ctx", {}))
    message = entry["msg"]
    return message[0].lower() + message[1:]


def _keys(location: list[str], model: Any) -> list[str]:
    for part in location:
        if not part.isdigit():  # a place in a tuple of models
            model = model.model_fields[part].annotation
            model = next(iter(get_args(model)), model)
    return sorted(model.model_fields)
