"""``/metrics`` for Prometheus and ``/healthz`` for supervisors, on a configured address."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.errors import ClusterflowError, UserError
from app.http_server import GuardedHandler, GuardedServer, bears_token, check_token, may_enter
from cluster.model import BridgeSettings
from ingest.counters import Counters
from store.influx import read_secret

_MOST_CONNECTIONS = 32

Health = Callable[[], str]
"""Returns why the process is not well; empty if it is."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a page answers; `name` is that of a file to save."""

    body: bytes
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    name: str = ""


Page = Callable[[str], Document]
"""Returns a document for what stands behind its prefix in a request: path and query. UserError: no such thing."""


Sources = Callable[[], Mapping[str, Counters]]
"""Returns the counters of each shard; those of none have an empty name."""


def metrics_token(settings: BridgeSettings) -> str:
    """Return what /metrics asks for; empty if nothing is set; UserError if what is set is not there, or no token."""
    token = read_secret(settings.metrics_token).strip()
    check_token(token, "bridge.metrics_token")
    return token


class _CountersCollector(Collector):
    """Shows the pipeline's counters as they are at the moment of the scrape."""

    def __init__(self, counters: Sources) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        totals = CounterMetricFamily("clusterflow_pipeline", "Running totals.", labels=["stage", "reason", "shard"])
        sources = self._counters()
        for shard, counters in sources.items():
            for (stage, reason), value in counters.totals():
                totals.add_metric([stage, reason, shard], value)
        yield totals
        readings = GaugeMetricFamily(
            "clusterflow_pipeline_value", "Latest readings.", labels=["stage", "reason", "shard"]
        )
        for shard, counters in sources.items():
            for (stage, reason), value in counters.readings():
                readings.add_metric([stage, reason, shard], value)
        yield readings


class _Handler(GuardedHandler):
    """Answers; the four are set for each server."""

    registry: CollectorRegistry
    health: Health
    token: bytes
    pages: Mapping[str, Page]

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        """Answer a scrape, a supervisor or a browser."""
        path = self.path.partition("?")[0]
        prefix = next((one for one in self.pages if path.startswith(one)), "")
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            trouble = self.health()
            self.answer(503 if trouble else 200, (trouble or "ok").encode() + b"\n")
        elif prefix:
            self._page(self.pages[prefix], self.path.removeprefix(prefix))
        else:
            self.answer(404, b"try /metrics or /healthz\n")

    def _metrics(self) -> None:
        if self.token and not bears_token(self.headers.get("Authorization", ""), self.token):
            self.answer(401, b"expected the header Authorization: Bearer TOKEN\n")
        else:
            self.answer(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)

    def _page(self, page: Page, asked: str) -> None:
        # Grafana, which asks for pictures, has a header of its own for its token.
        given = self.headers.get("Authorization") or f"Bearer {self.headers.get('X-Auth-Token', '')}"
        if self.token and not may_enter(given, self.token):
            challenge = ("WWW-Authenticate", 'Basic realm="clusterflow: any user, the token as password"')
            self.answer(401, b"expected the token of bridge.metrics_token\n", headers=[challenge])
            return
        try:
            found = page(asked)
        except UserError as error:
            self.answer(404, ("\n".join(error.lines()) + "\n").encode())
        except ClusterflowError as error:
            self.answer(503, ("\n".join(error.lines()) + "\n").encode())
        else:
            safe = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")]
            if found.name:
                safe.append(("Content-Disposition", f'attachment; filename="{found.name}"'))
            self.answer(found.status, found.body, found.content_type, safe)


class MetricsServer(GuardedServer):
    """Answers at an address of the user's choice.

    Args:
        listen: ``host:port``; port 0 takes a free one.
        counters: asked at every scrape for what to show.
        health: asked at every ``/healthz``: 200 ``ok`` or 503 with its words.
        token: what ``/metrics`` asks for; empty: nothing. ``/healthz`` answers everybody.
        place: the key of cluster.yaml that names the address.
        pages: by the prefix of their paths; they ask for the same token, which a browser gives as a password.

    Raises:
        ClusterflowError: nobody can listen there; a UserError where nobody ever will.
    """

    def __init__(
        self,
        listen: str,
        counters: Sources,
        health: Health,
        token: str = "",
        *,
        place: str = "bridge.metrics_listen",
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_CountersCollector(counters))

        given = {"registry": registry, "health": staticmethod(health), "token": token.encode(), "pages": pages or {}}
        super().__init__(listen, type("Handler", (_Handler,), given), place=place, most=_MOST_CONNECTIONS)


def serve_metrics(
    cleanup: ExitStack,
    settings: BridgeSettings,
    listen: str | None,
    counters: Sources,
    health: Health,
    *,
    place: str = "bridge.metrics_listen",
    pages: Mapping[str, Page] | None = None,
) -> None:
    """Answer until `cleanup`; not at all without an address.

    Args:
        cleanup: stops it.
        settings: have the token.
        listen: where.
        counters: as for `MetricsServer`.
        health: the same.
        place: the same.
        pages: the same.
    """
    if listen:
        server = MetricsServer(listen, counters, health, metrics_token(settings), place=place, pages=pages)
        server.start()
        cleanup.callback(server.stop)
