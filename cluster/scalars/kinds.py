"""The kinds of values that cluster.yaml is made of: how each is read, what is expected of it, how it is written back.

A kind reads one `Value` and returns what the model wants. What is wrong raises `Bad`; a container catches that,
records it with its path, and goes on, so that one reading finds every fault.
"""

import dataclasses
import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from cluster.document import Faults, Mapping, Scalar, Sequence, Value, child

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
class Secret:
    """Where a secret is: the name of an environment variable or of a file. Never the secret itself."""

    env: str | None = None
    file: str | None = None


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

    def build(self, value: Any, folder: Path) -> Any:  # noqa: ANN401 - of any kind
        """Return what the model holds, of what was read; a relative path is relative to `folder`."""
        del folder
        return value

    def build_named(self, value: Any, folder: Path, name: object) -> Any:  # noqa: ANN401 - of any kind
        """Return what the model holds of an entry of a mapping: its name and its value."""
        return name, self.build(value, folder)

    def write_named(self, entry: Any) -> tuple[object, object]:  # noqa: ANN401 - a pair, or a class of two fields
        """Return name and plain data of an entry of a mapping."""
        name, value = entry if isinstance(entry, tuple) else dataclasses.astuple(entry)
        return name, self.write(value)

    def write(self, value: Any) -> object:  # noqa: ANN401 - what the model holds, of any kind
        """Return plain data that reads as what the model holds: the same, where that is plain."""
        return value


def take(kind: Kind[T], value: Value, path: str, faults: Faults) -> list[T]:
    """Return the value read, as a list of one; an empty list where it was bad, which is then recorded."""
    if path in faults.told:
        return []
    try:
        return [kind.read(value, path, faults)]
    except Bad as bad:
        faults.add(path, bad.shown or value.shown(), bad.expected or kind.expected, bad.hint)
        return []


_FAMILY = 8
"""Known names with the same first word that a hint lists."""
_TYPO = 0.8


_ELSEWHERE = {
    "any": "*", "all": "*", "src": "from", "source": "from", "dst": "to", "destination": "to", "dest": "to",
    "ip": "address", "host": "address", "rate": "sampling", "ratio": "sampling", "bandwidth": "speed",
    "ports": "interfaces", "switches": "exporters", "routers": "exporters", "devices": "exporters", "name": "cluster",
    "subnets": "prefixes", "networks": "prefixes", "cidr": "prefixes", "influxdb": "store", "influx": "store",
    "database": "store", "alerts": "notify", "alerting": "notify", "policy": "allowed", "matrix": "allowed",
    "gpu": "training", "compute": "training", "backend": "compute", "mgmt": "management", "oob": "management",
    "bytes": "volume", "size": "volume", "limit": "volume", "minutes": "window", "period": "window",
}  # fmt: skip
"""What other tools say -> what it is called here."""


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that is spelt so elsewhere, as a whole or by one of its words; empty if none is."""
    words = name.lower().replace("-", "_").split("_")
    changed = ([*words[:i], _ELSEWHERE.get(word, word), *words[i + 1 :]] for i, word in enumerate(words))
    return next((one for one in (_ELSEWHERE.get(name.lower(), ""), *map("_".join, changed)) if one in known), "")


def closest(name: str, known: Iterable[str], *, is_sure: bool = False) -> str:
    """Return a hint that names the known name nearest to `name`; empty if none is near, or sure to be meant."""
    names = sorted(known)
    if name not in names and (meant := _meant(name, names)):
        return f"did you mean {meant}?" if meant != "*" else 'did you mean "*"?'
    lower = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower()[:80], lower, n=1, cutoff=0.6)
    is_typo = near and difflib.SequenceMatcher(None, name.lower()[:80], near[0]).ratio() >= _TYPO
    if is_sure and not is_typo:
        return ""
    # The first word right, the rest a guess: one of those that begin so; or all of it the last word of some.
    begin, found, _ = name.lower().partition("_")
    family = [one for one in lower if (one.startswith(f"{begin}_") if found else one.endswith(f"_{begin}"))]
    if family and not is_typo and len(family) <= _FAMILY:
        return f"did you mean {' or '.join(lower[one] for one in family)}?"
    return f"did you mean {lower[near[0]]}?" if near else ""


@dataclass(frozen=True)
class Text(Kind[T]):
    """A scalar whose text `parse` turns into a value; it raises Bad or ValueError for what it does not take.

    `limits` adds to the label, in the documentation of one key. `place` tells what the model holds of a value, given
    the folder that relative paths are relative to. `off` is the text that stands for None in the model.
    """

    label: str
    expected: str
    parse: Callable[[str], T]
    show: Callable[[T], object] = str
    limits: str = ""
    place: Callable[[Path, T], object] | None = None
    off: str = ""

    def read(self, value: Value, path: str, faults: Faults) -> T:
        """Return the parsed text."""
        del path, faults
        if not isinstance(value, Scalar) or (value.data is None and not value.quoted):
            raise Bad
        try:
            return self.parse(value.text)
        except ValueError:
            raise Bad from None

    def build(self, value: T, folder: Path) -> object:
        """Return the value, in its place."""
        if self.off and value == self.off:
            return None
        return self.place(folder, value) if self.place else value

    def write(self, value: T | None) -> object:
        """Return the text of the value."""
        return self.off if value is None else self.show(value)


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

    def build(self, value: list[Placed[T]], folder: Path) -> tuple[Any, ...]:
        """Return the items; of equal texts one."""
        built = [one for placed in value if (one := self.item.build(placed.value, folder)) is not None]
        return tuple(dict.fromkeys(built) if isinstance(self.item, Text) else built)

    def write(self, value: Iterable[Any]) -> object:
        """Return the items, written."""
        return [self.item.write(item) for item in value]


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

    def build(self, value: dict[str, Placed[Any]], folder: Path) -> tuple[Any, ...]:
        """Return the entries: objects whose first attribute is their name, or pairs of name and value."""
        entries = (
            self.item.build_named(placed.value, folder, int(key) if isinstance(self.key, Whole) else key)
            for key, placed in value.items()
        )
        return tuple(entry for entry in entries if entry is not None)

    def write(self, value: Iterable[Any]) -> object:
        """Return the entries, written."""
        return {str(name): written for name, written in map(self.item.write_named, value)}


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

    def write(self, value: Iterable[Any]) -> object:
        """Return the shorter form."""
        written = [self.item.write(item) for item in value]
        return written[0] if len(written) == 1 else written


FLAG = Flag()
SECRET = SecretPlace()
PORT = Whole(1, 65_535, "port")


def one_of(words: Iterable[str]) -> str:
    """Return "a, b or c"."""
    names = list(words)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _between(what: str, low: float, high: float) -> str:
    return f"{what} from {grouped(low)} to {grouped(high)}"


def grouped(number: float) -> str:
    """Return a number with its thousands apart, where there are enough of them to need it."""
    return f"{number:,}" if number >= 100_000 else f"{number}"


def _unquote(value: Value) -> str:
    quoted = isinstance(value, Scalar) and value.quoted
    plain = Scalar(value.text).data if isinstance(value, Scalar) else None
    return "without quotes" if quoted and isinstance(plain, int | float) and not isinstance(plain, bool) else ""
