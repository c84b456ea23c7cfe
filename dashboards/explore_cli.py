"""The command ``clusterflow explore``: the Explore board's questions in a terminal."""

import json
import time
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from app.errors import UserError
from cluster.cli import cluster_option
from cluster.model import RESERVED_GROUPS, Cluster, Plane, Role
from cluster.options import json_option, period_options, write_output
from store import schema
from store.influx import Store
from store.influxql import Condition, Select, finest, is_in, total
from store.schema_version import opened

_GROUP_BY = {
    "node": schema.NODE,
    "source": schema.SRC_GROUP,
    "destination": schema.DST_GROUP,
    "plane": schema.PLANE,
    "service": schema.SERVICE,
    "protocol": schema.PROTO,
}
_LONGEST = 2 * 3_600, 7 * 86_400
"""Seconds of the longest ranges that are read from `raw` and from `1m`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. No groups are all; plane and service may be None for any; times are epoch seconds."""

    by: str
    source: tuple[str, ...]
    destination: tuple[str, ...]
    plane: str | None
    service: str | None
    start: int
    end: int


def answer(cluster: Cluster, store: Store, question: Question, now: float) -> list[dict[str, str | int | float]]:
    """Return one row for each value of the tag asked for, largest first, with bytes, packets, flows and bit/s.

    By node, nodes of the source group that sent nothing stand there with 0: silence is an answer.
    """
    by_node = question.by == "node"
    tag = _GROUP_BY[question.by]
    seconds = question.end - question.start
    retention = finest(cluster, question.start, question.end, now, _LONGEST)
    measurement = schema.NODE_TRAFFIC if by_node else schema.TRAFFIC
    fields = (schema.TX_BYTES, schema.TX_PACKETS, schema.FLOWS) if by_node else (
        schema.BYTES, schema.PACKETS, schema.FLOWS,
    )  # fmt: skip
    source, destination = (schema.GROUP, schema.PEER_GROUP) if by_node else (schema.SRC_GROUP, schema.DST_GROUP)
    plane, service = ([value] if value else [] for value in (question.plane, question.service))
    wanted = {source: question.source, destination: question.destination, schema.PLANE: plane, schema.SERVICE: service}
    conditions: list[Condition] = [is_in(name, list(values)) for name, values in wanted.items() if values]
    # Of a range that begins before all that is kept, hours have most.
    kept = retention.name if retention else schema.HOUR
    select = Select(measurement, kept).take(*map(total, fields)).where(*conditions).by(tag)
    rows: dict[str, dict[str, str | int | float]] = {}
    if by_node:
        members = [node.name for node in cluster.nodes if not question.source or node.group in question.source]
        rows = {name: _row(question.by, name, [0, 0, 0], seconds) for name in members}
    for _, name, *values in store.rows(select.between(question.start, question.end)):
        rows[name] = _row(question.by, name, [int(value or 0) for value in values], seconds)
    return sorted(rows.values(), key=lambda row: (-float(row["bytes"]), str(row[question.by])))


def _row(by: str, name: str, values: list[int], seconds: int) -> dict[str, str | int | float]:
    size, packets, flows = values
    return {by: name, "bytes": size, "packets": packets, "flows": flows, "bits_per_second": size * 8 / seconds}


@click.command()
@cluster_option
@click.option("--by", type=click.Choice(list(_GROUP_BY)), default="node", show_default=True, help="One row for each.")
@click.option("--src", "source", metavar="GROUP", help="Source group, or all groups of a role. Default: any.")
@click.option("--dst", "destination", metavar="GROUP", help="Destination group, or role. Default: any.")
@click.option("--plane", type=click.Choice([plane.value for plane in Plane]), help="Default: any.")
@click.option(
    "--service", metavar="NAME", help="Service, such as https. Not with --by node: nodes are kept without it."
)
@period_options("15m")
@click.option("--order", type=click.Choice(["largest", "smallest"]), default="largest", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows.")
@json_option
def explore(
    cluster: Cluster,
    by: str,
    source: str | None,
    destination: str | None,
    plane: str | None,
    service: str | None,
    start: float,
    stop: float,
    order: str,
    limit: int,
    json_to: str | None,
) -> None:
    """Ask who moved how much: by node, group, plane, service or protocol.

    \b
    Examples:
      clusterflow explore --src training --dst training --plane compute --order smallest    the stragglers
      clusterflow explore --by destination --src model_storage --from 24h                   where models went
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if service and by == "node":
        raise UserError(f"--service {service}: nodes are kept without services", "ask --by service, or leave it out")
    sources, destinations = _groups(cluster, "--src", source), _groups(cluster, "--dst", destination)
    question = Question(by, sources, destinations, plane, service, int(start), int(stop))
    rows = answer(cluster, opened(cluster.store), question, time.time())
    if order == "smallest":
        rows.reverse()
    rows = rows[:limit]
    if json_to:
        write_output(json_to, json.dumps(rows, indent=1) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(by)
    for title in ("bytes", "mean rate", "packets", "flow records"):
        table.add_column(title, justify="right")
    for row in rows:
        rate = f"{float(row['bits_per_second']) / 1e6:,.3f} Mbit/s"
        name = str(row[by])
        shown = cluster.title(name) if by in ("source", "destination") and name in _known(cluster) else name
        table.add_row(shown, f"{row['bytes']:,}", rate, f"{row['packets']:,}", f"{row['flows']:,}")
    Console().print(table if rows else "no traffic like that in this time")


def _known(cluster: Cluster) -> list[str]:
    return [group.id for group in cluster.groups] + list(RESERVED_GROUPS)


def _groups(cluster: Cluster, option: str, text: str | None) -> tuple[str, ...]:
    """Return the groups that an option names: one by its id, or all of a role; none without the option."""
    if text is None:
        return ()
    known = _known(cluster)
    if text in known:
        return (text,)
    if of_role := tuple(group.id for group in cluster.groups if group.role == text):
        return of_role
    roles = [role.value for role in Role if role.value not in known]
    raise UserError(f"{option} {text}: no such group", f"there are {', '.join(known)}; roles: {', '.join(roles)}")
