from pathlib import Path

from store.catalogue import catalogue
from store.schema import MEASUREMENTS, TAG_TEXT

ROOT = Path(__file__).parent.parent.parent


def test_the_committed_page_is_what_the_schema_says() -> None:
    committed = (ROOT / "docs/reference/measurements.md").read_text(encoding="utf-8")
    assert committed == catalogue(), "run: python -m store.catalogue docs/reference/measurements.md"


def test_every_tag_is_explained_and_every_explanation_used() -> None:
    assert {tag for measurement in MEASUREMENTS for tag in measurement.tags} == set(TAG_TEXT)
