"""The report of a week on a real InfluxDB: every number is the one that was written, whatever the names are."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import week
from click.testing import CliRunner, Result
from week import BLIND, HOUR, IMAGE, SCRIPT, SILENT, START, STOP, STOPPED, TURNED, at

from analysis.audit import period_of
from app.application import Application
from app.units import format_moment as iso
from cluster.model import Cluster, EventSeverity
from delivery import alert_events as delivered
from delivery.parties import Parties
from delivery.transports.history_transport import changes
from operations.alert_history import mark, stored_alerts
from reporting.cli import report as report_command
from reporting.content import Report
from reporting.page import html
from reporting.report import document, report_of
from reporting.words import Wording
from rules.registry import rules_of
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import encode

PERIOD = ("--from", "2025-06-09", "--to", "2025-06-16")
EMPTY = "the period is empty (--from must be before --to, and before now)"
TIME = "expected a time (such as 2026-03-01, 2026-03-01T12:00, 3d (ago) or now)"
VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})


@dataclass(frozen=True)
class Site:
    config: Path
    cluster: Cluster
    store: Store
    report: Report
    facts: dict[str, Any]

    def table(self, section: str, key: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.facts["sections"][section]["tables"][key]
        return rows

    def fact(self, section: str, key: str) -> object:
        return self.facts["sections"][section]["facts"][key]["value"]


@pytest.fixture(scope="module")
def site(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    config = week.cluster_file(tmp_path_factory.mktemp("report"), influxdb_v1.url, "weekly")
    cluster, store = week.opened(config)
    week.write_week(store)
    now = int(time.time())
    found = report_of(cluster, store, period_of(cluster, START, STOP, now), now)
    yield Site(config, cluster, store, found, json.loads(json.dumps(document(found))))
    store.close()


def run(site_config: Path, *arguments: str) -> Result:
    application = Application(name="clusterflow")
    application.add_command(report_command)
    return CliRunner().invoke(application, ["report", "--config", str(site_config), *arguments])


def picked(rows: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in rows]


# -- numbers ---------------------------------------------------------------------------------------------


def test_the_period_is_the_sites(site: Site) -> None:
    assert site.facts["period"] == {
        "from": "2025-06-08T22:00:00Z", "to": "2025-06-15T22:00:00Z", "time_zone": "Europe/Amsterdam",
        "retention": "1m", "window_seconds": 60,
    }  # fmt: skip
    assert not site.facts["is_empty"]


def test_segmentation(site: Site) -> None:
    conversations = site.table("segmentation", "conversations")
    assert picked(conversations, "kind", "src", "dst", "tx_bytes", "rx_bytes", "first", "last") == [
        (
            "storage on the compute plane",
            "gpu-3",
            "nas-1",
            8_000_000_000,
            0,
            iso(at(5, 8)),
            iso(at(5, 8)),
        ),
        ("not allowed", "10.70.0.9", "nas-1", 5_000_000, 100, iso(at(0, 8)), iso(at(2, 8))),
    ]
    assert picked(
        site.table("segmentation", "by_groups"), "kind", "src_group", "dst_group", "conversations", "bytes"
    ) == [
        ("storage on the compute plane", "training", "storage", 1, 8_000_000_000),
        ("not allowed", "users", "storage", 1, 5_000_100),
        ("shadow node", "training", "", 1, 70_060),
    ]
    assert picked(site.table("segmentation", "unused_permits"), "src_group", "dst_group") == [
        ("inference", "external"), ("users", "inference"),
    ]  # fmt: skip
    bars = site.facts["sections"]["segmentation"]["charts"]["over_time"]
    assert {name: sum(values) for name, values in bars["values"].items()} == {
        "not allowed": 5_000_100, "storage on the compute plane": 8_000_000_000,
    }  # fmt: skip
    place = bars["from"].index(iso(at(5, 8)))
    assert bars["values"]["storage on the compute plane"][place] == 8_000_000_000


def test_egress(site: Site) -> None:
    assert site.fact("egress", "bytes") == 52_000_000_000
    assert site.fact("egress", "not_approved_bytes") == 41_000_000_000
    assert site.fact("egress", "off_hours_bytes") == 41_000_000_000
    rows = site.table("egress", "by_destination")
    keys = "src_group", "dst", "country", "network", "feed", "standing", "bytes"
    assert picked(rows, *keys) == [
        ("model_storage", "203.0.113.9", "NL", week.ATTRIBUTE, "x", "no", 41_000_000_000),
        ("training", "198.51.100.10", "", "", "", "yes", 10_000_000_000),
        ("inference", "203.0.113.50", "", "", "", "yes", 1_000_000_000),
    ]
    days = site.table("egress", "by_day")
    assert [row["day"] for row in days] == [iso(START + day * 24 * HOUR) for day in range(7)]
    assert picked(days, "approved_bytes", "not_approved_bytes")[1] == (5_000_000_000, 41_000_000_000)
    assert picked(days, "approved_bytes", "not_approved_bytes")[6] == (5_000_000_000, 0)


def test_threats(site: Site) -> None:
    (row,) = site.table("egress", "threats")
    assert (row["src"], row["dst"], row["feed"], row["indicator"], row["confidence"], row["bytes"]) == (
        "store-1", "203.0.113.9", "x", "203.0.113.0/24", 80, 41_000_000_000,
    )  # fmt: skip
    assert (row["first"], row["listed_since"]) == (iso(at(1, 2)), iso(START - 24 * HOUR))
    assert site.facts["attention"][0]["tone"] == "act", "what an alert fires for comes first"


def test_first_contacts(site: Site) -> None:
    keys = "src", "dst", "name", "application", "standing", "services", "bytes", "first_seen"
    assert picked(site.table("contacts", "contacts"), *keys) == [
        ("gpu-2", "198.51.100.99", "", "", "yes", "tcp/https", 700, iso(at(3, 10))),
        ("gpu-2", "203.0.113.77", SCRIPT, TURNED, "no", "tcp/https, tcp/ssh", 4_000_500, iso(at(3, 9))),
    ]
    (network,) = site.table("contacts", "networks")
    keys = "src_group", "network", "bytes", "destinations", "first_seen"
    assert picked([network], *keys) == [("training", week.ATTRIBUTE, 605, 2, iso(at(3, 9)))]
    assert (site.fact("contacts", "contacts"), site.fact("contacts", "not_approved")) == (2, 1)


def test_inference_access(site: Site) -> None:
    accesses = site.table("inference_access", "accesses")
    assert picked(accesses, "user", "src", "bytes", "flows") == [
        (IMAGE, "203.0.113.5", 1_000_000, 9), ("alice", "10.70.0.1", 60_000, 8),
    ]  # fmt: skip
    (breach,) = site.table("inference_access", "breaches")
    assert (breach["why"], breach["user"], breach["country"], breach["bytes"]) == (
        "its user is not on the list", IMAGE, "DE", 1_000_000,
    )  # fmt: skip
    (country,) = site.table("inference_access", "unusual_countries")
    assert (country["user"], country["country"], country["bytes"]) == (IMAGE, "DE", 500_000)


def test_checkpoints(site: Site) -> None:
    assert site.fact("checkpoints", "on_time_share") == 3 / 5
    (row,) = site.table("checkpoints", "by_class")
    keys = "rhythm", "written", "missed", "late", "short", "median_seconds", "longest_seconds", "median_bytes"
    assert picked([row], *keys) == [("every 30m, declared", 4, 1, 1, 0, 40.0, 100.0, 1_000_000_000)]
    assert picked(site.table("checkpoints", "not_as_expected"), "time", "state", "due") == [
        (iso(at(1, 2.75)), "missed", iso(at(1, 2.5))), (iso(at(1, 3.2)), "late", iso(at(1, 2.5))),
    ]  # fmt: skip
    (job,) = site.table("checkpoints", "by_job")
    assert (job["job"], job["age"], job["overdue"], job["usd_at_risk"]) == ("run-1", 3960.0, 1860.0, 240.0)


def test_stalls(site: Site) -> None:
    assert site.fact("stalls", "usd") == pytest.approx(646.0)
    assert site.fact("stalls", "gpu_hours") == pytest.approx(128 * 600 / 3600 + 8 * 90 / 3600)
    rows = site.table("stalls", "by_job")
    assert picked(rows, "job", "cause", "gpus", "first", "last") == [
        ("run-1", "stalled", 128, iso(at(1, 5)), iso(at(1, 5) + 590)),
        (SCRIPT, "a node dropped out", 8, iso(at(6, 5)), iso(at(6, 5))),
    ]
    assert rows[0]["lost_seconds"] == pytest.approx(600.0)


def test_gaps(site: Site) -> None:
    def gap(subject: str, what: str, span: tuple[int, int]) -> tuple[str, str, str, str]:
        return subject, what, iso(span[0]), iso(span[1])

    found = picked(site.table("gaps", "gaps"), "subject", "what", "from", "to")
    bridge, analysis = "bridge (clusterflow ingest)", "analysis (clusterflow analyze)"
    assert set(found) == {
        gap("spine", "silent", (START, STOP)), gap("leaf", "silent", SILENT), gap("leaf", "silent", BLIND),
        gap("border", "silent", BLIND), gap("all flow data", "nothing stored", BLIND),
        gap(bridge, "not running", BLIND), gap(analysis, "not running", STOPPED),
    }  # fmt: skip
    assert found[0][0] == "spine", "the longest first"
    assert site.fact("gaps", "blind_seconds") == 600
    exporters = {row["exporter"]: row for row in site.table("gaps", "exporters")}
    assert exporters["border"]["seq_lost"] == 500
    assert exporters["spine"]["state"] == "never heard"
    (broken,) = site.table("gaps", "lists")
    assert (broken["name"], broken["at_worst"], broken["error"]) == ("bad", "broken", f"line 3: {SCRIPT}")
    assert picked(site.table("gaps", "not_visible"), "one", "other", "why") == [
        ("GPU Training Nodes", "Users", "declared RoCE: not visible"),
        ("GPU Training Nodes", "Storage", "partly seen, at times"),
    ]


def test_alerts_are_those_that_the_rules_make_of_the_data(site: Site) -> None:
    """An hour and a half around the theft."""
    arguments = ("--from", "2025-06-10T01:30", "--to", "2025-06-10T03:00", "--json")
    section = json.loads(run(site.config, *arguments, "--alerts").stdout)["sections"]["alerts"]
    found = [row for row in section["tables"]["alerts"] if row["rule"] == "exfil_volume"]
    assert picked(found, "severity", "bytes") == [("warning", "41GB")]
    assert found[0]["source"].startswith("store-1")
    without = json.loads(run(site.config, *arguments).stdout)["sections"]["alerts"]
    # Nobody kept a history of that week.
    assert not without["is_measured"]


def test_alerts_are_those_of_the_history(site: Site) -> None:
    began = datetime.fromisoformat("2025-06-10T00:10:00+00:00").timestamp()
    book = delivered.AlertBook(site.cluster, rules_of(site.cluster), Parties(site.cluster), None)
    facts = {"summary": "much", "source": "store-1 (Model Storage)", "destination": "203.0.113.9", "bytes": "41GB"}
    told = [
        delivered.Report(
            "exfil_volume", "Much", began + after, EventSeverity.CRITICAL, ended, {schema.SRC: "store-1"}, facts
        )
        for after, ended in ((0, began + 600), (1200, None))
    ]
    site.store.write(encode(schema.ALERT, changes(book.take(told))), schema.ALERT.kept)
    first = stored_alerts(site.store, int(began), int(began) + 60)[0]
    mark(site.store, first, is_false=True, acknowledged=first.began + 90, why="planned")
    arguments = ("--from", "2025-06-10T01:30", "--to", "2025-06-10T03:00", "--json")
    section = json.loads(run(site.config, *arguments).stdout)["sections"]["alerts"]
    rows = section["tables"]["alerts"]
    assert picked(rows, "rule", "source", "bytes", "marked") == [
        ("exfil_volume", "store-1 (Model Storage)", "41GB", "false, planned"),
        ("exfil_volume", "store-1 (Model Storage)", "41GB", ""),
    ]
    assert rows[0]["fired_seconds"] == 600
    assert picked(section["tables"]["by_rule"], "rule", "alerts", "false", "sources") == [("exfil_volume", 2, 1, 1)]
    assert section["facts"]["acknowledge_seconds"]["value"] == 90


# -- the page --------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would make of a page: elements, attributes, texts; and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.inside[self.open[-1]].append(data) if self.open and self.open[-1] in self.inside else self.texts.append(
            data
        )


@pytest.fixture(scope="module")
def page(site: Site) -> Page:
    return Page(html(site.report, Wording.of(site.cluster)))


def test_the_page_is_whole_and_loads_nothing(page: Page) -> None:
    assert page.open == []
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert attributes.get("href", "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    style = "".join(page.inside["style"])
    assert "@import" not in style
    assert "url(" not in style


def test_no_script_may_run_but_our_two(page: Page) -> None:
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert sum(attributes == {} for attributes in scripts) == 2
    assert all(attributes.get("type") == "application/json" for attributes in scripts if attributes)
    (policy,) = [attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv")]
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    made = {b64encode(sha256(text.encode()).digest()).decode() for text in page.inside["script"]}
    assert len(allowed) == 2
    assert allowed < made
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_hostile_names_are_texts(page: Page) -> None:
    text = "\n".join(page.texts)
    for name in (SCRIPT, IMAGE, week.ATTRIBUTE):
        assert name in text
    assert TURNED not in text
    assert "\\u202egnp.exe" in text


def test_the_page_says_numbers_with_their_units(page: Page) -> None:
    cells = {text.strip() for text in page.texts}
    assert {
        "41 GB",
        "78.8%",
        "5 GB",
        "646 USD",
        "21.5 GPU-h",
        "10m",
        "1h 6m",
        "2025-06-12",
        "GPU Training Nodes",
    } <= cells
    # Every plot stands beside a table.
    assert sum("data-chart" in attributes for _, attributes in page.elements) == 6


# -- the command -----------------------------------------------------------------------------------------


def test_the_file_is_named_after_the_days_and_not_written_over(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(site.config, *PERIOD)
    assert (result.exit_code, result.stdout) == (0, "report: report-weekly-2025-06-09-2025-06-16.html\n")
    path = tmp_path / "report-weekly-2025-06-09-2025-06-16.html"
    first = path.read_text(encoding="utf-8")
    path.write_text("mine", encoding="utf-8")
    refused = run(site.config, *PERIOD)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines() == [
        f"{path.name}: is there already (--force writes over it, --output names another)"
    ]
    assert path.read_text(encoding="utf-8") == "mine"
    assert run(site.config, *PERIOD, "--force").exit_code == 0
    again = path.read_text(encoding="utf-8")
    assert Page(again).open == []
    assert len(again) == pytest.approx(len(first), abs=10)


def test_an_empty_store_is_reported_as_silence(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    config = week.cluster_file(tmp_path, influxdb_v1.url, fresh_database)
    _, store = week.opened(config)
    store.close()
    target = tmp_path / "empty.html"
    result = run(config, "--from", "24h", "--output", str(target))
    assert result.exit_code == 0, result.output
    assert "the store holds no flow record of this period" in result.stderr
    empty = Page(target.read_text(encoding="utf-8"))
    text = " ".join(empty.texts)
    assert "silence, not health" in text
    for sentence in ("Nothing broke the segmentation.", "Nothing left the cluster.", "Nobody asked inference.",
                     "Not measured: cluster.yaml has no `threat_feeds`.", "No job lost time"):  # fmt: skip
        assert sentence in text
    facts = json.loads(run(config, "--from", "24h", "--json").stdout)
    assert facts["is_empty"]
    begin, end = (datetime.fromisoformat(facts["period"][name]).timestamp() for name in ("from", "to"))
    assert facts["sections"]["gaps"]["facts"]["blind_seconds"]["value"] == end - begin


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--from", "2025-06-16", "--to", "2025-06-09"), EMPTY),
        (("--from", "2150-01-01", "--to", "2150-01-02"), EMPTY),
        (("--from", "1990-01-01"), "the period begins before anything that is kept (the store keeps 5000 days)"),
        (("--to", "2025-13-45"), f"--to 2025-13-45: {TIME}"),
        (("--output", "no/x.html", *PERIOD), "no/x.html: there is no folder no (make it, or name a file elsewhere)"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(site: Site, arguments: tuple[str, ...], line: str) -> None:
    result = run(site.config, *arguments)
    assert (result.exit_code, result.stderr.splitlines()) == (2, [line])


def test_a_store_that_is_away_is_one_line(tmp_path: Path) -> None:
    config = week.cluster_file(tmp_path, "http://127.0.0.1:9", "away")
    result = run(config, "--output", str(tmp_path / "away.html"))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("InfluxDB at http://127.0.0.1:9 does not answer")
    assert not (tmp_path / "away.html").exists()
