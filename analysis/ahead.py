"""What was judged of a job for now: windows that late records may change, and that stand until they do.

Live, each round has the windows of the last minutes once more. Most of them are as they were: then the states after
them are, too, and only what is new has to be judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.detectors.study import JobWindows

_READ = "sent", "packets", "written", "read", "heard", "rates", "competing", "storage_heard", "apart"


@dataclass(frozen=True, slots=True)
class Look:
    """Consecutive windows that were judged for now. Times are epoch seconds.

    Attributes:
        start, stop: of the windows.
        carries: the states after them, by study.
        oldest: window of the oldest row that was found in them: what goes on has it where it began.
        is_open: whether what was found may change though the windows do not.
    """

    start: int
    stop: int
    carries: Mapping[str, Any]
    oldest: int
    is_open: bool


@dataclass(slots=True)
class Ahead:
    """Looks without a gap from `seen.start` on, two at most: what has long stood, and the newest.

    A carry may be large: one in which late records change a minute in each round needs no more than these.

    Attributes:
        seen: the windows as they were read.
    """

    seen: JobWindows
    looks: list[Look]

    def forget(self, changed: int) -> None:
        """Forget what rests on windows from `changed` on, and what may change by itself."""
        stands = next((n for n, look in enumerate(self.looks) if look.is_open or look.stop > changed), len(self.looks))
        gone = self.looks[stands:]
        if any(look.oldest < gone[0].start for look in gone):
            # Its rows lie among those of looks that stand: nobody would take them back.
            stands = 0
        del self.looks[stands:]

    def add(self, look: Look) -> None:
        """Take note of a look at what comes next."""
        if len(self.looks) > 1:
            first, second = self.looks
            oldest, is_open = min(first.oldest, second.oldest), first.is_open or second.is_open
            self.looks = [Look(first.start, second.stop, second.carries, oldest, is_open)]
        self.looks.append(look)


def changed_from(before: JobWindows, now: JobWindows) -> int:
    """Return the start of the first window that differs, or the end of what both hold; `now` begins in `before`."""
    first = (now.start - before.start) // now.window
    count = max(min(len(before) - first, len(now)), 0)
    differs = np.zeros(count, np.bool_)
    for name in _READ:
        was, read = getattr(before, name)[first : first + count], getattr(now, name)[:count]
        if was.shape != read.shape:
            return now.start
        if not np.array_equal(was, read):
            differs |= (was != read).reshape(count, -1).any(axis=1)
    return now.start + (int(differs.argmax()) if differs.any() else count) * now.window
