"""The folder of a demo: what it is, and what is finished in it."""

from __future__ import annotations

from pathlib import Path

from analyses.page import write_json
from training.checkpoint import read_json

STAMP = "demo.json"


def claim(out: Path, identity: dict) -> None:
    """Make the folder, or check that it is this demo's. ValueError says why it cannot be used."""
    stamp = out / STAMP
    if stamp.exists():
        found = read(stamp, *identity)
        other = [f"{k} {found[k]!r} instead of {v!r}" for k, v in identity.items() if found[k] != v]
        if other:
            raise ValueError(f"{out} holds another demo ({', '.join(other)}); use another --out")
        return
    try:
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out} is not empty and not a demo's folder; use another --out")
        (out / "facts").mkdir(parents=True, exist_ok=True)
        write_json(stamp, identity)
    except OSError as error:
        raise ValueError(
            f"{out}: a demo cannot be written here ({error.strerror}); --out takes a new or empty "
            "folder that you may write"
        ) from error


def facts_path(out: Path, job: str) -> Path:
    return out / "facts" / f"{job}.json"


def finished(out: Path, job: str) -> bool:
    """Whether the job's facts are there and can be read; a damaged file is done again."""
    try:
        read(facts_path(out, job), "seconds")
    except ValueError:
        return False
    return True


def read(path: Path, *keys: str) -> dict:
    """A JSON object that has these keys. ValueError names the file."""
    value = read_json(path)
    missing = [key for key in keys if key not in value]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: it was not written by a demo")
    return value
