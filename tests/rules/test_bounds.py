"""What is known of a query, by its objects or by a file's text, and what the bounds spare."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import StoreError
from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from rules.evaluate.bounds import Cells, Range, Window, merged
from rules.evaluate.cases import BEGINS
from rules.evaluate.replay import Replay, Sight
from rules.evaluate.timeline import Timeline
from rules.grafana.read_query import select_of
from rules.registry import rules_of
from rules.rule import Rule
from store import schema
from store.influx import Series, Store
from store.influxql import Condition, Select, Unit, labelled, newest, not_in, total
from store.local_influxdb import LocalInfluxDB

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULES = rules_of(CLUSTER)
DAY = 86_400


def test_bounds_know_every_query_of_ours() -> None:
    """An expression that they do not know costs a backtest hours: write it with `total`, `newest`, `ratio` ..."""
    asked = [(rule.id, m.name, m.query.select) for rule in RULES.rules for m in rule.measures]
    assert not [f"{rule}: {name}" for rule, name, select in asked if select is None or not select.is_fixed]
    columns = [
        (rule, column) for rule, _, select in asked if select for one in select.levels() for column in one.columns
    ]
    plain = {f'"{column.name}"' for _, column in columns}
    unknown = [c for c in columns if not (c[1].function or c[1].above or c[1].expression in plain)]
    assert not unknown


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_a_query_of_a_file_says_what_the_rule_says(rule: Rule) -> None:
    """What its text was made of is found again, as far as bounds and series go."""
    for measure in rule.measures:
        read = select_of(measure.query.influxql)
        assert read is not None
        assert measure.query.select is not None
        assert [_facts(one) for one in read.levels()] == [_facts(one) for one in measure.query.select.levels()]


def _facts(select: Select) -> tuple[object, ...]:
    return (
        [replace(column, unit=Unit.COUNT) for column in select.columns],
        [condition.comparison for condition in select.conditions if condition.comparison],
        {name for condition in select.conditions for name in condition.fields},
        (select.is_fixed, select.tags, select.bins, select.base_retention, select.measurements()),
    )


def test_a_query_with_tricky_names_is_read() -> None:
    tricky = not_in(schema.SRC_GROUP, ["a' AND time > 0", 'b" FROM "raw', "c) GROUP BY ("])
    inner = Select(schema.EGRESS, schema.RAW).where(tricky).by(schema.SRC).take(total(schema.BYTES)).each(10)
    asked = Select(inner).by(schema.SRC).take(newest(schema.BYTES))
    read = select_of(asked.per_series().influxql)
    assert read is not None
    assert [_facts(one) for one in read.levels()] == [_facts(one) for one in asked.levels()]


@pytest.mark.parametrize(
    "text",
    [
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE $timeFilter AND "src" = \'a\'',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE "src" = \'a\'',
        'SELECT sum("b") AS "b" FROM "raw"."egress" WHERE $timeFilter',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."nothing" WHERE $timeFilter',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE $timeFilter GROUP BY time(10s) fill(0)',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE $timeFilter GROUP BY *',
        'SELECT sum("bytes") AS "bytes" FROM egress WHERE $timeFilter',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE "src" = \'a\' OR "src" = \'b\' AND $timeFilter',
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress"',
        'SELECT sum("bytes") FROM "raw"."egress" WHERE $timeFilter',
        "SHOW DATABASES",
        "",
    ],
)
def test_what_is_not_known_is_not_guessed(text: str) -> None:
    assert select_of(text) is None


@pytest.mark.parametrize("term", ['"src" =~ /a/', "time > now() - 1h", "time > 0", '("bytes" > 1 OR time > 0)'])
def test_what_changes_with_the_moment_is_not_fixed(term: str) -> None:
    read = select_of(f'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE {term} AND $timeFilter')
    assert read is not None
    assert not read.is_fixed


def test_what_does_not_name_what_it_reads_is_not_fixed() -> None:
    """Bounds would believe that a condition by hand looks at nothing."""
    sent = Select(schema.EGRESS, schema.RAW).take(total(schema.BYTES))
    assert sent.is_fixed
    assert not sent.where(Condition('"bytes" > 3')).is_fixed
    assert not Select(sent.where(Condition("time > 3"))).take(total(schema.BYTES)).is_fixed
    assert not sent.take(labelled(schema.SRC)).is_fixed


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
