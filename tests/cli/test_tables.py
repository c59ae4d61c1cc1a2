"""`grinnder tables` as a user meets it."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from grinnder_cli.commands import tables
from grinnder_cli.errors import ConfigError, EnvironmentProblem, NumericalError

ROOT = Path(__file__).resolve().parents[2]
make_run = runpy.run_path(str(ROOT / "tests/report/fake_runs.py"))["make_run"]


@pytest.fixture
def out(tmp_path):
    for parts in (2, 4):
        for seed in (0, 1):
            make_run(tmp_path / f"out/runs/p{parts}/t-{seed}", parts=parts, seed=seed, accuracy=70 + parts + seed)
    make_run(tmp_path / "out/runs/p8/t-0", parts=8, state="failed", exit_code=137)
    return tmp_path / "out"


def test_prints_markdown_with_failed_rows(out, capsys):
    assert tables.main([str(out)]) == 0
    printed = capsys.readouterr().out
    assert "72.50 ± 0.71 (2)" in printed and "OOM" in printed and "git 0123456789ab" in printed


def test_words_and_flags_in_any_order(out, capsys):
    runs = [str(out / f"runs/p{parts}") for parts in (2, 4)]
    assert tables.main([runs[0], "--rows", "parts", "--values=test_acc_at_best_val_pct", runs[1]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["2", "4"]


def test_all_formats_are_written_and_the_table_is_shown(out, tmp_path, capsys):
    target = tmp_path / "a b=c" / "tables"
    assert tables.main([str(out), "--format", "md,csv,latex", "--out", str(target)]) == 0
    assert sorted(p.name for p in target.iterdir()) == ["table.csv", "table.md", "table.tex"]
    assert (target / "table.md").read_text() == capsys.readouterr().out
    with (target / "table.csv").open(newline="") as file:
        assert [row["parts"] for row in csv.DictReader(file)] == ["2", "4", "8"]


def test_check_passes_on_itself_and_fails_on_a_changed_cell(out, tmp_path, capsys):
    arguments = [str(out), "--rows", "parts", "--values", "test_acc_at_best_val_pct"]
    tables.main([*arguments, "--format", "csv", "--out", str(tmp_path)])
    expected = tmp_path / "table.csv"
    assert tables.main([*arguments, "--check", str(expected)]) == 0
    expected.write_text(expected.read_text().replace("72.5,", "72.4,"))
    with pytest.raises(NumericalError, match=r"parts=2 test_acc_at_best_val_pct_mean: 72\.5, expected 72\.4") as caught:
        tables.main([*arguments, "--check", str(expected)])
    assert caught.value.exit_code == 7


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rows", "pats"], "did you mean 'parts'"),
        (["--format", "pdf"], "unknown format 'pdf'"),
        (["--colls", "parts"], "--colls"),
    ],
)
def test_usage_errors_are_one_line(out, arguments, says):
    with pytest.raises(ConfigError, match=says) as caught:
        tables.main([str(out), *arguments])
    assert "\n" not in str(caught.value)


def test_out_that_cannot_be_written(out, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="change --out"):
        tables.main([str(out), "--out", str(tmp_path / "file")])


def test_torch_is_never_imported(out):
    code = (
        "import sys; from grinnder_cli.commands import tables; tables.main(sys.argv[1:]);"
        "from grinnder_cli.report import run_report; from pathlib import Path; run_report.write(Path(sys.argv[2]));"
        "bad = {'torch', 'hydra', 'omegaconf'} & set(sys.modules); sys.exit(f'imported {bad}' if bad else 0)"
    )
    run = str(out / "runs/p2/t-0")
    done = subprocess.run(
        [sys.executable, "-c", code, str(out), run], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
