"""`grinnder doctor [--json] [storage.dir=DIR]`: what this machine offers, what is missing, what to do about it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from grinnder_cli.commands import machine
from grinnder_cli.commands.machine import Check
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem

USAGE = """usage: grinnder doctor [--json] [storage.dir=DIR]

Checks the machine: PASS, WARN (works, but slower or smaller) or FAIL, with a remedy.
storage.dir  the directory whose disk is tried (default: scratch)
--json       one JSON object on stdout
Exits 0, or 3 if anything FAILs."""

_STYLE = {machine.PASS: "green", machine.WARN: "yellow", machine.FAIL: "bold red"}


def main(argv: list[str]) -> int:
    """Run every check and print the verdicts.

    Args:
        argv: the words after `doctor`.

    Returns:
        0, or 3 (the code of `EnvironmentProblem`) when a check failed.

    Raises:
        ConfigError: an argument that is not understood.
    """
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    directory = StorageConfig().dir
    for word in argv:
        if word.startswith("storage.dir=") and word != "storage.dir=":
            directory = word.removeprefix("storage.dir=")
        elif word != "--json":
            raise ConfigError(f"doctor does not know '{word}'; usage: grinnder doctor [--json] [storage.dir=DIR]")
    checks = machine.examine(Path(directory).expanduser())
    failed = any(check.verdict == machine.FAIL for check in checks)
    if "--json" in argv:
        records = [{name: getattr(check, name) for name in ("name", "verdict", "detail", "remedy")} for check in checks]
        print(json.dumps({"ok": not failed, "checks": records}))
    elif sys.stdout.isatty():
        _print_table(checks)
    else:
        print(_plain(checks))
    return EnvironmentProblem.exit_code if failed else 0


def _plain(checks: Sequence[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        remedy = f" -> {check.remedy}" if check.remedy else ""
        lines.append(f"{check.verdict}  {check.name:<{width}}  {check.detail}{remedy}")
    return "\n".join(lines)


def _print_table(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "found", "remedy")
    for check in checks:
        # Text, not str: a path with [brackets] is no markup.
        table.add_row(Text(check.verdict, _STYLE[check.verdict]), check.name, Text(check.detail), Text(check.remedy))
    Console().print(table)
