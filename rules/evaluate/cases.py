"""Rule cases: series (or a scenario) in, expected alerts out. How they are written; `case_runs` runs them.

A file belongs to one rule. docs/extending.md explains every key. Times are seconds after `begins`, or, with a
scenario, after the scenario's start.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from app.errors import ConfigError, Problem, UserError
from cluster.document import Faults, Mapping, Scalar, Value, parse
from cluster.document import Sequence as Items
from cluster.scalars.declared import REQUIRED, Key, Section, key, record
from cluster.scalars.kinds import Bad, Choice, Kind, ListOf, MapOf, Number, Placed, Table, Text, Whole, closest, take
from rules.evaluate.states import State
from store import schema

BEGINS = 1_770_120_000
"""2026-02-03 12:00:00 UTC: a whole number of evaluation intervals, and any day. When a case's time 0 is."""

_LONG = 10_000_000
"""Seconds that a case may reach in either direction: four months."""


class Fault(StrEnum):
    """What is broken while a case runs."""

    NO_RETENTION = "no retention"
    """The database has none of the retentions that rules ask, so that InfluxDB answers with an error."""


class CaseKind(StrEnum):
    """What every rule's cases cover, at least once each."""

    FIRES = "fires"
    NEAR_MISS = "near miss"
    NO_DATA = "no data"
    QUERY_ERROR = "query error"


# The format ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FieldValue(Kind[float | str]):
    """A number, or a text for fields that hold texts."""

    label: str = "number or text"
    expected: str = "a number or a text"

    def read(self, value: Value, path: str, faults: Faults) -> float | str:
        del path, faults
        if not isinstance(value, Scalar) or value.data is None or isinstance(value.data, bool):
            raise Bad
        return value.data


@dataclass(frozen=True)
class _Times(Kind[tuple[int, int]]):
    """A time in seconds, or the earliest and the latest one that will do."""

    label: str = "seconds, or [earliest, latest]"
    expected: str = "whole seconds, or [earliest, latest]"

    def read(self, value: Value, path: str, faults: Faults) -> tuple[int, int]:
        if not isinstance(value, Items):
            at = _TIME.read(value, path, faults)
            return at, at
        found = [time for item in value.items for time in take(_TIME, item, path, faults)]
        if len(value.items) != 2 or len(found) != 2 or found[0] > found[1]:
            raise Bad(shown="a list")
        return found[0], found[1]

    def write(self, value: tuple[int, int]) -> object:
        return value[0] if value[0] == value[1] else list(value)


class _Sorted(MapOf[str]):
    """Labels, by name."""

    def build(self, value: dict[str, Placed[str]], folder: Path) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(super().build(value, folder)))


def _series(text: str) -> str:
    name = text.split(",", maxsplit=1)[0]
    known = {one.name: one for one in schema.MEASUREMENTS}
    if name not in known:
        raise Bad("a measurement of docs/reference/measurements.md and its tags", closest(name, known))
    for tag in text.split(",")[1:]:
        key, equals, value = tag.partition("=")
        if not equals or not value:
            raise Bad("tags such as src=a,dst=b", f"look at {tag!r}")
        if key not in known[name].tags:
            raise Bad(f"the tags of {name}: {', '.join(known[name].tags)}", closest(key, known[name].tags))
    return text


def _moment(text: str) -> int:
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def _named(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


_TIME = Whole(-_LONG, _LONG, "seconds")
_WORD = Text("text", "a text", _named)
_ANY_TEXT: Text[str] = Text("text", "a text", str)
_WORDS = MapOf(_WORD, _ANY_TEXT)
_LABELS = _Sorted(_WORD, _ANY_TEXT)
_RETENTION: Text[str] = Text("retention", "raw, 1m or 1h", lambda text: _one_of(text, schema.RAW, "1m", "1h"))


def _one_of(text: str, *words: str) -> str:
    if text not in words:
        raise ValueError(text)
    return text


_BEGINS = Text("time", "a time such as 2026-03-29T00:00:00Z", _moment)
_REFERENCE = "a key of docs/extending.md"


def _section(owner: type, label: str, *more: Key) -> Section:
    return Section.of(owner, label, *more, after="annotations" if more else "", text="", reference=_REFERENCE)


# A case -------------------------------------------------------------------------------------------


@record
class Points:
    """Points of one series, `every` so many seconds from `start` to `stop`, both included; all with the same fields."""

    series: str = key(Text("series", "measurement,tag=value,...", _series))
    fields: tuple[tuple[str, float | str], ...] = key(MapOf(_WORD, _FieldValue(), at_least=1))
    start: int = key(_TIME, name="from")
    stop: int = key(_TIME, name="until", absent="`from`")
    every: int = key(Whole(1, 86_400, "seconds"), default=10)
    retention: str = key(_RETENTION, default=schema.RAW)

    def lines(self, begins: int) -> Iterable[str]:
        """Yield line protocol, times in seconds."""
        measurement = self.series.split(",")[0]
        kinds = {one.name: one.kind for one in _measurement(measurement).fields}
        values = ",".join(f"{name}={_written(kinds[name], value)}" for name, value in self.fields)
        for at in range(self.start, self.stop + 1, self.every):
            yield f"{self.series} {values} {begins + at}"


@record
class ExpectedAlert:
    """An alert as it should be; texts and values that are not named are not looked at.

    Attributes:
        labels: all of them, but those that every alert of the rule has.
        active_at, fired_at: seconds after the beginning.
        annotations: to the letter.
        error: a part of the error's text.
    """

    state: State = key(Choice(tuple(state for state in State if state is not State.NORMAL)))
    labels: tuple[tuple[str, str], ...] = key(_LABELS, default=())
    reason: str = key(_ANY_TEXT, default="")
    active_at: int | None = key(_TIME, default=None)
    fired_at: int | None = key(_TIME, default=None)
    values: tuple[tuple[str, float], ...] = key(MapOf(_WORD, Number(-1e30, 1e30)), default=())
    annotations: tuple[tuple[str, str], ...] = key(_WORDS, default=())
    error: str = key(_WORD, default="")


_ALERT = _section(ExpectedAlert, "alert", Key("extra_annotations", _WORDS, "", ()))


@record
class Moment:
    """All alerts of the rule that are not Normal after the evaluation `at`."""

    at: int = key(_TIME)
    alerts: tuple[ExpectedAlert, ...] = key(ListOf(_ALERT))


@record
class ExpectedFiring:
    """One alert from beginning to end.

    Attributes:
        labels: as in `ExpectedAlert`.
        start, end: earliest and latest time of the evaluation that begins and that ends it; no end: it fires still.
        annotations: when it began, to the letter.
        last: when its condition held for the last time.
    """

    labels: tuple[tuple[str, str], ...] = key(_LABELS)
    start: tuple[int, int] = key(_Times())
    end: tuple[int, int] | None = key(_Times(), default=None)
    annotations: tuple[tuple[str, str], ...] = key(_WORDS, default=())
    last: tuple[tuple[str, str], ...] = key(_WORDS, default=())


@record
class Case:
    """One case.

    Attributes:
        points: what is stored.
        scenario: name or file of the scenario that is played instead, and evaluated from end to end; empty for points.
        seed: of the scenario; None: its own.
        begins: epoch second of time 0 (not with a scenario).
        start: the first evaluation; None: at 0, or the first that is expected.
        until: the last evaluation, where firings are expected; None: the last moment.
        moments: in the order of time.
        firings: every firing there is; None where the case does not tell.
        rule: the rule's id.
        file, line: where it stands.
        cluster: the cluster.yaml whose rule it is; None with a scenario, which brings its own.
    """

    name: str = key(_WORD)
    why: str | None = key(_ANY_TEXT, default=None)
    points: tuple[Points, ...] = key(ListOf(_section(Points, "points")), default=(), absent="a scenario")
    scenario: str = key(_WORD, default="")
    seed: int | None = key(Whole(0, 2**31 - 1), default=None)
    fault: Fault | None = key(Choice(tuple(Fault)), default=None)
    begins: int = key(_BEGINS, default=BEGINS, absent="that of the file")
    start: int | None = key(_TIME, default=None)
    until: int | None = key(_TIME, default=None)
    moments: tuple[Moment, ...] = key(ListOf(_section(Moment, "moment")), default=(), name="expect", absent="firings")
    firings: tuple[ExpectedFiring, ...] | None = key(ListOf(_section(ExpectedFiring, "firing")), default=None)
    rule: str = ""
    file: Path = Path()
    line: int = 0
    cluster: Path | None = None

    def __str__(self) -> str:
        """Return where it stands and what it is called."""
        return f"{self.file}:{self.line}: {self.rule}: {self.name}"

    def kinds(self) -> set[CaseKind]:
        """Return what the case covers: by what it expects, or by the first words of its name."""
        by_name = (CaseKind.NEAR_MISS, CaseKind.NO_DATA, CaseKind.QUERY_ERROR)
        found: set[CaseKind] = {kind for kind in by_name if self.name.startswith(kind.value)}
        fires = any(alert.state is State.ALERTING for moment in self.moments for alert in moment.alerts)
        if (fires or self.firings) and self.fault is None:
            found.add(CaseKind.FIRES)
        return found

    def lines(self) -> dict[str, bytes]:
        """Return the points in line protocol, by retention."""
        found: dict[str, list[str]] = {}
        for points in self.points:
            found.setdefault(points.retention, []).extend(points.lines(self.begins))
        return {retention: "\n".join(lines).encode() for retention, lines in found.items()}


def _written(kind: schema.Kind, value: float | str) -> str:
    match kind:
        case schema.Kind.INT:
            return f"{int(value)}i"
        case schema.Kind.FLOAT:
            return repr(float(value))
        case schema.Kind.STRING:
            escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'


def _measurement(name: str) -> schema.Measurement:
    return next(one for one in schema.MEASUREMENTS if one.name == name)


_CASE = _section(Case, "case")
_FILE = Section(
    "rule cases",
    (
        Key("rule", _WORD, "", REQUIRED),
        Key("cluster", _WORD, ""),
        Key("begins", _BEGINS, "", BEGINS),
        Key("cases", ListOf(_CASE, at_least=1), "", REQUIRED),
    ),
    reference=_REFERENCE,
)


# Reading ------------------------------------------------------------------------------------------


def is_case_file(path: Path) -> bool:
    """Whether a YAML file holds rule cases; cluster.yaml and others may lie beside them."""
    try:
        root = parse(path.read_text(encoding="utf-8"), Faults(str(path)))
    except (ConfigError, OSError, UnicodeDecodeError):
        # Worth telling about, so that a broken file does not pass for none.
        return True
    return isinstance(root, Mapping) and {"rule", "cases"} <= set(root.entries)


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the case files that are named, and those in the folders that are named; UserError where there is none."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.glob("*.yaml")) if is_case_file(file)]
            if not inside:
                raise UserError(f"{path}: no rule cases in this folder", "docs/extending.md shows how to write them")
            found |= dict.fromkeys(inside)
        else:
            found[path] = None
    return list(found)


def load_cases(path: Path, config: Path) -> list[Case]:
    """Return the cases of a file.

    Args:
        path: the file.
        config: cluster.yaml of files that name none and have none beside them.

    Raises:
        ConfigError: the file cannot be read or has faults; it lists all of them.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        said = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not UTF-8"
        raise ConfigError(str(path), [Problem("", said, "a file of rule cases")]) from None
    faults = Faults(str(path))
    root = parse(text, faults)
    try:
        table = _FILE.read(root or Mapping(), "", faults)
    except Bad:
        raise ConfigError(
            str(path), [Problem("", root.shown() if root else "nothing", "the keys rule and cases")]
        ) from None
    lines = _case_lines(root)
    beside = path.parent / "cluster.yaml"
    named = table.get("cluster")
    fallback = beside if beside.is_file() else config
    frame = _Frame(path, table, path.parent / named if named else fallback, faults)
    cases = [_case(placed, lines.get(placed.path, 0), frame) for placed in table.get("cases", [])]
    faults.raise_if_any()
    return [case for case in cases if case is not None]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all cases of a file share."""

    path: Path
    table: Table
    cluster: Path
    faults: Faults


def _case_lines(root: Value | None) -> dict[str, int]:
    cases = root.entries.get("cases") if isinstance(root, Mapping) else None
    items = cases.items if isinstance(cases, Items) else ()
    return {f"cases[{position}]": item.line for position, item in enumerate(items)}


def _case(placed: Placed[Table], line: int, frame: _Frame) -> Case | None:
    table, file, faults = placed.value, frame.table, frame.faults
    scenario = table.get("scenario") or ""
    if (table.get("points") is None) is not bool(scenario):
        faults.add(placed.path, "both" if scenario else "neither", "points or a scenario")
    if table.get("expect") is None and table.get("firings") is None:
        faults.add(placed.path, "nothing expected", "expect or firings")
    for name in ("expect", "start", "until", "begins", "fault") if scenario else ():
        if table.get(name) is not None:
            faults.add(f"{placed.path}.{name}", "given", "firings only, with a scenario: it says when all happens")
    if "rule" not in file or faults.within(placed.path):
        return None
    moments = sorted(table.get("expect") or [], key=lambda one: int(one.value["at"]))
    for alert in (alert.value for moment in moments for alert in moment.value["alerts"]):
        alert["annotations"] |= alert["extra_annotations"]
    for points in table.get("points") or []:
        _check_points(points, faults)
    begins = table.get("begins")
    given = {
        "points": table.get("points") or [],
        "expect": moments,
        "begins": file.get("begins", BEGINS) if begins is None else begins,
    }
    here = {
        "rule": file["rule"],
        "file": frame.path,
        "line": line,
        "cluster": None if scenario else frame.cluster,
    }
    case: Case = _CASE.build(table | given, made=here)
    if not scenario and case.until is None and not moments:
        faults.add(f"{placed.path}.until", "missing", "the last evaluation, in seconds")
    if not moments and case.until is not None and case.until < (case.start or 0):
        faults.add(f"{placed.path}.until", str(case.until), f"not before the first evaluation, {case.start or 0}")
    return case


def _check_points(placed: Placed[Table], faults: Faults) -> None:
    """Record fields that a measurement lacks, and an end before the start; one point alone ends where it starts."""
    table = placed.value
    measurement = _measurement(table["series"].split(",")[0])
    known = {one.name: one.kind for one in measurement.fields}
    for name, one in table["fields"].items():
        where = f"{placed.path}.fields.{name}"
        if name not in known:
            faults.add(where, "unknown field", f"a field of {measurement.name}", closest(name, known))
        elif isinstance(one.value, str) is not (known[name] is schema.Kind.STRING):
            faults.add(where, str(one.value), "a text" if known[name] is schema.Kind.STRING else "a number")
    if table.get("until") is None:
        table["until"] = table["from"]
    if table["until"] < table["from"]:
        # Else a near miss without a single point would be as expected.
        faults.add(f"{placed.path}.until", str(table["until"]), f"not before `from`, {table['from']}")


@dataclass(frozen=True, slots=True)
class Missing:
    """What a rule's cases do not cover."""

    rule: str
    kinds: tuple[CaseKind, ...] = field(default=())

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.rule}: no case that covers: {', '.join(kind.value for kind in self.kinds)}"


def missing_kinds(cases: Sequence[Case]) -> list[Missing]:
    """Return, for each rule of the cases, what they do not cover."""
    covered: dict[str, set[CaseKind]] = {}
    for case in cases:
        covered.setdefault(case.rule, set()).update(case.kinds())
    found = [Missing(rule, tuple(kind for kind in CaseKind if kind not in kinds)) for rule, kinds in covered.items()]
    return [one for one in found if one.kinds]
