"""Simulated flow records as the files that nfacctd and sfacctd would have left in the spool.

Checked against pmacct 1.7.7: header, order of columns, markers, spelling of every value. NetFlow and sFlow records
share a file in the order of their arrival, so that whoever reads file after file meets them in that order.
"""

import io
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl

from ingest.collect import counter_files
from ingest.read import records
from simulate.packets.flows import FLOW_SCHEMA, FlowBatch, column
from simulate.packets.netflow import FlowFormat
from simulate.packets.polls import Poll, as_printed
from simulate.packets.sflow import poll_datagrams
from simulate.packets.wire import SequenceNumbers, arriving, lost, plan, source_id
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

_FILE_RECORDS = 500_000
_WRITER = 1
"""Stands for the process id in the markers."""

_VERSIONS = {FlowFormat.V5: 5, FlowFormat.V9: 9, FlowFormat.IPFIX: 10, FlowFormat.SFLOW: 5}

_JSON_KEYS = (
    "peer_ip_src", "iface_in", "iface_out", "ip_src", "ip_dst", "port_src", "port_dst", "tcp_flags", "ip_proto", "tos",
    "sampling_rate", "timestamp_start", "timestamp_end", "timestamp_arrival", "export_proto_seqno",
    "export_proto_version", "export_proto_sysid", "packets", "flows", "bytes",
)  # fmt: skip
"""pmacct's JSON keys for `records.SPOOL_COLUMNS`, in their order."""
_JSON_TEXTS = ("tcp_flags", "ip_proto")
_JSON_TIMES = ("timestamp_start", "timestamp_end", "timestamp_arrival")


class SpoolFormat(StrEnum):
    """Output of pmacct's print plugin."""

    CSV = "csv"
    JSON = "json"


class SpoolWriter:
    """Writes flow records to files, each whole or not at all. Use it as a context manager, or `close` it.

    Args:
        workload: the simulation.
        folder: the spool; made if missing.
        truth: gets what is written, file by file.
        file_format: of the files.
        file_records: records after which a file is finished.
    """

    def __init__(
        self,
        workload: Workload,
        folder: Path,
        truth: GroundTruth,
        *,
        file_format: SpoolFormat = SpoolFormat.CSV,
        file_records: int = _FILE_RECORDS,
    ) -> None:
        self._addresses = workload.cast.addresses
        self._styles = workload.fabric.styles
        self._sequence = SequenceNumbers(self._styles)
        self._losses = workload.fabric.losses
        exporters = workload.cluster.exporters
        self._peers = pl.Series([str(exporter.address) for exporter in exporters], dtype=pl.String)
        self._versions = np.array([_VERSIONS[style.flow_format] for style in self._styles], np.int64)
        self._is_sflow = np.array([style.flow_format is FlowFormat.SFLOW for style in self._styles])
        self._is_v5 = np.array([style.flow_format is FlowFormat.V5 for style in self._styles])
        self._domains = np.where(self._is_sflow, 0, [source_id(number) for number in range(len(exporters))])
        self._folder = folder
        self._truth = truth
        self._format = file_format
        self._file_records = file_records
        self._waiting: list[pl.DataFrame] = []
        self._polls: list[Poll] = []
        self._polled: Counter[int] = Counter()
        self._names: set[str] = set()
        self._next_number = records.FIRST_NUMBER
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, batch: FlowBatch) -> None:
        """Take a batch; files appear as enough records are there."""
        self._polls += batch.polls
        if batch.frame.height:
            self._waiting.append(batch.frame)
        if sum(frame.height for frame in self._waiting) >= self._file_records:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        self._flush()

    def _flush(self) -> None:
        polls, self._polls = self._polls, []
        self._put_polls(polls)
        if not self._waiting:
            self._sequence.assign(plan(pl.DataFrame(schema=FLOW_SCHEMA), self._addresses, self._styles), polls)
            return
        frame = pl.concat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        planned = plan(frame, self._addresses, self._styles)
        gone = lost(planned, self._losses)
        frame, numbers = arriving(frame, planned, gone, self._sequence.assign(planned, polls))
        if frame.height:
            self._put(self._named(frame, numbers), int(frame["export"][0]))
            self._truth.add(frame)
        sent = np.bincount(planned.exporter[~gone], minlength=len(self._styles))
        for exporter, count in enumerate(sent.tolist()):
            self._truth.add_datagrams(exporter, count)

    def _named(self, frame: pl.DataFrame, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
        """Return the records under `records.SPOOL_COLUMNS`; times are epoch seconds."""
        exporter = column(frame, "exporter")
        # v5's times count from the exporter's boot; nfacctd works them out in whole seconds. sFlow has none.
        is_v5, is_sflow = self._is_v5[exporter], self._is_sflow[exporter]
        times = (column(frame, name) for name in ("start", "end"))
        start, end = (np.where(is_sflow, 0, np.where(is_v5, t // 1000 * 1000, t)) / 1000 for t in times)
        text = self._addresses.text
        values = {
            "PEER_SRC_IP": self._peers.gather(frame["exporter"]),
            "IN_IFACE": frame["in_iface"],
            "OUT_IFACE": frame["out_iface"],
            "SRC_IP": text.gather(frame["src"]),
            "DST_IP": text.gather(frame["dst"]),
            "SRC_PORT": frame["src_port"],
            "DST_PORT": frame["dst_port"],
            "TCP_FLAGS": frame["tcp_flags"],
            "PROTOCOL": frame["proto"],
            "TOS": pl.zeros(frame.height, pl.Int64, eager=True),
            "SAMPLING_RATE": frame["rate"],
            "TIMESTAMP_START": pl.Series(start),
            "TIMESTAMP_END": pl.Series(end),
            "TIMESTAMP_ARRIVAL": pl.Series(column(frame, "export") / 1000),
            "EXPORT_PROTO_SEQNO": pl.Series(numbers),
            "EXPORT_PROTO_VERSION": pl.Series(self._versions[exporter]),
            "EXPORT_PROTO_SYSID": pl.Series(self._domains[exporter]),
            "PACKETS": frame["packets"],
            "FLOWS": pl.ones(frame.height, pl.Int64, eager=True),
            "BYTES": frame["bytes"],
        }
        return pl.DataFrame({name: values[name] for name in records.SPOOL_COLUMNS})

    def _put(self, named: pl.DataFrame, first: int) -> None:
        text = io.BytesIO()
        if self._format is SpoolFormat.CSV:
            text.write(f"{records.START_MARKER} ({_WRITER})--\n{','.join(records.PRINTED_COLUMNS)}\n".encode())
            first_number, self._next_number = self._next_number, self._next_number + named.height
            numbers = pl.int_range(first_number, self._next_number, eager=True).alias(records.NUMBER_COLUMN)
            named.select(numbers, pl.all()).write_csv(text, include_header=False, float_precision=6)
            text.write(f"{records.END_MARKER} ({_WRITER})--\n".encode())
        else:
            _put_json(text, named)
        path = self._path(first)
        partial = path.with_name(f".{path.name}.part")
        partial.write_bytes(text.getbuffer())
        partial.replace(path)

    def _put_polls(self, polls: list[Poll]) -> None:
        """Write interface counters into a file of their own, as the collector has sfacctd do."""
        if not polls:
            return
        lines = []
        for poll in polls:
            self._polled[poll.exporter] += 1
            lines += as_printed(poll, self._peers[poll.exporter], self._polled[poll.exporter])
            self._truth.add_poll(poll)
            self._truth.add_datagrams(poll.exporter, poll_datagrams(poll))
        folder = self._folder / counter_files.FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{counter_files.PREFIX}{polls[0].at // 1000}.json"
        path.write_text("".join(f"{line}\n" for line in lines))

    def _path(self, first: int) -> Path:
        """Return a new name that tells the time of the first record, as the collector's names do."""
        stamp = f"flows-{datetime.fromtimestamp(first / 1000, UTC):%Y%m%d-%H%M%S}"
        name, number = stamp, 1
        while name in self._names or (self._folder / f"{name}.{self._format.value}").exists():
            name, number = f"{stamp}.{number:04}", number + 1
        self._names.add(name)
        return self._folder / f"{name}.{self._format.value}"


def _put_json(text: io.BytesIO, named: pl.DataFrame) -> None:
    writer = f"default_print/{_WRITER}"
    keyed = named.rename(dict(zip(records.SPOOL_COLUMNS, _JSON_KEYS, strict=True)))
    lines = keyed.with_columns(
        *(pl.col(key).cast(pl.String) for key in _JSON_TEXTS), *(_as_time(key) for key in _JSON_TIMES)
    ).select(pl.lit("purge").alias("event_type"), pl.all())
    text.write(f'{{"event_type": "purge_init", "writer_id": "{writer}"}}\n'.encode())
    lines.write_ndjson(text)
    size = named.height
    text.write(
        f'{{"event_type": "purge_close", "writer_id": "{writer}", "purged_entries": {size}, "total_entries": {size}, '
        f'"duration": 0}}\n'.encode()
    )


def _as_time(key: str) -> pl.Expr:
    milliseconds = (pl.col(key) * 1000).round().cast(pl.Int64)
    whole, rest = milliseconds // 1000, milliseconds % 1000
    return pl.format("{}.{}000", whole, rest.cast(pl.String).str.zfill(3)).alias(key)
