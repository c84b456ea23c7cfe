"""Panels: grafanalib gives the shapes; options of Grafana 12 that it lacks are added here.

Every panel has a unit, a description in three sentences and links; a limit is drawn from a named threshold of
cluster.yaml.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from grafanalib import core
from grafanalib.influxdb import InfluxDBTarget

from cluster.model import UNLISTED, Cluster
from dashboards.links import Link, row, to_flows
from dashboards.palette import ACT, DIM, LOOK, QUIET, group_colours, group_titles, shade, short_titles
from store import schema
from store.influxql import ROWS, Query, Unit, logged_late

Json = dict[str, Any]
COLUMNS = 24
_GRID_ROW = 38
"""Pixels of a row of Grafana's grid, with the gap."""
TIME = "Time"
"""What Grafana calls InfluxDB's time column."""

_TIMELINE_EXTRAS, _TIMELINE_ROW = 150, 14
"""Pixels of a state timeline that are none of its rows (title, time axis, legend, pages); fewest of a row's name."""

COLUMN_WIDTH = 60
"""Fewest pixels of a table's column that has no width: Grafana's 150 push the last ones out of sight."""

_BAR, _NAME, _WHO = 100, 120, {schema.JOB, schema.SRC, schema.DST}
"""The same of bars, whose numbers were cut, and of jobs and addresses, of which four lines or the half had room."""

_CELL_LETTER, _CELL_PADDING, _WIDEST_NAME = 7.8, 14, 260
"""Pixels of a letter in a cell, of what is left and right of them, and the most that a name takes."""

_INFLUXDB = "influxdb"
_NEWEST_WINDOWS = 6
"""Windows that are one or more behind, for the bridge and then for the analysis, and one that is late."""
_ABOVE_LIMIT = 1.1
_SMALL_RATIO = 0.1
_DIGITS: dict[Unit | str, int] = {Unit.RATIO: 1, Unit.USD: 2}
"""Digits after the point where Grafana's own choice follows the value down to nothing."""
_REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Face:
    """What a panel says of itself, and where it stands.

    Attributes:
        name: its name in the registry.
        title: the answer's name.
        shows, cannot, then: three short sentences: what it shows, what it cannot show, where to look next. All empty
            on a narrow tile, whose title would lose the width of the icon.
        x, y, w, h: place in Grafana's grid of 24 columns.
        links: where it leads as a whole.
        since: its own time range, such as ``15m``, up to the end of the board's; empty for the board's.
        by_arrival: its points stand where records arrive, not where they were sent: late ones are no reason to look
            further back.
    """

    name: str
    title: str
    shows: str
    cannot: str
    then: str
    x: int
    y: int
    w: int
    h: int
    links: tuple[Link, ...] = ()
    since: str = ""
    by_arrival: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a value turns from quiet to LOOK to ACT. With `below`, small values are the bad ones."""

    act: float | None = None
    look: float | None = None
    below: bool = False

    def steps(self) -> list[Json]:
        """Return Grafana's threshold steps: from the lowest value up."""
        if self.below:
            limits = [(value, colour) for value, colour in ((self.act, ACT), (self.look, LOOK)) if value is not None]
            # What is below a limit has its colour, what is above the highest is quiet.
            starts: list[float | None] = [None, *(value for value, _ in limits)]
            steps = list(zip(starts, [*(colour for _, colour in limits), QUIET], strict=True))
        else:
            steps = [(None, QUIET)]
            steps += [(value, colour) for value, colour in ((self.look, LOOK), (self.act, ACT)) if value is not None]
        return [{"value": value, "color": colour} for value, colour in steps]


NO_LIMIT = Limit()


class Cell(StrEnum):
    """How a table draws a column."""

    TEXT = "auto"
    BAR = "gauge"
    COLOUR = "color-background"
    HTML = "markdown"
    """Its mappings make HTML of a text (see `large_text`): a wall's size of letters, which no other cell has."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table looks.

    `name` is the tag or field as the query returns it, or a regular expression; `digits` after the point, else the
    unit's; `missing` stands in cells whose text is empty. Columns without a `width` share what is left, `least`
    pixels or more each (else COLUMN_WIDTH).
    """

    name: str
    title: str
    unit: Unit | str = ""
    cell: Cell = Cell.TEXT
    mappings: tuple[Json, ...] = ()
    links: tuple[Link, ...] = ()
    width: int = 0
    least: int = 0
    limit: Limit = NO_LIMIT
    digits: int | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The row order: by this column, largest first unless `ascending`; `hidden` columns only serve to order."""

    column: str
    ascending: bool = False
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Large:
    """How a tile of a wall is set, in pixels; by itself Grafana makes names of 18 pixels and less.

    Attributes:
        value: size of the number.
        title: size of its name.
        wide: name and number on one line, not one above the other.
        rows: several numbers one below the other, not side by side.
        digits: after the point; as many as the unit takes where None.
        centred: in the middle; from the left, the margin there takes 20 pixels of a narrow tile.
    """

    value: int
    title: int = 0
    wide: bool = False
    rows: bool = False
    digits: int | None = None
    centred: bool = False

    def options(self) -> Json:
        """Return Grafana's options of a stat panel."""
        sizes = {"valueSize": self.value} | ({"titleSize": self.title} if self.title else {})
        place = {"justifyMode": "center"} if self.centred else {}
        return {"text": sizes, "wideLayout": self.wide} | place | ({"orientation": "horizontal"} if self.rows else {})


def source(cluster: Cluster) -> Json:
    """Return Grafana's reference to the data source."""
    return {"type": _INFLUXDB, "uid": cluster.grafana.datasource_uid}


def targets(cluster: Cluster, queries: Sequence[Query]) -> list[InfluxDBTarget]:
    """Return grafanalib's targets, lettered in order."""
    return [
        InfluxDBTarget(
            alias=query.alias,
            format=query.shape.value,
            datasource=source(cluster),
            query=query.text,
            rawQuery=True,
            refId=_REF_IDS[position],
        )
        for position, query in enumerate(queries)
    ]


# -- pieces of fieldConfig -----------------------------------------------------------------------------


def override(name: str, **properties: object) -> Json:
    """Return an override of one field by its name, or of several by ``/regular expression/``.

    In property names ``__`` stands for the dot.
    """
    listed = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    matcher = "byRegexp" if name.startswith("/") else "byName"
    return {"matcher": {"id": matcher, "options": name}, "properties": listed}


def fixed(colour: str) -> Json:
    """Return a fixed colour."""
    return {"mode": "fixed", "fixedColor": colour}


def group_series(cluster: Cluster, *further: str) -> list[Json]:
    """Return overrides that give series named by group id the group's title and colour.

    With `further` names, series are named by group id and one of these, such as ``storage written``; each further name
    has a darker shade of the group's colour.
    """
    titles = group_titles(cluster)
    return [
        override(
            f"{group_id} {name}".rstrip(),
            displayName=f"{titles[group_id]} {name}".rstrip(),
            color=fixed(shade(colour, step)),
        )
        for group_id, colour in group_colours(cluster).items()
        for step, name in enumerate(further or ("",))
    ]


def group_names(cluster: Cluster) -> list[Json]:
    """Return overrides that give series named by group id the group's title, and leave their colour to their state."""
    return [override(group_id, displayName=title) for group_id, title in group_titles(cluster).items()]


def pair_titles(cluster: Cluster, arrow: str = "→") -> list[Json]:
    """Return the transformations that put short titles into series named by two groups: ``training → storage``.

    `arrow`: what stands between the groups in the name.
    """
    # A step looks at every series, so a group has one, for both ends.
    steps = [] if arrow == "→" else [(f"/ {arrow} /", " → ")]
    steps += [
        (f"/(?:^|(?<=→ )){group_id}(?= →|$)/g", title.replace("$", "$$"))
        for group_id, title in short_titles(cluster).items()
    ]
    return [renamed(regex, name) for regex, name in steps]


def words(mapping: dict[int | str, tuple[str, str]]) -> Json:
    """Return a value mapping: stored value -> (word, colour); an empty colour keeps the default."""
    options: Json = {}
    for index, (value, (text, colour)) in enumerate(mapping.items()):
        options[str(value)] = {"text": text, "index": index} | ({"color": colour} if colour else {})
    return {"type": "value", "options": options}


def word_between(low: float, high: float, text: str, colour: str) -> Json:
    """Return a mapping of a range to a word. Some Grafanas read an open end as zero: give a number far out."""
    return {"type": "range", "options": {"from": low, "to": high, "result": {"text": text, "color": colour}}}


def word_if_missing(text: str, colour: str) -> Json:
    """Return a mapping for a value that is not there."""
    return {"type": "special", "options": {"match": "null+nan", "result": {"text": text, "color": colour}}}


def large_text(size: int, *, pattern: str = "/^(.*)$/", text: str = "$1", style: str = "") -> Json:
    """Return a mapping for a column of HTML cells: texts that match become `text` in letters of `size` pixels.

    The first mapping that matches counts. Grafana takes away what does not belong into HTML, scripts above all.
    """
    html = f'<div style="font-size:{size}px;{style}">{text}</div>'
    return {"type": "regex", "options": {"pattern": pattern, "result": {"text": html}}}


def only(pattern: str) -> Json:
    """Return a mapping that shows of texts only the first group of a pattern for the whole of them."""
    return {"type": "regex", "options": {"pattern": f"/^{pattern}$/", "result": {"text": "$1"}}}


def renamed(regex: str, name: str) -> Json:
    """Return the transformation of series' names that match."""
    return {"id": "renameByRegex", "options": {"regex": regex, "renamePattern": name}}


def as_text(column: str, form: str = "") -> Json:
    """Return the transformation of moments, in a form, or numbers to texts: HTML cells take nothing else."""
    conversion = {"targetField": column, "destinationType": "string", **({"dateFormat": form} if form else {})}
    return {"id": "convertFieldType", "options": {"fields": {}, "conversions": [conversion]}}


def ordered(column: str, *, ascending: bool = False) -> Json:
    """Return the transformation that puts rows in the order of a column, the largest first unless `ascending`."""
    return {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": column, "desc": not ascending}]}}


def largest_as(name: str) -> list[Json]:
    """Return the transformations that make one number of all series' single values: the largest."""
    largest = {"mode": "reduceRow", "reduce": {"reducer": "max"}, "replaceFields": True, "alias": name}
    return [
        {"id": "concatenate", "options": {"frameNameMode": "drop"}},
        {"id": "calculateField", "options": largest},
    ]


def group_words(cluster: Cluster) -> Json:
    """Return the mapping of group ids to titles, for table columns."""
    titles = {**group_titles(cluster), UNLISTED: cluster.title(UNLISTED)}
    return words({group_id: (title, "") for group_id, title in titles.items()})


def parted(column: str, arrow: str) -> Json:
    """Return the transformation of a column of group pairs to two, named as the tags of source and destination."""
    regex = f"/^(?<{schema.SRC_GROUP}>.+) {arrow} (?<{schema.DST_GROUP}>.+)$/"
    return {"id": "extractFields", "options": {"source": column, "format": "regexp", "regExp": regex}}


def place_columns() -> list[Column]:
    """Return the columns that say where an outside address is; empty if unknown."""
    return [Column(schema.NETWORK, "Network"), Column(schema.COUNTRY, "Country", width=90)]


def joined(tag: str) -> list[Json]:
    """Return the transformations that put tables side by side, by a tag that all of them have."""
    return [
        {"id": "filterFieldsByName", "options": {"exclude": {"names": [TIME]}}},
        {"id": "joinByField", "options": {"byField": tag, "mode": "outer"}},
    ]


# -- panels --------------------------------------------------------------------------------------------


def lately(cluster: Cluster, since: str) -> str:
    """Return a time range so long that a short one holds what a cloud's logs tell late, as the ranges of rules do."""
    found = re.fullmatch(r"([0-9]+)([sm])", since)
    late = logged_late(cluster)
    return f"{int(found[1]) * (60 if found[2] == 'm' else 1) + late}s" if found and late else since


def newest(cluster: Cluster, seconds: int) -> str:
    """Return a time range of so many seconds, or so long that it holds the newest point of each series.

    A point lies at its window's start, and that of a long window is minutes old before the next one comes.
    """
    length = max(seconds, _NEWEST_WINDOWS * cluster.bridge.window)
    return f"{length}s" if length % 60 else f"{length // 60}m"


def _common(cluster: Cluster, face: Face, queries: Sequence[Query]) -> Json:
    bins = [query.interval for query in queries if query.interval]
    points = [query.points for query in queries if query.points]
    since = face.since if face.by_arrival else lately(cluster, face.since)
    # Bins are as long as Grafana's own range wants them.
    is_length = re.fullmatch(r"\d+[smhd]", since) and not bins
    if is_length:
        queries = [query.lasting(since) for query in queries]
    return {
        "dataSource": source(cluster),
        "title": face.title,
        "description": " ".join(filter(None, (face.shows, face.cannot, face.then))) or None,
        "gridPos": core.GridPos(h=face.h, w=face.w, x=face.x, y=face.y),
        "targets": targets(cluster, queries),
        "links": [link.json() for link in face.links],
        "maxDataPoints": min(points, default=None),
        "interval": f"{max(bins)}s" if bins else None,
        "timeFrom": None if is_length else since or None,
        # The title says the range; Grafana would say it again.
        "hideTimeOverride": bool(face.since),
    }


@dataclass(frozen=True, slots=True)
class Built:
    """A finished panel and the name that its id comes from."""

    name: str
    panel: core.Panel
    queries: tuple[Query, ...] = field(default=())


def _value_links(face: Face, links: Iterable[Link] | None) -> list[Json]:
    return [link.json() for link in (face.links if links is None else links)]


def time_series(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    *,
    unit: Unit | None = None,
    stacked: bool = False,
    limit: Limit = NO_LIMIT,
    overrides: Iterable[Json] = (),
    links: Iterable[Link] | None = None,
    legend_right: bool = False,
    points: bool = False,
    bars: bool = False,
    minimum: int | None = 0,
    missing: str = "",
    transformations: Sequence[Json] = (),
) -> Built:
    """Return lines (or stacked areas, points, bars) over time; gaps stay gaps. Sums of events are bars.

    `links` are on each value, by default those of the panel. `missing` is shown where there is nothing to draw, where
    that is as it should be.
    """
    no_value = {"noValue": missing} if missing else {}
    unit = unit or queries[0].unit
    # Grafana draws a line of nothing but zeros from 0 to 100: as a share, to 10000 %.
    axis = {"custom": {"axisSoftMax": _SMALL_RATIO}} if unit is Unit.RATIO and limit.act is None else {}
    panel = core.TimeSeries(
        **_common(cluster, face, queries),
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        # A faint area under each of many lines makes one solid block.
        fillOpacity=55 if stacked or bars else 0,
        lineWidth=0 if bars else 1 if stacked else 2,
        spanNulls=False,
        showPoints="always" if points else "auto",
        drawStyle="points" if points else "bars" if bars else "line",
        pointSize=8 if points else 5,
        legendDisplayMode="table" if legend_right else "list",
        legendPlacement="right" if legend_right else "bottom",
        legendCalcs=["lastNotNull", "max"] if legend_right else [],
        tooltipMode="multi",
        tooltipSort="desc",
        valueMin=minimum,
        overrides=list(overrides),
        transformations=list(transformations),
        thresholds=limit.steps(),
        thresholdsStyleMode="off" if limit == NO_LIMIT else "dashed",
        # The axis reaches up to the alert's limit, so that the eye sees how far away it is.
        axisSoftMax=None if limit.act is None else math.ceil(limit.act * _ABOVE_LIMIT),
        extraJson={
            "fieldConfig": {
                "defaults": _number(unit)
                # Grafana's own palette has the orange and the red of states.
                | {"color": {"mode": "shades", "fixedColor": QUIET}, "links": _value_links(face, links)}
                | no_value
                | axis
            },
            "options": {"legend": {"showLegend": True}},
        },
    )
    return Built(face.name, panel, tuple(queries))


def stat(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    *,
    unit: Unit | str = "",
    limit: Limit = NO_LIMIT,
    missing: tuple[str, str] = ("blind", DIM),
    reduce: str = "lastNotNull",
    sparkline: bool = False,
    fields: str = "",
    text: str = "value_and_name",
    mappings: Iterable[Json] = (),
    overrides: Iterable[Json] = (),
    links: Iterable[Link] | None = None,
    each_row: int = 0,
    background: bool = False,
    transformations: Sequence[Json] = (),
    large: Large | None = None,
) -> Built:
    """Return big numbers.

    Args:
        cluster: what the board is about.
        face: what the panel says.
        queries: one number each, or a series each.
        unit: unit, if not the first query's; Grafana's ``suffix:`` units are allowed.
        limit: colours by value.
        missing: word and colour where there is no value: it is never shown as zero.
        reduce: how a series becomes a number.
        sparkline: draw the shape behind the number.
        fields: regular expression of the fields to show; empty for all numbers.
        text: ``auto``, ``value`` or ``value_and_name``; with ``name`` Grafana would leave out `missing`.
        mappings: words for values, before `missing`.
        overrides: by series.
        links: on each value; by default those of the panel.
        each_row: show every row of a table, up to so many, instead of reducing.
        background: colour the tile, not the number.
        transformations: Grafana transformations.
        large: sizes for a wall; by default Grafana fits the text into the panel.
    """
    reduction: Json = {"calcs": [reduce], "fields": fields, "values": bool(each_row)}
    if each_row:
        reduction["limit"] = each_row
    panel = core.Stat(
        **_common(cluster, face, queries),
        color={"mode": "thresholds"},
        colorMode="background_solid" if background else "value",
        graphMode="area" if sparkline else "none",
        reduceCalc=reduce,
        textMode=text,
        noValue=missing[0],
        mappings=[*mappings, word_if_missing(*missing)],
        overrides=list(overrides),
        transformations=list(transformations),
        extraJson={
            "fieldConfig": {
                "defaults": _number(unit or queries[0].unit)
                | {
                    "links": _value_links(face, links),
                    "thresholds": {"mode": "absolute", "steps": limit.steps()},
                }
                | ({"decimals": large.digits} if large and large.digits is not None else {})
            },
            "options": {"reduceOptions": reduction, "wideLayout": True} | (large.options() if large else {}),
        },
    )
    return Built(face.name, panel, tuple(queries))


def single(
    cluster: Cluster,
    face: Face,
    query: Query,
    *,
    limit: Limit = NO_LIMIT,
    missing: tuple[str, str] = ("none", QUIET),
) -> Built:
    """Return one big number of which it is well if there is none."""
    return stat(cluster, face, [query], limit=limit, missing=missing, text="value")


def table(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    columns: Sequence[Column],
    *,
    order: TableOrder | None = None,
    before: Sequence[Json] = (),
    missing: str = "none",
    limit_rows: int = ROWS,
    any_column: bool = False,
    header: bool = True,
) -> Built:
    """Return a table: columns in the given order and none else, so Grafana's Time column stays away.

    Cells that name a node, an address, an exporter or a job lead to the flow archive, too, where it has a page. In a
    table with a range of its own, whose rows may be older than the board's, links of a node begin at the row's moment.

    With `any_column`, columns that are not listed come too (their name is a variable's value), except Time and hidden.
    A table without a `header` cannot be sorted or filtered: it is looked at.
    """
    begin = next((column.name for column in columns if face.since and column.unit == Unit.MOMENT), "")
    columns = _with_flows(cluster, _of_their_time(columns, begin), begin=begin)
    room = _two_lines(cluster)
    columns = [_with_room(column, room) for column in columns]
    hidden = order.hidden if order else ()
    transformations: list[Json] = list(before)
    if order:
        transformations.append(ordered(order.column, ascending=order.ascending))
    if limit_rows:
        transformations.append({"id": "limit", "options": {"limitField": limit_rows}})
    shown = [column.name for column in columns]
    if any_column:
        fields: Json = {"exclude": {"names": [TIME, *hidden]}}
    else:
        fields = {"include": {"names": shown}}
    transformations.append({"id": "filterFieldsByName", "options": fields})
    transformations.append(
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                # A column that is there by a variable's value is named by a regular expression.
                "indexByName": {name.strip("/^$"): position for position, name in enumerate(shown)},
                "renameByName": {},
            },
        }
    )
    panel = core.Table(
        **_common(cluster, face, queries),
        transformations=transformations,
        overrides=[_column_override(column) for column in columns],
        showHeader=header,
        # Units belong to columns: a date here would make NaN of every text.
        unit=Unit.STATE.value,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": "thresholds"},
                    "noValue": missing,
                    "custom": {
                        "cellOptions": {"type": Cell.TEXT.value},
                        "inspect": False,
                        "displayMode": None,
                        # An icon in each head would cut the heads.
                        "filterable": False,
                        "minWidth": COLUMN_WIDTH,
                        "wrapHeaderText": True,
                    },
                    "thresholds": {"mode": "absolute", "steps": NO_LIMIT.steps()},
                }
            },
            "options": {"cellHeight": "sm", "enablePagination": False},
        },
    )
    return Built(face.name, panel, tuple(queries))


def _number(unit: Unit | str) -> Json:
    """Return unit and digits: a small ratio is 0.0%, not 0.00000174%."""
    if not unit:
        return {}
    return {"unit": str(unit)} | ({"decimals": _DIGITS[unit]} if unit in _DIGITS else {})


_ENDS = {schema.SRC: "src", schema.DST: "dst", schema.NODE: "node"}
_PLACES = {schema.EXPORTER: "exporter"}
_JOBS = {schema.JOB: "job"}


def _of_their_time(columns: Sequence[Column], begin: str) -> Sequence[Column]:
    """Return the columns, links of nodes and addresses with a range from the row's moment on, of the column `begin`."""
    return [
        replace(column, links=tuple(link.beginning(begin) for link in column.links))
        if begin and column.name in _ENDS
        else column
        for column in columns
    ]


def _with_flows(cluster: Cluster, columns: Sequence[Column], *, begin: str = "") -> Sequence[Column]:
    """Return the columns, those that the flow archive can be asked about with a link to the question about the row.

    `begin`: column with the moment from which on a row is asked about; by default the board's.
    """
    pages = cluster.delivery.flow_pages()
    # Of a mapped column a link would have the words in place of the value.
    names = {column.name for column in columns if not column.mappings}
    words = next((known for known in (_ENDS, _PLACES, _JOBS) if names & set(known)), {})
    asked = {word: row(name) for name, word in words.items() if name in names}
    if not pages or not asked:
        return columns
    # A job has a time of its own.
    link = to_flows(pages, is_now=words is not _JOBS, begin=begin, **asked)
    return [
        replace(column, links=(*column.links, link)) if column.name in words and not column.mappings else column
        for column in columns
    ]


_OF_ALERTS = {schema.ALERT_TITLE.name, schema.ALERT_SOURCE.name, schema.ALERT_DESTINATION.name, schema.BYTES_TEXT.name}
_LONG = {
    *_ENDS,
    *_PLACES,
    *_JOBS,
    schema.ENDPOINT,
    schema.JOB_CLASS,
    schema.NETWORK,
    *_OF_ALERTS,
    schema.LARGEST,
    schema.SUBJECT,
}
"""Columns whose texts may take several lines: names that are cut look alike, as those of a rack's nodes.

Grafana makes lines enough for what is stored only, not for the words of a mapping.
"""
_WRAPPED = {"type": Cell.TEXT.value, "wrapText": True}
_NAMES = {*_ENDS, *_PLACES, schema.ENDPOINT}


def _two_lines(cluster: Cluster) -> int:
    """Return the pixels in which every node's name has room in two lines; only a hyphen ends one.

    Grafana reckons the height of a row from one cell, whose text is longest, or the first of some. A name that takes
    more lines than that one lies over the next row.
    """
    letters = max((_halved(node.name) for node in cluster.nodes), default=0)
    return min(math.ceil(letters * _CELL_LETTER + _CELL_PADDING), _WIDEST_NAME)


def _halved(name: str) -> int:
    ends = (place + 1 for place, letter in enumerate(name) if letter == "-")
    return min((max(end, len(name) - end) for end in ends), default=len(name))


def _with_room(column: Column, room: int) -> Column:
    """Return the column, that of a node's name at least so wide."""
    if column.name not in _NAMES or column.mappings:
        return column
    if column.width:
        return replace(column, width=max(column.width, room))
    return replace(column, least=max(column.least, room, _NAME if column.name in _WHO else 0))


def _lines(column: Column) -> Json:
    return {"custom__cellOptions": _WRAPPED} if column.name in _LONG and not column.mappings else {}


def _width(column: Column) -> Json:
    if column.width:
        return {"custom__width": column.width}
    least = column.least or (_BAR if column.cell is Cell.BAR else _NAME if column.name in _WHO else 0)
    return {"custom__minWidth": least} if least else {}


def _column_override(column: Column) -> Json:
    # The word for a table without rows would stand in each empty cell.
    properties: Json = {"displayName": column.title, "noValue": column.missing} | _number(column.unit) | _lines(column)
    if column.digits is not None:
        properties["decimals"] = column.digits
    if column.cell is Cell.BAR:
        properties["custom__cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties["min"] = 0
        # Else a bar's full length is the largest number of the whole table, whatever its unit.
        properties["fieldMinMax"] = True
    elif column.cell is Cell.HTML:
        properties["custom__cellOptions"] = {"type": Cell.HTML.value}
    elif column.cell is Cell.COLOUR:
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic", "applyToRow": False}
        properties["custom__align"] = "center"
    if column.mappings:
        properties["mappings"] = list(column.mappings)
    if column.links:
        properties["links"] = [link.json() for link in column.links]
    properties |= _width(column)
    if column.limit != NO_LIMIT:
        steps = column.limit.steps()
        if column.cell is Cell.COLOUR:
            steps = [step | {"color": "transparent"} if step["color"] == QUIET else step for step in steps]
        properties["thresholds"] = {"mode": "absolute", "steps": steps}
    return override(column.name, **properties)


def state_timeline(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    mappings: Sequence[Json],
    *,
    links: Iterable[Link] = (),
    transformations: Sequence[Json] = (),
    missing: str = "no data",
) -> Built:
    """Return a row of named states for each series, as many a page as have room for their names.

    A gap is empty: nothing was stored. That an exporter was blind is a state like others, with a colour of its own.
    `missing` is shown where nothing was.
    """
    panel = core.StateTimeline(
        **_common(cluster, face, queries),
        mappings=list(mappings),
        colorMode="fixed",
        fillOpacity=85,
        showValue="never",
        mergeValues=True,
        transformations=list(transformations),
        rowHeight=0.85,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": queries[0].unit.value,
                    "links": [link.json() for link in links],
                    # By thresholds Grafana would merge neighbouring states of one threshold, whatever the mappings
                    # say. This colour is that of a gap, in the legend.
                    "color": {"fixedColor": "transparent"},
                    "noValue": missing,
                    "custom": {"spanNulls": False},
                }
            },
            "options": {"legend": {"showLegend": True}, "perPage": timeline_rows(face.h)},
        },
    )
    return Built(face.name, panel, tuple(queries))


def timeline_rows(h: int) -> int:
    """Return how many rows of a state timeline can be told apart in so many rows of the grid."""
    return max((h * _GRID_ROW - _TIMELINE_EXTRAS) // _TIMELINE_ROW, 1)


def heatmap(cluster: Cluster, face: Face, queries: Sequence[Query], *, links: Iterable[Link] = ()) -> Built:
    """Return how many things lie in each bucket over time: a query a bucket, whose alias begins with its lower end.

    Grafana puts the rows in order by the number that their names begin with. Without any it says "No data", whatever
    `noValue` is: let the description say why.
    """
    panel = _Heatmap(
        **_common(cluster, face, queries),
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": queries[0].unit.value,
                    "links": [link.json() for link in links],
                    "custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}},
                },
                "overrides": [],
            },
            "options": {
                "calculate": False,
                "calculation": {},
                "cellGap": 1,
                "cellValues": {"unit": queries[0].unit.value},
                "color": {
                    "mode": "scheme", "scheme": "Blues", "fill": QUIET, "scale": "exponential", "exponent": 0.5,
                    "steps": 64, "reverse": False,
                },
                # Nothing in a bucket is no colour.
                "filterValues": {"le": 1e-9},
                "legend": {"show": True},
                "rowsFrame": {"layout": "auto"},
                "showValue": "auto",
                "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
                "yAxis": {"axisPlacement": "left", "reverse": False},
            },
        },
    )  # fmt: skip
    return Built(face.name, panel, tuple(queries))


class _Heatmap(core.Panel):  # type: ignore[misc]
    """Grafana's heatmap since version 9; grafanalib's own class has the options of the one before."""

    def to_json_data(self) -> Json:
        panel: Json = self.panel_json({"type": core.HEATMAP_TYPE})
        return panel


def strips(
    cluster: Cluster, face: Face, query: Query, steps: Sequence[Json], *, missing: str, links: Iterable[Link] = ()
) -> Built:
    """Return a strip of colours for each series, in the order of the answer, without names and hours.

    Their letters have 12 pixels in Grafana, so names stand beside it: `stat` with `Large.rows`.
    """
    hidden = {"axisPlacement": "hidden", "hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    panel = _StatusHistory(
        **_common(cluster, face, [query]),
        extraJson={
            "fieldConfig": {
                "defaults": _number(query.unit)
                | {
                    "color": {"mode": "thresholds"},
                    "noValue": missing,
                    "thresholds": {"mode": "absolute", "steps": list(steps)},
                    "links": [link.json() for link in links],
                    "custom": hidden | {"fillOpacity": 100, "lineWidth": 0},
                },
                "overrides": [
                    {
                        "matcher": {"id": "byType", "options": "time"},
                        "properties": [{"id": "custom.axisPlacement", "value": "hidden"}],
                    }
                ],
            },
            "options": {
                "colWidth": 1,
                "rowHeight": 0.85,
                "showValue": "never",
                "legend": {"showLegend": False},
                "tooltip": {"mode": "single"},
            },
        },
    )
    return Built(face.name, panel, (query,))


class _StatusHistory(core.Panel):  # type: ignore[misc]
    """Grafana's status history; grafanalib has none."""

    def to_json_data(self) -> Json:
        panel: Json = self.panel_json({"type": "status-history"})
        return panel


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of a drawing, in percent of it, with a text in it.

    Attributes:
        name: what Grafana calls it.
        x, y, w, h: place and size.
        text: what it says; with `series`, what the mappings of that series say.
        size: of its letters, pixels.
        align: ``left``, ``center`` or ``right``.
        series: whose newest value gives text and background.
        background: where there is no series, or nothing came of it.
    """

    name: str
    x: float
    y: float
    w: float
    h: float
    text: str = ""
    size: int = 20
    align: str = "center"
    series: str = ""
    background: str = "transparent"
    link: Link | None = None

    def json(self) -> Json:
        """Return Grafana's element."""
        said = {"mode": "field", "field": self.series, "fixed": ""} if self.series else {"mode": "fixed"}
        return {
            "name": self.name,
            "type": "rectangle",
            "constraint": {"horizontal": "scale", "vertical": "scale"},
            "placement": {
                "left": round(self.x, 2),
                "top": round(self.y, 2),
                "right": round(100 - self.x - self.w, 2),
                "bottom": round(100 - self.y - self.h, 2),
            },
            "background": {"color": {"fixed": self.background} | ({"field": self.series} if self.series else {})},
            "border": {"width": 0, "color": {"fixed": "transparent"}},
            "config": {
                "align": self.align,
                "valign": "middle",
                "size": self.size,
                "color": {"fixed": "text"},
                "text": said | ({} if self.series else {"fixed": self.text}),
            },
            "links": [self.link.json()] if self.link else [],
        }


def drawing(
    cluster: Cluster, face: Face, queries: Sequence[Query], boxes: Sequence[Box], *, overrides: Iterable[Json] = ()
) -> Built:
    """Return rectangles that fill the panel, whatever its size; overrides name what values of series are called."""
    panel = _Canvas(
        **_common(cluster, face, queries),
        extraJson={
            "fieldConfig": {"defaults": {"unit": queries[0].unit.value}, "overrides": list(overrides)},
            "options": {
                "inlineEditing": False,
                "panZoom": False,
                "showAdvancedTypes": False,
                "tooltip": {"mode": "none"},
                "root": {"name": face.name, "type": "frame", "elements": [box.json() for box in boxes]},
            },
        },
    )
    return Built(face.name, panel, tuple(queries))


class _Canvas(core.Panel):  # type: ignore[misc]
    """Grafana's canvas; grafanalib has none."""

    def to_json_data(self) -> Json:
        panel: Json = self.panel_json({"type": "canvas"})
        return panel


def text(cluster: Cluster, face: Face, content: str) -> Built:
    """Return words, in Markdown."""
    common = _common(cluster, face, ())
    del common["dataSource"]
    return Built(face.name, core.Text(**common, content=content, mode="markdown"))
