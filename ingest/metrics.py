"""``/metrics`` for Prometheus and ``/healthz`` for whoever restarts us, on an address of the user's choice."""

import threading
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.errors import UserError
from cluster.model import BridgeSettings
from ingest.counters import Counters
from ingest.http_server import GuardedHandler, GuardedServer, bears_token, cannot_listen, check_token
from ingest.store import read_secret

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


class MetricsServer:
    """An HTTP server in a thread of its own.

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
                if path == "/metrics" and not self._may_see():
                    self._answer(401, b"expected the header Authorization: Bearer TOKEN\n", "text/plain")
                elif path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif path == "/healthz":
                    trouble = health()
                    self._answer(503 if trouble else 200, (trouble or "ok").encode() + b"\n", "text/plain")
                else:
                    self._answer(404, b"try /metrics or /healthz\n", "text/plain")

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _may_see(self) -> bool:
                return not token or bears_token(self.headers.get("Authorization", ""), token.encode())

        try:
            self._server = GuardedServer(listen, Handler, most=_MOST_CONNECTIONS)
        except (OSError, ValueError, OverflowError) as error:
            raise cannot_listen(place, listen, error) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
