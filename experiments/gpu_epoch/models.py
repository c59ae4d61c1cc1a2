"""Models x methods on a GPU: layer tensors in host memory, the same on the disk, and GAT against PyG in memory.

    python experiments/gpu_epoch/models.py [--only host disk pyg] [--work DIR] [--out DIR]

The graph is products-sized, half of that for the disk and an eighth for PyG, whose attention has a message per edge.
Rows are those of run.py beside it. One memory.host serves all methods of a model on the disk: half more than the
hungriest needs at least.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run

MODELS = {"gcn": [], "sage": [], "gat": ["model.heads=1"]}
METHODS = ("pull", "regather", "hongtu")
SHARES = {"host": 1, "disk": 2, "pyg": 8}
"""Section -> what the number of nodes is divided by."""


def main() -> None:
    """Run the sections asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--work", type=Path, help="where data, runs and scratch go (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=run.ROOT / "results" / "published" / "gpu_models")
    parser.add_argument("--nodes", type=int, default=2_449_029, help="of the largest graph")
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=9, help="of rows in memory")
    parser.add_argument("--commit", help="what is measured, where git cannot tell (a copy of the tree)")
    parser.add_argument("--prepare", action="store_true", help="make the stores in --work, and nothing else")
    parser.add_argument("--device", default="cuda", help="cpu: try the script without a GPU")
    arguments = parser.parse_args()
    if arguments.prepare:
        for section in arguments.only:
            prepared(arguments, section)
    else:
        run.carry_out(arguments, [SECTIONS[name] for name in arguments.only])


def prepared(arguments: argparse.Namespace, section: str) -> list[str]:
    """The keys of a section's graph, its stores made: operators differ from model to model, A_hat X is pull's alone."""
    work = arguments.work / section
    work.mkdir(parents=True, exist_ok=True)
    nodes = arguments.nodes // SHARES[section]
    sized = argparse.Namespace(**vars(arguments) | {"nodes": nodes})
    common = run.keys(sized, work, run.made("products", sized, work))
    run.grinnder("partition", [*common, f"parts={arguments.parts}"])
    new = [m for m in arguments.models if section != "pyg" and not (work / f"{m}.prepared").exists()]

    def make(model: str) -> None:
        words = words_of(common, model, "pull", arguments.parts)
        run.grinnder("train", [*words, "epochs=1", "memory.host=24GiB"])
        (work / f"{model}.prepared").touch()

    with ThreadPoolExecutor(max(len(new), 1)) as pool:
        list(pool.map(make, new))
    return common


def words_of(common: list[str], model: str, method: str, parts: int) -> list[str]:
    return [*common, f"model={model}", *MODELS[model], f"method={method}", f"parts={parts}"]


def host(arguments: argparse.Namespace, result: dict) -> None:
    """Layer tensors in host memory; the device has room for two visits and the topology."""
    common = prepared(arguments, "host")
    for model in arguments.models:
        for method in arguments.methods:
            words = words_of(common, model, method, arguments.parts)
            bare = run.with_topology([*words, "memory.host=72GiB"])
            words += [f"memory.device={bare}", "memory.host=72GiB"]
            if method != "pull":
                words += ["epochs=5", "eval_every=5"]
            run.measure(f"{model}, {method}, in host memory", words, arguments, result, check=False, warm_up=2)


def disk(arguments: argparse.Namespace, result: dict) -> None:
    """Layer tensors on the disk."""
    common = prepared(arguments, "disk")
    few = [word for word in common if not word.startswith(("epochs=", "eval_every="))]
    for model in arguments.models:

        def row(method: str, model: str = model) -> tuple[list[str], int]:
            words = words_of(few, model, method, arguments.parts)
            words += ["epochs=4", "eval_every=4"] if method == "pull" else ["epochs=2", "eval_every=2"]
            words.append(f"memory.device={run.with_topology(words)}")
            return words, json.loads(run.grinnder("plan", words))["min_host_bytes"]

        with ThreadPoolExecutor(len(METHODS)) as pool:  # whatever is asked for, so that rows measured apart agree
            rows = dict(zip(METHODS, pool.map(row, METHODS), strict=True))
        most = max(least for _, least in rows.values())
        for method in arguments.methods:
            small = [*rows[method][0], f"memory.host={most + most // 2}", "storage.verify=off"]
            name = f"{model}, {method}, on disk"
            run.measure(name, small, arguments, result, check=False, warm_up=int(method == "pull"))


def pyg(arguments: argparse.Namespace, result: dict) -> None:
    """GAT in memory: ours and PyG's."""
    common = prepared(arguments, "pyg")
    for name, words in (
        ("in memory", ["method=inmemory"]),
        ("PyG edge_index", ["method=pyg", "method.format=edge_index"]),
        ("PyG csr", ["method=pyg", "method.format=csr"]),
    ):
        run.measure(
            f"gat, {name}", [*common, "model=gat", *MODELS["gat"], *words], arguments, result, check=False, warm_up=3
        )


SECTIONS = {"host": host, "disk": disk, "pyg": pyg}


if __name__ == "__main__":
    main()
