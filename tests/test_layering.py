"""The layers of CONTRIBUTING's codebase tour, enforced: who may import whom, and where heavy packages stay out.

The checks read source text, so that an import inside a function counts as well.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "grinnder_cli"

# A package may import packages of lower rank, and itself. Equal ranks are peers: they never import each other.
RANK = {
    "": 10,  # grinnder_cli/__init__.py: the Python entries
    "main": 9,
    "commands": 8,
    "report": 7,
    "bench": 7,
    "run": 6,
    "executor": 5,
    "plan": 4,
    "storage": 4,
    "cache": 3,
    "model": 3,
    "partitioner": 3,
    "dataset": 2,
    "config": 1,
    "kill": 1,
    "errors": 0,
    "_lib": 0,
}
ONLY_IN = {  # outside package -> the only places that may import it
    "hydra": ("config", "commands", "main"),
    "omegaconf": ("config", "commands", "main"),
    "cffi": ("storage._native", "_lib"),
}
INSIDE_FUNCTIONS = ("kaminpar", "kvikio", "matplotlib", "pyarrow", "pymetis", "tensorboard", "wandb", "mlflow")
WITHOUT_TORCH = ("main", "errors", "config", "dataset", "partitioner", "report", "commands")


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported name: `target` is a dotted module, `at_load` tells if importing the file runs it."""

    target: str
    line: int
    at_load: bool


def modules() -> dict[str, Path]:
    """Dotted name -> file, for every module of the package."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[Import]:
    """Every import statement of a module, wherever it stands."""
    path = MODULES[name]
    package = name if path.stem == "__init__" else name.rpartition(".")[0]

    def walk(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(target=alias.name, line=node.lineno, at_load=at_load)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # `from package import module` imports the module too
                inner = f"{source}.{alias.name}"
                yield Import(target=inner if inner in MODULES else source, line=node.lineno, at_load=at_load)
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.iter_child_nodes(node):
            skipped = inside or (checking and isinstance(node, ast.If) and child in node.body)
            yield from walk(child, at_load and not skipped)

    yield from walk(ast.parse(path.read_text()), True)


def layer(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == f"{PACKAGE}.{place}" or name.startswith(f"{PACKAGE}.{place}.") for place in places)


def loaded_by(name: str) -> dict[str, tuple[str, ...]]:
    """What importing a module loads: each module, ours and others', with the chain of ours that leads to it."""
    chains: dict[str, tuple[str, ...]] = {}
    waiting = [(name, (name,))]
    while waiting:
        current, chain = waiting.pop()
        if current in chains:
            continue
        chains[current] = chain
        if current not in MODULES:
            continue
        parents = current.split(".")
        nearby = [".".join(parents[:depth]) for depth in range(1, len(parents))]
        for target in [*nearby, *(found.target for found in imports(current) if found.at_load)]:
            waiting.append((target, (*chain, target)))
    return chains


def test_every_package_has_a_rank():
    assert {layer(name) for name in MODULES} <= set(RANK)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_downwards(name):
    wrong = []
    for found in imports(name):
        if found.target.split(".")[0] != PACKAGE or layer(found.target) == layer(name):
            continue
        if found.target == PACKAGE:  # `from grinnder_cli import __version__`: the entry itself imports nothing
            continue
        if RANK[layer(found.target)] >= RANK[layer(name)]:
            wrong.append(f"{MODULES[name].relative_to(ROOT)}:{found.line} imports {found.target}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("package", ONLY_IN)
def test_package_stays_where_it_belongs(package):
    wrong = [
        f"{MODULES[name].relative_to(ROOT)}:{found.line}"
        for name in MODULES
        for found in imports(name)
        if found.target.split(".")[0] == package and not within(name, ONLY_IN[package])
    ]
    assert not wrong, f"{package} belongs to {', '.join(ONLY_IN[package])}, not to {', '.join(wrong)}"


def test_optional_packages_load_on_use():
    wrong = [
        f"{MODULES[name].relative_to(ROOT)}:{found.line} {found.target}"
        for name in MODULES
        for found in imports(name)
        if found.at_load and found.target.split(".")[0] in INSIDE_FUNCTIONS
    ]
    assert not wrong, f"move into the function that needs it: {', '.join(wrong)}"


@pytest.mark.parametrize("name", [name for name in MODULES if name == PACKAGE or within(name, WITHOUT_TORCH)])
def test_quick_commands_load_no_torch(name):
    heavy = {
        target: " -> ".join(chain)
        for target, chain in loaded_by(name).items()
        if target.split(".")[0] in ("torch", "torch_geometric", "safetensors")
        and not target.startswith("safetensors.numpy")
    }
    assert not heavy, "; ".join(heavy.values())


def test_the_checks_see_what_they_look_for():
    assert "torch" in loaded_by(f"{PACKAGE}.model.kernels")
    assert any(found.target == "cffi" and not found.at_load for found in imports(f"{PACKAGE}._lib"))
