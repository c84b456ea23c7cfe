import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.errors import StoreError, UserError
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster, DeliverySettings, FileDestination
from clusterflow import main
from store import schema, schema_version
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema_version import Mark, Migration

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["influxdb_v1", "influxdb_v2"])
def place(request: pytest.FixtureRequest, fresh_database: str) -> tuple[Store, Cluster]:
    server: LocalInfluxDB = request.getfixturevalue(request.param)
    cluster = load_cluster(ROOT / "cluster.yaml")
    cluster = replace(cluster, store=replace(cluster.store, url=server.url, database=fresh_database))
    return Store(cluster.store), cluster


def prepare(place: tuple[Store, Cluster], migrations: tuple[Migration, ...] = (), *, may_migrate: bool = True) -> None:
    store, cluster = place
    schema_version.prepare(store, cluster.retentions(), may_migrate=may_migrate, migrations=migrations)


def kept(store: Store) -> dict[str, str]:
    (series,) = store.query(f'SHOW RETENTION POLICIES ON "{store.settings.database}"')
    return {row[0]: row[1] for row in series.values}


def double_bytes(store: Store) -> None:
    """Rewrite every point of an old meaning under a new name, as a migration would: again gives the same."""
    for series in store.query('SELECT "old" FROM "raw"."made_up"'):
        lines = "\n".join(f"made_up new={2 * value} {moment // 1000}" for moment, value in series.values)
        store.write(lines.encode(), "raw")


def never(_store: Store) -> None:
    raise AssertionError


STEPS = (Migration("bytes are doubled", double_bytes),)


def test_a_new_store_is_marked_with_our_version_and_migrates_nothing(place: tuple[Store, Cluster]) -> None:
    prepare(place, (Migration("not for a new store", never),))
    mark = schema_version.read_mark(place[0])
    assert mark is not None
    assert mark.number == 2


def test_a_mark_is_written_once(place: tuple[Store, Cluster]) -> None:
    prepare(place)
    prepare(place)
    (series,) = place[0].query(f'SELECT * FROM "{schema.META}"."{schema.SCHEMA_VERSION.name}"')
    assert len(series.values) == 1


def test_the_highest_mark_counts_even_if_a_clock_was_wrong(place: tuple[Store, Cluster]) -> None:
    prepare(place)
    fields = f'{schema.SCHEMA_NUMBER.name}=7i,{schema.SCHEMA_WRITER.name}="0.7.0"'
    place[0].write(f"{schema.SCHEMA_VERSION.name} {fields} {int(time.time()) - 86_400}".encode(), schema.META)
    assert schema_version.read_mark(place[0]) == Mark(7, "0.7.0")
    with pytest.raises(UserError, match=r"its schema has version 7, by clusterflow 0\.7\.0"):
        prepare(place)


def test_the_mark_never_expires(place: tuple[Store, Cluster]) -> None:
    prepare(place)
    policies = kept(place[0])
    assert policies[schema.META] == "0s"
    assert policies[schema.RAW] == "168h0m0s"


def test_a_retention_may_be_made_shorter_than_a_shard_of_it_and_long_again(place: tuple[Store, Cluster]) -> None:
    store, cluster = place
    told: list[str] = []
    prepare(place)
    for kept_1m, stored in ((43_200, ("12h0m0s", "1h0m0s")), (90 * 86_400, ("2160h0m0s", "24h0m0s"))):
        changed = replace(cluster, store=replace(cluster.store, keep_1m=kept_1m))
        schema_version.prepare(store, changed.retentions(), may_migrate=True, tell=told.append)
        (series,) = store.query(f'SHOW RETENTION POLICIES ON "{store.settings.database}"')
        assert [(row[1], row[2]) for row in series.values if row[0] == "1m"] == [stored]
    # Points that were to be kept are deleted: whoever set that by hand must read why.
    assert told == [
        "retention 1m: points were kept for 90 days, and are for 0.5 days from now on",
        "retention 1m: points were kept for 0.5 days, and are for 90 days from now on",
    ]


def test_an_older_store_without_a_mark_is_migrated_by_the_bridge_and_only_once(place: tuple[Store, Cluster]) -> None:
    store, cluster = place
    store.ensure(cluster.retentions())
    now = time.time()
    store.write(f"made_up old=21 {int(now)}".encode(), "raw")
    prepare(place, STEPS)
    (series,) = store.query('SELECT "new" FROM "raw"."made_up"')
    assert [value for _, value in series.values] == [42]
    prepare(place, (Migration("was done before", never),))
    mark = schema_version.read_mark(store)
    assert mark is not None
    assert mark.number == 2


def test_a_migration_that_was_killed_runs_again(place: tuple[Store, Cluster]) -> None:
    store, cluster = place
    store.ensure(cluster.retentions())
    store.write(f"made_up old=21 {int(time.time())}".encode(), "raw")

    def dies(store: Store) -> None:
        double_bytes(store)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(place, (Migration("dies", dies),))
    assert schema_version.read_mark(store) is None
    prepare(place, STEPS)
    (series,) = store.query('SELECT "new" FROM "raw"."made_up"')
    assert [value for _, value in series.values] == [42]


def test_who_may_not_migrate_waits_for_the_bridge(place: tuple[Store, Cluster]) -> None:
    store, cluster = place
    store.ensure(cluster.retentions())
    store.write(b"made_up old=21", "raw")
    with pytest.raises(StoreError) as caught:
        prepare(place, STEPS, may_migrate=False)
    (line,) = caught.value.lines()
    assert line.endswith(
        "its schema has version 1, ours is 2 (start `clusterflow ingest` of this version: it migrates)"
    )
    assert schema_version.read_mark(store) is None


def test_a_newer_store_is_refused_in_one_line_and_left_as_it_is(place: tuple[Store, Cluster]) -> None:
    prepare(place, STEPS)
    store, cluster = place
    shorter = replace(cluster, store=replace(cluster.store, keep_raw=3600))
    with pytest.raises(UserError) as caught:
        schema_version.prepare(store, shorter.retentions(), may_migrate=True)
    (line,) = caught.value.lines()
    assert "its schema has version 2, by clusterflow" in line
    assert line.endswith("this one knows 1 (install that version or a newer one; nothing was changed)")
    mark = schema_version.read_mark(store)
    assert isinstance(mark, Mark)
    assert kept(store)[schema.RAW] == "168h0m0s"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Give back the signal handlers that a daemon's command sets."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    "command",
    ["status", "report", "audit", "access", "explore", "backtest --from 10m", "deliver --once", "jobs", "lists"],
)
@pytest.mark.parametrize("place", ["influxdb_v1"], indirect=True)
def test_who_reads_a_newer_store_refuses(command: str, place: tuple[Store, Cluster], tmp_path: Path) -> None:
    """What it says might be read wrongly."""
    store, cluster = place
    prepare(place, (*schema_version.MIGRATIONS, *STEPS))
    delivery = DeliverySettings(
        state=str(tmp_path), destinations=(FileDestination(name="out", path=str(tmp_path / "out")),)
    )
    config = tmp_path / "cluster.yaml"
    config.write_text(dump_cluster(replace(cluster, delivery=delivery)))
    name, *arguments = command.split()
    done = CliRunner().invoke(main, [name, "--config", str(config), *arguments])
    assert done.exit_code == 2
    assert f"InfluxDB at {store.url}, database {store.settings.database}: its schema has version 2" in done.output
