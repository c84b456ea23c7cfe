"""A played job as sfacctd prints its samples, the cluster it runs in, and a bridge's way from there to the samples."""

from pathlib import Path

import numpy as np
import polars as pl

from app.log import Log
from archive.query import archive_folder
from archive.samples import Samples, samples_folder
from archive.writer import Archive
from cluster.load import parse_cluster
from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from ingest.read.readers import read_chunk
from simulate.packets.flows import UDP

RATE = 4096
LEAVES = ("leaf-1", "leaf-2")
CONFIG = """\
cluster: scene
groups:
  training: {{role: training, prefixes: [10.0.0.0/8]}}
nodes:
{nodes}
exporters:
  leaf-1: {{address: 192.0.2.1, protocol: sflow, interfaces: {{1: {{name: rail, plane: compute}}}}}}
  leaf-2: {{address: 192.0.2.2, protocol: sflow, interfaces: {{1: {{name: rail, plane: compute}}}}}}
  leaf-3: {{address: 192.0.2.3, interfaces: {{1: {{name: rail, plane: compute}}}}}}
job_sources:
  - {{type: file, name: planned, path: {state}/jobs.csv}}
store: {{url: "{url}", database: {database}}}
bridge: {{state: {state}}}
"""


def address(host: str, rail: int) -> str:
    """Return the address of a host's rail."""
    return f"10.{rail}.0.{int(host.removeprefix('host-')) + 1}"


def config(hosts: int, state: Path, url: str = "http://127.0.0.1:1", database: str = "none", rails: int = 8) -> str:
    """Return the cluster.yaml of so many hosts."""
    lines = []
    for number in range(hosts):
        host = f"host-{number:03d}"
        ends = ", ".join(f"{{address: {address(host, rail)}, rail: {rail}}}" for rail in range(rails))
        lines.append(f"  {host}: {{group: training, gpus: 8, addresses: [{ends}]}}")
    return CONFIG.format(nodes="\n".join(lines), state=state, url=url, database=database)


def printed(samples: pl.DataFrame, rate: int = RATE) -> bytes:
    """Return packet samples as sfacctd prints them, each seen by the leaf of its rail; or records, as nfacctd does."""
    is_record = "end" in samples.columns
    leaf = pl.lit("192.0.2.3") if is_record else pl.format("192.0.2.{}", 1 + pl.col("src_rail") % 2)
    times = ("start", "end", "end") if is_record else (pl.lit(0.0), pl.lit(0.0), "time")
    start, end, arrival = (pl.col(one) if isinstance(one, str) else one for one in times)
    ends = {
        side: pl.struct(side, f"{side}_rail").map_elements(
            lambda one, side=side: address(one[side], one[f"{side}_rail"]), return_dtype=pl.String
        )
        for side in ("src", "dst")
    }
    frame = samples.with_columns(pl.col("src", "dst").cast(pl.String)).with_columns(
        SRC_IP=ends["src"], DST_IP=ends["dst"], number=records.FIRST_NUMBER + pl.int_range(pl.len()),
    )  # fmt: skip
    values: dict[str, pl.Expr] = {
        "TAG2": pl.col("number"), "PEER_SRC_IP": leaf,
        "SRC_IP": pl.col("SRC_IP"), "DST_IP": pl.col("DST_IP"), "IN_IFACE": pl.lit(1), "OUT_IFACE": pl.lit(1),
        "SRC_PORT": pl.lit(49_152), "DST_PORT": pl.lit(4791), "TCP_FLAGS": pl.lit(0), "PROTOCOL": pl.lit(UDP),
        "TOS": pl.lit(0), "SAMPLING_RATE": pl.lit(1 if is_record else rate), "TIMESTAMP_START": start,
        "TIMESTAMP_END": end, "TIMESTAMP_ARRIVAL": arrival,
        "EXPORT_PROTO_SEQNO": pl.int_range(pl.len()) + 1, "EXPORT_PROTO_VERSION": pl.lit(10 if is_record else 5),
        "EXPORT_PROTO_SYSID": pl.lit(0), "PACKETS": pl.lit(1), "FLOWS": pl.lit(1),
        # The frame's headers are part of what an agent sees.
        "BYTES": pl.col("bytes").cast(pl.Int64) if is_record else pl.col("bytes") // rate + 18,
    }  # fmt: skip
    rows = frame.select(values[name].alias(name) for name in records.PRINTED_COLUMNS)
    return (",".join(records.PRINTED_COLUMNS) + "\n" + rows.write_csv(include_header=False, float_precision=6)).encode()


def kept(samples: pl.DataFrame, state: Path, pieces: int = 4, **store: str) -> Cluster:
    """Take samples or records through reader and engine, with a checkpoint after each piece."""
    hosts = int(samples.select(pl.max_horizontal(pl.col("src", "dst").cast(pl.String))).max().item()[5:]) + 1
    text = config(hosts, state, **store)
    (state / "cluster.yaml").write_text(text)
    cluster, quiet = parse_cluster(text), Log(quiet=True)
    root = archive_folder(cluster)
    writer, archive = (
        Samples(samples_folder(cluster) / "0", cluster.archive, quiet),
        Archive(root / "0", cluster.archive, quiet),
    )
    writer.load(None)
    archive.load(None)
    engine = Engine(cluster, Clock.LIVE, Counters(), sampled=writer.take, archived=archive.take)
    times = samples["end" if "end" in samples.columns else "time"]
    for piece in np.array_split(np.arange(samples.height), pieces):
        parsed = read_chunk(printed(samples[piece]))
        assert parsed.frame.height == len(piece)
        engine.take(parsed.frame, float(times[int(piece[-1])]))
        writer.seal(float(times.max()))  # type: ignore[arg-type]
        archive.seal(0)
        archive.commit()
    archive.close()
    return cluster
