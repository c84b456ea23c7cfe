"""Rows of many jobs as one frame."""

import numpy as np

from analysis.detectors.rows import QUIET, Rows, frame_of
from store import schema
from store.points import WINDOW, encode

TAGS: dict[str, str | float] = {schema.JOB: "a", schema.JOB_CLASS: "llm"}
RATE, EVENT, GPUS = schema.COHORT_RATE.name, schema.COHORT_EVENT.name, schema.JOB_GPUS.name


def test_parts_that_differ_in_their_columns_are_one_frame() -> None:
    first = Rows(
        schema.COHORT,
        {WINDOW: np.array([10, 20]), RATE: np.array([1.5, np.nan]), EVENT: np.array(["slow", ""], object)},
        {**TAGS, GPUS: 8},
    )
    other = Rows(schema.COHORT, {WINDOW: np.array([10]), GPUS: np.array([4.0])}, {**TAGS, schema.JOB: "b"})
    names = [WINDOW, schema.JOB, RATE, EVENT, GPUS]
    assert frame_of([first, other]).select(names).rows() == [
        (10, "a", 1.5, "slow", 8),
        (20, "a", None, "", 8),
        (10, "b", None, None, 4),
    ]
    assert b"gpus=8i" in encode(schema.COHORT, frame_of([first]))


def test_few_rows_may_be_none() -> None:
    names = WINDOW, schema.EVENT_BYTES.name, schema.DUE.name
    assert Rows.of(schema.CHECKPOINT, names, [], TAGS).frame().is_empty()
    rows = Rows.of(schema.CHECKPOINT, names, [(10, 2**60, 1.5), (20, 7, float("nan"))], TAGS)
    assert rows.frame().select(names).rows() == [(10, 2**60, 1.5), (20, 7, None)]
    assert rows.where(np.array([False, True]))[WINDOW].tolist() == [20]


def test_what_need_not_be_written_stays_marked() -> None:
    rows = Rows(schema.COHORT, {WINDOW: np.array([10, 20]), QUIET: np.array([True, False])}, TAGS)
    assert rows.frame().get_column(QUIET).to_list() == [True, False]
