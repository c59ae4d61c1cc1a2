"""The words of a command line, put in order and checked before Hydra sees them.

Hydra 1.3 rejects overrides on both sides of a flag, recommends `+key` for a typo and accepts
`+nonsense=1` under a structured schema; here a word is known or refused with the nearest one.
"""

import difflib
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grinnder_cli.config.keys import LITERAL_KEYS, did_you_mean, known_keys, sections
from grinnder_cli.config.paths import conf_dir
from grinnder_cli.errors import ConfigError

VALUED_FLAGS = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir",
                "-cd", "--experimental-rerun")  # fmt: skip
SWITCHES = ("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--info", "-i")
_WORD = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=]*)(?P<equals>=)?(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A command line in the order Hydra wants.

    Attributes:
        flags: Hydra's flags with their values.
        overrides: `key=value` and `group=option` words.
        multirun: whether it is a sweep.
    """

    flags: tuple[str, ...]
    overrides: tuple[str, ...]
    multirun: bool

    @property
    def argv(self) -> list[str]:
        return [*self.flags, *self.overrides]


def prepare(argv: list[str]) -> CommandLine:
    """Flags first, user directories added, every override known.

    Raises:
        ConfigError: an unknown flag, key, group or option, or a word that is none of these.
    """
    flags, words = _split(argv)
    flags, words, user_dirs = _add_user_dirs(flags, words)
    groups = find_groups([conf_dir(), *user_dirs])
    multirun = "-m" in flags or "--multirun" in flags
    checked = tuple(_check(word, groups, multirun) for word in words)
    return CommandLine(flags=tuple(flags), overrides=checked, multirun=multirun)


def find_groups(directories: Iterable[Path]) -> dict[str, list[str]]:
    """Group -> options of the configuration directories, Hydra's own left out."""
    groups: dict[str, list[str]] = {}
    for directory in directories:
        for file in sorted(directory.rglob("*.yaml")):
            group = file.parent.relative_to(directory).as_posix()
            if group != "." and not group.startswith("hydra"):
                groups.setdefault(group, []).append(file.stem)
    return groups


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    flags, words, rest = [], [], iter(argv)
    for token in rest:
        name = token.partition("=")[0]
        if not token.startswith("-"):
            words.append(token)
        elif name in VALUED_FLAGS:
            flags.append(token)
            if "=" not in token:
                value = next(rest, None)
                if value is None:
                    raise ConfigError(f"{token} needs a value")
                flags.append(value)
        elif name in SWITCHES:
            flags.append(token)
        else:
            known = (*VALUED_FLAGS, *SWITCHES, "--json", "--yes", "--dry-run")
            raise ConfigError(f"unknown flag '{token}'{did_you_mean(token, known)}")
    return flags, words


def _add_user_dirs(flags: list[str], words: list[str]) -> tuple[list[str], list[str], list[Path]]:
    """--config-dir as given; $GRINNDER_CONF as a second one (a search path entry when both are there)."""
    given = []
    for flag, following in itertools.pairwise([*flags, ""]):
        name, _, value = flag.partition("=")
        if name in ("--config-dir", "-cd"):
            given.append(Path(value or following))
    from_env = [Path(os.environ["GRINNDER_CONF"])] if os.environ.get("GRINNDER_CONF") else []
    for directory in (*given, *from_env):
        if not directory.is_dir():
            origin = "--config-dir" if directory in given else "GRINNDER_CONF"
            raise ConfigError(f"{origin} names '{directory}', which is not a directory")
    if from_env and not given:
        flags = [*flags, "--config-dir", str(from_env[0])]
    elif from_env and not any(word.startswith("hydra.searchpath=") for word in words):
        words = [*words, f"hydra.searchpath=[{_quote('file://' + str(from_env[0].resolve()))}]"]
    return flags, words, given + from_env


def _check(word: str, groups: Mapping[str, list[str]], multirun: bool) -> str:
    """`word` as Hydra should get it."""
    match = _WORD.fullmatch(word)
    assert match is not None
    sign, key, value = match["sign"] or "", match["key"], match["value"]
    group = key.partition("@")[0]
    if key.startswith(("hydra.", "hydra/")):
        return word
    if match["equals"] is None and sign != "~":
        hint = f" ({word}=...)" if key in known_keys() or group in groups else ""
        raise ConfigError(f"'{word}' is neither a flag nor key=value{hint}")
    if key not in known_keys() and group not in groups:
        if key in sections():
            members = ", ".join(k for k in known_keys() if k.startswith(f"{key}."))
            raise ConfigError(f"'{key}' is a section, not a key; it holds {members}")
        hint = did_you_mean(key, [*groups, *known_keys()]) or "; --help lists all keys"
        raise ConfigError(f"unknown key '{key}'{hint}")
    if sign == "~":
        raise ConfigError(f"'{word}': keys cannot be deleted; set a value instead")
    if sign == "+" and (group not in groups or group in sections() or group in ("experiment", "debug")):
        raise ConfigError(f"'{word}': the key exists already; write {word[1:]}")
    if group in groups and re.fullmatch(r"[\w.-]+", value) and value not in (*groups[group], "null"):
        raise unknown_option(group, value, groups[group])
    return _readable(word, key, value, multirun)


def unknown_option(group: str, option: str, known: Iterable[str]) -> ConfigError:
    """The error for `group=option` where no such option exists."""
    known = sorted(set(known))
    near = difflib.get_close_matches(option, known, 1, 0.6)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return ConfigError(f"unknown {group} '{option}'; {hint}known: {', '.join(known)}")


def _readable(word: str, key: str, value: str, multirun: bool) -> str:
    """Quote a path that Hydra's grammar would read as something else; refuse other words it cannot read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    literal = key in LITERAL_KEYS and value not in ("", "null") and "${" not in value
    literal = literal and not (multirun and "," in value)
    try:
        override = OverridesParser.create().parse_override(word)
        sweep = override.is_sweep_override()
        if literal and (sweep or override.value() != value) and not re.match(r"['\"]", value):
            return f"{key}={_quote(value)}"
    except HydraException as error:
        if literal and not re.match(r"['\"]", value):
            return f"{key}={_quote(value)}"
        raise ConfigError(f"cannot read '{word}'; if the value is text, write {_typed(key, value)}") from error
    if sweep and not multirun:
        raise ConfigError(f"'{word}' names several values; add -m for a sweep, or write {_typed(key, value)}")
    return word


def _quote(value: str) -> str:
    """`value` as a quoted string of Hydra's grammar."""
    escaped = re.sub(r"\\+$", lambda m: m[0] * 2, re.sub(r"(\\*)'", lambda m: m[1] * 2 + r"\'", value))
    return f"'{escaped}'"


def _typed(key: str, value: str) -> str:
    """What to type in a shell for `value` to arrive as text."""
    word = f"{key}={_quote(value)}"
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'
