"""The sections `grafana` and `notify`: where links in alerts lead, and where alerts go."""

from dataclasses import dataclass, field
from pathlib import Path

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import REQUIRED, Key, OneOf, Section, check_pair, key, record
from cluster.scalars.kinds import FLAG, SECRET, ListOf, Placed, Secret, Table, Text, one_of


# fmt: off
@record
class GrafanaSettings:
    """What links need."""

    url: str = key(names.URL,
        "Grafana's address as people reach it: its `root_url`, for links in alerts and the playlist command.",
        default="http://127.0.0.1:3000")
    runbook_url: str | None = key(names.URL,
        "A runbook of your own: links in alerts lead to `#` and the rule's id there.", default=None,
        absent="the board *Runbook* in Grafana", example="https://wiki.example.org/clusterflow/runbook")
    datasource_uid: str = key(names.UID, "Uid of the InfluxDB data source.", default="clusterflow")
    token: Secret | None = key(SECRET, "Token that Grafana reads InfluxDB with (v2 API).", default=None,
        absent="that of `store`", example="{file: /run/secrets/grafana_influx}")
    username: str | None = key(names.LINE, "User that Grafana reads InfluxDB with (v1 API).", default=None,
        absent="that of `store`")
    password: Secret | None = key(SECRET, "Its password.", default=None, absent="that of `store`",
        example="{file: /run/secrets/grafana_influx}")


GRAFANA = Section.of(GrafanaSettings, "grafana")
# fmt: on


def build_grafana(table: Table | None, faults: Faults) -> GrafanaSettings:
    """Return the settings, and record a user without a password, or the other way round."""
    check_pair("grafana", table or {}, "username", "password", faults)
    grafana: GrafanaSettings = GRAFANA.build(table)
    return grafana


@record
class NotificationTarget:
    """Where alerts go.

    Attributes:
        kind: Grafana's receiver type: webhook, email, slack, pagerduty, teams, opsgenie, telegram.
        secrets: Grafana setting -> where the secret is.
        settings: Grafana setting -> plain value.
        severities: which alerts it gets; empty means all.
        drills: whether it gets those that a drill staged, too.
    """

    name: str
    kind: str
    settings: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, Secret], ...] = ()
    severities: tuple[str, ...] = ()
    drills: bool = True


MAIL_SEPARATOR = ";"
"""What Grafana puts between e-mail addresses."""
SEVERITIES = ("critical", "warning")


def _severity(text: str) -> str:
    if text not in SEVERITIES:
        raise ValueError(text)
    return text


_SEVERITIES = Key(
    "severities",
    ListOf(Text("severity", one_of(SEVERITIES), _severity)),
    "Which alerts it gets.",
    (),
    absent="all",
    example="[critical]",
)

_DRILLS = Key(
    "drills", FLAG, "Whether it gets what `clusterflow drill` stages, too: False for who must not be woken.", True
)


@dataclass(frozen=True)
class Channel(Section):
    """One type of notification target.

    Attributes:
        grafana: its keys -> Grafana's names for them.
        needs: sets of keys of which at least one must be there in full; none means that any will do.
    """

    grafana: dict[str, str] = field(default_factory=dict)
    needs: tuple[tuple[str, ...], ...] = ()

    def build(
        self, value: Table | None, folder: Path = Path(), *, name: object = None, made: Table | None = None
    ) -> NotificationTarget:
        """Return the target, its settings as Grafana takes them."""
        del folder, made
        table = value or {}
        given = [(grafana, table[key]) for key, grafana in self.grafana.items() if table.get(key) is not None]
        return NotificationTarget(
            str(name),
            table["type"],
            tuple((setting, _plain(value)) for setting, value in given if not isinstance(value, Secret)),
            tuple((setting, value) for setting, value in given if isinstance(value, Secret)),
            tuple(severity.value for severity in table.get("severities", [])),
            table.get("drills", True),
        )

    def write(self, value: NotificationTarget) -> object:
        """Return the target, written."""
        given: Table = dict(value.settings) | dict(value.secrets)
        table = {key: given[grafana] for key, grafana in self.grafana.items() if grafana in given}
        if "addresses" in table:
            table["addresses"] = table["addresses"].split(MAIL_SEPARATOR)
        return self.write_table(table | {"severities": value.severities, "drills": value.drills})


def _plain(value: str | list[Placed[str]]) -> str:
    return value if isinstance(value, str) else MAIL_SEPARATOR.join(item.value for item in value)


def _channel(label: str, *keys: tuple[Key, str], needs: tuple[tuple[str, ...], ...] = ()) -> Channel:
    grafana = {key.name: setting for key, setting in keys}
    return Channel(label, (*(key for key, _ in keys), _SEVERITIES, _DRILLS), grafana=grafana, needs=needs)


# fmt: off
CHANNELS = {
    "webhook": _channel(
        "webhook",
        (Key("url", SECRET, "Where to POST.", REQUIRED, example="{env: NOC_WEBHOOK}"), "url"),
        (Key("username", names.LINE, "User of HTTP basic authentication."), "username"),
        (Key("password", SECRET, "Its password."), "password"),
    ),
    "email": _channel(
        "e-mail",
        (Key("addresses", ListOf(names.MAIL_ADDRESS, at_least=1), "Who gets it.", REQUIRED,
             example="[noc@example.org]"), "addresses"),
    ),
    "slack": _channel(
        "Slack",
        (Key("url", SECRET, "Incoming webhook; or `token` and `channel`."), "url"),
        (Key("token", SECRET, "Bot token."), "token"),
        (Key("channel", names.LINE, "Channel, with `token`.", example='"#noc"'), "recipient"),
        needs=(("url",), ("token", "channel")),
    ),
    "pagerduty": _channel(
        "PagerDuty",
        (Key("integration_key", SECRET, "Events API v2 integration key.", REQUIRED), "integrationKey"),
    ),
    "teams": _channel(
        "Microsoft Teams",
        (Key("url", SECRET, "Workflow webhook.", REQUIRED), "url"),
    ),
    "opsgenie": _channel(
        "Opsgenie",
        (Key("api_key", SECRET, "API key.", REQUIRED), "apiKey"),
        (Key("api_url", names.URL, "Another region's alert API.", example="https://api.eu.opsgenie.com/v2/alerts"),
         "apiUrl"),
    ),
    "telegram": _channel(
        "Telegram",
        (Key("bot_token", SECRET, "Bot token.", REQUIRED), "bottoken"),
        (Key("chat_id", names.LINE, "Chat.", REQUIRED, example='"-1001234567890"'), "chatid"),
    ),
}  # fmt: skip
"""Notification targets by type."""
# fmt: on

NOTIFY = OneOf("type", CHANNELS, "notification target")


def build_notify(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[NotificationTarget, ...]:
    """Return the targets, and record those that lack what Grafana needs."""
    found = []
    for name, placed in tables.items():
        table = placed.value
        if "type" not in table:
            continue
        needs = CHANNELS[table["type"]].needs
        if needs and not any(all(table.get(key, "") is not None for key in keys) for keys in needs):
            expected = one_of(" and ".join(keys) for keys in needs)
            faults.add(placed.path, f"not enough for {table['type']}", expected)
        found.append(CHANNELS[table["type"]].build(table, name=name))
    return tuple(found)
