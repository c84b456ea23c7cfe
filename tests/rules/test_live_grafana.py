"""The harness of the Grafana tests itself, without a Grafana: receivers receive, and a difference is told."""

import smtplib
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import live_grafana
import pytest
import requests
from live_grafana import differences, observations, ours

from app.units import format_moment as moment
from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from rules.evaluate.cases import BEGINS, CaseKind, load_cases
from rules.evaluate.evaluator import Evaluator
from rules.registry import rules_of
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

FOLDER = Path(__file__).parent
CLUSTER = load_cluster(FOLDER / "cluster.yaml")
RULE = rules_of(CLUSTER).rule("exfil_volume")


def test_webhooks_are_kept() -> None:
    with live_grafana.webhook() as inbox:
        alert = {"labels": {"rule": "r"}, "status": "firing"}
        requests.post(inbox.url, json={"alerts": [alert], "message": "hello"}, timeout=5).raise_for_status()
    assert inbox.alerts() == {"r": alert}
    assert inbox.messages() == "hello"


def test_mails_are_kept() -> None:
    """With both forms of the body, in a transfer encoding, and lines that begin with a dot."""
    mail = EmailMessage()
    mail["Subject"] = "Größe"
    mail.set_content("plain\n.dot\nsource: a → b")
    mail.add_alternative("<p>html</p>", subtype="html")
    with live_grafana.mail_server() as box, smtplib.SMTP(*box.host.split(":")) as client:
        client.send_message(mail, "grafana@example.org", ["noc@example.org"])
        client.send_message(mail, "grafana@example.org", ["noc@example.org"])
    assert len(box.mails) == 2
    for text in ("Größe", "plain\n.dot\n", "source: a → b", "<p>html</p>"):
        assert text in box.texts()


# States -------------------------------------------------------------------------------------------


@pytest.fixture
def evaluator(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Evaluator:
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention("raw", 10, 0),))
    cases = load_cases(FOLDER / "exfil_volume.yaml", FOLDER / "cluster.yaml")
    case = next(case for case in cases if CaseKind.FIRES in case.kinds())
    store.write(case.lines()["raw"], "raw")
    return Evaluator(store, [RULE])


def _answer(evaluator: Evaluator, tick: int, *, normal: bool = True) -> dict[str, Any]:
    """Return what Grafana's API answers after an evaluation, in the shape of its definitions, if it agrees with us."""
    ticks = range(BEGINS, tick + 1, RULE.interval)
    alerts = [
        {
            "labels": dict(labels),
            "annotations": {**shown.annotations, "__dashboardUid__": "x"},
            "state": shown.state,
            "activeAt": moment(shown.since),
            "value": "",
        }
        for labels, shown in ours(evaluator, RULE, ticks)[tick].items()
    ]
    if normal:
        alerts.append({"labels": {"a": "b"}, "annotations": {}, "state": "Normal (NoData)", "activeAt": moment(tick)})
    rule = {
        "state": "firing",
        "name": RULE.title,
        "labels": RULE.all_labels(),
        "health": "ok",
        "type": "alerting",
        # Go prints nine digits, and evaluations take their time.
        "lastEvaluation": moment(tick).replace("Z", ".012345678Z"),
        "evaluationTime": 0.01,
        **({"alerts": alerts} if alerts else {}),
    }
    never = {**rule, "labels": {"rule": "never"}, "lastEvaluation": "0001-01-01T00:00:00Z"}
    groups = [{"name": RULE.family, "file": "clusterflow", "rules": [rule, never], "interval": 10}]
    return {"status": "success", "data": {"groups": groups, "totals": {}}}


TICKS = [BEGINS, BEGINS + 40, BEGINS + 50, BEGINS + 60, BEGINS + 910, BEGINS + 960, BEGINS + 970]


def test_what_agrees_has_no_differences(evaluator: Evaluator) -> None:
    """From Normal over Alerting and Recovering back to Normal, which the API lists as well."""
    seen = [one for tick in TICKS for one in observations(_answer(evaluator, tick, normal=tick != BEGINS))]
    assert {one.rule for one in seen} == {RULE.id}
    states = [[shown.state for shown in one.shown.values()] for one in seen]
    assert states == [[], [], ["Alerting"], ["Alerting"], ["Recovering"], ["Recovering (NoData)"], []]
    assert differences(seen, evaluator, RULE) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("state", "Pending", "Grafana Pending, we Alerting"),
        ("state", "Alerting (NoData)", "Grafana Alerting (NoData), we Alerting"),
        ("state", "Normal", "Grafana Normal, we Alerting"),
        ("activeAt", moment(BEGINS + 30), f"since {BEGINS + 30}, we {BEGINS + 50}"),
        ("annotations", {}, "summary: Grafana None, we 'model-store-1"),
        ("labels", {"rule": RULE.id}, "Grafana Alerting, we Normal"),
    ],
)
def test_what_differs_is_told(evaluator: Evaluator, key: str, value: object, said: str) -> None:
    answer = _answer(evaluator, BEGINS + 60)
    answer["data"]["groups"][0]["rules"][0]["alerts"][0][key] = value
    seen = [*observations(_answer(evaluator, BEGINS)), *observations(answer)]
    assert any(said in line for line in differences(seen, evaluator, RULE)), differences(seen, evaluator, RULE)


def test_a_rule_that_grafana_did_not_evaluate_is_told(evaluator: Evaluator) -> None:
    assert differences([], evaluator, RULE) == ["exfil_volume: Grafana did not evaluate it"]


def test_an_evaluation_at_an_odd_time_is_told(evaluator: Evaluator) -> None:
    odd = live_grafana.Observation(RULE.id, BEGINS + 15, {})
    seen = [*observations(_answer(evaluator, BEGINS)), odd, *observations(_answer(evaluator, BEGINS + 20))]
    assert differences(seen, evaluator, RULE) == [
        f"exfil_volume at {BEGINS + 15}: evaluated between two ticks of its interval"
    ]
