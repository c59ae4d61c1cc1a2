"""What `grinnder plan` looks at: features are never read where stores are; an estimate says so where they are not."""

import os
from dataclasses import replace

import lab
import pytest

from grinnder_cli.commands.plan import describe
from grinnder_cli.commands.plan_text import text
from grinnder_cli.config.schema import DataConfig, DatasetConfig, MemoryConfig, RunConfig
from grinnder_cli.errors import DataError
from grinnder_cli.run import outlook
from grinnder_cli.run.outlook import look
from grinnder_cli.run.preparation import prepare_run

BIG = RunConfig(
    dataset=DatasetConfig(name="sbm", num_nodes=3_000_000, num_edges=30_000_000), parts=16, device="cpu", hidden=64,
    memory=MemoryConfig(host="8GiB"),
)  # fmt: skip


def spoil(path, keep: int = 0) -> None:
    """Another content, the same size and time of change."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(keep)
        file.write(os.urandom(status.st_size - keep))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_nothing_of_the_features_is_read(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz")
    config = replace(lab.config(path, tmp_path), data=DataConfig(dir=str(tmp_path / "data")))
    prepare_run(config)
    facts = describe(config, look(config))
    assert not facts["estimate"] and facts["predicted_read_bytes"] > 0
    spoil(path)
    (stored,) = (tmp_path / "data").glob("graphs/*/x.npy")
    spoil(stored, keep=128)  # numpy's header stays
    assert describe(config, look(config)) == facts
    with pytest.raises(DataError):  # a run does read it
        prepare_run(config)


def test_an_estimate_says_so_and_makes_nothing(tmp_path):
    config = replace(BIG, data=DataConfig(dir=str(tmp_path / "data")))
    found = look(config)
    facts = describe(config, found)
    assert facts["estimate"] and facts["fits"] and facts["alpha"] > 1.5
    assert "estimate: no partition store yet, alpha" in text(found, facts)
    assert not (tmp_path / "data").exists()
    random = replace(config, partitioner=replace(config.partitioner, name="random"))
    assert describe(random, look(random))["alpha"] > facts["alpha"]


def test_stored_parts_end_the_estimate(tmp_path, monkeypatch):
    monkeypatch.setattr(outlook, "QUICK_SIZE", 0)
    path = lab.hard_graph(tmp_path / "g.npz", nodes=900, edges=5000)
    config = replace(lab.config(path, tmp_path, parts=4), data=DataConfig(dir=str(tmp_path / "data")))
    about = describe(config, look(config))
    assert about["estimate"] and not (tmp_path / "data").exists()
    prepared = prepare_run(config)
    exact = describe(config, look(config))
    assert not exact["estimate"] and exact["predicted_read_bytes"] == prepared.plan.total.read_bytes
    # The partitioner is a random one, for which the rule assumes the worst: it is near.
    assert about["read_bytes_per_epoch"] == pytest.approx(exact["read_bytes_per_epoch"], rel=0.25)
    other = replace(config, parts=8)
    assert describe(other, look(other))["estimate"], "of these parts nothing is stored"


def test_small_graphs_are_exact_at_once(tmp_path):
    config = RunConfig(dataset=DatasetConfig(name="karate"), data=DataConfig(dir=str(tmp_path / "data")), device="cpu")
    assert not describe(config, look(config))["estimate"]


def test_writes_beside_the_drives_endurance(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz")
    config = lab.config(path, tmp_path)
    config = replace(config, storage=replace(config.storage, endurance="1GB"))
    facts = describe(config, look(config))
    assert facts["write_bytes_per_100_epochs"] == 100 * facts["write_bytes_per_epoch"] > 0
    assert facts["endurance_share_per_100_epochs"] == pytest.approx(facts["write_bytes_per_100_epochs"] / 1e9)
    assert "% of storage.endurance" in text(look(config), facts)


def test_every_byte_of_the_table_is_in_the_totals(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz", nodes=500, edges=3000)
    config = lab.config(path, tmp_path, cache="opt", host=str(6 << 20), hidden=64, epochs=6)
    plan = prepare_run(replace(config, memory=MemoryConfig(host="1GiB"))).plan
    host = str(plan.least + plan.need.chunks // 3)
    found = look(replace(config, memory=MemoryConfig(host=host)))
    facts = describe(config, found)
    assert sum(t["read_bytes_per_epoch"] for t in facts["tensors"]) == facts["read_bytes_per_epoch"] > 0
    assert sum(t["write_bytes_per_epoch"] for t in facts["tensors"]) == facts["write_bytes_per_epoch"] > 0
    places = {t["place"] for t in facts["tensors"]}
    assert any("host cache" in p for p in places) and any(p.startswith("storage") for p in places)
    assert facts["lower_bound_read_bytes"] <= facts["predicted_read_bytes"]
