"""What a file of the archive holds: one table of columns, which users read with tools of their own, too."""

import polars as pl

VERSION = 1
"""Of the columns and of the manifest. A new column raises it; a column never changes its meaning."""

START, END = "start", "end"
EXPORTER, IN_INTERFACE, OUT_INTERFACE = "exporter", "in_interface", "out_interface"
SRC, DST, SRC_PORT, DST_PORT = "src", "dst", "src_port", "dst_port"
SRC_NODE, DST_NODE, SRC_GROUP, DST_GROUP = "src_node", "dst_node", "src_group", "dst_group"
PROTOCOL, TCP_FLAGS, SERVICE = "protocol", "tcp_flags", "service"
BYTES, PACKETS, FLOWS, RATE = "bytes", "packets", "flows", "rate"
COUNTED, RANK = "counted", "rank"

COLUMNS: dict[str, tuple[pl.DataType, str]] = {
    START: (pl.Int64(), "first packet, epoch seconds"),
    END: (pl.Int64(), "last packet, epoch seconds: a record belongs to the hour in which it ended"),
    EXPORTER: (pl.String(), "name in cluster.yaml, or its address"),
    IN_INTERFACE: (pl.String(), "interface it entered by; empty where the record names none"),
    OUT_INTERFACE: (pl.String(), "interface it left by"),
    SRC: (pl.String(), "source address"),
    DST: (pl.String(), "destination address"),
    SRC_PORT: (pl.UInt16(), "0 where none was exported"),
    DST_PORT: (pl.UInt16(), "0 where none was exported"),
    SRC_NODE: (pl.String(), "node of the inventory, or the address"),
    DST_NODE: (pl.String(), "node of the inventory, or the address"),
    SRC_GROUP: (pl.String(), "group of cluster.yaml, external or local"),
    DST_GROUP: (pl.String(), "group of cluster.yaml, external or local"),
    PROTOCOL: (pl.String(), "tcp, udp, ...; else the number"),
    TCP_FLAGS: (pl.UInt16(), "all flags seen, as the bits of the TCP header"),
    SERVICE: (pl.String(), "name of the server's port in cluster.yaml, else other"),
    BYTES: (pl.Int64(), "scaled by `rate`"),
    PACKETS: (pl.Int64(), "scaled by `rate`"),
    FLOWS: (pl.Int64(), "records that this row stands for"),
    RATE: (pl.Int64(), "sampling rate applied; 1: unsampled"),
    COUNTED: (pl.Boolean(), "false: a duplicate that another exporter counts; leave it out of sums"),
    RANK: (
        pl.Int64(),
        "0: counts whatever others saw. Else: the exporter with the smallest counts; `counted` tells after the hour",
    ),
}
"""Name: type, meaning."""

EXPORTERS = 1 << 20
"""RANK modulo this tells the exporter: by another rate, one's own records have another rank."""

SCHEMA = {name: kind for name, (kind, _) in COLUMNS.items()}
