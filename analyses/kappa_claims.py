"""What a study of kappa says about the claims of arXiv 2602.18333, and ours beside them.

Comparisons are ratios of two N*, or a kappa. Their ranges are fixed here, not in the study: "more"
is a ratio above 1; "about 1" is 1 within a factor of 1.5, since three lengths that share
everything have kappa 3 and 1.5 is a little nearer to 1 than to that; and lengths interfere or share
where kappa / kappa_sep lies outside the band of planted separate ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from analyses.claim import Claim, Comparison
from analyses.rank import rank_correlation
from training import NStar, SharingFactor
from training.sharing.interval import kappa_intervals, prefix_interval, ratio_interval
from training.sharing.replicate import SEPARATE, geometric_mean, prefix_size

ABOUT = 1.5
PAPER = "arXiv 2602.18333"
MORE, LESS = (1.0, math.inf), (0.0, 1.0)
INTERFERING, SHARED = (0.0, SEPARATE[0]), (SEPARATE[1], math.inf)
NEAR, ABOVE, AT_MOST = (1 / ABOUT, ABOUT), (ABOUT, math.inf), (0.0, ABOUT)
RECURRENT = {"lstm": "LSTM", "dense_ssm": "Dense-SSM"}
"""The paper's recurrent families; Mamba is ours."""
LEAST_CELLS = 6
"""Of fewer cells no rank correlation is judged."""
Searches = Mapping[int, Mapping[str, NStar]]
"""Of one cell: data seed, then search name, to N*."""


class _Study:
    """What is on record, asked for by cell; remembers which cells are missing."""

    def __init__(
        self, searches: Mapping[str, Searches], factors: Mapping[str, SharingFactor]
    ) -> None:
        self.searches = searches
        self.factors = factors
        self.missing: set[str] = set()

    def ratio(
        self,
        what: str,
        above: tuple[str, str],
        below: tuple[str, str],
        expected: tuple[float, float],
    ) -> Iterator[Comparison]:
        """One N* over another, each (cell, search name); nothing where a cell is missing."""
        first, second = (self._stars(*search) for search in (above, below))
        pairs = [(first[seed], second[seed]) for seed in sorted(set(first) & set(second))]
        if not pairs:
            return
        low, high = ratio_interval(pairs)
        yield Comparison(
            what=what,
            value=geometric_mean([star_ratio(*pair) for pair in pairs]),
            low=low,
            high=math.inf if high is None else high,
            expected=expected,
            short_of=_short_of([star for pair in pairs for star in pair], len(pairs)),
        )

    def _stars(self, cell: str, name: str) -> dict[int, NStar]:
        """One search of a cell by data seed; empty where it is not on record."""
        found = self.searches.get(cell, {})
        stars = {seed: searches[name] for seed, searches in found.items() if name in searches}
        self.missing |= set() if stars else {cell}
        return stars

    def kappa(
        self, what: str, cell: str, expected: tuple[float, float], separate: bool = False
    ) -> Iterator[Comparison]:
        """kappa of a cell, or its ratio to kappa_sep."""
        if cell not in self.factors:
            self.missing.add(cell)
            return
        factor = self.factors[cell]
        low, high = kappa_intervals(factor.replicates)[1 if separate else 0]
        value = factor.ratio if separate else factor.kappa
        yield Comparison(
            what=what,
            value=value,
            low=low,
            high=math.inf if high is None else high,
            expected=expected,
            bound=factor.bound,
            short_of=_short_of_factor(factor),
        )


def _short_of(stars: Sequence[NStar], data_seeds: int) -> str:
    if any(star.limited for star in stars):
        return "steps"
    return "data seeds" if data_seeds < 2 else ""


def _short_of_factor(factor: SharingFactor) -> str:
    stars = [star for r in factor.replicates for star in r.stars.values()]
    return _short_of(stars, len(factor.replicates))


def _joint(family: str, form: str) -> tuple[str, str]:
    return f"Z4-{family}-{form}", "joint"


def _alone(family: str, form: str, length: int) -> tuple[str, str]:
    return f"Z4-{family}-{form}", str(length)


def _cot_against_acot(study: _Study) -> Iterator[Comparison]:
    for cells, group in (("Z4-transformer", "Z_4"), ("deep-transformer", "Z_5")):
        yield from study.ratio(
            f"transformer on {group}, N* with ACoT over N* with CoT",
            (f"{cells}-acot", "joint"), (f"{cells}-cot", "joint"), MORE,
        )  # fmt: skip


def _recurrent_formats(study: _Study) -> Iterator[Comparison]:
    for family, name in RECURRENT.items():
        for form in ("outcome", "cot"):
            yield from study.ratio(
                f"{name}, N* with {form} over N* with ACoT",
                _joint(family, form), _joint(family, "acot"), MORE,
            )  # fmt: skip


def _outcome(study: _Study) -> Iterator[Comparison]:
    for family, name in RECURRENT.items():
        yield from study.ratio(
            f"outcome, N* of the transformer over N* of the {name}",
            _joint("transformer", "outcome"), _joint(family, "outcome"), MORE,
        )  # fmt: skip


def _longer_helps(study: _Study) -> Iterator[Comparison]:
    for family, name in RECURRENT.items():
        uniform, short = _joint(family, "acot"), (f"short_to_long-{family}-acot", "joint")
        yield from study.ratio(
            f"{name} ACoT, N* at uniform lengths over length 6 alone",
            uniform, _alone(family, "acot", 6), MORE,
        )  # fmt: skip
        yield from study.ratio(f"{name} ACoT, N* short-to-long over uniform", short, uniform, MORE)
    yield from study.ratio(
        "transformer CoT, N* at length 4 over length 6",
        _alone("transformer", "cot", 4), _alone("transformer", "cot", 6), LESS,
    )  # fmt: skip


def _shorter_helps(study: _Study) -> Iterator[Comparison]:
    for family, name in RECURRENT.items():
        yield from study.ratio(
            f"{name} outcome, N* at uniform lengths over short-to-long",
            _joint(family, "outcome"), (f"short_to_long-{family}-outcome", "joint"), MORE,
        )  # fmt: skip


def _transformer_kappa(study: _Study) -> Iterator[Comparison]:
    for form in ("outcome", "cot", "acot"):
        yield from study.kappa(f"kappa, {form}", f"Z4-transformer-{form}", AT_MOST)


def _interference(study: _Study) -> Iterator[Comparison]:
    for cell, name in (
        ("Z4-transformer-cot", "Z_4, 2 layers"),
        ("layout-usual", "Z_4, 1 layer"),
        ("deep-transformer-cot", "Z_5, 2 layers"),
    ):
        yield from study.kappa(f"kappa / kappa_sep on {name}", cell, INTERFERING, separate=True)


def _recurrent_kappa(study: _Study) -> Iterator[Comparison]:
    for family, name in RECURRENT.items():
        for form, expected in (("outcome", ABOVE), ("acot", ABOVE), ("cot", NEAR)):
            yield from study.kappa(f"kappa, {name} {form}", f"Z4-{family}-{form}", expected)


def _falls_with_length(study: _Study) -> Iterator[Comparison]:
    yield from study.ratio(
        "Dense-SSM ACoT, N* at length 4 over length 6",
        _alone("dense_ssm", "acot", 4), _alone("dense_ssm", "acot", 6), MORE,
    )  # fmt: skip


def _generalises(study: _Study) -> Iterator[Comparison]:
    """Rank correlation of kappa with the accuracy at twice the length, over cells with both."""
    found = {}
    for name, factor in study.factors.items():
        beyond = [r.joint.beyond for r in factor.replicates]
        known = [value for value in beyond if value is not None]
        if factor.bound == "=" and len(known) == len(beyond):
            found[name] = (factor.kappa, float(np.mean(known)))
    if len(found) < LEAST_CELLS:
        study.missing.add(f"{LEAST_CELLS} cells with kappa and accuracy at twice the length")
        return
    kappa, beyond = np.array(list(found.values())).T
    rho, low, high = rank_correlation(kappa, beyond)
    yield Comparison(
        what=f"rank correlation over {len(found)} cells",
        value=rho, low=low, high=high, expected=(0.0, 1.0),
    )  # fmt: skip


def _layout(study: _Study) -> Iterator[Comparison]:
    yield from study.ratio(
        "N* at all lengths, usual layout over aligned",
        ("layout-usual", "joint"), ("layout-aligned", "joint"), MORE,
    )  # fmt: skip
    yield from study.kappa("usual, kappa / kappa_sep", "layout-usual", INTERFERING, separate=True)
    yield from study.kappa(
        "inputs shifted, kappa / kappa_sep", "layout-right_aligned", INTERFERING, separate=True
    )
    yield from study.kappa("aligned, kappa / kappa_sep", "layout-aligned", SHARED, separate=True)


def _prefixes(study: _Study) -> Iterator[Comparison]:
    cell = "deep-transformer-acot"
    if cell not in study.factors:
        study.missing.add(cell)
        return
    replicates = study.factors[cell].replicates
    values = []
    for replicate in replicates:
        alone = {n: star.value for n, star in replicate.alone.items() if star.value is not None}
        if len(alone) == len(replicate.alone) and replicate.joint.value is not None:
            values.append(prefix_size(alone, replicate.pools) / replicate.joint.value)
    low, high = prefix_interval(replicates)
    yield Comparison(
        what="joint N* that steps learnt one by one would need, over the one measured",
        value=geometric_mean(values) if len(values) == len(replicates) else None,
        low=low,
        high=math.inf if high is None else high,
        expected=NEAR,
        short_of=_short_of_factor(study.factors[cell]),
    )


def star_ratio(above: NStar, below: NStar) -> float | None:
    """One N* over another; None where either is censored."""
    if above.value is None or below.value is None:
        return None
    return above.value / below.value


_MEASURES: tuple[tuple[str, str, str, Callable[[_Study], Iterator[Comparison]]], ...] = (
    ("3.1", PAPER, "Transformers need far less data with CoT than with ACoT.", _cot_against_acot),
    ("3.2", PAPER, "LSTM and Dense-SSM need least data with ACoT.", _recurrent_formats),
    ("3.3", PAPER, "With outcome supervision recurrent models learn from less than transformers.",
     _outcome),
    ("3.4", PAPER, "With ACoT longer sequences help recurrent models: the longest length alone "
     "needs least, then uniform, then short-to-long. CoT does not help transformers that way.",
     _longer_helps),
    ("3.5", PAPER, "With outcome supervision short sequences teach recurrent models more: "
     "short-to-long needs less than uniform.", _shorter_helps),
    ("4.1", PAPER, "Transformers have kappa near or below 1 in every format.", _transformer_kappa),
    ("4.2", PAPER, "Transformers with CoT interfere: kappa is below that of separate mechanisms.",
     _interference),
    ("4.3", PAPER, "Recurrent models have kappa far above 1 with outcome and ACoT, about 1 with "
     "CoT.", _recurrent_kappa),
    ("4.4", PAPER, "With ACoT the Dense-SSM's N* falls as the length grows.", _falls_with_length),
    ("4.5", PAPER, "High kappa goes with generalising to twice the length.", _generalises),
    ("layout", "ours", "The interference of transformer CoT comes and goes with its position "
     "layout: with the inputs and the chain each at a fixed place, whatever the length, lengths "
     "share; with either of them shifted they do not.", _layout),
    ("prefix", "ours", "The transformer's kappa with ACoT is what prefixes give: a sequence of "
     "length n supervises every step up to n, each learnt by itself.", _prefixes),
)  # fmt: skip
"""Number, source, statement, and what measures it."""


def kappa_claims(
    searches: Mapping[str, Searches], factors: Mapping[str, SharingFactor]
) -> tuple[Claim, ...]:
    """Every claim, judged by the finished cells of the `small` preset.

    searches: of every finished cell. factors: of those with a search for each length alone.
    """
    claims = []
    for number, source, statement, measure in _MEASURES:
        study = _Study(searches, factors)
        comparisons = tuple(measure(study))
        claims.append(
            Claim(
                number=number,
                source=source,
                statement=statement,
                comparisons=comparisons,
                missing=tuple(sorted(study.missing)),
            )
        )
    return tuple(claims)
