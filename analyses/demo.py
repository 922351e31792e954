"""The demo: every study on real training runs, two at a time, and the report they make.

Facts of a finished study are kept in `DIR/facts`, runs in `DIR/runs`: calling again goes on where
it stopped, and `kappalens report DIR` renders without training.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

from analyses.folder import STAMP, claim, facts_path, finished, read
from analyses.page import SCHEMA_VERSION, plain, render, versions, write_json, write_text
from analyses.settings import FULL, QUICK, Settings
from analyses.studies import STUDIES
from analyses.studies.base import Section
from training.lock import locked
from training.processes import tell, worker_pool

Watch = Callable[[str, float, str], None]
"""watch(study, fraction done, what is happening)."""


def jobs(settings: Settings) -> list[tuple[str, str]]:
    """(job, study), the longest first: one job per kappa cell, one for each other study."""
    cells = [(cell.name, "sharing") for cell in settings.cells]
    return cells + [(name, name) for name in ("reduced", "rebuilt", "confinement", "folds")]


def demo(
    out: Path, *, seed: int = 0, quick: bool = False, workers: int = 2, watch: Watch | None = None
) -> Path:
    """Run what is missing in `out`, write report.html and report.json there, return the page.

    Errors: ValueError if `out` holds a demo of another seed or size, or is not a demo's folder.
    """
    settings = QUICK if quick else FULL
    claim(out, _identity(seed, quick))
    with locked([out]), worker_pool(workers) as (pool, messages):
        futures: dict[str, Future[None]] = {}
        for job, study in jobs(settings):
            if not finished(out, job):
                futures[job] = pool.submit(_work, out, job, study, settings, seed)
            elif watch:
                watch(job, 1.0, "done before")
        _follow(futures, messages, watch)
    return write_report(out)


def _identity(seed: int, quick: bool) -> dict:
    """What a demo's facts depend on; the digest tells settings of another version apart."""
    text = json.dumps(asdict(QUICK if quick else FULL), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return {
        "schema_version": SCHEMA_VERSION, "seed": seed, "quick": quick, "settings": digest
    }  # fmt: skip


def _work(out: Path, job: str, study: str, settings: Settings, seed: int) -> None:
    """One job, in a process of its own."""
    start = time.perf_counter()

    def progress(fraction: float, text: str) -> None:
        tell(job, fraction, text)

    facts = STUDIES[study].run(out, _only(settings, job), seed, progress)
    facts["seconds"] = time.perf_counter() - start
    write_json(facts_path(out, job), facts)
    progress(1.0, f"done in {facts['seconds']:.0f} s")


def _only(settings: Settings, job: str) -> Settings:
    """The settings with the one kappa cell that a job is about."""
    chosen = tuple(cell for cell in settings.cells if cell.name == job)
    return Settings(**{**{k: getattr(settings, k) for k in asdict(settings)}, "cells": chosen})


def _follow(futures: dict[str, Future[None]], messages, watch: Watch | None) -> None:
    """Pass messages on until every job is done; the first failure cancels what has not begun."""
    waiting = set(futures)
    try:
        while waiting:
            try:
                job, fraction, text = messages.get(timeout=0.2)
                if watch:
                    watch(job, fraction, text)
            except queue.Empty:
                for job in [job for job in waiting if futures[job].done()]:
                    waiting.discard(job)
                    futures[job].result()
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()  # what it was training resumes from its last checkpoint
        raise


def load_facts(out: Path) -> dict[str, dict]:
    """Facts by job, in the order of the report. Errors: ValueError that names what is missing."""
    stamp = read(out / STAMP, "quick", "seed")
    words = f"--out {out}" + (f" --seed {stamp['seed']}" if stamp["seed"] else "")
    settings, words = (QUICK, words + " --quick") if stamp["quick"] else (FULL, words)
    facts = {}
    for job, _ in sorted(jobs(settings), key=lambda pair: list(STUDIES).index(pair[1])):
        path = facts_path(out, job)
        if not path.exists():
            raise ValueError(f"{path} is missing: finish it with `kappalens demo {words}`")
        facts[job] = read(path, "seconds")
    return facts


def write_report(out: Path) -> Path:
    """report.html and report.json from the facts in `out`."""
    facts, stamp = load_facts(out), read(out / STAMP, "quick", "seed")
    sections = sections_of(facts)
    seconds = sum(f["seconds"] for f in facts.values())
    notes = {
        "seed": str(stamp["seed"]),
        "scope": "one draw: every finding is of the seeds named here, not of a population of runs",
        "work": f"{seconds:.0f} seconds of one core each, summed over the studies",
        **versions(),
    }
    lead = (
        f"Models trained from scratch with seed {stamp['seed']}, read from their checkpoints. "
        "Every finding is one draw, of the seeds it names or of this one."
    )
    if stamp["quick"]:
        lead = "QUICK SETTING, which checks the path and not the science. " + lead
    title = "How these models learnt: coordinates, bifurcations, circuits and kappa"
    page = render(title=title, lead=lead, sections=sections, notes=notes)
    write_json(out / "report.json", report_json(facts, stamp))
    return write_text(out / "report.html", page)


def sections_of(facts: dict[str, dict]) -> list[Section]:
    """The report's sections, in order."""
    cells = [f for f in facts.values() if "kappa" in f]
    return [
        study.section(cells) if name == "sharing" else study.section(facts[name])
        for name, study in STUDIES.items()
    ]


def report_json(facts: dict[str, dict], stamp: dict) -> dict:
    """The facts under the report's public keys."""
    reduced, confinement = facts["reduced"], facts["confinement"]
    folds, rebuilt = facts["folds"], facts["rebuilt"]
    cells = [f for f in facts.values() if "kappa" in f]
    return {
        "schema_version": SCHEMA_VERSION,
        "quick": stamp["quick"],
        "seeds": {"demo": stamp["seed"], "reduced": [m["seeds"] for m in reduced["members"]]},
        "manifold": {
            "dim": reduced["dim"],
            "captured": reduced["captured"],
            "off_manifold_gradient": {b: m["all"] for b, m in confinement["on"].items()},
            "off_manifold_gradient_by_matrix": {
                **confinement["on"],
                "off_the_manifold": confinement["off"],
            },
            "reduced_vs_full": {k: reduced[k] for k in ("r2", "relative_error")},
            "reduced_vs_full_by_initialisation": [
                {k: m[k] for k in ("initialisation", "seeds", "r2", "relative_error", "loss")}
                for m in reduced["members"]
            ],
            "emergence": {n: v["full"] for n, v in reduced["emergence"].items()},
            "rebuilt": {
                k: rebuilt[k]
                for k in ("loss", "network_loss", "captured", "captured_by_chance", "circuit")
            },
        },
        "branches": [
            {k: b[k] for k in ("start", "weight_decay", "parameter", "folds")}
            for b in folds["branches"]
        ],
        "bifurcations": folds["bifurcations"],
        "kappa": [plain(cell["kappa"]) for cell in cells],
        "circuits": [plain(cell["circuits"]) for cell in cells if cell["circuits"]],
    }
