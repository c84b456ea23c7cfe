"""Faults of boards that Grafana 12's API accepts and only a browser shows.

Each check reads a board's JSON as Grafana loads it, and says what would be seen. Boards of a site's own, made with any
tool, are read like ours.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.units import format_duration
from dashboards.filled_queries import own_range, seconds
from dashboards.palette import BLIND
from dashboards.panels import COLUMNS, timeline_rows
from dashboards.registry import BOARDS, HOME
from store.influxql import LASTING

Json = dict[str, Any]

_COLUMN, _LAPTOP_COLUMN, _GAP = 78.8, 55.7, 8
"""Pixels of a column of Grafana's grid on screens of 1920 and 1366 pixels, with the gap that a panel loses."""

_TITLE_PADDING, _ICON, _LETTER = 47, 30, 7.3
_HIDDEN = 2
_UNSIZED = 150
"""Pixels of a table's column without a width, where the table does not say otherwise."""
_DURATION = 84
"""Pixels that a duration takes; what is too long for a cell loses its begin."""

_CHOOSE = {"filterFieldsByName", "sortBy", "limit", "organize"}
_DATES = ("dateTime", "time:")
_GROUP_TAG = re.compile(r"\$tag_\w*group\b")
_TAG = re.compile(r"\$tag_\w+")
_QUERY = re.compile(r"\s*select\b", re.IGNORECASE)
_SELECTED = re.compile(r'AS "(\w+)"')
_RETENTION = re.compile(r'FROM "(\w+)"\.')
_OWN_RANGE = re.compile(r"\btime\s*>(?!= \(\$\{__from\})")
_MEASUREMENT = re.compile(r'FROM "\w+"\."(\w+)"')


def faults(board: Json) -> list[str]:
    """Return what a person would see go wrong on this board, a line each: panel, what, why, and what to do."""
    found = [f"{panel.get('title')}: {fault}" for panel in board["panels"] for check in PANEL for fault in check(panel)]
    return found + [fault for check in BOARD for fault in check(board)]


def cut(board: Json, kept: Mapping[str, int]) -> Iterator[str]:
    """Yield the panels whose range is longer than what they read is kept; `kept`: retention -> seconds."""
    for panel in board["panels"]:
        try:
            since = seconds(own_range(panel) or board["time"]["from"].removeprefix("now-"))
        except ValueError:
            # `now/d` and the like are no length.
            continue
        for target in panel.get("targets", []):
            text = LASTING.sub("", target.get("query", ""))
            read = set(_RETENTION.findall(text)) & kept.keys()
            # A query with a limit of its own may stop sooner.
            if read and not _OWN_RANGE.search(text) and (longest := max(kept[name] for name in read)) < since:
                yield (
                    f"{panel.get('title')}: query {target['refId']} reads {', '.join(sorted(read))}, kept for "
                    f"{format_duration(longest)}, but shows {format_duration(since)}: read a coarser one, or keep "
                    "it longer"
                )


# -- of panels -----------------------------------------------------------------------------------------


def slashes(panel: Json) -> Iterator[str]:
    """A quotient or a regular expression around ``$__interval`` on one line of a query."""
    for target in panel.get("targets", []):
        for line in target.get("query", "").splitlines():
            if re.search(r"/.*\$__interval.*/", line):
                yield (
                    f"query {target['refId']} has a / before and a / after $__interval on one line: Grafana's browser "
                    r"side takes what lies between for a regular expression, and InfluxDB refuses \$__interval; put "
                    f"each clause on a line of its own: {line}"
                )


def tables(panel: Json) -> Iterator[str]:
    """A default unit that formats the texts of a table as well, or a table that is blank when it is empty."""
    if panel["type"] != "table":
        return
    unit = _defaults(panel).get("unit") or "none"
    if _defaults(panel).get("noValue") == "":
        yield "noValue is empty: a table without rows is blank; say what nothing means, such as none"
    if unit != "none":
        becomes = "NaN or a date of 2001" if unit.startswith(_DATES) else "a number where it looks like one"
        yield f"the table's default unit is {unit}: every text becomes {becomes}; give units to columns"


def columns(panel: Json) -> Iterator[str]:
    """A table's column that none of its queries answers: it is not shown."""
    texts = [target.get("query", "") for target in panel.get("targets", [])]
    steps = {one["id"]: one["options"] for one in panel.get("transformations", [])}
    # Others make columns of values.
    if panel["type"] != "table" or not all(_QUERY.match(one) for one in texts) or steps.keys() - _CHOOSE:
        return
    renamed = steps.get("organize", {}).get("renameByName", {}).values()
    words = set(re.findall(r"\w+", f"{texts} {list(renamed)} Time"))
    names = [_of(one) for one in panel["fieldConfig"]["overrides"] if one["matcher"]["id"] == "byName"]
    names += [one["field"] for one in steps.get("sortBy", {}).get("sort", [])]
    for name in dict.fromkeys(names):
        if not set(re.findall(r"\w+", name)) <= words and "*" not in "".join(texts):
            yield f"no query has a column {name}: it is not shown"


def states(panel: Json) -> Iterator[str]:
    """A state timeline whose states cannot be told apart."""
    if panel["type"] != "state-timeline":
        return
    defaults = _defaults(panel)
    colour = defaults.get("color", {})
    if colour.get("mode") != "fixed":
        yield (
            f"colour mode {colour.get('mode')}: Grafana merges states by threshold and shows one colour and -∞+, "
            "whatever the mappings say; use fixed and the mappings' colours"
        )
    words = [word for mapping in defaults.get("mappings", []) for word in _words(mapping)]
    for word in words:
        if not word.get("color"):
            yield f"the state {word.get('text')!r} has no colour of its own: it looks like a gap"
        elif word["color"] == colour.get("fixedColor"):
            yield f"the state {word.get('text')!r} has the colour of a gap"
        elif word.get("text") == "blind" and word["color"] != BLIND:
            yield f"blind has the colour {word['color']}, on other boards {BLIND}"
    missing = defaults.get("noValue")
    if not missing or missing in {word.get("text") for word in words}:
        yield f"noValue is {missing!r}: a gap needs a word of its own in the legend"


def crowded(panel: Json) -> Iterator[str]:
    """More than the panel's place can show."""
    place = panel["gridPos"]
    wide = place["w"] * _COLUMN - _GAP
    if panel["type"] == "alertlist" and panel["options"].get("showInstances"):
        yield "an alert list with instances is a cloud of labels, one alert high: use a table of stored alerts"
    if panel["type"] == "state-timeline":
        rows = panel["options"].get("perPage", 0)
        most = timeline_rows(place["h"])
        if not 0 < rows <= most:
            yield f"{rows or 'all'} rows a page: {most} fit, more print their names over each other; set perPage"
    if panel["type"] == "table":
        columns = [_properties(one) for one in panel["fieldConfig"]["overrides"]]
        unsized = _defaults(panel).get("custom", {}).get("minWidth", _UNSIZED)
        needed = sum(one.get("custom.width") or unsized for one in columns if not one.get("custom.hidden"))
        if needed > wide:
            yield f"its {len(columns)} columns need {needed} pixels and have {wide:.0f}: the last ones are out of sight"
        for override, column in zip(panel["fieldConfig"]["overrides"], columns, strict=True):
            width = column.get("custom.width") or _DURATION
            if column.get("unit") == "s" and width < _DURATION:
                yield f"column {_of(override)}: {width} pixels cut 2.90 mins to 90 mins; set its width to {_DURATION}"


def title(panel: Json) -> Iterator[str]:
    """A title that loses its end to the icons beside it, on a laptop too."""
    icons = bool(panel.get("description")) + bool(panel.get("links"))
    place = panel["gridPos"]["w"] * _LAPTOP_COLUMN - _GAP - _TITLE_PADDING - icons * _ICON
    shown = re.sub(r"\$\{\w+:text\}", "x" * 10, panel.get("title", ""))
    if shown and len(shown) * _LETTER > place:
        yield (
            f"the title has {len(shown)} letters where {place // _LETTER:.0f} fit beside {icons} icons: shorten it, or "
            "take the description or the links away"
        )


def digits(panel: Json) -> Iterator[str]:
    """A unit that shows too many digits, or says what was not counted."""
    config = panel.get("fieldConfig", {})
    for name, found in [("", _defaults(panel)), *((_of(one), _properties(one)) for one in config.get("overrides", []))]:
        unit, where = found.get("unit"), f"column {name}: " if name else ""
        if unit in {"percent", "percentunit"} and found.get("decimals") is None:
            yield f"{where}a percentage without decimals shows 0.00000174%: set decimals"
        if unit == "cps":
            yield f"{where}the unit cps reads c/s: say what is counted, as in `suffix: records/s`"


def legends(panel: Json) -> Iterator[str]:
    """A legend with ids of groups in place of their titles."""
    if panel["type"] == "canvas":
        return
    named = [_of(one) for one in panel.get("fieldConfig", {}).get("overrides", []) if "displayName" in _properties(one)]
    renamed = [one for one in panel.get("transformations", []) if one["id"] == "renameByRegex"]
    for target in panel.get("targets", []):
        alias = target.get("alias") or ""
        if not _GROUP_TAG.search(alias) or renamed:
            continue
        pattern = ".+".join(re.escape(part) for part in _TAG.split(alias))
        if not any(re.fullmatch(pattern, name) for name in named):
            yield f"query {target['refId']} names its series {alias}: legends show ids; override their display names"


PANEL: tuple[Callable[[Json], Iterator[str]], ...] = (
    slashes, tables, columns, states, crowded, title, digits, legends,
)  # fmt: skip


# -- of boards -----------------------------------------------------------------------------------------


def events(board: Json) -> Iterator[str]:
    """An annotation from which Grafana makes no event."""
    for mark in board.get("annotations", {}).get("list", []):
        query = mark.get("query", "")
        if mark.get("builtIn") or "SELECT" not in query:
            continue
        if "GROUP BY" in query:
            yield (
                f"annotation {mark['name']}: its query groups: Grafana finds the tags' names in every column's name, "
                "and value[t].split is not a function of a number; select tags beside the field"
            )
            continue
        source = _MEASUREMENT.search(query)
        columns = [f"{source[1]}.{name}" for name in _SELECTED.findall(query)] if source else []
        tags = [tag for tag in mark.get("tagsColumn", "").split(",") if tag]
        # Grafana looks for the names anywhere in a column's, tags before the text.
        texts = [name for name in columns if not any(tag in name for tag in tags) and mark["textColumn"] in name]
        astray = [name for name in columns if any(tag in name for tag in tags) and not name.endswith(tuple(tags))]
        if not mark["textColumn"] or not texts or astray:
            yield (
                f"annotation {mark['name']}: Grafana looks for textColumn and tagsColumn anywhere in the names of the "
                f"columns {', '.join(columns)}; begin them with a dot"
            )


def controls(board: Json) -> Iterator[str]:
    """More than one line above the first panel, which stays there in kiosk mode."""
    links = board.get("links", [])
    if len(links) > 1 or any(link["type"] == "dashboards" and not link["asDropdown"] for link in links):
        yield "links fill lines of their own above the board: make one drop-down of them"
    for mark in board.get("annotations", {}).get("list", []):
        if not mark.get("hide"):
            yield f"annotation {mark['name']}: its switch stands among the choices; set hide"
    choices = [one for one in board["templating"]["list"] if one.get("hide") != _HIDDEN]
    if board["uid"] == BOARDS[HOME].uid and (links or choices):
        yield "the wall has links or choices above its first tile, and nobody there to click them"


def places(board: Json) -> Iterator[str]:
    """Panels that stand on each other, or beyond the grid: Grafana puts them elsewhere."""
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        name, place = panel.get("title", ""), panel["gridPos"]
        if place["x"] + place["w"] > COLUMNS:
            yield f"{name}: x and w end at {place['x'] + place['w']}: the grid has {COLUMNS} columns"
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if shared := next((cell for cell in cells if cell in taken), None):
            yield f"{name}: stands on {taken[shared]}: Grafana moves one of them; change x, y, w or h"
        taken |= dict.fromkeys(cells, name)


BOARD: tuple[Callable[[Json], Iterator[str]], ...] = (events, controls, places)


def _defaults(panel: Json) -> Json:
    found: Json = panel.get("fieldConfig", {}).get("defaults", {})
    return found


def _of(override: Json) -> str:
    return str(override["matcher"].get("options", ""))


def _properties(override: Json) -> Json:
    return {one["id"]: one.get("value") for one in override["properties"]}


def _words(mapping: Json) -> list[Json]:
    options = mapping["options"]
    return list(options.values()) if mapping["type"] == "value" else [options["result"]]
