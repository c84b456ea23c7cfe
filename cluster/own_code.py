"""Python files of the site's own that cluster.yaml names: alert rules (`rules`) and boards (`boards`).

They are code, and are run with the rights of whoever runs the command. So nothing is looked for: only a file that
cluster.yaml names itself is run, and none that everybody on the machine may change.
"""

import importlib.util
import stat
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from app.errors import ConfigError, UserError

EXPECTED = "docs/extending.md shows one to start from"


def load_file(path: Path, key: str) -> ModuleType:
    """Run a file and return its module.

    Args:
        path: as `Cluster.rules` or `Cluster.boards` has it.
        key: the key of cluster.yaml that names it.

    Raises:
        UserError: it cannot be read, everybody may change it, or it fails.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", f"cluster.yaml names it under {key}") from None
    if mode & stat.S_IWOTH:
        raise UserError(f"{path}: everybody may change this file, and it is run as code", f"chmod o-w {path}")
    spec = importlib.util.spec_from_file_location(f"own_{key}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: expected a Python file (.py)", EXPECTED)
    module = importlib.util.module_from_spec(spec)
    with faults_of(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Turn what goes wrong within into the user's own mistake: one line with the file, and its line if it had a part.

    Raises:
        UserError: what the file, or what it returned, made fail.
    """
    try:
        yield
    except ConfigError:
        raise
    except UserError as error:
        raise UserError(f"{_place(path, error)}: {error.message}", error.hint or EXPECTED) from error
    except (Exception, SystemExit) as error:
        # The text of a KeyError is its key, quoted.
        said = error.args[0] if isinstance(error, KeyError) and error.args else error
        what = f"{type(error).__name__}: {' '.join(str(said).split())}"
        raise UserError(f"{_place(path, error)}: {what}", EXPECTED) from error


def _place(path: Path, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"{path}:{lines[-1]}" if lines and lines[-1] else str(path)
