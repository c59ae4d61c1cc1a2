"""Reads old scientific pickles without trusting them.

A pickle is a program that may call anything it can name. Here it can name a handful of things, all
harmless: for arrays, types and sparse matrices it gets stand-ins that only record what they are given,
and this module builds the real ones. Anything else is refused before it is called.
"""

import collections
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse

from grinnder_cli.errors import DataError

_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
)


class _Refused(Exception):
    """The pickle names something outside the list."""


class _Dtype:
    """Stands in for numpy.dtype: type code from the call, byte order from the state."""

    def __init__(self, code: str, *_flags: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]

    def real(self) -> np.dtype:
        if not isinstance(self.code, str) or self.code[:1] not in ("i", "u", "f", "b"):
            raise _Refused(f"an array of type {self.code!r}")
        return np.dtype((self.order if self.order in ("<", ">") else "=") + self.code)


class _Array:
    """Stands in for numpy.ndarray."""

    def __setstate__(self, state: tuple) -> None:
        _, self.shape, self.dtype, self.fortran, self.data = state

    def real(self) -> np.ndarray:
        data = self.data.encode("latin1") if isinstance(self.data, str) else self.data
        if not isinstance(self.dtype, _Dtype) or not isinstance(data, bytes):
            raise _Refused("an array of Python objects")
        flat = np.frombuffer(data, dtype=self.dtype.real())
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


def _reconstruct(*_arguments: object) -> _Array:
    """numpy's own first step: an empty array, filled by the state that follows."""
    return _Array()


class _Csr:
    """Stands in for scipy.sparse.csr_matrix."""

    def __setstate__(self, state: dict) -> None:
        self.state = state

    def real(self) -> scipy.sparse.csr_matrix:
        parts = [_real(self.state[key]) for key in ("data", "indices", "indptr")]
        matrix = scipy.sparse.csr_matrix(tuple(parts), shape=self.state["_shape"])
        matrix.check_format(full_check=True)
        return matrix


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a pickle of Python 2's protocol."""
    if encoding != "latin1":
        raise _Refused(f"text in {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
}
_ALLOWED |= {(module, "_reconstruct"): _reconstruct for module in ("numpy.core.multiarray", "numpy._core.multiarray")}
_ALLOWED |= {(module, "csr_matrix"): _Csr for module in ("scipy.sparse.csr", "scipy.sparse._csr")}
_ALLOWED |= {(module, "list"): list for module in ("__builtin__", "builtins")}
_ALLOWED |= {(module, "dict"): dict for module in ("__builtin__", "builtins")}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def _real(value: object) -> object:
    return value.real() if isinstance(value, (_Array, _Csr)) else value


def read_pickle(path: Path) -> object:
    """An array, a sparse matrix, or a dictionary of lists, from a pickle of Python 2 or 3.

    Raises:
        DataError: the file is missing, truncated, or asks for anything but numbers; nothing of it was run.
    """
    try:
        with open(path, "rb") as file:
            return _real(_Unpickler(file, fix_imports=False, encoding="latin1").load())
    except _Refused as error:
        raise DataError(
            f"{path} is a pickle that asks for {error}: refused, nothing was run; fetch the published file"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check dataset.path") from error
    except _BROKEN as error:
        size = path.stat().st_size
        raise DataError(f"{path} ({size} bytes) is truncated or corrupt ({error}); fetch it again") from error
