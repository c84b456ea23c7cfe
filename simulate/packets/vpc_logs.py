"""Simulated flow records as AWS VPC flow logs, in objects as they lie in a bucket: both ends of a flow, by the minute.

Fields and layout: "Flow log records" and "Flow log files" in the Amazon VPC user guide; aggregated over a minute.
"""

import gzip
import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import polars as pl

from cluster.model import LOCAL, CloudFormat, Cluster, Exporter, ExportProtocol
from ingest.read.records import other_end
from simulate.incidents.incident import IncidentKind
from simulate.packets.flows import FLOW_SCHEMA, FlowBatch
from simulate.packets.udp import Clock
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

FIELDS = (
    "version account-id vpc-id subnet-id interface-id srcaddr dstaddr srcport dstport protocol tcp-flags packets bytes "
    "start end action log-status flow-direction"
)
"""A format with the direction, as docs/deployment.md asks for it."""

ACCOUNT = "123456789010"
_SENDER, _RECEIVER = range(2)
"""Numbers of the exporters of `in_a_vpc`."""
_INTERVAL_MS = 60_000
_SETTLED_MS = 1_000
"""A record of an interval leaves its exporter within that of the interval's end."""
_REFUSED = frozenset({IncidentKind.REFUSED_SCAN})
_NAP = 0.1


def in_a_vpc(cluster: Cluster) -> Cluster:
    """Return a cluster for the simulator in place of one whose records are VPC flow logs.

    It has two exporters, named as the bridge names the two ends of a flow. The first sees every flow once, unsampled.
    """
    names = CloudFormat.AWS.value, other_end(CloudFormat.AWS.value)
    ends = (
        Exporter(name, ip_address(f"127.0.0.{number}"), ExportProtocol.NETFLOW, counts=number == 1)
        for number, name in enumerate(names, 1)
    )
    return replace(cluster, exporters=tuple(ends), authority=())


def object_path(folder: Path, moment: int, number: int = 0, ending: str = ".log.gz") -> Path:
    """Return where an object of a moment (epoch seconds) lies in a copy of the bucket; its folder is made."""
    at = datetime.fromtimestamp(moment, UTC)
    name = f"{ACCOUNT}_vpcflowlogs_eu-central-1_fl-1234abcd_{at:%Y%m%dT%H%MZ}_{number:08x}{ending}"
    path = folder / "AWSLogs" / ACCOUNT / "vpcflowlogs" / "eu-central-1" / f"{at:%Y/%m/%d}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def lines(told: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of FIELDS.

    Args:
        told: interface, is_sender, src, dst (text), src_port, dst_port, protocol, tcp_flags, packets, bytes, start, end
            (epoch ms), and is_refused where some of it was.
    """
    is_refused = pl.col("is_refused") if "is_refused" in told.columns else pl.lit(value=False)
    # AWS's times are whole seconds: of the first and the last packet.
    return told.with_columns(pl.col("start", "end") // 1000).select(
        pl.lit("5").alias("version"),
        pl.lit(ACCOUNT).alias("account-id"),
        pl.lit("vpc-0a1b").alias("vpc-id"),
        pl.lit("subnet-0a1b").alias("subnet-id"),
        pl.col("interface").alias("interface-id"),
        pl.col("src").alias("srcaddr"),
        pl.col("dst").alias("dstaddr"),
        pl.col("src_port").alias("srcport"),
        pl.col("dst_port").alias("dstport"),
        "protocol",
        pl.col("tcp_flags").alias("tcp-flags"),
        "packets",
        "bytes",
        "start",
        "end",
        pl.when(is_refused).then(pl.lit("REJECT")).otherwise(pl.lit("ACCEPT")).alias("action"),
        pl.lit("OK").alias("log-status"),
        pl.when("is_sender").then(pl.lit("egress")).otherwise(pl.lit("ingress")).alias("flow-direction"),
    )


def put_text(path: Path, rows: pl.DataFrame, fields: str = FIELDS) -> None:
    """Write rows (columns of `fields`) as an object that is there whole or not at all."""
    text = rows.select(fields.split()).write_csv(include_header=False, separator=" ", quote_style="never")
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(gzip.compress(f"{fields}\n{text}".encode(), 1))
    partial.replace(path)


class VpcLogs:
    """Writes what the interfaces of a simulated cluster log, an object a minute. `close` it.

    Args:
        workload: the simulation of a cluster of `in_a_vpc`.
        folder: a copy of the bucket; made if missing.
        truth: gets what is written, object by object, each flow once for each end that logs it.
    """

    def __init__(self, workload: Workload, folder: Path, truth: GroundTruth) -> None:
        addresses = workload.cast.addresses
        inside = {group.id for group in workload.cluster.inside_groups()}
        self._is_inside = pl.Series([addresses.groups[code] in inside for code in addresses.group], dtype=pl.Boolean)
        self._is_local = pl.Series([addresses.groups[code] == LOCAL for code in addresses.group], dtype=pl.Boolean)
        self._text = addresses.text
        incidents = workload.scenario.incidents
        self._refused = [number for number, one in enumerate(incidents) if one.kind in _REFUSED]
        self._folder, self._truth = folder, truth
        self._waiting = pl.DataFrame(schema=FLOW_SCHEMA)
        # Another writer may go on in this folder, within the same minute.
        self._objects = sum(1 for _ in folder.rglob("*.gz")) if folder.exists() else 0
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, batch: FlowBatch) -> None:
        """Take a batch; the objects of minutes that are over by its end appear."""
        # Between machines of one segment, and to multicast groups, nothing is logged.
        logged = ~self._is_local.gather(batch.frame["src"]) & ~self._is_local.gather(batch.frame["dst"])
        self._waiting = pl.concat([self._waiting, batch.frame.filter(logged & batch.frame["counted"])])
        self._put((batch.until - _SETTLED_MS) // _INTERVAL_MS)

    def close(self) -> None:
        """Write what is left, as the object of a minute that is not over."""
        self._put(None)

    def run(self, batches: Iterable[FlowBatch], clock: Clock, stop: threading.Event) -> None:
        """Write everything at its time, until the batches end or `stop` is set; returns with the truth exact."""
        clock.start()
        for batch in batches:
            while (left := clock.seconds_until(batch.until / 1000)) > 0 and not stop.wait(min(left, _NAP)):
                pass
            if stop.is_set():
                break
            self.write(batch)
        self.close()

    def _put(self, until: int | None) -> None:
        """Write the minutes before one (None: all), each as an object."""
        interval = pl.col("end") // _INTERVAL_MS
        due = self._waiting if until is None else self._waiting.filter(interval < until)
        if not due.height:
            return
        self._waiting = self._waiting.clear() if until is None else self._waiting.filter(interval >= until)
        told = self._ends(due.with_columns(interval.alias("interval")))
        for (minute,), part in sorted(told.partition_by("interval", as_dict=True).items()):
            named = part.with_columns(
                ("eni-" + pl.col("address").cast(pl.String).str.zfill(17)).alias("interface"),
                self._text.gather(part["src"]).alias("src"),
                self._text.gather(part["dst"]).alias("dst"),
                pl.col("proto").alias("protocol"),
            )
            moment = (int(minute) + 1) * _INTERVAL_MS // 1000
            self._objects += 1
            # In an object lines have no order.
            put_text(
                object_path(self._folder, moment, self._objects),
                lines(named).sample(fraction=1.0, shuffle=True, seed=7),
            )
            self._truth.add(part.filter(~pl.col("is_refused")).select(list(FLOW_SCHEMA)))
            self._truth.add_refused(part.filter("is_refused"))

    def _ends(self, due: pl.DataFrame) -> pl.DataFrame:
        """Return what interfaces write down: each its own end of a flow, summed over its minutes.

        What a security group refuses is refused at the receiver: the sender's interface has let it go.
        """
        refused = pl.col("incident").is_in(self._refused)
        src_inside, dst_inside = (self._is_inside.gather(due[side]) for side in ("src", "dst"))
        sent = due.with_columns(exporter=pl.lit(_SENDER, pl.Int64), address="src", is_refused=pl.lit(value=False))
        received = due.with_columns(
            exporter=pl.lit(_RECEIVER, pl.Int64),
            address="dst",
            is_refused=refused,
            # What both ends log counts once.
            counted=~src_inside,
        )
        rows = pl.concat([sent.filter(src_inside), received.filter(dst_inside)])
        return (
            rows.group_by(
                "interval", "address", "exporter", "src", "dst", "src_port", "dst_port", "proto", "is_refused"
            )
            .agg(
                pl.min("start"),
                pl.max("end", "export", "tcp_flags", "incident"),
                pl.sum("packets", "bytes"),
                pl.first("counted"),
            )
            .with_columns(
                # As they are written: whole seconds.
                *(pl.col(name) // 1000 * 1000 for name in ("start", "end")),
                pl.lit(1, pl.Int64).alias("rate"),
                *(pl.lit(0, pl.Int64).alias(name) for name in ("in_iface", "out_iface")),
                (pl.col("exporter") == _SENDER).alias("is_sender"),
            )
        )
