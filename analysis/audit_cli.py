"""``clusterflow audit``."""

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import polars as pl
from rich.console import Console
from rich.text import Text

from analysis.access_cli import share_of_other
from analysis.audit import FIRST, LAST, Audit, Permit, period_of
from analysis.audit import audit as audit_of
from app.application import rows_shown
from app.table import Table
from app.units import format_duration, format_moment
from app.words import amount, lasting
from cluster.cli import cluster_option
from cluster.model import ANY, Cluster, Transport
from cluster.options import OutputFile, check_signing, json_option, period_options, sign_option, write_output
from store import schema
from store.schema_version import opened

_SHOWN = 20
"""Rows of a table that are printed; exports have all."""

FAILURES: Mapping[str, Callable[[Audit], bool]] = {
    "violations": lambda found: found.violations.height > 0,
    "shadows": lambda found: found.shadows.height > 0,
    "wrong-plane": lambda found: found.wrong_plane.height > 0,
    "management": lambda found: found.management.height > 0,
    "unused": lambda found: bool(found.unused()),
    "gaps": lambda found: bool(found.silences or found.blind),
}
"""What ``--fail-on`` may name -> whether the audit has it."""

FINDINGS = ("violations", "shadows", "wrong-plane", "management")
"""What ``--fail-on any`` stands for: what happened, not what did not."""


@click.command()
@cluster_option
@period_options("7d")
@click.option("--csv", "csv_path", type=OutputFile(dash=True), help="Write all rows as CSV (- prints them).")
@json_option
@sign_option
@click.option(
    "--fail-on",
    "fail_on",
    type=click.Choice([*FAILURES, "any"]),
    multiple=True,
    help="End with 1 if the audit has it; any: violations, shadows, wrong-plane or management. May be repeated.",
)
def audit(
    cluster: Cluster,
    start: float,
    stop: float,
    csv_path: str | None,
    json_to: str | None,
    key: Path | None,
    fail_on: tuple[str, ...],
) -> None:
    """Report on a period: what broke the segmentation, unused permits, and what could not be seen.

    \b
    Examples:
      clusterflow audit                                        the last week
      clusterflow audit --from 2026-03-01 --to 2026-04-01 --csv march.csv
      clusterflow audit --from 1d --fail-on any                for a nightly job
      clusterflow audit --csv march.csv --sign audit-key.pem   whoever has the public key can check march.csv.sig

    Lists all conversations that `allowed` does not permit, shadow nodes, storage traffic on the compute plane, and
    unexpected management connections, whichever alert reported them; permits of `allowed` without a byte; group pairs
    and times of which flow records say nothing. Nothing is changed.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    check_signing(key, (csv_path, json_to))
    period = period_of(cluster, start, stop, time.time())
    with opened(cluster.store) as store:
        found = audit_of(cluster, store, period)
    printed = False
    for path, text in ((csv_path, _csv), (json_to, _json)):
        if path is not None:
            write_output(path, text(cluster, found), key)
            printed |= path == "-"
    if not printed:
        width = None if sys.stdout.isatty() else 200
        _show(cluster, found, Console(width=width, highlight=False, markup=False, emoji=False))
    wanted = {one for name in fail_on for one in (FINDINGS if name == "any" else (name,))}
    if any(FAILURES[name](found) for name in wanted):
        sys.exit(1)


# -- exports ---------------------------------------------------------------------------------------------

_COLUMNS = (
    "section", schema.SRC_GROUP, schema.SRC, schema.DST_GROUP, schema.DST, schema.PROTO, schema.SERVICE,
    schema.BYTES.name, schema.TX_BYTES.name, schema.RX_BYTES.name, schema.FLOWS.name, FIRST, LAST, "note",
)  # fmt: skip
"""Columns of the CSV: one table for all sections, empty where a column says nothing. Bytes; times in UTC."""


def _rows(cluster: Cluster, found: Audit) -> Iterable[dict[str, object]]:
    for section, frame in _talks(found):
        for row in frame.iter_rows(named=True):
            yield {"section": section, **row, FIRST: format_moment(row[FIRST]), LAST: format_moment(row[LAST])}
        if share := share_of_other(frame):
            yield {"section": section, "note": f"{share:.1%} of these bytes are of other: beyond the names of a window"}
    for row in found.clients.iter_rows(named=True):
        times = {FIRST: format_moment(row[FIRST]), LAST: format_moment(row[LAST])}
        told = {name: value for name, value in row.items() if name in _COLUMNS}
        yield {"section": "unauthorised_client", **told, **times, "note": f"user {row[schema.USER]}"}
    for row in found.shadows.iter_rows(named=True):
        times = {FIRST: format_moment(row[FIRST]), LAST: format_moment(row[LAST])}
        numbers = {field.name: row[field.name] for field in (schema.BYTES, schema.TX_BYTES, schema.FLOWS)}
        received = {schema.RX_BYTES.name: row[schema.BYTES.name] - row[schema.TX_BYTES.name]}
        who = {schema.SRC_GROUP: row[schema.GROUP], schema.SRC: row[schema.ADDRESS]}
        yield {"section": "shadow_node", **who, **numbers, **received, **times}
    for permit in found.permits:
        pair = {schema.SRC_GROUP: permit.src, schema.DST_GROUP: permit.dst, schema.BYTES.name: permit.bytes}
        yield {"section": "permit", **pair, "note": f"{permit.state}; {_entry(permit)}{_declared(permit)}"}
    for silence in found.silences:
        note = f"silent for {silence.seconds} s in {silence.stretches} stretches, the longest {silence.longest} s"
        yield {"section": "silent_exporter", schema.SRC: silence.exporter, "note": note}
    if found.blind:
        yield {"section": "nothing_stored", "note": f"{found.blind} s without any flow record"}
    for src, dst, transport in _hidden(cluster):
        note = f"declared {transport.value}: flow records do not see it"
        yield {"section": "not_visible", schema.SRC_GROUP: src, schema.DST_GROUP: dst, "note": note}


def _csv(cluster: Cluster, found: Audit) -> str:
    output = io.StringIO()
    writer = csv.DictWriter(output, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(cluster, found))
    return output.getvalue()


def _json(cluster: Cluster, found: Audit) -> str:
    def talks(frame: pl.DataFrame) -> list[dict[str, Any]]:
        return [
            row | {FIRST: format_moment(row[FIRST]), LAST: format_moment(row[LAST])}
            for row in frame.iter_rows(named=True)
        ]

    period = found.period
    document = {
        "cluster": cluster.name,
        "period": {
            "from": format_moment(period.start),
            "to": format_moment(period.stop),
            "retention": period.retention,
            "window_seconds": period.window,
        },
        "violations": talks(found.violations),
        "shadow_nodes": talks(found.shadows),
        "unknown_addresses_that_were_only_called": found.only_called,
        "storage_on_compute_plane": talks(found.wrong_plane),
        "unexpected_management_connections": talks(found.management),
        "unauthorised_clients": talks(found.clients),
        "share_of_bytes_of_other": {section: share_of_other(frame) for section, frame in _talks(found)},
        "permits": [
            {
                schema.SRC_GROUP: permit.src,
                schema.DST_GROUP: permit.dst,
                "entry": {"from": permit.entry.src, "to": permit.entry.dst},
                schema.BYTES.name: permit.bytes,
                "state": permit.state,
                "transport": permit.transport.value,
            }
            for permit in found.permits
        ],
        "visibility": {
            "not_visible": [
                {schema.SRC_GROUP: src, schema.DST_GROUP: dst, "transport": transport.value}
                for src, dst, transport in _hidden(cluster)
            ],
            "silent_exporters": [
                {
                    schema.EXPORTER: silence.exporter,
                    "seconds": silence.seconds,
                    "stretches": silence.stretches,
                    "longest_seconds": silence.longest,
                    "never_heard": silence.never,
                }
                for silence in found.silences
            ],
            "resolution_seconds": found.resolution,
            "seconds_without_any_record": found.blind,
            schema.EXPORTER_RECORDS.name: found.records,
            "records_lost": found.lost,
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _talks(found: Audit) -> tuple[tuple[str, pl.DataFrame], ...]:
    return (
        ("violation", found.violations),
        ("storage_on_compute_plane", found.wrong_plane),
        ("unexpected_management_connection", found.management),
    )


def _hidden(cluster: Cluster) -> Iterable[tuple[str, str, Transport]]:
    """Yield the pairs of groups of which flow records cannot say anything, each pair once."""
    ids = [group.id for group in cluster.groups]
    for place, src in enumerate(ids):
        for dst in ids[place:]:
            transport = cluster.transport_of(src, dst)
            if not transport.is_visible:
                yield src, dst, transport


def _entry(permit: Permit) -> str:
    return f"allowed: {permit.entry.src} -> {permit.entry.dst}"


def _declared(permit: Permit) -> str:
    return "" if permit.transport is Transport.TCP else f"; declared {permit.transport.value}"


# -- what is printed -------------------------------------------------------------------------------------


def _show(cluster: Cluster, found: Audit, console: Console) -> None:
    period = found.period
    length = format_duration(period.stop - period.start)
    console.print(
        Text(cluster.name, "bold"),
        f"{format_moment(period.start)} to {format_moment(period.stop)} ({length}), "
        f"windows of {format_duration(period.window)}",
        sep=", ",
    )
    _show_talks(cluster, console, "Violations of `allowed`", found.violations)
    _show_clients(cluster, console, found)
    _show_shadows(cluster, console, found)
    _show_talks(cluster, console, "Storage traffic on the compute plane", found.wrong_plane)
    _show_talks(cluster, console, "Unexpected management connections", found.management)
    _show_permits(cluster, console, found)
    _show_visibility(cluster, console, found)


def _heading(console: Console, title: str, number: int) -> None:
    console.print(Text.assemble("\n", (title, "bold"), f": {number or 'none'}"))


def _show_talks(cluster: Cluster, console: Console, title: str, frame: pl.DataFrame) -> None:
    _heading(console, title, frame.height)
    if frame.is_empty():
        return
    table = Table("source", "group", "destination", "group", "service", "sent", "received", "records", "first", "last",
                  box=None)  # fmt: skip
    for row in frame.head(rows_shown(_SHOWN)).iter_rows(named=True):
        table.add_row(
            row[schema.SRC],
            _title(cluster, row[schema.SRC_GROUP]),
            row[schema.DST],
            _title(cluster, row[schema.DST_GROUP]),
            f"{row[schema.PROTO]}/{row[schema.SERVICE]}",
            amount(row[schema.TX_BYTES.name]),
            amount(row[schema.RX_BYTES.name]),
            f"{row[schema.FLOWS.name]:,}",
            format_moment(row[FIRST]),
            format_moment(row[LAST]),
        )
    console.print(table)
    _more(console, frame.height)
    if share := share_of_other(frame):
        console.print(f"{share:.1%} of these bytes are of other: beyond the names of a window")


def _show_clients(cluster: Cluster, console: Console, found: Audit) -> None:
    if found.clients.is_empty():
        return
    _heading(console, "Clients of inference that may not ask, all of them", found.clients.height)
    table = Table("user", "client", "group", "asked", "service", "sent", "records", "first", "last", box=None)
    for row in found.clients.head(rows_shown(_SHOWN)).iter_rows(named=True):
        table.add_row(
            row[schema.USER], row[schema.SRC], _title(cluster, row[schema.SRC_GROUP]),
            _title(cluster, row[schema.DST_GROUP]), row[schema.SERVICE], amount(row[schema.BYTES.name]),
            f"{row[schema.FLOWS.name]:,}", format_moment(row[FIRST]), format_moment(row[LAST]),
        )  # fmt: skip
    console.print(table)
    _more(console, found.clients.height)


def _show_shadows(cluster: Cluster, console: Console, found: Audit) -> None:
    _heading(console, "Shadow nodes: addresses that sent and that no inventory knows", found.shadows.height)
    if found.shadows.height:
        table = Table("address", "group", "sent", "received", "records", "first", "last", box=None)
        for row in found.shadows.head(rows_shown(_SHOWN)).iter_rows(named=True):
            sent, both = row[schema.TX_BYTES.name], row[schema.BYTES.name]
            table.add_row(
                row[schema.ADDRESS],
                _title(cluster, row[schema.GROUP]),
                amount(sent),
                amount(both - sent),
                f"{row[schema.FLOWS.name]:,}",
                format_moment(row[FIRST]),
                format_moment(row[LAST]),
            )
        console.print(table)
        _more(console, found.shadows.height)
    if found.only_called:
        console.print(f"{found.only_called:,} more unknown addresses were only called: nothing shows that they exist")
    listed = {node.group for node in cluster.nodes}
    unjudged = [cluster.title(group.id) for group in cluster.inside_groups() if group.id not in listed]
    if unjudged:
        console.print(f"not judged, as the inventory lists none of their nodes: {', '.join(unjudged)}")


def _show_permits(cluster: Cluster, console: Console, found: Audit) -> None:
    unused = found.unused()
    _heading(console, "Unused permits: pairs of `allowed` without a byte", len(unused))
    table = Table("from", "to", "permitted by", box=None)
    for permit in unused:
        note = f"{_entry(permit)}{' (a wildcard)' if ANY in (permit.entry.src, permit.entry.dst) else ''}"
        table.add_row(_title(cluster, permit.src), _title(cluster, permit.dst), note)
    if unused:
        console.print(table)
    used = sum(permit.bytes > 0 for permit in found.permits)
    total = len(found.permits)
    console.print(f"{used} of {total} pairs were used" if total else "cluster.yaml has no `allowed`")


def _show_visibility(cluster: Cluster, console: Console, found: Audit) -> None:
    hidden = list(_hidden(cluster))
    notes = [
        f"{_title(cluster, src)} and {_title(cluster, dst)}: declared {transport.value}, flow records do not see it"
        for src, dst, transport in hidden
    ]
    for silence in found.silences:
        what = "was never heard" if silence.never else f"was silent for {lasting(silence.seconds)}"
        if silence.stretches > 1:
            what += f" in {silence.stretches} stretches, the longest {lasting(silence.longest)}"
        notes.append(f"exporter {silence.exporter} {what}: what only it sees may be missing above")
    if found.blind:
        notes.append(f"for {lasting(found.blind)} of the period nothing at all is stored")
    if found.lost:
        share = found.lost / (found.lost + found.records)
        notes.append(f"{found.lost:,} flow records ({share:.2%}) were lost on their way to the collector")
    _heading(console, "What could not be seen", len(notes))
    for note in notes:
        console.print(f"  {note}")
    console.print(
        f"An absence above means that no exporter saw it; silences below {lasting(found.resolution)} do not show. "
        "Conversations beyond the largest of a window are summed up as other."
    )


def _more(console: Console, number: int) -> None:
    if number > rows_shown(_SHOWN):
        console.print(f"{number - _SHOWN:,} more: -v shows, --csv and --json write all of them")


def _title(cluster: Cluster, group: str) -> str:
    return group if group == schema.OTHER else cluster.title(group)
