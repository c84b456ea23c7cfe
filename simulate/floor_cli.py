"""The command ``clusterflow floor``."""

import json
import math
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import click
import polars as pl
from rich.console import Console

from app.errors import StoreError, UserError
from app.progress import progress
from app.table import Table
from app.units import parse_size
from app.words import amount
from cluster.cli import cluster_option
from cluster.model import Cluster, StoreApi
from cluster.options import json_option, write_output
from dashboards.parts.transport import hidden_pairs
from rules.evaluate import floor as floors
from rules.evaluate.floor import Floor, Scene, Setting
from simulate.stores import influxdb
from store import schema
from store.influx import Store
from store.points import WINDOW, encode
from store.schema_version import opened

_NOT_ONE = "docs/operations.md says what the figures mean"


@click.command()
@cluster_option
@click.option(
    "--approved",
    metavar="SIZE",
    help="Instead of what is stored: four weeks in which approved destinations get about so much a day (100GB); 0: "
    "nothing is learnt yet.",
)
@click.option("--curve", "with_curve", is_flag=True, help="Also other limits: the floor against false alerts.")
@json_option
def floor(cluster: Cluster, approved: str | None, with_curve: bool, json_to: str | None) -> None:
    """Tell how much could leave without an alert, by each way, and how long it takes to lose each model.

    Thefts of many sizes are set beside what left in the last four weeks, in a private InfluxDB, and judged as live
    traffic is; a search ends at the largest that nobody hears of. Warnings that do not depend on volume, such as a
    first contact, may come before. The result beside stored weeks is kept: the board Coverage and the report show it.
    """
    now = int(time.time())
    daily = None if approved is None else _size(approved)
    with ExitStack() as stack:
        told = stack.enter_context(progress(Console(stderr=True)))
        stored = None
        if daily is None:
            stored = opened(cluster.store)
            stack.callback(stored.close)
            past = floors.stored_past(cluster, stored, now)
        else:
            past = floors.made_past(cluster, now, daily)
        rate = floors.coarsest(cluster, stored, now)
        url = stack.enter_context(influxdb(None))
        settings = replace(
            cluster.store,
            url=url,
            api=StoreApi.V1,
            database=f"floor_{uuid.uuid4().hex[:12]}",
            username=None,
            password=None,
            token=None,
        )
        private = Store(settings)
        stack.callback(private.close)
        scene = Scene(replace(cluster, store=settings), past, private, now)
        hidden = [f"{a} and {b}" for a, b, _ in hidden_pairs(cluster)]
        found = floors.floors(scene, rate=rate, hidden=hidden, told=told)
        settings_found = floors.curve(scene, told) if with_curve else []
        if stored is not None:
            keep(stored, found, now)
    days = floors.PAST_DAYS if past.height else 0
    if json_to is not None:
        answer = {
            "days_of_the_past": days,
            "ways": [one.json() for one in found],
            "curve": [one.json() for one in settings_found],
        }
        write_output(json_to, json.dumps(floors.finite(answer), indent=1) + "\n")
    if json_to != "-":
        _tell(cluster, found, settings_found, _beside(days, is_stored=daily is None))


def keep(store: Store, found: Sequence[Floor], now: int) -> None:
    """Store the result for the board Coverage and the report; that it cannot be is said, and no failure."""
    rows = [
        {
            WINDOW: now,
            schema.KIND: one.way.value,
            schema.ABOUT: one.about,
            schema.DAILY_UNSEEN.name: one.daily,
            schema.SUSTAINED_UNSEEN.name: one.sustained,
            schema.DAYS_TO_LOSE.name: "; ".join(f"{name}: {_days(days)}" for name, days in one.days.items()),
        }
        for one in found
    ]
    kinds = {schema.DAILY_UNSEEN.name: pl.Float64, schema.SUSTAINED_UNSEEN.name: pl.Float64}
    try:
        store.write(encode(schema.FLOOR, pl.DataFrame(rows, schema_overrides=kinds)), schema.FLOOR.kept)
    except StoreError as error:
        click.echo(f"floor: the result is not kept: {' '.join(error.lines())}", err=True)


def _size(text: str) -> int:
    if text == "0":
        return 0
    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"--approved {text}: expected a size, such as 100GB, or 0") from error


def _tell(cluster: Cluster, found: Sequence[Floor], settings: Sequence[Setting], beside: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    models = [one.name for one in cluster.artefacts]
    table = Table("way", "in one day", "a day, for 30 days", *(f"{name}, days" for name in models), "what", box=None)
    for one in found:
        sizes = ("no limit found" if size is None else amount(size) for size in (one.daily, one.sustained))
        lost = (_days(one.days.get(name)) for name in models)
        table.add_row(one.way.value, *sizes, *lost, one.about)
    console.print(table)
    console.print(f"{beside}. A theft is sent evenly; {_NOT_ONE}.", soft_wrap=True)
    if not settings:
        return
    curve = Table("limits", f"alerts in {settings[0].days} days", "unseen a day, for 30 days", "", box=None)
    for each in settings:
        size = "no limit found" if each.sustained is None else amount(each.sustained)
        mark = "recommended" if each.is_best else "now" if each.factor == 1 else ""
        curve.add_row(f"x {each.factor:g}", str(each.alerts), size, mark)
    console.print(curve)


def _beside(days: int, *, is_stored: bool) -> str:
    if not days:
        return "Beside no past: nothing is learnt yet"
    return f"Beside the last {days} days" if is_stored else f"Beside {days} made-up days"


def _days(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if math.isinf(value) else f"{value:.3g}"
