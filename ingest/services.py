"""Which service a conversation belongs to, and which side opened it: by port alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cluster.model import Service
from cluster.schema import OTHER

_PORTS = 1 << 16
_PROTOCOLS = 256

PROTOCOL_NAMES = {
    1: "icmp",
    2: "igmp",
    4: "ipip",
    6: "tcp",
    17: "udp",
    41: "ipv6",
    46: "rsvp",
    47: "gre",
    50: "esp",
    51: "ah",
    58: "ipv6-icmp",
    88: "eigrp",
    89: "ospf",
    103: "pim",
    112: "vrrp",
    115: "l2tp",
    132: "sctp",
}
"""Names of the protocol tag; any other protocol is its number."""


def protocol_names() -> list[str]:
    """Return the tag value of each IP protocol number, and ``unknown`` at 256 for records that name none."""
    return [*(PROTOCOL_NAMES.get(number, str(number)) for number in range(_PROTOCOLS)), "unknown"]


class ServiceBook:
    """Ports to services.

    Attributes:
        names: service code -> name; code 0 is OTHER.
    """

    def __init__(self, services: Sequence[Service]) -> None:
        self.names: list[str] = [OTHER]
        self._codes = np.zeros((_PROTOCOLS + 1, _PORTS), np.uint16)
        for service in services:
            if service.name not in self.names:
                self.names.append(service.name)
            code = self.names.index(service.name)
            for protocol in service.protocols:
                self._codes[protocol, list(service.ports)] = code
        self._flat = self._codes.reshape(-1)

    def resolve(
        self, protocol: npt.NDArray[np.int64], src_port: npt.NDArray[np.int64], dst_port: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:
        """Return the service code of each record, and whether the destination opened the conversation.

        The server is the side whose port belongs to a service; if both or neither do, the side with the lower port.
        """
        base = protocol * _PORTS
        of_dst, of_src = self._flat[base + dst_port], self._flat[base + src_port]
        src_serves = np.where((of_src > 0) == (of_dst > 0), src_port < dst_port, of_src > 0)
        return np.where(src_serves, of_src, of_dst), src_serves
