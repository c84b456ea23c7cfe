"""What options of commands take: what a key of cluster.yaml refuses, an option in its place refuses too.

Wrong input is told before anything is asked of the store: it would hide behind a store that does not answer, or wait
for it for ever.
"""

from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from cluster import names
from cluster.document import Scalar
from cluster.errors import UserError
from cluster.kinds import Bad, Text

T = TypeVar("T")

_BACKFILL = "once-"


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
