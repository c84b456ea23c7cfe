"""The way to InfluxDB through a proxy, as the environment names one."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster.model import StoreSettings
from store.influx import Store


class _Proxy(BaseHTTPRequestHandler):
    """Answers as an InfluxDB would, and notes what it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(204)
        self.send_header("X-Influxdb-Version", "1.8.10")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy() -> Iterator[HTTPServer]:
    handler = type("Proxy", (_Proxy,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, proxy: HTTPServer) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
    return monkeypatch


@pytest.mark.usefixtures("environment")
def test_a_store_is_asked_through_the_proxy_of_the_environment(proxy: HTTPServer) -> None:
    store = Store(StoreSettings(url="http://influxdb.example:8086"))
    assert store.version() == "1.8.10"
    assert proxy.RequestHandlerClass.asked == ["http://influxdb.example:8086/ping"]  # type: ignore[attr-defined]
    store.close()


def test_a_store_that_no_proxy_names_is_asked_itself(environment: pytest.MonkeyPatch, proxy: HTTPServer) -> None:
    environment.setenv("no_proxy", "127.0.0.1")
    environment.setenv("http_proxy", "http://127.0.0.1:1")
    store = Store(StoreSettings(url=f"http://127.0.0.1:{proxy.server_port}"))
    assert store.version() == "1.8.10"
    assert proxy.RequestHandlerClass.asked == ["/ping"]  # type: ignore[attr-defined]
    store.close()
