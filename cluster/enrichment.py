"""When lists about addresses are too old, from cluster.yaml."""

from cluster.kinds import Placed, Table
from cluster.model import ListSettings


def build_list_settings(table: Table | None) -> ListSettings:
    """Return the limits; defaults where the file gives none."""
    given = dict(table or {})
    by_list: dict[str, Placed[int]] = given.pop("lists", None) or {}
    return ListSettings(**given, by_list=tuple((name, placed.value) for name, placed in by_list.items()))
