"""`grinnder bench`: what it prints, remembers and leaves behind. Nothing is said about how fast anything is."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from grinnder_process import grinnder

from grinnder_cli.bench import kernels, overhead, storage
from grinnder_cli.commands import bench
from grinnder_cli.config.freeze import from_plain
from grinnder_cli.config.schema import BenchConfig, DataConfig, RunConfig, StorageConfig
from grinnder_cli.errors import ConfigError, DoesNotFit, Interrupted
from grinnder_cli.plan.rates import at
from grinnder_cli.run.rates import load_rates

TINY = ("bench.size=4MiB", "bench.seconds=0.2", "storage.dir=scratch", "progress=off")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Tiny shapes; signal handlers of the test process are put back."""
    tiny = kernels.Sizes(gathered=65536, copied=65536, stretch=16384, square=16)
    for name, value in (("OPERANDS", (4096, 65536)), ("WIDTHS", (4, 16)), ("SIZES", {"cpu": tiny, "cuda": tiny})):
        monkeypatch.setattr(kernels, name, value)
    monkeypatch.setattr(overhead, "PARTS", (1, 3))
    monkeypatch.setattr(overhead, "EPOCHS", 5)
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield RunConfig(
        bench=BenchConfig(size="4MiB", seconds=0.1), progress="off", device="cpu",
        data=DataConfig(dir=str(tmp_path / "data")), storage=StorageConfig(dir=str(tmp_path / "scratch")),
    )  # fmt: skip
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_storage_as_a_user_runs_it(tmp_path):
    done = grinnder(tmp_path, "bench", "storage", *TINY, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    cells = {(row["backend"], row["op"], row["block_bytes"], row["depth"]) for row in facts["rows"]}
    assert cells >= {(name, op, 65536, depth) for name in ("plain", "posix") for op in ("read", "write")
                     for depth in (1, 8)}  # fmt: skip
    best = {op: max(r["bytes_per_s"] for r in facts["rows"] if (r["backend"], r["op"]) == ("plain", op))
            for op in ("read", "write")}  # fmt: skip
    assert facts["ceiling"] == best
    for row in facts["rows"]:
        assert row["bytes_per_s"] > 0 and row["share"] == pytest.approx(row["bytes_per_s"] / best[row["op"]])
    assert {row["backend"] for row in facts["rows"]} | set(facts["absent"]) == {"plain", *storage.BACKENDS}
    assert Path(facts["remembered"]).is_file() and Path(facts["remembered"]).is_relative_to(tmp_path / "data")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_fallback_is_said_loudly(tmp_path):
    done = grinnder(tmp_path, "bench", *TINY, "storage", GRINNDER_NO_NATIVE="1")
    assert done.returncode == 0, done.stderr
    assert "!! FALLBACK: storage=auto falls back to posix" in done.stderr
    assert "plain" in done.stdout and "uring" not in done.stdout and "\x1b" not in done.stdout


def test_o_direct_refused_is_said_loudly(config, monkeypatch):
    monkeypatch.setattr("grinnder_cli.storage.files.go_direct", lambda fd: False)
    monkeypatch.setattr(storage, "go_direct", lambda fd: False)
    found = storage.measure(config.storage, "x", 1 << 20, 0.05)
    assert any("O_DIRECT is refused" in banner for banner in found.banners)


def test_what_both_remember_predicts(config, capsys):
    assert bench.run(config, frozenset({"kernels", "storage", "json"})) == 0
    disk, found = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (disk["subject"], found["subject"]) == ("storage", "kernels")
    names = {row["kernel"] for row in found["rows"]}
    assert names == {"spmm", "gather_rows", "gemm", "dropout", "norm_act", "norm_act_grad"}
    for row in found["rows"]:
        assert row["ours_s"] > 0 and row["torch_s"] > 0 and row["share"] > 0
        assert row["unshared_share"] >= row["share"] or row["operations"]
    rates, note = load_rates(replace(config, storage=replace(config.storage, name=disk["resolved"])))
    assert rates is not None, note
    assert rates.copy == found["copy"] and len(rates.spmm) == 2
    # of 64 rows of 16 columns and 16 neighbours each, SpMM gathers 65,536 bytes
    (row,) = (r for r in found["rows"] if (r["kernel"], r["width"], r["operand_bytes"]) == ("spmm", 16, 65536))
    assert rates.spmm_rate(64, 65536) == pytest.approx(65536 / row["ours_s"])
    (row,) = (r for r in found["rows"] if (r["kernel"], r["width"]) == ("gather_rows", 16))
    assert at(rates.gather, 64) == pytest.approx(65536 / 4 / row["ours_s"])


@pytest.mark.requires_gpu
def test_a_gpu_and_its_bus(config, capsys):
    memory = replace(config, device="cuda", storage=replace(config.storage, name="memory"))
    assert bench.run(memory, frozenset({"kernels", "json"})) == 0
    found = json.loads(capsys.readouterr().out)
    there = {row["kernel"] for row in found["rows"] if row["device"] == "cuda"}
    assert there >= {"copy_h2d", "copy_d2h", "regather", "spmm", "gather_rows", "gemm", "norm_act"}
    rates, note = load_rates(memory, gpu=True)
    assert rates is not None and rates.gpu is not None, note
    assert len(rates.gpu.spmm) == 2 and rates.gpu.visit_s > 0


def test_the_table_for_terminals_shows_the_same(config, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "250")
    assert bench.run(config, frozenset({"storage"})) == 0
    assert "of the disk's best" in capsys.readouterr().out


def test_no_room_is_refused_before_a_byte_is_written(config):
    with pytest.raises(DoesNotFit, match="bench needs 4096.0 TiB of scratch .* set bench.size or storage.dir"):
        storage.measure(config.storage, "x", 1 << 52, 0.1)
    assert list(Path(config.storage.dir).iterdir()) == []


def test_an_interruption_leaves_nothing_behind(config):
    calls = iter(range(100))

    def check():
        if next(calls) == 9:  # in the middle of the cells
            raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")

    with pytest.raises(Interrupted):
        storage.measure(config.storage, "x", 4 << 20, 0.1, check)
    assert list(Path(config.storage.dir).iterdir()) == []


def test_nothing_to_measure_is_a_usage_error(config):
    with pytest.raises(ConfigError, match="grinnder bench storage"):
        bench.run(config, frozenset())


@pytest.mark.parametrize(
    "values,message",
    [({"size": "lots"}, "bench.size=lots is not a size"), ({"seconds": 0.0}, "bench.seconds=0.0 is out of range"),
     ({"seconds": float("nan")}, "bench.seconds=nan is out of range")],
)  # fmt: skip
def test_sizes_and_seconds_are_checked(values, message):
    with pytest.raises(ConfigError, match=message):
        from_plain({"bench": values})
