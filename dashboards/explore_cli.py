"""The command ``clusterflow explore``: the Explore board's questions in a terminal."""

import json
import time
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from cluster import schema
from cluster.cli import cluster_option
from cluster.errors import UserError
from cluster.model import RESERVED_GROUPS, Cluster, Plane
from cluster.units import parse_duration
from dashboards.queries import Condition, Select, is_in, total
from ingest.schema_version import opened
from ingest.store import Store

_GROUP_BY = {
    "node": schema.NODE,
    "source": schema.SRC_GROUP,
    "destination": schema.DST_GROUP,
    "plane": schema.PLANE,
    "service": schema.SERVICE,
    "protocol": schema.PROTO,
}
_RAW_UP_TO, _MINUTES_UP_TO = 2 * 3600, 7 * 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Groups, plane and service may be None for any; times are epoch seconds."""

    by: str
    source: str | None
    destination: str | None
    plane: str | None
    service: str | None
    start: int
    end: int


def answer(cluster: Cluster, store: Store, question: Question) -> list[dict[str, str | int | float]]:
    """Return one row for each value of the tag asked for, largest first, with bytes, packets, flows and bit/s.

    By node, nodes of the source group that sent nothing stand there with 0: silence is an answer.
    """
    by_node = question.by == "node"
    tag = _GROUP_BY[question.by]
    seconds = question.end - question.start
    retention = schema.RAW if seconds <= _RAW_UP_TO else schema.MINUTE if seconds <= _MINUTES_UP_TO else schema.HOUR
    measurement = schema.NODE_TRAFFIC if by_node else schema.TRAFFIC
    fields = (schema.TX_BYTES, schema.TX_PACKETS, schema.FLOWS) if by_node else (
        schema.BYTES, schema.PACKETS, schema.FLOWS,
    )  # fmt: skip
    source, destination = (schema.GROUP, schema.PEER_GROUP) if by_node else (schema.SRC_GROUP, schema.DST_GROUP)
    wanted = ((source, question.source), (destination, question.destination), (schema.PLANE, question.plane))
    conditions: list[Condition] = [is_in(name, [value]) for name, value in wanted if value]
    if question.service:
        conditions.append(is_in(schema.SERVICE, [question.service]))
    select = Select(measurement, retention).take(*(total(field) for field in fields)).where(*conditions).by(tag)
    influxql = select.text().replace("$timeFilter", f"time >= {question.start}s AND time < {question.end}s")
    rows: dict[str, dict[str, str | int | float]] = {}
    if by_node:
        members = [node.name for node in cluster.nodes if question.source in (None, node.group)]
        rows = {name: _row(question.by, name, [0, 0, 0], seconds) for name in members}
    for series in store.query(influxql):
        name = series.tags[tag]
        rows[name] = _row(question.by, name, [int(value or 0) for value in series.values[0][1:]], seconds)
    return sorted(rows.values(), key=lambda row: (-float(row["bytes"]), str(row[question.by])))


def _row(by: str, name: str, values: list[int], seconds: int) -> dict[str, str | int | float]:
    size, packets, flows = values
    return {by: name, "bytes": size, "packets": packets, "flows": flows, "bits_per_second": size * 8 / seconds}


@click.command()
@cluster_option
@click.option("--by", type=click.Choice(list(_GROUP_BY)), default="node", show_default=True, help="One row for each.")
@click.option("--from", "source", metavar="GROUP", help="Source group. Default: any.")
@click.option("--to", "destination", metavar="GROUP", help="Destination group. Default: any.")
@click.option("--plane", type=click.Choice([plane.value for plane in Plane]), help="Default: any.")
@click.option(
    "--service", metavar="NAME", help="Service, such as https. Not with --by node: nodes are kept without it."
)
@click.option("--since", default="15m", show_default=True, metavar="TIME", help="How far back, such as 15m, 6h or 30d.")
@click.option("--order", type=click.Choice(["largest", "smallest"]), default="largest", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows.")
@click.option("--json", "as_json", is_flag=True, help="JSON: a list of objects.")
def explore(
    cluster: Cluster,
    by: str,
    source: str | None,
    destination: str | None,
    plane: str | None,
    service: str | None,
    since: str,
    order: str,
    limit: int,
    as_json: bool,
) -> None:
    """Ask who moved how much: by node, group, plane, service or protocol.

    \b
    Examples:
      clusterflow explore --from training --to training --plane compute --order smallest    the stragglers
      clusterflow explore --by destination --from model_storage --since 24h                 where models went
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    known = [group.id for group in cluster.groups] + list(RESERVED_GROUPS)
    for option, group in (("--from", source), ("--to", destination)):
        if group is not None and group not in known:
            raise UserError(f"{option} {group}: no such group", f"there are {', '.join(known)}")
    if service and by == "node":
        raise UserError(f"--service {service}: nodes are kept without services", "ask --by service, or leave it out")
    end = int(time.time())
    try:
        seconds = int(parse_duration(since))
    except ValueError:
        seconds = 0
    if not 0 < seconds < end:
        raise UserError(f"--since {since}: expected a duration", "such as 15m, 6h or 30d")
    question = Question(by, source, destination, plane, service, end - seconds, end)
    rows = answer(cluster, opened(cluster.store), question)
    if order == "smallest":
        rows.reverse()
    rows = rows[:limit]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(by)
    for title in ("bytes", "mean rate", "packets", "flow records"):
        table.add_column(title, justify="right")
    for row in rows:
        rate = f"{float(row['bits_per_second']) / 1e6:,.3f} Mbit/s"
        name = str(row[by])
        shown = cluster.title(name) if by in ("source", "destination") and name in known else name
        table.add_row(shown, f"{row['bytes']:,}", rate, f"{row['packets']:,}", f"{row['flows']:,}")
    Console().print(table if rows else "no traffic like that in this time")


EXPLORE_COMMANDS: list[click.Command] = [explore]
