"""Writes misp-event.json: what PyMISP 2.5 makes of an event with addresses of every kind; uuids differ from run to run.

Run in an environment of its own that has pymisp: ``python make_misp_event.py > misp-event.json``.
"""

import json
import sys

from pymisp import MISPEvent, MISPObject

event = MISPEvent()
event.info = "Staging servers of a model thief"
event.uuid = "5f0c6a3e-0d3b-4b83-9d4e-3a4a6d1c9a01"
event.date = "2026-05-01"
event.timestamp = 1_777_636_800
event.add_tag('misp:confidence-level="usually-confident"')


def add(kind: str, value: str, **more: object) -> object:
    """Add an attribute with a time that does not change from run to run."""
    return event.add_attribute(kind, value, timestamp=1_777_636_800, **more)


add("ip-dst", "203.0.113.9", to_ids=True, comment="command and control")
add("ip-dst", "198.51.100.0/24", to_ids=True, first_seen="2026-04-20T08:00:00+00:00")
add("ip-src", "2001:db8:66::1", to_ids=True)
add("ip-dst|port", "203.0.113.10|4443", to_ids=True)
add("ip-src", "192.0.2.200", to_ids=False, comment="a victim")
deleted = add("ip-dst", "192.0.2.201", to_ids=True)
deleted.delete()
sure = add("ip-dst", "192.0.2.77", to_ids=True)
sure.add_tag('misp:confidence-level="completely-confident"')
add("domain", "drop.example", to_ids=True)
pair = MISPObject("domain-ip")
pair.uuid = "5f0c6a3e-0d3b-4b83-9d4e-3a4a6d1c9a02"
pair.add_attribute("ip", "203.0.113.44", to_ids=True, timestamp=1_777_636_800)
pair.add_attribute("domain", "drop.example", to_ids=True, timestamp=1_777_636_800)
event.add_object(pair)

document = json.loads(event.to_json())
sys.stdout.write(json.dumps({"Event": document}, indent=1, sort_keys=True) + "\n")
