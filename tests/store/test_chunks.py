"""What one INSERT carries."""

from __future__ import annotations

import pytest

from flow_app.store.chunks import MOST_TEXT, slices


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], [(0, 0)]),
        ([1], [(0, 1)]),
        ([1] * 3, [(0, 3)]),
        ([1] * 7, [(0, 3), (3, 6), (6, 7)]),
        ([MOST_TEXT, 1], [(0, 1), (1, 2)]),
        ([MOST_TEXT - 1, 1, 1], [(0, 2), (2, 3)]),
        ([2 * MOST_TEXT, 2 * MOST_TEXT], [(0, 1), (1, 2)]),
    ],
)
def test_rows_are_cut_by_number_and_by_size_and_none_is_left_out(sizes, parts):
    assert [(part.start, part.stop) for part in slices(sizes, most_rows=3)] == parts
