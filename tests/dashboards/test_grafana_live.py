"""With a real Grafana (GRAFANA_HOME): it loads all that is provisioned, and its data source answers each panel."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import live_grafana
import pytest
from board_store import Filled, defaults, fill, load, seconds
from live_grafana import Grafana

from cluster.load import load_cluster
from dashboards import playlist
from dashboards import variables as var
from dashboards.board import TAG
from dashboards.filled_queries import own_range
from dashboards.provision import artefacts, boards, kiosk_uids
from dashboards.registry import BOARDS, FOLDER, HOME, board_file
from operations.build import write
from store.local_influxdb import LocalInfluxDB

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = live_grafana.needs_grafana

CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")


@dataclass
class Live(Grafana):
    filled: Filled


@pytest.fixture(scope="module")
def live(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("grafana")
    filled = fill(CLUSTER, influxdb_v1.url, "grafana_live")
    store = replace(CLUSTER.store, url=influxdb_v1.url, database="grafana_live")
    provisioned = folder / "grafana"
    write(artefacts(replace(CLUSTER, store=store), str(provisioned)), folder)
    home = str(provisioned / "dashboards" / board_file(HOME))
    with live_grafana.running(folder, provisioned, GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH=home) as grafana:
        found = Live(grafana.url, grafana.log, filled)
        deadline = time.monotonic() + 60
        while len(found.get(f"/api/search?tag={TAG}")) < len(BOARDS) and time.monotonic() < deadline:
            time.sleep(0.5)
        yield found


def test_every_board_is_loaded_into_its_folder(live: Live) -> None:
    found = {entry["uid"]: entry for entry in live.get(f"/api/search?tag={TAG}")}
    assert set(found) == {board.uid for board in BOARDS.values()}
    assert {entry["folderTitle"] for entry in found.values()} == {FOLDER}
    assert len({entry["folderUid"] for entry in found.values()}) == 1


@pytest.mark.parametrize("name", BOARDS)
def test_boards_read_back_as_written(live: Live, name: str) -> None:
    """Grafana keeps every panel with its id, type, options and queries: nothing was dropped as unknown."""
    stored = live.get(f"/api/dashboards/uid/{BOARDS[name].uid}")["dashboard"]
    written = load(boards(CLUSTER)[name])
    assert [panel["id"] for panel in stored["panels"]] == [panel["id"] for panel in written["panels"]]
    for ours, theirs in zip(written["panels"], stored["panels"], strict=True):
        assert theirs["type"] == ours["type"]
        assert theirs["gridPos"] == ours["gridPos"]
        assert [target["query"] for target in theirs.get("targets", [])] == [
            target["query"] for target in ours["targets"]
        ]
        assert set(ours["options"]) <= set(theirs["options"])


def test_the_wall_is_the_home(live: Live) -> None:
    assert live.get("/api/dashboards/home")["dashboard"]["title"] == BOARDS[HOME].title


def test_the_data_source_is_well(live: Live) -> None:
    uid = CLUSTER.grafana.datasource_uid
    assert live.get(f"/api/datasources/uid/{uid}/health")["status"] == "OK"


@pytest.mark.parametrize("name", BOARDS)
def test_grafana_answers_every_query(live: Live, name: str) -> None:
    """Variables are filled in as the browser would; time filter, interval and aliases are left to Grafana."""
    board = load(boards(CLUSTER)[name])
    everything = defaults(board)
    some = everything | ({var.NODE: "gpu-0[1-5]"} if var.NODE in everything else {})
    for panel in board["panels"]:
        # Today so far is asked as a day.
        own = own_range(panel).replace("now/d", "24h")
        length = seconds(own or board["time"]["from"].removeprefix("now-"))
        minimum = seconds(panel["interval"]) if panel.get("interval") else 1
        points = panel.get("maxDataPoints") or 1000
        if not panel["targets"]:
            continue
        # A panel of chosen nodes stays empty until some are.
        values = some if "!= '.*'" in panel["targets"][0]["query"] else everything
        now = live.filled.now
        times = {"__from": str((now - length) * 1000), "__to": str(now * 1000)}
        queries = [
            target
            | {
                "query": _fill_in(target["query"], values | times),
                "alias": _fill_in(target["alias"], values),
                "intervalMs": 1000 * max(minimum, length // points),
                "maxDataPoints": points,
            }
            for target in panel["targets"]
        ]
        body = {"queries": queries, "from": str((now - length) * 1000), "to": str(now * 1000)}
        results = live.post("/api/ds/query", body)["results"]
        errors = {ref: result["error"] for ref, result in results.items() if result.get("error")}
        assert not errors, f"{panel['title']}: {errors}"
        assert any(result.get("frames") for result in results.values()), panel["title"]


def _fill_in(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        for form in (":regex", ":raw", ""):
            text = text.replace(f"${{{name}{form}}}", value)
    return text


def test_the_tables_have_the_columns_that_boards_dress(live: Live) -> None:
    """Tags and fields come under their own names, time as `Time`: overrides and transformations rely on it."""
    board = load(boards(CLUSTER)["training"])
    panel = next(panel for panel in board["panels"] if panel["title"].startswith("Last verdict"))
    query = panel["targets"][0] | {"query": _fill_in(panel["targets"][0]["query"], defaults(board))}
    now = live.filled.now
    body = {"queries": [query], "from": str((now - 600) * 1000), "to": str(now * 1000)}
    frame = live.post("/api/ds/query", body)["results"]["A"]["frames"][0]
    columns = [field["name"] for field in frame["schema"]["fields"]]
    assert {"Time", "node", "job", "state", "observed"} <= set(columns), columns


def test_nothing_was_warned_about(live: Live) -> None:
    loud = live.complaints()
    assert not loud, "\n".join(loud)


def test_the_playlist_is_made_once(live: Live) -> None:
    account = live.post("/api/serviceaccounts", {"name": "playlists", "role": "Editor"})
    token = live.post(f"/api/serviceaccounts/{account['id']}/tokens", {"name": "test"})["key"]
    client = playlist.Grafana(live.url, token)
    first = client.ensure_playlist(kiosk_uids(), "1m")
    assert first.changed
    assert client.ensure_playlist(kiosk_uids(), "1m") == replace(first, changed=False)
    assert json.dumps(live.get(f"/api/playlists/{first.uid}")).count("dashboard_by_uid") == len(kiosk_uids())
