"""Boards as Grafana will read them: places, ids, units, descriptions, links, names, and the wall's one screen."""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from board_store import load, seconds

from analysis.detectors.inference.access import EVERY
from cluster.load import load_cluster
from cluster.model import (
    ANY,
    EXTERNAL,
    BridgeSettings,
    CloudFormat,
    Cluster,
    DeclaredTransport,
    ExportProtocol,
    GroupPair,
    Node,
    Role,
    Secret,
    StoreApi,
    StoreSettings,
    Transport,
)
from dashboards import palette, questions
from dashboards import variables as var
from dashboards.boards import noc_wall
from dashboards.filled_queries import expand, own_range
from dashboards.panels import Limit, pair_titles
from dashboards.parts import matrix, transport
from dashboards.parts.spread import SLOWEST
from dashboards.provision import artefacts, boards, kiosk_uids
from dashboards.registry import BOARDS as REGISTERED
from dashboards.registry import HOME, board_file, panel_ref
from operations import generated
from rules.registry import rules_of
from store import schema
from store.influxql import chosen
from store.schema import NodeState

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")
BOARDS = {name: load(text) for name, text in boards(CLUSTER).items()}
SAMPLED = replace(CLUSTER.exporters[0], protocol=ExportProtocol.SFLOW)
WITH_EVERYTHING = {
    name: load(text)
    for name, text in boards(
        replace(
            CLUSTER,
            cloud=replace(CLUSTER.cloud, format=CloudFormat.AWS),
            exporters=(SAMPLED, *CLUSTER.exporters[1:]),
        )
    ).items()
}
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board["panels"]]
IDS = [f"{name}-{panel['title']}" for name, panel in PANELS]
GRID_ROWS = 27

# Grafana's own words in queries, then ours from the schema; anything else in double quotes is a name made up.
MADE_UP = {
    "rate", "rank", "sent", "received", "nodes", "alive", "usd", "contacts", "growth", "series", "highest",
    "suppressed", "bytes", "fastest", "median", "slowest", "${by:raw}", *schema.NODE_STATE_WORDS.values(),
    "clients", "found", "counters", "full", "links", "of_counters", "pairs", *schema.COVERAGE_WORDS.values(),
    *schema.CHECKPOINT_WORDS.values(), "alerts", "false", "firing", "critical", "other",
    "load", "apart",
}  # fmt: skip


def _urls(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) and value["url"] else []
        return own + [url for item in value.values() for url in _urls(item)]
    if isinstance(value, list):
        return [url for item in value for url in _urls(item)]
    return []


def test_every_board_is_there_under_its_own_uid() -> None:
    uids = [board["uid"] for board in BOARDS.values()]
    assert uids == [board.uid for board in REGISTERED.values()]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", uid) for uid in uids)
    assert set(BOARDS) >= {
        "noc_wall",
        "explore",
        "egress",
        "group_matrix",
        "pipeline",
        "training",
        "inference",
        "coverage",
    }


@pytest.mark.parametrize("name", BOARDS)
def test_panels_stand_beside_each_other(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} over {taken.get((x, y))}"
                taken[x, y] = panel["title"]


def test_the_wall_is_one_screen_and_full() -> None:
    """27 rows of 38 pixels fit under 1080 in kiosk mode with nothing above them, and no place is left empty."""
    places = [panel["gridPos"] for panel in BOARDS[HOME]["panels"]]
    height = max(place["y"] + place["h"] for place in places)
    assert height <= GRID_ROWS
    assert sum(place["w"] * place["h"] for place in places) == 24 * height
    assert BOARDS[HOME]["refresh"] == "10s"
    assert all(board["refresh"] == "30s" for name, board in BOARDS.items() if name != HOME)


LEAST_LETTERS, LEAST_NUMBER = 20, 60
LAPTOP = 1366
"""Pixels of the narrowest screen on which the wall is read, from near."""
LAPTOP_GRID, MARGINS = 1337, 50
"""Pixels of Grafana's grid there; and between panels, of a border, a panel's and a number's margin."""


def wall_panel(name: str, cluster: Cluster = CLUSTER) -> dict[str, Any]:
    board = BOARDS[HOME] if cluster is CLUSTER else load(boards(cluster)[HOME])
    panel_id = panel_ref(HOME, name).panel_id
    found: dict[str, Any] = next(panel for panel in board["panels"] if panel["id"] == panel_id)
    return found


def _overridden(panel: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        one["id"]: one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if override["matcher"]["options"] == name
    }


def test_nothing_stands_above_the_wall() -> None:
    """Each would take a line of the screen: a list of boards, a choice, a switch of annotations, the time picker."""
    wall = BOARDS[HOME]
    assert wall["timepicker"]["hidden"]
    assert all(one["hide"] == 2 for one in wall["templating"]["list"])
    assert all(one["hide"] for one in wall["annotations"]["list"])
    assert not wall.get("links")


@pytest.mark.parametrize("panel", BOARDS[HOME]["panels"], ids=lambda panel: panel["id"])
def test_the_wall_is_legible_from_three_metres(panel: dict[str, Any]) -> None:
    """Grafana's titles and cells have 14 pixels, axes and legends 12; names of tiles are as small as it likes."""
    options, defaults = panel["options"], panel["fieldConfig"]["defaults"]
    assert not panel["title"], "14 px"
    if panel["type"] == "stat":
        assert options["text"]["valueSize"] >= LEAST_LETTERS
        assert options["textMode"] == "name" or options["text"]["titleSize"] >= LEAST_LETTERS
    elif panel["type"] == "table":
        assert not options["showHeader"], "14 px"
        for override in panel["fieldConfig"]["overrides"]:
            cell = {one["id"]: one["value"] for one in override["properties"]}
            assert cell["custom.cellOptions"] == {"type": "markdown"}, "14 px"
            sizes = re.findall(r"font-size:(\d+)px", str(cell["mappings"]))
            assert len(sizes) == len(cell["mappings"])
            assert all(int(size) >= LEAST_LETTERS for size in sizes)
    elif panel["type"] == "status-history":
        assert options["showValue"] == "never"
        assert not options["legend"]["showLegend"]
        assert defaults["custom"]["axisPlacement"] == "hidden"
        assert panel["fieldConfig"]["overrides"][0]["matcher"] == {"id": "byType", "options": "time"}
    else:
        assert panel["type"] == "canvas"
        boxes = options["root"]["elements"]
        assert all(box["config"]["size"] >= LEAST_LETTERS for box in boxes)


@pytest.mark.parametrize(
    "name",
    [
        "alerts_critical", "alerts_warning", "data_age", "cohort_counts", "unknown_volume", "checkpoint_age",
        "stall_cost", "exporters_alive", "flow_rate", "lag", "lost", "late", "dead_letters",
    ],
)  # fmt: skip
def test_tiles_of_the_wall_have_a_name_and_a_large_number(name: str) -> None:
    panel = wall_panel(name)
    assert panel["options"]["text"]["valueSize"] > LEAST_NUMBER
    assert panel["options"]["textMode"] == "value_and_name"
    assert all(0 < len(target["alias"]) <= len("To unknown 15 min") for target in panel["targets"])
    assert panel["fieldConfig"]["defaults"]["links"]


@pytest.mark.parametrize(
    ("name", "wide"),
    [("data_age", 111), ("unknown_volume", 142), ("checkpoint_age", 107)],
    ids=["45 s", "65 GB", "12 m"],
)
def test_a_number_of_the_wall_has_room_for_its_unit_on_a_laptop(name: str, wide: int) -> None:
    """Pixels as measured in Grafana's font: what has no room beside the margins ends its line at the space."""
    tile = wall_panel(name)
    assert tile["options"]["text"]["valueSize"] == 62, "measure again"
    assert LAPTOP_GRID / 24 * tile["gridPos"]["w"] - MARGINS >= wide


def test_names_of_tiles_are_one_line() -> None:
    """In two, they push the number out of sight."""
    for name in ("data_age", "cohort_counts", "unknown_volume", "checkpoint_age", "stall_cost"):
        assert not [target["alias"] for target in wall_panel(name)["targets"] if " " in target["alias"]], name


def test_the_alerts_of_the_wall_say_what_fires_on_a_laptop() -> None:
    """Columns with a width left none for it: the table is wider than its panel there, and scrolls."""
    panel = wall_panel("alerts")
    columns = [_overridden(panel, name) for name in ("critical", "other", "Time", "rule")]
    widths = [column.get("custom.width") or column["custom.minWidth"] for column in columns]
    assert widths[-1] >= 200
    assert sum(widths) < LAPTOP / 24 * panel["gridPos"]["w"] * 0.65


def test_tiles_about_groups_that_a_cluster_does_not_have_say_neither_none_nor_zero() -> None:
    """What its inference sends, say, is in none of them."""
    others = [group for group in CLUSTER.groups if group.role is Role.INFERENCE]
    inference = replace(CLUSTER, groups=tuple(others), nodes=(), allowed=(), transport=())
    egress = load(boards(inference)["egress"])["panels"]
    for panel in egress[:3]:
        assert panel["fieldConfig"]["defaults"]["noValue"] == "not watched", panel["title"]
    for name in ("unknown_volume", "egress"):
        assert "n/a" in str(wall_panel(name, inference)["fieldConfig"]), name
        assert "n/a" not in str(wall_panel(name)["fieldConfig"]), name


def test_what_is_newest_is_within_the_range_of_its_tile_however_long_windows_are() -> None:
    """Of windows of a minute the newest point is two minutes old before the next one comes, a verdict's three."""
    minutes = replace(CLUSTER, bridge=replace(CLUSTER.bridge, window=60))
    for board in (load(text) for text in boards(minutes).values()):
        for panel in board["panels"]:
            own = own_range(panel)
            if own and "h" not in own and "d" not in own:
                assert seconds(own) >= 4 * 60, panel["title"] or panel["description"]


def test_a_panel_with_a_range_of_its_own_keeps_it_where_the_board_has_a_fixed_one() -> None:
    """Grafana's override holds for ranges that end now; it also takes the board's range out of the panel's links."""
    for name, panel in PANELS:
        queries = [target["query"] for target in panel["targets"]]
        if panel.get("timeFrom"):
            assert panel["timeFrom"] == "now/d" or any("$__interval" in query for query in queries), name
        elif own_range(panel):
            assert not any("$timeFilter" in query for query in queries), name
    (day,) = (panel for _, panel in PANELS if panel["title"].startswith("First contacts, "))
    day_before = expand(day["targets"][0]["query"], start=0, end=200_000, minimum="", variables={})
    assert "time >= 200000000ms - 24h\nAND time <= 200000000ms" in day_before


def test_a_row_that_is_older_than_the_board_is_explored_from_its_own_moment_on() -> None:
    """Of a row that is three weeks old, Explore showed the last day: nothing."""
    seen = set()
    for name, panel in PANELS:
        if panel["type"] != "table" or own_range(panel) not in {"7d", "30d"} or name == HOME:
            continue
        for override in panel["fieldConfig"]["overrides"]:
            urls = [url for url in _urls(override) if override["matcher"]["options"] in {"src", "dst", "node"}]
            seen |= {panel["title"] for _ in urls}
            assert all(re.search(r"from=\$\{__data\.fields\.\w+\.numeric\}&to=\$\{__to\}&", url) for url in urls), urls
    assert seen >= {"New networks, 30 d", "Exfiltration, 30 d", "Odd ways out, 30 d", "New: first sessions, 30 d"}


@pytest.mark.parametrize(
    ("name", "line"), [("gpu-{:02}", "gpu-"), ("gpu-h200-rack07-node-{:03}.ai.example.org", "gpu-h200-rack07-node-")]
)
def test_names_of_nodes_have_room_in_tables(name: str, line: str) -> None:
    """Two lines: of rows with three Grafana made some two lines high, and names lay over each other."""
    cluster = replace(CLUSTER, nodes=_training_nodes(name.format(number) for number in range(16)))
    made = {board: load(text)["panels"] for board, text in boards(cluster).items()}
    found = {}
    for board, title in (("training", "Last verdict on each node, worst first"), ("stragglers", "Time low or down")):
        (panel,) = (one for one in made[board] if one["title"] == title)
        found[title] = _overridden(panel, schema.NODE)
    (panel,) = (one for one in made["egress"] if one["title"] == "First contacts")
    found |= {end: _overridden(panel, end) for end in (schema.SRC, schema.DST)}
    for title, column in found.items():
        assert column["custom.minWidth"] >= 7 * len(line), title


def test_lines_have_no_areas_under_them() -> None:
    """Of 24 nodes, faint ones made one solid block."""
    for name, panel in PANELS:
        custom = panel["fieldConfig"]["defaults"].get("custom", {}) if panel["type"] == "timeseries" else {}
        if custom.get("drawStyle") == "line" and custom["stacking"]["mode"] == "none":
            assert custom["fillOpacity"] == 0, (name, panel["title"])


def test_a_click_that_narrows_a_question_leaves_the_other_choices() -> None:
    """Only this node: and the order went back to the largest first, the plane's traffic to all services."""
    choices = {var.SOURCE, var.DESTINATION, var.PLANE, var.SERVICE, var.ORDER, var.LIMIT}
    links = [
        link
        for panel in BOARDS["explore"]["panels"]
        for override in panel["fieldConfig"].get("overrides", [])
        for one in override["properties"]
        if one["id"] == "links"
        for link in one["value"]
        if link["url"].startswith("/d/cf-explore?")
    ]
    assert len(links) == 5
    for link in links:
        kept = re.findall(r"\{(\w+):queryparam\}", link["url"]) + re.findall(r"&var-(\w+)=", link["url"])
        assert set(kept) >= choices, link


def test_a_silence_turns_red_where_the_alert_links_to() -> None:
    """The bridge goes on telling of exporters that are silent: what it tells, and not that it does, says so."""
    panel_id = panel_ref("pipeline", "data_age").panel_id
    (panel,) = (one for one in BOARDS["pipeline"]["panels"] if one["id"] == panel_id)
    for one in (panel, wall_panel("data_age")):
        assert set(_reds(one).values()) == {CLUSTER.thresholds.ingest_silent}


def test_what_is_full_has_a_name_on_a_laptop() -> None:
    """Of `leaf-r07a compute-rail0` one saw `leaf-r07`."""
    panels = {panel["title"]: panel for panel in BOARDS["capacity"]["panels"]}
    for name, column in (
        ("Links", schema.SUBJECT),
        ("Storage nodes", schema.SUBJECT),
        ("Group pairs", schema.SRC_GROUP),
    ):
        shown = _overridden(panels[f"{name}: how full, and when"], column)
        assert shown["custom.minWidth"] >= 130, name
        assert column != schema.SUBJECT or shown["custom.cellOptions"]["wrapText"], name


def test_what_has_no_limit_of_capacity_stands_by_its_load() -> None:
    """The largest share of a limit first; where no limit is known, the order was that of the names."""
    for name in ("Links", "Group pairs", "Storage nodes"):
        (panel,) = (one for one in BOARDS["capacity"]["panels"] if one["title"] == f"{name}: how full, and when")
        orders = [one["options"]["sort"][0]["field"] for one in panel["transformations"] if one["id"] == "sortBy"]
        assert orders == [schema.P95.name, schema.UTILISATION.name], name


def test_destinations_of_a_shadow_node_are_not_zero() -> None:
    """They are not counted: it had sent 10 MB, to `0`."""
    panels = {panel["title"]: panel for panel in BOARDS["segmentation"]["panels"]}
    breaks = _overridden(panels["Conversations that break the segmentation"], schema.EVENT_DESTINATIONS.name)
    assert breaks["mappings"][0]["options"]["0"]["text"] == ""
    assert schema.EVENT_DESTINATIONS.name not in str(panels["Shadow nodes"])


def test_a_tile_without_bursts_says_so() -> None:
    """Beside `Most to one destination, 24 h: 42 GB` the table had one that got 65 GB."""
    titles = [panel["title"] for panel in BOARDS["ledger"]["panels"] if 'max("slow_' in str(panel["targets"])]
    assert len(titles) == 3
    assert all("without bursts" in title for title in titles)


def test_what_is_not_known_of_checkpoints_is_not_zero() -> None:
    """`Expected 0 B`, `Period 0 s`, and a line at 0 for the period."""
    panels = {panel["title"]: panel for panel in BOARDS["checkpoints"]["panels"]}
    for title, field in (
        ("Checkpoints, newest first", schema.EXPECTED_BYTES),
        ("Where each job stands", schema.PERIOD),
    ):
        (mapping,) = _overridden(panels[title], field.name)["mappings"]
        assert mapping["options"]["0"]["text"] == "unknown", title
    age = panels["Age of the last complete checkpoint, and the period"]
    assert f'"{schema.PERIOD.name}" > 0' in age["targets"][1]["query"]


def test_storage_traffic_of_others_is_no_fault() -> None:
    """Orange says look: the others were orange at rest, too."""
    (panel,) = (one for one in BOARDS["checkpoints"]["panels"] if one["title"].startswith("Storage traffic:"))
    assert palette.LOOK not in str(panel["fieldConfig"])


def test_a_slowest_node_is_no_fault() -> None:
    """Every cohort has one, at rest too."""
    found = [panel for _, panel in PANELS if panel["type"] == "timeseries" and _overridden(panel, SLOWEST)]
    assert len(found) >= 3
    assert all(palette.LOOK not in str(_overridden(panel, SLOWEST)) for panel in found)


def test_red_on_the_wall_is_what_somebody_must_act_on() -> None:
    """Firing critical alerts are; warnings are orange, and a share of the median is nobody's limit."""
    assert palette.ACT in str(wall_panel("alerts_critical")["fieldConfig"])
    assert palette.ACT in str(_overridden(wall_panel("alerts"), "critical"))
    for name in ("alerts_warning", "cohort", "cohort_names", "egress", "traffic", "matrix"):
        assert palette.ACT not in str(wall_panel(name)["fieldConfig"]), name
    assert palette.ACT not in str(_overridden(wall_panel("alerts"), "other"))


def test_a_low_node_has_one_colour_on_the_wall_and_on_its_board() -> None:
    """It was orange there, and a red number here."""
    (tile,) = (panel for panel in BOARDS["training"]["panels"] if panel["title"] == "Low or down")
    for word in ("low", "down"):
        assert _overridden(tile, word) == _overridden(wall_panel("cohort_counts"), word) != {}


@pytest.mark.parametrize(
    ("name", "count", "shown", "room"),
    [
        ("gpu-{:02}", 16, "gpu-{:02}", 16),
        ("lla-b{}", 40, "b{}", 40),
        ("gpu-{:04}", 1024, "{:04}", 36),
        ("gpu-{:04}", 4096, "{:04}", 36),
        ("dgx-hall-north-rack07-{:03}.fra.example.net", 24, "{:03}", 36),
    ],
)
def test_the_grid_of_nodes_holds_what_has_room(name: str, count: int, shown: str, room: int) -> None:
    """The worst come first; of names that do not all have room, the end; a click asks for the whole one."""
    nodes = _training_nodes(name.format(number) for number in range(count))
    grid = wall_panel("cohort_grid", replace(CLUSTER, nodes=nodes))
    assert room <= grid["options"]["reduceOptions"]["limit"] <= 64
    assert grid["transformations"][0]["options"]["sort"] == [{"field": schema.STATE.name, "desc": True}]
    (mapping,) = _overridden(grid, schema.NAME)["mappings"]
    assert _mapped(mapping, nodes[7].name) == shown.format(7)
    assert _overridden(grid, schema.STATE.name)["displayName"] == "${__data.fields.name}"
    assert not _overridden(grid, schema.NODE)
    assert "var-node=${__data.fields.node}" in grid["fieldConfig"]["defaults"]["links"][0]["url"]


def test_a_state_on_the_wall_has_its_word_and_nothing_at_all_too() -> None:
    """Where Grafana shows names alone, it leaves out `noValue`: a grey block said nothing."""
    grid = wall_panel("cohort_grid")
    assert grid["options"]["textMode"] == "value_and_name"
    words = grid["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert [words[str(state)]["text"] for state in (NodeState.OK, NodeState.LOW, NodeState.DOWN)] == [
        "", "low", "down",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("dgx-n-rack07-001.fra1.example", "hgx-s-rack22-001.fra2.example"), ("07-001", "22-001")),
        (("gpu.rack-1.example", "gpu.rack-2.example"), ("1.example", "2.example")),
        (("a1-gpu3", "b1-gpu3"), ("a1-gpu3", "b1-gpu3")),
        (("gpu-9", "gpu-10"), ("9", "10")),
    ],
)
def test_the_end_of_a_name_tells_nodes_apart(names: tuple[str, ...], shown: tuple[str, ...]) -> None:
    pattern = palette.telling_end(names)
    assert tuple(re.sub(f"^{pattern}$", r"\1", name) for name in names) == shown
    assert not re.search(f"^{pattern}$", "2001:db8:a::41")


@pytest.mark.parametrize(("room", "shown"), [(0, "7"), (3, "2-7"), (8, "b2-7"), (9, "hall-b2-7")])
def test_as_much_of_a_name_is_told_as_has_room(room: int, shown: str) -> None:
    """A number alone is hard to find: `7` for `lla-b7`, where there was room for more."""
    pattern = palette.telling_end(["hall-b2-7.example", "hall-b2-9.example"], room)
    assert re.sub(f"^{pattern}$", r"\1", "hall-b2-7.example") == shown


def test_long_names_of_nodes_are_told_apart_in_the_lists_of_the_wall() -> None:
    nodes = _training_nodes(f"dgx-rack{rack}-{number:03}.fra.example.net" for rack in (7, 8) for number in range(12))
    long = replace(CLUSTER, nodes=nodes)
    mapping = _overridden(wall_panel("alerts", long), schema.ALERT_SOURCE.name)["mappings"][0]
    assert ">dgx-rack7-003<" in (_mapped(mapping, "dgx-rack7-003.fra.example.net (GPU Nodes)") or "")
    assert _mapped(mapping, "203.0.113.41 (AS64500 ExampleHost, NL)") is None
    (renamed,) = wall_panel("cohort_names", long)["transformations"]
    assert re.sub(renamed["options"]["regex"], r"\1", nodes[-1].name) == "rack8-011"
    assert not wall_panel("cohort_names")["transformations"]


def _training_nodes(names: Iterable[str]) -> tuple[Node, ...]:
    training = CLUSTER.groups_with(Role.TRAINING)[0].id
    template = next(node for node in CLUSTER.nodes if node.group == training)
    return tuple(replace(template, name=name, addresses=()) for name in names)


def _mapped(mapping: dict[str, Any], text: str) -> str | None:
    """Return what a mapping by a regular expression shows of a text."""
    found = re.search(mapping["options"]["pattern"].strip("/"), text)
    return mapping["options"]["result"]["text"].replace("$1", found[1]) if found else None


def test_titles_that_begin_alike_differ_on_the_wall() -> None:
    titles = ("GPU Nodes of Hall North (B200)", "GPU Nodes of Hall South (H100)", "Storage (old)", "Storage (new)")
    groups = tuple(replace(CLUSTER.groups[0], id=f"g{number}", title=title) for number, title in enumerate(titles))
    short = palette.short_titles(replace(CLUSTER, groups=groups, nodes=(), allowed=()))
    assert [short[group.id] for group in groups] == [
        "GPU Node…all North", "GPU Node…all South", "Storage (old)", "Storage (new)",
    ]  # fmt: skip


def test_names_of_nodes_take_lines_in_tables() -> None:
    """Of names that are cut, those of a rack's nodes look alike."""
    for board in BOARDS.values():
        for panel in board["panels"]:
            column = _overridden(panel, schema.NODE) if panel["type"] == "table" else {}
            assert not column or column["custom.cellOptions"]["wrapText"], panel["title"]


def test_alerts_have_room_on_a_laptop_and_a_name_for_what_has_no_source() -> None:
    """What, source and destination share what fixed columns leave of 1366 pixels."""
    (history,) = (panel for panel in BOARDS["alerts"]["panels"] if panel["title"] == "Alert history")
    columns = [_overridden(history, one.name) for one in questions.ALERT_COLUMNS[:3]]
    assert all(column["custom.cellOptions"]["wrapText"] and "custom.width" not in column for column in columns)
    widths = [each["value"] for one in history["fieldConfig"]["overrides"] for each in one["properties"]
              if each["id"] == "custom.width"]  # fmt: skip
    assert (1366 - 32 - sum(widths)) / 3 > 105
    (sources,) = (panel for panel in BOARDS["alerts"]["panels"] if panel["title"] == "By source")
    assert _overridden(sources, schema.SRC)["noValue"] == "clusterflow"


def test_bars_have_room_for_their_numbers_and_addresses_are_whole_on_a_laptop() -> None:
    """Of `65.0 GB` the unit was cut, of `203.0.113.41` half; rows were as high as four lines of a job's name."""
    for _, panel in PANELS:
        for one in panel["fieldConfig"].get("overrides", []) if panel["type"] == "table" else ():
            column = {each["id"]: each["value"] for each in one["properties"]}
            width = column.get("custom.width") or column.get("custom.minWidth", 0)
            is_bar = column.get("custom.cellOptions", {}).get("type") == "gauge"
            is_name = one["matcher"]["options"] in {schema.JOB, schema.SRC, schema.DST}
            assert width >= (100 if is_bar else 110 if is_name else 0), panel["title"]


def test_an_alert_leads_to_the_page_of_its_incident_where_there_is_one() -> None:
    paged = replace(CLUSTER, delivery=replace(CLUSTER.delivery, incident_url="https://noc.example"))
    for cluster, urls in ((CLUSTER, []), (paged, ["https://noc.example/incident/${__data.fields.incident}"])):
        (history,) = (one for one in load(boards(cluster)["alerts"])["panels"] if one["title"] == "Alert history")
        links = _overridden(history, schema.INCIDENT.name).get("links", [])
        assert [one["url"] for one in links] == urls


def test_bars_are_as_wide_as_their_bins() -> None:
    """Where empty bins stay out, the only bar of a day was six hours wide; an outline makes a red line of zeros."""
    for _, panel in PANELS:
        custom = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
        if custom.get("drawStyle") == "bars":
            assert custom["lineWidth"] == 0, panel["title"]
            assert not any("fill(none)" in target["query"] for target in panel["targets"]), panel["title"]


def test_a_node_has_one_line_however_many_jobs_it_had() -> None:
    for panel in BOARDS["stragglers"]["panels"]:
        if panel["type"] == "timeseries":
            assert 'GROUP BY "node", time' in panel["targets"][0]["query"], panel["title"]


def test_pairs_of_groups_leave_room_for_their_numbers() -> None:
    groups = tuple(replace(one, title=f"{one.title} of Hall North, liquid cooled") for one in CLUSTER.groups)
    long = replace(CLUSTER, groups=groups)
    for name in ("capacity", "coverage"):
        texts = [step["options"]["renamePattern"] for panel in load(boards(long)[name])["panels"]
                 for step in panel.get("transformations", ()) if step["id"] == "renameByRegex"]  # fmt: skip
        assert texts
        assert max(map(len, texts)) <= len(" → ") + 18


@pytest.mark.parametrize("arrow", ["→", "->"])
def test_pairs_of_groups_take_a_step_a_group(arrow: str) -> None:
    """Each step looks at every series: two a group took half a second in the browser, of 200 groups."""
    steps = [step["options"] for step in pair_titles(CLUSTER, arrow)]
    assert len(steps) <= len(palette.group_titles(CLUSTER)) + 1
    for src, dst in (("training", "training"), ("training", "storage"), ("storage", EXTERNAL)):
        name = f"{src} {arrow} {dst}"
        for step in steps:
            _, regex, flags = step["regex"].split("/")
            name = re.sub(regex, step["renamePattern"], name, count=0 if flags else 1)
        titles = palette.short_titles(CLUSTER)
        assert name == f"{titles[src]} → {titles[dst]}"


def test_no_layer_of_a_stack_is_orange() -> None:
    """The upper one outlines all, though it is zero: the job's own writes looked like everybody else's."""
    for board in BOARDS.values():
        for panel in board["panels"]:
            custom = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
            if custom.get("stacking", {}).get("mode") == "normal" and custom["drawStyle"] == "line":
                assert palette.LOOK not in str(panel["fieldConfig"]["overrides"]), panel["title"]


def test_the_drawn_matrix_has_every_group_twice_and_every_pair_once() -> None:
    matrix = wall_panel("matrix")
    groups = [*(group.id for group in CLUSTER.groups), "external"]
    boxes = {box["name"]: box for box in matrix["options"]["root"]["elements"]}
    assert set(boxes) == {
        *(f"to {one}" for one in groups), *(f"from {one}" for one in groups),
        *(f"{a} to {b}" for a in groups for b in groups),
    }  # fmt: skip
    heads = [boxes[f"to {one}"]["config"]["text"]["fixed"] for one in groups]
    assert heads == ["GT", "St", "MS", "In", "MP", "IC", "AE", "UE"]
    for box in boxes.values():
        place = box["placement"]
        assert min(place.values()) >= -0.01
        assert place["left"] + place["right"] < 100
        assert place["top"] + place["bottom"] < 100
    violating = _overridden(matrix, "training → users")["mappings"][0]["options"]["result"]
    assert violating == {"text": "!", "color": palette.LOOK}, "a word or a shape beside the colour"
    assert _overridden(matrix, "training → storage")["mappings"][0]["options"]["result"]["color"] == palette.QUIET
    assert boxes["training to users"]["background"]["color"]["field"] == "training → users"


def test_of_more_groups_than_a_matrix_has_room_for_the_pairs_are_listed() -> None:
    """A query for each of 26 columns was one too many: nothing was built. 200 groups made a wall of 88 MB."""
    more = range(matrix.MOST + 1 - len(CLUSTER.groups))
    groups = tuple(replace(CLUSTER.groups[0], id=f"g{number}", title='1 < 2, "three"') for number in more)
    large = {name: load(text) for name, text in boards(replace(CLUSTER, groups=(*CLUSTER.groups, *groups))).items()}
    listed = [panel for name in ("group_matrix", "segmentation") for panel in large[name]["panels"]]
    listed = [panel for panel in listed if panel["title"] == "Who talks to whom"]
    wall = next(one for one in large[HOME]["panels"] if one["id"] == panel_ref(HOME, "matrix").panel_id)
    assert [len(panel["targets"]) for panel in (*listed, wall)] == [2, 2, 1]
    words = _overridden(wall, schema.SRC_GROUP)["mappings"][0]["options"]["g0"]["text"]
    assert words == '<div style="font-size:20px;">1 &lt; 2, &quot;three&quot;</div>'
    pairs = next(one for one in large["capacity"]["panels"] if one["title"].startswith("Group pairs"))
    assert len(_overridden(pairs, schema.DST_GROUP)["mappings"][0]["options"]) < 2 * matrix.MOST, "no word a pair"


@pytest.mark.parametrize(
    ("titles", "heads"),
    [
        (("Storage", "Station", "Stage one", "Stage out"), ["St", "St2", "So", "So2", "Ex"]),
        (tuple(f"Rack {number}" for number in range(1, 13)), [*(f"R{number}" for number in range(1, 13)), "Ex"]),
        (("Rack",) * 12, ["Ra", *(f"Ra{number}" for number in range(2, 13)), "Ex"]),
    ],
)
def test_heads_of_the_drawn_matrix_differ(titles: tuple[str, ...], heads: list[str]) -> None:
    titles = (*titles, "External")
    groups = tuple(replace(CLUSTER.groups[0], id=f"g{number}", title=title) for number, title in enumerate(titles))
    matrix = wall_panel("matrix", replace(CLUSTER, groups=groups, nodes=(), allowed=()))
    boxes = {box["name"]: box["config"] for box in matrix["options"]["root"]["elements"]}
    assert [boxes[f"to g{number}"]["text"]["fixed"] for number in range(len(titles))] == heads
    for number in range(len(titles)):
        # Of 530 pixels the columns share 62 %.
        assert boxes[f"to g{number}"]["size"] * 1.5 <= 530 * 0.62 / len(titles) + 1
        assert " " not in boxes[f"from g{number}"]["text"]["fixed"], "a name that wraps stands in the next line"


@pytest.mark.parametrize("name", [name for name in REGISTERED if name != HOME])
def test_the_wall_leads_to_every_board_and_every_board_back(name: str) -> None:
    there = f"/d/{REGISTERED[name].uid}?"
    assert any(url.startswith(there) for panel in BOARDS[HOME]["panels"] for url in _urls(panel))
    (link,) = BOARDS[name]["links"]
    assert set(link["tags"]) <= set(BOARDS[HOME]["tags"])
    assert not BOARDS[HOME]["links"]


@pytest.mark.parametrize("name", BOARDS)
def test_panel_ids_are_those_that_alerts_link_to(name: str) -> None:
    # Some panels are of clouds alone, some of sFlow.
    assert {panel["id"] for panel in WITH_EVERYTHING[name]["panels"]} == set(range(1, len(REGISTERED[name].panels) + 1))
    assert {panel["id"]: panel["title"] for panel in BOARDS[name]["panels"]}.items() <= {
        panel["id"]: panel["title"] for panel in WITH_EVERYTHING[name]["panels"]
    }.items()


@pytest.mark.parametrize(
    ("board", "panel", "title"),
    [
        ("egress", "unknown_volume", "To unknown destinations, 15m"),
        ("training", "observed_expected", "Share of the cohort's median: observed, expected, limit"),
        ("pipeline", "exporter_age", "Age of each exporter's newest record"),
    ],
)
def test_a_reference_leads_to_its_panel(board: str, panel: str, title: str) -> None:
    reference = panel_ref(board, panel)
    found = next(one for one in BOARDS.values() if one["uid"] == reference.dashboard_uid)
    assert next(one["title"] for one in found["panels"] if one["id"] == reference.panel_id) == title


def test_an_unknown_panel_is_an_error() -> None:
    with pytest.raises(KeyError, match="no panel 'nothing'"):
        panel_ref("egress", "nothing")


@pytest.mark.parametrize("title", ["Phases of the jobs", "What the job does"])
def test_phases_are_listed_as_they_cover_each_other(title: str) -> None:
    """The highest of a bin is drawn, and the text says: the later in its list."""
    (panel,) = (panel for _, panel in PANELS if panel["title"] == title)
    sentence = panel["description"].partition(".")[0].lower()
    places = [sentence.index(schema.PHASE_WORDS[phase]) for phase in sorted(schema.PHASE_WORDS)]
    assert places == sorted(places)


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_every_panel_explains_itself(name: str, panel: dict[str, Any]) -> None:
    """Title, what it shows, what it cannot, where to look next; a unit wherever there are numbers; a way on."""
    sentences = re.findall(r"[^.!?]+[.!?](?:\s|$)", panel["description"])
    assert 3 <= len(sentences) <= 6, panel["description"]
    assert panel["links"], "leads nowhere"
    if panel["type"] not in {"text", "alertlist"}:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "influxdb", "uid": CLUSTER.grafana.datasource_uid}
        assert panel["targets"]
    assert name


_OWN_RANGE = r"from=\$\{__data\.fields\.\w+\.numeric\}&to=\$\{(?:__data\.fields\.\w+\.numeric|__to)\}"
"""Of a table of jobs: the job's own. Of a table with a range of its own: from the row's moment on."""


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_links_lead_to_boards_with_the_range_and_known_variables(name: str, panel: dict[str, Any]) -> None:
    by_uid = {board["uid"]: board for board in BOARDS.values()}
    own = {variable["name"] for variable in BOARDS[name]["templating"]["list"]}
    for url in _urls(panel):
        if url in {"/alerting/list", "/alerting/grafana/${__data.fields.rule}/view"}:
            continue
        match = re.fullmatch(rf"/d/([a-z0-9-]+)\?(?:\$\{{__url_time_range\}}|{_OWN_RANGE})(.*)", url)
        assert match, url
        target = by_uid[match[1]]
        variables = {variable["name"] for variable in target["templating"]["list"]}
        for given in re.findall(r"&var-(\w+)=", match[2]):
            assert given in variables, f"{url}: {target['title']} has no variable {given}"
        for kept in re.findall(r"&\$\{(\w+):queryparam\}", match[2]):
            assert kept in variables & own, f"{url}: {kept} is not a variable of both boards"


@pytest.mark.parametrize(
    ("role", "name", "title"),
    [
        (Role.TRAINING, "training", "Stragglers: who sent least?"),
        (Role.INFERENCE, "inference", "Nodes by bytes"),
        (Role.INFERENCE, "inference", "Explore this pair"),
    ],
)
def test_links_about_a_role_choose_all_of_its_groups(role: Role, name: str, title: str) -> None:
    (group,) = CLUSTER.groups_with(role)
    two = replace(CLUSTER, groups=(*CLUSTER.groups, replace(group, id="second", title="Second")))
    text = boards(two)[name]
    assert f'"title": "{title}"' in text
    urls = re.findall(rf'"title": "{re.escape(title)}",\s+"url": "([^"]+)"', text)
    assert urls
    assert all(f"&var-src={group.id}&var-src=second" in url for url in urls), urls


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_queries_name_a_retention_and_the_schema_only(name: str, panel: dict[str, Any]) -> None:
    measurements = {one.name for one in schema.MEASUREMENTS}
    known = {tag for one in schema.MEASUREMENTS for tag in one.tags} | set(palette.group_titles(CLUSTER))
    known |= {one.name for measurement in schema.MEASUREMENTS for one in measurement.fields} | MADE_UP
    for target in panel["targets"]:
        sources = re.findall(r'FROM (?:\(|"(\w+)"\."(\w+)")', target["query"])
        assert any(retention for retention, _ in sources)
        for retention, measurement in sources:
            assert not retention or (retention in {"raw", "1m", "1h"} and measurement in measurements)
        rest = re.sub(r'FROM "\w+"\."\w+"', "", target["query"])
        unknown = set(re.findall(r'"([^"]+)"', rest)) - known
        assert not unknown, f"{name}: {unknown} in {target['query']}"
        assert "$timeFilter" in target["query"] or own_range(panel)


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_rates_are_binned_by_whole_windows(name: str, panel: dict[str, Any]) -> None:
    """A bin shorter than a window, or of one and a half windows, would make a rate jump."""
    for target in panel["targets"]:
        if "$__interval_ms" in target["query"]:
            smallest = {"raw": "20s", "1m": "60s", "1h": "3600s"}[re.findall(r'"(raw|1m|1h)"\."', target["query"])[0]]
            if f'"{schema.ACCESS.name}"' in target["query"]:
                smallest = f"{EVERY}s"
            if panel.get("timeFrom") and panel.get("maxDataPoints"):
                # A range of its own may have bins of one window each.
                smallest = f"{seconds(panel['timeFrom']) // panel['maxDataPoints']}s"
                assert smallest == f"{CLUSTER.bridge.window}s"
            if "/ $__interval_ms" in target["query"]:
                assert panel["interval"] == smallest, name
            # A ratio over bins that only chooses the retention by their length may have longer ones, of whole windows.
            assert seconds(panel["interval"]) % seconds(smallest) == 0, name


def test_shards_are_always_summed_up() -> None:
    """No answer shows a bridge's partial totals as if they were something of their own."""
    for _, panel in PANELS:
        for target in panel["targets"]:
            outer = target["query"].rsplit(")", 1)[-1] if "FROM (" in target["query"] else target["query"]
            assert f'"{schema.SHARD}"' not in outer


def test_training_panels_say_what_is_not_seen() -> None:
    """A pair declared RoCE is named on the panels of training nodes; otherwise they say what never shows."""
    training = CLUSTER.groups_with(CLUSTER.groups[0].role)[0].id
    rdma = replace(CLUSTER, transport=(DeclaredTransport(GroupPair(training, training), Transport.ROCE),))
    for cluster, word in ((CLUSTER, "NVLink"), (rdma, "RoCE")):
        wall = load(boards(cluster)["noc_wall"])
        described = {panel["id"]: panel["description"] for panel in wall["panels"]}
        for name in ("cohort_counts", "cohort_grid", "cohort", "cohort_names", "runs", "traffic", "matrix"):
            assert word in described[panel_ref(HOME, name).panel_id]
    (note,) = (one for one in load(boards(rdma)["training"])["panels"] if one["title"] == "What flow records see")
    assert "Declared invisible" in note["options"]["content"]
    assert "GPU Training Nodes ↔ GPU Training Nodes: RoCE" in note["options"]["content"]


def test_a_wildcard_transport_names_every_pair() -> None:
    infiniband = replace(CLUSTER, transport=(DeclaredTransport(GroupPair(ANY, ANY), Transport.INFINIBAND),))
    groups = len(CLUSTER.groups)
    assert len(transport.hidden_pairs(infiniband)) == groups * (groups + 1) // 2
    assert "more pairs" in transport.note(infiniband)


JOB_PANELS = {"timeseries", "state-timeline"}
BY_JOB = re.compile(rf'GROUP BY (?:"\w+", )*"{schema.JOB}"')
SHOW_JOBS = [
    name
    for name, board in BOARDS.items()
    if "training" in board["tags"]
    or any(
        panel["type"] in JOB_PANELS and BY_JOB.search(target["query"])
        for panel in board["panels"]
        for target in panel["targets"]
    )
]


@pytest.mark.parametrize("name", SHOW_JOBS)
def test_boards_that_show_jobs_mark_starts_stops_and_verdicts(name: str) -> None:
    """And only those of the jobs that are chosen, where the board has the choice."""
    board = BOARDS[name]
    marks = {one["name"]: one for one in board["annotations"]["list"] if not one.get("builtIn")}
    assert {"Job start and stop", "Verdict on the job"} <= set(marks)
    has_choice = var.JOB in {variable["name"] for variable in board["templating"]["list"]}
    assert any(name.startswith("Checkpoint") for name in marks) is has_choice
    for mark in marks.values():
        assert mark["target"]["query"] == mark["query"], "Grafana reads the one or the other"
        assert (chosen(schema.JOB, var.JOB).text in mark["query"]) is has_choice


def test_the_boards_that_show_jobs_are_found() -> None:
    assert set(SHOW_JOBS) == {"training", "stragglers", "checkpoints"}


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_panel_links_carry_the_choices_that_both_boards_have(name: str, panel: dict[str, Any]) -> None:
    """A job that was chosen stays chosen wherever one goes; so do groups, unless one asks for a node of its own."""
    variables = {one["uid"]: {each["name"] for each in one["templating"]["list"]} for one in BOARDS.values()}
    own = variables[BOARDS[name]["uid"]]
    in_cells = _urls(panel.get("fieldConfig", {}))
    for url in _urls(panel):
        match = re.match(r"/d/([a-z-]+)\?", url)
        if not match:
            continue
        given = set(re.findall(r"&var-(\w+)=|&\$\{(\w+):queryparam\}", url))
        shared = {var.JOB} if url in in_cells else {var.JOB, *var.GROUPS}
        assert shared & own & variables[match[1]] <= {one for pair in given for one in pair}, url


def test_red_stands_only_at_the_limits_of_alerts() -> None:
    """Orange says look, red says act: so red is a threshold of cluster.yaml, a node that is down, or blindness."""
    limits = CLUSTER.thresholds
    allowed = {
        limits.exfil_volume, limits.exfil_volume * 8 / limits.exfil_window, limits.off_hours_bytes,
        limits.off_hours_bytes * 8 / limits.off_hours_window, limits.exporter_silent,
        limits.checkpoint_overdue, limits.low_and_slow_24h, limits.low_and_slow_7d, limits.violation_bytes,
        limits.shadow_node_bytes, limits.storage_on_compute_bytes, limits.management_bytes, limits.violation_flows,
        limits.rail_low, limits.uplinks_uneven,
        1, None,
    }  # fmt: skip

    def reds(value: Any) -> list[Any]:
        if isinstance(value, dict):
            own = [value["value"]] if value.get("color") == palette.ACT and "value" in value else []
            return own + [red for item in value.values() for red in reds(item)]
        return [red for item in value for red in reds(item)] if isinstance(value, list) else []

    for _, panel in PANELS:
        assert set(reds(panel["fieldConfig"])) <= allowed, panel["title"]


def _reds(panel: dict[str, Any]) -> dict[str, float]:
    """Return the values at which a tile's numbers turn red, by the alias of their query; those of none are missing."""
    config = panel["fieldConfig"]
    aliases = [target["alias"] for target in panel["targets"] if target["alias"] != noc_wall.ZERO]
    steps = dict.fromkeys(aliases, config["defaults"]["thresholds"]["steps"])
    for one in config["overrides"]:
        properties = {each["id"]: each["value"] for each in one["properties"]}
        if "thresholds" in properties:
            steps[one["matcher"]["options"]] = properties["thresholds"]["steps"]
    return {
        alias: step["value"] for alias, each in steps.items() for step in each if step["color"] == palette.ACT
    }  # fmt: skip


def _sums(query: str) -> tuple[set[str], set[str]]:
    """Return the fields that a query's inner question sums up, and the tags that it groups by."""
    query = query.replace("\n", " ")
    inner = re.search(r"FROM \((SELECT .*?)\) WHERE", query)
    text = inner[1] if inner else query
    assert " GROUP BY " in text, "a sum of everything"
    return set(re.findall(r'sum\("(\w+)"\)', text)), set(re.findall(r'"(\w+)"', text.rsplit(" GROUP BY ", 1)[1]))


@pytest.mark.parametrize(
    ("board", "name", "rule_id"),
    [
        ("segmentation", "not_allowed", "segmentation_violation"),
        ("segmentation", "shadow_nodes", "shadow_node"),
        ("segmentation", "wrong_plane", "storage_on_compute_plane"),
        ("segmentation", "unexpected_management", "unexpected_management_connection"),
        ("management", "unexpected", "unexpected_management_connection"),
        ("egress", "unknown_volume", "exfil_volume"),
        ("egress", "off_hours", "off_hours_transfer"),
        ("noc_wall", "unknown_volume", "exfil_volume"),
    ],
)
def test_tiles_turn_red_where_their_rule_fires(board: str, name: str, rule_id: str) -> None:
    """The largest of what the rule judges one by one, by its measures, over its window, at its limits."""
    rule = rules_of(CLUSTER).rule(rule_id)
    judged = rule.measures[0]
    # Limits of several measures stand in the rule's query.
    limits = {
        (field, float(value))
        for field, value in re.findall(r'"(\w+)" >=? ([\d.]+)', judged.query.influxql)
        if field in {one.name for one in (schema.BYTES, schema.TX_BYTES, schema.FLOWS)}
    } or {(schema.BYTES.name, float(rule.threshold.value))}
    panel_id = panel_ref(board, name).panel_id
    (panel,) = (one for one in BOARDS[board]["panels"] if one["id"] == panel_id)
    assert own_range(panel) == f"{judged.since}s"
    queries = {target["alias"]: target["query"] for target in panel["targets"]}
    shown = set()
    for alias, red in _reds(panel).items():
        (field,) = re.findall(r'^SELECT max\("(\w+)"\)', queries[alias])
        fields, tags = _sums(queries[alias])
        assert fields == {field}
        assert tags == _sums(judged.query.influxql)[1] == set(judged.query.tags)
        shown.add((field, float(red)))
    assert shown == limits


@pytest.mark.parametrize(("name", "rule_id"), [("slow_24h", "low_and_slow_24h"), ("slow_7d", "low_and_slow_7d")])
def test_tiles_of_the_ledger_show_what_their_rule_judges(name: str, rule_id: str) -> None:
    """The same groups' newest rows, pair by pair, less what the other rule tells."""
    rule = rules_of(CLUSTER).rule(rule_id)
    judged = rule.measures[0].query.influxql
    panel_id = panel_ref("ledger", name).panel_id
    (panel,) = (one for one in BOARDS["ledger"]["panels"] if one["id"] == panel_id)
    (query,) = (target["query"] for target in panel["targets"])
    assert re.findall(r"GROUP BY (.*?)\)", query)[0] == re.findall(r"GROUP BY (.*?)\)", judged)[0]
    sources, own = (set(re.findall(r"\"src_group\" = '(\w+)'", text)) for text in (judged, query))
    assert own == sources
    others = set(re.findall(r'"\w+" <= \d+', judged))
    assert set(re.findall(r'"\w+" <= \d+', query)) == others
    assert set(_reds(panel).values()) == {rule.threshold.value}
    assert seconds(own_range(panel)) == rule.measures[0].since


def test_a_column_named_by_a_choice_stands_first() -> None:
    (table,) = (panel for panel in BOARDS["explore"]["panels"] if panel["title"].startswith("Traffic by"))
    (places,) = (one["options"]["indexByName"] for one in table["transformations"] if one["id"] == "organize")
    assert places[schema.DST_GROUP] < places[schema.BYTES.name]


def test_the_list_of_boards_carries_what_was_chosen() -> None:
    for board in (board for name, board in BOARDS.items() if name != HOME):
        (listed,) = board["links"]
        assert listed["keepTime"]
        assert listed["includeVars"]


def test_each_group_has_one_colour_on_every_board() -> None:
    colours = palette.group_colours(CLUSTER)
    assert len(set(colours.values())) == len(colours), "told apart"
    assert not set(colours.values()) & {palette.LOOK, palette.ACT}, "states have their own colours"
    for _, panel in PANELS:
        for override in panel.get("fieldConfig", {}).get("overrides", []):
            properties = {one["id"]: one["value"] for one in override["properties"]}
            name = override["matcher"]["options"]
            if name in colours and "color" in properties:
                assert properties["color"]["fixedColor"] == colours[name]
                assert properties["displayName"] == CLUSTER.title(name)


def test_many_groups_of_one_role_keep_different_colours() -> None:
    groups = tuple(replace(CLUSTER.groups[0], id=f"g{number}", title=f"G {number}") for number in range(6))
    colours = palette.group_colours(Cluster("c", groups))
    assert len(set(colours.values())) == 8


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit(), [(None, palette.QUIET)]),
        (Limit(act=10), [(None, palette.QUIET), (10, palette.ACT)]),
        (Limit(act=10, look=5), [(None, palette.QUIET), (5, palette.LOOK), (10, palette.ACT)]),
        (Limit(act=6, below=True), [(None, palette.ACT), (6, palette.QUIET)]),
        (Limit(act=2, look=6, below=True), [(None, palette.ACT), (2, palette.LOOK), (6, palette.QUIET)]),
        (Limit(look=6, below=True), [(None, palette.LOOK), (6, palette.QUIET)]),
    ],
)
def test_limits_become_rising_steps(limit: Limit, expected: list[tuple[float | None, str]]) -> None:
    assert [(step["value"], step["color"]) for step in limit.steps()] == expected
    numbers = [step["value"] for step in limit.steps()[1:]]
    assert all(low < high for low, high in pairwise(numbers))


def test_thresholds_follow_cluster_yaml() -> None:
    stricter = replace(CLUSTER, thresholds=replace(CLUSTER.thresholds, exfil_volume=123_000_000))
    tile = next(panel for panel in load(boards(stricter)["egress"])["panels"] if panel["id"] == 1)
    steps = tile["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[-1] == {"value": 123_000_000, "color": palette.ACT}


def test_the_matrix_has_a_column_for_every_group() -> None:
    matrix = next(panel for panel in BOARDS["group_matrix"]["panels"] if panel["id"] == 1)
    titles = [
        one["value"]
        for override in matrix["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "displayName"
    ]
    assert titles[1:] == [*(group.title for group in CLUSTER.groups), CLUSTER.title("external")]
    assert len(matrix["targets"]) == len(CLUSTER.groups) + 1
    assert len({target["refId"] for target in matrix["targets"]}) == len(matrix["targets"])


def test_the_straggler_query_is_two_clicks_from_the_wall() -> None:
    cohort = wall_panel("cohort")
    urls = [link["url"] for link in cohort["links"]]
    assert any("var-src=training&var-dst=training&var-plane=compute&var-order=-1" in url for url in urls)


def test_options_of_choices_are_what_grafana_parses() -> None:
    """Grafana splits `title : value, title : value` itself, and a title may hold a comma."""
    comma = replace(CLUSTER, groups=(replace(CLUSTER.groups[0], title="GPUs, new"), *CLUSTER.groups[1:]))
    variable = load(boards(comma)["egress"])["templating"]["list"][0]
    assert variable["query"].startswith(r"GPUs\, new : training, ")
    assert variable["options"][1] == {"selected": False, "text": "GPUs, new", "value": "training"}


# -- files beside the boards -----------------------------------------------------------------------------


def test_the_provider_and_home_name_files_that_are_there() -> None:
    files = artefacts(CLUSTER, installed="/srv/grafana")
    provider = yaml.safe_load(files["grafana/dashboards/clusterflow.yaml"])["providers"][0]
    assert provider["options"]["path"] == "/srv/grafana/dashboards"
    assert f"grafana/dashboards/{board_file(HOME)}" in files
    assert (
        f"default_home_dashboard_path = /srv/grafana/dashboards/{board_file(HOME)}\n"
        in files["grafana/clusterflow.ini"]
    )


def test_the_data_source_speaks_influxql_without_secrets_in_the_file() -> None:
    source = yaml.safe_load(artefacts(CLUSTER)["grafana/datasources/clusterflow.yaml"])["datasources"][0]
    assert source["type"] == "influxdb"
    assert source["jsonData"]["version"] == "InfluxQL"
    assert source["jsonData"]["dbName"] == CLUSTER.store.database
    assert source["jsonData"]["httpMode"] == "POST"
    assert "secureJsonData" not in source


def test_the_data_source_is_nobodys_default() -> None:
    """Grafana starts with one default at most among the data sources that files bring; others may have theirs."""
    source = yaml.safe_load(artefacts(CLUSTER)["grafana/datasources/clusterflow.yaml"])["datasources"][0]
    assert source["isDefault"] is False
    assert source["uid"] == CLUSTER.grafana.datasource_uid


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (StoreSettings(token=Secret(env="TOKEN")), {"httpHeaderValue1": "Token $__env{TOKEN}"}),
        (
            StoreSettings(token=Secret(file="/run/secrets/token"), api=StoreApi.V2),
            {"httpHeaderValue1": "Token $__file{/run/secrets/token}"},
        ),
        (StoreSettings(username="reader", password=Secret(env="PASSWORD")), {"password": "$__env{PASSWORD}"}),
    ],
)
def test_secrets_are_read_by_grafana_itself(store: StoreSettings, expected: dict[str, str]) -> None:
    text = artefacts(replace(CLUSTER, store=store))["grafana/datasources/clusterflow.yaml"]
    assert yaml.safe_load(text)["datasources"][0]["secureJsonData"] == expected


def test_the_kiosk_plays_boards_that_exist_and_starts_with_the_wall() -> None:
    uids = kiosk_uids()
    assert uids[0] == BOARDS[HOME]["uid"]
    assert set(uids) <= {board["uid"] for board in BOARDS.values()}


def test_the_committed_files_are_these() -> None:
    """`clusterflow build` was run after the last change."""
    for path, text in generated.artefacts(CLUSTER).items():
        committed = REPOSITORY / "provisioning" / path
        assert committed.read_text(encoding="utf-8") == text, f"{path}: run clusterflow build"


def test_short_ranges_of_a_cloud_s_boards_hold_what_its_logs_tell_late() -> None:
    """Verdicts of 20 minutes ago are the newest there: two minutes back the wall would find no job."""
    late_one = replace(
        CLUSTER,
        cloud=replace(CLUSTER.cloud, format=CloudFormat.AWS),
        bridge=replace(CLUSTER.bridge, lateness=1200),
    )
    plain, cloud = (load(boards(cluster)["noc_wall"]) for cluster in (CLUSTER, late_one))
    found = {panel["id"]: own_range(panel) for panel in cloud["panels"]}
    ranges = {(own_range(panel), found.get(panel["id"])) for panel in plain["panels"]}
    late = 1200 - BridgeSettings().lateness
    assert ("2m", f"{120 + late}s") in ranges
    assert ("1m", "1m") in ranges, "how old the newest record is"
    worst = next(one["query"] for one in cloud["templating"]["list"] if one["name"] == "worst_nodes")
    assert f"now() - {900 + late}s" in worst
