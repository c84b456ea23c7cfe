"""Errors that the user can act on. The command line turns each into clear lines and an exit code."""

import errno
import os
import re
from dataclasses import dataclass


class ClusterflowError(Exception):
    """Something expected went wrong: one line for the user, and how the process ends.

    Args:
        message: what is wrong, with the place and the value.
        hint: what to do next; may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def lines(self) -> list[str]:
        """Return the text to show, without a prefix."""
        return [f"{self.message} ({self.hint})" if self.hint else self.message]


class UserError(ClusterflowError):
    """The user's input is wrong; nothing was changed. Exit code 2."""

    exit_code = 2


class StoreError(ClusterflowError):
    """InfluxDB cannot be reached, or refused what was asked. Exit code 1."""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where a disk is full, or somebody's share of it."""

MAKE_ROOM = "make room on its disk"
MAKE_WRITABLE = "make it, its folder and its disk writable for this user"

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What it says where a file, its folder or its whole disk may not be written, or not be read."""

_REMEDIES = {
    **dict.fromkeys(NO_ROOM, MAKE_ROOM),
    **dict.fromkeys(UNWRITABLE, MAKE_WRITABLE),
    errno.EIO: "dmesg says whether its disk fails",
}


def remedy(error: OSError, then: str) -> str:
    """Return what to do where a file cannot be read or written for now, if we know, and what comes of it."""
    return "; ".join(filter(None, (_REMEDIES.get(error.errno or 0), then)))


FOREIGN = "run it as the user of the services, or as root"
"""What to do where a state may not be read: it is for that user alone."""


def of_disk(place: object, error: OSError, hint: str) -> ClusterflowError:
    """Return why a place on disk cannot be used.

    Args:
        place: the file or folder.
        error: what the system said.
        hint: what to do where it is not for want of room.

    Returns:
        ClusterflowError where the disk is full, which passes, so that whoever starts us tries again; else a UserError.
    """
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in NO_ROOM:
        return ClusterflowError(f"{place}: {why}", f"{MAKE_ROOM}, and start again")
    return UserError(f"{place}: {why}", hint)


_MANY, _FIRST = 10, 3
"""Faults of one kind that are told each; of more, so many that differ."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One fault in cluster.yaml.

    Attributes:
        path: YAML path such as ``groups.training.prefixes[1]``.
        value: what stands there, as the user wrote it.
        expected: what belongs there.
        hint: how to mend it; may be empty.
        file: the file it stands in, where that is not cluster.yaml itself: the inventory.
        line: its line in that file; 0 where no line is meant.
    """

    path: str
    value: str
    expected: str
    hint: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return the fault as one line."""
        place = f"{self.path}: " if self.path else ""
        text = f"{place}{self.value}: expected {self.expected}"
        text = f"{text} ({self.hint})" if self.hint else text
        # A terminal would obey what a file's author hid in a name.
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)

    def place(self) -> str:
        """Return where it stands: its line, or its path where no line is known."""
        return f"line {self.line}" if self.line else self.path

    def kind(self) -> tuple[str, str, str]:
        """Return what faults of one cause have in common: file, key, and what was expected."""
        key = re.sub(r"[0-9]+", "", self.path.rpartition(".")[2])
        return self.file, f"{self.path.partition('.')[0].partition('[')[0]}.{key}", self.expected

    def sort_key(self) -> tuple[str, int, list[tuple[int, str]], int, str]:
        """Return what orders faults for people: by path, with ``[2]`` before ``[10]``; in other files by line."""
        parts = re.findall(r"[0-9]+|[^0-9]+", self.path)
        path = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
        return self.file, self.line if self.file else 0, path, self.line, self.value


class ConfigError(UserError):
    """cluster.yaml has faults: all of them, in the order of the file's paths.

    Args:
        source: the file's name.
        problems: at least one fault.
    """

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=Problem.sort_key))
        count = len(self.problems)
        super().__init__(f"{source}: {count} problem{'' if count == 1 else 's'}")

    def lines(self) -> list[str]:
        """Return one line a fault, of many of a kind a few, then the count where there are several."""
        kinds: dict[tuple[str, str, str], list[Problem]] = {}
        for problem in self.problems:
            kinds.setdefault(problem.kind(), []).append(problem)
        lines: list[str] = []
        for problem in self.problems:
            alike = kinds[problem.kind()]
            if len(alike) <= _MANY:
                lines.append(self._shown(problem))
            elif problem is alike[0]:
                lines += self._first_of(alike)
        return [*lines, self.message] if len(self.problems) > 1 else lines

    def _first_of(self, found: list[Problem]) -> list[str]:
        """Return the first faults of a kind that differ, and how many more there are, the first of them with place."""
        differ = {(problem.value, problem.hint): problem for problem in reversed(found)}
        shown = sorted(differ.values(), key=Problem.sort_key)[:_FIRST]
        lines = [self._shown(problem) for problem in shown]
        left = [problem.place() for problem in found if problem not in shown]
        lines[-1] += f"; {len(left):,} more like it: {', '.join(left[:_FIRST])}, …"
        return lines

    def _shown(self, problem: Problem) -> str:
        line = f":{problem.line}" if problem.line else ""
        return f"{problem.file or self.source}{line}: {problem}"
