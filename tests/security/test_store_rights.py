"""Each who asks InfluxDB does with the rights that docs/security.md gives it, and is refused what is beyond them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from influx_place import commands_of, influxdb

from app.errors import StoreError
from bench.scorecard import main as scorecard
from cluster.load import load_cluster
from cluster.model import Cluster, Secret, StoreApi, StoreSettings
from simulate import rule_checks_cli
from store import schema, schema_version
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = load_cluster(ROOT / "cluster.yaml")
PASSWORDS = {"admin": "admin-password", "clusterflow": "bridge-password", "grafana": "grafana-password"}


@pytest.fixture(scope="module")
def port(influxdb_v2: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that was set up by the very statements of the page."""
    with influxdb(influxdb_v2.binary, tmp_path_factory.mktemp("auth"), auth=True) as port:
        for number, statement in enumerate(commands_of(ROOT / "docs/security.md", "### InfluxDB 1.x")):
            for user, password in PASSWORDS.items():
                statement = statement.replace(f"'PASSWORD OF {user}'", f"'{password}'")  # noqa: PLW2901
            auth = None if number == 0 else ("admin", PASSWORDS["admin"])
            answer = requests.post(f"http://127.0.0.1:{port}/query", data={"q": statement}, auth=auth, timeout=5)
            assert answer.ok, f"{statement}: {answer.text}"
            assert "error" not in answer.text, f"{statement}: {answer.text}"
        yield port


def settings(port: int, user: str, folder: Path) -> StoreSettings:
    secret = folder / f"{user}.secret"
    secret.write_text(PASSWORDS[user])
    return replace(
        CLUSTER.store,
        url=f"http://127.0.0.1:{port}",
        username=user,
        password=Secret(file=str(secret)),
        database="clusterflow",
    )


@pytest.fixture
def bridge(port: int, tmp_path: Path) -> Store:
    return Store(settings(port, "clusterflow", tmp_path))


@pytest.fixture
def grafana(port: int, tmp_path: Path) -> Store:
    return Store(settings(port, "grafana", tmp_path))


def cluster_of(store: Store) -> Cluster:
    return replace(CLUSTER, store=store.settings)


def test_the_bridge_prepares_writes_and_reads_with_its_rights(bridge: Store) -> None:
    schema_version.prepare(bridge, cluster_of(bridge).retentions(), may_migrate=True)
    bridge.write(f"traffic,src_group=a bytes=1i {int(time.time())}".encode(), schema.RAW)
    assert bridge.query('SELECT sum("bytes") FROM "raw"."traffic"')[0].values[0][1] >= 1
    mark = schema_version.read_mark(bridge)
    assert mark is not None


def test_the_v2_write_api_of_1_8_takes_the_same_user(bridge: Store, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"clusterflow:{PASSWORDS['clusterflow']}")
    store = Store(
        replace(bridge.settings, api=StoreApi.V2, username=None, password=None, token=Secret(file=str(token)))
    )
    store.write(f"traffic,src_group=b bytes=2i {int(time.time())}".encode(), schema.RAW)
    assert store.query('SELECT sum("bytes") FROM "raw"."traffic" WHERE "src_group" = \'b\'')[0].values[0][1] >= 2


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE DATABASE other", "DROP DATABASE clusterflow", 'CREATE USER "x" WITH PASSWORD \'y\'', "SHOW USERS",
        'GRANT ALL PRIVILEGES TO "clusterflow"', 'ALTER RETENTION POLICY "1h" ON "clusterflow" DURATION 1h',
        'SELECT * FROM "_internal"."monitor"."shard"', "SHOW STATS", "KILL QUERY 1",
    ],
)  # fmt: skip
def test_the_bridge_is_refused_what_it_does_not_need(bridge: Store, statement: str) -> None:
    with pytest.raises(StoreError, match="authoriz"):
        bridge.execute(statement)


def test_a_database_that_is_missing_is_told_in_one_line_with_what_to_do(bridge: Store) -> None:
    store = Store(replace(bridge.settings, database="another"))
    with pytest.raises(StoreError) as caught:
        store.ensure(CLUSTER.retentions())
    (line,) = caught.value.lines()
    assert "refuses access (403)" in line or "may not run" in line
    assert PASSWORDS["clusterflow"] not in line


def test_grafana_reads(grafana: Store, bridge: Store) -> None:
    bridge.write(f"traffic,src_group=a bytes=1i {int(time.time())}".encode(), schema.RAW)
    assert grafana.query('SELECT sum("bytes") FROM "raw"."traffic"')
    assert grafana.query("SHOW MEASUREMENTS")
    assert grafana.query('SHOW TAG VALUES FROM "raw"."traffic" WITH KEY = "src_group"')


@pytest.mark.parametrize(
    "statement",
    [
        'DROP MEASUREMENT "traffic"', 'DELETE FROM "traffic"', 'DROP SERIES FROM "traffic"', "CREATE DATABASE other",
        'ALTER RETENTION POLICY "raw" ON "clusterflow" DURATION 1h', 'SELECT * INTO "raw"."x" FROM "raw"."traffic"',
        "SHOW USERS",
    ],
)  # fmt: skip
def test_grafana_is_refused_everything_else(grafana: Store, statement: str) -> None:
    with pytest.raises(StoreError, match="authoriz"):
        grafana.query(statement)


def test_grafana_cannot_write(grafana: Store) -> None:
    with pytest.raises(StoreError, match="refuses access \\(403\\)"):
        grafana.write(b"traffic bytes=1i", schema.RAW)


def test_nobody_without_a_password_gets_in(port: int, tmp_path: Path) -> None:
    known = settings(port, "grafana", tmp_path)
    (tmp_path / "grafana.secret").write_text("wrong")
    for one in (known, replace(known, username=None, password=None)):
        with pytest.raises(StoreError, match="refuses access \\(401\\)") as caught:
            Store(one).query("SHOW MEASUREMENTS")
        assert "wrong" not in str(caught.value.lines())


def test_rules_are_tested_on_an_influxdb_that_asks_who_we_are(port: int, tmp_path: Path) -> None:
    store = f"{{username: admin, password: {{file: {settings(port, 'admin', tmp_path).password.file}}}}}"
    text = (ROOT / "tests/rules/cluster.yaml").read_text()
    cases = [
        str(ROOT / "tests/rules/collector_attacked.yaml"),
        "--case",
        "it is over",
        "--url",
        f"http://127.0.0.1:{port}",
    ]
    (config := tmp_path / "cluster.yaml").write_text(text)
    refused = CliRunner().invoke(rule_checks_cli.test_rules, [*cases, "--config", str(config)])
    assert "refuses access (401)" in str(refused.exception)
    config.write_text(f"{text}\nstore: {store}\n")
    done = CliRunner().invoke(rule_checks_cli.test_rules, [*cases, "--config", str(config)])
    assert "1 cases: 1 as expected" in done.output


def test_the_scorecard_is_made_on_an_influxdb_that_asks_who_we_are(port: int, tmp_path: Path) -> None:
    (quiet := tmp_path / "quiet.yaml").write_text("title: Quiet\nabout: Nothing.\ndays: 0.02\n")
    given = [str(quiet), "--seed", "101", "--check", "--url", f"http://127.0.0.1:{port}", "--config"]
    (config := tmp_path / "cluster.yaml").write_text("cluster: lab\ngroups: {nodes: {role: training}}\n")
    refused = CliRunner().invoke(scorecard, [*given, str(config)])
    assert "refuses access (401)" in str(refused.exception)
    password = settings(port, "admin", tmp_path).password.file
    with config.open("a") as out:
        out.write(f"store: {{username: admin, password: {{file: {password}}}}}\n")
    done = CliRunner().invoke(scorecard, [*given, str(config)])
    assert f"{quiet}, seed 101: 0 of 0 found" in done.output, (done.output, done.exception)
