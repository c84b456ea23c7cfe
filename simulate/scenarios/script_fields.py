"""The one table of a scenario's file: every key, its kind, its default, what it means.

`simulate.scenarios.script` validates by it and `simulate.scenarios.reference` writes docs/reference/scenarios.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from cluster.document import MAX_DEPTH, Faults, Mapping, Scalar, Sequence, Value
from cluster.model import CheckpointMode
from cluster.scalars import names
from cluster.scalars.declared import REQUIRED, Key, OneOf, Section
from cluster.scalars.kinds import Bad, Choice, Flag, Kind, ListOf, MapOf, Number, Table, Text, Whole
from simulate.incidents.incident_kinds import KINDS
from simulate.scenarios.clusters import DEMO, SIZES
from simulate.scenarios.scenario import Algorithm, Background, Profile

REFERENCE = "a key of docs/reference/scenarios.md"

LONGEST_DAYS = 62

_MOST_VALUES = 100_000
"""Of `settings`; a cluster.yaml of 1,024 nodes has a tenth."""


class Addresses(StrEnum):
    """What addresses the cluster has."""

    BOTH = "ipv4 and ipv6"
    IPV6 = "ipv6"


@dataclass(frozen=True)
class Part(Kind[dict[str, Any]]):
    """A part of a cluster.yaml, as plain data: it is checked when it has become part of the whole."""

    label: str = "part of a cluster.yaml"
    expected: str = "a mapping with keys of docs/reference/configuration.md"

    def read(self, value: Value, path: str, faults: Faults) -> dict[str, Any]:
        """Return the mapping as plain data."""
        del path, faults
        if not isinstance(value, Mapping):
            raise Bad
        plain = _plain(value, iter(range(_MOST_VALUES)), 0)
        return plain if isinstance(plain, dict) else {}


def _plain(value: Value, left: Iterator[int], depth: int) -> Any:  # noqa: ANN401 - what YAML holds
    """Return a value as plain data. Aliases are spelt out: a few lines could be as deep, or as much, as one likes.

    Args:
        value: the value.
        left: ends when there are too many.
        depth: how many values it stands in.
    """
    if depth > MAX_DEPTH or next(left, None) is None:
        raise Bad(f"at most {_MOST_VALUES:,} values, in at most {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {key: _plain(entry, left, depth + 1) for key, entry in value.entries.items()}
    if isinstance(value, Sequence):
        return [_plain(item, left, depth + 1) for item in value.items]
    return value.data


@dataclass(frozen=True)
class Members(Kind[int | tuple[str, ...]]):
    """Nodes of a job: so many, or named ones."""

    label: str = "number, or list (node name, glob or range)"
    expected: str = 'how many, such as 16, or a list such as ["gpu-{01..08}"]'

    def read(self, value: Value, path: str, faults: Faults) -> int | tuple[str, ...]:
        """Return the number, or the patterns."""
        if isinstance(value, Scalar):
            return Whole(2, 4_096).read(value, path, faults)
        return tuple(item.value for item in ListOf(names.NODES, at_least=1).read(value, path, faults))

    def write(self, value: int | tuple[str, ...]) -> object:
        """Return the number, or the list."""
        return value if isinstance(value, int) else list(value)


def _date(text: str) -> date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) or not 2000 <= int(text[:4]) <= 2099:
        raise Bad
    return date.fromisoformat(text)


def _about(text: str) -> str:
    words = " ".join(text.split())
    if not words or not words.isprintable() or len(words) > 1_000:
        raise Bad
    return words


def _rule_id(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", text):
        raise Bad
    return text


def _cluster_name(text: str) -> str:
    if text not in SIZES and not text.endswith((".yaml", ".yml")):
        raise Bad
    return text


DATE = Text("date", "a date such as 2026-09-07", _date, lambda day: day.isoformat())
ABOUT = Text("text", "one to a few sentences, at most 1,000 characters", _about)
RULE_ID = Text("rule id", "the id of an alert rule, such as exfil_volume", _rule_id)
CLUSTER = Text("built-in cluster or path", f"{', '.join(SIZES)}, or the path of a cluster.yaml", _cluster_name)
FLAG = Flag()
LENGTH = names.seconds(1, LONGEST_DAYS * names.DAY)
_PROFILE = Profile()

# A row a key: what a formatter makes of it would be four times as long.
# fmt: off
CHECKPOINTS = Section(
    "checkpoints",
    (
        Key("every", names.seconds(30, names.DAY), "From the begin of one to the begin of the next.", REQUIRED,
            example="5m"),
        Key("mode", Choice(tuple(CheckpointMode)),
            "`scheduled`: the cluster's `job_classes` declare it. `learn`: they do not. `irregular`: the gaps are "
            "anything from a third of `every` to twice as much.", CheckpointMode.SCHEDULED),
        Key("bytes", names.SIZE, "What each node writes.", _PROFILE.checkpoint),
        Key("lasting", names.seconds(1, 3_600), "How long that takes.", _PROFILE.checkpoint_seconds),
    ),
    reference=REFERENCE,
)
JOB = Section(
    "job plan",
    (
        Key("class", names.JOB_ID, "The job class; ids of runs begin with it.", _PROFILE.job_class),
        Key("nodes", Members(), "Its nodes: so many from the first on, or named ones.", absent="all training nodes"),
        Key("at", ListOf(names.TIME_OF_DAY, at_least=1), "When a run begins, each day, local time.", REQUIRED,
            example='["02:00", "14:00"]'),
        Key("lasting", names.seconds(60, 7 * names.DAY), "How long a run lasts.", REQUIRED, example="20m"),
        Key("weekends", FLAG, "Whether runs begin on Saturday and Sunday too.", default=True),
        Key("algorithm", Choice(tuple(Algorithm)), "How gradients are summed.", Algorithm.RING),
        Key("rate", names.SIZE, "Bytes a second that each node sends on the compute rails.", _PROFILE.rate),
        Key("step", Number(0.1, 3_600), "Seconds of a training step.", _PROFILE.step),
        Key("noise", Number(0, 0.5), "Relative standard deviation of a node's bytes in a record.", _PROFILE.noise),
        Key("shares", MapOf(names.NODE_NAME, Number(0.01, 10)),
            "Nodes that always send only such a share of the others' bytes.", {}, example="{gpu-03: 0.6}"),
        Key("dataset", names.SIZE_OR_ZERO, "Bytes that each node loads as a run starts.", _PROFILE.dataset),
        Key("prefetch", names.SIZE_OR_ZERO, "Bytes a second that each node reads afterwards.", 0),
        Key("checkpoints", CHECKPOINTS, "When checkpoints are written.", absent="never"),
    ),
    "What runs every day. Runs of a class are numbered in the order of time, from 1.",
    reference=REFERENCE,
)
_WHEN = (
    Key("on", Whole(1, LONGEST_DAYS), "The day it begins, from 1 ...", absent="1, where `at` is given"),
    Key("at", names.TIME_OF_DAY, "... and the time of day, local time.", absent="by `run`", example='"14:05"'),
    Key("run", Whole(1, 10_000), "Instead: the run in which it begins, by its number ...", absent="by `at`"),
    Key("class", names.JOB_ID, "... of this job class, where there are several ...", absent="the first job plan's"),
    Key("after", names.seconds(0, 7 * names.DAY), "... and how long after the run's start.", 0, example="10m"),
    Key("lasting", LENGTH, "How long it lasts.", 300, example="5m"),
    Key("expect", ListOf(RULE_ID), "Ids of the rules that must fire, `[]` for a near miss: a fault where "
        "something else follows from the thresholds. Rules of your own are taken as they are.",
        absent="what follows from the cluster's thresholds", example="[exfil_volume]"),
    Key("may", ListOf(RULE_ID), "Ids of rules that may fire or not, whatever follows.", []),
)
INCIDENT = OneOf(
    "kind",
    {
        kind.value: Section("incident", (*_WHEN, *play.keys), play.text, reference=REFERENCE)
        for kind, play in KINDS.items()
    },
    "incident",
)
SCRIPT = Section(
    "scenario",
    (
        Key("title", names.TITLE, "Its name for people.", REQUIRED, example="Node death"),
        Key("about", ABOUT, "What happens, and what it shows.", REQUIRED),
        Key("cluster", CLUSTER, "The cluster: a built-in size, or a cluster.yaml beside this file.", DEMO),
        Key("addresses", Choice(tuple(Addresses)), "Whether the cluster has IPv4 at all.", Addresses.BOTH),
        Key("settings", Part(), "Parts of the cluster's cluster.yaml that differ.", absent="none",
            example="{thresholds: {exfil_volume: 20 GB}}"),
        Key("start", DATE, "The first day, from midnight local time.", date(2026, 9, 7)),
        Key("days", Number(0.01, LONGEST_DAYS), "How many days.", REQUIRED, example="7"),
        Key("seed", Whole(0, 2**31), "Of everything that is drawn at random.", 1),
        Key("background", Choice(tuple(Background)),
            "What goes on beside: `routine` is a few conversations of each kind at fixed rhythms, `dense` everything "
            "at its natural rate (for hours, not for weeks).", Background.ROUTINE),
        Key("sampling", Whole(1, 65_535), "Exporters of NetFlow and IPFIX that count sample 1 packet in so many.", 1),
        Key("jobs", ListOf(JOB), "Job plans.", []),
        Key("incidents", ListOf(INCIDENT), "What happens.", []),
    ),
    reference=REFERENCE,
)
# fmt: on


def default_of(table: Table, name: str, fallback: Any) -> Any:  # noqa: ANN401 - of any key
    """Return a value that was read; the fallback where it was not given, or was bad."""
    value = table.get(name)
    return fallback if value is None else value
