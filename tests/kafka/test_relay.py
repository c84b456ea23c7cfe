"""`clusterflow relay` against a real broker: every record of the spool arrives once, whatever dies."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import polars as pl
import pytest
from confluent_kafka import Producer
from polars.testing import assert_frame_equal
from relay_stage import EXPORTERS, REPOSITORY, Deaf, Feeder, SpoolStage, frame_of, in_order, lines, moments

from app.log import Log
from bench.load.local_kafka import LocalKafka
from cluster.model import KafkaSettings
from ingest.collect.counter_files import FOLDER
from ingest.counters import Counters
from ingest.kafka.flow_messages import Kind, encode
from ingest.kafka.publisher import Sender
from ingest.read.readers import read_chunk
from ingest.read.readers_format import OWN
from store.local_influxdb import free_port
from store.schema import Stage

ROWS = 250


@pytest.fixture
def stage(tmp_path: Path, kafka_settings: KafkaSettings) -> SpoolStage:
    return SpoolStage(tmp_path, kafka_settings)


def _parts(count: int) -> list[list[str]]:
    return [lines(number * ROWS, ROWS) for number in range(count)]


def _whole(parts: list[list[str]]) -> pl.DataFrame:
    return in_order(frame_of([line for part in parts for line in part]))


def test_what_a_simulation_spooled_is_on_the_topic_once(stage: SpoolStage) -> None:
    """All records as the reader has them, in order, each source in one partition; a second run adds none."""
    files, truth_file = stage.folder / "load", stage.folder / "truth.json"
    subprocess.run(
        [sys.executable, "-m", "clusterflow", "simulate", "--config", str(REPOSITORY / "cluster.yaml"),
         "--flows", "40000", "--spool", str(files), "--truth", str(truth_file)],
        check=True, capture_output=True, cwd=REPOSITORY,
    )  # fmt: skip
    truth = json.loads(truth_file.read_text())
    with stage:
        run = stage.start("--spool", str(files), "--once", *stage.dead)
        assert run.ends() == 0, run.said()
        again = stage.start("--spool", str(files), "--once", *stage.dead)
        assert again.ends() == 0, again.said()
    messages = stage.messages()
    relayed = [(partition, one.frame) for partition, one in messages if one.kind is Kind.RECORDS]
    frame = pl.concat([part.with_columns(partition=pl.lit(partition)) for partition, part in relayed])
    spooled = pl.concat([read_chunk(path.read_bytes(), OWN).frame for path in sorted(files.glob("*.csv"))])
    assert frame.height == truth["totals"]["records"] == 40_000
    assert_frame_equal(in_order(frame.drop("partition")), in_order(spooled))
    for exporter in truth["exporters"]:
        own = frame.filter(pl.col("exporter") == exporter["address"])
        if exporter["format"] != "sflow":
            assert int(own["bytes"].sum() or 0) * exporter["sampling"] == exporter["bytes"]
    assert frame.group_by("src").agg(pl.col("partition").n_unique())["partition"].max() == 1
    assert frame["partition"].n_unique() == stage.kafka.partitions
    for _, part in frame.group_by("partition"):
        mine = spooled.filter(pl.col("src").is_in(part["src"].unique().implode()))
        assert_frame_equal(part.drop("partition"), mine)


def test_samples_of_interface_counters_and_bad_lines_go_their_own_ways(stage: SpoolStage) -> None:
    sample = {
        "timestamp": "1790000000.250000", "peer_ip_src": "127.0.0.4", "sflow_cnt_seq": 2,
        "sf_cnt_type": "sflow_cnt_generic", "ifIndex": 4, "ifSpeed": 100_000_000_000, "ifInOctets": 1000,
        "ifOutOctets": 2000, "ifInErrors": 5, "ifOutErrors": 0, "ifInDiscards": 4, "ifOutDiscards": 0,
    }  # fmt: skip
    counters = stage.spool / FOLDER
    counters.mkdir()
    (counters / "sfacct-counters-1790000000.json").write_text(json.dumps(sample) + "\n" + "{broken\n")
    good, long = lines(0, 10), lines(10, 1)[0].replace("10.20.", "x" * 80 + ".", 1)
    stage.write([*good, "nonsense", long])
    copy = stage.write([*good, "nonsense", long])
    with stage:
        assert stage.start("--once", *stage.dead).ends() == 0, stage.said()
    assert f"event=spool_copied file={copy.name} " in stage.said()
    messages = [message for _, message in stage.messages()]
    assert_frame_equal(stage.records(), _whole([good]))
    (samples,) = [message.frame for message in messages if message.kind is Kind.COUNTERS]
    assert samples.select("exporter", "index", "in_octets", "out_octets").rows() == [("127.0.0.4", 4, 1000, 2000)]
    reasons = Counter(json.loads(line)["reason"] for line in stage.dead_letters.read_text().splitlines())
    assert reasons == {"wrong_field_count": 1, "bad_address": 1, "not_a_record": 1}
    assert "dead_letters=3" in stage.said()


@pytest.mark.long_form
def test_a_relay_that_is_killed_at_any_moment_loses_and_doubles_nothing(stage: SpoolStage) -> None:
    parts = _parts(160)
    with stage:
        feeder = Feeder(stage, parts, 0.08).start()
        for wait in moments(11, 8, 1.5):
            relay = stage.start()
            relay.until("event=start")
            threading.Event().wait(wait)
            relay.kill()
        last = stage.start()
        feeder.end()
        stage.until(160 * ROWS)
        # A transaction later whatever is doubled would be there as well.
        stage.write(lines(160 * ROWS, 1))
        stage.until(160 * ROWS + 1)
        assert last.stop() < 6
    assert_frame_equal(stage.records(), _whole([*parts, lines(160 * ROWS, 1)]))
    killed_in_the_middle = sum("state=restored" in relay.said() for relay in stage.relays)
    assert killed_in_the_middle >= 5, "no relay was killed after it had committed something"
    left = sorted(path.name for path in stage.spool.glob("*.csv"))
    assert left == [f"nfacct-{1_790_000_000 + 160}.csv"], "relayed files are deleted, all but the newest"


@pytest.mark.long_form
def test_while_brokers_are_away_the_spool_waits(stage: SpoolStage, kafka: LocalKafka) -> None:
    """Nothing is deleted, lost or doubled; a relay ends in seconds all the same; one line says what is the matter."""
    parts = _parts(120)
    with stage:
        for part in parts[:40]:
            stage.write(part)
        port = free_port()
        relay = stage.start("--metrics-listen", f"127.0.0.1:{port}")
        stage.until(40 * ROWS)
        kafka.kill()
        try:
            for part in parts[40:]:
                stage.write(part)
            waiting = set(stage.spool.iterdir())
            relay.until("event=kafka_unavailable", 20)
            metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
            assert 'reason="transactions"' in metrics
            assert 'reason="backlog_bytes"' in metrics
            assert len(waiting) >= 80
            assert waiting == set(stage.spool.iterdir()), "files were deleted that no transaction covers"
            assert relay.stop() < 12
            assert "event=stopped" in relay.said()
            successor = stage.start()
        finally:
            kafka.start()
        stage.until(120 * ROWS)
        assert successor.stop() < 6
    assert_frame_equal(stage.records(), _whole(parts))
    assert relay.said().count("event=kafka_unavailable") == 1


def _sender(stage: SpoolStage, **more: int) -> Sender:
    sender = Sender(stage.kafka, "lab", stop=threading.Event(), log=Log(quiet=True), counters=Counters(), **more)
    sender.open()
    return sender


def test_a_transaction_that_took_too_long_is_sent_again(stage: SpoolStage) -> None:
    """Brokers that have ended it say so as if another relay had taken over."""
    frame = frame_of(lines(0, ROWS))
    sender = _sender(stage, transaction_seconds=2)
    sender.add([(0, value) for value in encode(frame, relay="lab")])
    assert sender._live().flush(10) == 0
    time.sleep(4)
    sender.commit({"at": 1})
    sender.add([(1, value) for value in encode(frame, relay="lab")])
    sender.commit({"at": 2})
    sender.close()
    assert_frame_equal(stage.records(), in_order(pl.concat([frame, frame])))
    assert _sender(stage).open() == {"at": 2}


def test_a_transaction_whose_answer_was_lost_is_not_sent_again(stage: SpoolStage) -> None:
    frame = frame_of(lines(0, ROWS))
    sender = _sender(stage)
    sender._producer = cast("Producer", Deaf(sender._live()))
    sender.add([(0, value) for value in encode(frame, relay="lab")])
    sender.commit({"at": 1})
    sender.add([(0, value) for value in encode(frame, relay="lab")])
    sender.commit({"at": 2})
    sender.close()
    assert_frame_equal(stage.records(), in_order(pl.concat([frame, frame])))
    assert sender._counters.total(Stage.WRITE, "transactions_retried") == 1


def test_a_second_relay_of_the_same_id_ends_the_first(stage: SpoolStage) -> None:
    with stage:
        stage.write(lines(0, ROWS))
        first = stage.start()
        stage.until(ROWS)
        second = Sender(stage.kafka, "lab", stop=threading.Event(), log=Log(quiet=True), counters=Counters())
        notes = second.open()
        assert notes["spool"] == str(stage.spool)
        stage.write(lines(ROWS, ROWS))
        assert first.ends() == 2
        second.commit(notes)
        second.close()
    assert first.said().splitlines()[-1] == (
        "another relay with the id lab has taken over (give each relay its own --id)"
    )
    assert_frame_equal(stage.records(), _whole([lines(0, ROWS)]))


def test_a_relay_of_another_spool_is_refused_and_disturbs_nobody(stage: SpoolStage) -> None:
    other = stage.folder / "other"
    other.mkdir()
    with stage:
        stage.write(lines(0, ROWS))
        first = stage.start()
        stage.until(ROWS)
        second = stage.start("--spool", str(other))
        assert second.ends() == 2
        assert second.said() == (
            f"the relay lab has relayed {stage.spool}, not {other} (give this spool's relay its own --id)\n"
        )
        stage.write(lines(ROWS, ROWS))
        stage.until(2 * ROWS)
        assert first.process.poll() is None, first.said()


def test_new_names_for_the_workers_state_make_no_relay_forget(stage: SpoolStage) -> None:
    """Or everything that is still in a spool would be counted again."""
    with stage:
        stage.write(lines(0, ROWS))
        assert stage.start("--once", *stage.dead).ends() == 0, stage.said()
        stage.configure(state_topic=f"{stage.kafka.state_topic}-2", group=f"{stage.kafka.group}-2")
        stage.write(lines(ROWS, ROWS))
        assert stage.start("--once", *stage.dead).ends() == 0, stage.said()
    assert_frame_equal(stage.records(), _whole([lines(0, 2 * ROWS)]))


def test_relays_of_one_name_and_other_topics_leave_each_other_alone(kafka_settings: KafkaSettings) -> None:
    """As where two clusters share brokers, and hosts are called collector-1 in both."""
    other = replace(kafka_settings, topic=f"{kafka_settings.topic}-2", state_topic=f"{kafka_settings.state_topic}-2")
    senders = [Sender(settings, "lab", stop=threading.Event(), log=Log(quiet=True), counters=Counters(), patience=30)
               for settings in (kafka_settings, other)]  # fmt: skip
    for sender in senders:
        sender.open()
    for sender in senders:
        sender.add([(0, b"flows")])
        sender.commit({"at": 1})
        sender.close()
    assert [sender._counters.total(Stage.WRITE, "transactions_retried") for sender in senders] == [0, 0]


def test_a_relay_says_that_flow_logs_of_a_cloud_are_not_its_business(stage: SpoolStage) -> None:
    stage.config.write_text(f"{stage.config.read_text()}cloud: {{format: aws-vpc}}\n")
    stage.write(lines(0, 10))
    with stage:
        assert stage.start("--once", *stage.dead).ends() == 0, stage.said()
    assert "event=logs_not_relayed" in stage.said()
    assert stage.records().height == 10


def test_losses_on_the_way_to_the_collector_are_told_once(stage: SpoolStage) -> None:
    """A gap of 37 records of one exporter, and a relay that is killed all the time."""
    everything = lines(0, 40 * ROWS)
    gap = {line for line in everything[5000:5074] if line.startswith(EXPORTERS[0])}
    kept = [line for line in everything if line not in gap]
    with stage:
        feeder = Feeder(stage, [kept[i : i + ROWS] for i in range(0, len(kept), ROWS)], 0.1).start()
        for wait in moments(5, 2, 0.8):
            relay = stage.start()
            relay.until("event=start")
            threading.Event().wait(wait)
            relay.kill()
        stage.start()
        feeder.end()
        stage.until(len(kept))
    told: Counter[str] = Counter()
    for _, message in stage.messages():
        told.update(message.lost)
    assert told == {EXPORTERS[0]: 37}


def test_a_relay_that_is_stopped_says_at_last_what_it_has_sent(stage: SpoolStage) -> None:
    """Its status was not due yet: what it has counted since the last one, nobody else knows."""
    with stage:
        size = stage.write(lines(0, ROWS)).stat().st_size
        relay = stage.start()
        stage.until(ROWS)
        relay.stop()
    statuses = [one.frame.row(0, named=True) for _, one in stage.messages() if one.kind is Kind.STATUS]
    last = statuses[-1]
    assert (last["records"], last["bytes"], last["backlog_bytes"]) == (ROWS, size, 0)
    assert last["transactions"] >= 2
    assert f" transactions={last['transactions']} " in relay.said().splitlines()[-1]


def test_the_topic_has_to_carry_what_relays_write(stage: SpoolStage) -> None:
    stage.configure(format="pmacct")
    with stage:
        relay = stage.start("--once", *stage.dead)
        assert relay.ends() == 2
    assert relay.said().startswith("kafka.format: pmacct: relays write the format clusterflow")
