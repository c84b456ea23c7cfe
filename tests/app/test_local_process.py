"""A server of our own ends with us, also where ^C comes while it starts."""

import os
from pathlib import Path

import pytest

from app.local_process import LocalProcess


class _Slow(LocalProcess):
    """A process that never answers; whoever waits for it loses patience."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.started = log, 0

    def start(self) -> None:
        self.started = self._launch(["sleep", "60"], self.log).pid
        raise KeyboardInterrupt


def test_who_is_interrupted_while_a_process_starts_leaves_none_behind(tmp_path: Path) -> None:
    server = _Slow(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        server.__enter__()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(server.started, 0)
