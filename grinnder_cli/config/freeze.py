"""A configuration in its three forms: the frozen `RunConfig`, plain data (YAML, JSON), Hydra's `DictConfig`.

Hydra composes once, in the parent process; everything after that sees only a `RunConfig`.
OmegaConf is imported inside the two functions that need it, so that a worker reads its frozen
configuration without it.
"""

import hashlib
import json
import os
import types
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

import yaml

from grinnder_cli.config import checks
from grinnder_cli.config.keys import DATA_KEYS, PATH_KEYS, did_you_mean, known_keys
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_NOT_IN_HASH = ("out", "data.dir", *DATA_KEYS, "storage.dir", "progress", "rerun", "on_fail", "bench")
"""Keys that change neither weights nor figures."""


def register() -> None:
    """Give Hydra the schema: the config named `schema` that every primary config starts from."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    node = OmegaConf.structured(RunConfig)
    _make_writable(node)
    ConfigStore.instance().store(name="schema", node=node, provider="grinnder")


def freeze(config: "DictConfig") -> RunConfig:
    """The composed configuration as a checked, immutable `RunConfig`; paths get their `~` expanded.

    Raises:
        ConfigError: a required key is missing, an interpolation leads nowhere, or a value is not acceptable.
    """
    from omegaconf import OmegaConf

    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise ConfigError(f"required: {', '.join(missing)}; set with {missing[0]}=VALUE")
    plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    for key in PATH_KEYS:
        *section, name = key.split(".")
        node = plain[section[0]] if section else plain
        if isinstance(node[name], str):
            node[name] = os.path.expanduser(node[name])
    return from_plain(plain)


def to_plain(config: RunConfig) -> dict[str, Any]:
    """Nested dict of strings, numbers, booleans and None."""
    return asdict(config)


def from_plain(data: dict[str, Any]) -> RunConfig:
    """The inverse of `to_plain`; keys that are absent take their defaults.

    Raises:
        ConfigError: unknown key, wrong type, or a value that `checks` refuses.
    """
    config = _build(RunConfig, data, "")
    checks.check(config)
    return config


def save(config: RunConfig, path: Path) -> None:
    """Write `config` as YAML; the caller owns the directory."""
    path.write_text(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True), encoding="utf-8")


def load(path: Path) -> RunConfig:
    """Read a file that `save` wrote.

    Raises:
        ConfigError: missing, not YAML, or not a configuration.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {getattr(error, 'strerror', error)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no configuration (a mapping of keys to values)")
    return from_plain(data)


def config_hash(config: RunConfig, *, version: str, dataset_fingerprint: str) -> str:
    """sha256 hex over all that changes a run's results or figures: settings, package version, data."""
    data = to_plain(config)
    for key in _NOT_IN_HASH:
        *section, name = key.split(".")
        del (data[section[0]] if section else data)[name]
    text = json.dumps({"config": data, "version": version, "dataset": dataset_fingerprint}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _make_writable(node: "DictConfig") -> None:
    """OmegaConf marks frozen dataclasses read-only, which would make Hydra refuse every override."""
    from omegaconf import DictConfig

    node._set_flag("readonly", None)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig):
            _make_writable(child)


def _build(cls: type, data: Any, prefix: str) -> Any:
    if not isinstance(data, dict):
        raise ConfigError(f"{prefix.rstrip('.')} is a section of keys, not a value; it holds {data!r}")
    hints = get_type_hints(cls)
    names = {f.name: f for f in fields(cls)}
    values = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        if name not in names:
            raise ConfigError(f"unknown key '{key}'{did_you_mean(key, known_keys())}")
        if is_dataclass(hints[name]):
            values[name] = _build(hints[name], value, f"{key}.")
        else:
            values[name] = _convert(key, value, hints[name], names[name].metadata.get("choices", ()))
    return cls(**values)


def _convert(key: str, value: Any, hint: Any, choices: tuple[str, ...]) -> Any:
    accepted = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    if isinstance(value, bool) and "off" in choices:
        return "on" if value else "off"  # YAML 1.1 reads a bare on/off as a boolean
    if isinstance(value, str) and int in accepted and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if float in accepted and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    for kind in accepted:
        if type(value) is kind:
            return value
    if str in accepted and not isinstance(value, dict | list | bool | float) and value is not None:
        return str(value)
    wanted = " or ".join(
        {"NoneType": "null", "str": "text", "int": "an integer", "float": "a number", "bool": "true or false"}[
            kind.__name__
        ]
        for kind in accepted
    )
    raise ConfigError(f"{key}={value} must be {wanted}")
