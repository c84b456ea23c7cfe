"""Marked flows among the load: how long it takes from a record to a query that finds it."""

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from statistics import quantiles

from app.errors import StoreError
from cluster.model import Cluster, Exporter, Group, Node, NodeAddress, Role
from simulate.packets.flows import UDP
from simulate.packets.netflow import FlowFormat, NetflowEncoder, RecordColumns
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, total

GROUP = "canary"
_ADDRESSES = ip_address("192.0.2.249"), ip_address("192.0.2.250")
_PREFIX = ip_network("192.0.2.248/30")
_SPEAKER = "127.0.0.1"
_DOMAIN = 0x0CA7
_EVERY, _POLL = 1.0, 0.2
_OCTETS = 1000


def with_probe(cluster: Cluster) -> Cluster:
    """Return the cluster with a group and an exporter of the probe's own."""
    group = Group(GROUP, "Probe", Role.CANARY, (_PREFIX,))
    node = Node("probe", GROUP, tuple(NodeAddress(one, None) for one in _ADDRESSES))
    speaker = Exporter("probe", ip_address(_SPEAKER), watched=False)
    return replace(
        cluster, groups=(*cluster.groups, group), nodes=(*cluster.nodes, node), exporters=(*cluster.exporters, speaker)
    )


class Probe:
    """Sends a flow a second and looks for it; in a thread of its own, between `start` and `stop`.

    Args:
        store: asked for it.
        port: the collector's.
    """

    def __init__(self, store: Store, port: int) -> None:
        self._store = store
        self._port = port
        self._sent: list[float] = []
        self._seen: list[float] = []
        self._silenced = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    @property
    def waiting(self) -> int:
        """Probes that no query has found yet."""
        return len(self._sent) - len(self._seen)

    @property
    def sent(self) -> int:
        """Probes sent."""
        return len(self._sent)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def silence(self) -> None:
        """Send no more, but go on looking."""
        self._silenced.set()

    def stop(self) -> None:
        """End."""
        self._stopped.set()
        self._thread.join()

    def delays(self) -> list[float]:
        """Return the seconds from sending to the first query that found it; probes never found are left out."""
        return [seen - sent for sent, seen in zip(self._sent, self._seen, strict=False)]

    def _run(self) -> None:
        encoder = NetflowEncoder(FlowFormat.IPFIX, _DOMAIN, int(time.time()) * 1000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
            speaker.bind((_SPEAKER, 0))
            speaker.connect(("127.0.0.1", self._port))
            speaker.send(encoder.hello(int(time.time() * 1000)))
            due = time.monotonic() + _EVERY
            while not self._stopped.wait(_POLL):
                if time.monotonic() >= due and not self._silenced.is_set():
                    due += _EVERY
                    moment = time.time()
                    packed = encoder.pack(_record(int(moment * 1000)))
                    speaker.send(encoder.message(packed, 0, 1, int(moment * 1000)))
                    self._sent.append(moment)
                self._look()

    def _look(self) -> None:
        """Flows arrive in the order of their sending: how many there are tells which."""
        if len(self._seen) == len(self._sent):
            return
        begin = int(self._sent[0]) - 10
        flows = Select(schema.TRAFFIC, schema.RAW).take(total(schema.FLOWS)).where(is_in(schema.SRC_GROUP, [GROUP]))
        try:
            counted = [*self._store.rows(flows.between(begin))]
        except StoreError:
            return
        now = time.time()
        found = sum(int(number or 0) for _, number in counted)
        self._seen += [now] * (min(found, len(self._sent)) - len(self._seen))


def percentiles(delays: Sequence[float]) -> dict[str, float | None]:
    """Return median, 95th percentile and maximum of delays, seconds."""
    if len(delays) < 2:
        return {"p50": None, "p95": None, "max": None}
    cuts = quantiles(delays, n=20, method="inclusive")
    return {"p50": round(cuts[9], 2), "p95": round(cuts[18], 2), "max": round(max(delays), 2)}


def _record(moment: int) -> RecordColumns:
    return RecordColumns.alike(
        [(_ADDRESSES[0], _ADDRESSES[1])], moment, octets=_OCTETS, packets=1, src_port=9, dst_port=9, proto=UDP
    )
