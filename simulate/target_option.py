"""Types of options of this package's commands."""

import click

from simulate.packets.udp import Target

_PORTS = 65_536


class TargetType(click.ParamType[Target]):
    """Where a collector listens: HOST:PORT."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the target."""
        if isinstance(value, Target):
            return value
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < _PORTS:
            self.fail(f"{value}: expected HOST:PORT, such as 127.0.0.1:2055", param, ctx)
        return Target(host.strip("[]"), int(port))
