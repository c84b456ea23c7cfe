"""Line protocol of frames as sums leave them: in several chunks, some of them empty."""

import polars as pl

from store import schema
from store.points import WINDOW, encode


def test_texts_in_chunks_of_which_one_is_empty() -> None:
    text, size = schema.SRC_ADDRESS.name, schema.BYTES.name
    parts = [pl.DataFrame({text: one}) for one in (["10.0.0.1"], ["gone"], ["10.0.0.2", None])]
    column = pl.concat(parts, rechunk=False)[text].filter(pl.Series([True, False, True, True]))
    assert column.chunk_lengths() == [1, 0, 2]
    frame = pl.DataFrame({WINDOW: [1, 2, 3], schema.SRC: ["a", "b", "c"], size: [1, 2, 3]}).with_columns(column)
    assert encode(schema.EGRESS, frame).decode().splitlines() == [
        'egress,src=a bytes=1i,src_address="10.0.0.1" 1',
        'egress,src=b bytes=2i,src_address="10.0.0.2" 2',
        "egress,src=c bytes=3i 3",
    ]
