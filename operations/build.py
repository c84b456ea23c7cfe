"""Generated files: written only where they changed, compared for drift, rewritten on change with `--watch`.

A folder of generated files has a list of them (`LIST`), so that a file which is no longer generated is found and
removed, and files that people put there stay untouched.
"""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from watchfiles import Change as Saved
from watchfiles import DefaultFilter
from watchfiles import watch as changes

from app.errors import UserError

LIST = "generated.txt"
"""Name of the list of generated files; it is generated too."""

_LOOK_MS = 200
"""Time until it is known that everything is watched, and between two looks whether to stop."""

_HEADER = "# What `clusterflow build` wrote: change cluster.yaml, dashboards/ or rules/ instead, and build again.\n"


class Change(StrEnum):
    """What is the matter with one generated file."""

    MISSING = "missing"
    DIFFERENT = "different"
    STALE = "no longer generated"


@dataclass(frozen=True, slots=True, order=True)
class Drift:
    """A file that is not what `build` would write. `path` is relative to the folder."""

    path: str
    change: Change

    def __str__(self) -> str:
        return f"{self.path}: {self.change.value}"


def check(artefacts: Mapping[str, str], folder: Path) -> list[Drift]:
    """Return what `write` would change, in order of paths; nothing if all is as it should be.

    Args:
        artefacts: relative path -> text of everything that is generated.
        folder: where they belong.
    """
    wanted = _with_list(artefacts)
    drifts = [Drift(path, change) for path, text in wanted.items() if (change := _change(folder / path, text))]
    drifts += [Drift(path, Change.STALE) for path in _listed(folder) if path not in wanted]
    return sorted(drifts)


def write(artefacts: Mapping[str, str], folder: Path) -> list[Drift]:
    """Make the folder what `artefacts` says, and return what was changed.

    A file is replaced as a whole or not at all, so that Grafana never reads half of one.

    Raises:
        UserError: the folder or a file in it cannot be written.
    """
    wanted = _with_list(artefacts)
    drifts = check(artefacts, folder)
    # The list comes last: after an interruption, stale files are still known.
    for drift in sorted(drifts, key=lambda drift: drift.path == LIST):
        path = folder / drift.path
        try:
            if drift.change is Change.STALE:
                path.unlink(missing_ok=True)
            else:
                _replace(path, wanted[drift.path])
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}", "choose a folder that you can write to") from error
    return drifts


def watch(
    command: Sequence[str],
    paths: Callable[[], Iterable[Path]],
    *,
    stop: threading.Event | None = None,
    after: Callable[[int], None] = lambda _code: None,
) -> None:
    """Run a command, and again after each save below the paths, until ^C or `stop`.

    The command is a new process each time: edited Python is loaded afresh, and a mistake in it ends only that run.

    Args:
        command: what builds, with its arguments.
        paths: returns the files and folders to watch; asked after each run.
        stop: ends the watch.
        after: called with each run's exit code.
    """
    named: set[Path] | None = None
    # What is named for the first time may have been saved before anybody watched it: then it runs once more.
    while named != (now := set(paths())):
        named = now
        for _ in _saves(named, stop):
            after(subprocess.run(command, check=False).returncode)
            if named != set(paths()):
                break


def _saves(named: Iterable[Path], stop: threading.Event | None) -> Iterator[None]:
    """Yield at once, as soon as all is watched, and then whenever something was saved."""
    folders = {inner.resolve() for path in named if path.is_dir() for inner in (path, *path.rglob("*/"))}
    # Many editors replace a file, and who watches that alone goes on watching the one that is gone. So its folder is
    # watched, without what is below: that may be anything.
    alone = [path for path in named if not path.is_dir()]
    files = {one for path in alone for one in (path.parent.resolve() / path.name, path.resolve())}
    is_source = DefaultFilter()

    def is_meant(change: Saved, name: str) -> bool:
        path = Path(name)
        return is_source(change, name) and (path in files or path.parent in folders)

    places = {*folders, *(path.parent for path in files if path.parent.is_dir())}
    is_first = True
    for found in changes(
        *places,
        watch_filter=is_meant,
        recursive=False,
        stop_event=stop,
        raise_interrupt=False,
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
    ):
        if found or is_first:
            is_first = False
            yield


def _with_list(artefacts: Mapping[str, str]) -> dict[str, str]:
    for path in artefacts:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"{path}: generated files stay inside their folder")
    lines = "".join(f"{path}\n" for path in sorted(artefacts))
    return {**artefacts, LIST: _HEADER + lines}


def _listed(folder: Path) -> list[str]:
    """Return the paths that an earlier build listed and that are still there."""
    try:
        lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    paths = [line for line in lines if line and not line.startswith("#")]
    inside = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
    return [path for path in inside if (folder / path).is_file()]


def _change(path: Path, text: str) -> Change | None:
    try:
        present = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Change.MISSING
    except (OSError, UnicodeDecodeError):
        return Change.DIFFERENT
    return None if present == text else Change.DIFFERENT


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            output.write(text)
        # Grafana and pmacct run as other users.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
