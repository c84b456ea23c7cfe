"""Names of boards and panels, and the ids that Grafana and alert rules know them by.

Panel ids are places in these lists, and links in sent alerts and bookmarks hold them: append new panels at the end,
never reorder; a panel that is gone leaves its name in its place.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Board:
    """One board: its stable uid, its title, the question it answers, and its panels' names in order of their ids."""

    uid: str
    title: str
    question: str
    panels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.title:
            raise ValueError(f"board {self.uid}: no title: Grafana takes none without")
        # ('volume') without its comma is a text.
        if not isinstance(self.panels, tuple) or len(set(self.panels)) < len(self.panels):
            raise ValueError(f"board {self.uid}: panels: expected a tuple of names, each once, such as ('volume',)")

    def panel_id(self, name: str) -> int:
        """Return the id of a panel; KeyError if the board has none of this name."""
        if name not in self.panels:
            raise KeyError(f"{self.uid}: no panel {name!r}; there are {', '.join(self.panels)}")
        return self.panels.index(name) + 1


@dataclass(frozen=True, slots=True)
class PanelRef:
    """Where an alert links to: Grafana's ``__dashboardUid__`` and ``__panelId__``."""

    dashboard_uid: str
    panel_id: int


# A board's module in `dashboards.boards` has its name.
BOARDS = {
    "noc_wall": Board(
        "cf-noc-wall",
        "NOC wall",
        "Is the cluster healthy, and what needs me now?",
        (
            "alerts_critical", "alerts_warning", "data_age", "cohort_counts", "unknown_volume", "checkpoint_age",
            "stall_cost", "traffic", "cohort_grid", "cohort", "alerts", "egress", "matrix", "exporters_alive",
            "flow_rate", "lag", "lost", "late", "dead_letters", "runs", "cohort_names",
        ),
    ),
    "explore": Board(
        "cf-explore",
        "Explore",
        "Which nodes, groups and services move how much?",
        ("question", "nodes", "nodes_over_time", "groups", "groups_over_time", "chosen_over_time"),
    ),
    "egress": Board(
        "cf-egress",
        "Egress & security",
        "What leaves the cluster, and who sends it?",
        (
            "unknown_volume", "off_hours", "first_contacts", "violations", "egress_over_time", "sensitive_over_time",
            "destinations", "contacts", "off_hours_over_time", "violation_list", "unknown_nodes", "known_bad",
            "new_networks", "address_names", "exfiltration", "shapes",
            "beacons",
        ),
    ),
    "ledger": Board(
        "cf-ledger",
        "Egress ledger",
        "Who sends little, but often: what adds up over a day, a week, a month?",
        ("slow_24h", "slow_7d", "recurring", "pairs", "slow_over_time", "recurrences", "artefacts"),
    ),
    "segmentation": Board(
        "cf-segmentation",
        "Segmentation",
        "What breaks the cluster's segmentation, and who does it?",
        (
            "not_allowed", "shadow_nodes", "wrong_plane", "unexpected_management", "over_time", "breaches", "shadows",
            "planes", "matrix", "denied",
        ),
    ),
    "management": Board(
        "cf-management",
        "Management plane",
        "Who talks to the management plane, and is that expected?",
        ("unexpected", "policy", "by_group", "by_service", "breaches", "nodes", "users"),
    ),
    "sessions": Board(
        "cf-sessions",
        "Management sessions",
        "Who administered what: from where, as whom, how often, for how long, and who is new?",
        ("begun", "sources", "unknown", "policy", "over_time", "by_user", "new", "pairs", "longest"),
    ),
    "group_matrix": Board(
        "cf-group-matrix",
        "Group matrix",
        "Who talks to whom, and may they?",
        ("matrix", "volumes", "violations", "violating_over_time", "transport"),
    ),
    "training": Board(
        "cf-training",
        "Training run",
        "How does this run go: what does it do, is it as fast as earlier ones, do all nodes do their part?",
        (
            "cohort", "observed_expected", "verdicts", "compute_traffic", "checkpoint_traffic", "jobs", "visibility",
            "run_state", "run_rate", "low_nodes", "checkpoint_age", "lost", "standing", "phases", "run_states", "rate",
            "stalls", "checkpoints", "collectives", "patterns", "changed", "rails", "steps", "incast", "role_verdicts",
            "role_steps", "role_exchange", "roles", "role_matrix", "disturbances", "marks", "rails_low",
            "packet_sizes", "changed_pairs",
        ),
    ),
    "stragglers": Board(
        "cf-stragglers",
        "Stragglers",
        "Which nodes hold a job up, during the run and after it?",
        ("ranking", "deficit", "onset", "low_time", "shares", "digests"),
    ),
    "checkpoints": Board(
        "cf-checkpoints",
        "Checkpoints & I/O",
        "Did the checkpoints land, and what do jobs and others do with storage?",
        (
            "age", "overdue", "at_risk", "faults", "phases", "overdue_over_time", "age_over_time", "events", "standing",
            "sizes", "job_io", "competing", "endpoints", "endpoint_nodes", "tiers", "others", "loads",
        ),
    ),
    "inference": Board(
        "cf-inference",
        "Inference",
        "Who asks the models, how much against earlier weeks, and who should not?",
        (
            "load_state", "unauthorised_volume", "off_window_volume", "clients_now", "load", "requests", "clients",
            "unauthorised", "off_window", "balance", "answers", "names",
        ),
    ),
    "inference_access": Board(
        "cf-inference-access",
        "Inference access",
        "Which user asked which service, from where, when, how much, and who is not on the list?",
        (
            "denied_volume", "unknown_volume", "users_now", "policy", "over_time", "by_country", "denied", "accesses",
            "countries", "names",
        ),
    ),
    "capacity": Board(
        "cf-capacity",
        "Capacity & cost",
        "How full are links and storage, when will they be, and what do stalls cost?",
        (
            "soonest", "busiest", "cost_day", "cost_month", "links", "pairs", "edge_load", "core_load", "endpoints",
            "growth", "errors", "cost_by_job", "cost_over_time", "held", "uplinks",
        ),
    ),
    "alerts": Board(
        "cf-alerts",
        "Alerts",
        "What fired, how often, how soon did somebody look, and what was false?",
        ("firing", "fired", "marked_false", "acknowledge", "history", "over_time", "by_rule", "by_source"),
    ),
    "coverage": Board(
        "cf-coverage",
        "Coverage",
        "What of the cluster's traffic do flow records see, and what does nobody judge?",
        ("counts", "pairs", "skipped", "over_time", "visibility", "interfaces", "share_over_time", "unread",
         "counting", "unseen", "floor", "cloud", "log_gaps"),
    ),
    "pipeline": Board(
        "cf-pipeline",
        "Pipeline",
        "Can the numbers be trusted: who exports, what is lost, late or refused?",
        (
            "data_age", "exporter_age", "exporters", "lag", "flow_rate", "lost", "sampling", "late", "suppressed",
            "dead_letters", "store_writes", "series", "counters", "readings", "lists",
            "relays",
        ),
    ),
}  # fmt: skip
"""Every board by its module's name."""

HOME = "noc_wall"
"""The board that Grafana opens with."""

RUNBOOK = Board("cf-runbook", "Runbook", "What is to be done when an alert comes?", ())
"""Made of the rules, a panel each; their ids follow from the rules' names."""

RUNBOOK_FILE = "runbook.json"
"""Its file name."""

FOLDER = "clusterflow"
"""Grafana folder of boards and rules, one for both: a label of every alert."""


def board_file(board: str) -> str:
    """Return the file name of a board by its name here."""
    return f"{board.replace('_', '-')}.json"


def panel_ref(board: str, panel: str) -> PanelRef:
    """Return where a panel is, by names: ``panel_ref("egress", "unknown_volume")``; KeyError if there is none."""
    if board not in BOARDS:
        raise KeyError(f"no board {board!r}; there are {', '.join(BOARDS)}")
    found = BOARDS[board]
    return PanelRef(found.uid, found.panel_id(panel))
