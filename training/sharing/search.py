"""kappa of one cell from nothing: every search it needs, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from training.config import RunConfig
from training.sharing.factor import JOINT, SharingFactor, searches_of
from training.sharing.n_star import NStar
from training.sharing.sample_size import Progress, sample_size


def sharing_factor(
    config: RunConfig,
    *,
    root: str | Path,
    lrs: Sequence[float],
    seeds: Sequence[int],
    data_seeds: Sequence[int] = (0,),
    search: str = "descent",
    n50: bool = True,
    largest: int | None = None,
    progress: Progress | None = None,
) -> SharingFactor:
    """kappa of a cell: for each data seed N* of config's task, and of each of its lengths alone.

    config: as in `sample_size`; its task has several `lengths`, and a field `longest` that lets a
    length alone keep the cell's layout and model shape. lrs, seeds (of the initial weights),
    search, n50 and largest serve all searches. One after the other, in this process.

    Errors: ValueError for a task without lengths, repeated data seeds, and those of `sample_size`.
    """
    if not data_seeds or len(set(data_seeds)) < len(data_seeds):
        raise ValueError(f"data_seeds: got {tuple(data_seeds)}, allowed one or more different ones")
    configs = searches_of(config)
    jobs = [(data_seed, name) for data_seed in data_seeds for name in configs]
    report = _shared_progress(progress, jobs)
    stars: dict[int, dict[str, NStar]] = {data_seed: {} for data_seed in data_seeds}
    for data_seed, name in jobs:
        stars[data_seed][name] = sample_size(
            configs[name].replace(seeds={"data": data_seed}),
            root=root,
            lrs=lrs,
            seeds=seeds,
            search=search,
            n50=n50,
            largest=largest,
            progress=lambda share, text, job=(data_seed, name): report(job, share, text),
        )
    return SharingFactor.of(config, stars)


def _shared_progress(
    progress: Progress | None, jobs: list[tuple[int, str]]
) -> Callable[[tuple[int, str], float, str], None]:
    """Shares of all searches in one; a joint one counts as much as its lengths together."""
    shares = dict.fromkeys(jobs, 0.0)
    several = len({data_seed for data_seed, _ in jobs}) > 1
    alone = sum(name != JOINT for _, name in jobs)
    joint = len(jobs) - alone
    weights = {job: 0.5 / (joint if job[1] == JOINT else alone) for job in jobs}

    def report(job: tuple[int, str], share: float, text: str) -> None:
        shares[job] = share
        if progress:
            data_seed, name = job
            label = "all lengths" if name == JOINT else f"length {name}"
            label += f", data seed {data_seed}" if several else ""
            progress(sum(weights[j] * shares[j] for j in jobs), f"{label}: {text}")

    return report
