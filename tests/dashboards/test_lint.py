"""Every board is free of the traps that only a browser shows, and each trap is found where it is."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cluster.load import load_cluster
from dashboards.lint import BOARD, PANEL, cut, faults
from dashboards.palette import BLIND, QUIET
from dashboards.provision import boards
from dashboards.registry import BOARDS, HOME

Json = dict[str, Any]

CLUSTER = load_cluster(Path(__file__).resolve().parents[2] / "cluster.yaml")
OURS = {name: json.loads(text) for name, text in boards(CLUSTER).items()}


@pytest.mark.parametrize("name", BOARDS)
def test_a_person_sees_what_the_board_says(name: str) -> None:
    assert not faults(OURS[name]), "\n".join(faults(OURS[name]))


def _panel(board: Json, kind: str) -> Json:
    return next(panel for panel in board["panels"] if panel["type"] == kind)


def _mark(board: Json) -> Json:
    found: Json = board["annotations"]["list"][-1]
    return found


def _in_one_line(board: Json) -> None:
    target = _panel(board, "timeseries")["targets"][0]
    target["query"] = target["query"].replace("\n", " ") + ' AND "plane" =~ /^x$/'


def _two_quotients(board: Json) -> None:
    rate = 'sum("a") / $__interval_ms'
    _panel(board, "timeseries")["targets"][0]["query"] = f"SELECT {rate} + {rate}"


def _date_by_default(board: Json) -> None:
    _panel(board, "table")["fieldConfig"]["defaults"]["unit"] = "dateTimeAsIso"


def _blank(board: Json) -> None:
    _panel(board, "table")["fieldConfig"]["defaults"]["noValue"] = ""


def _timeline_colour(mode: str, fixed: str) -> Callable[[Json], None]:
    def change(board: Json) -> None:
        _panel(board, "state-timeline")["fieldConfig"]["defaults"]["color"] = {"mode": mode, "fixedColor": fixed}

    return change


def _state(text: str, colour: str) -> Callable[[Json], None]:
    def change(board: Json) -> None:
        option = {"type": "value", "options": {"7": {"text": text, "color": colour, "index": 0}}}
        _panel(board, "state-timeline")["fieldConfig"]["defaults"]["mappings"] = [option]

    return change


def _gap(word: str) -> Callable[[Json], None]:
    def change(board: Json) -> None:
        _panel(board, "state-timeline")["fieldConfig"]["defaults"]["noValue"] = word

    return change


def _many_rows(board: Json) -> None:
    _panel(board, "state-timeline")["options"]["perPage"] = 60


def _wide_table(board: Json) -> None:
    for override in _panel(board, "table")["fieldConfig"]["overrides"]:
        override["properties"].append({"id": "custom.width", "value": 500})


def _narrow_duration(board: Json) -> None:
    override = _panel(board, "table")["fieldConfig"]["overrides"][0]
    override["properties"] = [{"id": "unit", "value": "s"}, {"id": "custom.width", "value": 60}]


def _alert_list(board: Json) -> None:
    _panel(board, "table").update(type="alertlist", options={"showInstances": True})


def _long_title(board: Json) -> None:
    _panel(board, "table").update(title="Bytes to unknown destinations", gridPos={"x": 0, "y": 0, "w": 3, "h": 4})


def _long_on_a_laptop(board: Json) -> None:
    icons = {"description": "What it shows.", "links": [{}]}
    _panel(board, "table").update(
        title="Sensitive groups in off-hours, 15m", gridPos={"x": 0, "y": 0, "w": 6, "h": 4}, **icons
    )


def _no_column(board: Json) -> None:
    _panel(board, "table")["fieldConfig"]["overrides"][0]["matcher"] = {"id": "byName", "options": "servce"}


def _no_order(board: Json) -> None:
    steps = _panel(board, "table")["transformations"]
    steps.append({"id": "sortBy", "options": {"sort": [{"field": "byts"}]}})


def _over_another(board: Json) -> None:
    board["panels"][1]["gridPos"] = board["panels"][0]["gridPos"]


def _beyond(board: Json) -> None:
    board["panels"][0]["gridPos"] = {"x": 20, "y": 90, "w": 5, "h": 4}


def _ratio(board: Json) -> None:
    override = _panel(board, "table")["fieldConfig"]["overrides"][0]
    override["properties"] = [{"id": "unit", "value": "percentunit"}]


def _per_second(board: Json) -> None:
    _panel(board, "timeseries")["fieldConfig"]["defaults"]["unit"] = "cps"


def _ids(board: Json) -> None:
    panel = _panel(board, "timeseries")
    panel["targets"][0]["alias"] = "$tag_src_group to $tag_dst_group"
    panel["fieldConfig"]["overrides"] = []


def _grouped_events(board: Json) -> None:
    _mark(board)["query"] += '\nGROUP BY "job"'


def _tags_astray(board: Json) -> None:
    _mark(board)["tagsColumn"] = "checkpoint"


def _text_nowhere(board: Json) -> None:
    _mark(board)["textColumn"] = ".nothing"


def _switch(board: Json) -> None:
    _mark(board)["hide"] = False


def _tiled_links(board: Json) -> None:
    board["links"][0]["asDropdown"] = False


def _two_links(board: Json) -> None:
    board["links"] *= 2


def _home_with_links(board: Json) -> None:
    board["uid"] = BOARDS[HOME].uid


BAD: list[tuple[Callable[[Json], None], str, str]] = [
    (_in_one_line, "slashes", r"InfluxDB refuses \$__interval"),
    (_two_quotients, "slashes", "takes what lies between for a regular expression"),
    (_date_by_default, "tables", "every text becomes NaN"),
    (_blank, "tables", "a table without rows is blank"),
    (_timeline_colour("thresholds", "transparent"), "states", "merges states by threshold"),
    (_timeline_colour("fixed", BLIND), "states", "'blind' has the colour of a gap"),
    (_state("ok", ""), "states", "'ok' has no colour of its own"),
    (_state("blind", QUIET), "states", "blind has the colour #7EA6E0, on other boards #B877D9"),
    (_gap("blind"), "states", "a gap needs a word of its own"),
    (_gap(""), "states", "a gap needs a word of its own"),
    (_many_rows, "crowded", "print their names over each other"),
    (_wide_table, "crowded", "the last ones are out of sight"),
    (_narrow_duration, "crowded", "60 pixels cut 2.90 mins to 90 mins"),
    (_alert_list, "crowded", "a cloud of labels"),
    (_long_title, "title", "29 letters where"),
    (_long_on_a_laptop, "title", "34 letters where 30 fit beside 2 icons"),
    (_ratio, "digits", "a percentage without decimals"),
    (_per_second, "digits", "reads c/s"),
    (_ids, "legends", "legends show ids"),
    (_grouped_events, "events", "value[t].split is not a function"),
    (_tags_astray, "events", "begin them with a dot"),
    (_text_nowhere, "events", "begin them with a dot"),
    (_switch, "controls", "its switch stands among the choices"),
    (_tiled_links, "controls", "make one drop-down"),
    (_two_links, "controls", "make one drop-down"),
    (_home_with_links, "controls", "nobody there to click"),
    (_no_column, "columns", "no query has a column servce"),
    (_no_order, "columns", "no query has a column byts"),
    (_over_another, "places", "Grafana moves one of them"),
    (_beyond, "places", "x and w end at 25: the grid has 24 columns"),
]


@pytest.mark.parametrize(("spoil", "check", "reason"), BAD, ids=[f"{check}-{reason}" for _, check, reason in BAD])
def test_a_trap_is_found_with_its_reason(spoil: Callable[[Json], None], check: str, reason: str) -> None:
    board = deepcopy(OURS["checkpoints"])
    spoil(board)
    assert any(reason in fault for fault in faults(board)), f"{check}: {faults(board)}"


def test_every_check_has_a_bad_example() -> None:
    assert {check for _, check, _ in BAD} == {check.__name__ for check in (*PANEL, *BOARD)}


@pytest.mark.parametrize(
    ("own", "when"), [({"timeFrom": "31d"}, "$timeFilter"), ({}, "time >= ${__to}ms - 31d AND time <= ${__to}ms")]
)
def test_a_range_that_is_longer_than_what_it_reads_is_kept_is_told(own: dict[str, str], when: str) -> None:
    kept = {one.name: one.keep for one in CLUSTER.retentions()}
    assert not [line for board in OURS.values() for line in cut(board, kept)]
    query = f'SELECT 1 FROM "raw"."egress" WHERE {when}'
    panel = {"title": "Month", **own, "targets": [{"refId": "A", "query": query}]}
    (line,) = cut({"panels": [panel], "time": {"from": "now-1h"}}, kept)
    assert line == "Month: query A reads raw, kept for 7d, but shows 31d: read a coarser one, or keep it longer"
