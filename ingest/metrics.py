"""``/metrics`` for Prometheus and ``/healthz`` for supervisors, on a configured address."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.errors import UserError
from app.http_server import GuardedHandler, GuardedServer, bears_token, check_token
from cluster.model import BridgeSettings
from ingest.counters import Counters
from store.influx import read_secret

_MOST_CONNECTIONS = 32

Health = Callable[[], str]
"""Returns why the process is not well; empty if it is."""


Sources = Callable[[], Mapping[str, Counters]]
"""Returns the counters of each shard; those of none have an empty name."""


def metrics_token(settings: BridgeSettings) -> str:
    """Return what /metrics asks for; empty if nothing is set; UserError if what is set is not there, or no token."""
    token = read_secret(settings.metrics_token).strip()
    if settings.metrics_token is not None and not token:
        raise UserError("bridge.metrics_token: the token is empty", "put one there, or leave the key out")
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


class MetricsServer(GuardedServer):
    """Answers at an address of the user's choice.

    Args:
        listen: ``host:port``; port 0 takes a free one.
        counters: asked at every scrape for what to show.
        health: asked at every ``/healthz``: 200 ``ok`` or 503 with its words.
        token: what ``/metrics`` asks for; empty: nothing. ``/healthz`` answers everybody.
        place: the key of cluster.yaml that names the address.

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
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_CountersCollector(counters))

        class Handler(GuardedHandler):
            def do_GET(self) -> None:  # noqa: N802 - http.server's name
                path = self.path.partition("?")[0]
                if (
                    path == "/metrics"
                    and token
                    and not bears_token(self.headers.get("Authorization", ""), token.encode())
                ):
                    self.answer(401, b"expected the header Authorization: Bearer TOKEN\n")
                elif path == "/metrics":
                    self.answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif path == "/healthz":
                    trouble = health()
                    self.answer(503 if trouble else 200, (trouble or "ok").encode() + b"\n")
                else:
                    self.answer(404, b"try /metrics or /healthz\n")

        super().__init__(listen, Handler, place=place, most=_MOST_CONNECTIONS)


def serve_metrics(
    cleanup: ExitStack,
    settings: BridgeSettings,
    listen: str | None,
    counters: Sources,
    health: Health,
    *,
    place: str = "bridge.metrics_listen",
) -> None:
    """Answer until `cleanup`; not at all without an address.

    Args:
        cleanup: stops it.
        settings: have the token.
        listen: where.
        counters: as for `MetricsServer`.
        health: the same.
        place: the same.
    """
    if listen:
        server = MetricsServer(listen, counters, health, metrics_token(settings), place=place)
        server.start()
        cleanup.callback(server.stop)
