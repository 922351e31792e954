"""A demo's folder is its own, damaged facts are done again, and one process writes there."""

import fcntl
import json
import threading

import pytest

from analyses.folder import STAMP, claim, facts_path, finished, read
from training.lock import LOCK, locked

IDENTITY = {"seed": 0, "quick": True}


def test_an_empty_folder_is_claimed_once_and_again(tmp_path):
    for _ in range(2):
        claim(tmp_path / "out", IDENTITY)
    assert read(tmp_path / "out" / STAMP) == IDENTITY


def test_another_demo_is_refused_by_what_differs(tmp_path):
    claim(tmp_path, IDENTITY)
    with pytest.raises(ValueError, match="seed 0 instead of 1"):
        claim(tmp_path, {**IDENTITY, "seed": 1})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_stamp_is_named(tmp_path, text):
    (tmp_path / STAMP).write_text(text)
    with pytest.raises(ValueError, match=STAMP):
        claim(tmp_path, IDENTITY)


@pytest.mark.parametrize("text", ["", '{"seconds": 1', "{}", "3"])
def test_damaged_facts_are_not_finished(tmp_path, text):
    claim(tmp_path, IDENTITY)
    assert not finished(tmp_path, "folds")
    facts_path(tmp_path, "folds").write_text(text)
    assert not finished(tmp_path, "folds")
    facts_path(tmp_path, "folds").write_text(json.dumps({"seconds": 1.0}))
    assert finished(tmp_path, "folds")


def test_the_lock_holds_one_and_lets_go(tmp_path):
    with locked([tmp_path]), pytest.raises(ValueError, match="in use"), locked([tmp_path]):
        pass
    with locked([tmp_path]):
        pass


def test_a_short_look_at_the_lock_is_waited_for(tmp_path):
    with locked([tmp_path]):
        pass
    with (tmp_path / LOCK).open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.2, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        with locked([tmp_path]):
            pass
