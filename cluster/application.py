"""A group of commands that ends errors in one place: clear lines on stderr, and an exit code."""

import sys
import tempfile
import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, NoReturn

import click

from cluster.errors import ClusterflowError
from cluster.listing import LIST, Listed, listed

UNEXPECTED = 3
INTERRUPTED = 130


class Application(click.Group):
    """Shows its commands under headings, and turns errors into lines and exit codes.

    Exit codes: 0 done, 1 failed, 2 wrong input, 3 a defect of ours (the traceback goes to a file), 130 interrupted.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - click's own settings, passed on
        super().__init__(**settings)
        self.headings: dict[str, list[str]] = {}
        self._loaded = _Commands()
        self.commands = self._loaded

    def add_package(self, heading: str, commands: Sequence[click.Command]) -> None:
        """Add a package's commands under a heading."""
        for command in commands:
            self.add_command(command)
            self.headings.setdefault(heading, []).append(command.name or "")

    def add_listed(self, heading: str, module: str, name: str = LIST) -> None:
        """Add the commands of a module's list under a heading; each is imported when it is run."""
        for command in listed(module, name):
            self._loaded.add(command)
            self.headings.setdefault(heading, []).append(command.name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by heading."""
        del ctx
        width = max((len(name) for name in self.commands), default=0)
        for heading, names in self.headings.items():
            rows = [(name.ljust(width), self._loaded.short_help(name)) for name in names]
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


class _Commands(MutableMapping[str, click.Command]):
    """Commands by name, of which some are imported when they are asked for."""

    def __init__(self) -> None:
        self._commands: dict[str, click.Command | Listed] = {}

    def add(self, command: Listed) -> None:
        """Add a command that is not loaded."""
        self._commands[command.name] = command

    def short_help(self, name: str) -> str:
        """Return what a command does, in a line; it stays where it is."""
        command = self._commands[name]
        return command.help if isinstance(command, Listed) else command.get_short_help_str(limit=120)

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if isinstance(command, Listed):
            command = self._commands[name] = command.load()
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


def _log() -> str:
    """Write the traceback to a file that nobody else may read, and return its name."""
    with tempfile.NamedTemporaryFile("w", prefix="clusterflow-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exc(file=log)
    return log.name
