"""What cannot be written is told as what it is."""

import errno
import os
import time
from pathlib import Path
from typing import NoReturn

import pytest
from test_runs import NOW, Kept, job, site

from analysis.beside import Beside
from analysis.standings import Standings
from app.log import Log


@pytest.mark.parametrize(
    ("code", "what"), [(errno.ENOSPC, "make room"), (errno.EROFS, "writable"), (errno.EIO, "dmesg"), (errno.EMFILE, "")]
)
def test_only_a_full_disk_is_told_to_be_full(
    code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    beside = Beside("late_search", fail, Log(), 60)
    beside.start()
    while not (said := capsys.readouterr().err):
        time.sleep(0.001)
    beside.stop()
    monkeypatch.setattr(os, "fsync", fail)
    assert not Standings(tmp_path, site(), Log()).keep(job("one", NOW), Kept(1))
    lines = [*said.splitlines(), *capsys.readouterr().err.splitlines()]
    assert [line.split("event=")[1].split()[0] for line in lines] == ["late_search_delayed", "standing_not_kept"]
    for line in lines:
        hint = line.split('hint="')[1]
        assert os.strerror(code) in line
        assert what in hint
        assert what == "make room" or "make room" not in hint
