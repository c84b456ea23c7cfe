"""What the generated configuration says, and what it must never say."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from click.testing import CliRunner

from app import compiled
from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol, Sampling, SamplingMode
from ingest.collect import quick_printf
from ingest.collect.collect_cli import collect
from ingest.collect.pmacct import (
    RECEIVE_BUFFER,
    collector_files,
    granted_receive_buffer,
    receive_buffer_advice,
)

LEAF = Exporter("leaf-1", ip_address("10.0.0.1"))
BORDER = Exporter("border-1", ip_address("2001:db8::1"), sampling=Sampling(SamplingMode.FIXED, 1000))
SWITCH = Exporter("mgmt-sw", ip_address("10.0.0.3"), ExportProtocol.SFLOW)
CLUSTER = Cluster("test", (), exporters=(LEAF, BORDER, SWITCH), collector=CollectorSettings(refresh=3))


def keys(config: str) -> dict[str, str]:
    """The configuration's keys without the plugin's name, and their values."""
    lines = [line for line in config.splitlines() if not line.startswith("!")]
    pairs = [line.split(": ", 1) for line in lines]
    found = {re.sub(r"\[\w+\]$", "", key): value for key, value in pairs}
    assert len(found) == len(lines)
    return found


def test_files_name_each_other() -> None:
    files = collector_files(CLUSTER, Path("/etc/pm"), Path("/spool"))
    assert sorted(files) == [
        "nfacctd.allow", "nfacctd.conf", "nfacctd.numbers", "sfacctd.conf", "sfacctd.numbers",
    ]  # fmt: skip
    assert files["nfacctd.numbers"] == "set_tag2=1000000000000++\n"
    assert files["nfacctd.allow"] == "10.0.0.1\n2001:db8::1\n"
    config = keys(files["nfacctd.conf"])
    assert config["nfacctd_allow_file"] == "/etc/pm/nfacctd.allow"
    assert config["pre_tag_map"] == "/etc/pm/nfacctd.numbers"
    assert "sampling_map" not in config, "BORDER has a fixed rate: the bridge knows it"
    assert config["print_output_file"] == "/spool/nfacct-%Y%m%d-%H%M.csv"
    assert config["print_refresh_time"] == "3"
    assert config["daemonize"] == "false"


def test_a_daemon_without_exporters_is_left_out() -> None:
    only_sflow = replace(CLUSTER, exporters=(SWITCH,))
    assert sorted(collector_files(only_sflow, Path("/etc/pm"))) == ["sfacctd.conf", "sfacctd.numbers"]
    unknown = replace(CLUSTER, exporters=())
    found = collector_files(unknown, Path("/etc/pm"))
    assert {name for name in found if name.endswith(".conf")} == {"nfacctd.conf", "sfacctd.conf"}
    assert "allow_file" not in found["nfacctd.conf"]


def test_sflow_has_no_allow_list_unless_its_sources_are_named() -> None:
    """It would compare the UDP source with addresses that are the agents'."""
    files = collector_files(CLUSTER, Path("/etc/pm"))
    assert "allow_file" not in files["sfacctd.conf"]
    assert "sfacctd.allow" not in files
    sources = (ip_network("10.60.0.0/24"), ip_network("10.60.9.17"))
    files = collector_files(
        replace(CLUSTER, collector=replace(CLUSTER.collector, sflow_sources=sources)), Path("/etc/pm")
    )
    assert keys(files["sfacctd.conf"])["sfacctd_allow_file"] == "/etc/pm/sfacctd.allow"
    assert files["sfacctd.allow"] == "10.60.0.0/24\n10.60.9.17\n"
    assert files["nfacctd.allow"] == "10.0.0.1\n2001:db8::1\n"


@pytest.mark.parametrize("name", ["nfacctd.conf", "sfacctd.conf"])
def test_pmacct_neither_scales_nor_spreads_nor_keeps_back(name: str) -> None:
    config = collector_files(CLUSTER, Path("/etc/pm"))[name]
    forbidden = {
        "nfacctd_renormalize", "sfacctd_renormalize", "nfacctd_ext_sampling_rate", "sfacctd_ext_sampling_rate",
        "print_history", "nfacctd_pro_rating", "nfacctd_time_new", "plugin_buffer_size",
    }  # fmt: skip
    assert not forbidden & set(keys(config))
    assert keys(config)["print_output_file_append"] == "true"


@pytest.mark.parametrize(
    ("rotate", "ending"), [(1, "%s"), (59, "%s"), (60, "%Y%m%d-%H%M"), (3599, "%Y%m%d-%H%M"), (3600, "%Y%m%d-%H")]
)
def test_files_rotate_at_least_as_often_as_asked(rotate: int, ending: str) -> None:
    cluster = replace(CLUSTER, collector=replace(CLUSTER.collector, rotate=rotate))
    config = collector_files(cluster, Path("/etc/pm"))["sfacctd.conf"]
    assert keys(config)["print_output_file"] == f"/var/spool/clusterflow/sfacct-{ending}.csv"


def test_whoever_moves_the_links_saves_pmacct_the_names() -> None:
    """A name with times in it costs pmacct a sixth of what it takes to print a record."""
    files = collector_files(CLUSTER, Path("/etc/pm"), Path("/spool"), is_rotated=True)
    assert keys(files["nfacctd.conf"])["print_output_file"] == "/spool/.nfacct-current"
    assert keys(files["sfacctd.conf"])["print_output_file"] == "/spool/.sfacct-current"


def test_says_what_to_set_when_the_kernel_grants_too_little() -> None:
    assert receive_buffer_advice(RECEIVE_BUFFER) is None
    advice = receive_buffer_advice(212_992)
    assert advice is not None
    assert "sysctl -w net.core.rmem_max=67108864" in advice


def test_asks_the_kernel_itself_where_its_limit_cannot_be_read(tmp_path: Path) -> None:
    """In a container on an older kernel the file is not there, and the warning is needed most."""
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert granted_receive_buffer() == limit
    unreadable = tmp_path / "rmem_max"
    assert granted_receive_buffer(unreadable) == min(limit, RECEIVE_BUFFER)
    unreadable.write_text("\n")
    assert granted_receive_buffer(unreadable) == min(limit, RECEIVE_BUFFER)


YAML = """\
cluster: test
groups:
  training: {title: Training, role: training, prefixes: [10.20.0.0/16]}
exporters:
  leaf-1: {address: 127.0.0.11, protocol: netflow}
collector: {listen: 127.0.0.1, netflow_port: PORT, spool: SPOOL}
"""


def _command(tmp_path: Path, port: int, *arguments: str, text: str = YAML) -> subprocess.Popen[str]:
    config = tmp_path / "cluster.yaml"
    config.write_text(text.replace("PORT", str(port)).replace("SPOOL", str(tmp_path / "spool")))
    program = "from ingest.collect.collect_cli import collect; collect()"
    return subprocess.Popen(
        [sys.executable, "-c", program, "-c", str(config), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_command_shows_the_configuration_and_starts_nothing(tmp_path: Path) -> None:
    process = _command(tmp_path, 2055, "--print-config")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "nfacctd_port: 2055" in output
    assert "127.0.0.11" in output
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("has_compiler", [True, False])
def test_the_configuration_shown_is_that_of_a_machine_without_a_compiler_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_compiler: bool
) -> None:
    """There nfacctd has no library: of so many exporters it keeps no templates."""
    monkeypatch.setattr(quick_printf.LIBRARY, "shipped", tmp_path / "none.so")
    monkeypatch.setattr(compiled, "COMPILER", "true" if has_compiler else "no-such-cc")
    leaves = "".join(f"  x{number}: {{address: 127.0.1.{number}}}\n" for number in range(101))
    config = tmp_path / "cluster.yaml"
    text = YAML.replace("collector:", f"{leaves}collector:")
    config.write_text(text.replace("PORT", "2055").replace("SPOOL", str(tmp_path / "spool")))
    shown = CliRunner().invoke(collect, ["-c", str(config), "--print-config"])
    assert shown.exit_code == 0, shown.output
    assert ("nfacctd_templates_file" in shown.output) is has_compiler


def test_command_refuses_more_senders_than_pmacct_reads(tmp_path: Path) -> None:
    """It would start, and drop the others without a word."""
    sources = ", ".join(f"10.60.{number // 128}.{number % 128 * 2}" for number in range(2049))
    text = YAML.replace("spool: SPOOL", f"spool: SPOOL, sflow_sources: [{sources}]")
    process = _command(tmp_path, 2055, text=text)
    _, errors = process.communicate(timeout=60)
    assert "collector.sflow_sources: 2,049 lines in sfacctd's allow file: expected at most 2,048" in errors
    assert process.returncode
    assert not list((tmp_path / "spool").rglob("*.conf"))


@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_command_collects_until_it_is_told_to_stop(tmp_path: Path) -> None:
    daemons = pytest.importorskip("test_pmacct_daemons")
    port = daemons.free_udp_port()
    process = _command(tmp_path, port)
    assert process.stderr is not None
    for line in process.stderr:
        if "event=collecting" in line:
            break
    daemons.send(port, [daemons.v5(0, 20)])
    process.send_signal(signal.SIGTERM)
    errors = process.stderr.read()
    assert process.wait(60) == 0, errors
    assert "nfacctd_dropped=0" in errors
    assert "nfacctd_discarded=0" in errors
    assert daemons.spooled(tmp_path / "spool").height == 20
