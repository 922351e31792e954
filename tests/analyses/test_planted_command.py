"""`kappalens planted`, on a model of each side and by the cheapest method."""

import json

import pytest
from typer.testing import CliRunner

from analyses.cli import app

KEYS = {"method", "auroc", "size_error", "false_findings"}


def planted(*words):
    return CliRunner().invoke(app, ["planted", *words])


def test_json_holds_what_is_promised_and_nothing_else_is_printed():
    done = planted("--models", "2", "--methods", "attribution", "--seed", "3", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (method,) = found["methods"]
    assert set(method) >= KEYS
    assert method["method"] == "attribution"
    assert 0.5 < method["auroc"] <= 1
    assert (method["models"], method["controls"], method["false_findings"]) == (2, 2, 0)
    assert {row["construction"] for row in found["constructions"]} == {"induction", "pointer"}
    assert found["baseline"]["auroc"] < method["auroc"]


def test_the_text_says_the_same():
    done = planted("--models", "1", "--methods", "ig inputs")
    assert done.exit_code == 0, done.output
    assert "1 models with a circuit, 1 without" in done.output
    assert "ig inputs" in done.output
    assert "chance: 0.5" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--methods", "guess"), "allowed: exact, attribution"), (("--models", "0"), "--models")],
)
def test_wrong_input_is_refused(words, said):
    done = planted(*words)
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)
