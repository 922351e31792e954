"""One thing that an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KINDS = (
    "unreadable",
    "hash_mismatch",
    "not_finite",
    "other_shape",
    "missing",
    "out_of_order",
    "duplicate",
    "final_as_early",
    "jump",
    "not_descended",
    "mixed_threads",
    "mixed_versions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """kind: one of KINDS. step: None for what concerns a whole run. message: one line, what is
    wrong and what to do about it."""

    kind: str
    step: int | None
    file: str
    message: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind got {self.kind!r}; allowed: {', '.join(KINDS)}")

    @classmethod
    def at(cls, kind: str, step: int | None, file: Path, message: str) -> Finding:
        return cls(kind=kind, step=step, file=str(file), message=" ".join(message.split()))

    def __str__(self) -> str:
        step = "" if self.step is None else f" (step {self.step})"
        return f"{self.kind}{step}: {self.file}: {self.message}"
