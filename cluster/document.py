"""cluster.yaml as a tree that still knows its lines, its duplicate keys and what the user typed.

YAML 1.2's core types only: ``23:00`` and ``2026-03-01 08:00`` are text, not 1380 and a date without a zone; ``no`` is
text, not false. Aliases (``*name``) and merge keys (``<<``) work. No input makes the parser recurse deeply.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from app.errors import ConfigError, Problem

Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times faster, for inventories of thousands of nodes."""

MAX_DEPTH = 32
SHOWN = 60
"""Longest value that an error repeats, in characters."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_OPEN_ADDRESS = re.compile(r"(?<![\w:\"'])::|::(?![\w:/\"'])")
"""IPv6 where YAML takes a colon for its own: ``::1``, ``fd00:30::``."""
_PLAIN_KEY = re.compile(r"[\w{}.*/…-]+")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
_STRING_TAG = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value: its text, and whether it was quoted (then it is text whatever it looks like)."""

    text: str
    quoted: bool = False
    line: int = 0

    @property
    def data(self) -> str | int | float | bool | None:
        """Return the value by YAML 1.2's core schema."""
        if self.quoted:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INTEGER.fullmatch(self.text):
            return int(self.text)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text

    def shown(self) -> str:
        """Return the value as an error shows it: what the user typed, on one line, cut where it is long."""
        if not self.text:
            return '""' if self.quoted else "nothing"
        text = self.text if self.text.isprintable() else repr(self.text)
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple["Value", ...] = ()
    line: int = 0

    def shown(self) -> str:
        """Return what an error shows for it."""
        return "a list"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys, each once, and their values."""

    entries: dict[str, "Value"] = field(default_factory=dict)
    line: int = 0

    def shown(self) -> str:
        """Return what an error shows for it."""
        return "a mapping"


Value = Scalar | Sequence | Mapping


def child(path: str, key: str) -> str:
    """Return the YAML path of `key` below `path`; keys that would blur the path are quoted."""
    key = key if len(key) <= SHOWN else f"{key[:SHOWN]}…"
    shown = key if _PLAIN_KEY.fullmatch(key) else repr(key)
    return f"{path}.{shown}" if path else shown


class Faults:
    """Collects every fault of one document, with its line.

    Args:
        source: the file's name, as the user gave it.

    Attributes:
        told: paths whose value could not be read at all, so that nothing more is to be said about it.
        places: paths of all keys that the document may have.
    """

    def __init__(self, source: str, places: Iterable[str] = ()) -> None:
        self.source = source
        self.places = tuple(places)
        self.problems: list[Problem] = []
        self.told: set[str] = set()
        self._lines: dict[str, int] = {}

    def locate(self, path: str, line: int) -> None:
        """Remember the line that `path` starts on: that of its key, where it has one."""
        self._lines.setdefault(path, line)

    def add(self, path: str, value: str, expected: str, hint: str = "") -> None:
        """Add a fault at a YAML path."""
        self.problems.append(Problem(path, value, expected, hint, line=self._line(path)))

    def add_problem(self, problem: Problem) -> None:
        """Add a fault that knows its own place, as those of the inventory do."""
        self.problems.append(problem)

    def within(self, path: str) -> bool:
        """Whether anything at or below a path is at fault so far."""
        return any(
            problem.path.startswith(path) and problem.path[len(path) : len(path) + 1] in {"", ".", "["}
            for problem in self.problems
        )

    def raise_if_any(self) -> None:
        """Raise ConfigError with all faults, if there are any."""
        if self.problems:
            raise ConfigError(self.source, self.problems)

    def _line(self, path: str) -> int:
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get("", 0)


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file (a byte order mark is dropped); ConfigError if there is no such text."""
    expected, hint = "", ""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        value, expected = "no such file", "the cluster's description"
        hint = "`clusterflow init` writes a first one; --config names another"
    except IsADirectoryError:
        value, expected = "a folder", "a file"
    except UnicodeDecodeError as error:
        value, expected = f"byte {error.start} is not UTF-8", "a text file in UTF-8"
    except (OSError, ValueError) as error:
        value, expected = getattr(error, "strerror", None) or "not a file name", "a file that can be read"
    raise ConfigError(str(path), [Problem("", value, expected, hint)])


def parse(text: str, faults: Faults) -> Value | None:
    """Return the one document in `text`, or None where it holds none.

    Raises:
        ConfigError: it is not YAML; the line and column say where.
    """
    forbidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if forbidden is not None:
        line = text.count("\n", 0, forbidden.start()) + 1
        value = f"the character {forbidden[0]!a}"
        raise ConfigError(faults.source, [Problem("", value, "text that YAML allows", line=line)])
    try:
        return _Builder(yaml.parse(text, Loader=Parser), faults).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        said = " ".join(part for part in (error.problem, error.context) if part)
        wrong = "".join(text.splitlines()[line - 1 : line]) if line else ""
        if wrong.startswith("\t", column - 1):
            said = "a tab: YAML wants spaces"
        elif "alias" in said:
            said = 'write "*" in quotes'
        elif _OPEN_ADDRESS.search(wrong):
            said = "write an IPv6 address that begins or ends with : in quotes"
        problem = Problem("", f"column {column}", "YAML", said, line=line)
    except yaml.YAMLError as error:
        problem = Problem("", "this text", "YAML", " ".join(str(error).split()))
    raise ConfigError(faults.source, [*faults.problems, problem])


class _Builder:
    """Builds the tree from parser events, which keeps depth, anchors and duplicates in our hands."""

    def __init__(self, events: Iterator[yaml.Event], faults: Faults) -> None:
        self._events = events
        self._faults = faults
        self._anchors: dict[str, Value | None] = {}

    def document(self) -> Value | None:
        found: Value | None = None
        count = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                count += 1
                if count == 1:
                    found = self._value(next(self._events), "", 0)
                    continue
                problem = Problem("", "a second document", "one document", "remove the ---", line=_line(event))
                self._faults.add_problem(problem)
                break
        if isinstance(found, Scalar) and found.data is None:
            return None
        return found

    def _value(self, event: yaml.Event, path: str, depth: int) -> Value:
        line = _line(event)
        self._faults.locate(path, line)
        if event.__class__ is yaml.ScalarEvent and event.anchor is None and event.tag is None and depth <= MAX_DEPTH:
            # Nearly all are such.
            return Scalar(event.value, bool(event.style), line)
        if depth > MAX_DEPTH:
            problem = Problem(path, "nested too deeply", f"at most {MAX_DEPTH} levels", line=line)
            raise ConfigError(self._faults.source, [problem])
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", path, line)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None
        value = self._content(event, path, depth, line)
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _alias(self, anchor: str, path: str, line: int) -> Value:
        value = self._anchors.get(anchor)
        if value is None:
            hint = "it contains itself" if anchor in self._anchors else "no anchor of that name comes before it"
            self._faults.add(path, f"*{anchor}", "an alias of something above", hint)
            self._faults.told.add(path)
            return Scalar("", line=line)
        return value

    def _content(self, event: yaml.Event, path: str, depth: int, line: int) -> Value:
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!" and tag not in _PLAIN_TAGS:
            shown = Scalar(tag.replace("tag:yaml.org,2002:", "!!")).shown()
            self._faults.add(path, f"the tag {shown}", "plain YAML", "remove the tag")
            self._faults.told.add(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(tuple(self._items(path, depth)), line)
        if isinstance(event, yaml.MappingStartEvent):
            return Mapping(self._entries(path, depth), line)
        if not isinstance(event, yaml.ScalarEvent):
            raise TypeError(event)
        plain = event.style in {None, ""} and tag != _STRING_TAG
        return Scalar(event.value, not plain, line)

    def _items(self, path: str, depth: int) -> Iterator[Value]:
        for index, event in enumerate(iter(lambda: next(self._events), None)):
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._value(event, f"{path}[{index}]", depth + 1)

    def _entries(self, path: str, depth: int) -> dict[str, Value]:
        entries: dict[str, Value] = {}
        merged: list[Value] = []
        lines: dict[str, int] = {}
        for event in iter(lambda: next(self._events), None):
            if isinstance(event, yaml.MappingEndEvent):
                break
            # The event's: a key that is an alias has the line of what it stands for.
            line = _line(event)
            key = self._value(event, f"{path}.?", depth + 1)
            where = child(path, key.text) if isinstance(key, Scalar) else child(path, "?")
            # First, as its value may begin further down: people look for the key.
            self._faults.locate(where, line)
            value = self._value(next(self._events), where, depth + 1)
            if not isinstance(key, Scalar):
                problem = Problem(where, f"{key.shown()} as a key", "a name as a key", line=line)
                self._faults.add_problem(problem)
            elif key.text == "<<" and not key.quoted:
                merged.append(value)
            elif key.text in entries:
                hint = f"it stands on line {lines[key.text]} too"
                self._faults.add_problem(Problem(where, "given twice", "each key once", hint, line=line))
            else:
                entries[key.text], lines[key.text] = value, line
        return self._merge(entries, merged, path)

    def _merge(self, entries: dict[str, Value], merged: list[Value], path: str) -> dict[str, Value]:
        for value in merged:
            for source in value.items if isinstance(value, Sequence) else (value,):
                if isinstance(source, Mapping):
                    entries = {**source.entries, **entries}
                else:
                    self._faults.add(child(path, "<<"), source.shown(), "a mapping to merge")
        return entries


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0
