"""Machines from an inventory of Ansible, INI or YAML, or from a file in the format of /etc/hosts."""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

import yaml

from app.errors import ClusterflowError
from cluster.model import Address, AnsibleInventory, Machine
from enrichment.inventory.reaching import MOST, address_of, file_text, resolved

_RANGE = re.compile(r"\[([0-9]+|[a-z]):([0-9]+|[a-z])(?::([0-9]+))?\]")
_COMMENT = re.compile(r"(?:^|\s)[#;]")
_SECTION = re.compile(r"\[([^\]:]+)(?::(\w+))?\]")


class _Loader(yaml.SafeLoader):
    """Passes over what bears a tag of Ansible's own, such as `!vault`: only Ansible can read it."""


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: None)

Host = tuple[str, str, Mapping[str, Any]]
"""Name, the first group that lists it, variables."""


def ask(one: AnsibleInventory) -> list[Machine]:
    """Return the hosts. Variables of groups are not read: an address is a host's own."""
    text = file_text(one.file or "")
    lines = [line for raw in text.splitlines() if (line := _COMMENT.split(raw)[0].strip())]
    if lines and all(_is_address(line.split()[0]) for line in lines):
        return [
            Machine(words[1], (address,)) for line in lines if len(words := line.split()) > 1
            if (address := address_of(words[0])) is not None
        ]  # fmt: skip
    hosts: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, group, variables in _of_yaml(text) if _is_yaml(text) else _of_ini(text.splitlines()):
        known = hosts.setdefault(name, (group, {}))
        # Of several groups the last one's variable counts, and the first one's name that is not `all`.
        hosts[name] = (group if known[0] in {"", "all"} else known[0]), known[1] | dict(variables)
        if len(hosts) > MOST:
            raise ClusterflowError(f"{one.file}: more than {MOST:,} hosts")
    return [Machine(name, _addresses(name, told, one), group) for name, (group, told) in hosts.items()]


def _is_address(text: str) -> bool:
    """Whether it is any address; such files also name those that are no machine's, as of multicast."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _addresses(name: str, told: Mapping[str, Any], one: AnsibleInventory) -> tuple[Address, ...]:
    values = [value for key in one.variables for value in _flat(told.get(key))]
    return tuple(dict.fromkeys(found for value in values or [name] for found in resolved(value)))


def _flat(value: object) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    # What templates stand for only Ansible knows.
    return [str(one).partition("/")[0] for one in values if one and "{{" not in str(one)]


def _is_yaml(text: str) -> bool:
    first = next(
        (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "---"))), ""
    )
    return bool(re.fullmatch(r"[\"']?[\w.-]+[\"']?:\s*(&\w+)?\s*(\{.*)?", first.partition(" #")[0].rstrip()))


def _of_ini(lines: list[str]) -> Iterator[Host]:
    group, kind = "", ""
    for raw in lines:
        line = _COMMENT.split(raw)[0].strip()
        section = _SECTION.fullmatch(line)
        if section:
            group, kind = section[1], section[2] or "hosts"
        elif line and kind in {"", "hosts"}:
            pattern = line.split()[0]
            try:
                # In quotes, as in a password, there is no comment.
                words = shlex.split(raw, comments=True)
            except ValueError as error:
                # And no message has the rest of the line.
                raise ClusterflowError(f"{pattern[:60]}: {error}") from error
            told = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            yield from ((name, group, told) for name in _expanded(pattern))


def _of_yaml(text: str) -> Iterator[Host]:
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader that reads less
    except yaml.MarkedYAMLError as error:
        # Its own words repeat the line.
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ClusterflowError(f"no YAML: {place}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ClusterflowError(f"no YAML: {' '.join(str(error).split())[:160]}") from error
    # A group may be its own child by an alias: no group is looked into twice.
    waiting, seen = [(str(name), body) for name, body in document.items()], set[int]()
    while waiting:
        group, body = waiting.pop(0)
        if id(body) in seen:
            continue
        seen.add(id(body))
        for pattern, told in ((body or {}).get("hosts") or {}).items():
            yield from ((name, group, told or {}) for name in _expanded(str(pattern)))
        waiting += [(str(name), child) for name, child in ((body or {}).get("children") or {}).items()]


def _expanded(pattern: str) -> list[str]:
    """Return the names of ``gpu[01:16].example.org``, ends included, digits as wide as the first has; letters too."""
    sets = []
    for first, last, step in _RANGE.findall(pattern):
        if first.isdigit() and last.isdigit():
            numbers = range(int(first), min(int(last), int(first) + MOST) + 1, int(step or 1) or 1)
            sets.append([str(number).zfill(len(first)) for number in numbers])
        else:
            sets.append([chr(code) for code in range(ord(first), ord(last) + 1, int(step or 1) or 1)])
    pieces = _RANGE.split(pattern)[::4]
    return [
        "".join(itertools.chain(*zip(pieces, (*chosen, ""), strict=True)))
        for chosen in itertools.islice(itertools.product(*sets), MOST)
    ]
