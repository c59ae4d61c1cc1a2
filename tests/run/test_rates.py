"""What bench remembered: read back as it was, and left alone where it is damaged or foreign."""

import json
from dataclasses import replace

import pytest

from grinnder_cli.config.schema import DataConfig, RunConfig, StorageConfig
from grinnder_cli.plan.rates import at
from grinnder_cli.run import rates

KERNELS = {
    "copy": 1e10, "gather": [[64, 2e9]], "spmm": [[64, [[1e6, 4e9]]], [1024, [[1e6, 8e9], [1e8, 2e9]]]],
    "gemm": [[16, 1e10]], "norm": [[64, 2e9]], "norm_grad": [[64, 1e9]], "stretch_s": [1e-4, 2e-4, 3e-4],
    "visit_s": 2e-4, "action_s": 0.0, "gpu": None,
}  # fmt: skip
GPU = {"h2d": 1e10, "d2h": 1e10, "regather": 1e10, "spmm": [[64, 1e12]], "gemm": [[64, 1e13]], "rows": 1e12,
       "visit_s": 1e-4}  # fmt: skip
STORAGE = {
    "resolved_auto": "uring",
    "rows": [
        {"backend": backend, "op": op, "block_bytes": block, "depth": depth, "bytes_per_s": rate * depth * block}
        for backend, rate in (("plain", 9.0), ("uring", 2.0), ("posix", 1.0))
        for op in ("read", "write") for block in (8 << 20, 65536) for depth in (1, 8)
    ],
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    return RunConfig(data=DataConfig(dir=str(tmp_path / "data")), storage=StorageConfig(dir=str(tmp_path)))


def remembered(config, kernels=KERNELS, storage=STORAGE):
    folder = rates.data_dir(config.data)
    rates.remember(rates.kernels_memo(folder), kernels)
    rates.remember(rates.storage_memo(folder, rates.Path(config.storage.dir)), storage)
    return rates.kernels_memo(folder).path, rates.storage_memo(folder, rates.Path(config.storage.dir)).path


def test_what_was_remembered_is_loaded(config):
    remembered(config)
    found, note = rates.load_rates(config)
    assert note.startswith("measured 2")
    assert found.read == ((65536.0, 2.0 * 8 * 65536), (float(8 << 20), 2.0 * 8 * (8 << 20)))  # uring, the deepest
    assert found.spmm_rate(1024, 1e8) == 2e9 and found.limit is None and found.action_s == 0
    posix = replace(config, storage=replace(config.storage, name="posix", max_gib_s=0.5))
    found, _ = rates.load_rates(posix)
    assert at(found.write, 1) == 8 * 65536 and found.limit == 2**29


def test_memory_needs_no_disk(config):
    rates.remember(rates.kernels_memo(rates.data_dir(config.data)), KERNELS)
    assert rates.load_rates(config)[0] is None
    found, _ = rates.load_rates(replace(config, storage=replace(config.storage, name="memory")))
    assert at(found.read, 1) == 5e9


def test_nothing_remembered_names_the_command(config):
    assert rates.load_rates(config) == (None, "run `grinnder bench kernels` for predicted seconds")


def test_a_gpu_needs_its_own_rates(config):
    remembered(config)
    assert "grinnder bench kernels" in rates.load_rates(config, gpu=True)[1]
    remembered(config, KERNELS | {"gpu": GPU})
    assert rates.load_rates(config, gpu=True)[0].gpu.h2d == 1e10


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"version": 1', '"version": 999'),
        lambda text: text.replace('"copy"', '"kopie"').replace('"rows"', '"zeilen"'),
        lambda text: text.replace('"host": "', '"host": "another-'),
        lambda text: json.dumps(json.loads(text) | {"facts": None}),
    ],
    ids=["cut short", "no mapping", "version", "a rate missing", "another host", "no facts"],
)
@pytest.mark.parametrize("which", [0, 1], ids=["kernels", "storage"])
def test_a_damaged_or_foreign_file_is_not_used(config, which, spoil):
    path = remembered(config)[which]
    path.write_text(spoil(path.read_text()))
    spoilt = path.read_text()
    found, note = rates.load_rates(config)
    assert found is None and f"grinnder bench {('kernels', 'storage')[which]}" in note
    assert path.read_text() == spoilt


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "fast", None, True])
def test_a_rate_that_is_none_is_not_used(config, value):
    remembered(config, KERNELS | {"copy": value})
    assert rates.load_rates(config)[0] is None
