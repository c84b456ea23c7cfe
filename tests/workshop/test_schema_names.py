"""store/schema.py is the only home of measurement, tag and field names: no other package spells one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.registry import BOARDS
from store import schema

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = (
    "app",
    "store",
    "ingest",
    "enrichment",
    "analysis",
    "dashboards",
    "rules",
    "operations",
    "delivery",
    "reporting",
)
"""All but `simulate`: the keys of its truth file are its own, so that it is no mirror of what it is compared with."""

COMMON_WORDS = frozenset(
    {
        # Words with other uses: pmacct's columns, cluster.yaml's keys, Grafana's settings, plain English.
        "active", "address", "age", "bytes", "duration", "event", "expected", "exporter", "flows", "group", "job",
        "lag", "lower", "new", "node", "nodes", "observed", "packets", "pair", "pipeline", "plane", "proto", "reason",
        "records", "runs", "sampling", "score", "service", "shard", "skew", "src", "dst", "stage", "state", "total",
        "traffic", "value", "baseline", "contact", "egress", "violation", "skewed", "first_seen", "last_seen",
        "gpus", "kind", "limit", "origin", "outcome", "phase", "rank", "rate", "seconds", "sources", "subject", "usd",
        "cohort", "period", "share", "upper", "city",
        "user", "access", "country", "network",
        "feed", "confidence", "pattern", "name", "error", "entries", "skipped", "enrichment", "application", "in_use",
        # Counters of the pipeline, of which a relay tells some.
        "relay", "dead_letters", "repeated_records", "transactions", "transactions_retried",
        # Rules name the measures that their texts show, and themselves.
        "low_for", "state_for", "dropout_digest", "beacon", "calls", "jitter", "gap", "unseen",
        # Words of the Elastic Common Schema.
        "threat", "indicator",
        # Of a backtest: an alert is due, a rule is changed, a firing has a cause.
        "due", "changed", "cause",
        # An alert is what it is about, in the words of its notification and of an event.
        "alert", "rule", "severity", "title", "summary", "source", "destination", "protocol", "cost", "what_to_do",
        "incident", "runbook", "fired_seconds", "began", "ended", "acknowledged",
        "port", "port_max", "interface", "labels",
    }
)  # fmt: skip
"""Names that a string may spell without meaning the stored thing; all others belong to the schema alone."""


def _stored_names() -> frozenset[str]:
    names = set(schema.TAG_TEXT)
    for measurement in schema.MEASUREMENTS:
        names.add(measurement.name)
        names.update(measurement.tags)
        names.update(field.name for field in measurement.fields)
    return frozenset(names)


GUARDED = _stored_names() - COMMON_WORDS


def _spelled(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every string of a module that is a guarded name, docstrings and other text aside."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in GUARDED:
            yield node.lineno, node.value


def _panels_of(module: Path) -> frozenset[str]:
    """Return the names of boards and panels where the module may spell them: ids of places, not of what is stored."""
    package = module.relative_to(REPOSITORY).parts[0]
    panels = {panel for board in BOARDS.values() for panel in board.panels} | set(BOARDS)
    return frozenset(panels) if package in {"dashboards", "rules", "operations"} else frozenset()


def _modules() -> list[Path]:
    home = REPOSITORY / "store/schema.py"
    return sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py") if path != home)


def test_common_words_are_names_of_the_schema() -> None:
    """A word that the schema dropped must not stay excused."""
    assert sorted(COMMON_WORDS - _stored_names()) == []


def test_guarded_names_hold_the_unmistakable_ones() -> None:
    assert {"src_group", "dst_group", "tx_bytes", "rx_bytes", "seen_bytes", "suppressed_bytes", "job_class"} <= GUARDED
    assert {"off_hours", "peer_group", "unknown_node", "late_bytes"} <= GUARDED


def test_a_spelled_name_is_found() -> None:
    source = 'frame.select("src_group", "bytes")\nquery = f"SELECT sum(x) FROM {table}"\n'
    assert list(_spelled(source)) == [(1, "src_group")]


@pytest.mark.parametrize("module", _modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_module_spells_a_stored_name(module: Path) -> None:
    found = [
        f"{module.relative_to(REPOSITORY)}:{line}: {name!r} (take it from store.schema)"
        for line, name in _spelled(module.read_text(encoding="utf-8"))
        if name not in _panels_of(module)
    ]
    assert not found, "\n" + "\n".join(found)
