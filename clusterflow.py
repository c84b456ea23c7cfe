"""The command ``clusterflow``: the commands of all packages under one name."""

import importlib
from importlib.metadata import PackageNotFoundError, version

import click

from cluster.application import Application

PACKAGES = {
    "cluster": "The cluster's description",
    "ingest": "Collecting flows",
    "analysis": "Reading them",
    "dashboards": "Boards",
    "rules": "Alerts",
    "simulate": "Simulation",
}
"""Package -> the heading of its commands in the help, in the order of the way of a flow."""


def _version() -> str:
    try:
        return version("clusterflow")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _commands(package: str) -> list[click.Command]:
    module = f"{package}.cli"
    try:
        commands: list[click.Command] = importlib.import_module(module).COMMANDS
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return []
    return commands


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


for _package, _heading in PACKAGES.items():
    main.add_package(_heading, _commands(_package))


if __name__ == "__main__":
    main()
