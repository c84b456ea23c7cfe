"""``clusterflow sessions``: who administered what, from the flow archive."""

import json
from pathlib import Path
from typing import Any

import click
import polars as pl

from analysis.detectors.management.sessions import BEGUN_BEFORE, CONNECTIONS, GOES_ON, RECEIVED, SENT, by_pair
from app.units import format_moment
from app.words import amount, harmless, lasting
from archive import schema
from archive.query import Filter
from cluster.model import Cluster
from cluster.options import check_signing, sign_option, write_output
from operations.questions.flow_questions import completed, lacking
from operations.questions.flows_cli import asking, period_words, print_rows
from operations.questions.session_questions import sessions_of
from store.schema import COUNTRY, USER

_DAY = 86_400
_PAIR = (
    schema.SRC_NODE, schema.SRC_GROUP, COUNTRY, USER, schema.DST_NODE, schema.DST_GROUP, schema.SERVICE,
)  # fmt: skip
_CANNOT = "Flow records tell neither what was typed nor whether a login succeeded."


@click.command()
@asking("24h")
@click.option("--service", "services", multiple=True, metavar="NAME", help="Only this service, such as ssh.")
@click.option("--user", "users", multiple=True, metavar="NAME", help="Only this user: a name, or a pseudonym.")
@click.option("--pairs", is_flag=True, help="How often, how long, how much: a row a source, destination and service.")
@sign_option
def sessions(
    cluster: Cluster,
    around: str | None,
    start: float | None,
    stop: float | None,
    services: tuple[str, ...],
    users: tuple[str, ...],
    pairs: bool,
    top: int,
    show_all: bool,
    json_to: str | None,
    csv_to: str | None,
    key: Path | None,
    **asked: Any,  # noqa: ANN401 - tuples of texts or ports
) -> None:
    """Tell who opened SSH, NETCONF, gNMI, IPMI, Kubernetes' API, RDP to what: from where, when, for how long.

    A session is all records of one source, destination and service without a gap of `management.session_gap`;
    `management.sessions` in cluster.yaml lists the services. Source is who opened it, also where only answers were
    seen. `<` before its length: it may have begun before the period; `>` behind it: it may have gone on.

    Flow records tell neither what was typed nor whether a login succeeded. What no exporter sees, such as an
    out-of-band network of its own, is not here; of sampled records short sessions may be missing.

    \b
    Examples:
      clusterflow sessions --dst leaf-3 --from 2026-03-01T20:00 --to 2026-03-02T06:00
      clusterflow sessions --src external --from 7d
      clusterflow sessions --pairs --from 30d --csv march.csv --sign audit-key.pem
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    check_signing(key, (json_to, csv_to))
    _known(cluster, services)
    question = completed(cluster, Filter(0, 0, **asked), start=start, stop=stop, around=around, period=_DAY)
    found = sessions_of(cluster, question, services=services, users=users)
    gaps = [*lacking(cluster, found.answer), *found.unread]
    frame = by_pair(found.frame, _PAIR) if pairs else found.frame
    if json_to:
        document = {"from": question.start, "to": question.stop, "cannot_tell": _CANNOT, "lacks": gaps,
                    "session_gap": cluster.management.session_gap, "rows": frame.to_dicts()}  # fmt: skip
        write_output(json_to, json.dumps(document, indent=1) + "\n", key)
    if csv_to:
        write_output(csv_to, _plain(frame).write_csv(), key)
    if not (json_to or csv_to):
        _show(cluster, question, frame, None if show_all else top, pairs=pairs)
    if not json_to:
        for gap in gaps:
            click.echo(f"lacks: {gap}", err=bool(csv_to))


def _known(cluster: Cluster, services: tuple[str, ...]) -> None:
    settings = cluster.management
    listed = (*settings.sessions, *settings.sessions_there)
    for service in services:
        if service not in listed:
            raise click.BadParameter(f"{service}: management.sessions has {', '.join(listed)}", param_hint="--service")


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows for spreadsheets: times in UTC, no text that one takes for a formula."""
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return frame.with_columns(
        *(pl.col(name).map_elements(format_moment, pl.String) for name in (schema.START, schema.END)),
        *(pl.col(name).map_elements(harmless, pl.String) for name in texts),
    )


def _show(cluster: Cluster, question: Filter, frame: pl.DataFrame, most: int | None, *, pairs: bool) -> None:
    zone = cluster.site.time_zone
    shown = frame if most is None else frame.head(most) if pairs else frame.tail(most)
    lengths = [name for name in ("seconds", "longest") if name in frame.columns]
    empty = [name for name in (COUNTRY, USER) if not (shown[name] != "").any()]
    words = shown.drop(empty).with_columns(
        *(pl.col(name).map_elements(lasting, pl.String) for name in lengths),
        *(pl.col(name).map_elements(amount, pl.String) for name in (SENT, RECEIVED)),
    )
    if not pairs:
        before, after = (
            pl.when(flag).then(pl.lit(mark)).otherwise(pl.lit(""))
            for flag, mark in ((BEGUN_BEFORE, "<"), (GOES_ON, ">"))
        )
        words = words.with_columns((before + pl.col("seconds") + after).alias("seconds")).drop(
            BEGUN_BEFORE, GOES_ON, schema.SRC, schema.DST, schema.PROTOCOL, CONNECTIONS
        )
    print_rows(words, zone, "no management session like that in this time")
    left = frame.height - shown.height
    more = f", {left:,} of them not shown: --all" if left else ""
    number = f"{frame.height:,} {'pairs' if pairs else 'sessions'}"
    click.echo(f"{number} from {period_words(question, zone)}{more}. {_CANNOT}")
