"""`scripts/bench SUBCOMMAND`: measurements of every part, as JSON lines."""

import sys

import click

from app.errors import ClusterflowError
from bench.boards import boards
from bench.costs.bridge_rate import memory
from bench.costs.cloud_logs import cloud
from bench.costs.enrichment_cost import enrichment
from bench.costs.guard_cost import guard
from bench.costs.once_cost import once
from bench.costs.print_cost import nfacctd
from bench.labelled import labelled
from bench.live_rates import kafka, live, soak
from bench.load.archived import archive, archive_cost
from bench.peer import peer
from bench.performance import report
from bench.stores import stores


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure a part of clusterflow on this machine; JSON lines on standard output."""


for one in (
    memory,
    cloud,
    enrichment,
    once,
    live,
    soak,
    nfacctd,
    kafka,
    boards,
    archive,
    archive_cost,
    guard,
    peer,
    labelled,
    stores,
    report,
):
    bench.add_command(one)


def main() -> None:
    """Run it; trouble is one line, as everywhere."""
    try:
        bench(standalone_mode=True)
    except ClusterflowError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        click.echo(f"{error.message}{hint}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
