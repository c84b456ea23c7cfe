"""Rule cases: series in, alerts out, on a real InfluxDB.

A file is named after its rule; each of its cases has

- `points`: series (measurement and tags as in line protocol) with `fields` in every window from `from` until `until`;
- `start` (0): the first evaluation; evaluations follow at the rule's interval;
- `expect`: what the rule's alerts are after the evaluation `at`: all of them, with all labels but those that every
  alert has (alertname, grafana_folder, rule, severity), and each text that is given, to the letter;
- `fault`: ``no retention`` takes away the retention that the rule asks, so that InfluxDB answers with an error.

All times are seconds after `BASE`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import schema

FOLDER = Path(__file__).parent
BASE = 1_770_120_000
"""2026-02-03 12:00:00 UTC: a whole number of evaluation intervals, and any day."""

WINDOW = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a rule's file."""

    rule: str
    name: str
    content: dict[str, Any]

    def lines(self) -> bytes:
        """Return the points in line protocol."""
        kinds = {(m.name, f.name): f.kind for m in schema.MEASUREMENTS for f in m.fields}
        lines = []
        for points in self.content["points"]:
            measurement = points["series"].split(",")[0]
            fields = ",".join(
                f"{name}={int(value)}i" if kinds[measurement, name] is schema.Kind.INT else f"{name}={float(value)}"
                for name, value in points["fields"].items()
            )
            lines += [
                f"{points['series']} {fields} {BASE + at}" for at in range(points["from"], points["until"] + 1, WINDOW)
            ]
        return "\n".join(lines).encode()


def files() -> list[Path]:
    """Return the files of cases."""
    return sorted(path for path in FOLDER.glob("*.yaml") if "cases" in _content(path) and "rule" in _content(path))


def _content(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def all_cases() -> list[Case]:
    """Return the cases of all files."""
    cases = []
    for path in files():
        content = _content(path)
        assert content["rule"] == path.stem, f"{path}: a file is named after its rule"
        cases += [Case(path.stem, entry["name"], entry) for entry in content["cases"]]
    return cases
