"""A probe finds what was planted, and nothing where nothing is."""

import numpy as np
import pytest

from probes import linear_probe, transfer


def planted(rng, basis, samples=400, classes=4):
    labels = rng.integers(classes, size=samples)
    noise = 0.1 * rng.normal(size=(samples, basis.shape[1]))
    return np.eye(classes)[labels] @ basis[:classes] + noise, labels


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_planted_label_is_read_and_its_shuffle_is_not(rng):
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    probe = linear_probe(*planted(rng, basis))
    assert probe.accuracy > 0.99
    assert probe.selectivity > 0.6
    assert probe.interval[0] <= probe.accuracy <= probe.interval[1]


def test_false_alarm_rate_on_noise(rng):
    hits = 0
    for _ in range(20):
        probe = linear_probe(rng.normal(size=(120, 6)), rng.integers(2, size=120))
        hits += probe.interval[0] > max(probe.majority, 0.5)
    assert hits <= 3


def test_transfer_between_equal_and_between_orthogonal_codes(rng):
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    table = transfer({3: planted(rng, basis), 4: planted(rng, basis), 5: planted(rng, basis[4:])})
    assert table.loc[3, 4] > 0.95
    assert table.loc[5, 5] > 0.95
    assert table.loc[3, 5] < 0.5


@pytest.mark.parametrize(
    ("states", "labels", "match"),
    [
        (np.zeros((4, 2)), np.zeros(4, int), "one class"),
        (np.zeros((4, 2)), np.zeros(3, int), "samples"),
        (np.full((4, 2), np.nan), np.array([0, 1, 0, 1]), "NaN"),
    ],
)
def test_bad_input_is_named(states, labels, match):
    with pytest.raises(ValueError, match=match):
        linear_probe(states, labels)
