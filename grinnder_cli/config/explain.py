"""One line for what Hydra and OmegaConf have to say about a configuration they cannot compose."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from grinnder_cli.config.keys import did_you_mean, known_keys
from grinnder_cli.errors import ConfigError

if TYPE_CHECKING:
    from hydra.errors import MissingConfigException

_KINDS = {"Integer": "an integer", "Float": "a number", "Bool": "true or false", "str": "text"}


def is_config_failure(error: BaseException) -> bool:
    """Whether `error` comes from composing a configuration rather than from our own code."""
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return isinstance(error, HydraException | OmegaConfBaseException | yaml.YAMLError)


def explain(error: BaseException) -> ConfigError:
    """The `ConfigError` that says what `error` means: the key, its value, what to write instead."""
    import yaml
    from hydra.errors import MissingConfigException
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        InterpolationKeyError,
        InterpolationResolutionError,
        ValidationError,
    )

    chain = list(_causes(error))
    key = next((c.full_key for c in chain if getattr(c, "full_key", None)), "")  # type: ignore[attr-defined]
    file = re.match(r"In '(.+?)': \w+ raised", str(error))
    where = f" (in {file[1]}.yaml)" if file else ""
    for cause in chain:
        text = str(cause).strip().split("\n")[0]
        if isinstance(cause, MissingConfigException):
            return _missing_config(cause)
        if isinstance(cause, yaml.YAMLError):
            return ConfigError(f"not valid YAML: {' '.join(str(cause).split())}")
        if isinstance(cause, InterpolationResolutionError):
            name = re.search(r"'(.+)'", text) if isinstance(cause, InterpolationKeyError) else None
            return ConfigError(f"{key}: {text}{did_you_mean(name[1], known_keys()) if name else ''}")
        if isinstance(cause, ConfigKeyError | ConfigAttributeError):
            return ConfigError(f"unknown key '{key}'{did_you_mean(key, known_keys())}{where}")
        if isinstance(cause, ValidationError):
            return ConfigError(_wrong_type(key, text, chain) + where)
    return ConfigError(" ".join(str(chain[-1]).split()) or type(chain[-1]).__name__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The innermost cause first: it knows the key; those around it know only that something failed."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return reversed(chain)


def _missing_config(error: "MissingConfigException") -> ConfigError:
    path = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, option = path.rpartition("/")
    if error.options:
        hint = did_you_mean(option, error.options) or ";"
        return ConfigError(f"unknown {group} '{option}'{hint} known: {', '.join(sorted(error.options))}")
    return ConfigError(" ".join(str(error).split("\n")[0].split()))


def _wrong_type(key: str, text: str, chain: list[BaseException]) -> str:
    value = next((c.value for c in chain if getattr(c, "value", None) is not None), None)  # type: ignore[attr-defined]
    shown = f"{key}={value}" if value is not None else key
    if key == "parts":
        return f"{shown} must be an integer, at least 1, or auto"
    for kind, wanted in _KINDS.items():
        if text.endswith(f"could not be converted to {kind}"):
            return f"{shown} must be {wanted}"
    return f"{shown}: {text}"
