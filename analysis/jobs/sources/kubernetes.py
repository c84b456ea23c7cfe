"""Job windows from Kubernetes: Jobs (also those of a JobSet) and Kubeflow's PyTorchJobs, by the official client.

A job's nodes are those that its pods were put on; it starts when its first pod does, and ends as its conditions say.
Answers are read as the API sends them: the client's own classes refuse objects that a newer server sends.

The service account must be allowed to list ``jobs.batch``, ``pytorchjobs.kubeflow.org`` and ``pods``.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from analysis.jobs.job_source import GATHERING, Around, AskError, Listing, Source
from analysis.jobs.job_windows import start_of
from analysis.jobs.register import Known
from analysis.jobs.sources.slurm import LONGEST, as_word, checksum
from app.errors import UserError
from cluster.model import Job, KubernetesJobs, Outcome, Workload

_PAGE = 500
_POD_LABELS = {Workload.JOB: "job-name", Workload.PYTORCHJOB: "training.kubeflow.org/job-name"}
"""Labels that the pods of each kind of job bear."""

_JOB_SET = "JobSet"
_AGAIN = "@"
"""Between the uid of a job and the start of a run that is not its first: what is in the register."""
_ENDS = {
    Workload.JOB: {"Complete": Outcome.COMPLETED, "Failed": Outcome.FAILED, "Suspended": Outcome.CANCELLED},
    Workload.PYTORCHJOB: {"Succeeded": Outcome.COMPLETED, "Failed": Outcome.FAILED, "Suspended": Outcome.CANCELLED},
}
"""Conditions that end a run. What is suspended has no pods: as Kueue preempts a job, whose nodes others get."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One object that is a job, or one of several that are.

    Attributes:
        key: what the whole job is known by.
        created: when the object was made; None if unknown.
        pods: those that are left.
        end: when it ended; None while it runs.
    """

    key: str
    name: str
    job_class: str
    created: datetime | None
    pods: tuple[Object, ...]
    end: datetime | None
    outcome: Outcome

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of its pods."""
        alive = [pod for pod in self.pods if _status(pod).get("phase") != "Failed" and not _is_leaving(pod)]
        names = {_node(pod) for pod in alive or self.pods if _has_begun(pod)}
        return tuple(sorted(names - {""}))

    @property
    def start(self) -> datetime | None:
        """Return when its first pod started; None where no pod is left that says so."""
        return min((moment for pod in self.pods if (moment := _start(pod)) is not None), default=None)


def jobs_of(
    objects: Iterable[tuple[Workload, Object]], pods: Sequence[Object], class_label: str, known: Mapping[str, Known]
) -> dict[str, Job]:
    """Return key -> job of what the API lists.

    Args:
        objects: Jobs and PyTorchJobs.
        pods: of all of them.
        class_label: whose value is the class.
        known: what is in the register: a job keeps its start, and its nodes once its pods are gone.
    """
    by_owner: dict[str, list[Object]] = {}
    for pod in pods:
        for owner in _owners(pod):
            by_owner.setdefault(str(owner.get("uid")), []).append(pod)
    parts: dict[str, list[Part]] = {}
    for workload, one in objects:
        part = _part(workload, one, by_owner.get(_text(_meta(one), "uid"), []), class_label)
        parts.setdefault(part.key, []).append(part)
    running = {one.job.id: one for one in known.values() if one.job.end is None}
    # Of a job that was suspended and resumed the newest run: each has a key of its own.
    newest = {key.partition(_AGAIN)[0]: key for key in sorted(known, key=lambda key: known[key].job.start)}
    found = {}
    for uid, several in parts.items():
        key = newest.get(uid, uid)
        run = known.get(key) or _under_its_name(several, running)
        job = _whole(several, run)
        if run is not None and run.job.outcome is Outcome.CANCELLED:
            job = _resumed(several, run.job)
            key, job = (key, run.job) if job is None else (f"{uid}{_AGAIN}{start_of(job):.0f}", job)
        elif run is not None and job is not None and (joined := _joined(several, run, job)) is not None:
            found[key] = replace(run.job, end=run.job.end or joined)
            key, job = f"{uid}{_AGAIN}{joined.timestamp():.0f}", replace(job, start=joined)
        if job is not None:
            found[key] = job
    return found


def _resumed(parts: Sequence[Part], before: Job) -> Job | None:
    """Return the run of a job that goes on after it was suspended; None while no pod of it has started."""

    def is_fresh(pod: Object) -> bool:
        started = _start(pod)
        return started is not None and before.end is not None and started >= before.end

    return _whole([replace(part, pods=tuple(filter(is_fresh, part.pods))) for part in parts], None)


def _joined(parts: Sequence[Part], before: Known, now: Job) -> datetime | None:
    """Return when a node first joined a job that was at work; None if none did, or the job is over."""
    nodes = set(now.nodes).difference(before.job.nodes)
    if now.end is not None or not nodes:
        return None
    pods = (pod for part in parts for pod in part.pods if _node(pod) in nodes)
    begun = min((moment for pod in pods if (moment := _start(pod)) is not None), default=now.start)
    # A pod may pull its image for long after its start: until it was seen running, the others went on without it.
    joined = max(begun, datetime.fromtimestamp(int(before.seen), UTC))
    return joined if begun - now.start > GATHERING else None


def _under_its_name(parts: Sequence[Part], running: Mapping[str, Known]) -> Known | None:
    """Return what is known of a job by its name: a register that was rebuilt from the store knows no uid.

    An earlier job of that name began before this one was made.
    """
    found = running.get(parts[0].name)
    created = min((part.created for part in parts if part.created is not None), default=None)
    return found if found is not None and created is not None and found.job.start >= created else None


def _part(workload: Workload, one: Object, pods: Sequence[Object], class_label: str) -> Part:
    meta = _meta(one)
    owner = next((owner for owner in _owners(one) if owner.get("kind") == _JOB_SET), None)
    name = _text(meta, "name") if owner is None else _text(owner, "name")
    end, outcome = _end(workload, one)
    return Part(
        key=_text(meta if owner is None else owner, "uid"),
        name=_id(f"{_text(meta, 'namespace')}.{name}"),
        job_class=_class(one, class_label, name),
        created=_moment(meta.get("creationTimestamp")),
        pods=tuple(pods),
        end=end,
        outcome=outcome,
    )


def _id(name: str) -> str:
    """Return a job's id; what tells a long one from others is often its end, and an id runs once at a time."""
    return as_word(name) if len(name) <= LONGEST else f"{as_word(name)[: LONGEST - 9]}-{checksum(name)}"


def _node(pod: Object) -> str:
    return _text(pod.get("spec") or {}, "nodeName")


def _start(pod: Object) -> datetime | None:
    return _moment(_status(pod).get("startTime"))


def _is_leaving(pod: Object) -> bool:
    """Whether it is being deleted: of a node that is lost, it stays so, and shows as running."""
    return "deletionTimestamp" in _meta(pod)


def _has_begun(pod: Object) -> bool:
    return _status(pod).get("phase") in {"Running", "Succeeded", "Failed"}


def _whole(parts: Sequence[Part], known: Known | None) -> Job | None:
    """Return the job that parts make; None where it has not begun, or it is unknown where it ran."""
    first = parts[0]
    starts = [part.start for part in parts if part.start is not None]
    start = min(starts, default=None)
    # A stage that was over before the next one began: the nodes that fetched a data set do not train.
    stage = [part for part in parts if part.end is None or part.end > max(starts, default=part.end)] or parts
    nodes = tuple(dict.fromkeys(node for part in stage for node in part.nodes))
    is_over = all(part.end is not None for part in parts) or any(part.outcome is Outcome.FAILED for part in parts)
    end = max((part.end for part in parts if part.end is not None), default=None) if is_over else None
    if known is not None:
        start = known.job.start
        # Of a job that is over pods are cleaned up, often not all of them.
        if not nodes or (is_over and set(nodes) <= set(known.job.nodes)):
            nodes = known.job.nodes
    outcomes = {part.outcome for part in parts}
    outcome = next((one for one in (Outcome.FAILED, Outcome.CANCELLED) if one in outcomes), first.outcome)
    if not nodes or start is None or (end is not None and end <= start):
        return None
    namespace = first.name.split(".", 1)[0]
    ended = outcome if is_over else Outcome.UNKNOWN
    return Job(first.name, first.job_class, nodes, start, end, ended, user=namespace)


def _end(workload: Workload, one: Object) -> tuple[datetime | None, Outcome]:
    """Return when a job ended and how; None while it runs."""
    status = _status(one)
    for condition in status.get("conditions") or ():
        outcome = _ENDS[workload].get(str(condition.get("type")))
        if outcome is not None and condition.get("status") == "True":
            done = _moment(status.get("completionTime")) or _moment(condition.get("lastTransitionTime"))
            return done, outcome
    return None, Outcome.UNKNOWN


def _class(one: Object, class_label: str, name: str) -> str:
    """Return what earlier runs are found by: the label, the CronJob that made it, or the name before what was added."""
    meta = _meta(one)
    labelled = as_word(_text(meta.get("labels") or {}, class_label))
    owner = next((_text(owner, "name") for owner in _owners(one) if owner.get("kind") == "CronJob"), "")
    return labelled or as_word(owner) or as_word(_text(meta, "generateName").rstrip("-.")) or as_word(name)


def _meta(one: Object) -> Object:
    return one.get("metadata") or {}


def _status(one: Object) -> Object:
    return one.get("status") or {}


def _owners(one: Object) -> Sequence[Object]:
    return _meta(one).get("ownerReferences") or ()


def _text(section: Object, key: str) -> str:
    value = section.get(key)
    return value if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    """Return a time of the API: RFC 3339, in whole seconds."""
    try:
        return datetime.fromisoformat(str(value)).replace(microsecond=0).astimezone(UTC) if value else None
    except ValueError:
        return None


# -- asking ------------------------------------------------------------------------------------------


class KubernetesApi:
    """Lists jobs and their pods.

    Args:
        settings: which, and where the server is.

    Raises:
        UserError: the client is not installed.
    """

    def __init__(self, settings: KubernetesJobs) -> None:
        try:
            import kubernetes  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise UserError(
                f"job source {settings.name}: the Kubernetes client is not installed",
                "pip install 'clusterflow[kubernetes]'",
            ) from error
        self._kubernetes: Any = kubernetes
        self._settings = settings
        self._client: Any = None

    def ask(self, known: Mapping[str, Known], now: float) -> Listing:
        """List what there is."""
        del now
        objects: list[tuple[Workload, Object]] = []
        pods: list[Object] = []
        for workload in self._settings.workloads:
            found = self._jobs(workload)
            objects += [(workload, one) for one in found]
            if found:
                pods += self._pods(_POD_LABELS[workload])
        return Listing(jobs_of(objects, pods, self._settings.class_label, known))

    def close(self) -> None:
        """Nothing: a question ends by its timeout."""

    def _jobs(self, workload: Workload) -> list[Object]:
        selector = self._settings.selector
        if workload is Workload.JOB:
            api = self._kubernetes.client.BatchV1Api(self._api())
            return self._listed("jobs", api.list_job_for_all_namespaces, api.list_namespaced_job, selector)
        custom = self._kubernetes.client.CustomObjectsApi(self._api())
        kind = {"group": "kubeflow.org", "version": "v1", "plural": "pytorchjobs"}
        return self._listed(
            "pytorchjobs",
            lambda **options: custom.list_cluster_custom_object(**kind, **options),
            lambda namespace, **options: custom.list_namespaced_custom_object(namespace=namespace, **kind, **options),
            selector,
            may_be_missing=True,
        )

    def _pods(self, label: str) -> list[Object]:
        api = self._kubernetes.client.CoreV1Api(self._api())
        return self._listed("pods", api.list_pod_for_all_namespaces, api.list_namespaced_pod, label)

    def _listed(
        self,
        what: str,
        everywhere: Callable[..., Any],
        in_one: Callable[..., Any],
        selector: str,
        *,
        may_be_missing: bool = False,
    ) -> list[Object]:
        """Return all pages of a list, of the namespaces that are asked for."""
        if not self._settings.namespaces:
            return self._pages(what, everywhere, selector, may_be_missing=may_be_missing)
        return [
            one
            for namespace in self._settings.namespaces
            for one in self._pages(
                f"{what} of {namespace}",
                lambda namespace=namespace, **options: in_one(namespace=namespace, **options),
                selector,
                may_be_missing=may_be_missing,
            )
        ]

    def _pages(self, what: str, ask: Callable[..., Any], selector: str, *, may_be_missing: bool) -> list[Object]:
        found: list[Object] = []
        options: dict[str, Any] = {"limit": _PAGE, "_request_timeout": self._settings.timeout}
        if selector:
            options["label_selector"] = selector
        while True:
            answer = self._asked(what, ask, options, may_be_missing=may_be_missing)
            if answer is None:
                return found
            found += [one for one in answer.get("items") or () if isinstance(one, dict)]
            token = _text(answer.get("metadata") or {}, "continue")
            if not token:
                return found
            options["_continue"] = token

    def _asked(
        self, what: str, ask: Callable[..., Any], options: Mapping[str, Any], *, may_be_missing: bool
    ) -> dict[str, Any] | None:
        """Return one answer; None where the server does not know the kind and need not."""
        try:
            answer = json.loads(ask(_preload_content=False, **options).data)
        except self._kubernetes.client.ApiException as error:
            if error.status == 404 and may_be_missing:
                return None
            self._client = None  # a token may have been renewed
            hint = f": allow the service account to list {what}" if error.status == 403 else ""
            raise AskError(f"{what}: the API server answers {error.status} {error.reason}{hint}") from error
        except AskError:
            raise
        except Exception as error:  # the client lets urllib3's, ssl's and its own through
            self._client = None
            why = " ".join(str(error).split())[:200]
            raise AskError(f"{what}: no answer: {why or type(error).__name__}") from error
        if not isinstance(answer, dict):
            raise AskError(f"{what}: the API server's answer is no list")
        return answer

    def _api(self) -> Any:  # noqa: ANN401 - the client's own type
        if self._client is None:
            settings, config = self._settings, self._kubernetes.config
            configuration = self._kubernetes.client.Configuration()
            try:
                if settings.kubeconfig is None and settings.context is None:
                    try:
                        config.load_incluster_config(client_configuration=configuration)
                    except config.ConfigException:
                        config.load_kube_config(client_configuration=configuration)
                else:
                    config.load_kube_config(settings.kubeconfig, settings.context, client_configuration=configuration)
            except (config.ConfigException, OSError, TypeError, ValueError, KeyError) as error:
                raise AskError(f"no kubeconfig: {' '.join(str(error).split())[:200]}") from error
            # We ask again at the next interval anyway.
            configuration.retries = False
            self._client = self._kubernetes.client.ApiClient(configuration)
        return self._client


def source(one: KubernetesJobs, at: Around) -> Source:
    """Return the source of these settings."""
    return at.asked(one.name, KubernetesApi(one), one.every)
