"""Writes the page of all keys: ``python -m cluster.reference docs/reference/configuration.md``."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.model import ROOT
from cluster.scalars import names
from cluster.scalars.declared import REQUIRED, Key, OneOf, Section
from cluster.scalars.kinds import SECRET, Choice, Kind, ListOf, MapOf, Number, OneOrMany, Text, Whole
from cluster.sections.network.inventory import COLUMNS, REQUIRED_COLUMNS
from cluster.sections.network.services import WELL_KNOWN, port_runs

PROTOCOL_NAMES = {number: name for name, number in names.PROTOCOLS.items()}

INTRODUCTION = """\
# Configuration

<!-- Written by `python -m cluster.reference`; edit the section's module in cluster/sections instead. -->

One file describes a cluster: `cluster.yaml`. Every command reads it: the one in the folder where it runs, or the one
that `--config FILE` or the environment variable `CLUSTERFLOW_CONFIG` names.

- `clusterflow init` writes a commented file to start from.
- `clusterflow check` tells every fault at once, each with line, path, value, what was expected and a hint, and ends
  with 2. It also says what is allowed but probably not meant.
- `clusterflow dump` prints the file with every default written out.

The file is YAML 1.2: `23:00` and dates are text, `true` and `false` are the only flags. Keys that are not listed here
are errors. Anchors, aliases and `<<` may be used.
"""

RANGES = """\
## Numbered names

`gpu-{01..16}` stands for gpu-01 to gpu-16, with as many digits as the first number has. An address of the node may hold
a range of the same length, which counts in lockstep: `"10.20.0.{1..16}"`. The digits are put in as text, so
`"fd00:20::{1..16}"` ends with `fd00:20::16`. Without a range in the name there may be none in the addresses.
"""

SECRETS = """\
## Secrets

A secret never stands in this file. `{env: NAME}` takes it from an environment variable, `{file: PATH}` from a
file.
"""


def reference() -> str:
    """Return the documentation of cluster.yaml as Markdown."""
    parts = [
        INTRODUCTION,
        "## Keys\n",
        table(key_rows(ROOT)),
        *chapters("", ROOT),
        RANGES,
        *_inventory(),
        SECRETS,
        *_kinds(),
        *_services(),
    ]
    return "\n".join(parts)


def chapters(path: str, section: Section) -> Iterator[str]:
    """Yield the chapters of the sections below one, each before those below it."""
    for key in section.keys:
        where = f"{path}.{key.name}" if path else key.name
        yield from _chapter(where, key.kind)


def _chapter(path: str, kind: Kind[Any]) -> Iterator[str]:
    if isinstance(kind, ListOf):
        yield from _chapter(f"{path}[]", kind.item)
    elif isinstance(kind, MapOf):
        yield from _chapter(f"{path}.<{kind.key.label.split(' or ')[0]}>", kind.item)
    elif isinstance(kind, OneOrMany):
        yield from _chapter(path, kind.item)
    elif isinstance(kind, OneOf):
        yield f"## `{path}`\n\nA {kind.label}; its `{kind.by}` decides about the other keys.\n"
        for name, section in kind.sections.items():
            yield f"### `{kind.by}: {name}`\n"
            yield table(key_rows(section))
    elif isinstance(kind, Section):
        yield f"{'###' if '.' in path.replace('.<', '') else '##'} `{path}`\n"
        if kind.text:
            yield f"{kind.text}\n"
        yield table(key_rows(kind))
        yield from chapters(path, kind)


def key_rows(section: Section) -> list[list[str]]:
    """Return the rows of a section's table, header first."""
    return [["Key", "Value", "Default", "Meaning"], *(_row(key) for key in section.keys)]


def _row(key: Key) -> list[str]:
    example = f" For example `{key.example}`." if key.example else ""
    return [f"`{key.name}`", _value(key.kind), _default(key), f"{key.text}{example}"]


def _value(kind: Kind[Any]) -> str:
    if isinstance(kind, Section | OneOf):
        return "see below"
    if isinstance(kind, ListOf) and isinstance(kind.item, Section):
        return "list, see below"
    if isinstance(kind, MapOf):
        return "mapping, see below"
    if isinstance(kind, Whole | Number):
        return kind.expected.removeprefix("a ")
    return f"{kind.label}, {kind.limits}" if isinstance(kind, Text) and kind.limits else kind.label


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "**required**"
    if key.absent:
        return key.absent
    if isinstance(key.kind, Section):
        return "as below"
    if key.default is None:
        return "none"
    if key.default in ([], {}, ()):
        return "none"
    written = key.kind.write(key.default)
    return f"`{str(written).lower() if isinstance(written, bool) else written}`"


def table(rows: list[list[str]]) -> str:
    """Return a Markdown table; the first row is its header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def _inventory() -> Iterator[str]:
    needed = ", ".join(f"`{name}`" for name in REQUIRED_COLUMNS)
    optional = ", ".join(f"`{name}`" for name in COLUMNS if name not in REQUIRED_COLUMNS)
    yield (
        "## Inventory file\n\n"
        "`inventory: FILE`, or `inventory.file`, names a CSV file whose header has the columns "
        f"{needed} and may have\n{optional}, in any order. "
        "Each row is an address; rows of one name fold into one node.\nSemicolons and tabs part cells as well as "
        "commas. Blank lines and lines that begin with `#` are skipped. A node stands either there or under `nodes`."
        "\n\n"
        "```csv\nname,group,address,plane,rail,gpus\n"
        "gpu-01,training,10.20.0.1,compute,0,8\ngpu-01,training,10.20.1.1,compute,1,8\n```\n"
    )


def _kinds() -> Iterator[str]:
    yield "## Values\n"
    yield table([["Value", "Written as"], *([label, expected] for label, expected in sorted(_scalars().items()))])
    reserved = ", ".join(f"`{name}`" for name in sorted(names.RESERVED))
    yield f"Nothing may be named {reserved}: the store uses these words itself.\n"


def _scalars() -> dict[str, str]:
    """Return label -> expectation of each scalar kind in the table."""
    found: dict[str, str] = {}

    def visit(kind: Kind[Any]) -> None:
        if isinstance(kind, Section):
            for key in kind.keys:
                visit(key.kind)
        elif isinstance(kind, OneOf):
            for section in kind.sections.values():
                visit(section)
        elif isinstance(kind, ListOf | OneOrMany):
            visit(kind.item)
        elif isinstance(kind, MapOf):
            visit(kind.key)
            visit(kind.item)
        elif isinstance(kind, Text) and not isinstance(kind, Choice):
            found.setdefault(kind.label, kind.expected)

    visit(ROOT)
    found["secret"] = SECRET.expected
    return found


def _services() -> Iterator[str]:
    yield "## Well-known services\n\nWhat has no name here or under `services` is `other`.\n"
    rows = [
        [f"`{service.name}`", "/".join(PROTOCOL_NAMES[number] for number in service.protocols), _ports(service.ports)]
        for service in sorted(WELL_KNOWN, key=lambda service: service.name)
    ]
    yield table([["Service", "Protocols", "Ports"], *rows])


def _ports(ports: tuple[int, ...]) -> str:
    return ", ".join(str(names.PORTS.write(run)) for run in port_runs(ports))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
