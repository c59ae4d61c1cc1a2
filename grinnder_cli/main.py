"""Console entry: pick the subcommand, hand it the rest of the line, map the outcome to an exit code.

Only the chosen command is imported, and torch by none of what stands here: `--help`, completion
and `tables` answer at once.
"""

import importlib
import os
import sys

from grinnder_cli import __version__
from grinnder_cli.commands import compose
from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.errors import ConfigError

COMPOSED = {
    "train": "train a model, once or as a sweep (-m)",
    "plan": "sizes, bytes and fit of a run, without running it",
    "partition": "build or reuse the partition store",
    "bench": "measure this machine: grinnder bench storage, grinnder bench kernels",
}
"""Commands whose configuration Hydra composes; module `grinnder_cli.commands.<name>`, function `run`."""

PLAIN = {
    "resume": "continue an interrupted run bit-exactly: grinnder resume RUN_DIR",
    "predict": "predictions of every node by a run: grinnder predict RUN_DIR [--best] [--embeddings]",
    "tables": "result tables of many runs: Markdown, CSV, LaTeX",
    "data": "data sets: list, info, verify, fetch, generate",
    "doctor": "check this machine and say what to mend",
    "clean": "list scratch that dead runs left; --yes removes it",
}
"""Commands with arguments of their own; module `grinnder_cli.commands.<name>`, function `main`."""

SUBJECTS = {"bench": ("storage", "kernels")}
"""Words of a composed command that say what it is about; taken out of the line as our own flags are."""

OWN_FLAGS = ("--json", "--yes", "--dry-run")
"""Taken out of a composed command's line wherever they stand, before Hydra sees it."""


def main() -> int:
    """The `grinnder` command."""
    try:
        return dispatch(sys.argv[1:])
    except BrokenPipeError:
        return compose.drop_stdout()
    except (Exception, KeyboardInterrupt) as error:
        return compose.tell(error)


def dispatch(argv: list[str]) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code.

    Raises:
        GrinnderError: its exit code is the process's.
    """
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("-h", "--help", "help"):
        print(usage())
        return 0
    if command in ("-V", "--version"):
        print(f"grinnder {__version__}")
        return 0
    if command in ("-sc", "--shell-completion"):
        return _complete(rest)
    if command in COMPOSED:
        ours = (*OWN_FLAGS, *SUBJECTS.get(command, ()))
        flags = frozenset(word.removeprefix("--") for word in rest if word in ours)
        rest = [word for word in rest if word not in ours]
        return compose.run(command, f"grinnder_cli.commands.{command}", rest, flags)
    if command in PLAIN:
        return importlib.import_module(f"grinnder_cli.commands.{command}").main(rest)
    if not command:
        print(usage(), file=sys.stderr)
        return 2
    known = [*COMPOSED, *PLAIN]
    raise ConfigError(f"unknown command '{command}'{did_you_mean(command, known)} (commands: {', '.join(known)})")


def usage() -> str:
    """What `grinnder --help` prints."""
    lines = [f"  {name:<10} {text}" for name, text in (COMPOSED | PLAIN).items()]
    return "\n".join([
        "grinnder: exact full-graph GNN training with layer tensors on storage",
        "",
        "usage: grinnder COMMAND [group=option] [key=value] [-m] [--json] [--dry-run]",
        "",
        *lines,
        "",
        "grinnder COMMAND --help shows its groups and keys; grinnder --version the version.",
        'Completion: eval "$(grinnder -sc install=bash)". Settings of this machine: --config-dir DIR or GRINNDER_CONF.',
    ])  # fmt: skip


def _complete(rest: list[str]) -> int:
    """Shell completion: commands are ours, what follows one is Hydra's, which must not see the command's name."""
    command = "train"
    if rest[:1] and rest[0].startswith("query"):
        program, _, line = os.environ.get("COMP_LINE", "").partition(" ")
        command, space, tail = line.lstrip().partition(" ")
        if not space:
            print(" ".join([*COMPOSED, *PLAIN]))
            return 0
        if command not in COMPOSED:
            return 0
        subjects = SUBJECTS.get(command, ())
        if subjects and " " not in tail and "=" not in tail:
            print(" ".join(subjects))
            return 0
        if tail.partition(" ")[0] in subjects:
            tail = tail.partition(" ")[2]
        os.environ["COMP_LINE"] = f"{program} {tail}"
    return compose.complete(command, ["-sc", *rest])


if __name__ == "__main__":
    sys.exit(main())
