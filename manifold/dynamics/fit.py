"""Which equation a training run follows, read from its checkpoints (theory, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from manifold.dynamics.field import ReducedField
from manifold.dynamics.sparse_fit import LIBRARIES, SparseFit, sparse_fit
from manifold.dynamics.structured_fit import StructuredFit, structured_fit
from manifold.dynamics.trajectory import Given, read_trajectories

METHODS = ("structured", "sparse")


@overload
def fit_ode(
    trajectories: Given | Sequence[Given],
    method: Literal["structured"] = "structured",
    *,
    field: ReducedField | None = None,
    held_out: int | None = None,
    seconds: float = 120.0,
) -> StructuredFit: ...


@overload
def fit_ode(
    trajectories: Given | Sequence[Given],
    method: Literal["sparse"],
    *,
    library: str = "sigmoid products",
    held_out: int | None = None,
    seconds: float = 120.0,
) -> SparseFit: ...


def fit_ode(
    trajectories: Given | Sequence[Given],
    method: str = "structured",
    *,
    field: ReducedField | None = None,
    library: str = "sigmoid products",
    held_out: int | None = None,
    seconds: float = 120.0,
) -> StructuredFit | SparseFit:
    """The equation that the checkpoints imply, judged by its rollouts on runs it has not seen.

    trajectories: what `project` returns, (times, states) of one run, or a list of these; steps
    may be uneven or log-spaced. All in the same coordinates.
    method "structured": the exact fields of the task's query kinds, `field`, with unknown weights,
    weight decay and time scale: it reports the data's mixture. `field` must have the coordinates of
    the trajectories; its distractors are those of its task. After `data = project(runs)` it is
    reduced_field(runs[0].task), with layers and heads where they are not 2 and 1.
    "sparse": terms of `library`, whose threshold is chosen by rollout, for when no field is known.
    held_out: the last so many runs are kept for the verdict; None, a quarter of them, and none
    where there is one run only: the verdict then says so.
    seconds: of CPU time; a fit that needs more ends there and says so.

    What cannot be found is said in `verdict`: a rollout that diverges, weights that the runs do not
    tell apart, runs that do not move. ValueError for runs of one checkpoint, times that do not
    increase, and states that are not of the field's coordinates.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds!r}; allowed: a number above 0")
    runs = read_trajectories(trajectories)
    most = len(runs) - 1
    outside = -(-most // 4) if held_out is None else held_out
    if isinstance(outside, bool) or not isinstance(outside, int) or not 0 <= outside <= most:
        raise ValueError(
            f"held_out is {held_out!r} of {len(runs)} runs; allowed: 0 to {most} (one at least is "
            f"fitted), or None"
        )
    fitted, rest = runs[: len(runs) - outside], runs[len(runs) - outside :]
    if method == "sparse":
        if library not in LIBRARIES:
            raise ValueError(f"library is {library!r}; allowed: {', '.join(LIBRARIES)}")
        return sparse_fit(fitted, rest, library, seconds=seconds)
    if field is None:
        raise ValueError(
            "method 'structured' needs field: reduced_field(task, coordinates=..) of the task and "
            "the basis that the runs were projected in; without one use method='sparse'"
        )
    if field.dim != runs[0].states.shape[1]:
        raise ValueError(
            f"the field has {field.dim} coordinates and the runs have {runs[0].states.shape[1]}; "
            f"give reduced_field(task, coordinates=basis) with the basis of the projection"
        )
    named = next((run.coordinates for run in runs if run.coordinates), field.names)
    if named not in (field.names, field.basis.names):
        differs = next(
            f"{ours} in the field, {theirs} in the runs"
            for ours, theirs in zip(field.basis.names, named, strict=True)
            if ours != theirs
        )
        raise ValueError(
            f"field and runs are in different coordinates: {differs}; give "
            f"reduced_field(task, coordinates=basis) with the basis of the projection"
        )
    return structured_fit(fitted, rest, field, seconds=seconds)
