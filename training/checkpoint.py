"""One kept step of a run: weights, the optimiser's vectors, and what identifies them. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from training.config import SCHEMA_VERSION
from training.families import Family

if TYPE_CHECKING:
    from training.hooked import HookedModel
    from training.tasks import Task

Arrays = Mapping[str, np.ndarray]
ENGINE = ("best", "best_step", "train_sum", "train_count", "outcome")
WEIGHTS, OPTIMISER, META = "model.safetensors", "optimizer.safetensors", "meta.json"
PRUNED = "optimizer_pruned"
"""In meta.json: `prune` removed the optimiser's vectors."""

_META = {
    "time": (int, float),
    "weights_sha256": str,
    "optimizer_sha256": (str, type(None)),
    "engine": dict,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A folder that holds one step. Files are read when they are first asked for, then checked.

    step: updates made so far. time: sum of the learning rates of those updates, the time of the
    gradient flow. metrics: the evaluation at this step.
    Reading raises ValueError, one line that names the file, where it is truncated or foreign.
    """

    path: Path
    step: int
    run_id: str
    task: Task
    family: Family
    metrics: Mapping[str, float]

    @cached_property
    def meta(self) -> dict[str, Any]:
        """meta.json: step, time, tokens_seen, hashes, versions, what the engine resumes from."""
        file = self.path / META
        meta = read_json(file)
        if meta.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"{file}: schema_version {meta.get('schema_version')!r}; allowed: {SCHEMA_VERSION}"
            )
        if meta.get("run_id") != self.run_id:
            raise ValueError(
                f"{file}: belongs to run {meta.get('run_id')!r}; allowed here: {self.run_id}"
            )
        if meta.get("step") != self.step:
            raise ValueError(f"{file}: is of step {meta.get('step')!r}; allowed here: {self.step}")
        wrong = [key for key, kind in _META.items() if not isinstance(meta.get(key, ()), kind)]
        if "engine" not in wrong:
            wrong += [f"engine.{key}" for key in ENGINE if key not in meta["engine"]]
        if wrong:
            raise ValueError(f"{file}: lacks {', '.join(wrong)}, or has another type there")
        return meta

    @property
    def time(self) -> float:
        return self.meta["time"]

    @property
    def hash(self) -> str:
        """SHA-256 over the names, dtypes, shapes and bytes of all weights."""
        return self.meta["weights_sha256"]

    @cached_property
    def weights(self) -> Arrays:
        """Name to read-only array, frozen parameters included."""
        return self._arrays(WEIGHTS, self.meta["weights_sha256"])

    @property
    def pruned(self) -> bool:
        """Whether `prune` removed the optimiser's vectors, so that training cannot go on here."""
        return bool(self.meta.get(PRUNED, False))

    @cached_property
    def optimizer(self) -> Arrays | None:
        """ "slot.name" to read-only array; None for a rule without memory (plain SGD).

        Raises ValueError where they were pruned.
        """
        if self.pruned:
            raise ValueError(
                f"{self.path / OPTIMISER}: was removed by prune with keep 'last', so only weights"
                " are left; train the run again under another root for the optimiser's vectors"
            )
        digest = self.meta["optimizer_sha256"]
        return None if digest is None else self._arrays(OPTIMISER, digest)

    def params(self, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        """Weights as fresh tensors, in the run's dtype unless another is given."""
        tensors = {name: torch.from_numpy(value.copy()) for name, value in self.weights.items()}
        return tensors if dtype is None else {k: v.to(dtype) for k, v in tensors.items()}

    def model(self) -> HookedModel:
        """The model with TransformerLens hooks; the first call imports transformer_lens."""
        from training.hooked import HookedModel

        return HookedModel(self.family, self.params(), time=task_time(self.task))

    def check(self) -> None:
        """Read everything; raises ValueError unless all is there and what was written.

        What was pruned is not asked for.
        """
        _ = self.weights, self.pruned or self.optimizer

    def _arrays(self, name: str, digest: str) -> Arrays:
        file = self.path / name
        try:
            arrays = load(file.read_bytes())
        except OSError as error:
            raise ValueError(f"{file}: cannot be read ({error.strerror})") from error
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(f"{file}: is truncated or not safetensors ({error})") from error
        for value in arrays.values():
            value.flags.writeable = False
        found = arrays_hash(arrays)
        if found != digest:
            raise ValueError(
                f"{file}: its content has SHA-256 {found[:12]}, {META} says {digest[:12]};"
                " it is not the file that was written with it"
            )
        return arrays


def write_checkpoint(
    folder: Path, *, step: int, weights: Arrays, optimizer: Arrays, meta: Mapping[str, Any]
) -> None:
    """Write `folder`/step_<step>, under another name first so that it is whole or absent.

    Raises OSError where it cannot be written; what was written of it is removed.

    meta: what goes into meta.json beside step, hashes, thread count and versions.
    """
    everything = {
        "schema_version": SCHEMA_VERSION,
        "step": step,
        **meta,
        "weights_sha256": arrays_hash(weights),
        "optimizer_sha256": arrays_hash(optimizer) if optimizer else None,
        "torch_threads": torch.get_num_threads(),
        "versions": versions(),
    }
    target = folder / folder_name(step)
    partial = folder / f".{target.name}.{os.getpid()}"
    partial.mkdir(parents=True)
    try:
        (partial / WEIGHTS).write_bytes(save(dict(weights)))
        if optimizer:
            (partial / OPTIMISER).write_bytes(save(dict(optimizer)))
        (partial / META).write_text(json.dumps(everything, indent=1) + "\n")
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def folder_name(step: int) -> str:
    return f"step_{step:08d}"


def arrays_hash(arrays: Arrays) -> str:
    """SHA-256 over (name, dtype, shape, bytes) of every array, by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}|{value.dtype.str}|{value.shape}|".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object. Raises ValueError, one line that names the file."""
    try:
        value = json.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{file}: is truncated or not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file}: got a {type(value).__name__}; allowed: a JSON object")
    return value


def task_time(task: Task) -> int:
    """Tokens per sequence, the same for every sequence of a task."""
    return task.evaluation(0, 1).tokens.shape[1]


@cache
def versions() -> dict[str, str]:
    """Versions of what decides the bits."""
    found = {"python": platform.python_version()}
    for name in ("kappalens", "numpy", "torch", "safetensors"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
