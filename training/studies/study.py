"""KappaStudy: the cells of a table of kappa, and the searches that fill it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, model_validator

from training.config import (
    SCHEMA_VERSION,
    SEEDS,
    ConfigError,
    RunConfig,
    Strict,
    digest,
    one_line,
    read_yaml,
    to_tuple,
)
from training.families import Family
from training.naming import describe, resolve
from training.sharing.factor import searches_of
from training.sharing.searches import SEARCHES
from training.tasks import Task

Numbers = Annotated[tuple[float, ...], BeforeValidator(to_tuple)]
Whole = Annotated[tuple[int, ...], BeforeValidator(to_tuple)]
OF_THE_CELL = ("study", "task", "family", "steps", "train_size", "seeds")
"""Fields of a RunConfig that a study sets itself, so `run` may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One search for N*: a cell's task, or one of its lengths alone, under one data seed.

    search_name: "joint", or the length as text. lrs x seeds: the members of every size.
    config: what every run of the search has in common; its seeds.data is the data seed.
    """

    cell: str
    data_seed: int
    search_name: str
    config: RunConfig
    lrs: tuple[float, ...]
    seeds: tuple[int, ...]
    search: str
    n50: bool
    largest: int | None

    @property
    def name(self) -> str:
        """<cell>.<data seed>.<search>: also the name of its file."""
        return f"{self.cell}.{self.data_seed}.{self.search_name}"

    @property
    def identity(self) -> str:
        """12 hexadecimal digits; equal for searches that would train the same runs."""
        return digest({"config": self.config.canonical(), **self.arguments()})

    def plain(self) -> dict[str, Any]:
        """As JSON values; `from_plain` reads them back."""
        return {
            "cell": self.cell,
            "data_seed": self.data_seed,
            "search_name": self.search_name,
            "config": self.config.canonical(),
            **self.arguments(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Job:
        """The job that `plain` wrote."""
        grids = {key: tuple(plain[key]) for key in ("lrs", "seeds")}
        config = RunConfig.from_mapping(plain["config"])
        return cls(**{**plain, **grids, "config": config})

    def arguments(self) -> dict[str, Any]:
        """What `sample_size` takes beside the configuration and the root."""
        return {
            "lrs": list(self.lrs),
            "seeds": list(self.seeds),
            "search": self.search,
            "n50": self.n50,
            "largest": self.largest,
        }


class Cell(Strict):
    """One row of the table: a task, a family, and what its searches may spend.

    lrs, seeds: the grid of members; seeds None for the study's. steps: at most, per member.
    data_seeds: replicates of every search; None for the study's.
    searches: "all" for kappa, "joint" for N* of the task alone. run: RunConfig fields that differ
    from the study's.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    task: Annotated[Task, PlainValidator(lambda value: resolve("task", value))]
    family: Annotated[Family, PlainValidator(lambda value: resolve("family", value))]
    lrs: Numbers
    steps: int = Field(ge=1)
    seeds: Whole | None = None
    data_seeds: Whole | None = None
    searches: Literal["all", "joint"] = "all"
    run: Mapping[str, Any] = {}


class KappaStudy(Strict):
    """A table of kappa: equal in every cell but for what the cell names.

    study: the folder's name. run: RunConfig fields shared by all runs; run.stop.loss is the
    threshold. seeds: initialisation seeds, members of every size. data_seeds: replicates of every
    search. search: a key of SEARCHES. n50: also find the size that half of the members solve.
    largest: no size above it is tried; None for all there is.

    Raises ConfigError, one line for all that is wrong.
    """

    study: str
    run: Mapping[str, Any] = {}
    seeds: Whole = (0,)
    data_seeds: Whole = (0,)
    search: str = "descent"
    n50: bool = True
    largest: int | None = Field(default=None, ge=1)
    cells: Annotated[tuple[Cell, ...], BeforeValidator(to_tuple)]

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise ConfigError(one_line(error, type(self))) from None

    @model_validator(mode="after")
    def _consistent(self) -> KappaStudy:
        wrong = list(_problems(self))
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> KappaStudy:
        """A study from plain values; `tables` are products that become cells.

        tables: a list of {tasks: {name: task}, families: {name: {family, lrs, steps, ...}},
        formats: [...]}; a product's cell is called <task>-<family>-<format>.
        """
        plain = dict(data)
        version = plain.pop("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"schema_version got {version!r}; this version reads {SCHEMA_VERSION}: open it with"
                " the version that wrote it"
            )
        products = plain.pop("tables", [])
        try:
            made = [cell for product in products for cell in _product(**product)]
            cells = [*made, *plain.pop("cells", [])]
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                "tables and cells: allowed: lists; a table has tasks, families (mappings) and"
                f" formats ({error})"
            ) from error
        return cls(**plain, cells=cells)

    @classmethod
    def from_yaml(cls, path: str | Path) -> KappaStudy:
        """A study from a YAML file. Raises ConfigError naming the file."""
        return read_yaml(path, "study, run, cells or tables", cls.from_mapping)

    def canonical(self) -> dict[str, Any]:
        """Everything as plain JSON values; equal studies give equal text."""
        plain = self.model_dump(mode="json", exclude={"cells"})
        plain["cells"] = [
            cell.model_dump(mode="json", exclude={"task", "family"})
            | {"task": describe("task", cell.task), "family": describe("family", cell.family)}
            for cell in self.cells
        ]
        return plain | {"schema_version": SCHEMA_VERSION}

    def config(self, cell: Cell) -> RunConfig:
        """What all runs of a cell have in common."""
        fields = {**self.run, **cell.run}
        optimiser = {**fields.pop("optimiser", {}), "lr": cell.lrs[0]}
        return RunConfig(
            **fields,
            study=self.study,
            task=cell.task,
            family=cell.family,
            steps=cell.steps,
            optimiser=optimiser,
        )

    def jobs(self, cells: Sequence[str] | None = None) -> tuple[Job, ...]:
        """Every search of every cell, or of the named ones; of one cell the joint search first."""
        return tuple(job for cell in self.chosen(cells) for job in self._jobs(cell))

    def chosen(self, cells: Sequence[str] | None = None) -> tuple[Cell, ...]:
        """The named cells in the study's order; all for None. ValueError for an unknown name."""
        known = [cell.name for cell in self.cells]
        unknown = sorted(set(cells or ()) - set(known))
        if unknown:
            raise ValueError(f"cell: got {', '.join(unknown)}; allowed: {', '.join(known)}")
        return tuple(cell for cell in self.cells if cells is None or cell.name in cells)

    def _jobs(self, cell: Cell) -> Iterator[Job]:
        whole = self.config(cell)
        parts = searches_of(whole) if cell.searches == "all" else {"joint": whole}
        for data_seed in cell.data_seeds or self.data_seeds:
            for name, config in parts.items():
                yield Job(
                    cell=cell.name,
                    data_seed=data_seed,
                    search_name=name,
                    config=config.replace(seeds={"data": data_seed}),
                    lrs=cell.lrs,
                    seeds=cell.seeds or self.seeds,
                    search=self.search,
                    n50=self.n50,
                    largest=self.largest,
                )


def presets() -> tuple[str, ...]:
    """Names of the studies that come with the package."""
    files = (resources.files("training.studies") / "presets").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def preset(name: str) -> KappaStudy:
    """A study that comes with the package. Raises ValueError for an unknown name."""
    if name not in presets():
        raise ValueError(f"preset: got {name!r}; allowed: {', '.join(presets())}")
    with resources.as_file(
        resources.files("training.studies") / "presets" / f"{name}.yaml"
    ) as file:
        return KappaStudy.from_yaml(file)


def _product(
    tasks: Mapping[str, Any], families: Mapping[str, Any], formats: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for task_name, task in tasks.items():
        for family_name, rest in families.items():
            for form in formats:
                name = f"{task_name}-{family_name}-{form}"
                yield {"name": name, "task": {**task, "format": form}, **rest}


def _problems(study: KappaStudy) -> Iterator[str]:
    """Everything wrong between fields, each with what is allowed."""
    if not study.cells:
        yield "cells got none; allowed: one or more"
    if study.search not in SEARCHES:
        yield f"search got {study.search!r}; allowed: {', '.join(SEARCHES)}"
    names = [cell.name for cell in study.cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield f"cells: the name {', '.join(twice)} is there twice"
    grids = {"seeds": study.seeds, "data_seeds": study.data_seeds}
    for cell in study.cells:
        lrs = cell.lrs
        if not lrs or len(set(lrs)) < len(lrs) or min(lrs) <= 0:
            yield f"{cell.name}.lrs got {list(lrs)}; allowed: one or more different numbers above 0"
        own_grids = {"seeds": cell.seeds, "data_seeds": cell.data_seeds}
        grids |= {f"{cell.name}.{key}": v for key, v in own_grids.items() if v is not None}
    for name, values in grids.items():
        if not values or len(set(values)) < len(values) or min(values) < 0 or max(values) >= SEEDS:
            allowed = "one or more different whole numbers, 0 to 2^63 - 1"
            yield f"{name} got {list(values)}; allowed: {allowed}"
    own = sorted(set(OF_THE_CELL) & {*study.run, *(key for c in study.cells for key in c.run)})
    if own:
        yield f"run got {', '.join(own)}; allowed: fields of a run that a cell does not set"
        return
    for cell in study.cells:
        if not cell.lrs or min(cell.lrs) <= 0:
            continue
        try:
            config = study.config(cell)
            if config.stop.loss is None:
                yield f"cell {cell.name}: run.stop.loss is None, but it is the threshold of success"
            if cell.searches == "all":
                searches_of(config)
        except ValueError as error:
            yield f"cell {cell.name}: {error}"
