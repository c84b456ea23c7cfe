"""A group of commands that ends errors in one place: clear lines on stderr, and an exit code."""

import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from cluster.errors import ClusterflowError

UNEXPECTED = 3
INTERRUPTED = 130


class Application(click.Group):
    """Shows its commands under headings, and turns errors into lines and exit codes.

    Exit codes: 0 done, 1 failed, 2 wrong input, 3 a defect of ours (the traceback goes to a file), 130 interrupted.
    """

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
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(limit=120)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(self, *args: Any, **settings: Any) -> NoReturn:  # noqa: ANN401 - click's own signature
        """Run a command and end the process."""
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
        except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, the rest in a file
            what = " ".join(f"{type(error).__name__}: {error}".split())
            click.echo(f"unexpected error: {what} (the traceback is in {_log()}: please report it)", err=True)
            sys.exit(UNEXPECTED)
        sys.exit(code if isinstance(code, int) else 0)


def _log() -> str:
    """Write the traceback to a file that nobody else may read, and return its name."""
    with tempfile.NamedTemporaryFile("w", prefix="clusterflow-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exc(file=log)
    return log.name
