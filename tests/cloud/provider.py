"""A cloud that writes down a simulated cluster: the flow logs of both ends of what was sent, and what was sent."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from cluster.load import load_cluster
from cluster.model import Cluster
from simulate.packets import vpc_logs
from simulate.scenarios.scenario import Phase, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload

REPOSITORY = Path(__file__).parents[2]
# A full hour of yesterday: the store keeps raw points for a week, and drops older ones.
START = (int(time.time()) // 3_600 - 24) * 3_600
DEFAULT = (
    "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action log-status"
)
_KEY = ["src", "dst", "src_port", "dst_port", "protocol"]


@dataclass(frozen=True)
class Sent:
    """What was sent, each flow once.

    Attributes:
        cluster: who is who; without exporters.
        flows: src, dst (text), ports, protocol, tcp_flags, start, end (epoch ms), bytes, packets.
    """

    cluster: Cluster
    flows: pl.DataFrame

    @property
    def pairs(self) -> dict[tuple[str, str], int]:
        """Bytes by pair of addresses."""
        sums = self.flows.group_by("src", "dst").agg(pl.sum("bytes"))
        return {(src, dst): size for src, dst, size in sums.rows()}


def sent(seconds: int = 600) -> Sent:
    """Return what a training run and its surroundings send."""
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    live = Phase(START, START + seconds, 10, 10)
    run = Run("live", tuple(Cast(cluster).training), START, START + seconds, 30)
    workload = Workload(cluster, Scenario(3, live, runs=(run,)))
    text = workload.cast.addresses.text
    frames = [batch.frame.filter("counted") for batch in workload.batches(live)]
    frame = pl.concat(frames)
    overheads = pl.Series([one.frame_overhead for one in cluster.exporters], dtype=pl.Int64).gather(frame["exporter"])
    flows = frame.select(
        pl.Series("src", text.gather(frame["src"])),
        pl.Series("dst", text.gather(frame["dst"])),
        "src_port",
        "dst_port",
        pl.col("proto").alias("protocol"),
        "tcp_flags",
        "start",
        "end",
        ((pl.col("bytes") - pl.col("packets") * overheads) * pl.col("rate")).alias("bytes"),
        (pl.col("packets") * pl.col("rate")).alias("packets"),
    )
    return Sent(cluster, flows)


def ends_of(flows: pl.DataFrame, *, interval: int, dark: frozenset[str] = frozenset()) -> pl.DataFrame:
    """Return what interfaces write down: each its own end of a flow, summed over intervals of its own.

    Args:
        flows: of `Sent`.
        interval: seconds of an interval; each interface's begin at another moment.
        dark: addresses whose interfaces write nothing.
    """
    inside = pl.col("address").str.starts_with("10.") & ~pl.col("address").is_in(list(dark))
    sides = [
        flows.with_columns(pl.col(side).alias("address"), pl.lit(side == "src").alias("is_sender")).filter(inside)
        for side in ("src", "dst")
    ]
    begin = (pl.col("address").hash() % (interval * 1000)).cast(pl.Int64)
    rows = pl.concat(sides).with_columns(((pl.col("start") + begin) // (interval * 1000)).alias("interval"))
    return (
        rows.group_by("address", "is_sender", *_KEY, "interval")
        .agg(pl.min("start"), pl.max("end"), pl.sum("bytes", "packets"), pl.max("tcp_flags"))
        .with_columns(("eni-" + pl.col("address").hash().cast(pl.String).str.slice(0, 17)).alias("interface"))
        .drop("interval")
    )


def put_aws(folder: Path, told: pl.DataFrame, *, fields: str = vpc_logs.FIELDS, is_parquet: bool = False) -> list[Path]:
    """Write AWS's files, one for each five minutes, as they lie in a bucket, and return them."""
    lines = vpc_logs.lines(told)
    written = []
    for (late,), part in _five_minutes(lines, pl.col("end")):
        path = vpc_logs.object_path(folder, late, ending=".log.parquet" if is_parquet else ".log.gz")
        if is_parquet:
            part.select(fields.split()).rename(lambda name: name.replace("-", "_")).write_parquet(path)
        else:
            vpc_logs.put_text(path, part, fields)
        written.append(path)
    return written


def put_google(folder: Path, told: pl.DataFrame) -> list[Path]:
    """Write Google's files: log entries as Cloud Logging puts them into a bucket, a file an hour."""
    written = []
    for (late,), part in _five_minutes(told.with_columns(pl.col("end") // 1000 + 0), pl.col("end")):
        moment = datetime.fromtimestamp(late, UTC)
        path = folder / "compute.googleapis.com" / "vpc_flows" / f"{moment:%Y/%m/%d/%H:%M:00}_S0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = []
        for row in part.iter_rows(named=True):
            connection = {
                "src_ip": row["src"], "dest_ip": row["dst"], "src_port": row["src_port"], "dest_port": row["dst_port"],
                "protocol": row["protocol"],
            }  # fmt: skip
            payload = {
                "connection": connection,
                "bytes_sent": str(row["bytes"]),
                "packets_sent": str(row["packets"]),
                "start_time": _iso(row["start"]),
                "end_time": _iso(row["end"] * 1000),
                "reporter": "SRC" if row["is_sender"] else "DEST",
                "src_instance" if row["is_sender"] else "dest_instance": {"vm_name": row["interface"]},
            }
            entries.append(json.dumps({"insertId": "1", "jsonPayload": payload, "timestamp": _iso(late * 1000)}))
        path.write_text("\n".join(entries) + "\n")
        written.append(path)
    return written


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _five_minutes(rows: pl.DataFrame, end: pl.Expr) -> Iterator[tuple[tuple[int], pl.DataFrame]]:
    """Yield rows by when their file is written; in a file they have no order."""
    cut = rows.with_columns((end // 300 * 300 + 300).alias("late"))
    for key, part in sorted(cut.partition_by("late", as_dict=True, include_key=False).items()):
        yield key, part.sample(fraction=1.0, shuffle=True, seed=7)  # type: ignore[misc]


def put_azure(folder: Path, told: pl.DataFrame, *, until: int | None = None) -> list[Path]:
    """Write Azure's files: one an hour and interface, with what was told of until a moment (epoch ms).

    Each record of an interval stands there twice: as a flow that begins, and as one that ends with its sums.
    """
    told = told if until is None else told.filter(pl.col("end") < until)
    written = []
    for (interface, hour), part in (
        told.with_columns(pl.col("end") // 3_600_000)
        .with_columns(told["end"].alias("at"))
        .sort("at", "src", "dst", "src_port", "dst_port")
        .partition_by("interface", "end", as_dict=True)
        .items()
    ):
        moment = datetime.fromtimestamp(int(hour) * 3600, UTC)
        mac = interface.removeprefix("eni-")[:12].rjust(12, "0")
        path = folder / f"y={moment:%Y}" / f"m={moment:%m}" / f"d={moment:%d}" / f"h={moment:%H}" / f"macAddress={mac}"
        path.mkdir(parents=True, exist_ok=True)
        tuples: dict[int, list[str]] = {}
        for row in part.iter_rows(named=True):
            way = "O" if row["is_sender"] else "I"
            ends = f"{row['src']},{row['dst']},{row['src_port']},{row['dst_port']},{row['protocol']},{way}"
            minute = tuples.setdefault(row["at"] // 60_000, [])
            minute.append(f"{row['start']},{ends},B,NX,0,0,0,0")
            minute.append(f"{row['at']},{ends},E,NX,{row['packets']},{row['bytes']},0,0")
        records = [
            {
                "time": _iso(minute * 60_000), "flowLogVersion": 4, "macAddress": mac, "category": "FlowLogFlowEvent",
                "flowRecords": {"flows": [{"aclID": "0", "flowGroups": [{"rule": "Allow", "flowTuples": texts}]}]},
            }
            for minute, texts in sorted(tuples.items())
        ]  # fmt: skip
        file = path / "PT1H.json"
        file.write_text(json.dumps({"records": records}))
        written.append(file)
    return written
