"""Workers on a real topic and a real store: every total is the simulator's, whatever happens to them on the way."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from relay_stage import Deaf
from topic_stage import Gate, Member, TopicStage, Worker, stage

from app.errors import UserError
from app.log import Log
from bench.faults import Record
from bench.load.local_kafka import LocalKafka
from cluster.model import KafkaFormat, KafkaSettings
from cluster.reload import Reload
from ingest.collect.kernel.sockets import udp_sockets
from ingest.kafka.client import Trouble, ensure_topics, open_admin
from ingest.kafka.lease import Lease
from ingest.kafka.worker import KafkaWorker
from store.local_influxdb import LocalInfluxDB
from store.schema import Stage


@pytest.fixture
def staged(
    influxdb_v1: LocalInfluxDB, fresh_database: str, kafka_settings: KafkaSettings, tmp_path: Path
) -> Iterator[TopicStage]:
    with stage(tmp_path, influxdb_v1.url, fresh_database, kafka_settings) as made:
        yield made


def test_two_workers_share_the_partitions_and_the_totals_are_the_simulators(staged: TopicStage) -> None:
    every = {"k0", "k1", "k2", "k3"}
    with Member(staged) as first:
        wait_until(lambda: first.shards == every)
        with Member(staged) as second:
            wait_until(lambda: bool(second.shards))
            for part in staged.parts(4):
                staged.send(part)
            staged.check()
            assert first.shards | second.shards == every
            assert not first.shards & second.shards
    staged.check(0)
    shares = staged.shards()
    assert set(shares) == every
    assert all(shares.values())


def test_a_worker_takes_up_nodes_while_it_runs_and_totals_stay_exact(staged: TopicStage) -> None:
    """A client becomes a node after half of the records: it is told by name from then on."""
    reload = Reload(staged.config, lambda fresh: fresh, Log())
    first, second = staged.parts(2)
    cast = staged.workload.cast
    client = str(cast.addresses.text[int(cast.users[0])])
    with Member(staged, reload) as worker:
        wait_until(lambda: worker.shards == {"k0", "k1", "k2", "k3"})
        staged.send(first)
        wait_until(lambda: staged.seen_bytes() > 0)
        document = yaml.safe_load(staged.config.read_text())
        document["nodes"]["laptop-1"] = {"group": "users", "addresses": [client]}
        staged.config.write_text(yaml.safe_dump(document))
        reload.on_signal()
        wait_until(lambda: any(one.total(Stage.BRIDGE, "reloads") for one in worker.worker.counters().values()))
        staged.send(second)
        # All other totals are the simulator's, which knows nothing of it.
        wait_until(lambda: {str(one)[:13] for one in staged.reckoning(0).differences} == {"node laptop-1"})


def test_workers_join_leave_and_are_killed_while_flows_stream(staged: TopicStage, record: Record) -> None:
    rng = random.Random(3)
    workers = [staged.start().until("event=partition_assigned")]
    for turn, part in enumerate(staged.parts(12)):
        staged.send(part)
        time.sleep(rng.uniform(0.1, 0.6))
        if turn in (1, 5):
            workers.append(staged.start(host=turn // 5))
        elif turn == 7:
            workers.pop(0).stop()
        elif turn in (3, 9):
            workers.pop(0).kill()
            workers.append(staged.start(host=1))
    staged.check()
    for worker in workers:
        worker.stop()
    staged.settle()
    staged.check_archived()
    record("kafka-workers", staged.reckoning(0), trials=5)


def test_a_broker_that_is_killed_costs_nothing(staged: TopicStage, kafka: LocalKafka, record: Record) -> None:
    workers = [staged.start().until("event=partition_assigned"), staged.start()]
    for turn, part in enumerate(staged.parts(6)):
        staged.send(part)
        time.sleep(0.4)
        if turn == 3:
            kafka.kill()
            kafka.start()
    staged.check(90)
    for worker in workers:
        worker.stop()
    record("kafka-broker-killed", staged.reckoning(0))


@pytest.mark.long_form
def test_a_worker_that_was_stopped_for_long_writes_nothing_old(
    staged: TopicStage, influxdb_v1: LocalInfluxDB, record: Record
) -> None:
    assert influxdb_v1.pid
    sleeper = staged.start().until("partition=3")
    parts = list(staged.parts(12))
    staged.send(parts[0])
    staged.until_shards(4)
    # It falls asleep with points on their way, and most of them still to be sent.
    os.kill(influxdb_v1.pid, signal.SIGSTOP)
    try:
        for part in parts[1:4]:
            staged.send(part)
        time.sleep(2)
        sleeper.signal(signal.SIGSTOP)
    finally:
        os.kill(influxdb_v1.pid, signal.SIGCONT)
    successor = staged.start().until("partition=3", 60)
    for part in parts[4:]:
        staged.send(part)
    staged.check()
    sleeper.signal(signal.SIGCONT)
    sleeper.until("event=partitions_lost").until("event=points_not_written")
    time.sleep(3)
    staged.check(0)
    successor.stop()
    sleeper.stop()
    record("kafka-worker-asleep", staged.reckoning(0))


@pytest.mark.long_form
def test_a_store_that_is_away_drives_nobody_out_of_the_group(kafka_settings: KafkaSettings, tmp_path: Path) -> None:
    folder = tmp_path / "away"
    folder.mkdir()
    with LocalInfluxDB(tmp_path / "influxdb") as server, stage(folder, server.url, "away", kafka_settings) as away:
        workers = [away.start().until("event=partition_assigned"), away.start().until("event=partition_assigned")]
        parts = list(away.parts(6))
        away.send(parts[0])
        time.sleep(1)
        server.stop()
        before = [worker.said().count("event=partition_assigned") for worker in workers]
        for part in parts[1:]:
            away.send(part)
            time.sleep(1.8)
        server.start()
        away.check(90)
        assert [worker.said().count("event=partition_assigned") for worker in workers] == before, away.said()
        assert "event=partitions_lost" not in away.said()


@pytest.fixture
def gate(influxdb_v1: LocalInfluxDB) -> Iterator[Gate]:
    with Gate(influxdb_v1.url) as made:
        yield made


@pytest.fixture
def short_memory(
    gate: Gate, fresh_database: str, kafka_settings: KafkaSettings, tmp_path: Path
) -> Iterator[TopicStage]:
    """A minute of which most windows leave memory with the very flush that has them."""
    bridge = {"flush": "3s", "lateness": "0s", "grace": "10s"}
    with stage(tmp_path, gate.url, fresh_database, kafka_settings, bridge=bridge) as made:
        yield made


@pytest.mark.long_form
@pytest.mark.parametrize("turn", ["another-joins", "it-leaves"])
def test_what_the_store_did_not_take_yet_is_not_forgotten(
    turn: str, gate: Gate, short_memory: TopicStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.kafka.worker._HANDOVER_SECONDS", 1.0)
    *most, last = short_memory.parts(4)
    for part in most:
        short_memory.send(part)
    gate.is_shut.set()
    with Member(short_memory) as one:
        wait_until(lambda: "retries" in str(one.worker.counters()[""].totals()))
        short_memory.send(last)
        if turn == "it-leaves":
            one.stop()
        with Member(short_memory) as other:
            wait_until(lambda: len(other.shards) == (4 if turn == "it-leaves" else 2))
            gate.is_shut.clear()
            short_memory.check()


@pytest.mark.long_form
def test_a_worker_without_brokers_is_not_healthy(
    staged: TopicStage, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.kafka.worker._HEALTHY_SECONDS", 3.0)
    first, second = staged.parts(2)
    with Member(staged) as member:
        wait_until(lambda: len(member.shards) == 4)
        assert member.worker.health() == ""
        staged.send(first)
        kafka.stop()
        wait_until(lambda: "is Kafka there?" in member.worker.health())
        kafka.start()
        staged.send(second)
        staged.check()
        assert member.worker.health() == ""


@pytest.mark.parametrize("failure", ["refused", "answer-lost"])
def test_what_was_written_is_counted_once_where_a_commit_fails_and_partitions_go(
    failure: str, staged: TopicStage
) -> None:
    """They are taken up again from what the brokers remember, as by whoever gets them; what was sent stays counted."""
    member = Member(staged)
    worker = member.worker
    worker._topics = ensure_topics(staged.cluster.kafka)
    worker._join()
    first, second = staged.parts(2)
    try:
        staged.send(first)
        turn_until(worker, lambda: dict(worker._sent.totals()).get(("write", "points"), 0) > 0 and not worker._sending)
        assert len(member.shards) == 4
        if failure == "refused":
            # Whoever has its transactional.id now: brokers take nothing from it any more.
            worker._committer._open().init_transactions(10)
        else:
            worker._committer._producer = cast("Producer", Deaf(cast("Producer", worker._committer._producer)))
        staged.send(second)
        turn_until(worker, lambda: worker._is_refused)
        assert worker._committer.is_doubtful == (failure == "answer-lost")
        written = counted(member, "points")
        worker._unwritten = tuple(worker._works.values())
        worker._begin_anew()
        assert counted(member, "points") == written > 0
        # What was read is another matter: it is read again from here on.
        assert counted(member, "messages") == sum(work.position or 0 for work in worker._works.values())
        turn_until(worker, lambda: not worker._is_refused and messages_read(member) == len(first) + len(second))
        assert counted(member, "points") >= written
    finally:
        worker._is_broken = True
        worker._leave()


def test_partitions_that_take_longer_than_a_session_to_begin_anew_are_written(
    staged: TopicStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(staged)
    worker = member.worker
    worker._topics = ensure_topics(staged.cluster.kafka)
    worker._join()
    try:
        staged.send(staged.messages)
        turn_until(worker, lambda: counted(member, "points") > 0 and not worker._sending)
        begin = worker._begin

        def begin_slowly(partition: int) -> int:
            time.sleep(1)
            return begin(partition)

        monkeypatch.setattr(worker, "_begin", begin_slowly)
        worker._lease = Lease(3)
        worker._unwritten = tuple(worker._works.values())
        assert len(worker._unwritten) == 4
        written = counted(member, "points")
        turn_until(worker, lambda: counted(member, "points") > written)
    finally:
        worker._is_broken = True
        worker._leave()


def turn_until(worker: KafkaWorker, is_so: Callable[[], bool], seconds: float = 40) -> None:
    """Have a worker work, a round after the other."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        worker._round()


def messages_read(member: Member) -> int:
    return int(counted(member, "messages"))


def counted(member: Member, reason: str) -> float:
    totals = [total for counters in member.worker.counters().values() for total in counters.totals()]
    return sum(amount for (_, name), amount in totals if name == reason)


def test_a_session_that_brokers_do_not_grant_is_refused_in_one_line(staged: TopicStage) -> None:
    kafka = replace(staged.cluster.kafka, session_timeout=1000)
    staged.cluster = replace(staged.cluster, kafka=kafka)
    staged.send(staged.messages[:4])
    with Member(staged) as member:
        wait_until(lambda: member.error is not None)
    assert isinstance(member.error, UserError)
    assert "transaction.max.timeout.ms" in member.error.hint


def test_a_partition_that_was_added_without_a_place_for_its_state_is_refused(staged: TopicStage) -> None:
    kafka = staged.cluster.kafka
    admin = open_admin(kafka, Trouble(kafka))
    with Member(staged) as member:
        wait_until(lambda: len(member.shards) == 4)
        admin.create_partitions([NewPartitions(kafka.topic, 5)])[kafka.topic].result(20)
        with pytest.raises(UserError, match=f"{kafka.state_topic} has 4 partitions, {kafka.topic} has 5"):
            member.worker._begin(4)


@pytest.mark.long_form
def test_records_that_expire_while_a_worker_waits_are_counted(
    gate: Gate, fresh_database: str, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ingest.kafka.worker._MOST_ROWS", 0)
    with stage(tmp_path, gate.url, fresh_database, kafka_settings) as staged, Member(staged) as member:
        wait_until(lambda: len(member.shards) == 4)
        gate.is_shut.set()
        staged.send([(0, staged.messages[0][1])])
        wait_until(lambda: counted(member, "retries") > 0)
        # Nobody looks, so nobody knows whether exporters are silent.
        wait_until(lambda: not any(work.at_end for work in member.worker._works.values()))
        staged.send([(0, staged.messages[1][1])] * 5)
        admin = open_admin(staged.cluster.kafka, Trouble(staged.cluster.kafka))
        for future in admin.delete_records([TopicPartition(staged.cluster.kafka.topic, 0, 4)]).values():
            future.result(20)
        gate.is_shut.clear()
        wait_until(lambda: counted(member, "messages_expired") == 3)
        wait_until(lambda: messages_read(member) == 3)


def wait_until(is_so: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long_form
def test_records_that_the_topic_lost_before_they_were_read_are_told(staged: TopicStage) -> None:
    first, *rest = staged.parts(4)
    staged.send(first)
    worker = staged.start().until("partition=3")
    staged.until_shards(4)
    worker.signal(signal.SIGHUP)
    worker.until("event=configuration what=")
    config = staged.config.with_name("host-0.yaml")
    text = config.read_text()
    config.write_text(text.replace("session_timeout: 6s", "session_timeout: 7s"))
    worker.signal(signal.SIGHUP)
    worker.until("kafka cannot change while it runs").stop()
    config.write_text(text)
    read = [sum(partition == number for partition, _ in first) for number in range(4)]
    for part in rest:
        staged.send(part)
    kafka = staged.cluster.kafka
    admin = open_admin(kafka, Trouble(kafka))
    ends = [TopicPartition(kafka.topic, number, read[number] + 2) for number in range(4)]
    for future in admin.delete_records(ends).values():
        future.result(20)
    second = staged.start().until("partition=3")
    second.until("event=messages_expired partition=3 count=2")
    assert all(
        f"event=partition_assigned partition={number} offset={read[number] + 2}" in second.said() for number in range(4)
    )


@pytest.mark.long_form
def test_a_state_of_other_windows_is_refused(staged: TopicStage) -> None:
    staged.send(staged.messages[:8])
    worker = staged.start().until("partition=3")
    staged.until_shards(1)
    worker.stop()
    text = staged.config.read_text()
    assert " window: 10s\n" in text
    staged.config.write_text(text.replace(" window: 10s\n", " window: 5s\n"))
    worker = staged.start()
    assert worker.process.wait(30) == 2, worker.said()
    assert "bridge.window: 5" in worker.said()
    assert "kafka.state_topic" in worker.said()


PMACCT = """\
daemonize: false
nfacctd_ip: 127.0.0.1
nfacctd_port: {port}
plugins: kafka
aggregate: src_host, dst_host, src_port, dst_port, proto, in_iface, out_iface, tcpflags, tos, peer_src_ip, \
timestamp_start, timestamp_end, timestamp_arrival, export_proto_seqno, export_proto_version
kafka_output: json
kafka_topic: {topic}
kafka_broker_host: 127.0.0.1
kafka_broker_port: {broker}
kafka_refresh_time: 1
plugin_pipe_size: 40960000
timestamps_utc: true
{more}
"""
"""What somebody might have who runs pmacct with its own Kafka plugin."""


@pytest.fixture
def staged_pmacct(
    influxdb_v1: LocalInfluxDB, fresh_database: str, kafka_settings: KafkaSettings, tmp_path: Path
) -> Iterator[TopicStage]:
    settings = replace(kafka_settings, format=KafkaFormat.PMACCT)
    with stage(tmp_path, influxdb_v1.url, fresh_database, settings, begins_in=-60) as made:
        yield made


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", id="one-a-message", marks=pytest.mark.long_form),
        pytest.param("kafka_multi_values: 100000", id="many-a-message"),
    ],
)
def test_a_topic_that_nfacctd_writes_itself_is_read_whole(staged_pmacct: TopicStage, more: str) -> None:
    nfacctd = shutil.which("nfacctd", path=f"{os.environ['PATH']}:/usr/sbin")
    if nfacctd is None:
        pytest.skip("no nfacctd: apt-get install pmacct")
    staged, folder = staged_pmacct, staged_pmacct.config.parent
    broker = staged.cluster.kafka.brokers[0].rpartition(":")[2]
    port = staged.cluster.collector.netflow_port
    config = folder / "nfacctd.conf"
    config.write_text(PMACCT.format(port=port, topic=staged.cluster.kafka.topic, broker=broker, more=more))
    with (folder / "nfacctd.log").open("wb") as log:
        daemon = subprocess.Popen([nfacctd, "-f", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while not udp_sockets(port):
            assert time.monotonic() < deadline, (folder / "nfacctd.log").read_text()
            time.sleep(0.05)
        time.sleep(1)
        worker = staged.start().until("event=partition_assigned")
        staged.emit(port)
        time.sleep(3)
    finally:
        daemon.send_signal(signal.SIGINT)
        daemon.wait(20)
    records = staged.told_by_pmacct()
    staged.send([(1, b"rubbish\n"), (2, b'{"bytes": "many"}')])
    held = sum(record["bytes"] for record in records)
    assert held > 10**9
    deadline = time.monotonic() + 30
    while staged.seen_bytes() != held and time.monotonic() < deadline:
        time.sleep(0.3)
    assert staged.seen_bytes() == held, worker.said()
    assert sum(staged.shards().values()) == len(records)
    letters = folder / "state" / "dead-letters-kafka.jsonl"
    # Of two partitions: they may come in two rounds.
    while not letters.exists() or letters.read_text().count("\n") < 2:
        assert time.monotonic() < deadline, worker.said()
        time.sleep(0.1)
    worker.until("event=dead_letters").stop()
    assert sorted(json.loads(line)["line"] for line in letters.read_text().splitlines()) == [
        "rubbish", '{"bytes": "many"}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--once"], "--once is about files, and --kafka reads a topic, which has no end (leave --once out)"),
        (["--spool", "-"], "--spool is about files"),
        ([], "kafka.brokers: none: expected the brokers to ask first (list them in cluster.yaml)"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    worker = Worker(Path("cluster.yaml").resolve(), tmp_path / "log", tuple(arguments))
    assert worker.process.wait(30) == 2
    assert said in worker.said()
    assert len(worker.said().splitlines()) == 1
