"""Exports of sign-ins: a sample of each product, files that grow and turn over, and what nobody should believe."""

import gc
import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hanging_disk import hanging
from hypothesis import given
from hypothesis import strategies as st

from cluster.model import IdentitySettings, SignInColumns, SignInFormat, SignInSource, Site
from enrichment.identity.log_times import Clock
from enrichment.identity.signin_files import SourceFiles, Tally, reader_of
from enrichment.identity.signin_lines import Mark, Sessions
from enrichment.identity.signin_sources import Identity

SAMPLES = Path(__file__).parent / "signins"
SITE = Site(ZoneInfo("Europe/Amsterdam"))
NOW = datetime(2026, 7, 7, 9, tzinfo=UTC).timestamp()
"""11:00 in Amsterdam; sign-ins of the samples begin at 10:00."""

BADGE = SignInColumns("client_ip", "login", "at", "what")
GATEWAY = SignInColumns("client.ip", "who.name", "ts")


def moment(text: str) -> float:
    """Return a time of the day of the samples, by Amsterdam's clock."""
    return datetime.fromisoformat(f"2026-07-07T{text}+02:00").timestamp()


def identity_of(*sources: SignInSource, key: bytes | None = None, hold: int = 900) -> Identity:
    settings = IdentitySettings(sources, hold, ("EXAMPLE", "EXAMPLE.ORG", "LOCAL"))
    return Identity(settings, SITE, 7 * 86_400, key)


def user(identity: Identity, address: str, at: str) -> str:
    return str(identity.table.user_at([address], [int(moment(at))])[0])


def users(identity: Identity, told: str) -> dict[str, str]:
    """Return who is told for ``address at HH:MM``, several of which are parted by commas."""
    return {one: user(identity, *one.split(" at ")) for one in told.split(", ")}


SAMPLE_USERS = [
    ("openvpn_status", "openvpn-status-2.log", {}, {
        "10.8.0.6 at 09:59": "", "10.8.0.6 at 10:00": "alice", "10.8.0.6 at 10:29": "alice", "10.8.0.6 at 10:30": "",
        "fd00:8::6 at 10:15": "alice", "10.8.0.7 at 10:16": "bob",
    }),
    ("openvpn_status", "openvpn-status-1.log", {}, {
        "10.8.0.6 at 10:15": "alice", "10.8.0.9 at 10:16": "site-b", "192.168.2.0 at 10:16": "",
    }),
    ("openvpn_log", "openvpn.log", {}, {
        "10.8.0.6 at 09:59": "", "10.8.0.6 at 10:00": "alice", "10.8.0.6 at 10:14": "alice", "10.8.0.6 at 10:20": "",
        "10.8.0.6 at 10:30": "bob", "10.8.0.6 at 10:50": "",
    }),
    ("cisco_asa", "cisco-asa.log", {}, {
        "10.9.0.6 at 10:00": "alice", "10.9.0.6 at 10:09": "alice", "10.9.0.6 at 10:10": "", "10.9.0.6 at 10:30": "bob",
        "10.9.0.6 at 10:40": "", "10.9.0.8 at 10:54": "carol", "10.9.0.8 at 10:55": "",
        "2001:db8:9::8 at 10:56": "carol",
    }),
    ("radius_detail", "radius-detail", {}, {
        "10.7.0.6 at 10:00": "alice", "10.7.0.6 at 10:19": "alice", "10.7.0.6 at 10:20": "",
        "2001:db8:7::6 at 10:09": "", "2001:db8:7::6 at 10:10": "alice",
    }),
    ("radius_json", "radius.jsonl", {}, {
        "10.7.0.6 at 10:00": "alice", "10.7.0.7 at 10:00": "bob", "10.7.0.7 at 10:20": "",
    }),
    ("windows_json", "windows.jsonl", {}, {
        "10.70.0.21 at 10:01": "alice", "10.70.0.21 at 10:13": "alice", "10.70.0.22 at 10:12": "bob",
        "10.70.0.23 at 10:20": "carol", "10.70.0.23 at 10:23": "carol",
    }),
    ("windows_csv", "windows.csv", {}, {"10.70.0.21 at 10:01": "alice", "10.70.0.22 at 10:12": "bob"}),
    ("entra_json", "entra-graph.json", {}, {"203.0.113.21 at 10:00": "alice", "203.0.113.21 at 10:14": "alice"}),
    ("entra_json", "entra-diagnostic.jsonl", {}, {"203.0.113.21 at 10:00": "alice", "2001:db8:21::1 at 10:10": "bob"}),
    ("entra_csv", "entra-portal.csv", {}, {
        "203.0.113.21 at 10:00": "alice", "203.0.113.21 at 10:12": "alice", "2001:db8:21::1 at 10:10": "bob",
    }),
    ("okta_json", "okta.jsonl", {}, {
        "203.0.113.21 at 10:01": "alice", "203.0.113.21 at 10:06": "alice", "203.0.113.22 at 10:10": "bob",
        "203.0.113.21 at 10:20": "",
    }),
    ("csv", "badge.csv", {"columns": BADGE, "starts": ("login",), "stops": ("logout",)}, {
        "10.70.0.31 at 10:00": "alice", "10.70.0.31 at 10:06": "alice", "10.70.0.31 at 10:20": "",
    }),
    ("json", "gateway.jsonl", {"columns": GATEWAY}, {
        "10.70.0.31 at 10:01": "alice", "10.70.0.31 at 10:11": "alice", "10.70.0.31 at 10:20": "bob",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "file", "more", "expected"), SAMPLE_USERS, ids=[one[1] for one in SAMPLE_USERS])
def test_a_sample_of_each_product(
    kind: str, file: str, more: dict[str, object], expected: dict[str, str], tmp_path: Path
) -> None:
    """Those who are told, those who failed, computers that sign in, and who left."""
    path = tmp_path / file
    path.write_bytes((SAMPLES / file).read_bytes())
    identity = identity_of(SignInSource("it", SignInFormat(kind), str(path), **more))  # type: ignore[arg-type]
    identity.refresh(NOW)
    (reading,) = identity.readings()
    assert (reading.error, reading.skipped) == ("", 0)
    assert users(identity, ", ".join(expected)) == expected


# -- files that grow and turn over ---------------------------------------------------------------------------


def okta_line(who: str, address: str, at: str) -> str:
    event = {
        "published": datetime.fromtimestamp(moment(at), UTC).isoformat(), "eventType": "user.session.start",
        "actor": {"type": "User", "alternateId": who}, "client": {"ipAddress": address},
        "outcome": {"result": "SUCCESS"},
    }  # fmt: skip
    return json.dumps(event) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "okta.jsonl"
    path.write_text(okta_line("alice", "10.70.0.1", "10:00") * 2)
    return path


@pytest.fixture
def followed(log: Path) -> Identity:
    found = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(log)), hold=7200)
    found.refresh(NOW)
    return found


def entries(identity: Identity) -> int:
    return identity.readings()[0].entries


def test_a_file_is_read_from_where_it_stopped(log: Path, followed: Identity) -> None:
    line = okta_line("bob", "10.70.0.2", "10:30")
    with log.open("a") as file:
        file.write(line[:40])
        file.flush()
        followed.refresh(NOW)
        assert entries(followed) == 2, "half a line waits for its end"
        file.write(line[40:])
    followed.refresh(NOW)
    followed.refresh(NOW)
    assert entries(followed) == 3
    assert (user(followed, "10.70.0.1", "10:10"), user(followed, "10.70.0.2", "10:31")) == ("alice", "bob")


def test_a_file_that_is_renamed_and_begun_anew_loses_no_line(log: Path, followed: Identity) -> None:
    with log.open("a") as file:
        file.write(okta_line("bob", "10.70.0.2", "10:30"))
        file.write(okta_line("carol", "10.70.0.3", "10:30").rstrip())
    log.rename(log.with_suffix(".1"))
    log.write_text(okta_line("dave", "10.70.0.4", "10:40"))
    followed.refresh(NOW)
    assert [user(followed, f"10.70.0.{n}", "10:45") for n in (1, 2, 3, 4)] == ["alice", "bob", "carol", "dave"]
    assert entries(followed) == 5


def test_a_renamed_file_is_followed_until_the_next_one_is_written(log: Path, followed: Identity) -> None:
    """As logrotate does with `create`: it makes the new file, and only then tells who writes."""
    writer = log.open("a")
    log.rename(log.with_suffix(".1"))
    log.touch()
    followed.refresh(NOW)
    with writer:
        writer.write(okta_line("bob", "10.70.0.2", "10:30"))
    followed.refresh(NOW)
    assert user(followed, "10.70.0.2", "10:31") == "bob"
    log.write_text(okta_line("carol", "10.70.0.3", "10:40"))
    followed.refresh(NOW)
    assert (user(followed, "10.70.0.3", "10:41"), entries(followed)) == ("carol", 4)


def test_a_disk_that_does_not_answer_is_told_and_not_waited_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enrichment.identity.signin_sources._PATIENCE_SECONDS", 0.1)
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(log)), hold=7200)
    with hanging(log):
        begun = time.monotonic()
        for _ in range(3):
            identity.refresh(NOW)
        assert time.monotonic() - begun < 5
        assert identity.readings()[0].error == f"{log}: nothing was read for 0.1 s (does its disk answer?)"
        assert user(identity, "10.70.0.1", "10:10") == ""
    deadline = time.monotonic() + 30
    while not user(identity, "10.70.0.1", "10:10") and time.monotonic() < deadline:
        time.sleep(0.02)
    identity.refresh(NOW)
    assert (user(identity, "10.70.0.1", "10:10"), identity.readings()[0].error) == ("alice", "")


def test_a_file_that_is_truncated_or_written_over_is_read_anew(log: Path, followed: Identity) -> None:
    log.write_text(okta_line("bob", "10.70.0.2", "10:30"))
    followed.refresh(NOW)
    log.write_text(okta_line("eve", "10.70.0.5", "10:31") + okta_line("dave", "10.70.0.4", "10:40"))
    followed.refresh(NOW)
    assert [user(followed, f"10.70.0.{n}", "10:45") for n in (1, 2, 4, 5)] == ["alice", "bob", "dave", "eve"]


def test_a_file_that_is_not_there_is_one_line_and_found_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "okta.jsonl"
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(path)))
    identity.refresh(NOW)
    assert identity.readings()[0].error == f"{path}: No such file or directory"
    assert not identity.readings()[0].in_use
    path.write_text(okta_line("bob", "10.70.0.2", "10:30"))
    identity.refresh(NOW)
    assert (identity.readings()[0].error, user(identity, "10.70.0.2", "10:31")) == ("", "bob")


def test_files_of_a_pattern_are_read_each_and_the_new_one_too(tmp_path: Path) -> None:
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(tmp_path / "okta-*.jsonl")), hold=7200)
    identity.refresh(NOW)
    assert identity.readings()[0].error == f"{tmp_path}/okta-*.jsonl: no such file"
    for number in (1, 2, 3):
        path = tmp_path / f"okta-{number}.jsonl"
        path.write_text(okta_line(f"user{number}", f"10.70.0.{number}", "10:30"))
        os.utime(path, (NOW, NOW))
        identity.refresh(NOW)
    assert [user(identity, f"10.70.0.{n}", "10:31") for n in (1, 2, 3)] == ["user1", "user2", "user3"]
    assert entries(identity) == 3


def test_a_file_that_leaves_the_pattern_is_read_to_its_end(tmp_path: Path) -> None:
    """As logrotate does with `dateext`, or before it compresses: the last line has no end yet."""
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(tmp_path / "okta-*.jsonl")), hold=7200)
    paths = [tmp_path / f"okta-{number}.jsonl" for number in (1, 2)]
    for path, who in zip(paths, ("alice", "bob"), strict=True):
        path.write_text(okta_line(who, "10.70.0.1", "10:00"))
        os.utime(path, (NOW, NOW))
    identity.refresh(NOW)
    for number, path in enumerate(paths, 2):
        with path.open("a") as file:
            file.write(okta_line("carol", f"10.70.0.{number}", "10:30").rstrip())
    paths[0].rename(tmp_path / "okta-1.jsonl.old")
    paths[1].unlink()
    identity.refresh(NOW)
    # Whoever writes into it has not been told yet.
    with (tmp_path / "okta-1.jsonl.old").open("a") as file:
        file.write("\n" + okta_line("dave", "10.70.0.4", "10:30").rstrip())
    identity.refresh(NOW)
    assert [user(identity, f"10.70.0.{n}", "10:31") for n in (2, 3, 4)] == ["carol", "carol", "dave"]
    identity.refresh(NOW)
    assert entries(identity) == 5


SESSIONS = {
    "openvpn_log": (
        "{} alice/198.51.100.44:1 MULTI_sva: pool returned IPv4=10.8.0.6, IPv6=(Not enabled)\n",
        "{} alice/198.51.100.44:1 SIGTERM[soft,remote-exit] received, client-instance exiting\n",
    ),
    "cisco_asa": (
        "{} %ASA-4-722051: Group <> User <alice> IP <::> IPv4 Address <10.8.0.6> IPv6 address <> assigned to session\n",
        "{} vpn %ASA-4-113019: Group = RA, Username = alice, IP = ::, Session disconnected.\n",
    ),
}


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("names", [("vpn-1.log", "vpn-2.log"), ("vpn-b.log", "vpn-a.log")])
@pytest.mark.parametrize("looks", [0, 1])
def test_a_session_of_one_file_ends_in_the_next(kind: str, names: tuple[str, str], looks: int, tmp_path: Path) -> None:
    """Whether the second file comes after a look, or both are there at the first, whatever they are called."""
    source = SignInSource("vpn", SignInFormat(kind), str(tmp_path / "vpn-*.log"))
    identity = identity_of(source, hold=7200)
    for name, text, at in zip(names, SESSIONS[kind], ("10:00:00", "10:20:00"), strict=True):
        (tmp_path / name).write_text(text.format(f"2026-07-07 {at}"))
        os.utime(tmp_path / name, (moment(at), moment(at)))
        for _ in range(looks):
            identity.refresh(NOW)
    identity.refresh(NOW)
    assert [user(identity, "10.8.0.6", at) for at in ("10:19", "10:20")] == ["alice", ""]


@pytest.mark.thorough
def test_a_log_whose_first_line_had_no_end_yet_is_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read as a whole with each line that came, and from 256 MB on not at all."""
    monkeypatch.setattr("enrichment.identity.signin_files.LARGEST_DOCUMENT", 2_000)
    log = tmp_path / "gateway.jsonl"
    lines = [
        json.dumps({"client": {"ip": f"10.8.0.{n}"}, "who": {"name": f"user{n}"}, "ts": moment("10:00")}) + "\n"
        for n in range(1, 41)
    ]
    identity = identity_of(SignInSource("it", SignInFormat.JSON, str(log), columns=GATEWAY))
    log.write_text(lines[0][:40])
    identity.refresh(NOW)
    log.write_text("".join(lines))
    identity.refresh(NOW)
    assert users(identity, "10.8.0.1 at 10:01, 10.8.0.40 at 10:01") == {
        "10.8.0.1 at 10:01": "user1", "10.8.0.40 at 10:01": "user40",
    }  # fmt: skip
    (reading,) = identity.readings()
    assert (reading.broken, reading.error) == (False, "")


def test_a_document_that_is_empty_while_it_is_written_anew_is_one(tmp_path: Path) -> None:
    """Also where it was empty when it was looked at first: then it was a log, of lines that are no JSON, for good."""
    path = tmp_path / "gateway.json"
    identity = identity_of(SignInSource("it", SignInFormat.JSON, str(path), columns=GATEWAY))
    for name in ("", "alice", "", "bob"):
        record = {"client": {"ip": "10.8.0.6"}, "who": {"name": name}, "ts": moment("10:00" if name < "b" else "10:10")}
        path.write_text(json.dumps([record], indent=2) if name else "")
        identity.refresh(NOW)
    assert users(identity, "10.8.0.6 at 10:01, 10.8.0.6 at 10:11") == {
        "10.8.0.6 at 10:01": "alice", "10.8.0.6 at 10:11": "bob",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("okta_json", json.dumps([json.loads(okta_line("alice", "10.70.0.1", "10:00"))] * 50, indent=1)),
        ("openvpn_status", (SAMPLES / "openvpn-status-2.log").read_text()),
    ],
)
def test_of_documents_that_are_gone_nothing_is_held(kind: str, text: str, tmp_path: Path) -> None:
    source = SignInSource("it", SignInFormat(kind), str(tmp_path / "it-*"))
    files = SourceFiles(source, 86_400)
    path = tmp_path / "it-1"
    path.write_text(text)
    os.utime(path, (NOW, NOW))
    before = marks_held()
    assert not look_at(files)
    assert marks_held() > before
    path.unlink()
    assert look_at(files) == f"{tmp_path}/it-*: no such file"
    assert marks_held() == before


def look_at(files: SourceFiles) -> str:
    def take(mark: Mark, place: str) -> None:
        del mark, place

    return files.refresh(Clock(SITE.time_zone, NOW), take, Tally())


def marks_held() -> int:
    gc.collect()
    return sum(isinstance(one, Mark) for one in gc.get_objects())


def test_who_is_in_a_status_file_no_more_has_left(tmp_path: Path) -> None:
    path = tmp_path / "status.log"
    text = (SAMPLES / "openvpn-status-2.log").read_text()
    path.write_text(text)
    identity = identity_of(SignInSource("vpn", SignInFormat.OPENVPN_STATUS, str(path)), hold=7200)
    identity.refresh(NOW)
    later = [line for line in text.splitlines() if "alice" not in line]
    path.write_text("\n".join(later).replace("10:15:00,1783412100", "10:16:00,1783412160"))
    identity.refresh(NOW)
    assert [user(identity, "10.8.0.6", at) for at in ("10:15", "10:16")] == ["alice", ""]
    assert user(identity, "10.8.0.7", "10:20") == "bob"
    path.write_text("half a fi")
    identity.refresh(NOW)
    assert identity.readings()[0].error == f"{path}: no time: expected a status file of OpenVPN"
    assert user(identity, "10.8.0.7", "10:20") == "bob", "what was known stays"


STATUS = (
    "OpenVPN CLIENT LIST\nUpdated,2026-07-07 {at}\nROUTING TABLE\nVirtual Address,Common Name,Real Address,Last Ref\n"
    "{routes}GLOBAL STATS\nEND\n"
)


def test_a_status_file_from_the_future_ends_nothing_until_one_can_be_believed(tmp_path: Path) -> None:
    path = tmp_path / "status.log"
    identity = identity_of(SignInSource("vpn", SignInFormat.OPENVPN_STATUS, str(path)), hold=7200)
    routes = [f"10.8.0.{n},user{n},198.51.100.4:{n},2026-07-07 10:00:00\n" for n in (1, 2)]
    for at, those in (("10:00:00", routes), ("14:00:00", routes[1:]), ("10:20:00", routes[1:])):
        path.write_text(STATUS.format(at=at, routes="".join(those)))
        identity.refresh(NOW)
        assert user(identity, "10.8.0.1", "10:10") == "user1"
    assert identity.readings()[0].error == f"{path}:5: a time 3h in the future (is a clock wrong, or time_zone?)"
    assert [user(identity, f"10.8.0.{n}", "10:30") for n in (1, 2)] == ["", "user2"]
    assert identity.readings()[0].skipped == 2, "one who is there, one who left"


def test_an_address_that_cannot_be_read_may_leave_a_status_file(tmp_path: Path) -> None:
    path = tmp_path / "status.log"
    identity = identity_of(SignInSource("vpn", SignInFormat.OPENVPN_STATUS, str(path)))
    path.write_text(STATUS.format(at="10:00:00", routes="10.8.0.999,alice,198.51.100.4:1,2026-07-07 10:00:00\n"))
    identity.refresh(NOW)
    path.write_text(STATUS.format(at="10:20:00", routes=""))
    identity.refresh(NOW)
    (reading,) = identity.readings()
    assert (reading.skipped, reading.error) == (1, f"{path}:5: no address where one is expected")


# -- what nobody should believe ------------------------------------------------------------------------------


def test_a_time_in_the_future_is_refused_with_one_line(log: Path) -> None:
    """A clock that is five minutes ahead is a clock; one that is two hours ahead is a wrong time zone."""
    log.write_text(
        okta_line("alice", "10.70.0.1", "11:04") + okta_line("bob", "10.70.0.2", "13:00") * 3
        + okta_line("carol", "10.70.0.3", "10:30")
    )  # fmt: skip
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(log)))
    identity.refresh(NOW)
    (reading,) = identity.readings()
    assert (reading.entries, reading.skipped) == (2, 3)
    assert reading.error == f"{log}:2: a time 2h in the future (is a clock wrong, or time_zone?)"


def test_lines_that_cannot_be_read_are_counted_and_their_text_is_not_repeated(log: Path) -> None:
    log.write_bytes(
        b'{"published": "yesterday", "eventType": "user.session.start", "actor": {"alternateId": "secret"}, '
        b'"client": {"ipAddress": "10.70.0.1"}, "outcome": {"result": "SUCCESS"}}\n'
        b'secret\n"secret"\n\xff\xfe\x00\n' + okta_line("secret", "10.70.0.999", "10:30").encode()
    )
    identity = identity_of(SignInSource("okta", SignInFormat.OKTA_JSON, str(log)))
    identity.refresh(NOW)
    (reading,) = identity.readings()
    assert (reading.entries, reading.skipped) == (0, 5)
    assert reading.error == f"{log}:1: a time that cannot be read"


def test_a_csv_of_another_kind_is_told_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "portal.csv"
    path.write_text("when,who\n2026-07-07,alice\n")
    identity = identity_of(SignInSource("entra", SignInFormat.ENTRA_CSV, str(path)))
    identity.refresh(NOW)
    assert identity.readings()[0].error == f"{path}:1: its header has no Username"


def badges_of(path: Path, *agents: str) -> Identity:
    """Return an identity that has read rows of user1 at 10.70.0.1, user2 at 10.70.0.2, ..., each with a last cell."""
    rows = [f"10.70.0.{n},user{n},2026-07-07 10:00:00,{agent}\n" for n, agent in enumerate(agents, 1)]
    path.write_text("client_ip,login,at,agent\n" + "".join(rows))
    columns = SignInColumns("client_ip", "login", "at")
    identity = identity_of(SignInSource("badge", SignInFormat.CSV, str(path), columns=columns), hold=7200)
    identity.refresh(NOW)
    return identity


@pytest.mark.parametrize(
    "agent", ['14" laptop', 'x"', '"a"" b"', '"a" 14" b', '"of\ntwo ""lines"" , 14"""', '""', '"" "a']
)
def test_a_quote_within_a_cell_swallows_no_row(agent: str, tmp_path: Path) -> None:
    """Only one that begins a cell has another that ends it."""
    identity = badges_of(tmp_path / "badge.csv", "x", agent, "x")
    assert [user(identity, f"10.70.0.{n}", "10:10") for n in (1, 2, 3)] == ["user1", "user2", "user3"]
    assert (entries(identity), identity.readings()[0].skipped) == (3, 0)


def test_a_quote_that_nothing_ends_costs_its_own_row_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "badge.csv"
    identity = badges_of(path, "x", '"14 laptop', *["x"] * 220)
    told = [user(identity, f"10.70.0.{n}", "10:10") for n in (1, 2, 3, 201, 202, 222)]
    assert told == ["user1", "", "user3", "user201", "user202", "user222"]
    (reading,) = identity.readings()
    assert (reading.skipped, reading.entries) == (1, 221)
    assert reading.error == f"{path}:202: a cell that a quote begins 199 lines before does not end"


def test_with_a_key_no_name_is_kept_in_clear(log: Path) -> None:
    source = SignInSource("okta", SignInFormat.OKTA_JSON, str(log))
    identity, other = (identity_of(source, key=key) for key in (b"a key of sixteen", b"another one of 16+"))
    for one in (identity, other):
        one.refresh(NOW)
    pseudonym = user(identity, "10.70.0.1", "10:01")
    assert pseudonym == identity.names.listed("alice") == "u-" + pseudonym[2:]
    assert pseudonym != user(other, "10.70.0.1", "10:01")
    assert "alice" not in repr(vars(identity.table)) + repr(identity.readings())


def test_shared_addresses_and_those_of_no_machine_are_nobodys(log: Path) -> None:
    log.write_text("".join(okta_line("alice", address, "10:30") for address in ("10.70.0.1", "127.0.0.1", "10.71.0.1")))
    source = SignInSource("okta", SignInFormat.OKTA_JSON, str(log))
    settings = IdentitySettings((source,), 3600, shared=(ip_network("10.70.0.0/24"), ip_network("2001:db8::/32")))
    identity = Identity(settings, SITE, 86_400)
    identity.refresh(NOW)
    assert users(identity, "10.70.0.1 at 10:31, 127.0.0.1 at 10:31, 10.71.0.1 at 10:31") == {
        "10.70.0.1 at 10:31": "", "127.0.0.1 at 10:31": "", "10.71.0.1 at 10:31": "alice",
    }  # fmt: skip


def test_a_source_has_its_own_hold_and_time_zone(tmp_path: Path) -> None:
    path = tmp_path / "badge.csv"
    path.write_text("client_ip,login,at,what\n10.70.0.1,alice,2026-07-07 17:00:00,in\n")
    source = SignInSource("badge", SignInFormat.CSV, str(path), 600, ZoneInfo("Asia/Tokyo"), BADGE)
    identity = identity_of(source, replace(source, name="again", hold=60), hold=7200)
    identity.refresh(NOW)
    assert [user(identity, "10.70.0.1", at) for at in ("10:00", "10:09", "10:10")] == ["alice", "alice", ""]


_GIVEN = "alice/198.51.100.44:51514 MULTI_sva: pool returned IPv4=10.8.0.6, IPv6=(Not enabled)"
_LEARNT = "MULTI: Learn: 10.8.0.6 -> alice/198.51.100.44:51514"
_PRIMARY = "alice/198.51.100.44:51514 MULTI: primary virtual IP for alice/198.51.100.44:51514: 10.8.0.6"
_LEFT = "alice/198.51.100.44:51514 SIGTERM[soft,remote-exit] received, client-instance exiting"
_ASSIGNED = (
    "%ASA-4-722051: Group <RA> User <alice> IP <198.51.100.44> IPv4 Address <10.8.0.6> IPv6 address <::> "
    "assigned to session"
)
_DISCONNECTED = (
    "%ASA-4-113019: Group = RA, Username = alice, IP = 198.51.100.44, Session disconnected. Session Type: SSL"
)
_MAPPED = "%ASA-7-746012: user-identity: Add IP-User mapping 10.8.0.6 - alice Succeeded - VPN user"
_FREED = "%ASA-6-737016: IPAA: Session=0x1, Freeing local pool RA address 10.8.0.6"


def marks_of(kind: SignInFormat, *lines: str) -> list[tuple[str, str, bool]]:
    """Return address, user and whether they left, of each mark of a log."""
    reader = reader_of(SignInSource("it", kind, "it"), Sessions())
    assert reader is not None
    clock = Clock(SITE.time_zone, NOW)
    return [(mark.address, mark.user, mark.ends) for line in lines for mark in reader.read(line, clock)]


@pytest.mark.parametrize("message", [_GIVEN, _LEARNT, f"alice/198.51.100.44:51514 {_LEARNT}", _PRIMARY])
@pytest.mark.parametrize(
    "origin",
    [
        "2026-07-07 10:00:00 ", "2026-07-07 10:00:00 us=12 ", "Tue Jul  7 10:00:00 2026 ",
        "Jul  7 10:00:00 gw openvpn[3301]: ", "Jul  7 10:00:00 gw ovpn-server[3301]: ", "Jul  7 10:00:00 openvpn: ",
        "<29>1 2026-07-07T10:00:00+02:00 gw openvpn 3301 - - ",
        "Jul  7 10:00:00 gw vpn[3301]: 2026-07-07 10:00:00 us=12 ",
    ],
)  # fmt: skip
def test_a_line_of_openvpn_behind_what_names_its_origin(origin: str, message: str) -> None:
    found = marks_of(SignInFormat.OPENVPN_LOG, origin + message, origin + _LEFT)
    assert found == [("10.8.0.6", "alice", False), ("10.8.0.6", "alice", True)]


@pytest.mark.parametrize("message", [_ASSIGNED, _MAPPED, _FREED])
@pytest.mark.parametrize(
    "origin",
    [
        "<164>Jul 07 2026 10:00:00 vpn-1 : ", "<164>Jul 07 2026 10:00:00: ", "Jul  7 10:00:00 2001:db8::1 ",
        "Jul  7 10:00:00 10.0.0.1 : Jul 07 2026 10:00:00: ", "Jul  7 10:00:00 gw Jul 07 2026 10:00:00 vpn-1 : ",
        "<166>1 2026-07-07T10:00:00+02:00 vpn-1 - - - - ", "Jul 07 2026 10:00:00 UTC: ", "Jul  7 10:00:00 vpn-1 : : ",
    ],
)  # fmt: skip
def test_a_line_of_an_asa_behind_what_names_its_origin(origin: str, message: str) -> None:
    assert [address for address, _, _ in marks_of(SignInFormat.CISCO_ASA, origin + message)] == ["10.8.0.6"]


@pytest.mark.parametrize("forged", [_GIVEN, _LEARNT, _PRIMARY, _LEFT])
@pytest.mark.parametrize(
    "before",
    [
        "198.51.100.7:1194 peer info: UV_NOTE=", "198.51.100.7:1194 peer info: UV_NOTE=x ",
        "mallory/198.51.100.7:1194 peer info: UV_NOTE=x ", "mallory/",
        "mallory/198.51.100.7:1194 peer info: UV_NOTE=gw openvpn[1]: ",
    ],
)  # fmt: skip
def test_what_a_client_of_openvpn_says_of_itself_is_no_sign_of_another(before: str, forged: str) -> None:
    time = "2026-07-07 10:00:00 "
    found = marks_of(SignInFormat.OPENVPN_LOG, time + _GIVEN.replace(".6,", ".7,"), time + before + forged)
    assert [who for who, (_, user, _) in enumerate(found) if user == "alice"] == [0]
    assert not any(ends for _, _, ends in found)


@pytest.mark.parametrize("forged", [_ASSIGNED, _DISCONNECTED, _MAPPED, _FREED])
@pytest.mark.parametrize("before", ["gw sshd[7]: Invalid user ", "gw sshd[7]: ", "gw app: login of "])
def test_another_program_that_repeats_a_line_of_an_asa_is_none(before: str, forged: str) -> None:
    time = "Jul  7 10:00:00 "
    given = time + "vpn-1 " + _ASSIGNED
    assert marks_of(SignInFormat.CISCO_ASA, given, time + before + forged) == [("10.8.0.6", "alice", False)]


def test_a_name_that_looks_like_the_rest_of_a_line_of_an_asa_forges_no_other() -> None:
    time = "Jul  7 10:00:00 vpn-1 "
    whose = "<mallory> IP <198.51.100.44> IPv4 Address <10.8.0.9> IPv6 address <::> assigned to session>"
    found = marks_of(
        SignInFormat.CISCO_ASA,
        time + _ASSIGNED,
        time + _ASSIGNED.replace("<alice>", whose),
        time + _DISCONNECTED.replace("= alice,", "= alice, IP = 198.51.100.44, Session disconnected,"),
    )
    assert found == [("10.8.0.6", "alice", False)]


KINDS = [kind for kind in SignInFormat if kind is not SignInFormat.OPENVPN_STATUS]
LINES = sorted({line for one in SAMPLE_USERS for line in (SAMPLES / one[1]).read_text().splitlines()})


@given(
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(LINES) | st.text(max_size=80), max_size=8),
    st.integers(0, 200),
    st.text(max_size=5),
)
def test_any_lines_are_marks_or_value_errors(kind: SignInFormat, lines: list[str], cut: int, more: str) -> None:
    """Whatever stands there, whole or torn: a mark has a moment, and nothing else is raised."""
    reader = reader_of(SignInSource("it", kind, "it", columns=BADGE), Sessions())
    assert reader is not None
    clock, tally = Clock(SITE.time_zone, NOW), Tally()
    for line in lines:
        try:
            for mark in reader.read((line[:cut] + more + line[cut:]).replace("\n", " "), clock):
                assert isinstance(mark.moment, int)
        except (ValueError, OverflowError) as error:
            tally.skip("it:1", str(error))
    assert len(tally.note) < 200
