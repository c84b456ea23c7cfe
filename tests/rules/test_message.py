"""What a person reads: the first line, what to do, where to look; for one alert, several, and one that is over."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from operations.notify_cli import FORMS, mail_page
from rules import runbook
from rules.common import texts
from rules.grafana import notices
from rules.grafana.encode import rule_entry
from rules.grafana.example_alert import LASTED, example_of
from rules.grafana.message import Notification, Told
from rules.grafana.templates import Context, render
from rules.registry import rules_of
from rules.rule import Rule

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")
RULE_SET = rules_of(CLUSTER)
NOW = 1_777_777_777
"""2026-05-03 03:09:37 UTC."""
URL = "https://grafana.example.org"
EXFIL = RULE_SET.rule("exfil_volume")
PANEL = f"{URL}/d/cf-egress?from={NOW - LASTED - 1800}000&orgId=1&to=now&viewPanel=1"
SILENCE = (
    f"{URL}/alerting/silence/new?alertmanager=grafana&matcher=dst%3D203.0.113.9&matcher=dst_group%3Dexternal"
    "&matcher=rule%3Dexfil_volume&matcher=src%3Dmodel-store-1&matcher=src_group%3Dmodel_storage"
)


def _told(rule: Rule = EXFIL, *, ended: bool = False) -> Told:
    return example_of(CLUSTER, rule, NOW, ended=ended).told


def _sent(*alerts: Told, rule: Rule = EXFIL) -> Notification:
    return Notification(alerts, rule.group_by, "noc", URL, NOW)


def _title(notification: Notification) -> str:
    return notification.render(notices.TITLE)


def _lines(notification: Notification) -> list[str]:
    return notification.render(notices.MESSAGE).splitlines()


def test_an_alert() -> None:
    """What, from where to where, how much, since when; why; what to do; links to its own time, runbook, silence."""
    what = "WARNING: Model storage sends much to an unapproved address"
    assert _title(_sent(_told())) == f"{what}: model-store-1 -> 203.0.113.9, 60GB, since 02:51 UTC"
    parties = "model-store-1 (Model Storage) → 203.0.113.9 (AS64500 Example, NL, Unknown External)"
    said = "model-store-1 (Model Storage) sent 60GB to 203.0.113.9 (AS64500 Example, NL, Unknown External) within 15m"
    do = dict(EXFIL.annotations)[texts.WHAT_TO_DO]
    assert _lines(_sent(_told())) == [
        f"{parties} · 60GB · tcp (https) · 10m 12s · since 2026-05-03 02:51:37 UTC",
        f"{said}: more than 50 GB to an address that nobody approved.",
        "",
        f"Do: {do}",
        "",
        f"Panel: {PANEL}",
        f"Runbook: {runbook.address(CLUSTER, 'exfil_volume')}",
        f"Silence: {SILENCE}",
    ]


def test_an_alert_that_is_over() -> None:
    """How long it lasted and the last value; nothing to do, nothing to silence."""
    notification = _sent(_told(ended=True))
    what = "RESOLVED: Model storage sends much to an unapproved address"
    assert _title(notification) == f"{what}: model-store-1 -> 203.0.113.9, 60GB, lasted 18m0s"
    assert _lines(notification) == [
        "model-store-1 (Model Storage) → 203.0.113.9 (AS64500 Example, NL, Unknown External)",
        "Resolved: lasted 18m0s, from 2026-05-03 02:51:37 to 2026-05-03 03:09:37 UTC; last value: 60GB",
        "",
        f"Panel: {PANEL.replace('now', f'{NOW}000')}",
        f"Runbook: {runbook.address(CLUSTER, 'exfil_volume')}",
    ]


def test_a_title_is_plain_ascii() -> None:
    """Pagers and subjects of mails: some show anything else as question marks."""
    assert all(_title(_sent(_told(rule), rule=rule)).isascii() for rule in RULE_SET.rules)


def test_several_alerts_are_counted_and_share_one_instruction() -> None:
    other = replace(_told(), annotations={**_told().annotations, texts.DESTINATION: "198.51.100.7"})
    notification = _sent(_told(), other)
    what = "WARNING: 2 x Model storage sends much to an unapproved address"
    assert _title(notification) == f"{what}, model-store-1 (Model Storage)"
    lines = _lines(notification)
    assert sum(line.startswith("Do: ") for line in lines) == 1
    assert [line.split(" · ")[0].split(" → ")[1][:12] for line in lines if " · since " in line] == [
        "203.0.113.9 ", "198.51.100.7",
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "setting"), [("email", "message"), ("slack", "text"), ("telegram", "message")])
def test_fifty_alerts_do_not_push_out_what_to_do(kind: str, setting: str) -> None:
    """Telegram cuts after 4,096 characters, Teams refuses more than 28 kB: five in full, a line for each other."""
    every = [
        replace(
            _told(ended=ended), annotations={**_told().annotations, texts.SOURCE: f"store-{number} (Model Storage)"}
        )
        for ended in (False, True)
        for number in range(25)
    ]
    text = _sent(*every).settings(kind)[setting]
    assert text.index("Silence") < 4_096
    assert len(text) < 14_000
    assert [text.count(f"store-{number} ") for number in (3, 20)] == [2, 2]
    assert "firing: store-20 -> 203.0.113.9, 60GB, since 02:51 UTC\n" in text
    assert "resolved: store-20 -> 203.0.113.9, 60GB, lasted 18m0s\n" in text


def test_many_rules_that_cannot_be_evaluated_keep_their_names() -> None:
    renamed = {"alertname": "DatasourceError", "rulename": EXFIL.title}
    said = _lines(_sent(*[replace(_told(), labels={**_told().labels, **renamed})] * 6))
    assert said[-1] == f"firing: {EXFIL.title}, since 02:51 UTC"


def test_telegram_has_no_title_of_its_own() -> None:
    for told in _told(), _told(ended=True):
        assert _sent(told).settings("telegram")["message"].startswith(f"{_title(_sent(told))}\n\n")


def test_one_of_two_is_over() -> None:
    """The title counts what fires."""
    notification = _sent(_told(), _told(ended=True))
    assert _title(notification).startswith("WARNING: Model storage sends much to an unapproved address: model-store-1")
    assert [line[:9] for line in _lines(notification) if line.startswith(("Resolved:", "Do: "))] == [
        "Resolved:",
        "Do: Find ",
    ]


def test_rules_that_cannot_be_evaluated() -> None:
    """Grafana renames such alerts, and their rule's own words say nothing of it."""
    renamed = {"alertname": "DatasourceError", "rulename": EXFIL.title}
    failed = replace(
        _told(), labels={**_told().labels, **renamed}, annotations={**_told().annotations, "Error": "no such retention"}
    )
    notification = _sent(failed)
    assert _title(notification) == "WARNING: Grafana cannot ask InfluxDB, rules see nothing: 1"
    said = _lines(notification)
    assert said[:2] == [f"{EXFIL.title} · sees nothing · since 2026-05-03 02:51:37 UTC", "Error: no such retention"]
    assert said[3].startswith("Do: Run `clusterflow status`")


def test_job_and_node_of_an_alert_are_chosen_on_its_panel() -> None:
    rule = RULE_SET.rule("node_dropout")
    (panel,) = (line for line in _lines(_sent(_told(rule), rule=rule)) if line.startswith("Panel: "))
    assert panel.endswith("&viewPanel=2&var-job=llama-70b-0412&var-node=gpu-01")


def test_the_link_to_a_silence_hides_no_other_incident_than_those_of_its_message() -> None:
    rule = RULE_SET.rule("exporter_silent")
    alerts = [replace(_told(rule), labels={**_told(rule).labels, "exporter": name}) for name in ("leaf-1", "leaf-2")]
    for some, wanted in (alerts[:1], "&matcher=exporter%3Dleaf-1&matcher=rule%3D"), (alerts, "grafana&matcher=rule%3D"):
        (link,) = (line for line in _lines(_sent(*some, rule=rule)) if line.startswith("Silence: "))
        assert link.endswith(f"{wanted}exporter_silent")


@pytest.mark.parametrize("ended", [False, True], ids=["firing", "resolved"])
@pytest.mark.parametrize("rule", RULE_SET.rules, ids=lambda rule: rule.id)
def test_no_empty_field_and_no_template_is_ever_sent(rule: Rule, *, ended: bool) -> None:
    notification = _sent(_told(rule, ended=ended), rule=rule)
    # Two spaces, or one at an end: a name of the example is missing.
    said = list(_told(rule, ended=ended).annotations.values())
    assert said == [" ".join(text.split()) for text in said]
    every = {kind: notification.settings(kind) for kind in ("webhook", "email", "slack", "pagerduty", "opsgenie")}
    for kind, settings in every.items():
        for name, text in {**settings, **settings.get("details", {})}.items():
            assert text, (kind, name)
            assert "{{" not in str(text), (kind, name)
            assert "[no value]" not in str(text), (kind, name)
            assert texts.UNKNOWN + " " not in str(text).replace("Unknown External", ""), (kind, name)
    for line in notification.render(notices.MESSAGE).splitlines():
        assert not re.search(r":\s*$| ·\s*$|· *·", line), line


@pytest.mark.parametrize("rule", RULE_SET.rules, ids=lambda rule: rule.id)
def test_no_annotation_takes_a_number_that_may_be_missing(rule: Rule) -> None:
    annotations = rule_entry(CLUSTER, rule)["annotations"]
    found = [name for name, text in annotations.items() if re.search(r"[$.][vV]alues\.\w+\.Value", text)]
    assert not found, (
        f"{found}: Grafana fails on $values.X.Value where X has no number: the annotation then holds its source, and "
        "each evaluation logs an error. Take numbers by the functions of texts, which write {{ with $values.X }}"
    )


@pytest.mark.parametrize("rule", RULE_SET.rules, ids=lambda rule: rule.id)
def test_annotations_hold_without_any_label_and_number(rule: Rule) -> None:
    """Grafana renders them where there is no data, too: what fails there writes an error at each evaluation."""
    for _, text in rule.annotations:
        assert "{{" not in render(rule.template(text), Context({}, {}))


@pytest.mark.parametrize("kind", ["webhook", "email", "slack", "pagerduty", "teams", "opsgenie", "telegram"])
def test_grafana_would_expand_a_dollar_in_settings(kind: str) -> None:
    settings = notices.texts_of(kind)
    assert not [text for text in {**settings, **settings.get("details", {})}.values() if "$" in str(text)]


@pytest.mark.parametrize(
    ("zone", "clock", "moment", "span"),
    [
        (
            "Europe/Amsterdam", "04:51 CEST (02:51 UTC)", "2026-05-03 04:51:37 CEST (02:51:37 UTC)",
            "from 2026-05-03 04:51:37 to 2026-05-03 05:09:37 CEST (02:51:37 to 03:09:37 UTC)",
        ),
        (
            "America/Los_Angeles", "19:51 PDT (02:51 UTC)", "2026-05-02 19:51:37 PDT (02:51:37 UTC)",
            "from 2026-05-02 19:51:37 to 2026-05-02 20:09:37 PDT (02:51:37 to 03:09:37 UTC)",
        ),
        (
            "Africa/Abidjan", "02:51 GMT", "2026-05-03 02:51:37 GMT",
            "from 2026-05-03 02:51:37 to 2026-05-03 03:09:37 GMT",
        ),
    ],
)  # fmt: skip
def test_times_are_the_sites_with_utc_beside_them(zone: str, clock: str, moment: str, span: str) -> None:
    """Whoever is woken reads the clock on the wall; logs, events and other sites have UTC."""
    notification = replace(_sent(_told()), zone=zone)
    assert _title(notification).endswith(f", since {clock}")
    assert _lines(notification)[0].endswith(f" · since {moment}")
    assert notification.settings("pagerduty")["details"]["since"] == moment
    assert any(f"lasted 18m0s, {span};" in line for line in _lines(replace(_sent(_told(ended=True)), zone=zone)))


# Forms --------------------------------------------------------------------------------------------


def test_pagerduty_has_the_facts_as_details() -> None:
    details = _sent(_told()).settings("pagerduty")["details"]
    assert {name: details[name] for name in texts.FACTS} == {
        "source": "model-store-1 (Model Storage)",
        "destination": "203.0.113.9 (AS64500 Example, NL, Unknown External)",
        "protocol": "tcp (https)",
        "bytes": "60GB",
        "duration": "10m 12s",
    }
    assert (details["num_firing"], details["resolved"], details["panel"]) == ("1", "none", PANEL)


def test_slack_links_by_words() -> None:
    said = _sent(_told()).settings("slack")["text"].splitlines()[-1]
    assert said == f"<{PANEL}|Panel> · <{runbook.address(CLUSTER, 'exfil_volume')}|Runbook> · <{SILENCE}|Silence>"
    assert f"▌ Silence: {SILENCE}" in FORMS["slack"](_sent(_told())).splitlines()


def test_the_page_of_a_mail_escapes_what_it_is_given() -> None:
    told = replace(_told(), annotations={**_told().annotations, texts.SUMMARY: "<b>"})
    page = mail_page(_sent(told))
    assert "&lt;b&gt;<br>" in page
    assert f'<a href="{PANEL.replace("&", "&amp;")}">' in page
