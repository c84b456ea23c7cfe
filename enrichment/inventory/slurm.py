"""Machines from Slurm: ``scontrol show node``, as lines or as JSON."""

import json
import re
import subprocess
from collections.abc import Iterator

from app.errors import ClusterflowError
from app.words import one_line
from cluster.model import Machine, SlurmInventory
from enrichment.inventory.reaching import file_text, resolved

_WORD = re.compile(r"(?:^|\s)(NodeName|NodeAddr|NodeHostName|Gres|Partitions)=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]{1,4})")


def ask(one: SlurmInventory) -> list[Machine]:
    """Return the nodes of the whole cluster, of whatever state: one that is down keeps its name."""
    text = file_text(one.file) if one.file else _run(one)
    found = []
    for name, address, gres, partitions in _of_json(text) if text.lstrip().startswith("{") else _of_lines(text):
        asked = (address or name, *(also.replace("{name}", name) for also in one.also))
        addresses = tuple(dict.fromkeys(found for text in asked for found in resolved(text)))
        # `gpu:h100:4,gpu:a100:4` are eight.
        gpus = [int(count) for count in _GPUS.findall(gres)]
        found.append(Machine(name, addresses, partitions.partition(",")[0], sum(gpus) if gpus else None))
    return found


def _run(one: SlurmInventory) -> str:
    try:
        done = subprocess.run(one.command, capture_output=True, check=True, timeout=one.timeout)
    except subprocess.CalledProcessError as error:
        said = one_line(error.stderr.decode(errors="replace"), 200)
        raise ClusterflowError(f"{one.command[0]}: ended with {error.returncode}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterflowError(f"{one.command[0]}: {one_line(str(error), 200)}") from error
    return done.stdout.decode(errors="replace")


def _of_lines(text: str) -> Iterator[tuple[str, str, str, str]]:
    # Without -o a node has several lines; an empty one ends it.
    for block in re.split(r"\n(?=NodeName=)", text):
        told = dict(_WORD.findall(block))
        if told.get("NodeName"):
            address = told.get("NodeAddr") or told.get("NodeHostName", "")
            yield told["NodeName"], address, told.get("Gres", ""), told.get("Partitions", "")


def _of_json(text: str) -> Iterator[tuple[str, str, str, str]]:
    for node in json.loads(text).get("nodes") or ():
        partitions = ",".join(node.get("partitions") or ())
        yield node["name"], node.get("address") or node.get("hostname") or "", node.get("gres") or "", partitions
