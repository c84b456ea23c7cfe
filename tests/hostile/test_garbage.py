"""Whatever stands in a spool file, reading it takes time and memory in proportion to its size.

A chunk is read in a process of its own, whose memory and processor time the kernel limits: what goes beyond is killed.
The limits are ten times what a chunk of good records takes, and far below what a reader takes that begins anew at each
odd line.
"""

import subprocess
import sys

import pytest

from ingest.read.records import SPOOL_COLUMNS

CHUNK_BYTES = 8 << 20
PROCESSOR_SECONDS = 30
MEMORY_BYTES = 3 << 30

HEADER = ",".join(SPOOL_COLUMNS)
OTHER_HEADER = ",".join(reversed(SPOOL_COLUMNS))
RECORD = "127.0.0.1,1,2,10.1.0.1,10.1.0.2,1,2,24,6,0,1,0.000000,0.000000,1795295340.522000,1,5,0,1,1,613"
RECORD_BACKWARDS = ",".join(reversed(RECORD.split(",")))
OBJECT = '{"event_type":"purge","ip_src":"10.1.0.1","ip_dst":"10.1.0.2","bytes":5,"packets":1}'

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
from ingest.read.readers import read_chunk
from ingest.read.readers_format import Format, Kind
kind = Kind(sys.argv[1])
unit = sys.stdin.buffer.read()
raw = unit * (int(sys.argv[2]) // len(unit))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[4]),) * 2)
parsed = read_chunk(raw, Format(kind, sys.argv[5]))
print(parsed.frame.height / raw.count(unit), parsed.dead.height / raw.count(unit))
"""


@pytest.mark.parametrize(
    ("unit", "kind", "kept", "dead"),
    [
        pytest.param(f"{RECORD}\n", "csv", 1, 0, id="good records"),
        pytest.param(f"{RECORD}\nx,y\n", "csv", 1, 1, id="every other line short"),
        pytest.param(f"{RECORD}\n{RECORD}9e99\n", "csv", 1, 1, id="every other counter broken"),
        pytest.param(f"{HEADER}\n{RECORD}\n", "csv", 1, 0, id="a header before each record"),
        pytest.param(
            f"{HEADER}\n{RECORD}\n{OTHER_HEADER}\n{RECORD_BACKWARDS}\n", "csv", 2, 0, id="another header each time"
        ),
        pytest.param("PACKETS x\n", "csv", 0, 1, id="nearly headers"),
        pytest.param(",,,,,,,,,,,,,,,,,,,\n", "csv", 0, 1, id="empty fields"),
        pytest.param("(\n", "csv", 0, 1, id="parentheses"),
        pytest.param("--START (1)--\n", "csv", 0, 0, id="markers"),
        pytest.param("\x00\n", "csv", 0, 1, id="zeros"),
        pytest.param("\n", "csv", 0, 0, id="blank lines"),
        pytest.param(f"{OBJECT}\n", "json", 1, 0, id="good objects"),
        pytest.param(f"{OBJECT}\n{{x}}\n", "json", 1, 1, id="every other line no object"),
        pytest.param(f'{OBJECT}\n{{"bytes":NaN}}\n', "json", 1, 1, id="every other line not a number"),
        pytest.param('{"ip_src":"\x02"}\n', "json", 0, 1, id="control characters"),
        pytest.param("{}\n", "json", 0, 1, id="empty objects"),
        pytest.param("{\n", "json", 0, 1, id="braces"),
        pytest.param('{"a":' * 900 + "1" + "}" * 900 + "\n", "json", 0, 1, id="nested"),
        pytest.param('{"ip_src":"\\ud800"}\n', "json", 0, 1, id="half a character"),
        pytest.param('{"bytes":' + "9" * 400 + "}\n", "json", 0, 1, id="a huge number"),
    ],
)
def test_garbage_is_read_in_proportion(unit: str, kind: str, kept: float, dead: float) -> None:
    limits = (CHUNK_BYTES, MEMORY_BYTES, PROCESSOR_SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", READ, kind, *map(str, limits), HEADER if kind == "csv" else ""],
        input=unit.encode("latin-1"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    assert [float(share) for share in done.stdout.split()] == [kept, dead]
