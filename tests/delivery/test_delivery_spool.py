"""The spool: what is appended is there after a kill, in order, once; what it cannot hold is counted."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from receivers import event, numbers

from app.errors import ClusterflowError, UserError
from delivery.event import Document
from delivery.queue import FILE, Spool


def _all(spool: Spool, name: str, most: int = 7) -> list[Document]:
    """Take everything that waits."""
    found: list[Document] = []
    while (batch := spool.read(name, most, 0)) is not None:
        assert len(batch.events) <= most
        found += batch.events
        spool.delivered(name, batch.next)
    return found


def test_each_destination_reads_all_in_order_at_its_own_pace(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["fast", "slow"])
    for start in range(0, 100, 4):
        spool.append([event(number) for number in range(start, start + 4)], {})
        assert numbers(_all(spool, "fast", 3)) == list(range(start, start + 4))
    assert spool.waiting("slow") == 100
    full = spool.size()
    assert numbers(_all(spool, "slow")) == list(range(100))
    # What all have got goes.
    assert spool.size() < full / 2
    spool.close()


def test_positions_and_notes_survive(tmp_path: Path) -> None:
    first = Spool(tmp_path, 10_000_000)
    first.register(["a"])
    for number in range(50):
        first.append([event(number)], {"source": {"until": number}})
    batch = first.read("a", 20, 0)
    assert batch is not None
    first.delivered("a", batch.next)
    first.close()
    second = Spool(tmp_path, 10_000_000)
    second.register(["a", "new"])
    assert second.note("source") == {"until": 49}
    assert numbers(_all(second, "a")) == list(range(20, 50))
    # Who is new gets what is new.
    assert second.waiting("new") == 0
    second.append([event(50)], {})
    assert numbers(_all(second, "new")) == [50]
    second.close()


def test_a_full_spool_drops_the_oldest_and_counts_who_lost_what(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 80_000)
    spool.register(["away", "here"])
    for number in range(200):
        spool.append([event(number)], {"source": number})
        assert numbers(_all(spool, "here")) == [number]
    assert spool.size() <= 80_000
    lost = spool.lost()
    assert set(lost) == {"away"}
    # No more than has to: what is kept fills the spool.
    assert spool.size() > 60_000
    assert numbers(_all(spool, "away")) == list(range(lost["away"], 200))
    assert spool.note("source") == 199
    spool.close()


def test_a_damaged_event_is_passed_over_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    spool.append([event(number) for number in range(4)], {})
    spool.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("UPDATE event SET text = '[]' WHERE number = 1")
        file.execute("UPDATE event SET text = x'ff7b7d' WHERE number = 3")
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    assert numbers(_all(spool, "a")) == [0, 2]
    assert spool.damaged() == 2
    assert spool.waiting("a") == 0
    spool.close()


def test_a_damaged_file_is_moved_aside_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    spool.append([event(number) for number in range(200)], {"source": 1})
    spool.close()
    path = tmp_path / FILE
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(8192) + content[16384:])
    spool = Spool(tmp_path, 10_000_000)
    assert (spool.broken, spool.damaged(), spool.note("source")) == (f"{FILE}.broken-1", 1, None)
    spool.register(["a"])
    spool.append([event(7)], {})
    assert numbers(_all(spool, "a")) == [7]
    spool.close()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    spool.append([event(0)], {"source": 0})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / f"{FILE}-wal").stat().st_size + 4096, limits[1]))
    try:
        with pytest.raises(ClusterflowError, match=FILE):
            spool.append([event(number) for number in range(1, 500)], {"source": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (spool.waiting("a"), spool.note("source")) == (1, 0)
    spool.append([event(1)], {"source": 1})
    assert numbers(_all(spool, "a")) == [0, 1]
    spool.close()


def test_a_folder_has_one_process(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    with pytest.raises(UserError, match="another `clusterflow deliver` uses it"):
        Spool(tmp_path, 1000)
    spool.close()
    Spool(tmp_path, 1000).close()


_WRITER = """
import sys
from pathlib import Path
from receivers import event
from delivery.queue import Spool
spool = Spool(Path(sys.argv[1]), 100_000_000)
spool.register(["a"])
number = spool.note("next") or 0
while True:
    spool.append([event(number), event(number + 1)], {"next": number + 2})
    number += 2
    print(number, flush=True)
    if number % 6 == 0:
        batch = spool.read("a", 3, 0)
        if batch:
            spool.delivered("a", batch.next)
"""


@pytest.mark.service
def test_what_was_acknowledged_is_there_after_kills(tmp_path: Path) -> None:
    """A process that appends and takes is killed again and again, wherever it is."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    told = 0
    for turn in range(4):
        command = [sys.executable, "-c", _WRITER, str(tmp_path / "spool")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        assert process.stdout.readline()
        time.sleep(0.05 + 0.03 * turn)
        process.send_signal(signal.SIGKILL)
        told = int((process.stdout.read().splitlines() or [told])[-1] or told)
        process.wait()
    spool = Spool(tmp_path / "spool", 100_000_000)
    spool.register(["a"])
    noted = spool.note("next")
    assert noted >= told > 0
    left = numbers(_all(spool, "a"))
    # Notes and events are of one mind, and nothing of what was not taken is missing.
    assert left == list(range(noted - len(left), noted))
    spool.close()
