"""What options of commands take: what a key of cluster.yaml refuses, an option in its place refuses too.

Wrong input is told before anything is asked of the store: it would hide behind a store that does not answer, or wait
for it for ever.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import wraps
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import click

from app import signing
from app.errors import UserError
from app.log import Log
from app.units import parse_duration
from cluster.document import Scalar
from cluster.scalars import names
from cluster.scalars.kinds import Bad, Text

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

_BACKFILL = "once-"
_STDOUT = "-"
_DATE_DIGITS = 8
_NO_TIME = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""The first moment that cluster.yaml refuses, too."""


class OfKind(click.ParamType[T], Generic[T]):
    """Text of one of cluster.yaml's kinds.

    Args:
        kind: reads it, and says what is wrong with it.
    """

    def __init__(self, kind: Text[T]) -> None:
        self.name = kind.label
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:  # noqa: ANN401
        """Return what the text means; UserError where it is not of the kind."""
        del ctx
        option = param.opts[0] if param is not None and param.opts else self.name
        try:
            return self._kind.parse(str(value))
        except Bad as bad:
            why = bad
        except ValueError:
            why = Bad()
        shown = why.shown or Scalar(str(value), quoted=True).shown()
        raise UserError(f"{option} {shown}: expected {why.expected or self._kind.expected}", why.hint)


class OutputFile(click.Path):
    """A file to write, after what may take hours: that its folder is not there is told at once.

    Args:
        dash: take ``-`` for standard output.
        path_type: what the command gets: text, or a Path.
    """

    def __init__(self, *, dash: bool = False, path_type: type[Path] | None = None) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=dash, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the path as it was given."""
        path: Any = super().convert(value, param, ctx)
        folder = Path(path).parent
        if not folder.is_dir():
            option = f"{param.opts[0]} " if param is not None and param.opts else ""
            raise UserError(f"{option}{path}: there is no folder {folder}", "make it, or name a file elsewhere")
        return path


def _shard(text: str) -> str:
    # What `ingest --once` makes of a folder's name may be asked for again, to write the same points.
    return names.LINE.parse(text) if text.startswith(_BACKFILL) else names.SHARD.parse(text)


URL = OfKind(names.URL)
DATABASE = OfKind(names.DATABASE)
NAME = OfKind(names.NAME)
SHARD = OfKind(Text(names.SHARD.label, f"{names.SHARD.expected}, or one of a backfill, {_BACKFILL}NAME", _shard))
LISTEN_OR_OFF = OfKind(names.LISTEN_OR_OFF)
TIME_ZONE = OfKind(names.TIME_ZONE)

time_zone_option = click.option(
    "--time-zone", type=TIME_ZONE, default="UTC", show_default=True, help="Of timestamps printed without a zone."
)
"""Of commands that read spool files."""

_SPOOL_OPTIONS = (
    click.option(
        "--dead-letters",
        type=click.Path(path_type=Path),
        help="File for records that make no sense. Default: dead-letters.jsonl beside the state; with --once, here.",
    ),
    time_zone_option,
    click.option(
        "--keep-files",
        is_flag=True,
        help="Do not delete files that are read and safe. Only those in collector.spool ever are, and never by --once.",
    ),
    click.option(
        "--metrics-listen",
        type=LISTEN_OR_OFF,
        metavar="HOST:PORT",
        help="Where /metrics and /healthz answer, or off. Default: bridge.metrics_listen.",
    ),
)


def spool_options(command: Command) -> Command:
    """Add what `ingest` and `relay` take alike: `dead_letters`, `time_zone`, `keep_files`, `metrics_listen`."""
    for option in reversed(_SPOOL_OPTIONS):
        command = option(command)
    return command


# -- times -----------------------------------------------------------------------------------------------


class Moment(click.ParamType[float]):
    """A time: ISO 8601 (the site's zone unless it says otherwise), epoch seconds, ``now``, or so long ago: ``3d``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return epoch seconds."""
        # `--config` is read before all other options.
        cluster = ctx.params.get("cluster") if ctx is not None else None
        zone = cluster.site.time_zone if cluster is not None else UTC
        return moment_of(str(value).strip(), zone, param.opts[0] if param is not None and param.opts else "")


def moment_of(text: str, zone: tzinfo, option: str = "") -> float:
    """Return the epoch seconds that a text stands for, as of `Moment`; UserError, with the option's name."""
    moment = _moment(text, zone)
    # Also nan is no time, and what the store could not hold.
    if moment is None or not 0 <= moment < _NO_TIME:
        place = f"{option} " if option else ""
        raise UserError(f"{place}{text}: expected a time", "such as 2026-03-01, 2026-03-01T12:00, 3d (ago) or now")
    return moment


def _moment(text: str, zone: tzinfo) -> float | None:
    """Return the epoch seconds that a text stands for; None where it is no time."""
    if text == "now":
        return time.time()
    # Eight digits are a date of ISO 8601, too: as seconds they would be a day of 1970.
    is_date = len(text) == _DATE_DIGITS and text.isdecimal()
    for read in () if is_date else (float, lambda ago: time.time() - float(parse_duration(ago))):
        with suppress(ValueError):
            return read(text)
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    return None


def period_options(length: str) -> Callable[[Command], Command]:
    """Add ``--from`` and ``--to`` to a command, which receives `start` and `stop` as epoch seconds.

    Args:
        length: of the period that begins by default so long before its end.

    UserError leaves the command before it runs if the period is empty or begins in the future.
    """

    def add(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, start: float | None, stop: float | None, **named: Any) -> Any:  # noqa: ANN401
            now = time.time()
            end = now if stop is None else stop
            begin = end - float(parse_duration(length)) if start is None else start
            # Moments that were "now" a blink ago are no period.
            if min(end, now) - begin < 1:
                raise UserError("the period is empty", "--from must be before --to, and before now")
            return command(*args, start=begin, stop=end, **named)

        begins = f"Begin of the period: a time of the site's zone, or so long ago.  [default: {length} before its end]"
        with_end = click.option("--to", "stop", type=Moment(), help="End of the period.  [default: now]")(run)
        return cast("Command", click.option("--from", "start", type=Moment(), help=begins)(with_end))

    return add


# -- output ----------------------------------------------------------------------------------------------

log_option = click.option(
    "--json-log",
    "log",
    is_flag=True,
    callback=lambda _context, _option, value: Log(as_json=value),
    help="Log lines as JSON.",
)
"""The command receives `log`: a `Log`."""

json_option = click.option(
    "--json",
    "json_to",
    is_flag=False,
    flag_value=_STDOUT,
    type=OutputFile(dash=True),
    metavar="[FILE]",
    help="JSON: printed, or written to FILE.",
)
"""The command receives `json_to` for `write_output`: None without the option, ``-`` without a FILE."""


sign_option = click.option(
    "--sign",
    "key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="KEY",
    help="Sign each file written with this Ed25519 key (PEM): FILE.sig beside FILE.",
)
"""The command receives `key` for `check_signing` and `write_output`."""


def check_signing(key: Path | None, targets: Iterable[str | None]) -> None:
    """Raise UserError, before anything is asked, if the key is none or there is no file to sign."""
    if key is None:
        return
    if not {target for target in targets if target is not None} - {_STDOUT}:
        raise UserError("--sign: nothing is written to a file", "name one, such as --csv march.csv")
    signing.check_key(key)


def write_output(target: str, text: str, key: Path | None = None) -> None:
    """Write text to a file, and its signature where there is a key; ``-`` prints it. UserError if that fails."""
    if target == _STDOUT:
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}", "choose a file that you can write") from error
    if key is not None:
        signing.sign(Path(target), key)
