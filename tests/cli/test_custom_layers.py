"""A user's file of layers, from a folder that has nothing to do with the run, by the documented command."""

import csv
import json
import re

from grinnder_process import ROOT, grinnder
from safetensors.numpy import load_file

DOCS = (ROOT / "docs/custom_layers.md").read_text()


def test_offloaded_equals_in_memory(tmp_path):
    """The documented example, in pieces on disk and whole in memory; a module of the user's own lies beside it."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    models, project = tmp_path / "my models", tmp_path / "project"
    for folder in (models, project):
        folder.mkdir()
    (models / "my_heads.py").write_text("HEADS = 2\n")
    (models / "my_layers.py").write_text("from my_heads import HEADS\n" + code.replace("heads=2", "heads=HEADS"))
    common = [
        "train", "dataset=karate", "model=custom", f"model.module='{models}/my_layers.py:MyModel'", "layers=3",
        "hidden=8", "dtype=float64", "epochs=3", "progress=off", "--json",
    ]  # fmt: skip
    runs = []
    for keys in (["parts=4", "cache=none"], ["parts=1"]):
        done = grinnder(project, *common, *keys, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    offloaded, whole = runs
    assert offloaded["method"] == "regather" and offloaded["measured_write_bytes"] > 0
    assert offloaded["measured_read_bytes"] == offloaded["predicted_read_bytes"] > 0
    assert whole["parts"] == 1 and whole["measured_write_bytes"] == 0
    curves, weights = zip(*((losses(project, run), newest(project, run)) for run in runs), strict=True)
    assert len(curves[0]) == 3 and len(set(curves[0])) == 3
    assert all(abs(a / b - 1) < 1e-9 for a, b in zip(*curves, strict=True))
    for name, tensor in weights[0].items():
        assert abs(tensor - weights[1][name]).max() < 1e-9, name
    with (models / "my_layers.py").open("a", encoding="utf-8") as file:
        file.write("# another model, for all anybody knows\n")
    done = grinnder(project, "predict", offloaded["run_dir"], PYTHONPATH=str(ROOT))
    assert done.returncode == 2 and "has changed since the run began" in done.stderr


def losses(project, run):
    with open(project / run["run_dir"] / "metrics.csv", encoding="utf-8") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


def newest(project, run):
    return load_file(project / run["run_dir"] / "checkpoints/epoch-000003/weights.safetensors")
