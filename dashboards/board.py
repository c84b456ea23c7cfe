"""From panels to the JSON that Grafana loads: only here are ids, uid, tags, refresh and links set."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from app.errors import UserError
from cluster.model import Cluster
from dashboards.panels import Built
from dashboards.registry import BOARDS, HOME, Board

TAG = "clusterflow"
SCHEMA_VERSION = 41
"""Dashboard JSON of Grafana 12.0; later 12.x migrate it in memory without changing anything we use."""

_TIME = re.compile(r"\d+[smhdwMy]")
_REFRESHES = ["10s", "30s", "1m", "5m", "15m"]


@dataclass(frozen=True, slots=True)
class Page:
    """One board before it is stamped.

    Attributes:
        board: its key in the registry; a board of the site's own says itself what it is.
        panels: in reading order.
        since: default time range: from now back.
        refresh: seconds between refreshes.
        variables: in the order of the bar on top.
        annotations: events drawn over its time series.
        tags: besides the common one.
    """

    board: str | Board
    panels: tuple[Built, ...]
    since: str = "6h"
    refresh: str = "30s"
    variables: tuple[core.Template, ...] = ()
    annotations: tuple[dict[str, Any], ...] = field(default=())
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("since", self.since), ("refresh", self.refresh)):
            if not _TIME.fullmatch(str(value)):
                raise ValueError(f"page: {name} is {value!r}: expected a number and its unit, such as '6h'")


def dashboard(cluster: Cluster, page: Page) -> core.Dashboard:
    """Return the board as grafanalib's object, with everything that all boards share.

    Raises:
        UserError: the board, or one of its panels, is registered nowhere.
    """
    board = page.board if isinstance(page.board, Board) else _registered(page.board)
    panels: list[core.Panel] = []
    for built in page.panels:
        if built.name not in board.panels:
            hint = f"append the name to the board's panels: {', '.join(board.panels)}"
            raise UserError(f"board {board.uid}: panel {built.name!r} is registered nowhere", hint)
        built.panel.id = board.panel_id(built.name)
        if built.panel.id in (panel.id for panel in panels):
            raise UserError(f"board {board.uid}: panel {built.name!r} is there twice", "its name is its id")
        panels.append(built.panel)
    built_in = {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }
    return core.Dashboard(
        title=board.title,
        uid=board.uid,
        description=f"{board.question} ({cluster.name})",
        tags=[TAG, *page.tags],
        schemaVersion=SCHEMA_VERSION,
        timezone="browser",
        time=core.Time(f"now-{page.since}", "now"),
        # Nothing stands above the first tile of a wall.
        timePicker=core.TimePicker(refreshIntervals=_REFRESHES, timeOptions=[], hidden=page.board == HOME),
        refresh=page.refresh,
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        templating=core.Templating(list=list(page.variables)),
        annotations=core.Annotations(list=[built_in, *page.annotations]),
        links=[] if page.board == HOME else [_to_boards()],
        panels=panels,
        editable=True,
    )


def _registered(name: str) -> Board:
    if name not in BOARDS:
        hint = "add it to BOARDS in dashboards/registry.py; a board of your own needs no fork: docs/extending.md"
        raise UserError(f"board {name!r} is registered nowhere", hint)
    return BOARDS[name]


def _to_boards() -> core.DashboardLink:
    """Return one list to open: a link a board would fill two lines, in kiosk mode too. The wall has none."""
    # A variable means the same on every board that has it: what was chosen stays chosen.
    return core.DashboardLink(
        title="Boards", tags=[TAG], type="dashboards", asDropdown=True, keepTime=True, includeVars=True
    )


def to_json(board: core.Dashboard) -> str:
    """Return the text of a provisioned board: stable order, nothing that Grafana would only throw away."""
    document = _without_empty(json.loads(json.dumps(board.to_json_data(), cls=DashboardEncoder)))
    # The store of a board gives it its id and version; grafanalib's leftovers of older Grafanas go.
    for key in ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version"):
        document.pop(key, None)
    for panel in document["panels"]:
        for key in ("error", "editable", "repeatDirection", "fontSize", "columns", "color", "mappings"):
            panel.pop(key, None)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _without_empty(value: Any, parent: str = "") -> Any:  # noqa: ANN401 - JSON is any of these
    """Return JSON without nulls, except where null says something: a threshold's lowest step."""
    if isinstance(value, dict):
        return {
            key: _without_empty(item, key)
            for key, item in value.items()
            if item is not None or (parent == "steps" and key == "value")
        }
    if isinstance(value, list):
        return [_without_empty(item, parent) for item in value]
    return value


def pages_sorted(pages: Sequence[Page]) -> list[Page]:
    """Return pages in the registry's order.

    Raises:
        UserError: the registry has a board without a page.
    """
    by_name = {page.board: page for page in pages}
    if len(by_name) != len(pages):
        raise ValueError(f"two pages of one board: {[page.board for page in pages]}")
    for name in BOARDS:
        if name not in by_name:
            hint = "add its module to those of dashboards/provision.py"
            raise UserError(f"board {name!r} of dashboards/registry.py is made by no module", hint)
    return [*(by_name.pop(name) for name in BOARDS), *by_name.values()]
