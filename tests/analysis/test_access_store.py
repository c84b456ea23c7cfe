"""Who asked inference, with the user of the time, and who was not on the list: on a real InfluxDB, live as re-run."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest
import service_scene as scenes
from click.testing import CliRunner
from service_scene import Scene

from analysis.analyser import Analyser
from analysis.detectors.inference.asked import Asked, identity_of
from analysis.detectors.inference.client_studies import AccessStudy, client_studies
from analysis.jobs.job_windows import ClusterFileJobs
from analysis.state import State
from app.errors import UserError
from app.log import Log
from cluster.dump import dump_cluster
from cluster.model import (
    AccessEntry,
    Cluster,
    IdentitySettings,
    Inference,
    InferenceHours,
    Secret,
    SignInColumns,
    SignInFormat,
    SignInSource,
)
from clusterflow import main
from operations.status.lists import stored_lists
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.schema import AccessBreach, ListState, Violation

NOW = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
"""A whole hour some hours ago."""

CLIENT = {
    schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users", schema.DST: "10.50.0.11", schema.DST_GROUP: "inference",
    schema.PROTO: "tcp", schema.SERVICE: "https", schema.OFF_WINDOW: schema.NO,
}  # fmt: skip
COLUMNS = SignInColumns("address", "user", "time", "event")


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        yield found


def sign_in(path: Path, user: str, second: int, event: str = "in", address: str = "10.70.0.9") -> None:
    with path.open("a") as file:
        row = {"address": address, "user": user, "time": NOW + second, "event": event}
        file.write(json.dumps(row) + "\n")


def with_access(scene: Scene, path: Path, *entries: AccessEntry, **identity: Any) -> Cluster:
    source = SignInSource("gateway", SignInFormat.JSON, str(path), columns=COLUMNS, stops=("out",))
    settings = IdentitySettings((source,), **identity)
    path.touch()
    inference = replace(scene.cluster.inference, access=entries)
    return replace(scene.cluster, inference=inference, identity=settings)


def study_of(scene: Scene, cluster: Cluster) -> AccessStudy:
    return AccessStudy(cluster, Asked(cluster, scene.store, Log()))


def ask(scene: Scene, first: int, last: int, sent: int = 1000, **tags: str) -> None:
    """Write requests in the windows of [first, last), seconds after NOW."""
    moments = range(NOW + first, NOW + last, 10)
    scene.write(schema.INFERENCE, CLIENT | tags, moments, schema.RAW, bytes=sent, flows=2, duration=10.0)


def accesses(scene: Scene) -> list[tuple[int, str, str, int]]:
    """Return second of the row, source, user, bytes of what is told."""
    return [
        (int(row["time"]) - NOW, row[schema.SRC], row[schema.USER], row["bytes"])  # type: ignore[call-overload,misc]
        for row in scene.rows(schema.ACCESS)
        if row["bytes"]
    ]


def denied(scene: Scene) -> set[tuple[str, str]]:
    """Return source and kind of what is not on the list."""
    rows = [row for row in scene.rows(schema.ACCESS_BREACH) if row["bytes"]]
    return {(str(row[schema.SRC]), str(row[schema.KIND])) for row in rows}


def test_each_window_goes_to_who_had_the_address_then(scene: Scene, tmp_path: Path) -> None:
    """Alice until 120 s, nobody until 200 s, bob after that; three windows of 1 kB before anybody signs in."""
    path = tmp_path / "gateway.jsonl"
    for user, second, event in (("alice", 30, "in"), ("alice", 120, "out"), ("bob", 200, "in")):
        sign_in(path, user, second, event)
    ask(scene, 0, 400)
    scenes.run(scene, study_of(scene, with_access(scene, path)), NOW, NOW + 600, 600)
    assert accesses(scene) == [
        (300, "10.70.0.9", "-", 11_000),
        (300, "10.70.0.9", "alice", 9_000),
        (300, "10.70.0.9", "bob", 10_000),
        (600, "10.70.0.9", "bob", 10_000),
    ]


def test_live_tells_what_a_re_run_tells(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    for user, second in (
        (
            "alice",
            35,
        ),
        ("bob", 305),
        ("alice", 890),
    ):
        sign_in(path, user, second)
    ask(scene, 0, 1800)
    ask(scene, 0, 1800, src="10.70.0.10", src_group="users")
    cluster = with_access(scene, path, AccessEntry(users=("alice",)))
    scenes.follow(scene, study_of(scene, cluster), NOW, NOW + 1800, 50)
    live = scene.rows(schema.ACCESS), scene.rows(schema.ACCESS_BREACH)
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 1800, 700)
    assert live == (scene.rows(schema.ACCESS), scene.rows(schema.ACCESS_BREACH))
    assert sum(row[-1] for row in accesses(scene)) == 2 * 180 * 1000, "every byte once"
    assert denied(scene) == {("10.70.0.9", "user"), ("10.70.0.9", "unknown_user"), ("10.70.0.10", "unknown_user")}


def test_a_line_that_comes_late_counts_when_the_range_is_judged_again(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    sign_in(path, "alice", 0)
    ask(scene, 0, 300)
    study = study_of(scene, with_access(scene, path))
    scenes.follow(scene, study, NOW, NOW + 300, 50, grace=0)
    assert accesses(scene) == [(300, "10.70.0.9", "alice", 30_000)]
    sign_in(path, "bob", 100)
    scenes.run(scene, study, NOW, NOW + 300, 300)
    told = {row[2]: row[3] for row in accesses(scene)}
    assert told["bob"] == 20_000


def test_a_sign_in_whose_line_comes_late_is_waited_for(scene: Scene, tmp_path: Path) -> None:
    """Its line comes two minutes after the flow; who never signs in is told of, three minutes late."""
    path = tmp_path / "gateway.jsonl"
    cluster = with_access(scene, path, AccessEntry(users=("alice",)), delay=180)
    ask(scene, 0, 60)
    ask(scene, 0, 60, src="10.70.0.66")
    with State.open(tmp_path / "state") as state:
        analyser = Analyser(cluster, scene.store, state, ClusterFileJobs(cluster), log=Log(quiet=True))
        for second in (30, 120, 180):
            analyser.tick(NOW + second)
        assert denied(scene) == set()
        sign_in(path, "alice", -10)
        for second in (220, 400, 800):
            analyser.tick(NOW + second)
            assert denied(scene) == {("10.70.0.66", AccessBreach.UNKNOWN_USER)}
        # A look at the past waits for nothing but for what is not due yet.
        before = scene.rows(schema.ACCESS_BREACH)
        analyser.rerun(NOW, NOW + 100, NOW + 800)
    assert scene.rows(schema.ACCESS_BREACH) == before
    assert accesses(scene) == [(300, "10.70.0.66", "-", 6_000), (300, "10.70.0.9", "alice", 6_000)]


def test_sign_ins_are_among_the_lists(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    cluster = with_access(scene, path)
    with State.open(tmp_path / "state") as state:
        analyser = Analyser(cluster, scene.store, state, ClusterFileJobs(cluster), log=Log(quiet=True))
        analyser.tick(NOW)
        (empty,) = stored_lists(scene.store, NOW + 1)
        assert (empty.name, empty.kind, empty.state, empty.entries) == ("gateway", "identity", ListState.OK, 0)
        sign_in(path, "alice", -60)
        analyser.tick(NOW + 60)
        (well,) = stored_lists(scene.store, NOW + 61)
        assert (well.state, well.entries, well.age, well.error) == (ListState.OK, 1, 120.0, "")
        path.unlink()
        analyser.tick(NOW + 120)
    (gone,) = stored_lists(scene.store, NOW + 121)
    assert (gone.state, gone.in_use, gone.error) == (ListState.BROKEN, True, f"{path}: No such file or directory")


def test_by_what_a_client_is_not_on_the_list(scene: Scene, tmp_path: Path) -> None:
    """One entry for alice by https from anywhere, one for outside addresses in the Netherlands, one by night only."""
    path = tmp_path / "gateway.jsonl"
    for user, address in (("alice", "10.70.0.1"), ("bob", "10.70.0.2")):
        sign_in(path, user, 0, address=address)
    night = InferenceHours(time(1), time(2))
    at = datetime.fromtimestamp(NOW, scene.cluster.site.time_zone).time()
    assert not time(1) <= at < time(2) or pytest.skip("the scene lies in the very hour")
    cluster = with_access(
        scene, path,
        AccessEntry(("users",), users=("Alice",), services=("https",)),
        AccessEntry(("external",), countries=("NL",)),
        AccessEntry(("storage",), hours=night),
    )  # fmt: skip
    opened = replace(cluster, allowed=(*cluster.allowed, *(
        replace(cluster.allowed[0], src=group) for group in ("external", "storage", "training")
    )))  # fmt: skip
    cases = {
        "10.70.0.1": {}, "10.70.0.2": {}, "10.70.0.4": {}, "10.70.0.3": {"service": "ssh"}, "other": {},
        "203.0.113.1": {"src_group": "external", "country": "NL"},
        "203.0.113.2": {"src_group": "external", "country": "DE"},
        "203.0.113.3": {"src_group": "external"},
        "nas-1": {"src_group": "storage"},
        "10.20.0.1": {"src_group": "training"},
    }  # fmt: skip
    for source, tags in cases.items():
        ask(scene, 0, 60, **({"src": source} | tags))
    scenes.run(scene, study_of(scene, opened), NOW, NOW + 300, 300)
    assert denied(scene) == {
        ("10.70.0.2", AccessBreach.USER), ("10.70.0.4", AccessBreach.UNKNOWN_USER), ("10.70.0.3", AccessBreach.SERVICE),
        ("203.0.113.2", AccessBreach.COUNTRY),
        ("203.0.113.3", AccessBreach.COUNTRY), ("nas-1", AccessBreach.HOURS), ("10.20.0.1", AccessBreach.GROUP),
    }  # fmt: skip


def test_hours_of_an_entry_replace_those_of_all(scene: Scene, tmp_path: Path) -> None:
    """Ingest calls the windows off-window by `inference.hours`; an entry with hours of its own does not ask."""
    always = InferenceHours(time(0), time(23, 59))
    entries = AccessEntry(("users",)), AccessEntry(("training",), hours=always)
    cluster = with_access(scene, tmp_path / "none.jsonl", *entries)
    cluster = replace(cluster, allowed=(*cluster.allowed, replace(cluster.allowed[0], src="training")))
    ask(scene, 0, 60, off_window=schema.YES)
    ask(scene, 0, 60, off_window=schema.YES, src="10.20.0.1", src_group="training")
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 300)
    assert denied(scene) == {("10.70.0.9", AccessBreach.HOURS)}


def test_who_may_not_ask_at_all_is_told_by_others(scene: Scene, tmp_path: Path) -> None:
    cluster = with_access(scene, tmp_path / "none.jsonl", AccessEntry(("users",), users=("alice",)))
    ask(scene, 0, 60, src="203.0.113.9", src_group="external")
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 300)
    assert denied(scene) == set()
    assert accesses(scene) == [(300, "203.0.113.9", "-", 6_000)]


def test_unexpected_management_connections_name_their_user(scene: Scene, tmp_path: Path) -> None:
    """Both directions of a connection that the client opened are one row of its."""
    path = tmp_path / "gateway.jsonl"
    sign_in(path, "mallory", 0)
    there = {
        schema.KIND: Violation.MANAGEMENT, schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users", schema.DST: "bmc-1",
        schema.DST_GROUP: "management", schema.PROTO: "tcp", schema.SERVICE: "ssh", schema.INITIATOR: schema.BY_SOURCE,
    }  # fmt: skip
    back = there | {
        schema.SRC: "bmc-1", schema.SRC_GROUP: "management", schema.DST: "10.70.0.9", schema.DST_GROUP: "users",
        schema.INITIATOR: schema.BY_DESTINATION,
    }  # fmt: skip
    for tags in (there, back):
        scene.write(schema.VIOLATION, tags, range(NOW, NOW + 30, 10), schema.RAW, bytes=500, flows=1)
    scenes.run(scene, study_of(scene, with_access(scene, path)), NOW, NOW + 300, 300)
    (row,) = scene.rows(schema.ACCESS)
    assert (row[schema.USER], row[schema.DST_GROUP], row["bytes"]) == ("mallory", "management", 3_000)


def test_a_pseudonym_is_all_that_is_stored(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list may name alice in clear; the store never does."""
    monkeypatch.setenv("PSEUDONYMS", "a key of sixteen bytes and more")
    path = tmp_path / "gateway.jsonl"
    sign_in(path, "alice", 0)
    sign_in(path, "mallory", 0, address="10.70.0.66")
    path.open("a").write('{"address": "10.70.0.9", "user": "alice", "time": "alice o\'clock"}\n')
    cluster = with_access(scene, path, AccessEntry(users=("Alice",)), pseudonymise=Secret(env="PSEUDONYMS"))
    ask(scene, 0, 300)
    ask(scene, 0, 300, src="10.70.0.66")
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 300)
    assert denied(scene) == {("10.70.0.66", AccessBreach.USER)}
    assert all(row[2].startswith("u-") for row in accesses(scene))
    told = capsys.readouterr().err
    everything = str(scene.rows(schema.ACCESS)) + str(scene.rows(schema.ACCESS_BREACH)) + told
    assert "alice" not in everything
    assert "mallory" not in everything
    assert f"{path}:3: a time that cannot be read" in told


def test_a_key_that_is_missing_or_short_is_one_line(scene: Scene, tmp_path: Path) -> None:
    key = tmp_path / "key"
    cluster = with_access(scene, tmp_path / "none.jsonl", pseudonymise=Secret(file=str(key)))
    with pytest.raises(UserError, match=f"secret file {key}: No such file"):
        identity_of(cluster)
    key.write_text("hunter2\n")
    with pytest.raises(UserError, match=r"identity.pseudonymise: a key of 7 bytes: expected at least 16"):
        identity_of(cluster)


def test_without_sign_ins_or_a_list_no_client_is_judged(scene: Scene, tmp_path: Path) -> None:
    assert scene.cluster.inference == Inference()
    with State.open(tmp_path) as state:
        (only,) = client_studies(scene.cluster, scene.store, state, Log()).studies
    assert only.measurements == (schema.SESSION,)


# -- the export ------------------------------------------------------------------------------------------


def export(folder: Path, cluster: Cluster, *options: str) -> str:
    config = folder / "cluster.yaml"
    config.write_text(dump_cluster(cluster))
    arguments = ["access", "--config", str(config), "--from", str(NOW), "--to", str(NOW + 900), *options]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_export_says_who_asked_what_from_where_when_and_how_much(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    sign_in(path, "alice", 0)
    sign_in(path, '=cmd|"/c calc"!A1', 0, address="10.70.0.66")
    sign_in(path, "[bold]bob[/]", 0, address="10.70.0.67")
    ask(scene, 0, 600)
    ask(scene, 300, 330, src="10.70.0.66")
    ask(scene, 300, 320, src="10.70.0.67")
    ask(scene, 300, 310, src="203.0.113.9", src_group="external", country="NL", network="AS64500 ExampleHost")
    cluster = with_access(scene, path)
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 900, 900)
    at = [datetime.fromtimestamp(NOW + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for second in (0, 300, 600)]
    assert export(tmp_path, cluster, "--csv", "-").splitlines() == [
        "src,src_group,dst_group,service,user,country,network,bytes,flows,first,last",
        f"10.70.0.9,users,inference,https,alice,,,60000,120,{at[0]},{at[2]}",
        f'10.70.0.66,users,inference,https,"\'=cmd|""/c calc""!a1",,,3000,6,{at[1]},{at[2]}',
        f"10.70.0.67,users,inference,https,[bold]bob[/],,,2000,4,{at[1]},{at[2]}",
        f"203.0.113.9,external,inference,https,,NL,AS64500 ExampleHost,1000,2,{at[1]},{at[2]}",
    ]
    (only,) = json.loads(export(tmp_path, cluster, "--user", "Alice", "--json", "-"))
    assert (only["src"], only["bytes"]) == ("10.70.0.9", 60_000)
    assert json.loads(export(tmp_path, cluster, "--src", "10.70.0.1", "--json", "-")) == []
    shown = export(tmp_path, cluster)
    assert "[bold]bob[/]" in shown
    assert "60 kB" in shown
