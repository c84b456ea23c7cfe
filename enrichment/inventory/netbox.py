"""Machines from NetBox: devices and virtual machines by their IP addresses, from its REST API or an export as CSV."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from app.csv_rows import CsvError, csv_rows
from app.errors import ClusterflowError
from cluster.model import Machine, NetboxInventory
from enrichment.inventory.reaching import MOST, Query, address_of, file_text, get_json, token_of

_PAGE = 500
_GONE = {"deprecated", "decommissioning", "reserved"}
"""States of addresses that no machine answers at."""
_NAMES = ("device", "virtual machine", "virtual_machine", "parent", "name")
_ADDRESSES = (
    "address",
    "ip address",
    "primary_ip4",
    "primary_ip6",
    "ipv4 address",
    "ipv6 address",
    "primary ip",
    "oob_ip",
)
"""Columns of exports, lower case: of addresses and of devices, of its tables and in its import format."""

Object = Mapping[str, Any]


def ask(one: NetboxInventory) -> list[Machine]:
    """Return a machine an address."""
    return list(_of_csv(file_text(one.file)) if one.file else _of_api(one))


def _of_api(one: NetboxInventory) -> Iterator[Machine]:
    # By their ids: two sites may each have a gpu-01.
    devices = {
        device["id"]: (device["name"], str((device.get("role") or device.get("device_role") or {}).get("slug") or ""))
        for device in _listed(one, "dcim/devices", parse_qs(one.query.lstrip("?")))
        if device.get("name")
    }
    for entry in _listed(one, "ipam/ip-addresses", {}):
        port = entry.get("assigned_object") or {}
        device, guest = port.get("device") or {}, port.get("virtual_machine") or {}
        address = address_of(entry.get("address"))
        if address is None or (entry.get("status") or {}).get("value") in _GONE:
            continue
        if known := devices.get(device.get("id")):
            name, role = known
            yield Machine(name, (address,), role)
        elif guest.get("name") and not one.query:
            yield Machine(guest["name"], (address,), "virtual-machine")


def _listed(one: NetboxInventory, place: str, query: Query) -> Iterator[Object]:
    """Yield all pages. The address of the next one is ours: NetBox behind a proxy may tell another host's."""
    token = token_of(one, one.token)
    # Tokens of version 2 are borne another way.
    headers = {"Authorization": f"{'Bearer' if token.startswith('nbt_') else 'Token'} {token}"} if token else {}
    url, seen, last = f"{(one.url or '').rstrip('/')}/api/{place}/", 0, None
    while True:
        # Each page begins with the last object of the one before: where that is another by now, one was deleted
        # meanwhile, and all behind it moved up. One of them would be in no page.
        asked: Query = {**query, "limit": _PAGE, "offset": max(seen - 1, 0), "ordering": "id"}
        page = get_json(url, headers=headers, ca_file=one.ca_file, timeout=one.timeout, query=asked)
        if not isinstance(page, dict) or not isinstance(page.get("results"), list):
            raise ClusterflowError(f"{url}: answers something that is no list")
        found = page["results"]
        if seen and (not found or found[0].get("id") != last):
            raise ClusterflowError(f"{url}: it changed while it was read")
        fresh = found[1:] if seen else found
        yield from fresh
        # A server may allow smaller pages than are asked for.
        if not page.get("next") or not fresh:
            return
        seen, last = seen + len(fresh), fresh[-1].get("id")
        if seen > MOST:
            raise ClusterflowError(f"{url}: more than {MOST:,} objects", "filter them by query")


def _of_csv(text: str) -> Iterator[Machine]:
    try:
        rows = [cells for _, cells in csv_rows(text)]
    except CsvError as fault:
        raise ClusterflowError(f"line {fault.line}: {fault.wrong}: expected CSV", fault.hint) from fault
    header = [name.lower() for name in rows[0]] if rows else []
    if not {*header} & {*_NAMES} or not {*header} & {*_ADDRESSES}:
        raise ClusterflowError(f"{', '.join(header)[:80]}: expected columns of NetBox: name or device, and an address")
    for cells in rows[1:]:
        row = dict(zip(header, cells, strict=False))
        name = next((row[column] for column in _NAMES if row.get(column)), "")
        addresses = tuple(found for column in _ADDRESSES if (found := address_of(row.get(column))) is not None)
        if name and addresses and row.get("status", "").lower() not in _GONE:
            # The role of an address, such as VIP, is none of a device.
            yield Machine(name, addresses, row.get("role", "") if "name" in header else "")
