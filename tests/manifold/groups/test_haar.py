"""Columns are orthonormal, and their signs are as likely one way as the other."""

import numpy as np

from manifold.groups.haar import haar


def test_columns_are_orthonormal_and_centred():
    drawn = haar(np.random.default_rng(0), 4000, 3, 2)
    np.testing.assert_allclose(drawn.mT @ drawn, np.tile(np.eye(2), (4000, 1, 1)), atol=1e-12)
    error = np.sqrt(1 / 3 / 4000)  # an entry has mean 0 and variance 1 / 3
    assert np.abs(drawn.mean(0)).max() < 4.5 * error
    np.testing.assert_allclose((drawn**2).mean(0), 1 / 3, atol=0.03)
