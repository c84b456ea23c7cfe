"""Machines from Kubernetes: nodes, the pods on them with the networks that Multus gave them, services.

A pod's addresses are its machine's: pods come and go, the machine's history stays. The service account must be allowed
to list ``nodes``, ``pods`` and ``services``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.errors import ClusterflowError
from cluster.model import KubernetesInventory, Machine, Secret
from enrichment.inventory.reaching import MOST, address_of, file_text, get_json, token_of

_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE = 500
_NETWORKS = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
"""Multus' annotation, and as it was spelt before."""
_ROLE = "node-role.kubernetes.io/"
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
_OVER = {"Succeeded", "Failed"}

Object = Mapping[str, Any]


def ask(one: KubernetesInventory) -> list[Machine]:
    """Return nodes, what pods add to them, and services."""
    objects = _of_file(file_text(one.file)) if one.file else _of_api(one)
    return [machine for kind, item in objects for machine in _READERS[kind](item, one) if machine.addresses]


def _of_file(text: str) -> Iterator[tuple[str, Object]]:
    document = json.loads(text)
    for item in document.get("items") or [document]:
        if item.get("kind") in _READERS:
            yield item["kind"], item


def _of_api(one: KubernetesInventory) -> Iterator[tuple[str, Object]]:
    url = (one.url or "https://kubernetes.default.svc").rstrip("/")
    token, ca_file = one.token, one.ca_file
    if one.url is None:
        token, ca_file = token or Secret(file=str(_IN_POD / "token")), ca_file or str(_IN_POD / "ca.crt")
    headers = {"Authorization": f"Bearer {token_of(one, token)}"} if token else {}
    namespaced = [f"namespaces/{name}/" for name in one.namespaces] or [""]
    lists = [("Node", "nodes"), *(("Pod", f"{place}pods") for place in namespaced)]
    lists += [("Service", f"{place}services") for place in namespaced if one.services]
    for kind, place in lists:
        query: dict[str, str | int] = {"limit": _PAGE}
        for _ in range(MOST // _PAGE):
            found = get_json(
                f"{url}/api/v1/{place}", headers=headers, ca_file=ca_file, timeout=one.timeout, query=query
            )
            if not isinstance(found, dict) or "items" not in found:
                raise ClusterflowError(f"{url}/api/v1/{place}: answers something that is no list")
            yield from ((kind, item) for item in found["items"] or ())
            query["continue"] = (found.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                break


def _node(item: Object, _one: KubernetesInventory) -> Iterator[Machine]:
    meta, status = item["metadata"], item.get("status") or {}
    roles = sorted(label.removeprefix(_ROLE) for label in meta.get("labels") or {} if label.startswith(_ROLE))
    told = (
        one.get("address") for one in status.get("addresses") or () if one.get("type") in {"InternalIP", "ExternalIP"}
    )
    gpus = [int(count) for name in _GPUS if (count := (status.get("allocatable") or {}).get(name))]
    yield Machine(meta["name"], _addresses(told), roles[0] if roles else "node", sum(gpus) if gpus else None)


def _pod(item: Object, one: KubernetesInventory) -> Iterator[Machine]:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    # An ended pod's addresses may be another one's by now; one on the host's network has the host's.
    if status.get("phase") in _OVER or not spec.get("nodeName") or spec.get("hostNetwork") or not _is_asked(meta, one):
        return
    told = [each.get("ip") for each in status.get("podIPs") or ()] or [status.get("podIP")]
    notes = meta.get("annotations") or {}
    for name in _NETWORKS:
        told += [address for network in _networks(notes.get(name)) for address in network.get("ips") or ()]
    yield Machine(spec["nodeName"], _addresses(told), meta.get("namespace", ""))


def _networks(annotation: str | None) -> list[Object]:
    try:
        found = json.loads(annotation or "[]")
    except ValueError:
        return []  # somebody's own annotation: the pod's other addresses still count
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _service(item: Object, one: KubernetesInventory) -> Iterator[Machine]:
    meta, spec = item["metadata"], item.get("spec") or {}
    if one.services and _is_asked(meta, one):
        balancer = ((item.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        told = [*(spec.get("clusterIPs") or [spec.get("clusterIP")]), *(spec.get("externalIPs") or ())]
        told += [each.get("ip") for each in balancer]
        yield Machine(f"{meta['name']}.{meta.get('namespace', 'default')}", _addresses(told), meta.get("namespace", ""))


def _is_asked(meta: Object, one: KubernetesInventory) -> bool:
    return not one.namespaces or meta.get("namespace") in one.namespaces


def _addresses(told: Iterable[object]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(found for text in told if (found := address_of(text)) is not None))


_READERS = {"Node": _node, "Pod": _pod, "Service": _service}
