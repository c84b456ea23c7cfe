"""The command ``clusterflow``: the commands of all packages under one name."""

from importlib.metadata import PackageNotFoundError, version

import click

import analysis.cli
import cluster.cli
import dashboards.cli
import ingest.cli
import rules.cli
import simulate.cli
from cluster.application import Application


def _version() -> str:
    try:
        return version("clusterflow")
    except PackageNotFoundError:
        return "unknown (not installed)"


@click.group(cls=Application, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(_version(), prog_name="clusterflow", message="%(prog)s %(version)s")
def main() -> None:
    """Watch the network of an AI cluster: flow records to InfluxDB, Grafana boards and alerts.

    \b
    First steps:
      clusterflow init                write a commented cluster.yaml
      clusterflow check               see whether it is right
      clusterflow COMMAND --help      more about a command
    """  # noqa: D301 - \b is click's mark for "keep these lines"


main.add_package("The cluster's description", cluster.cli.COMMANDS)
main.add_package("From flows to the store", ingest.cli.COMMANDS)
main.add_package("What the traffic means", analysis.cli.COMMANDS)
main.add_package("Boards", dashboards.cli.COMMANDS)
main.add_package("Alerts", rules.cli.COMMANDS)
main.add_package("Simulation", simulate.cli.COMMANDS)


if __name__ == "__main__":
    main()
