"""The command ``clusterflow``: the commands of all packages under one name."""

from importlib.metadata import PackageNotFoundError, version

import click

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


# By name: --help should not wait for what single commands need.
main.add_listed("The cluster's description", "cluster.cli")
main.add_listed("The cluster's description", "cluster.config_log_cli", "CONFIG_LOG_COMMANDS")
main.add_listed("From flows to the store", "ingest.cli")
main.add_listed("What the traffic means", "analysis.cli")
main.add_listed("Keeping it", "analysis.backup_cli", "BACKUP_COMMANDS")
main.add_listed("Boards", "dashboards.cli")
main.add_listed("From flows to the store", "rules.lists_cli", "LISTS_COMMANDS")
main.add_listed("Alerts", "rules.cli")
main.add_listed("Alerts", "simulate.alerts_cli", "ALERT_COMMANDS")
main.add_listed("Alerts", "delivery.cli")
main.add_listed("What the traffic means", "reporting.cli")
main.add_listed("Simulation", "simulate.cli")


if __name__ == "__main__":
    main()
