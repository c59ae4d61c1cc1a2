"""The members of a sweep: `<out>/sweeps/<time>-<pid>/index.json` and the table at the end."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from grinnder_cli.commands.outcome import Outcome
from grinnder_cli.run.provenance import command_line

_STARTED = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def sweep_dir(out: str) -> str:
    """Directory of this process's sweep; the same at every call."""
    return f"{out}/sweeps/{_STARTED}-{os.getpid()}"


class Sweep:
    """Collects outcomes; the index on disk is true after every member.

    Args:
        directory: where index.json goes, None for commands that leave nothing behind.

    Attributes:
        stopped: members after these, if there are any, are not started.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.members: list[tuple[list[str], Outcome]] = []
        self.stopped = False

    def add(self, overrides: list[str], outcome: Outcome) -> None:
        """Record a member and, if it failed, say so now."""
        self.members.append((overrides, outcome))
        if outcome.exit_code:
            number, words = len(self.members), " ".join(overrides)
            print(f"grinnder: sweep member {number} ({words}) failed, exit code {outcome.exit_code}", file=sys.stderr)
        if self.directory is not None:
            self._write()

    @property
    def exit_code(self) -> int:
        """That of the first failed member, 0 if all are complete or skipped."""
        return next((outcome.exit_code for _, outcome in self.members if outcome.exit_code), 0)

    def table(self) -> str:
        """All members, one line each with the overrides that tell them apart, and a line that counts them."""
        several = len(self.members) > 1
        shared = set.intersection(*(set(overrides) for overrides, _ in self.members)) if several else set()
        rows = [("#", "status", "exit", "overrides", "run directory or message")]
        for number, (overrides, outcome) in enumerate(self.members, start=1):
            where = str(outcome.run_dir or outcome.message or "")
            own = " ".join(word for word in overrides if word not in shared)
            rows.append((str(number), outcome.status, str(outcome.exit_code), own, where))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
                 for row in rows]  # fmt: skip
        done = sum(outcome.status in ("complete", "skipped") for _, outcome in self.members)
        stop = "; stopped: members after these were not started" if self.stopped else ""
        where = f": {self.directory / 'index.json'}" if self.directory is not None else ""
        return "\n".join([*lines, f"{done} of {len(self.members)} runs complete{stop}{where}"])

    def _write(self) -> None:
        assert self.directory is not None
        members: list[dict[str, Any]] = [
            {
                "overrides": overrides,
                "run_dir": str(outcome.run_dir.absolute()) if outcome.run_dir else None,
                "status": outcome.status,
                "exit_code": outcome.exit_code,
                "message": outcome.message,
            }
            for overrides, outcome in self.members
        ]
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / ".index.json.tmp"
        temporary.write_text(json.dumps({"schema": 1, "argv": command_line(), "members": members}, indent=1) + "\n")
        os.replace(temporary, self.directory / "index.json")
