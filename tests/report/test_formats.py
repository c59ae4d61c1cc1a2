"""Markdown, LaTeX and CSV hold the same cells, each escaped by its own rules."""

import csv
import io
import runpy
from pathlib import Path

import pytest

from grinnder_cli.errors import ConfigError, DataError, NumericalError
from grinnder_cli.report import expected, formats
from grinnder_cli.report.runs import load_runs
from grinnder_cli.report.table import Table, make_results

make_run = runpy.run_path(str(Path(__file__).with_name("fake_runs.py")))["make_run"]

TABLE = Table(
    caption="a_b=50%",
    header=("key_1", "x & y"),
    key_columns=1,
    body=(("a|b", "1 ± 2 (3)"), ("[c]", "~^\\{#}$<")),
    provenance="2 runs_1.",
)


def results(tmp_path: Path):
    for seed in (0, 1):
        make_run(tmp_path / f"t-{seed}", seed=seed, accuracy=70 + seed / 3, parts=4)
    make_run(tmp_path / "t-2", parts=8, state="failed", exit_code=5)
    return make_results(load_runs([tmp_path]))


def test_markdown():
    lines = [
        "**a_b=50%**",
        "",
        "| key_1 | x & y |",
        "| ----- | --------: |",
        "| a\\|b  | 1 ± 2 (3) |",
        "| [c]   | ~^\\{#}$< |",
        "",
        "2 runs_1.",
    ]
    assert formats.to_markdown([TABLE]).splitlines() == lines


def test_latex_escapes_everything_once():
    text = formats.to_latex([TABLE])
    assert r"\caption{a\_b=50\%}" in text
    assert r"key\_1 & x \& y \\" in text
    assert r"a\textbar{}b & 1 $\pm$ 2 (3) \\" in text
    assert r"{}[c] & \textasciitilde{}\textasciicircum{}\textbackslash{}\{\#\}\$\textless{} \\" in text
    assert r"\begin{tabular}{lr}" in text and text.count(r"\begin") == text.count(r"\end")
    assert r"\footnotesize 2 runs\_1." in text


def test_csv_reads_back_exactly(tmp_path):
    tidy = results(tmp_path).tidy
    complete, failed = csv.DictReader(io.StringIO(formats.to_csv(tidy)))
    assert float(complete["test_acc_at_best_val_pct_mean"]) == tidy["test_acc_at_best_val_pct_mean"][0]
    assert complete["test_acc_at_best_val_pct"] == "70.17 ± 0.24 (2)"
    assert (failed["parts"], failed["failed"], failed["train_loss"]) == ("8", "1 OOM", "OOM")
    assert (failed["train_loss_mean"], failed["train_loss_n"]) == ("", "0")
    assert complete["hardware"] == "Fast CPU (2 threads), 24 GiB, Fast Disk ext4"


def test_check_accepts_its_own_output_on_another_machine(tmp_path):
    table = results(tmp_path)
    text = formats.to_csv(table.tidy).replace("Fast CPU", "Slow CPU").replace("0123456789ab", "ffff")
    (tmp_path / "expected.csv").write_text(text)
    expected.check(table, tmp_path / "expected.csv")


def edited(tmp_path: Path, change) -> Path:
    """expected.csv with `change` applied to its list of dicts."""
    rows = list(csv.DictReader(io.StringIO(formats.to_csv(results(tmp_path).tidy))))
    rows = change(rows) or rows
    path = tmp_path / "expected.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r[0].update(train_loss_mean="0.51"), "parts=4 .*train_loss_mean: 0.5, expected 0.51"),
        (lambda r: r[0].update(runs="3"), "runs: 2, expected 3"),
        (lambda r: r[1].update(failed=""), "parts=8 .*failed: 1 OOM, expected empty"),
        (lambda r: r[0].update(epoch_time_s_q1="9"), "epoch_time_s_q1"),
        (lambda r: r[:1], "parts=8 .*row not expected"),
        (lambda r: [*r, r[0] | {"parts": "16"}], "parts=16 .*row expected, not there"),
    ],
)
def test_check_names_what_differs(tmp_path, change, says):
    path = edited(tmp_path, change)
    with pytest.raises(NumericalError, match=says) as caught:
        expected.check(make_results(load_runs([tmp_path])), path)
    assert "\n" not in str(caught.value)


def test_check_with_a_tolerance_and_without_columns(tmp_path):
    def change(rows):
        for row in rows:
            for name in [name for name in row if name.startswith("epoch_time_s")]:
                del row[name]
            row["test_acc_at_best_val_pct_tol"] = "0.5" if row["parts"] == "4" else ""
        rows[0]["test_acc_at_best_val_pct_mean"] = "70.6"
        rows[0]["test_acc_at_best_val_pct_std"] = "9"

    path = edited(tmp_path, change)
    table = make_results(load_runs([tmp_path]))
    expected.check(table, path)
    path.write_text(path.read_text().replace("70.6", "70.7"))
    with pytest.raises(NumericalError, match=r"expected 70\.7"):
        expected.check(table, path)


def test_check_says_when_the_tables_are_of_different_kinds(tmp_path):
    path = edited(tmp_path, lambda r: None)
    frame = load_runs([tmp_path])
    with pytest.raises(DataError, match="column 'train_loss'"):
        expected.check(make_results(frame, values=["test_acc_at_best_val_pct"]), path)
    with pytest.raises(DataError, match="column 'seed' is not in"):
        expected.check(make_results(frame, rows=["parts", "seed"]), path)
    with pytest.raises(ConfigError, match="cannot read"):
        expected.check(make_results(frame), tmp_path / "absent.csv")
