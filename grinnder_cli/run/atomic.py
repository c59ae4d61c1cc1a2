"""Small files that are either the old one or the new one, never half of each."""

import json
import os
from pathlib import Path
from typing import Any

from grinnder_cli.run import durable


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text`, on disk when this returns.

    Raises:
        StorageError: the system refused; the old file is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        durable.write_new(temporary, text.encode())
        durable.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as indented JSON.

    Raises:
        StorageError: the system refused; the old file is still there.
    """
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
