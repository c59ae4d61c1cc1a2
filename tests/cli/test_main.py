"""The dispatcher: commands, exit codes, one line per error, torch never imported by what must be quick."""

import subprocess
import sys

import pytest
from grinnder_process import environment, grinnder

from grinnder_cli import __version__, main
from grinnder_cli.errors import ConfigError


def test_help_names_every_command(capsys):
    assert main.dispatch(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in (*main.COMPOSED, *main.PLAIN))


def test_version(capsys):
    assert main.dispatch(["--version"]) == 0
    assert capsys.readouterr().out == f"grinnder {__version__}\n"


def test_no_command_is_a_usage_error(capsys):
    assert main.dispatch([]) == 2
    assert capsys.readouterr().out == ""


def test_unknown_command_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown command 'trian'; did you mean 'train'"):
        main.dispatch(["trian"])


@pytest.mark.parametrize(
    "words",
    [("--help",), ("train", "--help"), ("train", "--dry-run"), ("train", "--cfg", "job"), ("tables", "missing")],
)
def test_never_imports_torch(tmp_path, words):
    code = (
        "import sys; from grinnder_cli.main import main\n"
        f"sys.argv = ['grinnder', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] in ('torch', 'torch_geometric')]\n"
        "print('torch modules:', loaded[:3])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "torch modules: []", done.stderr


def test_composing_leaves_nothing_behind(tmp_path):
    done = grinnder(tmp_path, "train", "dataset=karate", "-m", "seed=0,1", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("name: karate") == 2
    assert list(tmp_path.iterdir()) == []


CASES = {
    "unknown key": (["parst=3"], "unknown key 'parst'; did you mean 'parts'?"),
    "+key": (["+nonsense=1"], "unknown key 'nonsense'"),
    "unknown dataset": (["dataset=krate"], "unknown dataset 'krate'; did you mean 'karate'?"),
    "unknown dataset in a sweep": (["-m", "dataset=karate,krate"], "unknown dataset 'krate'; did you mean 'karate'?"),
    "wrong type": (["epochs=1.5"], "epochs=1.5 must be an integer"),
    "not a number of parts": (["parts=abc"], "parts=abc must be an integer, at least 1, or auto"),
    "parts in a sweep": (["-m", "parts=abc,0"], "parts=abc must be an integer, at least 1, or auto"),
    "interpolation": (["hidden=${foo}"], "hidden: Interpolation key 'foo' not found"),
    "interpolation of a near key": (["hidden=${dataset.nam}"], "'dataset.nam' not found; did you mean 'dataset.name'?"),
    "choice": (["cache.name=lru"], "cache cannot be 'lru' (accepts auto, none,"),
    "missing config dir": (["--config-dir", "nowhere"], "--config-dir names 'nowhere', which is not a directory"),
}


@pytest.mark.parametrize("words,message", CASES.values(), ids=CASES.keys())
def test_bad_command_line_is_one_line_and_2(tmp_path, words, message):
    done = grinnder(tmp_path, "train", *words)
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert message in first
    assert "Traceback" not in done.stderr
    assert "-m" in words or done.stderr.count("\n") == 1


def test_user_yaml_with_unknown_key(tmp_path):
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\nmodel:\n  dropot: 0.1\n")
    done = grinnder(tmp_path, "train", "experiment=mine", "--config-dir", "conf")
    message = "unknown key 'model.dropot'; did you mean 'model.dropout'? (in experiment/mine.yaml)"
    assert (done.returncode, done.stderr) == (2, f"grinnder: {message}\n")


def test_user_directories_and_local_default(tmp_path):
    """Flags anywhere; --config-dir and GRINNDER_CONF both searched; local/default wins over an experiment."""
    for folder, group, name, text in [
        ("a", "experiment", "mine", "hidden: 17\nlayers: 5\n"),
        ("b", "local", "default", "layers: 4\nstorage:\n  dir: /somewhere\n"),
    ]:
        (tmp_path / folder / group).mkdir(parents=True)
        (tmp_path / folder / group / f"{name}.yaml").write_text(f"# @package _global_\n{text}")
    done = grinnder(
        tmp_path, "train", "experiment=mine", "--config-dir", "a", "epochs=7", "--dry-run", GRINNDER_CONF="b"
    )
    assert done.returncode == 0, done.stderr
    for line in ("hidden: 17", "layers: 4", "epochs: 7", "  dir: /somewhere"):
        assert line in done.stdout.splitlines()


def test_trace_shows_the_traceback(tmp_path):
    done = grinnder(tmp_path, "train", "epochs=0", GRINNDER_TRACE="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_python_entries_are_functions():
    import grinnder_cli
    import grinnder_cli.plan.steps  # binds the subpackage, which has the function's name

    assert callable(grinnder_cli.train)
    assert callable(grinnder_cli.plan)
    assert grinnder_cli.plan.steps.__name__ == "grinnder_cli.plan.steps"
