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


def test_what_a_row_lacks_is_left_out() -> None:
    columns = {
        WINDOW: [1, 2, 3, 4],
        schema.SRC: ["a", "", None, "b c"],
        schema.DST: ["x", "y", "z", "w"],
        schema.BYTES.name: [1, 2, 3, 4],
        schema.DURATION.name: [0.5, None, float("nan"), 2.0],
        schema.SRC_ADDRESS.name: ["p", None, 'q"', "r"],
    }
    assert encode(schema.EGRESS, pl.DataFrame(columns)).decode().splitlines() == [
        'egress,src=a,dst=x bytes=1i,duration=0.5,src_address="p" 1',
        "egress,dst=y bytes=2i 2",
        'egress,dst=z bytes=3i,src_address="q\\"" 3',
        'egress,src=b\\ c,dst=w bytes=4i,duration=2.0,src_address="r" 4',
    ]
    without = pl.DataFrame(columns | {schema.BYTES.name: [None, None, None, 4]}, schema_overrides={"bytes": pl.Int64})
    assert encode(schema.EGRESS, without).decode().splitlines() == [
        'egress,src=a,dst=x duration=0.5,src_address="p" 1',
        'egress,dst=z src_address="q\\"" 3',
        'egress,src=b\\ c,dst=w bytes=4i,duration=2.0,src_address="r" 4',
    ]
