"""Writes docs/reference/measurements.md from the schema: everything that is stored, for people who write queries."""

import sys
from collections.abc import Iterator
from pathlib import Path

from store.schema import MEASUREMENTS, SHARD, TAG_TEXT, Measurement

_HEAD = """\
# Measurements

Everything that InfluxDB holds, one section a measurement. Written by the code that stores it
(`python -m store.catalogue docs/reference/measurements.md`); a test holds the two together.

- A point's time is the start of its window, in UTC. Windows are 10 s in the retention `raw`, a minute in `1m`, an hour
  in `1h`; a query names the retention: `SELECT sum("bytes") FROM "1m"."traffic" ...`. Some rows of the analysis are
  kept in `1h` as they are, so that they last for years.
- Values are in base units: bytes, seconds, USD. Bytes are IP bytes, scaled by sampling, each flow once.
- A point is a window's whole total and is written again while the window changes: aggregate with `sum()`, also over the
  tag `shard`, which tells bridges apart. Quote names in queries: `"shard"` without quotes is a word of InfluxQL.
- A window is complete some seconds after its end: its length, the allowed lateness and two flushes.
"""


def catalogue() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for measurement in MEASUREMENTS for line in _section(measurement))])


def _section(measurement: Measurement) -> Iterator[str]:
    yield f"## {measurement.name}\n"
    *others, last = (f"`{name}`" for name in measurement.retentions)
    kept = f"{', '.join(others)} and {last}" if others else last
    yield f"{measurement.text} Written by {measurement.origin}, kept in {kept}.\n"
    yield f"Series: {measurement.cardinality}.\n"
    yield "| tag | |"
    yield "|---|---|"
    yield from (f"| `{tag}` | {TAG_TEXT[tag]} |" for tag in measurement.tags)
    yield ""
    yield "| field | type | unit | over time | |"
    yield "|---|---|---|---|---|"
    for field in measurement.fields:
        yield f"| `{field.name}` | {field.kind} | {field.unit} | {field.merge} | {field.text} |"
    yield ""
    if SHARD not in measurement.tags:
        yield "One process writes it: there is no `shard`.\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(catalogue(), encoding="utf-8")
