"""Panels: queries with a face. grafanalib gives the shapes; what it lacks of Grafana 12's options is added here, once.

Every panel has a unit, a description in three sentences and links; a limit is drawn from a named threshold of
cluster.yaml.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from grafanalib import core
from grafanalib.influxdb import InfluxDBTarget

from cluster import schema
from cluster.model import Cluster
from dashboards.links import Link
from dashboards.palette import ACT, DIM, LOOK, QUIET, group_colours, group_titles
from dashboards.queries import Query, Unit

Json = dict[str, Any]
COLUMNS = 24
TIME = "Time"
"""What Grafana calls InfluxDB's time column."""

_INFLUXDB = "influxdb"
_ABOVE_LIMIT = 1.1
_REF_IDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Face:
    """What a panel says of itself, and where it stands.

    Attributes:
        name: its name in the registry.
        title: the answer's name.
        shows, cannot, then: three short sentences: what it shows, what it cannot show, where to look next.
        x, y, w, h: place in Grafana's grid of 24 columns.
        links: where it leads as a whole.
        since: its own relative time range, such as ``15m``; empty for the board's.
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


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table looks. `name` is the tag or field as the query returns it, or a regular expression."""

    name: str
    title: str
    unit: Unit | str = ""
    cell: Cell = Cell.TEXT
    mappings: tuple[Json, ...] = ()
    links: tuple[Link, ...] = ()
    width: int = 0
    limit: Limit = NO_LIMIT


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The row order: by this column, largest first unless `ascending`; `hidden` columns only serve to order."""

    column: str
    ascending: bool = False
    hidden: tuple[str, ...] = ()


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
            query=query.influxql,
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


def group_series(cluster: Cluster) -> list[Json]:
    """Return overrides that give series named by group id the group's title and colour."""
    titles = group_titles(cluster)
    return [
        override(group_id, displayName=titles[group_id], color=fixed(colour))
        for group_id, colour in group_colours(cluster).items()
    ]


def group_names(cluster: Cluster) -> list[Json]:
    """Return overrides that give series named by group id the group's title, and leave their colour to their state."""
    return [override(group_id, displayName=title) for group_id, title in group_titles(cluster).items()]


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


def group_words(cluster: Cluster) -> Json:
    """Return the mapping of group ids to titles, for table columns."""
    return words({group_id: (title, "") for group_id, title in group_titles(cluster).items()})


def place_columns() -> list[Column]:
    """Return the columns that say where an outside address is; empty where nobody knows."""
    return [Column(schema.NETWORK, "Network"), Column(schema.COUNTRY, "Country", width=90)]


def joined(tag: str) -> list[Json]:
    """Return the transformations that put tables side by side, by a tag that all of them have."""
    return [
        {"id": "filterFieldsByName", "options": {"exclude": {"names": [TIME]}}},
        {"id": "joinByField", "options": {"byField": tag, "mode": "outer"}},
    ]


# -- panels --------------------------------------------------------------------------------------------


def _common(cluster: Cluster, face: Face, queries: Sequence[Query]) -> Json:
    bins = [query.interval for query in queries if query.interval]
    points = [query.points for query in queries if query.points]
    return {
        "dataSource": source(cluster),
        "title": face.title,
        "description": f"{face.shows} {face.cannot} {face.then}",
        "gridPos": core.GridPos(h=face.h, w=face.w, x=face.x, y=face.y),
        "targets": targets(cluster, queries),
        "links": [link.json() for link in face.links],
        "maxDataPoints": min(points, default=None),
        "interval": f"{max(bins)}s" if bins else None,
        "timeFrom": face.since or None,
        # The title says the range; Grafana would say it again.
        "hideTimeOverride": bool(face.since),
    }


@dataclass(frozen=True, slots=True)
class Built:
    """A finished panel and the name that its id comes from."""

    name: str
    panel: core.Panel
    queries: tuple[Query, ...] = field(default=())


def time_series(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    *,
    unit: Unit | None = None,
    stacked: bool = False,
    limit: Limit = NO_LIMIT,
    overrides: Iterable[Json] = (),
    links: Iterable[Link] = (),
    legend_right: bool = False,
    points: bool = False,
    bars: bool = False,
    minimum: int | None = 0,
    missing: str = "",
) -> Built:
    """Return lines (or stacked areas, points, bars) over time; gaps stay gaps. Sums of events are bars.

    `missing` is shown where there is nothing to draw, where that is as it should be.
    """
    no_value = {"noValue": missing} if missing else {}
    panel = core.TimeSeries(
        **_common(cluster, face, queries),
        unit=(unit or queries[0].unit).value,
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        fillOpacity=55 if stacked else 8,
        lineWidth=1 if stacked else 2,
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
        thresholds=limit.steps(),
        thresholdsStyleMode="off" if limit == NO_LIMIT else "dashed",
        # The axis reaches up to the alert's limit, so that the eye sees how far away it is.
        axisSoftMax=None if limit.act is None else math.ceil(limit.act * _ABOVE_LIMIT),
        extraJson={
            "fieldConfig": {"defaults": {"links": [link.json() for link in links]} | no_value},
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
    text: str = "auto",
    mappings: Iterable[Json] = (),
    overrides: Iterable[Json] = (),
    links: Iterable[Link] = (),
    each_row: int = 0,
    background: bool = False,
    transformations: Sequence[Json] = (),
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
        text: ``auto``, ``value``, ``value_and_name`` or ``name``.
        mappings: words for values, before `missing`.
        overrides: by series.
        links: on each value.
        each_row: show every row of a table, up to so many, instead of reducing.
        background: colour the tile, not the number.
        transformations: Grafana transformations.
    """
    reduction: Json = {"calcs": [reduce], "fields": fields, "values": bool(each_row)}
    if each_row:
        reduction["limit"] = each_row
    panel = core.Stat(
        **_common(cluster, face, queries),
        format=str(unit or queries[0].unit),
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
                "defaults": {
                    "links": [link.json() for link in links],
                    "thresholds": {"mode": "absolute", "steps": limit.steps()},
                }
            },
            "options": {"reduceOptions": reduction, "wideLayout": True},
        },
    )
    return Built(face.name, panel, tuple(queries))


def table(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    columns: Sequence[Column],
    *,
    order: TableOrder | None = None,
    before: Sequence[Json] = (),
    missing: str = "",
    limit_rows: int = 50,
    any_column: bool = False,
) -> Built:
    """Return a table: columns in the given order and none else, so Grafana's Time column stays away.

    With `any_column`, columns that are not listed come too (their name is a variable's value), except Time and hidden.
    """
    hidden = order.hidden if order else ()
    transformations: list[Json] = list(before)
    if order:
        sort = {"field": order.column, "desc": not order.ascending}
        transformations.append({"id": "sortBy", "options": {"fields": {}, "sort": [sort]}})
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
                "indexByName": {name: position for position, name in enumerate(shown)},
                "renameByName": {},
            },
        }
    )
    panel = core.Table(
        **_common(cluster, face, queries),
        transformations=transformations,
        overrides=[_column_override(column) for column in columns],
        filterable=True,
        unit=queries[0].unit.value,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": "thresholds"},
                    "noValue": missing,
                    "custom": {"cellOptions": {"type": Cell.TEXT.value}, "inspect": False, "displayMode": None},
                    "thresholds": {"mode": "absolute", "steps": NO_LIMIT.steps()},
                }
            },
            "options": {"cellHeight": "sm", "enablePagination": False},
        },
    )
    return Built(face.name, panel, tuple(queries))


def _column_override(column: Column) -> Json:
    properties: Json = {"displayName": column.title}
    if column.unit:
        properties["unit"] = str(column.unit)
    if column.cell is Cell.BAR:
        properties["custom__cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties["min"] = 0
        # Else a bar's full length is the largest number of the whole table, whatever its unit.
        properties["fieldMinMax"] = True
    elif column.cell is Cell.COLOUR:
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic", "applyToRow": False}
        properties["custom__align"] = "center"
    if column.mappings:
        properties["mappings"] = list(column.mappings)
    if column.links:
        properties["links"] = [link.json() for link in column.links]
    if column.width:
        properties["custom__width"] = column.width
    if column.limit != NO_LIMIT:
        properties["thresholds"] = {"mode": "absolute", "steps": column.limit.steps()}
    return override(column.name, **properties)


def state_timeline(
    cluster: Cluster,
    face: Face,
    queries: Sequence[Query],
    mappings: Sequence[Json],
    *,
    links: Iterable[Link] = (),
    rows: int = 0,
) -> Built:
    """Return a row of named states for each series; `rows` a page, 0 for all."""
    options: Json = {"legend": {"showLegend": True}}
    if rows:
        options["perPage"] = rows
    panel = core.StateTimeline(
        **_common(cluster, face, queries),
        mappings=list(mappings),
        colorMode="thresholds",
        fillOpacity=85,
        showValue="never",
        mergeValues=True,
        rowHeight=0.85,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": queries[0].unit.value,
                    "links": [link.json() for link in links],
                    "noValue": "blind",
                    "custom": {"spanNulls": False},
                    "thresholds": {"mode": "absolute", "steps": NO_LIMIT.steps()},
                }
            },
            "options": options,
        },
    )
    return Built(face.name, panel, tuple(queries))


def heatmap(cluster: Cluster, face: Face, queries: Sequence[Query], *, links: Iterable[Link] = ()) -> Built:
    """Return how many things lie in each bucket over time: a query a bucket, whose alias begins with its lower end.

    Grafana puts the rows in order by the number that their names begin with.
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


class AlertView(StrEnum):
    """How an alert list looks."""

    LIST = "list"
    NUMBER = "stat"


class _AlertListPanel(core.Panel):  # type: ignore[misc]
    """Grafana's alert list since unified alerting; grafanalib's own class has the options of the one before."""

    def to_json_data(self) -> Json:
        panel: Json = self.panel_json({"type": core.ALERTLIST_TYPE})
        return panel


def alert_list(cluster: Cluster, face: Face, view: AlertView, *, labels: str = "") -> Built:
    """Return what fires and what is about to. A NUMBER counts rules, not their instances.

    Args:
        cluster: what the board is about.
        face: what the panel says.
        view: list or number.
        labels: matcher of the alerts' labels, such as ``{severity="critical"}``.
    """
    is_list = view is AlertView.LIST
    options: Json = {
        "viewMode": view.value,
        "groupMode": "default",
        "groupBy": [],
        "maxItems": 20,
        # Importance: firing before pending.
        "sortOrder": 3,
        "dashboardAlerts": False,
        "alertName": "",
        "alertInstanceLabelFilter": labels,
        "datasource": "",
        "showInstances": is_list,
        "stateFilter": {
            "firing": True,
            "pending": is_list,
            "recovering": is_list,
            "noData": is_list,
            "error": True,
            "normal": False,
        },
    }
    common = _common(cluster, face, ())
    # Grafana's own alert state, not ours: no data source, no unit.
    del common["dataSource"]
    panel = _AlertListPanel(**common, extraJson={"options": options})
    return Built(face.name, panel)


def text(cluster: Cluster, face: Face, content: str) -> Built:
    """Return words, in Markdown."""
    common = _common(cluster, face, ())
    del common["dataSource"]
    return Built(face.name, core.Text(**common, content=content, mode="markdown"))
