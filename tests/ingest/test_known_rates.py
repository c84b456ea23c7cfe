"""Sampling rates that nfacctd forgot with a restart are those that the exporter told last."""

import contextlib
import shutil
import socket
import threading
import time
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bridge import a_bridge, known, sent_bytes
from test_pmacct_daemons import a_cluster, wait_for
from test_template_file import template, write

from app.errors import StoreError
from cluster.model import Cluster, Exporter
from ingest.collect.supervise import Collector
from ingest.collect.template_file import TemplateFile
from ingest.counters import Counters
from ingest.flows.known_rates import SAMPLED, KnownRates, RateChange
from ingest.flows.normalise import Clock
from ingest.read.readers import read_chunk, sniff
from ingest.read.records import FIRST_NUMBER, PRINTED_COLUMNS, SAMPLING_RATE
from ingest.read.spool import Spool
from simulate.packets.netflow import FlowFormat, NetflowEncoder, RecordColumns
from store.schema import Stage

__all__ = ["known"]

EXPORTER = "127.0.0.9"
Record = tuple[int, int]
"""Interface and rate, as nfacctd prints them."""


def text(
    records: list[Record], first: int = 0, *, version: int = 9, domain: int = 7, exporter: str = EXPORTER
) -> bytes:
    """Return a file as nfacctd prints it; `first`: how many records it had printed before since its start."""
    lines = [",".join(PRINTED_COLUMNS)]
    for number, (link, rate) in enumerate(records, FIRST_NUMBER + first):
        values = {
            "TAG2": number, "PEER_SRC_IP": exporter, "IN_IFACE": link, "SRC_IP": "10.1.0.1", "DST_IP": "10.1.0.2",
            "PROTOCOL": 6, "SAMPLING_RATE": rate, "TIMESTAMP_ARRIVAL": "1790000000.000000", "FLOWS": 1, "BYTES": 1000,
            "EXPORT_PROTO_VERSION": version, "EXPORT_PROTO_SYSID": domain,
        }  # fmt: skip
        lines.append(",".join(str(values.get(name, 0)) for name in PRINTED_COLUMNS))
    return ("\n".join(lines) + "\n").encode()


class Reader:
    """Reads chunks as the bridge does, from templates in a folder."""

    def __init__(self, folder: Path) -> None:
        self.rates = KnownRates(TemplateFile(folder))
        self.changes: list[RateChange] = []

    def read(self, raw: bytes, source: str = "nfacct-1.csv") -> list[int]:
        parsed = read_chunk(raw, sniff(raw))
        assert parsed.dead.is_empty()
        frame, changes = self.rates.take(parsed, source)
        self.changes += changes
        assert frame.drop(SAMPLING_RATE).equals(parsed.frame.drop(SAMPLING_RATE))
        return frame.get_column(SAMPLING_RATE).to_list()


def test_after_a_restart_the_last_rate_holds_until_another_comes(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.read(text([(1, 500), (2, 500)])) == [500, 500]
    # Interface 3 is new, the rate of its domain is known.
    assert reader.read(text([(1, 0), (3, 0), (2, 1000), (1, 0)]), "nfacct-2.csv") == [500, 500, 1000, 0]
    assert reader.changes == [RateChange(EXPORTER, 7, 500, 1000, 0)]
    assert reader.read(text([(2, 0)]), "nfacct-3.csv") == [1000]


def test_an_interface_that_is_not_sampled_stays_so_after_a_restart(tmp_path: Path) -> None:
    """One sampler of several: nfacctd knows the rate of one, and prints 0 for what the other interface sends."""
    reader = Reader(tmp_path)
    assert reader.read(text([(1, 500), (2, 0), (1, 500)])) == [500, 0, 500]
    assert reader.read(text([(2, 0)], 3)) == [0]
    assert reader.read(text([(2, 0), (1, 0)])) == [0, 500]
    assert not reader.changes


def test_interfaces_with_rates_of_their_own_keep_them(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.read(text([(1, 500), (2, 64), (1, 500)]))
    assert reader.read(text([(2, 0), (1, 0)])) == [64, 500]
    assert not reader.changes


def test_of_several_daemons_each_has_lives_of_its_own(tmp_path: Path) -> None:
    """Their numbers have nothing to do with each other; an exporter that moves to another daemon is unknown to it."""
    reader = Reader(tmp_path)
    assert reader.read(text([(1, 500), (1, 500)], 90)) == [500, 500]
    assert reader.read(text([(1, 64)], exporter="127.0.0.10"), "nfacct-b-1.csv") == [64]
    assert reader.read(text([(1, 0)], 92)) == [0], "it forgot nothing: nobody samples there any more"
    assert reader.read(text([(1, 0), (2, 0)], 1, exporter="127.0.0.10"), "nfacct-b-1.csv") == [0, 0]
    assert reader.read(text([(3, 0)], exporter="127.0.0.10"), "nfacct-c-1.csv") == [64]


def test_domains_and_exporters_are_apart(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.read(text([(1, 500)]))
    assert reader.read(text([(1, 0)], exporter="127.0.0.10")) == [0], "nothing shows that it samples"
    assert reader.read(text([(1, 0)], domain=8)) == [SAMPLED], "its exporter does"


@pytest.mark.parametrize("version", [5, 105])
def test_where_each_datagram_tells_its_rate_none_is_remembered(version: int, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.read(text([(1, 500)], version=version)) == [500]
    assert reader.read(text([(1, 0)], version=version)) == [0]


@pytest.mark.parametrize(("element", "kind", "rate"), [(48, 0, SAMPLED), (305, 1, SAMPLED), (2, 0, 0), (2, 1, 0)])
def test_templates_show_who_samples(element: int, kind: int, rate: int, tmp_path: Path) -> None:
    line = template(EXPORTER, 1, element)
    if kind:
        line = line.replace('"template_type": 0', '"template_type": 1').replace('"list"', '"none"')
        line = line[:-1] + f', "tpl": [{{"type": 1, "off": 0, "len": 4}}, {{"type": {element}, "off": 4, "len": 4}}]}}'
    write(tmp_path, line)
    assert Reader(tmp_path).read(text([(1, 0)])) == [rate]


def test_records_before_the_first_rate_are_told(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.read(text([(1, 0), (2, 0)])) == [0, 0]
    assert reader.read(text([(1, 0), (1, 500), (2, 0)], 2)) == [SAMPLED, 500, 0]
    assert reader.changes == [RateChange(EXPORTER, 7, None, 500, 3)]


@settings(deadline=None, max_examples=60)
@given(
    lives=st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 1, 64, 500])), max_size=12), max_size=4
    ),
    cuts=st.sets(st.integers(0, 40)),
)
def test_rates_do_not_depend_on_chunks_nor_on_restarts_of_the_bridge(
    lives: list[list[Record]], cuts: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole, cut = Reader(folder), Reader(folder)
    expected, found, place = [], [], 0
    for records in lives:
        expected += whole.read(text(records))
        start = 0
        for number in range(1, len(records) + 1):
            place += 1
            if place in cuts or number == len(records):
                found += cut.read(text(records[start:number], start))
                start = number
                saved = cut.rates.dump()
                cut.rates = KnownRates(TemplateFile(folder))
                cut.rates.load(saved)
    # Which of them nobody knows shows with what comes later.
    assert [max(rate, 0) for rate in found] == [max(rate, 0) for rate in expected]


def flows(size: int, *, link: int, now: int) -> RecordColumns:
    def all_of(value: int) -> np.ndarray:
        return np.full(4, value)

    hosts = np.array([[10, 1, 0, host] for host in range(1, 5)], np.uint8)
    outside = np.array([[203, 0, 113, 5]] * 4, np.uint8)
    return RecordColumns(
        hosts, outside, all_of(4000), all_of(443), all_of(6), all_of(24), all_of(0), all_of(link), all_of(9),
        all_of(size), all_of(4), all_of(now - 2000), all_of(now - 1000),
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
@pytest.mark.parametrize("flow_format", [FlowFormat.V9, FlowFormat.IPFIX])
def test_a_restart_of_nfacctd_leaves_the_bytes_as_they_are(
    known: Cluster, tmp_path: Path, flow_format: FlowFormat
) -> None:
    """Four records of 1,462 B, 1 packet in 30,000 sampled: 175,440,000 B before and after, also with a new bridge."""
    leaf = Exporter("leaf-9", ip_address(EXPORTER))
    collected = a_cluster(leaf)
    known = replace(known, exporters=(leaf,), collector=collected.collector)
    encoder = NetflowEncoder(flow_format, source=7, boot=int(time.time() - 3600) * 1000, rate=30_000)
    spool, stop, counters = tmp_path / "spool", threading.Event(), Counters()

    def export(*, first: bool) -> None:
        now = int(time.time() * 1000)
        packed = encoder.pack(flows(1462, link=3, now=now))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((EXPORTER, 0))
            for message in ([encoder.hello(now)] if first else []) + [encoder.message(packed, 0, 4, now)]:
                sender.sendto(message, ("127.0.0.1", known.collector.netflow_port))
                time.sleep(0.1)

    def is_stored(expected: int) -> bool:
        with contextlib.suppress(StoreError):
            return sent_bytes(known) >= expected
        return False

    def ingest(expected: int) -> None:
        stop.clear()
        with Spool(spool) as source:
            bridge = a_bridge(known, source, tmp_path, stop, Clock.LIVE, counters=counters)
            running = threading.Thread(target=bridge.run)
            running.start()
            try:
                wait_for(lambda: is_stored(expected), 20)
            finally:
                stop.set()
                running.join()
        assert sent_bytes(known) == expected

    for life in (1, 2):
        with Collector(known, tmp_path / "run", spool=spool):
            export(first=life == 1)
            wait_for(lambda: bool(list(spool.glob("nfacct-*.csv"))))
        ingest(life * 175_440_000)
    printed = pl.concat([pl.read_csv(path, comment_prefix="--") for path in sorted(spool.glob("nfacct-*.csv"))])
    assert printed.get_column("SAMPLING_RATE").to_list() == [30_000] * 4 + [0] * 4, "nfacctd has forgotten it"
    assert counters.total(Stage.NORMALISE, "unknown_rate") == 0
