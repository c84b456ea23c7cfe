"""What pmacct's log tells of datagrams that it threw away."""

import pytest

from ingest.collect.discards import Discard, Discards

WHERE = "nfacctd=0.0.0.0:2055 agent=10.60.0.1:50000"

# Each text that 1.7.7 passes to notify_malf_packet() or SF_notify_malf_packet() and does not keep to itself by default.
TEXTS = (
    "discarding short NetFlow v5 packet",
    "discarding malformed NetFlow v5 packet",
    "discarding short NetFlow v9/IPFIX packet",
    "unable to read next Flowset (incomplete NetFlow v9/IPFIX packet)",
    "unable to read next Flowset (NetFlow v9/IPFIX packet claiming flow_len 0!)",
    "unable to read next Flowset (NetFlow v9/IPFIX packet (flowsetlen < NfDataHdrV9Sz)",
    "unable to read next Template Flowset (incomplete NetFlow v9/IPFIX packet)",
    "unable to read next Options Template Flowset (incomplete NetFlow v9/IPFIX packet)",
    "unable to read next Data Flowset (incomplete NetFlow v9/IPFIX packet)",
    "aborting malformed Options Data element (incomplete NetFlow v9/IPFIX packet)",
    "aborting malformed Data element (incomplete NetFlow v9/IPFIX packet)",
    "insert_template(): unable to read Data Template (too long)",
    "insert_template(): unable to read Data Template (malformed)",
    "refresh_template(): unable to read Data Template (too long)",
    "refresh_template(): unable to read Data Template (malformed)",
    "insert_opt_template(): unable to read Options Template Flowset (malformed)",
    "insert_opt_template(): unable to read Options Template (too long)",
    "refresh_opt_template(): unable to read Options Template Flowset (malformed)",
    "refresh_opt_template: unable to read Options Template (too long)",
    "discarding unknown v2/v4 sample",
    "discarding unknown v5 sample",
    "discarding unknown v2/v4 Data Tag",
    "discarding unknown v2/v4 Extended Data Tag",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("end", ["", " ", " seq=4711"])
@pytest.mark.parametrize("start", ["", "2026-11-22T10:00:00Z "])
def test_every_text_is_known_with_its_agent(text: str, start: str, end: str) -> None:
    line = f"{start}INFO ( default/core ): {text}: {WHERE}{end}"
    assert Discard.read(line) == Discard("10.60.0.1", text, 1)


def test_an_agent_may_have_an_address_of_ipv6() -> None:
    line = "INFO ( default/core ): discarding unknown v5 sample: sfacctd=:::6343 agent=2001:db8::1:40000 "
    assert Discard.read(line) == Discard("2001:db8::1", "discarding unknown v5 sample", 1)


@pytest.mark.parametrize(
    "line",
    [
        "INFO ( default/core ): waiting for NetFlow/IPFIX data on 127.0.0.1:2055",
        "INFO ( flows/print ): *** Purging cache - END (PID: 1, QN: 1/1, ET: 0) ***",
        f"INFO ( default/core ): expecting flow '9' but received '8' collector=0.0.0.0:2055 {WHERE[21:]}",
        "WARN ( default/core ): unable to get the current memory limit",
        "",
    ],
)
def test_other_lines_tell_of_nothing(line: str) -> None:
    assert Discard.read(line) is None


def test_the_first_of_a_kind_is_told_at_once_and_then_the_most_frequent_one_at_times() -> None:
    discards = Discards()
    rare, often = Discard("10.0.0.1", "malformed", 1), Discard("10.0.0.2", "unknown", 1)
    discards.take(rare)
    assert discards.due(1000) == [rare]
    for second in range(1001, 1600):
        discards.take(often)
        assert discards.due(second) == ([often] if second == 1001 else [])
    discards.take(rare)
    assert discards.due(1601) == [Discard(often.agent, often.reason, 598)]
    assert discards.due(2300) == []
    assert discards.count == 601


def test_a_flood_of_agents_fills_neither_the_memory_nor_the_log() -> None:
    discards, told = Discards(), 0
    for second in range(1000, 2000):
        for host in range(100):
            discards.take(Discard(f"10.0.{second % 250}.{host}", "unknown", 1))
        told += len(discards.due(second))
    assert told <= 64 + 2
    assert discards.count == 100_000
