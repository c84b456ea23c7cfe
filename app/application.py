"""A group of commands that ends errors in one place: clear lines on stderr, and an exit code."""

import gc
import sys
import tempfile
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

import click

from app.errors import MAKE_WRITABLE, NO_ROOM, UNWRITABLE, ClusterflowError, UserError

_ALLOCATED = 50_000
"""Objects after which Python looks for garbage, in place of 700."""

UNEXPECTED = 3
INTERRUPTED = 130


_VERBOSE = "clusterflow.verbose"
"""Key of a context's meta data, which the contexts of a run share."""

Listed: TypeAlias = Mapping[str, Mapping[str, tuple[str, str]]]
"""Heading -> name of a command -> where it is, as ``module:function``, and what it does, in a few words."""


VERBOSE = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    expose_value=False,
    callback=lambda context, _option, value: context.meta.update({_VERBOSE: value}),
    help="Show everything: rows left out or zero, what is well, and the cause of an error.",
)
"""Every command of an `Application` has it; `is_verbose` tells a command whether it was given."""


def is_verbose() -> bool:
    """Whether the command that runs was given ``-v``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_VERBOSE))


def rows_shown(most: int) -> int:
    """Return how many rows of a table to show: so many, with ``-v`` all."""
    return sys.maxsize if is_verbose() else most


def _with_verbose(command: click.Command) -> click.Command:
    """Return a command that takes ``-v``, as those below it do; a group that does nothing by itself has none."""
    does_something = True
    if isinstance(command, click.Group):
        command.commands = {name: _with_verbose(one) for name, one in command.commands.items()}
        does_something = command.invoke_without_command
    if does_something and VERBOSE not in command.params:
        command.params.append(VERBOSE)
    return command


def look_rarely() -> None:
    """Look for garbage rarely: what a command makes as it starts is none, and looking took an eighth of that time."""
    gc.set_threshold(_ALLOCATED)


class Application(click.Group):
    """Shows its commands under headings, imports one when it is run, and turns errors into lines and exit codes.

    Exit codes: 0 done, 1 failed, 2 wrong input, 3 a defect of ours (the traceback goes to a file), 130 interrupted.

    Args:
        listed: the commands.
        settings: click's own.
    """

    def __init__(self, *, listed: Listed | None = None, **settings: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(**settings)
        self._listed = listed or {}
        self._places = {name: place for group in self._listed.values() for name, (place, _) in group.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self._places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of this name."""
        if cmd_name in self._places:
            module, _, function = self._places[cmd_name].partition(":")
            return _with_verbose(getattr(import_module(module), function))
        found = super().get_command(ctx, cmd_name)
        return None if found is None else _with_verbose(found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by heading."""
        del ctx
        width = max(map(len, self._places), default=0)
        for heading, commands in self._listed.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), what) for name, (_, what) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run a command; with ``-v`` tell what is behind an error that ends it."""
        try:
            return super().invoke(ctx)
        except ClusterflowError as error:
            cause: BaseException | None = error
            while is_verbose() and cause and (cause := cause.__cause__ or cause.__context__):
                error.add_note(f"because of {type(cause).__name__}: {' '.join(str(cause).split())}")
            raise

    def main(self, *args: Any, **settings: Any) -> NoReturn:  # noqa: ANN401 - click's own signature
        """Run a command and end the process."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except ClusterflowError as error:
            for line in [*error.lines(), *getattr(error, "__notes__", ())]:
                click.echo(line, err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, the rest in a file
            if isinstance(error.__cause__, KeyboardInterrupt):
                # ^C while modules are loaded: Python wraps what ends the making of a class.
                sys.exit(INTERRUPTED)
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                click.echo(
                    f"{error.filename or 'what it writes'}: {error.strerror} (make room, and try again)", err=True
                )
                # What is left of the output would be tried once more at the end.
                sys.stdout = None
                sys.exit(1)
            if isinstance(error, OSError) and error.filename and error.errno in UNWRITABLE:
                click.echo(f"{error.filename}: {error.strerror} ({MAKE_WRITABLE})", err=True)
                sys.exit(UserError.exit_code)
            # What few commands need is loaded for them alone.
            if type(error).__module__ == "sqlite3" and (hint := import_module("app.sqlite_file").remedy(error)):
                click.echo(f"a file of the state: {error} ({hint}, and try again)", err=True)
                sys.exit(1)
            what = " ".join(f"{type(error).__name__}: {error}".split())
            click.echo(f"unexpected error: {what} (the traceback is {_log()}: please report it)", err=True)
            sys.exit(UNEXPECTED)
        sys.exit(code if isinstance(code, int) else 0)


def _log() -> str:
    """Write the traceback to a file that only its owner may read, and return where it is."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="clusterflow-", suffix=".log", delete=False, encoding="utf-8"
        ) as log:
            traceback.print_exc(file=log)
    except OSError:
        # A full disk.
        click.echo(traceback.format_exc(), err=True)
        return "above"
    return f"in {log.name}"
