"""``clusterflow flows``: questions about single conversations, from the flow archive."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from app.errors import UserError
from app.table import Table
from app.units import format_local
from archive import schema
from archive.query import Answer, Filter, archive_folder, ask
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import Moment, OutputFile, json_option, write_output
from operations.questions.flow_questions import DEFAULT_BY, columns_of, completed, document, lacking

Command = TypeVar("Command", bound=Callable[..., Any])

_TIMES = (schema.START, schema.END)
_SUMS = (schema.BYTES, schema.PACKETS, schema.FLOWS)


def _many(option: str, metavar: str, text: str, field: str | None = None) -> Callable[[Command], Command]:
    name = field or option.removeprefix("--")
    return click.option(option, name, multiple=True, metavar=metavar, help=text)


def asking(length: str) -> Callable[[Command], Command]:
    """Add to a command whom, when and how it is asked of the archive, and where the answer goes.

    Args:
        length: of the period, unless it is asked for.
    """
    options: tuple[Callable[[Command], Command], ...] = (
        cluster_option,
        _many("--src", "WHAT", "Source: an address, a prefix, a node, a group or a role."),
        _many("--dst", "WHAT", "Destination, in the same way."),
        _many("--node", "NAME", "Node on either side."),
        _many("--address", "ADDRESS", "Address on either side."),
        _many("--prefix", "PREFIX", "Prefix that has either side."),
        _many("--group", "ID", "Group of either side, or all groups of a role."),
        _many("--exporter", "NAME", "Exporter."),
        _many("--interface", "NAME", "Interface, in or out."),
        click.option("--around", metavar="ALERT", help="Its source, half an hour around it."),
        click.option(
            "--from",
            "start",
            type=Moment(),
            help=f"Begin: a time of the site's zone, or so long ago. [default: {length}]",
        ),
        click.option("--to", "stop", type=Moment(), help="End.  [default: now]"),
        click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Rows."),
        click.option("--all", "show_all", is_flag=True, help="All rows."),
        json_option,
        click.option(
            "--csv",
            "csv_to",
            is_flag=False,
            flag_value="-",
            type=OutputFile(dash=True),
            metavar="[FILE]",
            help="CSV: printed, or written to FILE.",
        ),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command()
@asking("15m")
@click.option("--port", multiple=True, type=click.IntRange(0, 65_535), help="Port of either side.")
@_many("--proto", "NAME", "Protocol, such as tcp.", "protocol")
@click.option("--job", metavar="ID", help="The job's nodes, while it ran.")
@click.option("--by", default=DEFAULT_BY, show_default=True, help="Columns of one row each; `records`: every record.")
@click.option("--order", default=schema.BYTES, show_default=True, help="Column to order by, the largest first.")
@click.option("--parquet", "parquet_to", type=OutputFile(), metavar="FILE", help="Parquet, written to FILE.")
def flows(
    cluster: Cluster,
    job: str | None,
    around: str | None,
    start: float | None,
    stop: float | None,
    by: str,
    order: str,
    top: int,
    show_all: bool,
    json_to: str | None,
    csv_to: str | None,
    parquet_to: str | None,
    **asked: Any,  # noqa: ANN401 - tuples of texts or ports
) -> None:
    """Ask the flow archive who talked to whom, on which ports, when.

    An option may be given several times: any of its values fits. Different options hold together. RDMA that stays in
    the fabric, NVLink and what was said are in no flow record.

    \b
    Examples:
      clusterflow flows --node model-store-01 --from 2026-03-01T14:00 --to 2026-03-01T14:20
      clusterflow flows --src 10.20.0.0/16 --port 4444 --from 24h --by src,dst,dst_port
      clusterflow flows --around 3fa94c1e                         whom the source of an alert talked to
      clusterflow flows --job 4711 --by dst_group,service --csv job.csv
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    question = completed(cluster, Filter(0, 0, **asked), start=start, stop=stop, around=around, job=job)
    most = None if show_all else top
    answer = ask(archive_folder(cluster), question, columns_of(by), order=order, most=most, settings=cluster.archive)
    gaps = lacking(cluster, answer)
    if json_to:
        write_output(json_to, json.dumps(document(answer, gaps, question), indent=1) + "\n")
    if csv_to:
        write_output(csv_to, answer.frame.write_csv())
    if parquet_to:
        _write_parquet(parquet_to, answer.frame)
    if not (json_to or csv_to or parquet_to):
        _show(cluster, answer, gaps, question)
    elif not json_to:
        for gap in gaps:
            click.echo(f"lacks: {gap}", err=True)


def _show(cluster: Cluster, answer: Answer, gaps: Sequence[str], question: Filter) -> None:
    zone = cluster.site.time_zone
    print_rows(answer.frame, zone, "no traffic like that in this time")
    click.echo(
        f"{answer.bytes:,} bytes, {answer.share:.2%} of all traffic ({answer.all_bytes:,}) from "
        f"{period_words(question, zone)}"
    )
    if answer.suppressed_bytes:
        click.echo(f"left out: {answer.suppressed_bytes:,} bytes that another exporter counts")
    for gap in gaps:
        click.echo(f"lacks: {gap}")


def period_words(question: Filter, zone: ZoneInfo) -> str:
    """Return the period of a question as people read it."""
    begin, end = (format_local(moment, zone) for moment in (question.start, question.stop))
    return f"{begin} to {end} ({zone.key})"


def print_rows(frame: pl.DataFrame, zone: ZoneInfo, nothing: str) -> None:
    """Print rows as a table, times in a zone; `nothing` where there are none."""
    table = Table(box=None, pad_edge=False)
    for name, kind in frame.schema.items():
        is_number = kind.is_numeric() and name not in _TIMES
        table.add_column(f"{name} ({zone.key})" if name in _TIMES else name, justify="right" if is_number else "left")
    for row in frame.iter_rows():
        # Names come from flow records and files: shown, never interpreted.
        table.add_row(*(Text(_shown(name, value, zone)) for name, value in zip(frame.columns, row, strict=True)))
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table if frame.height else nothing)


def _shown(name: str, value: Any, zone: ZoneInfo) -> str:  # noqa: ANN401 - of any column
    if name in _TIMES and value is not None:
        return format_local(value, zone)
    return f"{value:,}" if name in _SUMS else str(value)


def _write_parquet(path: str, frame: pl.DataFrame) -> None:
    # Polars' own errors of a disk are none of the system's.
    packed = io.BytesIO()
    frame.write_parquet(packed, compression="zstd")
    try:
        Path(path).write_bytes(packed.getbuffer())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "choose a file that you can write") from error
