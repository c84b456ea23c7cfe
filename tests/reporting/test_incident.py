"""The page of an incident: of the demo's theft right to the byte, and safe whatever names come from the network."""

import io
import re
import time
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from PIL import Image

from analysis.audit import Period
from app.errors import UserError
from archive.query import Filter
from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, EventSeverity, StoreSettings
from cluster.sections.delivery import INCIDENT_PATH, PICTURE_PATH
from delivery.alert_events import AlertBook, Report, report_of
from delivery.alert_pictures import AlertPictures
from delivery.formats.cef import cef
from delivery.formats.ecs import ecs
from delivery.incident_pages import IncidentPages
from delivery.known_addresses import Directory
from delivery.parties import Parties
from delivery.transports.history_transport import StoredHistory
from ingest.metrics import MetricsServer
from operations.alert_history import StoredAlert, alert_like, stored_alerts
from operations.questions.flow_questions import completed
from operations.sightings import Sighting, Sightings
from reporting.content import Table
from reporting.incident.incident import Incident, incident_of
from reporting.incident.incident_cli import incident as command
from reporting.incident.incident_page import html
from reporting.incident.line_chart import Chart, line_chart, line_picture
from reporting.incident.nearby import jobs_nearby
from reporting.incident.talks import contacts
from reporting.look import Look
from rules.evaluate.evaluator import Evaluator
from rules.grafana.encode import rule_entry
from rules.grafana.message import Notification, Told
from rules.registry import rules_of
from simulate.demo.plan import Places, demo_cluster, demo_scenario
from simulate.incidents.incident import Incident as Staged
from simulate.incidents.incident import IncidentKind
from simulate.recording import record
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

REPOSITORY = Path(__file__).parents[2]
PORT = 4444


@dataclass
class Night:
    """The demo's theft in a store, on a port that no service has; its alert in the history."""

    cluster: Cluster
    store: Store
    theft: Staged
    sent: int
    alert: StoredAlert
    now: int

    def incident(self) -> Incident:
        return incident_of(self.cluster, self.store, self.alert, self.now)


@pytest.fixture
def night(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Night:
    start = int(time.time()) // 600 * 600 - 1200
    places = Places(influxdb_v1.url, 1, 2, 3, tmp_path / "spool", tmp_path / "state")
    text = demo_cluster(load_cluster(REPOSITORY / "cluster.yaml"), start=start, places=places, history_days=0)
    cluster = parse_cluster(text)
    cluster = replace(cluster, store=replace(cluster.store, database=fresh_database))
    scenario = demo_scenario(cluster, start=start, seconds=60, history_days=0)
    (theft,) = [one for one in scenario.incidents if one.kind is IncidentKind.BULK_EXFIL]
    talks = tuple(replace(talk, port=PORT) for talk in theft.transfers)
    staged = replace(theft, port=PORT, transfers=talks)
    incidents = tuple(staged if one is theft else one for one in scenario.incidents)
    scenario = replace(scenario, incidents=incidents)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    workload = Workload(cluster, scenario)
    truth = GroundTruth(workload)
    record(workload, store, truth, lambda _: None)
    sent = sum(
        talk["bytes"]
        for talk in truth.document()["conversations"]
        if (talk["src"], talk["dst"]) == (theft.src_address, theft.dst)
    )
    rule_set = rules_of(cluster)
    now = start + 120
    evaluator = Evaluator(store, [rule_set.rule("exfil_volume")])
    for _ in evaluator.run(start, now):
        pass
    firing = [report_of(alert) for alert in evaluator.alerts() if alert.is_firing]
    book = AlertBook(cluster, rule_set, Parties(cluster, Directory(store)), None, Sightings(store))
    StoredHistory(store).send(book.take(firing))
    (alert,) = [one for one in stored_alerts(store, start, now) if one.labels.get(schema.DST) == theft.dst]
    return Night(cluster, store, staged, sent, alert, now)


def _table(found: Incident, section: str) -> list[dict[str, Any]]:
    (one,) = [one for one in found.sections if one.id == section]
    (table,) = [block for block in one.blocks if isinstance(block, Table)][:1]
    return [dict(zip((column.key for column in table.columns), row, strict=True)) for row in table.rows]


@pytest.mark.service
def test_the_page_of_the_theft_names_source_destination_port_and_bytes(night: Night) -> None:
    found, theft = night.incident(), night.theft
    assert night.sent > 0
    facts = dict(found.facts)
    assert f"{theft.src} · {theft.src_address}" in facts["Source"]
    assert theft.dst in facts["Destination"]
    assert facts["Port"] == f"{PORT} at the destination"
    (talk,) = [row for row in _table(found, "talks") if row["peer"].text == theft.dst and row["way"] == "→"]
    assert talk["exactly"] == night.sent
    assert talk["port"] == str(PORT)
    assert talk["what"].text == "this alert"
    evidence = found.evidence
    assert evidence is not None
    assert max(value or 0.0 for _, value in evidence.points) == night.sent
    rule = rules_of(night.cluster).rule("exfil_volume")
    assert evidence.threshold == rule.threshold
    # It crosses its limit no later than the alert says, and not before the theft.
    crossed = next(at for at, value in evidence.points if (value or 0.0) > rule.threshold.value)
    assert theft.start <= crossed <= night.alert.began + rule.interval
    text = html(found, night.cluster)
    for said in (theft.src, theft.src_address, theft.dst, f"{night.sent:,}", str(PORT), "NVLink", "What to do"):
        assert said in text
    _is_self_contained(text)
    # Of rows that the analysis writes once something is too much, a rule takes any: that is no limit.
    verdict = replace(evidence, threshold=replace(evidence.threshold, value=0))
    text = html(replace(found, evidence=verdict), night.cluster)
    assert "over a limit: thresholds.exfil_volume, or another one" in text
    assert "limit: above" not in text
    assert 'class="limit' not in text
    # Of what many sent together, the page has all, whoever gave the alert its name.
    labels = {**night.alert.labels, schema.SRC: schema.OTHER, schema.LARGEST: "two and others"}
    together = incident_of(night.cluster, night.store, replace(night.alert, labels=labels), night.now)
    assert not [section for section in together.sections if section.id == "talks"]
    (left,) = [row for row in _table(together, "outward") if row["destination"] == theft.dst]
    assert (left["source"].text, left["exactly"], left["port"]) == (theft.src, night.sent, str(PORT))
    # `flows --around` asks for the same source, half an hour around it; the demo's test knows what it finds.
    asked = completed(night.cluster, Filter(0, 0), start=None, stop=None, around=night.alert.id[:8])
    assert asked == Filter(night.alert.began - 1800, asked.stop, node=(theft.src,))


def _is_self_contained(text: str) -> None:
    assert "<script" not in text
    assert "default-src 'none'" in unescape(text)
    assert not re.search(r"\s(src|srcset|data)=", text)
    assert "@import" not in text
    assert "url(" not in text


@pytest.mark.service
def test_a_notification_finds_its_alert_by_rule_labels_and_begin(night: Night) -> None:
    labels = {schema.RULE: "exfil_volume", schema.SRC: night.theft.src, schema.DST: night.theft.dst, "feed": ""}
    assert alert_like(night.store, labels, night.alert.began + 5).id == night.alert.id
    with pytest.raises(UserError, match="no alert"):
        alert_like(night.store, labels | {schema.DST: "192.0.2.1"}, night.alert.began)


@pytest.mark.service
def test_its_conversations_lead_to_the_flow_archive_where_people_reach_it(night: Night) -> None:
    plain, theft = night.cluster, night.theft
    linked = replace(plain, delivery=replace(plain.delivery, incident_url="https://flows.example.org/"))
    found = incident_of(linked, night.store, night.alert, night.now)
    links = [unescape(one) for one in re.findall(r'href="(https://flows[^"]*)"', html(found, linked))]
    assert f"https://flows.example.org/flows?around={night.alert.id}" in links
    times = f"from={found.start}&to={found.stop}"
    assert f"https://flows.example.org/flows?src={theft.src}&dst={theft.dst}&{times}" in links
    assert "/flows?" not in html(night.incident(), plain)


@pytest.mark.service
def test_names_from_the_network_are_text(night: Night) -> None:
    evil = '"><script>alert(1)</script><a href="javascript:alert(1)">x</a>'
    labels = night.alert.labels | {schema.FEED: evil, schema.USER: evil}
    alert = replace(night.alert, labels=labels, summary=evil, title=evil, what_to_do=evil, why=evil)
    text = html(incident_of(night.cluster, night.store, alert, night.now), night.cluster)
    _is_self_contained(text)
    assert '<a href="javascript' not in text
    assert "&lt;script&gt;" in text


@pytest.mark.service
def test_an_alert_about_no_conversation_has_a_page_too(night: Night) -> None:
    alert = replace(night.alert, labels={schema.EXPORTER: "leaf-1"}, seen=Sighting(), size=None, job="")
    found = incident_of(night.cluster, night.store, alert, night.now)
    assert [section.id for section in found.sections] == ["others", "unseen"]
    assert "Conversations of" not in html(found, night.cluster)


class Named:
    """A directory that knows a name of every address."""

    def about(self, address: str) -> dict[str, str]:
        return {schema.NAME: f"host-{address.rpartition('.')[2]}.example.net"}


def demo(influxdb: LocalInfluxDB, database: str) -> tuple[Cluster, Store]:
    """Return the demo's cluster with an empty store."""
    settings = StoreSettings(url=influxdb.url, database=database)
    cluster, store = replace(load_cluster(REPOSITORY / "cluster.yaml"), store=settings), Store(settings)
    store.ensure(cluster.retentions())
    return cluster, store


@pytest.mark.service
def test_a_source_outside_is_found_by_its_address_though_it_has_a_name(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    (cluster, store), now = demo(influxdb_v1, fresh_database), int(time.time())
    rule, talk = "unexpected_management_connection", {schema.SRC: "203.0.113.9", schema.SRC_GROUP: "external"}
    reports = [
        Report(rule, "Unexpected", now - 60.0, EventSeverity.WARNING, labels={**talk, schema.DST: f"bmc-{number}"})
        for number in (1, 2)
    ]
    StoredHistory(store).send(AlertBook(cluster, rules_of(cluster), Parties(cluster, Named()), None).take(reports))
    alert, other = stored_alerts(store, now - 600, now)
    assert alert.tags[schema.SRC] == "host-9.example.net"
    (near,) = _table(incident_of(cluster, store, alert, now), "others")
    assert (near["shared"], near["id"]) == ("source", other.id[:8])
    asked = completed(cluster, Filter(0, 0), start=None, stop=None, around=alert.id)
    assert (asked.address, asked.node) == (("203.0.113.9",), ())


@pytest.mark.service
def test_other_alerts_are_those_of_its_ends_either_way_round_of_its_exporter_and_the_same_again(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    (cluster, store), now = demo(influxdb_v1, fresh_database), int(time.time())
    pull = {schema.SRC: "model-store-1", schema.DST: "203.0.113.9"}
    opened = {schema.SRC: "203.0.113.9", schema.DST: "model-store-1"}
    leaf = {schema.EXPORTER: "leaf-1"}
    told = [
        ("outside_pull", pull), ("segmentation_violation", opened), ("exporter_silent", leaf), ("flow_loss", leaf),
        ("ingest_deadman", {}), ("ingest_deadman", {}),
    ]  # fmt: skip
    reports = [
        Report(rule, rule, now - 600.0 + 60 * place, EventSeverity.WARNING, now - 590.0 + 60 * place, labels)
        for place, (rule, labels) in enumerate(told)
    ]
    StoredHistory(store).send(AlertBook(cluster, rules_of(cluster), Parties(cluster), None).take(reports))
    wanted = {
        "outside_pull": ("segmentation_violation", "source, destination"),
        "flow_loss": ("exporter_silent", "exporter"),
        "ingest_deadman": ("ingest_deadman", "rule and labels"),
    }
    for alert in stored_alerts(store, now - 700, now):
        if alert.rule in wanted:
            (near,) = _table(incident_of(cluster, store, alert, now), "others")
            assert (near["rule"].text, near["shared"]) == wanted[alert.rule]


@pytest.mark.service
def test_flows_around_an_alert_go_on_while_it_fires(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    (cluster, store), now = demo(influxdb_v1, fresh_database), int(time.time())
    report = Report(
        "exfil_volume", "Much", now - 20_000.0, EventSeverity.CRITICAL, labels={schema.SRC: "model-store-1"}
    )
    book, history = AlertBook(cluster, rules_of(cluster), Parties(cluster), None), StoredHistory(store)

    def asked() -> Filter:
        (alert,) = stored_alerts(store, now - 30_000, now)
        return completed(cluster, Filter(0, 0), start=None, stop=None, around=alert.id)

    history.send(book.take([report]))
    assert (asked().start, asked().stop >= now) == (now - 21_800, True)
    history.send(book.take([replace(report, ended=now - 10_000.0)]))
    assert (asked().start, asked().stop) == (now - 21_800, now - 8200)


@pytest.mark.service
@pytest.mark.parametrize(("days", "is_known"), [(1, True), (20, False)])
def test_of_what_is_kept_no_longer_no_page_says_that_it_was_not(
    influxdb_v1: LocalInfluxDB, fresh_database: str, *, days: int, is_known: bool
) -> None:
    """Jobs and first contacts are kept for a week, alerts for years."""
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure(cluster.retentions())
    now = int(time.time())
    start = (now - days * 86_400) // 60 * 60
    look = Look(cluster, store, Period(start, start + 3600, schema.MINUTE, 60), now)
    said = [
        (section.lead, *section.notes, *(block.empty for block in section.blocks if isinstance(block, Table)))
        for section in (*jobs_nearby(look, "gpu-01", ""), *contacts(look, "gpu-01", ""))
    ]
    assert len(said) == 2
    for texts in said:
        assert any("not known any more" in text.lower() for text in texts) is not is_known
        assert any("are kept for 7d" in text for text in texts) is not is_known
        assert any(text.startswith(("No job ran", "0 destinations")) for text in texts) is is_known


def test_a_chart_has_gaps_marks_and_a_limit() -> None:
    zone = load_cluster(REPOSITORY / "cluster.yaml").site.time_zone
    points = [(0, 1.0), (60, None), (120, 5.0), (180, 4.0)]
    chart = Chart(points, 3.0, "limit: <3>", [(120, "fired"), (9_999, "never")], str, zone)
    svg = line_chart(chart)
    assert svg.count("<polyline") == 2
    assert "limit: &lt;3&gt;" in svg
    assert svg.count('class="mark"') == 1
    picture = Image.open(io.BytesIO(line_picture([(chart, "critical: much", "from a to b")] * 2)))
    assert (picture.format, picture.size) == ("PNG", (1010, 720))
    colours = {colour for _, colour in picture.getcolors(1 << 20) or ()}
    assert len(colours) > 50


@pytest.mark.service
def test_the_command_writes_the_file(night: Night, tmp_path: Path) -> None:
    config, target = tmp_path / "cluster.yaml", tmp_path / "ticket.html"
    config.write_text(dump_cluster(night.cluster), encoding="utf-8")
    result = CliRunner().invoke(command, [night.alert.id[:8], "--config", str(config), "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert night.theft.dst in target.read_text(encoding="utf-8")
    refused = CliRunner().invoke(command, ["nonsense", "--config", str(config)])
    assert isinstance(refused.exception, UserError)


@pytest.mark.service
def test_the_server_of_metrics_shows_it_to_those_with_the_token(night: Night) -> None:
    pages = {INCIDENT_PATH: IncidentPages(night.cluster, lambda: night.now).page}
    server = MetricsServer("127.0.0.1:0", dict, lambda: "", "a token of ours", pages=pages)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}{INCIDENT_PATH}"
        assert requests.get(f"{url}{night.alert.id}", timeout=60).status_code == 401
        assert requests.get(f"{url}{night.alert.id}", auth=("any", "wrong"), timeout=60).status_code == 401
        asked = {
            "rule": "exfil_volume", "src": night.theft.src, "dst": night.theft.dst,
            "began": str(night.alert.began * 1000),
        }  # fmt: skip
        by_id = requests.get(f"{url}{night.alert.id[:8]}", auth=("any", "a token of ours"), timeout=60)
        bearer = {"Authorization": "Bearer a token of ours"}
        by_labels = requests.get(url, params=asked, headers=bearer, timeout=60)
        for answer in (by_id, by_labels):
            assert answer.status_code == 200
            assert answer.headers["Content-Type"].startswith("text/html")
            assert f"{night.sent:,}" in answer.text
        for wrong in (
            "ffffffffffff",
            "../etc/passwd",
            "%00",
            "?began=x",
            "?rule=exfil_volume",
            "?began=99999999999999999",
        ):
            assert requests.get(f"{url}{wrong}", headers=bearer, timeout=60).status_code == 404, wrong
    finally:
        server.stop()


def test_a_link_is_in_events_and_notifications_only_where_it_leads_somewhere() -> None:
    plain = load_cluster(REPOSITORY / "cluster.yaml")
    linked = replace(plain, delivery=replace(plain.delivery, incident_url="https://flows.example.org/"))
    report = Report(
        "exfil_volume", "Much", 1_795_000_000.0, EventSeverity.WARNING, labels={"src": "a b", "dst": "203.0.113.9"}
    )
    for cluster, has_link in ((plain, False), (linked, True)):
        rule_set = rules_of(cluster)
        (event,) = AlertBook(cluster, rule_set, Parties(cluster), None).take([report])
        page = f"https://flows.example.org/incident/{event['incident']}" if has_link else None
        assert event.get("page") == page
        url = ecs(event)["event"].get("url")
        assert (url == page) is has_link
        assert (f"request={page}" in cef(event)) is has_link
        annotations = rule_entry(cluster, rule_set.rule("exfil_volume"))["annotations"]
        told = Told({"rule": "exfil_volume", **report.labels}, annotations, 1_795_000_000, None, "cf-egress", 1)
        text = Notification([told], ["rule"], "noc", "https://grafana.example.org", 1_795_000_060).settings("email")
        expected = "Incident: https://flows.example.org/incident/?began=1795000000000&rule=exfil_volume&dst=203.0.113.9"
        assert (expected in text["message"]) is has_link


@pytest.mark.service
def test_a_link_leads_to_its_own_alert_of_several_that_began_at_once(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """All exporters of a collector fall silent together; a source of data that fails has a page of its own."""

    def said(labels: dict[str, str]) -> str:
        name = labels.get(schema.EXPORTER) or labels.get(schema.RAIL)
        return f"summary of {name}" if name else "DatasourceError"

    plain = load_cluster(REPOSITORY / "cluster.yaml")
    settings = StoreSettings(url=influxdb_v1.url, database=fresh_database)
    delivery = replace(plain.delivery, incident_url="https://flows.example.org/")
    cluster = replace(plain, store=settings, delivery=delivery)
    rule_set, store, began = rules_of(cluster), Store(settings), int(time.time()) - 60
    store.ensure(cluster.retentions())
    rule = rule_set.rule("exporter_silent")
    own = [{"rule": rule.id, "alertname": rule.title, schema.EXPORTER: f"leaf-{number}"} for number in (1, 2, 3)]
    own.append({"rule": rule.id, "alertname": "DatasourceError", "rulename": rule.title, "ref_id": "A"})
    own += [{"rule": "rail_low", "alertname": "Rail", schema.NODE: "gpu-1", schema.RAIL: rail} for rail in ("0", "1")]
    book = AlertBook(cluster, rule_set, Parties(cluster), None)
    reports = [
        Report(
            "" if "rulename" in labels else labels["rule"], labels["alertname"], float(began), EventSeverity.WARNING,
            labels=labels, annotations={"summary": said(labels)},
        )
        for labels in own
    ]  # fmt: skip
    StoredHistory(store).send(book.take(reports))
    annotations, pages = rule_entry(cluster, rule)["annotations"], IncidentPages(cluster, lambda: began + 60)
    for labels in own:
        told = Told(labels, annotations, began, None, "cf-pipeline", 1)
        text = Notification([told], ["rule"], "noc", "https://grafana.example.org", began + 30).settings("email")[
            "message"
        ]
        (link,) = re.findall(r"Incident: https://flows.example.org/incident/(\S+)", text)
        assert said(labels) in pages.page(link).body.decode()


@pytest.mark.service
def test_grafana_gets_a_picture_of_what_its_rule_saw(night: Night) -> None:
    pages = AlertPictures(night.cluster, lambda: night.now)
    server = MetricsServer("127.0.0.1:0", dict, lambda: "", "a token of ours", pages={PICTURE_PATH: pages.page})
    server.start()
    panel = rules_of(night.cluster).rule("exfil_volume").panel
    try:
        url = f"http://127.0.0.1:{server.port}{PICTURE_PATH}"
        token = {"X-Auth-Token": "a token of ours"}
        shown = f"http://grafana/d-solo/{panel.dashboard_uid}/egress?orgId=1&panelId={panel.panel_id}"
        assert requests.get(url, {"url": shown}, timeout=60).status_code == 401
        assert requests.get(f"{url}/version", headers=token, timeout=60).json()["version"]
        answer = requests.get(url, {"url": shown, "width": "1000"}, headers=token, timeout=60)
        assert answer.status_code == 200, answer.text
        assert Image.open(io.BytesIO(answer.content)).format == "PNG"
        for other in ("", "http://grafana/d/x", shown + "9", "http://grafana/d-solo/x/y?panelId=a"):
            assert requests.get(url, {"url": other}, headers=token, timeout=60).status_code == 404, other
    finally:
        server.stop()
