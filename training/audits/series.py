"""Weights along training, in any folder: which files are which step, and a sample of each step."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from training.checkpoint import WEIGHTS, folder_name
from training.run import CHECKPOINTS, Run, kept_steps

SAMPLED = 32768
"""Entries that stand for all weights of a step; at least LEAST of each tensor."""
LEAST = 256
_PLAIN = (torch.float16, torch.float32, torch.float64)
_SHARD = re.compile(r"[-_.]?\d+-of-\d+")
_STEP = re.compile(r"(?:step|checkpoint|ckpt|iter(?:ation)?|epoch)s?[-_=.]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)(?!.*\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The kept steps of one model. run: whose they are; None for a folder that is not ours.

    files: step -> the safetensors files that together hold its weights, steps ascending.
    """

    files: Mapping[int, tuple[Path, ...]]
    run: Run | None = None

    @classmethod
    def of(cls, run: Run) -> Series:
        folder = run.path / CHECKPOINTS
        steps = kept_steps(run.path)
        files = {step: (folder / folder_name(step) / WEIGHTS,) for step in steps}
        return cls(files=files, run=run)

    def load(self, step: int) -> dict[str, np.ndarray]:
        """All tensors of a step. ValueError, one line that names the file, if one is unreadable.

        What numpy has no type for (bfloat16) comes as float32.
        """
        arrays: dict[str, np.ndarray] = {}
        for file in self.files[step]:
            try:
                for name, value in load_file(file).items():
                    odd = value.is_floating_point() and value.dtype not in _PLAIN
                    arrays[name] = (value.float() if odd else value).numpy()
            except OSError as error:
                why = error.strerror or str(error)
                raise ValueError(f"{file}: cannot be read ({why})") from error
            except (SafetensorError, KeyError, ValueError) as error:
                raise ValueError(f"{file}: is truncated or not safetensors ({error})") from error
        return arrays


def foreign(folder: Path) -> list[Series]:
    """The series in a folder that `train` did not write.

    A step's number is what follows step, checkpoint, ckpt, iter or epoch in the name of the file
    or of a folder above it (the nearest first), else the last number in the file's name, else in
    its folder's. Files whose paths agree but for that number are one series; -00001-of-00003 marks
    a part. Optimisers' files, hidden ones and those without a number are passed over.
    """
    found: dict[str, dict[int, list[Path]]] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        parts = file.relative_to(folder).with_suffix("").parts
        if any(part.startswith(".") for part in parts) or parts[-1].startswith("optim"):
            continue
        numbered = _numbered([*parts[:-1], _SHARD.sub("", parts[-1])])
        if numbered is not None:
            name, step = numbered
            found.setdefault(name, {}).setdefault(step, []).append(file)
    return [
        Series(files={step: tuple(steps[step]) for step in sorted(steps)})
        for _, steps in sorted(found.items())
    ]


def _numbered(parts: Sequence[str]) -> tuple[str, int] | None:
    """The path with a star for its step, and the step."""
    nearest = range(len(parts) - 1, -1, -1)
    tries = [(i, _STEP) for i in nearest] + [(i, _NUMBER) for i in nearest[:2]]
    for i, pattern in tries:
        match = pattern.search(parts[i])
        if match:
            start, end = match.span(1)
            starred = f"{parts[i][:start]}*{parts[i][end:]}"
            return "/".join([*parts[:i], starred, *parts[i + 1 :]]), int(match[1])
    return None


class Sampler:
    """The same entries of every step: a fixed draw from each trained tensor of floats.

    names and slices: whose entries lie where in a sample. Frozen tensors are left out.
    """

    def __init__(self, first: Mapping[str, np.ndarray], frozen: Sequence[str] = ()) -> None:
        self.shapes = {name: value.shape for name, value in first.items()}
        sizes = {
            name: value.size
            for name, value in first.items()
            if value.size and value.dtype.kind == "f" and name not in frozen
        }
        self._index: dict[str, np.ndarray] = {}
        self.slices: dict[str, slice] = {}
        start, total = 0, sum(sizes.values())
        for name in sorted(sizes):
            size = sizes[name]
            count = max(LEAST, SAMPLED * size // total)
            rng = np.random.Generator(np.random.Philox(zlib.crc32(name.encode())))
            drawn = np.arange(size) if count >= size else rng.integers(size, size=count)
            self._index[name] = np.unique(drawn)
            self.slices[name] = slice(start, start + len(self._index[name]))
            start += len(self._index[name])

    def differs(self, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        """Names that are missing, new or of another shape than in the first step."""
        for name in sorted(self.shapes.keys() | arrays.keys()):
            there = arrays[name].shape if name in arrays else None
            if there != self.shapes.get(name):
                yield name

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sampled entries, (n,) float32."""
        parts = [arrays[name].reshape(-1)[index] for name, index in self._index.items()]
        return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
