"""The spool: what is appended is there after a kill, in order, once; what it cannot hold is counted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from receivers import event, numbers

from cluster.errors import UserError
from delivery.event import Document
from delivery.spool import Spool


def _all(spool: Spool, name: str, most: int = 7) -> list[Document]:
    """Take everything that waits."""
    found: list[Document] = []
    while (batch := spool.read(name, most, 0)) is not None:
        assert len(batch.events) <= most
        found += batch.events
        spool.delivered(name, batch.next)
    return found


def test_each_destination_reads_all_in_order_at_its_own_pace(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000, segment_bytes=20_000)
    spool.register(["fast", "slow"])
    for start in range(0, 100, 4):
        spool.append([event(number) for number in range(start, start + 4)], {})
        assert numbers(_all(spool, "fast", 3)) == list(range(start, start + 4))
    assert len(list(tmp_path.glob("*.events"))) > 2
    assert spool.waiting("slow") == 100
    assert numbers(_all(spool, "slow")) == list(range(100))
    # What all have got goes, but for the segment that is written.
    assert len(list(tmp_path.glob("*.events"))) == 1
    spool.close()


def test_positions_and_notes_survive(tmp_path: Path) -> None:
    first = Spool(tmp_path, 10_000_000, segment_bytes=10_000)
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


def test_half_a_record_is_cut_off(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    spool.append([event(0)], {"source": 1})
    spool.append([event(1)], {"source": 2})
    spool.close()
    (path,) = tmp_path.glob("*.events")
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    assert spool.note("source") == 1
    spool.append([event(2)], {})
    assert numbers(_all(spool, "a")) == [0, 2]
    assert spool.damaged() == 0
    spool.close()


def test_a_damaged_record_is_passed_over_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    for number in range(3):
        spool.append([event(number)], {})
    spool.close()
    (path,) = tmp_path.glob("*.events")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"number 1", b"number 9")
    path.write_bytes(b"".join(lines))
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    assert numbers(_all(spool, "a")) == [0, 2]
    assert spool.damaged() == 1
    spool.close()


def test_a_full_spool_drops_the_oldest_and_counts_who_lost_what(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 40_000)
    spool.register(["away", "here"])
    for number in range(200):
        spool.append([event(number)], {"source": number})
        assert numbers(_all(spool, "here")) == [number]
    assert spool.size() <= 40_000
    lost = spool.lost()
    assert set(lost) == {"away"}
    assert numbers(_all(spool, "away")) == list(range(lost["away"], 200))
    assert spool.note("source") == 199
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
from delivery.spool import Spool
spool = Spool(Path(sys.argv[1]), 100_000_000, segment_bytes=30_000)
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


@pytest.mark.parametrize("content", ["", "half", "\x00\x00"], ids=["empty", "text", "zeros"])
def test_who_has_a_position_that_cannot_be_read_is_not_new(tmp_path: Path, content: str) -> None:
    first = Spool(tmp_path, 10_000_000)
    first.register(["a"])
    first.append([event(0), event(1)], {})
    first.close()
    (tmp_path / "a.position").write_text(content)
    second = Spool(tmp_path, 10_000_000)
    assert second.register(["a", "new"]) == ["a"]
    assert second.waiting("new") == 0
    assert numbers(_all(second, "a")) == [0, 1]
    second.close()


def test_only_what_changes_in_notes_is_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000, segment_bytes=20_000)
    spool.register(["a"])
    seen = {f"event-{number:04d}": number for number in range(2_000)}
    spool.append([], {"reading": {"until": 0, "seen": seen}, "other": 1})
    before = spool.size()
    for number in range(100):
        seen = {name: moment for name, moment in seen.items() if moment > number}
        seen[f"event-{2_000 + number}"] = 2_000 + number
        spool.append([event(number)], {"reading": {"until": number, "seen": seen}})
        spool.append([], {"reading": {"until": number, "seen": seen}})
    # All of them stand where a segment begins, and nowhere else.
    assert spool.size() < 10 * before
    spool.close()
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    assert (spool.note("reading"), spool.note("other")) == ({"until": 99, "seen": seen}, 1)
    assert numbers(_all(spool, "a")) == list(range(100))
    spool.close()


def test_a_large_record_is_read_once_and_what_failed_is_read_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000_000)
    spool.register(["a"])
    spool.append([event(number) for number in range(500)], {})
    spool.append([event(500)], {})
    first, again, smaller = (spool.read("a", most, 0) for most in (400, 400, 10))
    assert first is not None
    assert smaller is not None
    assert (again, numbers(smaller.events)) == (first, list(range(10)))
    spool.delivered("a", smaller.next)
    # It is in memory: its file is not asked for.
    for path in tmp_path.glob("*.events"):
        path.rename(path.with_suffix(".away"))
    for start in range(10, 490, 10):
        batch = spool.read("a", 10, 0)
        assert batch is not None
        assert numbers(batch.events) == list(range(start, start + 10))
        spool.delivered("a", batch.next)
    for path in tmp_path.glob("*.away"):
        path.rename(path.with_suffix(".events"))
    assert numbers(_all(spool, "a")) == list(range(490, 501))
    spool.close()
