"""`clusterflow sessions`: staged sessions are found, exact in number, bytes and times; what is none is not."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from test_archive import T0, an_archive, rows, saved

from app.application import Application
from app.signing import SUFFIX
from operations.questions.sessions_cli import sessions

CLUSTER = """cluster: lab
groups:
  training: {role: training, prefixes: [10.1.0.0/16]}
  control: {role: management, prefixes: [10.9.0.0/24]}
exporters: {leaf: {address: 192.0.2.1}}
services: {fabric-api: {ports: [7777], protocols: [tcp]}}
management: {sessions: [ssh, gnmi, ipmi, fabric-api], session_gap: 10m}
identity:
  sources: [{name: vpn, format: csv, path: FOLDER/vpn.csv, columns: {time: time, user: user, address: ip}}]
archive: {folder: FOLDER/archive}
"""
SYN, ACK, PSH = 2, 16, 8
_USUAL = SYN | ACK | PSH


def record(src: str, dst: str, ports: tuple[int, int], times: tuple[int, int], size: int, **more: Any) -> pl.DataFrame:
    """One record between nodes or addresses: `admin` and `leaf-3` are in control, `10.1...` in training."""
    sides = {"admin": ("10.9.0.1", "control"), "leaf-3": ("10.9.0.3", "control")}
    named = {}
    for side, name in (("src", src), ("dst", dst)):
        address, group = sides.get(name, (name, "training" if name.startswith("10.1.") else "external"))
        named |= {side: address, f"{side}_node": name, f"{side}_group": group}
    begin, end = times
    frame = rows(1, **named, src_port=ports[0], dst_port=ports[1], **({"tcp_flags": _USUAL, "packets": 5} | more))  # type: ignore[arg-type]
    return frame.with_columns(
        *(pl.lit(value).cast(pl.Int64).alias(name) for name, value in (("start", T0 + begin), ("end", T0 + end))),
        *(pl.lit(value).alias(name) for name, value in named.items()),
        pl.lit(size).cast(pl.Int64).alias("bytes"),
    )


LONG = [  # an hour in both directions, as an exporter with an active timeout of 30 minutes tells it
    record("admin", "leaf-3", (40_001, 22), (1000, 2800), 500),
    record("leaf-3", "admin", (22, 40_001), (1000, 2800), 9000),
    record("admin", "leaf-3", (40_001, 22), (2801, 4600), 700),
    record("leaf-3", "admin", (22, 40_001), (2801, 4590), 8000),
]
AGAIN = [record("admin", "leaf-3", (40_002, 22), (5201, 5210), 60)]  # 601 s after the end of the long one
NO_GAP = [record("admin", "leaf-3", (40_003, 22), (5810, 5811), 40)]  # 600 s after that: the same session
ONE_WAY = [record("203.0.113.5", "10.1.0.2", (50_000, 22), (100, 130), 4000)]
REPLIES = [record("10.1.0.3", "admin", (22, 51_000), (200, 260), 6000)]
IPMI = [  # both ports are the same: who came first opened it
    record("admin", "10.1.0.4", (623, 623), (300, 301), 90, protocol="udp", tcp_flags=0),
    record("10.1.0.4", "admin", (623, 623), (301, 302), 70, protocol="udp", tcp_flags=0),
]
GNMI = [  # by ports the client would serve `rendezvous`: the lone SYN of another record says who opened it
    record("10.1.0.9", "admin", (57_400, 29_500), (401, 460), 5000),
    record("admin", "10.1.0.9", (29_500, 57_400), (400, 400), 60, tcp_flags=SYN, packets=1),
]
OWN = [record("10.1.0.7", "10.1.0.8", (40_000, 7777), (10, 20), 800)]
NEAR_MISSES = [
    record("10.1.0.5", "203.0.113.9", (57_400, 443), (500, 510), 10**6),  # a client's port that is gNMI's by chance
    record("admin", "10.1.0.5", (40_000, 443), (500, 510), 10**6),  # https, but of no management node
    record("10.1.0.5", "10.1.0.6", (40_000, 2049), (500, 510), 10**6),
    record("admin", "10.1.0.5", (22, 40_005), (500, 500), 60, tcp_flags=SYN, packets=1),  # a scan from port 22
    record("admin", "leaf-3", (40_001, 22), (2801, 4600), 700, counted=False),  # seen by another exporter, too
]
WEB = [record("10.1.0.5", "leaf-3", (40_000, 443), (600, 620), 3000)]  # https of a management node

SESSIONS = {
    ("admin", "leaf-3", "ssh", 1000, 4600): (1200, 17_000, 1),
    ("admin", "leaf-3", "ssh", 5201, 5811): (100, 0, 2),
    ("203.0.113.5", "10.1.0.2", "ssh", 100, 130): (4000, 0, 1),
    ("admin", "10.1.0.3", "ssh", 200, 260): (0, 6000, 1),
    ("admin", "10.1.0.4", "ipmi", 300, 302): (90, 70, 1),
    ("admin", "10.1.0.9", "gnmi", 400, 460): (60, 5000, 1),
    ("10.1.0.7", "10.1.0.8", "fabric-api", 10, 20): (800, 0, 1),
    ("10.1.0.5", "leaf-3", "https", 600, 620): (3000, 0, 1),
}
"""Source, destination, service, begin, end -> bytes sent and received, connections."""


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "cluster.yaml"
        archive = an_archive(folder / "archive")
        for part in (LONG, AGAIN, NO_GAP, ONE_WAY, REPLIES, IPMI, GNMI, OWN, NEAR_MISSES, WEB):
            archive.take(pl.concat(part))
        saved(archive)
        archive.close()
        self.config.write_text(CLUSTER.replace("FOLDER", str(folder)))
        (folder / "vpn.csv").write_text(f"time,user,ip\n{T0 + 900},ada,10.9.0.1\n{T0 + 5000},=bob,10.9.0.1\n")

    def __call__(self, *arguments: str) -> Result:
        application = Application(name="clusterflow")
        application.add_command(sessions)
        period = ("--from", str(T0 - 3600), "--to", str(T0 + 4 * 3600))
        return CliRunner().invoke(application, ["sessions", "-c", str(self.config), *period, *arguments])

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        found = self("--json", *arguments)
        assert found.exit_code == 0, found.output
        document: dict[str, Any] = json.loads(found.stdout)
        return list(document["rows"])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


def _who(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["src_node"], row["dst_node"], row["service"], row["start"] - T0, row["end"] - T0


def test_staged_sessions_are_found_exactly_and_nothing_else(lab: Lab) -> None:
    found = lab.rows()
    assert {_who(row): (row["sent"], row["received"], row["connections"]) for row in found} == SESSIONS
    assert not any(row["begun_before"] or row["goes_on"] for row in found)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--dst", "leaf-3"), 3),
        (("--src", "admin"), 5),
        (("--src", "leaf-3"), 0),
        (("--src", "control", "--dst", "training"), 3),
        (("--src", "external"), 1),
        (("--src", "203.0.113.0/24"), 1),
        (("--node", "leaf-3"), 3),
        (("--service", "ssh"), 4),
        (("--user", "ada"), 1),
    ],
)
def test_questions_are_about_who_opened_whom_whichever_direction_was_seen(
    lab: Lab, arguments: tuple[str, ...], expected: int
) -> None:
    assert len(lab.rows(*arguments)) == expected


def test_the_user_is_who_had_the_address_when_it_began(lab: Lab) -> None:
    assert [row["user"] for row in lab.rows("--dst", "leaf-3", "--service", "ssh")] == ["ada", "=bob"]


def test_pairs_tell_how_often_and_how_long(lab: Lab) -> None:
    (row,) = lab.rows("--pairs", "--dst", "leaf-3", "--user", "ada")
    assert (row["sessions"], row["seconds"], row["sent"], row["received"]) == (1, 3600, 1200, 17_000)


def test_what_touches_the_edge_of_the_period_is_marked(lab: Lab) -> None:
    (row,) = lab.rows("--dst", "leaf-3", "--service", "ssh", "--from", str(T0 + 4000), "--to", str(T0 + 4700))
    assert (row["begun_before"], row["goes_on"]) == (True, True)
    shown = lab("--dst", "leaf-3", "--service", "ssh", "--from", str(T0 + 4000), "--to", str(T0 + 4700)).stdout
    header, row = shown.splitlines()[:2]
    names = "start (UTC) end (UTC) seconds src_node src_group user dst_node dst_group service port sent received flows"
    assert header.split() == names.split()
    assert "  <29m 59s>  admin " in row
    assert "neither what was typed nor whether a login succeeded" in shown


def test_a_csv_holds_no_formula_and_times_in_utc(lab: Lab) -> None:
    rows = pl.read_csv(io.StringIO(lab("--csv", "--dst", "leaf-3").stdout))
    assert rows["user"].to_list() == ["", "ada", "'=bob"]
    assert rows["start"][1] == "2026-09-21T14:16:40Z"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--service", "nfs"), "nfs: management.sessions has ssh, gnmi, ipmi, fabric-api, http, https"),
        (("--group", "nobody"), "--group nobody: no such group"),
        (("--sign", "KEY"), "--sign: nothing is written to a file"),
        (("--csv", "OUT", "--sign", "/nowhere/key.pem"), "/nowhere/key.pem: cannot be read"),
        (("--csv", "OUT", "--sign", "CONFIG"), "no private key that openssl reads without a passphrase"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(lab: Lab, arguments: tuple[str, ...], told: str) -> None:
    names = {"CONFIG": str(lab.config), "OUT": str(lab.folder / "unused.csv")}
    found = lab(*(names.get(one, one) for one in arguments))
    assert found.exit_code == 2
    assert told in found.stderr
    assert not (lab.folder / "unused.csv").exists()


def _openssl(*arguments: object) -> int:
    return subprocess.run(["openssl", *map(str, arguments)], check=False, capture_output=True).returncode


def test_a_signature_holds_for_these_bytes_only_and_the_key_is_told_nowhere(lab: Lab, tmp_path: Path) -> None:
    key, public, file = tmp_path / "key.pem", tmp_path / "public.pem", tmp_path / "sessions.csv"
    assert _openssl("genpkey", "-algorithm", "ed25519", "-out", key) == 0
    assert _openssl("pkey", "-in", key, "-pubout", "-out", public) == 0
    done = lab("--csv", str(file), "--sign", str(key))
    assert done.exit_code == 0, done.output
    secret = key.read_text().splitlines()[1]
    assert secret not in done.output + file.read_text()
    check = ("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public, "-sigfile", f"{file}{SUFFIX}", "-in", file)
    assert _openssl(*check) == 0
    changed = bytearray(file.read_bytes())
    changed[-2] ^= 1
    file.write_bytes(changed)
    assert _openssl(*check) != 0


def test_another_kind_of_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    key = tmp_path / "rsa.pem"
    assert _openssl("genpkey", "-algorithm", "rsa", "-out", key) == 0
    found = lab("--csv", str(tmp_path / "x.csv"), "--sign", str(key))
    assert (found.exit_code, "expected an Ed25519 key" in found.stderr) == (2, True)
