"""`grinnder resume RUN_DIR [--json]`: continue a run from its newest checkpoint."""

import json
import os
import sys
from pathlib import Path

from grinnder_cli.commands.train import conclude, show
from grinnder_cli.config import freeze
from grinnder_cli.errors import ConfigError, InUse
from grinnder_cli.run import atomic, provenance, status
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.supervise import run_worker

USAGE = "usage: grinnder resume RUN_DIR [--json]"
_ORPHAN_WAIT_S = 60.0


def main(argv: list[str]) -> int:
    """Resume the run named in `argv`; a complete one is only shown again.

    Raises:
        ConfigError: not a run directory.
        InUse: the run is going on.
    """
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    words = [word for word in argv if word != "--json"]
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError(f"resume takes one run directory; {USAGE}")
    flags = {"json"} if "--json" in argv else set()
    directory = RunDirectory.open(Path(words[0]))
    config = freeze.load(directory.config_yaml)
    wait_until_free(directory)
    if status.read(directory.status_json).state == "complete":
        print(f"grinnder: {directory.path} is complete already", file=sys.stderr)
        show(directory, flags, brief=False, report=True)
        return 0
    if not any(directory.checkpoints.glob("epoch-*/MANIFEST.json")):
        print("grinnder: no checkpoint was written yet; the run starts from its first epoch", file=sys.stderr)
    ended = run_worker(directory, resume=True, cwd=_record(directory, Path(config.storage.dir)))
    return conclude(directory, ended, flags, brief=False).exit_code


def wait_until_free(directory: RunDirectory) -> None:
    """A worker whose parent was killed is already stopping; anybody else's run is left alone.

    Raises:
        InUse: the run is going on.
    """
    if not directory.is_locked():
        return
    if not directory.is_orphaned():
        raise InUse(f"{directory.path} is in use by {directory.holder()}; wait for it or stop it")
    print(f"grinnder: waiting for {directory.holder()}, which was told to stop", file=sys.stderr)
    with directory.lock(wait_s=_ORPHAN_WAIT_S):
        return


def _record(directory: RunDirectory, storage_dir: Path) -> str | None:
    """Rewrite environment.json for this process, older ones kept in it; the directory relative paths refer to."""
    facts = provenance.collect(argv=provenance.command_line(), storage_dir=storage_dir)
    try:
        before = json.loads(directory.environment_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if before:
        facts["previous"] = [*before.pop("previous", []), before]
    for name in ("dataset_fingerprint", "module_sha256"):  # of what the run began with
        facts[name] = before.get(name)
    cwd = before.get("cwd")
    facts["cwd"] = cwd if cwd and os.path.isdir(cwd) else facts["cwd"]
    atomic.write_json(directory.environment_json, facts)
    return facts["cwd"]
