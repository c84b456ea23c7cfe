"""What is known of a query by its text, and what the bounds spare."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster import schema
from cluster.errors import StoreError
from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from dashboards.queries import Select, newest, not_in, total
from ingest.local_influxdb import LocalInfluxDB
from ingest.store import Series, Store
from rules.bounds import Cells, Range, Window, merged
from rules.cases import BEGINS
from rules.influxql import Column, Comparison, read
from rules.registry import rules_of
from rules.replay import Replay, Sight
from rules.timeline import Timeline

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULES = rules_of(CLUSTER)
DAY = 86_400


def test_every_query_of_ours_is_read() -> None:
    """One that is not costs a backtest hours: write it with `Select`."""
    unread = [f"{rule.id}: {m.name}" for rule in RULES.rules for m in rule.measures if read(m.query.influxql) is None]
    assert not unread


def test_a_statement() -> None:
    tricky = not_in(schema.SRC_GROUP, ["a' AND time > 0", 'b" FROM "raw'])
    inner = Select(schema.EGRESS, schema.RAW).where(tricky).by(schema.SRC).take(total(schema.BYTES)).each(10)
    found = read(Select(inner).by(schema.SRC).take(newest(schema.BYTES)).per_series().influxql)
    assert found is not None
    assert (found.measurement, found.tags, found.bins, found.all_bins()) == ("", ("src",), 0, (10,))
    (bottom,) = found.bottoms()
    assert bottom.measurement == '"raw"."egress"'
    assert bottom.columns == (Column("sum", ("bytes",), 1.0, "bytes"),)
    assert bottom.conditions == ("\"src_group\" != 'a\\' AND time > 0'", '"src_group" != \'b" FROM "raw\'')
    dropout = read(RULES.rule("node_dropout").measures[0].query.influxql)
    assert dropout is not None
    assert dropout.comparisons()[:2] == (Comparison("state", ">=", "2"), Comparison("state", "<=", "3"))


@pytest.mark.parametrize(
    "text",
    [
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE $timeFilter AND "src" = \'a\'',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE "src" = \'a\' OR "src" = \'b\' AND $timeFilter',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE "src" =~ /a/ AND $timeFilter',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE time > now() - 1h AND $timeFilter',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE time > 0 AND $timeFilter',
        'SELECT 1 AS "b" FROM "raw"."egress" WHERE $timeFilter',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE $timeFilter GROUP BY time(10s) fill(0)',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE $timeFilter GROUP BY *',
        'SELECT sum("b") AS "b" FROM egress WHERE $timeFilter',
        'SELECT sum("b") AS "b" FROM "raw"."egress"',
        "SHOW DATABASES",
    ],
)
def test_what_is_not_known_is_not_guessed(text: str) -> None:
    assert read(text) is None


def test_ranges() -> None:
    ranges = [Range(50, 60), Range(0, 9), Range(10, 20), Range(55, 70), Range(5, 3)]
    assert merged(ranges) == [Range(0, 20), Range(50, 70)]
    assert Window(since=60, until=10).ticks_that_see(100, 109) == (110, 169)


def test_many_statements_in_one_request(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """One that fails does not take the others with it."""
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention("raw", 10, 0),))
    store.write(f"m,n=a x=1 {BEGINS}\nm,n=b x=2 {BEGINS}".encode(), "raw")
    good, wrong, nothing = (
        'SELECT "x" FROM "raw"."m" GROUP BY "n"',
        'SELECT "x" FROM "no"."m"',
        'SELECT "y" FROM "raw"."m"',
    )
    one, two, three, four = store.answers([good, wrong, nothing, good])
    assert one == four == store.query(good)
    assert isinstance(two, StoreError)
    assert "retention policy not found: no" in two.message
    assert three == []
    assert all(isinstance(answer, Series) for answer in one)


def test_a_quiet_week_is_nearly_free(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """60,000 evaluations of each rule, and hardly one of them is worth a query; the incident in them is found."""
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention("raw", 10, 0),))
    start, end = BEGINS, BEGINS + 7 * DAY
    tags = "src_group=model_storage,dst_group=external,proto=tcp,service=https,off_hours=no,initiator=src,shard=0"
    for day in range(7):
        lines = []
        for at in range(start + day * DAY, start + (day + 1) * DAY, 60):
            lines += [f"exporter,exporter={one.name},shard=0 age=5,records=9i {at}" for one in CLUSTER.exporters]
            lines.append(
                f"egress,src=model-store-1,dst=203.0.113.{at // 60 % 50},{tags} bytes=2000000000i,duration=5 {at}"
            )
            lines.append(f"pipeline,stage=bridge,reason=heartbeat,shard=0 value=1 {at}")
            lines.append(f"baseline,node=gpu-01,group=training,job=j,job_class=c state=1i,low_for=0,observed=1 {at}")
        store.write("\n".join(lines).encode(), "raw")
    store.write(
        f"egress,src=model-store-1,dst=203.0.113.9,{tags} bytes=70000000000i,duration=5 {start + 3 * DAY}".encode(),
        "raw",
    )
    cells = Cells(store, start - 3600, end)
    timeline = Timeline()
    queries = {}
    for rule in map(RULES.rule, ("exfil_volume", "node_dropout", "exporter_silent", "flow_loss", "ingest_deadman")):
        slow = tuple(replace(one, since=max(one.since, 120)) for one in rule.measures)
        run = Replay(replace(rule, measures=slow), store, Range(start, end), cells, Sight())
        run.run(timeline)
        assert run.effort.ticks == 7 * DAY // rule.interval + 1
        queries[rule.id] = run.effort.queries
    assert [(firing.rule, firing.fired_at - start) for firing in timeline.firings] == [("exfil_volume", 3 * DAY)]
    assert sum(queries.values()) < 1000, queries


def test_columns() -> None:
    found = read(
        'SELECT (sum("a") + sum("b")) / sum("c") AS "x", max("d") * 0 AS "y", sum("e") - 3 AS "z" FROM "r"."m" '
        "WHERE $timeFilter"
    )
    assert found is not None
    assert found.columns == (
        Column("ratio", ("a", "b"), 1.0, "x"), Column("max", ("d",), 0.0, "y"), Column("", ("e",), 1.0, "z"),
    )  # fmt: skip
