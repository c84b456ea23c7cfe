"""What differs between two states of cluster.yaml, key by key: for the log of changes, and for a reload.

Secrets cannot show: a `Cluster` holds where they are, never what they are.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cluster.document import child
from cluster.dump import plain_cluster
from cluster.model import Cluster

_LONGEST = 200
"""Longest value that a change repeats, in characters."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs.

    Attributes:
        path: YAML path such as ``thresholds.exfil_volume``; of a list the path of the list.
        old, new: the values as JSON, defaults included; None where there is none.
    """

    path: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """Return the change on one line."""
        if self.old is None:
            return f"{self.path}: added {self.new}"
        if self.new is None:
            return f"{self.path}: removed {self.old}"
        return f"{self.path}: {self.old} -> {self.new}"


def changes(old: Cluster, new: Cluster) -> list[Change]:
    """Return what differs, in the order of the documentation; nodes of an inventory count like those of the file."""
    return plain_changes(plain_cluster(old), plain_cluster(new))


def plain_changes(old: object, new: object) -> list[Change]:
    """Return what differs between two answers of `plain_cluster`."""
    return list(_differences("", old, new))


def _differences(path: str, old: object, new: object) -> Iterator[Change]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            where = child(path, str(key))
            if key not in new:
                yield Change(where, _shown(old[key]), None)
            elif key not in old:
                yield Change(where, None, _shown(new[key]))
            else:
                yield from _differences(where, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        gone, come = _without(old, new), _without(new, old)
        yield from (Change(path, _shown(item), None) for item in gone)
        yield from (Change(path, None, _shown(item)) for item in come)
        if not gone and not come:
            # Only the order: it decides where the first match wins.
            yield Change(path, _shown(old), _shown(new))
    else:
        yield Change(path, _shown(old), _shown(new))


def _without(items: list[object], others: list[object]) -> list[object]:
    """Return the items that the others do not hold, each as often as it is missing there."""
    left = Counter(map(_key, others))
    missing = []
    for item in items:
        key = _key(item)
        if left[key]:
            left[key] -= 1
        else:
            missing.append(item)
    return missing


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
