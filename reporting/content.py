"""The content of a report, without its look: sections of facts, tables and charts.

Values are in base units: bytes, seconds, epoch seconds, USD, shares of 1. JSON keeps them so; the page writes them for
people.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias
from zoneinfo import ZoneInfo

from analysis.audit import Period


class Kind(StrEnum):
    """What a value is, and its unit."""

    TEXT = "text"
    GROUP = "group"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    MOMENT = "moment"
    GPU_HOURS = "GPU-hours"
    USD = "USD"
    SHARE = "share"


class Tone(StrEnum):
    """Whether something needs attention: quiet does not, look is worth a look, act is what an alert fires for."""

    QUIET = "ordinary"
    LOOK = "look"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Word:
    """A text about the state of something; `url`: where it leads on a page."""

    text: str
    tone: Tone = Tone.QUIET
    url: str = ""


Value: TypeAlias = "str | int | float | Word | None"
Cells: TypeAlias = "tuple[Value, ...]"
"""A row of a table."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One key number.

    Attributes:
        key: its name in JSON.
        title: its name for people.
        in_summary: whether the head of the report shows it, too.
    """

    key: str
    title: str
    value: Value
    kind: Kind
    tone: Tone = Tone.QUIET
    in_summary: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `bar` draws how large a number is beside the largest of the column."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    bar: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values in the order of the columns.

    Attributes:
        key: its name in JSON.
        empty: what it means that there are no rows, in one line.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Cells, ...]
    empty: str


@dataclass(frozen=True, slots=True)
class Stack:
    """One part of stacked bars: a value for each bin."""

    name: str
    colour: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Sums over time: stacked bars.

    Attributes:
        starts: of the bins, epoch seconds; each ends where the next begins.
        stop: end of the last one.
    """

    key: str
    title: str
    kind: Kind
    starts: tuple[int, ...]
    stop: int
    stacks: tuple[Stack, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that lasted, or happened, in a row of a time line; `start` and `stop` are epoch seconds."""

    row: str
    start: int
    stop: int
    what: str
    colour: str


@dataclass(frozen=True, slots=True)
class Marks:
    """What happened when: a time line with a row for each subject. Its facts stand in a table of the same section.

    Attributes:
        rows: all subjects, those without a mark included, from top to bottom.
        start, stop: of the time that is shown, epoch seconds.
    """

    key: str
    title: str
    rows: tuple[str, ...]
    marks: tuple[Mark, ...]
    start: int
    stop: int


Block: TypeAlias = "Table | Bars | Marks"


@dataclass(frozen=True, slots=True)
class Section:
    """One question and its answer.

    Attributes:
        id: its name in JSON, and its anchor.
        lead: the answer in a sentence or two; or why there is none.
        attention: what somebody should look at.
        notes: what the numbers rest on, and what they cannot say.
        is_measured: False where nothing measures it: `lead` says what is missing.
    """

    id: str
    title: str
    lead: str
    facts: tuple[Fact, ...] = ()
    attention: tuple[Word, ...] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """A period of a cluster.

    Attributes:
        made_at: epoch seconds.
        is_empty: whether the store holds no flow record of the period.
    """

    cluster: str
    zone: ZoneInfo
    period: Period
    made_at: int
    is_empty: bool
    sections: tuple[Section, ...]

    def facts(self) -> Iterator[tuple[Section, Fact]]:
        """Yield the facts of the summary, each with its section."""
        for section in self.sections:
            for fact in section.facts:
                if fact.in_summary:
                    yield section, fact

    def attention(self) -> Sequence[tuple[Section, Word]]:
        """Return what needs attention, what an alert fires for first."""
        found = [(section, word) for section in self.sections for word in section.attention]
        return sorted(found, key=lambda one: one[1].tone is not Tone.ACT)
