"""`scripts/bench SUBCOMMAND`: measurements of every part, as JSON lines."""

import sys

import click

from cluster.errors import ClusterflowError
from simulate.bench_boards import boards
from simulate.bench_enrichment import enrichment
from simulate.bench_kafka import kafka
from simulate.bench_live import live, soak
from simulate.bench_memory import memory
from simulate.bench_peer import peer
from simulate.performance import report


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Measure a part of clusterflow on this machine; JSON lines on standard output."""


for one in (memory, enrichment, live, soak, kafka, boards, peer, report):
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
