"""The store is away: nothing ends but what is asked to."""

import re
import ssl
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import polars as pl
import pytest
import requests
from test_engine import cluster

from app.log import Log
from cluster.model import Cluster
from ingest.bridge import Bridge
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from ingest.rollup import Rollup
from ingest.writer import StoppedError, Writer
from store import schema
from store.influx import Store, StoreUnavailableError, seconds_until
from store.local_influxdb import LocalInfluxDB, free_port
from store.points import WINDOW
from store.schema import Stage


def nobody_there() -> Cluster:
    base = cluster()
    return replace(base, store=replace(base.store, url=f"http://127.0.0.1:{free_port()}"))


def test_a_rollup_waits_for_the_store_and_forgets_nothing_when_told_to_stop() -> None:
    known = nobody_there()
    store, stop, counters = Store(known.store), threading.Event(), Counters()
    writer = Writer(store, known.retentions(), shard="0", counters=counters, stop=stop, log=Log(quiet=True))
    rollup = Rollup(store, writer, known.retentions(), "0")
    rollup.touch(pl.Series(WINDOW, [600], pl.Int64))
    begun = time.monotonic()
    threading.Timer(0.7, stop.set).start()
    with pytest.raises(StoppedError):
        rollup.run()
    assert 0.5 < time.monotonic() - begun < 5
    assert rollup.dump() == {"1m": [600], "1h": [0]}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("30", 30),
        (" 7 ", 7),
        ("soon", 0),
        ("-5", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("{in 90 s}", 89),
        ("\u0663", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: int) -> None:
    if header == "{in 90 s}":
        # Test processes must agree on the names of tests: the date is not one of them.
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert seconds - 60 < seconds_until(header) <= seconds + 1
    assert (seconds_until(header) > 0) is (seconds > 0)


def test_a_connection_that_breaks_within_tls_is_tried_again() -> None:
    """How newer OpenSSL tells of it: a server that speaks TLS may do so too, as when it restarts."""
    store = Store(nobody_there().store)
    broken = requests.exceptions.SSLError(ssl.SSLError(1, "[SSL: RECORD_LAYER_FAILURE] record layer failure"))
    assert isinstance(store._away(broken), StoreUnavailableError)


def test_a_long_rollup_is_no_standstill_as_long_as_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.bridge._HEALTHY_SECONDS", 0.3)
    (tmp_path / "spool").mkdir()
    known = nobody_there()
    with Spool(tmp_path / "spool") as spool:
        bridge = Bridge(
            known,
            Store(known.store),
            spool,
            clock=Clock.LIVE,
            state=tmp_path / "state",
            dead_letter=DeadLetters(tmp_path / "dead.jsonl"),
            stop=threading.Event(),
            log=Log(quiet=True),
            counters=Counters(),
        )
        time.sleep(0.4)
        # How long it was is the machine's: a busy one takes more than a second for this.
        assert re.match(r"no progress for [0-9]+ s: is InfluxDB there\?", bridge.health())
        # What a rollup does for minutes: it asks, and is answered.
        bridge._writer.patiently(lambda: None)
        assert bridge.health() == ""


@pytest.mark.parametrize("dropped", ["DATABASE", "RETENTION POLICY"])
def test_what_somebody_drops_is_made_again(dropped: str, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    base = cluster()
    known = replace(base, store=replace(base.store, url=influxdb_v1.url, database=fresh_database))
    store, counters = Store(known.store), Counters()
    writer = Writer(
        store, known.retentions(), shard="0", counters=counters, stop=threading.Event(), log=Log(quiet=True)
    )
    writer.prepare()
    what = f'"{fresh_database}"' if dropped == "DATABASE" else f'"{schema.RAW}" ON "{fresh_database}"'
    store.execute(f"DROP {dropped} {what}")
    writer.write(schema.PIPELINE, counters.points(600, "0"), schema.RAW)
    counters.add(Stage.WRITE, "again")
    writer.write(schema.PIPELINE, counters.points(int(time.time()), "0"), schema.RAW)
    assert store.query(f'SELECT * FROM "{schema.RAW}"."{schema.PIPELINE.name}"')
    store.close()
