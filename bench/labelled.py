"""`scripts/bench labelled FILE...`: public flow data with labels, through bridge, analysis and rules.

A check on what we staged ourselves. The data stays with its owner: Zeek's conn.log (tabs or JSON, with or without
labels) and Argus' binetflow (commas or tabs), packed by gzip or not.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import polars as pl

from app.errors import UserError
from store.local_influxdb import LocalInfluxDB

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
_HOUR = 3_600
_NAMED = 5

_ZEEK = {
    "start": "ts", "duration": "duration", "src": "id.orig_h", "src_port": "id.orig_p", "dst": "id.resp_h",
    "dst_port": "id.resp_p", "protocol": "proto", "bytes": "orig_ip_bytes", "packets": "orig_pkts",
    "back": "resp_ip_bytes", "back_packets": "resp_pkts", "label": "label",
}  # fmt: skip
_ARGUS = {
    "start": "StartTime", "duration": "Dur", "src": "SrcAddr", "src_port": "Sport", "dst": "DstAddr",
    "dst_port": "Dport", "protocol": "Proto", "bytes": "SrcBytes", "packets": "SrcPkts", "total": "TotBytes",
    "total_packets": "TotPkts", "label": "Label",
}  # fmt: skip

_YAML = """cluster: labelled
groups:
  inside: {{title: Inside, role: training, sensitive: true, prefixes: [{prefixes}]}}
exporters:
  sensor: {{address: 127.0.0.9, protocol: netflow, sampling: 1}}
thresholds: {{contact_learning: 0s}}
store: {{url: "{url}", database: labelled, retention: {{raw: 30d, 1m: 90d, 1h: 730d}}}}
bridge: {{state: state}}
"""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--inside", multiple=True, metavar="PREFIX", help="Addresses inside besides private ones.")
def labelled(files: tuple[Path, ...], inside: tuple[str, ...]) -> None:
    """Play each of FILES by itself: one JSON line with totals, alerts by rule, and labels of what they name."""
    for file in files:
        with tempfile.TemporaryDirectory() as folder, LocalInfluxDB(Path(folder) / "influxdb") as influxdb:
            click.echo(json.dumps({"file": str(file), **_played(flows(file), Path(folder), influxdb.url, inside)}))


def flows(file: Path) -> pl.DataFrame:
    """Return connections: start and end (ms), both ends, bytes and packets of both directions, label (may be empty).

    Raises UserError for a file of neither form.
    """
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")
    lines = [line.lstrip() for line in text.splitlines() if line.strip()]
    head = next((line for line in lines if line.startswith("#fields")), "")
    if lines and lines[0].startswith("StartTime"):
        found = _renamed(_table(lines[0], lines[1:], "\t" if "\t" in lines[0] else ","), _ARGUS)
        start = pl.col("start").str.to_datetime("%Y/%m/%d %H:%M:%S%.f", strict=False).dt.epoch("ms")
        found = found.with_columns(
            start.alias("start"),
            *((pl.col(total).cast(pl.Int64, strict=False) - pl.col(sent).cast(pl.Int64, strict=False)).alias(back)
              for total, sent, back in (("total", "bytes", "back"), ("total_packets", "packets", "back_packets"))),
        )  # fmt: skip
    elif head or (lines and lines[0].startswith("{")):
        rows = [line for line in lines if not line.startswith("#")]
        table = _table(head.removeprefix("#fields\t"), rows, "\t") if head else _objects(rows)
        found = _renamed(table, _ZEEK)
        found = found.with_columns(
            (pl.col("start").cast(pl.Float64, strict=False) * 1000).round().cast(pl.Int64).alias("start")
        )
    else:
        raise UserError(f"{file}: neither a conn.log of Zeek nor a binetflow file of Argus")
    return (
        found.with_columns(
            (pl.col("start") + (pl.col("duration").cast(pl.Float64, strict=False).fill_null(0) * 1000).cast(pl.Int64))
            .alias("end"),
            *(pl.col(name).cast(pl.Int64, strict=False).fill_null(0).clip(0, 65_535)
              for name in ("src_port", "dst_port")),
            *(pl.col(name).cast(pl.Int64, strict=False).fill_null(0)
              for name in ("bytes", "packets", "back", "back_packets")),
            pl.col("label").fill_null(""),
        )
        .filter(pl.col("start").is_not_null(), pl.col("protocol").is_in(("tcp", "udp", "icmp", "ipv6-icmp")))
        .with_columns(pl.col("protocol").replace("icmp6", "ipv6-icmp"))
    )  # fmt: skip


def _table(head: str, rows: list[str], separator: str) -> pl.DataFrame:
    text = "\n".join([head, *rows]).encode()
    return pl.read_csv(
        BytesIO(text), separator=separator, infer_schema=False, quote_char=None, truncate_ragged_lines=True
    )


def _objects(rows: list[str]) -> pl.DataFrame:
    names = tuple(_ZEEK.values())
    values: dict[str, list[str | None]] = {name: [] for name in names}
    for row in rows:
        one = json.loads(row)
        for name in names:
            values[name].append(None if one.get(name) is None else str(one[name]))
    return pl.DataFrame(values, schema=dict.fromkeys(names, pl.String()))


def _renamed(table: pl.DataFrame, names: dict[str, str]) -> pl.DataFrame:
    return table.select(
        (pl.col(old).str.strip_chars() if old in table.columns else pl.lit(None, pl.String())).alias(new)
        for new, old in names.items()
    )


def records(found: pl.DataFrame) -> Iterator[str]:
    """Yield the lines that pmacct would print: one for each direction that has bytes."""
    turned = {"src": "dst", "dst": "src", "src_port": "dst_port", "dst_port": "src_port"}
    back = found.select(
        "start", "end", *(pl.col(old).alias(new) for new, old in turned.items()), "protocol",
        pl.col("back").alias("bytes"), pl.col("back_packets").alias("packets"),
    )  # fmt: skip
    both = pl.concat([found.select(back.columns), back]).filter(pl.col("bytes") > 0).sort("start")
    for number, row in enumerate(both.iter_rows(named=True)):
        yield json.dumps({
            "event_type": "purge", "peer_ip_src": "127.0.0.9", "iface_in": 1, "iface_out": 2,
            "ip_src": row["src"], "ip_dst": row["dst"], "port_src": row["src_port"], "port_dst": row["dst_port"],
            "tcp_flags": "24", "ip_proto": row["protocol"], "tos": 0, "sampling_rate": 1,
            "timestamp_start": f"{row['start'] / 1000:.6f}", "timestamp_end": f"{row['end'] / 1000:.6f}",
            "timestamp_arrival": f"{row['end'] / 1000:.6f}", "export_proto_seqno": number,
            "export_proto_version": 9, "export_proto_sysid": 1, "flows": 1,
            "packets": max(row["packets"], 1), "bytes": row["bytes"],
        })  # fmt: skip


def _played(found: pl.DataFrame, folder: Path, url: str, inside: tuple[str, ...]) -> dict[str, Any]:
    # Whole weeks later, so that the store keeps it: hours and days of the week stay.
    week, last = 7 * 24 * _HOUR * 1000, int(found.select(pl.col("end").max()).item())
    weeks = (int(time.time() * 1000) - _HOUR * 1000 - last) // week
    found = found.with_columns(pl.col("start", "end") + weeks * week)
    begin, end = (int(found.select(one).item()) // 1000 for one in (pl.col("start").min(), pl.col("end").max()))
    prefixes = ", ".join(f'"{prefix}"' for prefix in (*PRIVATE, *inside))
    (folder / "cluster.yaml").write_text(_YAML.format(url=url, prefixes=prefixes))
    (folder / "spool").mkdir()
    lines = list(records(found))
    (folder / "spool" / "flows-20200101-0000.json").write_text("".join(f"{line}\n" for line in lines))
    told = _told(folder, begin, end)
    by_rule: dict[str, dict[str, Any]] = {}
    wrong = found.filter(pl.col("label").str.contains("(?i)malicious|malware|botnet"))
    pairs = set(wrong.select("src", "dst").iter_rows())
    for firing in told:
        # The recording's end is no silence of ours: rules without a conversation are left out.
        if not firing["labels"].get("src"):
            continue
        one = by_rule.setdefault(firing["rule"], {"alerts": 0, "of_labelled": 0, "names": []})
        one["alerts"] += 1
        names = [firing["labels"].get(end, "") for end in ("src", "dst")]
        one["of_labelled"] += tuple(names) in pairs or tuple(names[::-1]) in pairs
        if len(one["names"]) < _NAMED:
            one["names"].append(" > ".join(names))
    return {
        "connections": found.height, "labelled_malicious": wrong.height, "hours": round((end - begin) / _HOUR, 1),
        "bytes": sum(json.loads(line)["bytes"] for line in lines), "alerts": by_rule,
    }  # fmt: skip


def _told(folder: Path, begin: int, end: int) -> list[dict[str, Any]]:
    """Return the alerts of a backtest over what the bridge stored and the analysis judged."""
    span = [datetime.fromtimestamp(at, UTC).isoformat() for at in (begin - _HOUR, end + _HOUR)]
    for words in (
        ("ingest", "--once", "--spool", "spool"),
        ("analyze", "--from", span[0], "--to", span[1]),
        ("backtest", "--from", span[0], "--to", span[1], "--json", "told.json"),
    ):
        run = subprocess.run(
            [sys.executable, "-m", "clusterflow", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise UserError(f"clusterflow {words[0]}: {run.stderr.strip().splitlines()[-1:]}")
    said = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    return list(said["firings"])
