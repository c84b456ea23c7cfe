"""A relay that came to another partition: what it said there last counts, smaller as it may be."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.load import load_cluster
from cluster.model import KafkaSettings
from dashboards.boards import pipeline
from rules.registry import rules_of
from store.influx import Store
from store.schema import RAW

CLUSTER = replace(load_cluster(Path("cluster.yaml")), kafka=KafkaSettings(brokers=("127.0.0.1:1",)))


def _said(shard: str, moment: int, now: int, *, last_seen: int, backlog: int, records: int) -> str:
    others = "bytes=1i,dead_letters=0i,repeated_records=0i,transactions=1i,transactions_retried=0i"
    return (
        f"relay,relay=rack-7,shard={shard} last_seen={last_seen}.5,age={now - last_seen},backlog_bytes={backlog}i,"
        f"records={records}i,{others} {moment}"
    )


def _asked(store: Store, influxql: str, now: int, since: int) -> list[dict[str, Any]]:
    series = store.query(influxql.replace("$timeFilter", f"time >= {now - since}s AND time <= {now}s"))
    return [dict(zip(one.columns, one.values[0], strict=True)) for one in series]


@pytest.mark.parametrize("is_read_on", [True, False], ids=["both-are-read", "the-one-before-is-not"])
def test_the_last_words_count(store: Store, *, is_read_on: bool) -> None:
    """Also above those of a partition of before, of which nobody writes an age any more."""
    now = int(time.time()) // 10 * 10
    lines = []
    for moment in range(now - 80, now, 10):
        if is_read_on or moment < now - 60:
            seen = now - 90 if is_read_on else moment - 1
            lines.append(_said("k0", moment, moment, last_seen=seen, backlog=900, records=1000))
        if moment >= now - 60:
            lines.append(_said("b-k3", moment, moment, last_seen=moment - 5, backlog=7, records=40))
    store.write("\n".join(lines).encode(), RAW)
    (table,) = [panel for panel in pipeline.page(CLUSTER).panels if panel.name == "relays"]
    (row,) = _asked(store, table.queries[0].influxql, now, 10_800)
    assert (row["age"], row["records"], row["backlog_bytes"], row["bytes"]) == (5, 40, 7, 1)
    rule = rules_of(CLUSTER).rule("relay_silent")
    (backlog,) = [measure for measure in rule.measures if measure.name == "backlog"]
    (row,) = _asked(store, backlog.query.influxql, now, backlog.since)
    assert row["backlog_bytes"] == 7
