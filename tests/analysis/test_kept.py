"""Rows of numbers that only grow."""

import numpy as np

from analysis.kept import Kept


def grown(count: int, width: int = 2) -> Kept:
    rows = Kept(width, np.float32)
    for number in range(count):
        rows.append(np.full(width, number))
    return rows


def test_rows_come_back_in_their_order() -> None:
    assert grown(0).array().shape == (0, 2)
    assert grown(130).array(slice(1, 2))[:, 0].tolist() == list(range(130))
    assert len(grown(130)) == 130


def test_a_copy_goes_its_own_way() -> None:
    rows = grown(70)
    other = rows.copy()
    rows.append(np.full(2, -1))
    other.append(np.full(2, -2))
    assert (rows.array()[70, 0], other.array()[70, 0]) == (-1, -2)
    assert other.chunks[0] is rows.chunks[0], "a day of thousands of nodes is there once"


def test_of_many_every_second_is_kept() -> None:
    rows = grown(150)
    assert rows.chosen(np.arange(150) % 2 == 0).array()[:, 0].tolist() == list(range(0, 150, 2))
    assert rows.empty().array().shape == (0, 2)
