"""The command ``clusterflow``: the commands of all packages under one name."""

import click

from app.application import Application, look_rarely
from app.version import own_version

look_rarely()

# By name: --help should not wait for what single commands import. In the order in which a site needs them.
COMMANDS = {
    "The cluster's description": {
        "init": (
            "operations.draft.draft_cli:init",
            "Write a cluster.yaml, from traffic or Slurm too.",
        ),
        "check": ("operations.check_cli:check", "Tell every fault of cluster.yaml at once, or what it describes."),
        "inventory": ("operations.inventory_cli:inventory", "Ask the inventory sources now, and show what they tell."),
        "dump": ("cluster.cli:dump", "Print the cluster with every default written out."),
        "suggest": ("operations.cli:suggest", "Print lines for cluster.yaml that the traffic suggests."),
    },
    "Boards and alerts as code": {
        "build": ("operations.cli:build", "Generate boards, rules, contact points, pmacct's configuration."),
        "notify": ("operations.notify_cli:notify", "Show, or have Grafana send, what an alert looks like."),
        "playlist": ("dashboards.cli:playlist", "Make or update the kiosk playlist in Grafana."),
        "test-rules": ("simulate.rule_checks_cli:test_rules", "Run rule cases: points in, expected alerts out."),
        "backtest": ("simulate.backtest_cli:backtest", "Tell what alert rules would have done over stored data."),
        "drill": ("simulate.drill_cli:drill", "Stage a theft, and time it from the exporter to the alert."),
        "canary": ("simulate.canary_cli:canary", "Send one tiny flow through collector, bridge and store."),
        "floor": ("simulate.floor_cli:floor", "Tell how much could leave without an alert."),
    },
    "From flows to alerts": {
        "collect": ("ingest.collect.collect_cli:collect", "Run nfacctd and sfacctd for this cluster."),
        "guard": ("ingest.collect.collect_cli:guard", "Keep datagrams that kill from an nfacctd in a unit of its own."),
        "listen": ("ingest.listen.listen_cli:listen", "Show who sends flow records to this host, and what is wrong."),
        "relay": ("ingest.kafka.kafka_cli:relay", "Send a collector's flow records to Kafka."),
        "ingest": ("ingest.cli:ingest", "Turn flow records into points."),
        "analyze": ("analysis.cli:analyze", "Judge nodes, jobs, checkpoints and first contacts."),
        "deliver": ("delivery.cli:deliver", "Send alerts and events to syslog, SIEMs, Kafka, webhooks."),
    },
    "How things stand": {
        "status": ("operations.cli:status", "Show how things stand: data, nodes, alerts, counters."),
        "alerts": ("operations.alerts_cli:alerts", "Show the history of alerts, and mark alerts."),
        "incident": (
            "reporting.incident.incident_cli:incident",
            "Write all that is known of an alert as one HTML file.",
        ),
        "explore": ("dashboards.explore_cli:explore", "Ask who moved how much."),
        "flows": ("operations.questions.flows_cli:flows", "Ask the flow archive who talked to whom, on which ports."),
        "sessions": (
            "operations.questions.sessions_cli:sessions",
            "Tell who administered what: SSH, IPMI, ...",
        ),
        "jobs": ("analysis.jobs.jobs_cli:jobs", "List the jobs that every source tells of."),
        "contacts": ("analysis.cli:contacts", "List, acknowledge and forget first contacts."),
        "audit": ("analysis.audit_cli:audit", "Report on a period: segmentation, permits, what was not seen."),
        "access": ("analysis.access_cli:access", "Report who called which service of inference and management."),
        "lists": ("operations.status.lists_cli:lists", "Show the lists about addresses, their age and their faults."),
        "report": ("reporting.cli:report", "Write a report of a period as one HTML file."),
    },
    "Keeping it": {
        "backup": ("operations.backup.backup_cli:backup", "Write state and configuration to a file."),
        "restore": ("operations.backup.backup_cli:restore", "Put a backup back."),
    },
    "Simulation": {
        "simulate": ("simulate.cli:simulate", "Play the cluster of cluster.yaml as flow records."),
        "demo": ("simulate.demo.demo_cli:demo", "Run a simulated AI cluster live."),
    },
}


@click.group(
    cls=Application,
    listed=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(own_version(), prog_name="clusterflow", message="%(prog)s %(version)s")
def main() -> None:
    """Watch the network of an AI cluster: flow records to InfluxDB, Grafana boards and alerts.

    \b
    First steps:
      clusterflow init                write a commented cluster.yaml
      clusterflow check               see whether it is right
      clusterflow build               make boards, rules and pmacct's configuration of it
      clusterflow collect             receive flows (pmacct), ...
      clusterflow ingest              ... store them, ...
      clusterflow analyze             ... and judge them
      clusterflow status              how things stand
    """  # noqa: D301 - \b is click's mark for "keep these lines"


if __name__ == "__main__":
    main()
