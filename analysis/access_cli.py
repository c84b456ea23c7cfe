"""``clusterflow access``."""

import csv
import io
import json
import sys
import time
from datetime import datetime

import click
import polars as pl
from rich.console import Console

from analysis.detectors.inference.access import EVERY
from analysis.detectors.inference.asked import identity_of
from app.application import rows_shown
from app.table import Table
from app.units import format_moment
from app.words import amount, harmless
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import OutputFile, json_option, period_options, write_output
from enrichment.addresses.host_files import as_stored
from store import schema
from store.influx import Store
from store.influxql import Condition, is_in
from store.packed import told_apart, unpacked
from store.points import WINDOW, columns
from store.schema_version import opened
from store.sums import binned

_SHOWN = 50
"""Rows that are printed; exports have all."""

_DAY = 86_400
_FIRST, _LAST = "first", "last"
_BYTES, _FLOWS = schema.BYTES.name, schema.FLOWS.name
_COLUMNS = (*schema.ACCESS.tags, _BYTES, _FLOWS, _FIRST, _LAST)


@click.command()
@cluster_option
@period_options("7d")
@click.option("--user", help="Only this user: a name, or a pseudonym.")
@click.option("--src", help="Only this address or node.")
@click.option("--csv", "csv_path", type=OutputFile(dash=True), help="Write all rows as CSV (- prints them).")
@json_option
def access(
    cluster: Cluster,
    start: float,
    stop: float,
    user: str | None,
    src: str | None,
    csv_path: str | None,
    json_to: str | None,
) -> None:
    """Report who called which service of inference and management: from where, when, how much.

    \b
    Examples:
      clusterflow access                                       the last week
      clusterflow access --user alice --from 30d
      clusterflow access --from 2026-03-01 --to 2026-04-01 --csv march.csv

    A row is a user, an address and a service, with all that was sent. Management has its unexpected connections only.
    Times are those of five minutes each. Where names are pseudonyms, --user takes either. Nothing is changed.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    where = [] if src is None else [is_in(schema.SRC, [as_stored(src)])]
    if user is not None:
        where.append(is_in(schema.USER, [identity_of(cluster).names.listed(user) or schema.UNKNOWN_USER]))
    with opened(cluster.store) as store:
        rows = accessed(store, int(start), min(int(stop), int(time.time())), where)
    printed = False
    for path, text in ((csv_path, _csv), (json_to, _json)):
        if path is not None:
            write_output(path, text(rows))
            printed |= path == "-"
    if not printed:
        width = None if sys.stdout.isatty() else 200
        _show(cluster, rows, Console(width=width, highlight=False, markup=False, emoji=False))


def accessed(store: Store, start: int, stop: int, where: list[Condition]) -> pl.DataFrame:
    """Return what was asked in a period, the largest first: the tags of ACCESS, bytes, flows, first and last.

    Args:
        store: asked.
        start: epoch seconds; a part of five minutes at the begin counts as a whole.
        stop: epoch seconds, as well.
        where: further conditions.
    """
    # A row stands at the end of its five minutes.
    first, last = (start // EVERY + 1) * EVERY, (-(-stop // EVERY) + 1) * EVERY
    days = [_day(store, one, min(one + _DAY, last), where) for one in range(first, last, _DAY)]
    return (
        pl.concat(days or [_day(store, first, first, where)])
        .group_by(schema.ACCESS.tags)
        .agg(pl.sum(_BYTES, _FLOWS), pl.min(_FIRST), pl.max(_LAST))
        .sort(_BYTES, *schema.ACCESS.tags, descending=[True, *[False] * len(schema.ACCESS.tags)])
    )


def _day(store: Store, start: int, stop: int, where: list[Condition]) -> pl.DataFrame:
    """Return the sums of rows in [start, stop): of thousands of clients memory holds no more than a day of rows."""
    fields = schema.BYTES, schema.FLOWS
    named = binned(
        store, schema.ACCESS, schema.ACCESS.kept, fields, schema.ACCESS.tags,
        start=start, stop=stop, seconds=EVERY, where=where,
    )  # fmt: skip
    kinds = columns(*schema.ACCESS.tags, *fields)
    rest = unpacked(store, schema.ACCESS_UNNAMED, kinds, start=start, stop=stop, where=where)
    return (
        told_apart(named.select(*kinds), rest, [WINDOW, schema.DST_GROUP])
        .filter(pl.col(_BYTES).fill_null(0) + pl.col(_FLOWS).fill_null(0) > 0)
        .group_by(schema.ACCESS.tags)
        .agg(pl.sum(_BYTES, _FLOWS), (pl.min(WINDOW) - EVERY).alias(_FIRST), pl.max(WINDOW).alias(_LAST))
    )


def share_of_other(rows: pl.DataFrame) -> float:
    """Return the part of the bytes, 0 to 1, of which source or destination is `other`."""
    ends = [pl.col(tag) == schema.OTHER for tag in (schema.SRC, schema.DST) if tag in rows.columns]
    volume, rest = pl.col(_BYTES), pl.any_horizontal(ends)
    share = rows.select(volume.filter(rest).sum() / volume.sum()).item() if rows.height else None
    return float(share or 0.0)


def _plain(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Return rows for exports: times in UTC, nothing where no user is known."""
    return [
        {name: row[name] for name in _COLUMNS}
        | {name: format_moment(row[name]) for name in (_FIRST, _LAST)}
        | {schema.USER: "" if row[schema.USER] == schema.UNKNOWN_USER else row[schema.USER]}
        for row in rows.iter_rows(named=True)
    ]


def _csv(rows: pl.DataFrame) -> str:
    output = io.StringIO()
    writer = csv.DictWriter(output, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in row.items()} for row in _plain(rows))
    return output.getvalue()


def _json(rows: pl.DataFrame) -> str:
    return json.dumps(_plain(rows), indent=2) + "\n"


def _show(cluster: Cluster, rows: pl.DataFrame, console: Console) -> None:
    if rows.is_empty():
        hint = "" if cluster.identity.sources or cluster.inference.access else ": cluster.yaml has no identity"
        console.print(f"nothing is stored of that period{hint}", markup=False)
        return
    zone = cluster.site.time_zone
    table = Table("user", "from", "group", "country", "network", "asked", "service", "sent", "records",
                  f"first ({zone.key})", "last", box=None)  # fmt: skip
    for row in rows.head(rows_shown(_SHOWN)).iter_rows(named=True):
        table.add_row(
            row[schema.USER],
            row[schema.SRC],
            _title(cluster, row[schema.SRC_GROUP]),
            row[schema.COUNTRY],
            row[schema.NETWORK],
            _title(cluster, row[schema.DST_GROUP]),
            row[schema.SERVICE],
            amount(row[_BYTES]),
            f"{row[_FLOWS]:,}",
            *(datetime.fromtimestamp(row[name], zone).strftime("%Y-%m-%d %H:%M") for name in (_FIRST, _LAST)),
        )
    console.print(table)
    if share := share_of_other(rows):
        console.print(f"{share:.1%} of these bytes are of other: clients of which nothing more is kept")
    if rows.height > rows_shown(_SHOWN):
        console.print(f"{rows.height - _SHOWN:,} more: -v shows, --csv and --json write all of them")


def _title(cluster: Cluster, group: str) -> str:
    known = {one.id for one in cluster.groups}
    return cluster.title(group) if group in known or group == "external" else group
