"""The flow archive in a browser: what the page says is what the archive holds, whatever is asked."""

import io
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
import requests
from playwright.sync_api import sync_playwright
from test_archive import T0, an_archive, rows, saved

from archive import aside
from archive.query import Filter
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster
from dashboards import panels
from delivery.flow_pages import FlowPages
from ingest.metrics import MetricsServer
from reporting.flows_page import Asked, _chart
from reporting.words import Wording

pytestmark = pytest.mark.thorough

EVIL = '"><script>alert(1)</script>'
CLUSTER = """cluster: lab
site: {time_zone: Asia/Tokyo}
groups: {training: {role: training, prefixes: [10.1.0.0/16]}}
exporters: {leaf: {address: 192.0.2.1}, torn: {address: 192.0.2.3}}
"""
PERIOD = {"from": "2026-09-21T22:00", "to": "2026-09-22T04:00"}
TOKEN = "a token of ours"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    tmp_path = tmp_path_factory.mktemp("pages")
    archive = an_archive(tmp_path / "archive")
    archive.take(rows(100, 200, 300))
    archive.take(rows(4000, dst="198.51.100.9", dst_node="198.51.100.9", dst_port=4444))
    archive.take(rows(7, in_interface=EVIL, hour=1))
    archive.take(rows(50, exporter="spine", counted=False))
    saved(archive)
    archive.close()
    config = tmp_path / "cluster.yaml"
    config.write_text(f"{CLUSTER}archive: {{folder: {tmp_path / 'archive'}}}\n")
    return load_cluster(config)


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    server = MetricsServer("127.0.0.1:0", dict, lambda: "", TOKEN, pages={"/flows": FlowPages(cluster).page})
    server.start()
    yield f"http://127.0.0.1:{server.port}/flows"
    server.stop()


def get(url: str, **words: str) -> requests.Response:
    return requests.get(url, params=PERIOD | words, auth=("any", TOKEN), timeout=120)


def test_sum_share_gaps_chart_and_matrix(url: str) -> None:
    answer = get(url, port="4444")
    assert answer.status_code == 200
    text = unescape(answer.text)
    assert "(4,000 bytes), 86.8% of all traffic (4.61 kB)" in text
    assert "Lacks: exporters without a record: torn" in text
    assert "2026-09-21 22:00 to 2026-09-22 04:00 (6h), times in Asia/Tokyo" in text
    assert '<td class="number bar" style="--share:100.0%">4,000</td>' in text
    assert re.search(r"<title>2026-09-21 23:05:00 gpu-4000: 4 kB</title>", text)
    assert re.search(r'<td class="number" style="--share:80%"><a [^>]*src=training[^>]*dst=external[^>]*>4 kB', text)
    everything = unescape(get(url).text)
    assert "(4,607 bytes), 100.0% of all traffic" in everything
    assert "50 bytes are left out" in everything


def test_bars_of_a_service_called_other_are_not_those_of_the_rest(cluster: Cluster) -> None:
    """All ports without a name are one service, often the largest."""
    services = {"other": 100, **{f"s{number}": 10 for number in range(9)}}
    frame = pl.DataFrame({"_bin": 0, "_split": list(services), "bytes": list(services.values())})
    asked = Asked({}, Filter(0, 60), ("service",), cluster.site.time_zone)
    text = "".join(_chart(cluster, asked, frame, Wording.of(cluster)))
    bars = dict(re.findall(r"<title>\S+ \S+ (.*?): (\d+) B</title>", text))
    assert bars == {"other": "100", **{f"s{number}": "10" for number in range(5)}, "4 others": "40"}


def test_every_link_of_the_page_asks_what_it_says(url: str) -> None:
    text = unescape(get(url, src="10.1.0.0/16", **{"from": str(T0 * 1000), "to": str((T0 + 7200) * 1000)}).text)
    links = [parse_qs(urlsplit(one).query) for one in re.findall(r'href="(\?[^"]*)"', text)]
    cell = next(one for one in links if one.get("dst") == ["198.51.100.9"])
    assert cell == {"src": ["10.1.0.0/16"], "dst": ["198.51.100.9"],
                    "from": ["2026-09-21T23:00:00+09:00"], "to": ["2026-09-22T01:00:00+09:00"]}  # fmt: skip
    found = get(url, **{word: values[0] for word, values in cell.items()}, format="json").json()
    assert (found["from"], found["bytes"]) == (T0, 4000)
    group = next(one for one in links if one.get("src") == ["training"])
    assert get(url, **{word: values[0] for word, values in group.items()}, format="json").json()["bytes"] == 4607


def test_saved_files_hold_all_rows(url: str) -> None:
    asked = {"by": "src_node,dst_port", "top": "1"}
    sums = [4000, 300, 200, 100, 7]
    as_csv = get(url, format="csv", **asked)
    assert 'filename="flows.csv"' in as_csv.headers["Content-Disposition"]
    assert pl.read_csv(io.BytesIO(as_csv.content))["bytes"].to_list() == sums
    assert pl.read_parquet(io.BytesIO(get(url, format="parquet", **asked).content))["bytes"].to_list() == sums
    assert [row["bytes"] for row in get(url, format="json", **asked).json()["rows"]] == sums
    assert "1 of 5 rows" in get(url, **asked).text
    assert get(url, by="records", format="json").json()["bytes"] == sum(sums)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"group": "traning"}, "group traning: no such group (there are training"),
        ({"by": "colour"}, "by colour: no such column"),
        ({"by": "", "order": "colour"}, "order colour: not in the answer"),
        ({"port": "99999"}, "port 99999: expected a whole number from 0 to 65,535"),
        ({"port": "https"}, "port https: expected a whole number"),
        ({"top": "0"}, "top 0: expected a whole number from 1 to 1,000"),
        ({"from": "yesterday"}, "from yesterday: expected a time"),
        ({"from": "999999999999"}, "from 999999999999: expected a time"),
        ({"from": "2026-09-22T05:00"}, "the period is empty"),
        ({"address": "nowhere"}, "nowhere: expected an address"),
        ({"prefix": "10.0.0.0/99"}, "10.0.0.0/99: expected a prefix (such as 10.20.0.0/16)"),
        ({"job": "nobody"}, "job nobody: no such job"),
        ({"format": "xls"}, "format xls: expected csv, json, parquet"),
        ({"source": "x"}, "source: no such word"),
        ({EVIL: EVIL}, "no such word"),
        ({"src": EVIL, "port": "x"}, "port x: expected"),
    ],
)
def test_what_makes_no_sense_is_one_line_above_the_form_and_400(url: str, words: dict[str, str], told: str) -> None:
    answer = get(url, **words)
    assert answer.status_code == 400
    (line,) = re.findall(r'<p class="trouble"><b>(.*?)</b></p>', answer.text)
    assert told in unescape(line)
    assert "--" not in line
    assert "<script" not in answer.text
    assert '<form method="get">' in answer.text


def test_names_from_the_network_are_text(url: str) -> None:
    text = get(url, by="in_interface", src=EVIL + ",10.1.0.7", interface=EVIL).text
    assert "<script" not in text
    assert unescape(text).count(EVIL) >= 3
    found = get(url, interface=EVIL, format="json").json()
    assert found["bytes"] == 7


def test_the_token_of_metrics_holds_here_and_a_form_alone_asks_nothing(url: str) -> None:
    assert requests.get(url, timeout=60).status_code == 401
    assert requests.get(url, auth=("any", "wrong"), timeout=60).status_code == 401
    empty = requests.get(url, auth=("any", TOKEN), timeout=60)
    assert (empty.status_code, "figure" in empty.text.split("</style>")[1]) == (200, False)
    assert requests.get(f"{url}/else", auth=("any", TOKEN), timeout=60).status_code == 404
    assert "script-src 'none'" in unescape(empty.text)


def test_a_question_that_takes_too_much_is_ended_and_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "_MEMORY", 1 << 20)
    answer = get(url)
    assert answer.status_code == 400
    assert "takes more than 1 MiB of memory" in answer.text
    monkeypatch.setattr(aside, "_MEMORY", 1 << 40)
    monkeypatch.setattr(aside, "_SECONDS", 0.05)
    assert "no answer within" in get(url).text


def test_rows_of_boards_lead_there_only_where_people_reach_it() -> None:
    plain = parse_cluster(CLUSTER, "lab")
    linked = replace(plain, delivery=replace(plain.delivery, incident_url="https://flows.example.org"))
    columns = [panels.Column("src", "Source"), panels.Column("dst", "To"), panels.Column("bytes", "Bytes")]
    assert panels._with_flows(plain, columns) == columns
    source, destination, size = panels._with_flows(linked, columns)
    link = "https://flows.example.org/flows?src=${__data.fields.src}&dst=${__data.fields.dst}&from=${__from}&to=${__to}"
    assert [one.url for one in (*source.links, *destination.links)] == [link, link]
    assert size.links == ()
    older, *_ = panels._with_flows(linked, columns, begin="since")
    assert older.links[0].url == link.replace("${__from}", "${__data.fields.since.numeric}")
    job = panels._with_flows(linked, [panels.Column("job", "Job")])
    assert job[0].links[0].url == "https://flows.example.org/flows?job=${__data.fields.job}"


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium: apt-get install chromium")
def test_in_a_browser_somebody_asks_narrows_and_saves(url: str, tmp_path: Path) -> None:
    """Question, table, chart, matrix, file; nothing else is asked, the console is clean, and nothing sticks out."""
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(http_credentials={"username": "any", "password": TOKEN}).new_page()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.on("console", lambda said: wrong.append(said.text))
        page.on("requestfailed", lambda asked: wrong.append(asked.url) if "format=" not in asked.url else None)
        page.on("request", lambda asked: None if asked.url.startswith(url) else wrong.append(asked.url))
        page.goto(url)
        for word, text in PERIOD.items():
            page.fill(f"input[name={word}]", text)
        page.fill("input[name=src]", "training")
        page.click("button[type=submit]")
        assert "4.61 kB (4,607 bytes)" in page.inner_text("p.sum")
        assert page.locator("tbody tr").count() >= 5
        bars = [bar.bounding_box() for bar in page.locator("figure svg rect:has(title)").all()]
        assert max(bar["height"] for bar in bars if bar) > 50
        assert "4.61 kB" in page.inner_text("table.matrix td")
        page.screenshot(path=os.environ.get("CLUSTERFLOW_PICTURE", tmp_path / "flows.png"), full_page=True)
        for width in (1280, 700):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("tbody a:text-is('4444')")
        assert "4 kB (4,000 bytes)" in page.inner_text("p.sum")
        assert page.input_value("input[name=port]") == "4444"
        with page.expect_download() as found:
            page.click("nav a:text-is('CSV')")
        assert pl.read_csv(found.value.path())["bytes"].to_list() == [4000]
        page.fill("input[name=port]", "https")
        page.click("button[type=submit]")
        assert "port https: expected a whole number" in page.inner_text("p.trouble")
        browser.close()
    assert [one for one in wrong if "400" not in one] == []
