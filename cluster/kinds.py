"""The kinds of values that cluster.yaml is made of: how each is read, what is expected of it, how it is written back.

A kind reads one `Value` and returns what the model wants. What is wrong raises `Bad`; a container catches that,
records it with its path, and goes on, so that one reading finds every fault.
"""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cluster.document import Faults, Mapping, Scalar, Sequence, Value, child
from cluster.model import Secret

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

Table = dict[str, Any]
"""What a section reads: key -> value, defaults filled in; a key whose value was bad is missing."""


class Bad(Exception):  # noqa: N818 - a verdict on a value, caught by its container
    """A value is not of its kind.

    Args:
        expected: what belongs there; empty means what the kind always says.
        hint: how to mend it; may be empty.
        shown: stands for the value in the message, where the value itself must not be repeated.
    """

    def __init__(self, expected: str = "", hint: str = "", shown: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint
        self.shown = shown


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A value and its YAML path."""

    path: str
    value: T


class Kind(ABC, Generic[T]):
    """One kind of value. `label` names it in the documentation, `expected` in errors."""

    label: str
    expected: str

    @abstractmethod
    def read(self, value: Value, path: str, faults: Faults) -> T:
        """Return what the value means; Bad if it is not of this kind."""

    @abstractmethod
    def write(self, value: T) -> object:
        """Return plain data that reads as `value`."""


def take(kind: Kind[T], value: Value, path: str, faults: Faults) -> list[T]:
    """Return the value read, as a list of one; an empty list where it was bad, which is then recorded."""
    if path in faults.told:
        return []
    try:
        return [kind.read(value, path, faults)]
    except Bad as bad:
        faults.add(path, bad.shown or value.shown(), bad.expected or kind.expected, bad.hint)
        return []


def closest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the known name nearest to `name`; empty if none is near."""
    names = sorted(known)
    lower = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower()[:80], lower, n=1, cutoff=0.6)
    return f"did you mean {lower[near[0]]}?" if near else ""


@dataclass(frozen=True)
class Text(Kind[T]):
    """A scalar whose text `parse` turns into a value; it raises Bad or ValueError for what it does not take.

    `limits` adds to the label, in the documentation of one key.
    """

    label: str
    expected: str
    parse: Callable[[str], T]
    show: Callable[[T], object] = str
    limits: str = ""

    def read(self, value: Value, path: str, faults: Faults) -> T:
        """Return the parsed text."""
        del path, faults
        if not isinstance(value, Scalar) or (value.data is None and not value.quoted):
            raise Bad
        try:
            return self.parse(value.text)
        except ValueError:
            raise Bad from None

    def write(self, value: T) -> object:
        """Return the text of the value."""
        return self.show(value)


@dataclass(frozen=True)
class Number(Kind[float]):
    """A number between two limits, both allowed."""

    low: float
    high: float
    label: str = "number"

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return the limits in words."""
        return _between("a number", self.low, self.high)

    def read(self, value: Value, path: str, faults: Faults) -> float:
        """Return the number."""
        del path, faults
        data = value.data if isinstance(value, Scalar) else None
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise Bad(hint=_unquote(value))
        if not math.isfinite(data) or not self.low <= data <= self.high:
            raise Bad
        return float(data)

    def write(self, value: float) -> object:
        """Return the number, whole where it is whole."""
        return int(value) if value == int(value) else value


@dataclass(frozen=True)
class Whole(Kind[int]):
    """A whole number between two limits, both allowed."""

    low: int
    high: int
    label: str = "whole number"

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return the limits in words."""
        return _between("a whole number", self.low, self.high)

    def read(self, value: Value, path: str, faults: Faults) -> int:
        """Return the number."""
        del path, faults
        data = value.data if isinstance(value, Scalar) else None
        if isinstance(data, bool) or not isinstance(data, int):
            raise Bad(hint=_unquote(value))
        if not self.low <= data <= self.high:
            raise Bad
        return data

    def write(self, value: int) -> object:
        """Return the number."""
        return value


@dataclass(frozen=True)
class Flag(Kind[bool]):
    """True or false."""

    label: str = "true or false"
    expected: str = "true or false"

    def read(self, value: Value, path: str, faults: Faults) -> bool:
        """Return the flag."""
        del path, faults
        if not isinstance(value, Scalar) or not isinstance(value.data, bool):
            raise Bad
        return value.data

    def write(self, value: bool) -> object:  # noqa: FBT001 - the one argument of every kind's write
        """Return the flag."""
        return value


@dataclass(frozen=True)
class Choice(Kind[E]):
    """One of the words of an enumeration.

    `hints` tells those who write another word, in small letters, what they want instead of it.
    """

    words: tuple[E, ...]
    hints: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:  # type: ignore[override]
        """Return the words for the documentation."""
        return " \\| ".join(f"`{word.value}`" for word in self.words)

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return the words for an error."""
        return one_of(word.value for word in self.words)

    def read(self, value: Value, path: str, faults: Faults) -> E:
        """Return the word."""
        del path, faults
        text = value.text if isinstance(value, Scalar) else ""
        for word in self.words:
            if word.value == text:
                return word
        raise Bad(hint=self.hints.get(text.lower()) or closest(text, (word.value for word in self.words)))

    def write(self, value: E) -> object:
        """Return the word."""
        return value.value


@dataclass(frozen=True)
class SecretPlace(Kind[Secret]):
    """Where a secret is. A secret itself is refused, and never repeated."""

    label: str = "secret"
    expected: str = "{env: NAME} or {file: PATH}"

    def read(self, value: Value, path: str, faults: Faults) -> Secret:
        """Return the reference."""
        del path, faults
        if isinstance(value, Scalar) and value.data is not None:
            raise Bad(hint="secrets do not belong in this file", shown="a literal value")
        if not isinstance(value, Mapping) or len(value.entries) != 1:
            raise Bad
        (key, name), *_ = value.entries.items()
        if key not in {"env", "file"} or not isinstance(name, Scalar) or not name.text.strip():
            raise Bad(shown="another mapping")
        if not name.text.isprintable():
            raise Bad(shown="unprintable text")
        if key == "file":
            return Secret(file=name.text)
        if not name.text.replace("_", "a").isalnum() or not name.text.isascii() or name.text[0].isdecimal():
            # Somebody may have put the secret itself there.
            raise Bad(hint="NAME has letters, digits and _", shown="not the name of a variable")
        return Secret(env=name.text)

    def write(self, value: Secret) -> object:
        """Return the reference."""
        return {"env": value.env} if value.env is not None else {"file": value.file}


@dataclass(frozen=True)
class ListOf(Kind[list[Placed[T]]]):
    """A list; each item keeps its path, since bad ones are left out."""

    item: Kind[T]
    at_least: int = 0

    @property
    def label(self) -> str:  # type: ignore[override]
        """Return "list of ..."."""
        return f"list ({self.item.label})"

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return what the list should hold."""
        return f"a list{' of one or more' if self.at_least else ''}, each {self.item.expected}"

    def read(self, value: Value, path: str, faults: Faults) -> list[Placed[T]]:
        """Return the good items."""
        if isinstance(value, Scalar) and value.data is None and not value.quoted and not self.at_least:
            return []
        if not isinstance(value, Sequence):
            raise Bad(hint="write [ ] around it" if isinstance(value, Scalar) and isinstance(self.item, Text) else "")
        if len(value.items) < self.at_least:
            raise Bad(shown="an empty list")
        return [
            Placed(where, read)
            for where, item in ((f"{path}[{index}]", item) for index, item in enumerate(value.items))
            for read in take(self.item, item, where, faults)
        ]

    def write(self, value: list[Placed[T]]) -> object:
        """Return the items, written."""
        return [self.item.write(placed.value) for placed in value]


@dataclass(frozen=True)
class MapOf(Kind[dict[str, Placed[T]]]):
    """Names that the user chooses, and a value for each."""

    key: Text[Any] | Whole
    item: Kind[T]
    at_least: int = 0
    at_most: int = 1_000_000

    @property
    def label(self) -> str:  # type: ignore[override]
        """Return "mapping of ..."."""
        return f"{self.key.label} → {self.item.label}"

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return what the mapping should hold."""
        return f"a mapping from each {self.key.label}" + (", at least one" if self.at_least else "")

    def read(self, value: Value, path: str, faults: Faults) -> dict[str, Placed[T]]:
        """Return the good entries, under their keys as written."""
        if isinstance(value, Scalar) and value.data is None and not value.quoted and not self.at_least:
            return {}
        if not isinstance(value, Mapping):
            raise Bad
        if len(value.entries) < self.at_least:
            raise Bad(shown="an empty mapping")
        if len(value.entries) > self.at_most:
            raise Bad(f"at most {self.at_most:,}", shown=f"{len(value.entries):,} entries")
        entries = {}
        for key, item in value.entries.items():
            where = child(path, key)
            good_key = bool(take(self.key, Scalar(key, line=item.line), where, faults))
            for read in take(self.item, item, where, faults):
                if good_key:
                    entries[key] = Placed(where, read)
        return entries

    def write(self, value: dict[str, Placed[T]]) -> object:
        """Return the entries, written."""
        return {key: self.item.write(placed.value) for key, placed in value.items()}


REFERENCE = "a key of docs/configuration.md"
_MOST_KEYS = 24
"""A fault names all keys of a section with no more of them."""
REQUIRED = object()
"""The default of a key that has none."""


@dataclass(frozen=True)
class Key:
    """One key of a section.

    Attributes:
        text: what it means, one or two sentences.
        default: in the model's units; None where its absence means something, which `absent` then tells.
        absent: what holds where the key is not given, for the documentation.
        example: as one would write it in the file.
    """

    name: str
    kind: Kind[Any]
    text: str
    default: object = None
    absent: str = ""
    example: str = ""


@dataclass(frozen=True)
class Section(Kind[Table]):
    """A mapping with fixed keys. `short` names the key that a bare value stands for, if one may be written.

    `reference` is what a fault points to, where a key is unknown.
    """

    label: str
    keys: tuple[Key, ...]
    text: str = ""
    short: str = ""
    reference: str = REFERENCE

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return the keys."""
        named = [key.name for key in self.keys]
        listed = f"the keys {', '.join(named)}" if len(named) <= _MOST_KEYS else f"keys such as {', '.join(named[:3])}"
        mapping = f"a mapping with {listed}"
        return f"{self._short().expected}, or {mapping}" if self.short else mapping

    def read(self, value: Value, path: str, faults: Faults) -> Table:
        """Return the good values and the defaults."""
        if self.short and isinstance(value, Scalar):
            defaults = {key.name: key.default for key in self.keys}
            return defaults | {self.short: self._short().read(value, path, faults)}
        if isinstance(value, Scalar) and value.data is None and not value.quoted and not self._required():
            value = Mapping({}, value.line)
        if not isinstance(value, Mapping):
            raise Bad
        meant = self._refuse_unknown(value, path, faults)
        table: Table = {}
        for key in self.keys:
            given = value.entries.get(key.name)
            if given is not None:
                for read in take(key.kind, given, child(path, key.name), faults):
                    table[key.name] = read
            elif key.default is REQUIRED and key.name in meant:
                continue  # misspelt, which was just said
            elif key.default is REQUIRED:
                faults.add(child(path, key.name), "missing", key.kind.expected)
            else:
                table[key.name] = key.default
        return table

    def write(self, value: Table) -> object:
        """Return the section, written; what is None is left out."""
        return {key.name: key.kind.write(value[key.name]) for key in self.keys if value.get(key.name) is not None}

    def _short(self) -> Kind[Any]:
        (kind,) = (key.kind for key in self.keys if key.name == self.short)
        return kind

    def _required(self) -> bool:
        return any(key.default is REQUIRED for key in self.keys)

    def _refuse_unknown(self, value: Mapping, path: str, faults: Faults) -> set[str]:
        """Record keys that are not ours; return those of ours that were probably meant."""
        names = [key.name for key in self.keys]
        meant = set()
        for name in value.entries:
            if name not in names:
                hint = closest(name, names)
                faults.add(child(path, name), "unknown key", self.reference if hint else one_of(names), hint)
                meant |= {key for key in names if hint and hint == closest(key, names)}
        return meant


@dataclass(frozen=True)
class OneOrMany(Kind[list[Placed[T]]]):
    """A thing, or a list of such things."""

    item: Kind[T]

    @property
    def label(self) -> str:  # type: ignore[override]
        """Return the item's label."""
        return self.item.label

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return what either form is."""
        return f"{self.item.expected}, or a list of such"

    def read(self, value: Value, path: str, faults: Faults) -> list[Placed[T]]:
        """Return the things."""
        if isinstance(value, Sequence) and value.items:
            return ListOf(self.item).read(value, path, faults)
        return [Placed(path, self.item.read(value, path, faults))]

    def write(self, value: list[Placed[T]]) -> object:
        """Return the shorter form."""
        written = [self.item.write(placed.value) for placed in value]
        return written[0] if len(written) == 1 else written


@dataclass(frozen=True)
class OneOf(Kind[Table]):
    """A mapping whose key `by` says which section the rest follows."""

    by: str
    sections: dict[str, Section]
    label: str

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Return what the deciding key may be."""
        return f"a mapping whose {self.by} is {one_of(self.sections)}"

    def read(self, value: Value, path: str, faults: Faults) -> Table:
        """Return the table of the section, with the deciding key."""
        if not isinstance(value, Mapping):
            raise Bad
        chosen = value.entries.get(self.by)
        name = chosen.text if isinstance(chosen, Scalar) else ""
        if chosen is None or name not in self.sections:
            shown = chosen.shown() if chosen is not None else "missing"
            faults.add(child(path, self.by), shown, one_of(self.sections), closest(name, self.sections))
            return {}
        rest = Mapping({key: entry for key, entry in value.entries.items() if key != self.by}, value.line)
        return {self.by: name} | self.sections[name].read(rest, path, faults)

    def write(self, value: Table) -> object:
        """Return the section, written, the deciding key first."""
        written = self.sections[value[self.by]].write(value)
        return {self.by: value[self.by], **(written if isinstance(written, dict) else {})}


def one_of(words: Iterable[str]) -> str:
    """Return "a, b or c"."""
    names = list(words)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def some(words: list[str]) -> str:
    """Return the first of many words, and how many more there are."""
    return words[0] if len(words) == 1 else f"{words[0]} and {len(words) - 1:,} more"


def _between(what: str, low: float, high: float) -> str:
    return f"{what} from {grouped(low)} to {grouped(high)}"


def grouped(number: float) -> str:
    """Return a number with its thousands apart, where there are enough of them to need it."""
    return f"{number:,}" if number >= 100_000 else f"{number}"


def _unquote(value: Value) -> str:
    quoted = isinstance(value, Scalar) and value.quoted
    plain = Scalar(value.text).data if isinstance(value, Scalar) else None
    return "without quotes" if quoted and isinstance(plain, int | float) and not isinstance(plain, bool) else ""
