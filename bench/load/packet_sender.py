"""A process that sends flow records at a steady rate, cheaply, and knows exactly what it sent.

It makes its datagrams (`packet_pool`), says that it is ready, waits for a line on its standard input, sends,
and says what it sent; both as JSON lines. Run as ``python -m bench.load.packet_sender``.
"""

import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import click

from app.errors import ClusterflowError, UserError
from bench.load.packet_pool import PacketPool, Sums
from cluster.cli import cluster_option
from cluster.model import Cluster, ExportProtocol

POOL = 400_000
_TICK = 0.005
_BURST = 0.1
"""Seconds of records that may be made good at once: one that was off the processor must not flood the collector."""
_SEND_BUFFER = 4 << 20
_HOST = "127.0.0.1"


class PacketSender:
    """Sends a pool's datagrams, each from its exporter's address. Use it as a context manager.

    Args:
        pool: what is sent.
        port: UDP port of the collector.

    Raises:
        UserError: this machine cannot send from an exporter's address.
    """

    def __init__(self, pool: PacketPool, port: int) -> None:
        self._pool = pool
        self._sockets: list[socket.socket] = []
        for address in pool.exporters:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._sockets.append(opened)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            try:
                opened.bind((address, 0))
                opened.connect((_HOST, port))
            except OSError as error:
                self.close()
                raise UserError(
                    f"cannot send from {address} to {_HOST}:{port}: {error.strerror}",
                    "give simulated exporters addresses in 127.0.0.0/8",
                ) from error
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        while self._sockets:
            self._sockets.pop().close()

    def greet(self) -> None:
        """Send templates and options."""
        for exporter, message in self._pool.greetings(time.time()):
            self._sockets[exporter].send(message)

    def run(self, rate: float, seconds: float, is_over: Callable[[], bool] = lambda: False) -> float:
        """Send records at a rate; returns the seconds it took. `sent` counts datagrams, over all calls."""
        began = last = time.monotonic()
        budget = 0.0
        while (now := time.monotonic()) - began < seconds and not is_over():
            budget = min(budget + (now - last) * rate, _BURST * rate)
            last = now
            budget -= self._send(budget)
            time.sleep(max(0.0, _TICK - (time.monotonic() - now)))
        return time.monotonic() - began

    def _send(self, budget: float) -> int:
        """Send whole datagrams of so many records, about; returns how many records that were."""
        pool, records = self._pool, 0
        while budget - records >= 1:
            rounds, first = divmod(self.sent, len(pool))
            before = pool.before
            last = int(before.searchsorted(before[first] + budget - records, side="right")) - 1
            if last <= first:
                break
            pool.stamp(rounds, first, last, time.time())
            sockets = [self._sockets[number] for number in pool.exporter[first:last].tolist()]
            for opened, view in zip(sockets, pool.views[first:last], strict=True):
                try:
                    opened.send(view)
                except ConnectionRefusedError:
                    # Tells of the one before, which came to a closed port: a switch goes on, too.
                    opened.send(view)
            self.sent += last - first
            records += int(before[last] - before[first])
            if last < len(pool):
                break
        return records


def document(sums: Sums, seconds: float, cpu: float) -> dict[str, Any]:
    """Return what was sent, as plain data."""
    return {
        "records": sums.records,
        "datagrams": sums.datagrams,
        "bytes": sums.bytes,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "pairs": [[src, dst, *values] for (src, dst), values in sums.pairs.items()],
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@cluster_option
@click.option("--rate", type=click.IntRange(min=1), required=True, help="Flow records a second.")
@click.option("--for", "seconds", type=click.FloatRange(min=0), required=True, help="Seconds.")
@click.option("--pool", default=POOL, show_default=True, help="Flow records made beforehand.")
@click.option("--port", type=int, help="Of the collector. Default: collector.netflow_port.")
def send(cluster: Cluster, rate: int, seconds: float, pool: int, port: int | None) -> None:
    """Send flow records of the cluster's NetFlow and IPFIX exporters to this machine's collector."""
    made = PacketPool(speaking_netflow(cluster), pool)
    with PacketSender(made, port or cluster.collector.netflow_port) as sender:
        click.echo(json.dumps({"ready": len(made), "records": int(made.before[-1]), "formats": made.formats()}))
        sys.stdin.readline()
        sender.greet()
        before = time.process_time()
        took = sender.run(rate, seconds)
        click.echo(json.dumps(document(made.sums(sender.sent), took, time.process_time() - before)))


def speaking_netflow(cluster: Cluster) -> Cluster:
    """Return the cluster without its sFlow exporters; ClusterflowError if none is left."""
    left = tuple(one for one in cluster.exporters if one.protocol is ExportProtocol.NETFLOW)
    if not left:
        raise ClusterflowError("exporters: none speaks NetFlow or IPFIX", "add one to cluster.yaml")
    return replace(cluster, exporters=left)


if __name__ == "__main__":
    send()
