"""Embedding rows for one model and for stacked members, and none beyond the table."""

import pytest
import torch

from training.families.base import lookup


def test_stacked_members_read_their_own_tables():
    tables = torch.randn(3, 5, 2)
    index = torch.randint(5, (3, 4, 6))
    alone = torch.stack([lookup(table, rows) for table, rows in zip(tables, index, strict=True)])
    torch.testing.assert_close(lookup(tables, index), alone, rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [-1, 5])
@pytest.mark.parametrize("members", [0, 2])
def test_an_index_outside_the_table_is_refused(wrong, members):
    shape = (members,) if members else ()
    table, index = torch.zeros(*shape, 5, 2), torch.zeros(*shape, 1, 3, dtype=torch.long)
    index[..., -1] = wrong
    with pytest.raises(ValueError, match="0 to 4"):
        lookup(table, index)
