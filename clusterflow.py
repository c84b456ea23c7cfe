"""The command ``clusterflow``: the commands of all packages, and the one place where errors end."""

import importlib
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import click

from cluster.errors import ClusterflowError

PACKAGES = {
    "cluster": "The cluster's description",
    "ingest": "Collecting flows",
    "analysis": "Reading them",
    "dashboards": "Boards",
    "rules": "Alerts",
    "simulate": "Simulation",
}
"""Package -> the heading of its commands in the help, in the order of the way of a flow."""

INTERRUPTED = 130
UNEXPECTED = 3


class Application(click.Group):
    """A group that shows its commands under headings and turns errors into lines and exit codes."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - click's own settings, passed on
        super().__init__(**settings)
        self.headings: dict[str, list[str]] = {}

    def add_package(self, heading: str, commands: Sequence[click.Command]) -> None:
        """Add a package's commands under a heading."""
        for command in commands:
            self.add_command(command)
            self.headings.setdefault(heading, []).append(command.name or "")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by heading."""
        del ctx
        width = max((len(name) for name in self.commands), default=0)
        for heading, names in self.headings.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(limit=90)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(self, *args: Any, **settings: Any) -> NoReturn:  # noqa: ANN401 - click's own signature
        """Run a command and end the process: 0 done, 1 failed, 2 wrong input, 3 a defect, 130 interrupted."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except ClusterflowError as error:
            for line in error.lines():
                click.echo(line, err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python would complain again when it flushes at exit.
            sys.stdout = None
            sys.exit(0)
        except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, the rest in a file
            log = _write_log()
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            click.echo(
                f"clusterflow: unexpected error: {what} (the details are in {log}: please report them)", err=True
            )
            sys.exit(UNEXPECTED)
        sys.exit(code if isinstance(code, int) else 0)


def _write_log() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="clusterflow-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exc(file=log)
    return log.name


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
      clusterflow init            write a cluster.yaml to start from
      clusterflow check           see whether it is right
      clusterflow COMMAND --help  more about a command
    """  # noqa: D301 - \b is click's mark for "keep these lines"


for _package, _heading in PACKAGES.items():
    main.add_package(_heading, _commands(_package))


if __name__ == "__main__":
    main()
