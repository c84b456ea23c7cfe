"""What has changed between two versions of plain data, as a JSON merge patch (RFC 7396).

None stands for what is not there: data that is compared holds none that means anything else.
"""

from collections.abc import Mapping
from typing import Any


def difference(before: Any, after: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - plain data
    """Return the patch that makes a mapping of what was there before; empty where nothing differs."""
    if not isinstance(before, Mapping):
        before = {}
    found: dict[str, Any] = {key: None for key in before if after.get(key) is None}
    for key, value in after.items():
        known = before.get(key)
        if value is None or value is known:
            continue
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            changed = difference(known, value)
            if changed:
                found[key] = changed
        elif value != known:
            found[key] = value
    return found


def patched(before: Any, patch: Any) -> Any:  # noqa: ANN401 - plain data
    """Return what a patch makes of plain data, which stays as it is."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = patched(found.get(key), value)
    return found
