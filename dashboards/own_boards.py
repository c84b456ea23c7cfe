"""Boards of the site's own: Python files that cluster.yaml names, each with `boards(cluster)`."""

import json
import re
from pathlib import Path

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from app.errors import UserError
from cluster.model import Cluster
from cluster.own_code import EXPECTED, faults_of, load_file
from dashboards.board import Page, dashboard, to_json
from dashboards.registry import BOARDS, RUNBOOK, RUNBOOK_FILE, board_file

_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def own_boards(cluster: Cluster) -> dict[str, str]:
    """Return what the files of `cluster.boards` make: file name -> JSON, in their order.

    Raises:
        UserError: a file cannot be run, or does not give what it should.
    """
    files: dict[str, str] = {}
    # Grafana writes none of a folder's boards while two have one uid or one title; nor may a file replace one of ours.
    taken = {name for board in (*BOARDS.values(), RUNBOOK) for name in (board.uid, board.title)}
    reserved = {RUNBOOK_FILE, *map(board_file, BOARDS)}
    for text in cluster.boards:
        path = Path(text)
        build = getattr(load_file(path, "boards"), "boards", None)
        if not callable(build):
            raise UserError(f"{path}: no function boards(cluster)", EXPECTED)
        with faults_of(path):
            for made in build(cluster):
                board = _board(cluster, made)
                name = f"{board.uid}.json"
                if name in reserved or name in files or {board.uid, board.title} & taken:
                    raise UserError(f"board {board.uid} ({board.title}): its uid, title or file name is taken")
                taken |= {board.uid, board.title}
                files[name] = to_json(board) if isinstance(made, Page) else _as_it_is(board)
    return files


def _board(cluster: Cluster, made: object) -> core.Dashboard:
    if isinstance(made, Page):
        made = dashboard(cluster, made)
    if not isinstance(made, core.Dashboard):
        raise UserError(f"boards() returned {type(made).__name__}: expected Page, or Dashboard of grafanalib")
    if not _UID.fullmatch(str(made.uid)):
        raise UserError(f"board {made.title!r}: uid {made.uid!r}: expected 1 to 40 letters, digits, - and _")
    return made


def _as_it_is(board: core.Dashboard) -> str:
    document = board.auto_panel_ids().to_json_data()
    return json.dumps(document, cls=DashboardEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
