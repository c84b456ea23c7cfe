"""Texts as numbers: whoever forges senders must not fill memory."""

import polars as pl
import pytest

from ingest.flows.text_numbers import Vocabulary


@pytest.mark.parametrize(("length", "most"), [(1, 9_000), (15_000, 400)])
def test_a_vocabulary_keeps_neither_many_words_nor_long_ones(length: int, most: int) -> None:
    vocabulary = Vocabulary()
    for batch in range(60):
        names = [f"{batch}-{number}".ljust(length, "x") for number in range(300)]
        words = vocabulary.words(pl.Series("exporter", names, pl.String))
        assert words.texts.gather(words.codes).to_list() == names
        assert len(vars(vocabulary)["_texts"]) < most
