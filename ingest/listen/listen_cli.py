"""The command that shows who sends flow records to this host."""

import json
import time

import click
from rich.console import Console
from rich.text import Text

from app.signals import SignalEvent
from app.table import Table
from app.time_options import Duration
from app.words import some
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, write_output
from ingest.listen.packets import Copies
from ingest.listen.senders import Heard, Senders

_NAMED = 12


@click.command()
@cluster_option
@click.option("--for", "seconds", type=Duration(), default="60s", show_default=True, help="How long to listen.")
@click.option("--interface", metavar="NAME", help="Whose packets to look at.  [default: all]")
@json_option
def listen(cluster: Cluster, *, seconds: float, interface: str | None, json_to: str | None) -> None:
    """Show who sends flow records to this host, and what is wrong with them.

    \b
    Looks at copies of the packets: the collector gets all of them as ever, and need not run. Needs root or CAP_NET_RAW.
    ^C ends it early. Templates come every few minutes with most devices: listen as long for them.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    stop = SignalEvent.of_stop()
    found = Senders(cluster)
    with Copies(interface) as copies:
        if json_to is None:
            click.echo(f"listening for {seconds:g} s; ^C ends it early", err=True)
        begun = time.monotonic()
        for datagram in copies.datagrams(seconds, stop):
            found.take(datagram)
        listened = max(time.monotonic() - begun, 1e-3)
        missed = copies.dropped()
    heard, silent = found.heard(listened), found.silent()
    if json_to is not None:
        document = {
            "seconds": round(listened, 3),
            "senders": [one.json() for one in heard],
            "silent_exporters": silent,
            "copies_missed": missed,
        }
        write_output(json_to, f"{json.dumps(document, indent=2)}\n")
        return
    _show(heard, silent, Console(highlight=False, markup=False, emoji=False))
    if missed:
        click.echo(f"{missed:,} datagrams came too fast to look at: figures are too low; the collector got them")
    if found.unnamed:
        click.echo(f"{found.unnamed:,} datagrams of more senders than can be shown")


def _show(heard: list[Heard], silent: list[str], console: Console) -> None:
    if heard:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("from", "exporter", "to port", "protocol", "datagrams/s", "templates", "sampling"):
            table.add_column(title, justify="right" if title in ("to port", "datagrams/s", "templates") else "left")
        for one in heard:
            sender = one.sender
            rates = ", ".join(f"1:{rate:.4g}" if rate % 1 else f"1:{rate}" for rate in sorted(sender.rates))
            table.add_row(
                Text(sender.source, style="bold red" if one.wrong else ""),
                one.name or "-",
                str(sender.port),
                sender.protocol.value,
                f"{one.rate:.3g}",
                str(len(sender.templates)) if sender.templates else "-",
                rates or "-",
            )
        console.print(table)
    for one in heard:
        for text in one.wrong:
            console.print(Text(f"{one.sender.source} -> {one.sender.port}: {text}"), soft_wrap=True)
    wrong = sum(bool(one.wrong) for one in heard)
    console.print(f"{len(heard)} senders, {wrong} with something wrong", soft_wrap=True)
    if silent:
        console.print(f"silent in this time: {some(silent, _NAMED)}", soft_wrap=True)
