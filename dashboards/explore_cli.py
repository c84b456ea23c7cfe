"""The command ``clusterflow explore``: the Explore board's questions in a terminal."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.console import Console

from analysis.jobs.register import runs_of
from app.errors import UserError
from app.table import Table
from cluster.cli import cluster_option
from cluster.model import Cluster, Plane
from cluster.options import Moment, json_option, write_output
from store import schema
from store.influx import Store
from store.influxql import Condition, Select, finest, is_in, total, window_seconds
from store.schema_version import opened

_FLOWS = {"bytes": schema.BYTES, "packets": schema.PACKETS, "flows": schema.FLOWS}
# Records are kept of what a node sent and received together.
_SENT = {"bytes": schema.TX_BYTES, "packets": schema.TX_PACKETS}
_BOTH = {"in": schema.IN_BYTES, "out": schema.OUT_BYTES}
_GROUP_BY = {
    "node": schema.NODE,
    "source": schema.SRC_GROUP,
    "destination": schema.DST_GROUP,
    "plane": schema.PLANE,
    "service": schema.SERVICE,
    "protocol": schema.PROTO,
    "interface": schema.INTERFACE,
}
_OF_NODES = {schema.SRC_GROUP: schema.GROUP, schema.DST_GROUP: schema.PEER_GROUP}
"""What the tags of traffic between groups are called where nodes are kept."""
_LONGEST = 2 * 3_600, 7 * 86_400
"""Seconds of the longest ranges that are read from `raw` and from `1m`."""
_PERIOD = 900

Row = dict[str, str | int | float]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Empty alternatives are all; times are epoch seconds.

    Attributes:
        by: a key of the tags above.
        source, destination: groups.
        node: names; then only what these nodes sent.
        exporter, interface: names, of interfaces only.
    """

    by: str
    start: int
    end: int
    source: tuple[str, ...] = ()
    destination: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    plane: tuple[str, ...] = ()
    service: tuple[str, ...] = ()
    exporter: tuple[str, ...] = ()
    interface: tuple[str, ...] = ()


def answer(cluster: Cluster, store: Store, question: Question, now: float) -> list[Row]:
    """Return one row for each value of the tag asked for, largest first, with its sums and bit/s.

    By node, nodes that are asked for and sent nothing stand there with 0: silence is an answer. Windows of which a part
    is asked for count whole.
    """
    by = question.by
    measurement, names = schema.TRAFFIC, dict[str, str]()
    fields = _FLOWS
    if by == "interface":
        measurement, fields = schema.INTERFACE_TRAFFIC, _BOTH
    elif by == "node" or question.node:
        measurement, fields, names = schema.NODE_TRAFFIC, _SENT, _OF_NODES
    wanted = {
        schema.SRC_GROUP: question.source, schema.DST_GROUP: question.destination, schema.NODE: question.node,
        schema.PLANE: question.plane, schema.SERVICE: question.service, schema.EXPORTER: question.exporter,
        schema.INTERFACE: question.interface,
    }  # fmt: skip
    conditions: list[Condition] = [is_in(names.get(tag, tag), values) for tag, values in wanted.items() if values]
    tags = [names.get(_GROUP_BY[by], _GROUP_BY[by])]
    if by == "interface":
        tags.insert(0, schema.EXPORTER)
    retention = finest(cluster, question.start, question.end, now, _LONGEST)
    # Of a range that begins before all that is kept, hours have most.
    kept = retention.name if retention else schema.HOUR
    # Whole windows: an hour's bytes are not those of the quarter in which it began.
    window = window_seconds(cluster, kept)
    start, end = question.start // window * window, -(-question.end // window) * window
    seconds = min(end, int(now)) - start
    select = Select(measurement, kept).take(*map(total, fields.values())).where(*conditions).by(*tags)
    found: dict[str, list[int]] = {}
    if by == "node":
        members = (node for node in cluster.nodes if not question.source or node.group in question.source)
        found = {node.name: [0] * len(fields) for node in members if not question.node or node.name in question.node}
    for _, *values in store.rows(select.between(start, end)):
        found[" ".join(values[: len(tags)])] = [int(value or 0) for value in values[len(tags) :]]
    rows = (_row(by, name, dict(zip(fields, values, strict=True)), seconds) for name, values in found.items())
    return sorted(rows, key=lambda row: (-float(row["bytes"]), str(row[by])))


def _row(by: str, name: str, sums: dict[str, int], seconds: int) -> Row:
    volume = sums["bytes"] if "bytes" in sums else sum(sums.values())
    return {by: name, "bytes": volume, **sums, "bits_per_second": volume * 8 / seconds}


def _many(option: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(option, multiple=True, metavar=metavar, help=text)


@click.command()
@cluster_option
@click.option("--by", type=click.Choice(list(_GROUP_BY)), default="node", show_default=True, help="One row for each.")
@_many("--src", "WHAT", "Source: a group, all groups of a role, or a node.")
@_many("--dst", "WHAT", "Destination: a group, or all groups of a role.")
@_many("--node", "NAME", "Only what this node sent.")
@click.option("--job", metavar="ID", help="What the job's nodes sent, while it ran.")
@click.option("--plane", multiple=True, type=click.Choice([plane.value for plane in Plane]), help="Default: any.")
@_many("--service", "NAME", "Service, such as https. Not of nodes: they are kept without it.")
@_many("--exporter", "NAME", "Exporter of interfaces.")
@_many("--interface", "NAME", "Interface, with --by interface.")
@click.option("--from", "start", type=Moment(), help="Begin: a time of the site's zone, or so long ago. [default: 15m]")
@click.option("--to", "stop", type=Moment(), help="End.  [default: now]")
@click.option("--order", type=click.Choice(["largest", "smallest"]), default="largest", show_default=True)
@click.option("--top", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows.")
@json_option
def explore(
    cluster: Cluster,
    by: str,
    src: tuple[str, ...],
    dst: tuple[str, ...],
    node: tuple[str, ...],
    job: str | None,
    start: float | None,
    stop: float | None,
    order: str,
    top: int,
    json_to: str | None,
    **asked: tuple[str, ...],
) -> None:
    """Ask who moved how much: by node, group, plane, service, protocol or interface.

    An option may be given several times: any of its values fits. Of addresses, ports and single conversations
    `clusterflow flows` tells, in the same words.

    \b
    Examples:
      clusterflow explore --src training --dst training --plane compute --order smallest    the stragglers
      clusterflow explore --job 4711 --by destination                                       where a job's bytes went
      clusterflow explore --by interface --exporter border-01 --from 2026-03-01T14:00 --to 2026-03-01T14:20
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    known = {one.name for one in cluster.nodes}
    for name in node:
        if name not in known:
            raise UserError(f"--node {name}: no such node", "the inventory names them; of addresses, ask `flows`")
    nodes = (*node, *(text for text in src if text in known))
    sources = tuple(group for text in src if text not in known for group in cluster.groups_of(text, "--src"))
    destinations = tuple(group for text in dst for group in cluster.groups_of(text, "--dst"))
    if job:
        of_job, begin, end = runs_of(cluster, job)
        nodes, start, stop = (*nodes, *of_job), begin if start is None else start, end if stop is None else stop
    now = time.time()
    stop = now if stop is None else stop
    start = stop - _PERIOD if start is None else start
    # Moments that were "now" a blink ago are no period.
    if min(stop, now) - start < 1:
        raise UserError("the period is empty", "--from must be before --to, and before now")
    question = Question(by, int(start), int(stop), sources, destinations, nodes, **asked)
    _refuse(question)
    rows = answer(cluster, opened(cluster.store), question, now)
    if order == "smallest":
        rows.reverse()
    rows = rows[:top]
    if json_to:
        write_output(json_to, json.dumps(rows, indent=1) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(by)
    sums = [one for one in ("bytes", "in", "out", "packets", "flows") if rows and one in rows[0]]
    for title in ("bytes", "mean rate", *sums[1:]):
        table.add_column({"flows": "flow records"}.get(title, title), justify="right")
    for row in rows:
        rate = f"{float(row['bits_per_second']) / 1e6:,.3f} Mbit/s"
        name = str(row[by])
        shown = cluster.title(name) if by in ("source", "destination") and name in cluster.group_ids() else name
        size, *others = (f"{row[one]:,}" for one in sums)
        table.add_row(shown, size, rate, *others)
    nothing = "no traffic like that in this time"
    if by == "node" and not cluster.nodes:
        nothing = "cluster.yaml lists no nodes: ask --by source or another"
    # Titles of groups and addresses are shown, never interpreted.
    Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False).print(table if rows else nothing)


def _refuse(question: Question) -> None:
    """Refuse what no measurement keeps together."""
    of_nodes = question.by == "node" or question.node
    if question.by == "interface":
        named = {"--src, --dst, --node or --job": question.source or question.destination or question.node,
                 "--service": question.service}  # fmt: skip
        if wrong := next((option for option, values in named.items() if values), None):
            raise UserError(f"{wrong}: interfaces are kept without it", "ask `clusterflow flows --interface NAME`")
    elif question.exporter or question.interface:
        raise UserError("--exporter, --interface: of interfaces only", "ask --by interface, or `clusterflow flows`")
    elif of_nodes and question.service:
        text = ", ".join(question.service)
        raise UserError(f"--service {text}: nodes are kept without services", "ask --by service, or leave it out")
    elif of_nodes and question.by in ("service", "protocol"):
        raise UserError(f"--by {question.by}: nodes are kept without it", "ask `clusterflow flows`, in the same words")
