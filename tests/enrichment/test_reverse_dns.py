"""Names by PTR records, from a real server: what is believed, what is remembered, and whom it holds up."""

import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import pytest
from name_server import NameServer

import enrichment.addresses.reverse_dns as module
from cluster.model import ReverseDns
from enrichment.addresses.reverse_dns import Answer, ReverseNames

ADDRESS, PTR = "203.0.113.9", "9.113.0.203.in-addr.arpa."


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer() as running:
        yield running


def names_of(server: NameServer, *, confirm: bool = True, timeout: float = 2.0, rate: int = 10_000) -> ReverseNames:
    return ReverseNames(ReverseDns((ip_address("127.0.0.1"),), server.port, timeout, confirm, rate))


def learnt(names: ReverseNames, address: str = ADDRESS) -> Answer:
    return until(lambda: names.of([address])[0])


def until(look: Callable[[], Answer | None]) -> Answer:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("no answer within 10 s")


def test_a_name_that_leads_back_is_confirmed_and_one_that_does_not_is_a_name_only(server: NameServer) -> None:
    server.records[PTR, "PTR"] = 3600, ("Storage-1.Example.ORG.",)
    server.records["storage-1.example.org.", "A"] = 3600, ("198.51.100.1", ADDRESS)
    six, ptr6 = "2001:db8::9", "9." + "0." * 23 + "8.b.d.0.1.0.0.2.ip6.arpa."
    server.records[ptr6, "PTR"] = 3600, ("huggingface.co.",)
    server.records["huggingface.co.", "AAAA"] = 3600, ("2001:db8::1",)
    names = names_of(server)
    assert names.of([ADDRESS, six]) == [None, None], "a flow never waits for an answer"
    first, second = learnt(names), learnt(names, six)
    assert (first.name, first.confirmed) == ("storage-1.example.org", True)
    assert (second.name, second.confirmed) == ("huggingface.co", False)
    assert names.fresh() == ["storage-1.example.org"]
    assert names.fresh() == []


def test_confirmation_can_be_left_out(server: NameServer) -> None:
    server.records[PTR, "PTR"] = 3600, ("a.example.",)
    assert not learnt(names_of(server, confirm=False)).confirmed
    assert list(server.asked) == [(PTR, "PTR")]


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (r"evil\010alert.example.", ""),
        (r"evil\027[31m.example.", ""),
        (r"a\000b.example.", ""),
        (r"x\"\,dst=10.0.0.1.example.", ""),
        (r"\$labels.example.", ""),
        ("<script>.example.", ""),
        (r"a\.b.example.", "a.b.example"),  # a dot within a label: nothing but another spelling of it
        ("10.20.0.1.", ""),  # would pass for an address
        (".", ""),
        ("a." * 127, "a." * 126 + "a"),
        (f"{'x' * 63}.example.", f"{'x' * 63}.example"),
        ("-bad.example.", ""),
        ("xn--bcher-kva.example.", "xn--bcher-kva.example"),
        ("_dmarc.example.", "_dmarc.example"),
    ],
)
def test_what_is_no_host_name_is_no_name(server: NameServer, record: str, name: str) -> None:
    server.records[PTR, "PTR"] = 3600, (record,)
    assert learnt(names_of(server, confirm=False)).name == name


def test_of_many_names_it_is_always_the_same_one(server: NameServer) -> None:
    server.records[PTR, "PTR"] = 3600, tuple(f"host-{number}.example." for number in range(40, 10, -1))
    assert learnt(names_of(server, confirm=False)).name == "host-11.example"


def test_answers_hold_as_long_as_they_say_within_limits_and_nothing_is_an_answer(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.records[PTR, "PTR"] = 1000, ("a.example.",)
    names = names_of(server, confirm=False)
    now = time.monotonic()
    assert learnt(names).until == pytest.approx(now + 1000, abs=5)
    nothing = learnt(names, "203.0.113.10")
    assert (nothing.name, nothing.until) == ("", pytest.approx(now + 120, abs=5))
    for _ in range(100):
        names.of([ADDRESS, "203.0.113.10"])
    assert set(server.asked.values()) == {1}
    for ttl, holds in ((0, 60), (2**31 - 1, 86_400)):
        server.records[PTR, "PTR"] = ttl, ("a.example.",)
        assert learnt(names_of(server, confirm=False)).until == pytest.approx(time.monotonic() + holds, abs=5)
    # An answer that holds no more is still the best there is, until the next one is there.
    monkeypatch.setattr(module, "_SHORTEST", 0.0)
    server.records[PTR, "PTR"] = 0, ("old.example.",)
    names = names_of(server, confirm=False)
    assert learnt(names).name == "old.example"
    server.records[PTR, "PTR"] = 1000, ("new.example.",)
    seen = {"old.example"}
    deadline = time.monotonic() + 10
    while "new.example" not in seen and time.monotonic() < deadline:
        (answer,) = names.of([ADDRESS])
        assert answer is not None
        seen.add(answer.name)
        time.sleep(0.01)
    assert seen == {"old.example", "new.example"}


@pytest.mark.service
def test_a_server_that_is_silent_holds_nobody_up_and_takes_no_name_away(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHORTEST", 0.0)
    server.records[PTR, "PTR"] = 0, ("a.example.",)
    names = names_of(server, confirm=False, timeout=0.1)
    assert learnt(names).name == "a.example"
    server.is_silent = True
    many = [f"203.0.113.{number}" for number in range(20, 250)]
    began = time.monotonic()
    names.of([ADDRESS, *many])
    assert time.monotonic() - began < 0.05
    nothing = learnt(names, many[0])
    assert (nothing.name, nothing.until) == ("", pytest.approx(time.monotonic() + 300, abs=5))
    (kept,) = names.of([ADDRESS])
    assert kept is not None
    assert kept.name == "a.example"
    # After some questions in vain the rest waits, so that a dead server is not asked on and on.
    time.sleep(1.0)
    assert sum(server.asked.values()) < 30


def test_questions_keep_to_their_rate_and_memory_to_its_bound(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 5)
    monkeypatch.setattr(module, "_MOST_WAITING", 8)
    names = names_of(server, confirm=False, rate=20)
    many = [f"203.0.113.{number}" for number in range(200)]
    began = time.monotonic()
    names.of(many)
    while len(names._asked) > 0:
        assert time.monotonic() - began < 10
        time.sleep(0.02)
    assert 8 <= sum(server.asked.values()) <= 12
    assert time.monotonic() - began > 7 / 20
    assert len(names._known) == 5


def test_threads_end_when_nobody_asks_and_begin_again(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that is taken up anew leaves none of the old one's behind."""
    monkeypatch.setattr(module, "_IDLE", 0.05)
    server.records[PTR, "PTR"] = 3600, ("a.example.",)
    names = names_of(server, confirm=False)
    for address in (ADDRESS, "203.0.113.10", "203.0.113.11"):
        learnt(names, address)
        deadline = time.monotonic() + 10
        while names._threads and time.monotonic() < deadline:
            time.sleep(0.01)
        assert names._threads == []


def test_what_is_closed_asks_nobody_any_more(server: NameServer) -> None:
    """Neither what waits for its turn nor what comes later; its threads end."""
    others = set(threading.enumerate())
    names = names_of(server, rate=1)
    names.of([f"203.0.113.{number}" for number in range(100)])
    mine = [one for one in threading.enumerate() if one not in others and one.name == "reverse-dns"]
    assert mine
    deadline = time.monotonic() + 10
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    names.close()
    assert names.of(["203.0.113.200"]) == [None]
    for thread in mine:
        thread.join(timeout=5)
    assert not any(thread.is_alive() for thread in mine)
    assert sum(server.asked.values()) == 1
