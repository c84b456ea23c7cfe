"""Sections of a file: mappings with fixed keys, which the fields of a class declare, and what they become."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Entries
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

from cluster.document import Faults, Mapping, Scalar, Value, child
from cluster.scalars.kinds import Bad, Kind, ListOf, MapOf, OneOrMany, Placed, Table, Text, closest, one_of, take

T = TypeVar("T")

_MOST_LISTED = 20
"""Keys of a section that a fault lists; nobody reads more in one line."""
REFERENCE = "a key of docs/reference/configuration.md"

_MOST_KEYS = 24
"""A fault names all keys of a section with no more of them."""
_MOST_PLACES = 3
"""Sections that a hint names."""

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
        attribute: of the section's class, whose value it gives; empty: a builder of the section's own looks at it.
    """

    name: str
    kind: Kind[Any]
    text: str
    default: object = None
    absent: str = ""
    example: str = ""
    attribute: str = ""

    def missing(self) -> Any:  # noqa: ANN401 - what its kind reads
        """Return what a table holds where the key is not given."""
        if self.default is None or isinstance(self.kind, Section) or (self.absent and self.attribute):
            return None
        if isinstance(self.kind, MapOf):
            return {}
        if isinstance(self.kind, ListOf) and isinstance(self.default, tuple):
            return [Placed("", item) for item in self.default]
        return self.default


def key(
    kind: Kind[Any], text: str = "", *, default: object = REQUIRED, name: str = "", absent: str = "", example: str = ""
) -> Any:  # noqa: ANN401 - stands for a field of any type
    """Declare a field of a section's class that is a key of the file, as `Key` describes it.

    Args:
        kind: how it is read.
        text: what it means.
        default: of the field.
        name: of the key, where it is not that of the field.
        absent: what holds where the key is not given; where the field has no default, a builder gives it.
        example: as one would write it in the file.
    """
    metadata = {"key": (name, kind, text, absent, example)}
    return field(metadata=metadata) if default is REQUIRED else field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(key, field))
def record(owner: type[T]) -> type[T]:
    """Make a frozen dataclass whose fields may be keys of the file."""
    return dataclass(frozen=True, slots=True)(owner)


def keys_of(owner: type) -> tuple[Key, ...]:
    """Return the keys that the fields of a class declare; where fields have no order, its own before inherited ones."""

    def distance(item: dataclasses.Field[Any]) -> int:
        bases = [item.name in inspect.get_annotations(base) for base in owner.__mro__]
        return bases.index(True) if item.kw_only else 0

    found = []
    for item in sorted(dataclasses.fields(owner), key=distance):
        if "key" in item.metadata:
            name, kind, text, absent, example = item.metadata["key"]
            has_default = item.default is not dataclasses.MISSING
            default = item.default if has_default else None if absent else REQUIRED
            found.append(Key(name or item.name, kind, text, default, absent, example, item.name))
    return tuple(found)


@dataclass(frozen=True)
class Section(Kind[Table]):
    """A mapping with fixed keys. `short` names the key that a bare value stands for, if one may be written.

    `reference` is what a fault points to, where a key is unknown. `owner` is the class that it becomes; `table_of` is
    for one whose attributes are not the keys: it returns the values by key.
    """

    label: str
    keys: tuple[Key, ...]
    text: str = ""
    short: str = ""
    reference: str = REFERENCE
    owner: Any = None
    table_of: Callable[[Any], Table] | None = None

    @classmethod
    def of(
        cls,
        owner: type,
        label: str,
        *more: Key,
        text: str | None = None,
        after: str = "",
        **given: Any,  # noqa: ANN401 - attributes of any type
    ) -> "Section":
        """Return the section that a class declares.

        Args:
            owner: the class; its docstring is the section's text, less what stands behind `Attributes:`.
            label: names it in faults.
            more: keys that are no attributes of the class; a section among them has attributes of the class for keys.
            text: in place of the docstring's.
            after: the key behind which `more` stand; empty: the last.
            given: other attributes of the section.
        """
        told = " ".join((owner.__doc__ or "").partition("Attributes:")[0].split()) if text is None else text
        within = {one.attribute for key in more if isinstance(key.kind, Section) for one in key.kind.keys}
        keys = [key for key in keys_of(owner) if key.attribute not in within]
        place = [key.name for key in keys].index(after) + 1 if after else len(keys)
        return cls(label, (*keys[:place], *more, *keys[place:]), told, owner=owner, **given)

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
            defaults = {key.name: key.missing() for key in self.keys}
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
                table[key.name] = key.missing()
        return table

    def build(
        self, value: Table | None, folder: Path = Path(), *, name: object = None, made: Table | None = None
    ) -> Any:  # noqa: ANN401 - of the class `owner`
        """Return the object of a table; None where what it needs was bad.

        Args:
            value: what was read; None: nothing was given.
            folder: what relative paths are relative to.
            name: under which a mapping has the section: the first attribute.
            made: attributes that somebody else has built.
        """
        given = {} if name is None else {dataclasses.fields(self.owner)[0].name: name}
        given |= self.attributes(value or {}, folder) | (made or {})
        needed = {item.name for item in dataclasses.fields(self.owner) if item.default is dataclasses.MISSING}
        return self.owner(**given) if needed <= given.keys() else None

    def attributes(self, table: Table, folder: Path) -> Table:
        """Return the attributes of the object of a table."""
        given: Table = {}
        for key in self.keys:
            read = table.get(key.name)
            if not key.attribute and isinstance(key.kind, Section):
                given |= key.kind.attributes(read or {}, folder)
            elif key.attribute and read is not None:
                built = key.kind.build(read, folder)
                if built is not None or isinstance(key.kind, Text):
                    given[key.attribute] = built
        return given

    def write(self, value: Any) -> object:  # noqa: ANN401 - of the class `owner`
        """Return the section, written; what is None or empty is left out, but for lists and mappings."""
        if self.table_of:
            return self.write_table(self.table_of(value))
        # A section that is no attribute has attributes of ours for keys.
        return self.write_table(
            {
                key.name: getattr(value, key.attribute) if key.attribute else value
                for key in self.keys
                if key.attribute or isinstance(key.kind, Section)
            }
        )

    def build_named(self, value: Table, folder: Path, name: object) -> Any:  # noqa: ANN401 - as of `build`
        """Return the object, whose first attribute is the name."""
        return self.build(value, folder, name=name)

    def write_named(self, entry: Any) -> tuple[object, object]:  # noqa: ANN401 - as of `write`
        """Return the name of an object, which is its first attribute, and the section."""
        return getattr(entry, dataclasses.fields(entry)[0].name), self.write(entry)

    def write_table(self, table: Table) -> Table:
        """Return what the model holds by key, written."""
        written: Table = {}
        for key in self.keys:
            one = table.get(key.name)
            if one == "" or (one is None and not (isinstance(key.kind, Text) and key.kind.off)):
                continue
            found = key.kind.write(one)
            if found != {} or isinstance(key.kind, MapOf):
                written[key.name] = found
        return written

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
                near, sure = closest(name, names), closest(name, names, is_sure=True)
                elsewhere = _elsewhere(name, faults.places)
                # What one section has at its top is meant; a name deep in some may be anybody's.
                hint = sure or (elsewhere if elsewhere.count(".") == 1 else "") or near or elsewhere
                expected = self.reference if hint or len(names) > _MOST_LISTED else one_of(names)
                faults.add(child(path, name), "unknown key", expected, hint)
                meant |= {key for key in names if hint and hint == closest(key, names)}
        return meant


def places(section: Section, path: str = "") -> Iterator[str]:
    """Yield the paths of a section's keys, such as `exporters.*.sampling`."""
    for one in section.keys:
        where, kind = (f"{path}.{one.name}" if path else one.name), one.kind
        yield where
        while isinstance(kind, ListOf | MapOf | OneOrMany):
            where += ".*" * isinstance(kind, MapOf) + "[]" * isinstance(kind, ListOf)
            kind = kind.item
        if isinstance(kind, Section):
            yield from places(kind, where)


def _elsewhere(name: str, paths: Sequence[str]) -> str:
    """Return a hint to the sections that have a key of this name, or a name that begins with the section's."""
    found = [path for path in paths if path.rpartition(".")[2] == name or path == name.replace("_", ".", 1)]
    return f"did you mean {' or '.join(found)}?" if 1 <= len(found) <= _MOST_PLACES else ""


@dataclass(frozen=True)
class OneOf(Kind[Table]):
    """A mapping whose key `by` says which section the rest follows."""

    by: str
    sections: Entries[str, Section]
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

    def build(self, value: Table, folder: Path, *, name: object = None) -> Any:  # noqa: ANN401 - of the section's class
        """Return the object of the section; None where what it needs was bad."""
        return self.sections[value[self.by]].build(value, folder, name=name) if self.by in value else None

    def build_named(self, value: Table, folder: Path, name: object) -> Any:  # noqa: ANN401 - as of `build`
        """Return the object, whose first attribute is the name."""
        return self.build(value, folder, name=name)

    def write_named(self, entry: Any) -> tuple[object, object]:  # noqa: ANN401 - as of `write`
        """Return the name of an object, which is its first attribute, and the section."""
        return getattr(entry, dataclasses.fields(entry)[0].name), self.write(entry)

    def write(self, value: Any) -> object:  # noqa: ANN401 - has a `kind`
        """Return the section, written, the deciding key first."""
        written = self.sections[value.kind].write(value)
        return {self.by: str(value.kind), **(written if isinstance(written, dict) else {})}


def check_pair(path: str, table: Table, one: str, other: str, faults: Faults) -> None:
    """Record that one of two keys is given without the other: a user without a password."""
    for key, missing in ((one, other), (other, one)):
        if table.get(key) is not None and table.get(missing, "") is None:
            faults.add(f"{path}.{missing}", "missing", f"a {missing}, as {key} is given")
