"""Options in the place of a key of cluster.yaml: what the key refuses, they refuse."""

from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest
from click.testing import CliRunner

from app.errors import UserError
from cluster import options
from cluster.load import parse_cluster
from clusterflow import main
from ingest.cli import _as_asked

CLUSTER = parse_cluster("cluster: lab\ngroups: {training: {role: training, prefixes: [10.20.0.0/16]}}\n")


def taken(kind: click.ParamType[object], text: str) -> object:
    """Return what a command gets of an option of this kind."""
    got: list[object] = []

    @click.command()
    @click.option("--it", type=kind)
    def command(it: object) -> None:
        got.append(it)

    result = CliRunner().invoke(command, ["--it", text])
    if result.exception is not None:
        raise result.exception
    return got[0]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (options.URL, "http://127.0.0.1:8086/", "http://127.0.0.1:8086"),
        (options.URL, "https://[fd00::1]:8086", "https://[fd00::1]:8086"),
        (options.DATABASE, "clusterflow-2", "clusterflow-2"),
        (options.SHARD, "hall-2", "hall-2"),
        (options.SHARD, "once-pmacct of march", "once-pmacct of march"),
        (options.LISTEN_OR_OFF, "[::1]:9105", "[::1]:9105"),
        (options.LISTEN_OR_OFF, "off", "off"),
        (options.TIME_ZONE, "Europe/Amsterdam", ZoneInfo("Europe/Amsterdam")),
        (options.OutputFile(dash=True), "-", "-"),
        (options.OutputFile(path_type=Path), "here.json", Path("here.json")),
    ],
)
def test_what_the_key_takes_the_option_takes(kind: click.ParamType[object], text: str, value: object) -> None:
    assert taken(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "line"),
    [
        (
            options.URL,
            "127.0.0.1:8086",
            "--it 127.0.0.1:8086: expected an http:// or https:// address (with its scheme: http://127.0.0.1:8086?)",
        ),
        (options.URL, "ftp://influx", "--it ftp://influx: expected an http:// or https:// address"),
        (options.URL, "in the cellar", "--it in the cellar: expected an http:// or https:// address"),
        (options.URL, "influx:99999", "--it influx:99999: expected an http:// or https:// address"),
        (options.URL, "", '--it "": expected an http:// or https:// address'),
        (options.URL, "http://a\x1b[2J", "--it 'http://a\\x1b[2J': expected an http:// or https:// address"),
        (options.SHARD, "a b",
            "--it a b: expected a shard of letters, digits, - and _, at most 16, or one of a backfill, once-NAME"),
        (options.LISTEN_OR_OFF, "9105", "--it 9105: expected an address and port such as 127.0.0.1:9105, or off"),
        (options.TIME_ZONE, "Europe/Amsterdan",
            "--it Europe/Amsterdan: expected a time zone such as Europe/Amsterdam (did you mean Europe/Amsterdam?)"),
        (options.OutputFile(), "no/x.csv",
            "--it no/x.csv: there is no folder no (make it, or name a file elsewhere)"),
    ],
)  # fmt: skip
def test_what_the_key_refuses_is_told_in_one_line(kind: click.ParamType[object], text: str, line: str) -> None:
    with pytest.raises(UserError) as raised:
        taken(kind, text)
    assert raised.value.lines() == [line]


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(UserError) as raised:
        taken(options.URL, "http://user:geheim@influx")
    assert "geheim" not in " ".join(raised.value.lines())
    assert raised.value.message.startswith("--it a URL with credentials: expected an address without user and password")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("ingest", "--influx-url", "127.0.0.1"), "--influx-url 127.0.0.1: expected an http:// or https:// address"),
        (("ingest", "--kafka", "--influx-url", "influx"), "--influx-url influx: expected an http:// or https://"),
        (("ingest", "--database", "flow data"), "--database flow data: expected a database name of letters"),
        (("ingest", "--shard", "a/b"), "--shard a/b: expected a shard of letters"),
        (("ingest", "--metrics-listen", "9105"), "--metrics-listen 9105: expected an address and port"),
        (("ingest", "--time-zone", "Nowhere"), "--time-zone Nowhere: expected a time zone"),
        (("relay", "--id", "a/b"), "--id a/b: expected a name of letters"),
        (("relay", "--metrics-listen", ":9105"), "--metrics-listen :9105: expected an address and port"),
        (("relay", "--time-zone", "Nowhere"), "--time-zone Nowhere: expected a time zone"),
    ],
)
def test_who_would_wait_for_ever_is_told_at_once(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("cluster: lab\ngroups: {training: {role: training, prefixes: [10.20.0.0/16]}}\n")
    command, *rest = arguments
    result = CliRunner().invoke(main, [command, "-c", str(config), *rest])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1


def test_off_means_that_nothing_listens_as_it_does_in_the_file() -> None:
    asked = _as_asked(CLUSTER, url=None, database=None, shard=None, listen="off")
    assert CLUSTER.bridge.metrics_listen
    assert asked.bridge.metrics_listen is None


def test_what_is_not_asked_for_stays_as_the_file_says() -> None:
    assert _as_asked(CLUSTER, url=None, database=None, shard=None, listen=None) == CLUSTER
