"""Grouping and averaging, against figures worked out by hand."""

import runpy
import statistics
from pathlib import Path

import pytest

from grinnder_cli.errors import ConfigError
from grinnder_cli.report.runs import load_runs
from grinnder_cli.report.table import make_results

fake = runpy.run_path(str(Path(__file__).with_name("fake_runs.py")))
make_run, ENVIRONMENT = fake["make_run"], fake["ENVIRONMENT"]


def sweep(tmp_path: Path) -> Path:
    """parts 2, 10 x cache none, lru_layer x seeds 0, 1; parts=10 with cache none ran out of memory."""
    for parts in (2, 10):
        for cache in ("none", "lru_layer"):
            for seed in (0, 1):
                dead = parts == 10 and cache == "none"
                make_run(
                    tmp_path / f"runs/p{parts}-{cache}/t-{seed}",
                    accuracy=70 + parts + seed,
                    parts=parts,
                    cache={"name": cache},
                    seed=seed,
                    **({"state": "failed", "exit_code": 5} if dead else {}),
                )
    return tmp_path


def test_mean_and_sample_deviation_over_seeds(tmp_path):
    for seed, accuracy in enumerate((70.0, 71.5, 74.0)):
        make_run(tmp_path / f"t-{seed}", accuracy=accuracy, seed=seed, parts=4)
    (row,) = make_results(load_runs([tmp_path])).tidy.to_dict("records")
    assert row["test_acc_at_best_val_pct_mean"] == pytest.approx(71.8333333)
    assert row["test_acc_at_best_val_pct_std"] == pytest.approx(statistics.stdev([70.0, 71.5, 74.0]))
    assert row["test_acc_at_best_val_pct_n"] == 3
    assert row["test_acc_at_best_val_pct"] == "71.83 ± 2.02 (3)"


def test_times_are_median_and_quartiles_without_first_epochs_and_say_so(tmp_path):
    make_run(tmp_path / "t-0", seed=0, times=(100.0, 1.0, 2.0, 3.0))
    make_run(tmp_path / "t-1", seed=1, times=(100.0, 4.0, 5.0))
    results = make_results(load_runs([tmp_path]), values=["epoch_time_s", "compute_s", "partition_s"])
    (row,) = results.tidy.to_dict("records")
    assert [row[f"epoch_time_s_{s}"] for s in ("median", "q1", "q3", "n")] == [3.0, 2.0, 4.0, 2]
    assert row["compute_s_median"] == 1.5
    assert (row["partition_s_median"], row["partition_s_n"]) == (0.25, 2)
    assert row["epoch_time_s"] == "3.000 [2.000, 4.000] (2)"
    assert "the first epoch of every run excluded" in results.tables[0].provenance


def test_default_table_has_a_row_per_setting_sorted_by_number(tmp_path):
    results = make_results(load_runs([sweep(tmp_path)]))
    (table,) = results.tables
    assert table.header[:5] == ("dataset", "model", "parts", "cache", "runs")
    assert [row[2:5] for row in table.body] == [
        ("2", "lru_layer", "2"),
        ("2", "none", "2"),
        ("10", "lru_layer", "2"),
        ("10", "none", "2 OOM"),
    ]
    assert table.body[3][5:] == ("OOM",) * 7
    assert table.body[0][5:] == (
        "72.50 ± 0.71 (2)",
        "0.5000 ± 0.0000 (2)",
        "2.000 [1.250, 2.750] (2)",
        "0.5000 ± 0.0000 (2)",
        "0.2500 ± 0.0000 (2)",
        "12.50 ± 0.00 (2)",
        "0.1250 ± 0.0000 (2)",
    )
    for piece in ("8 runs (2 OOM, 6 complete)", "seeds 0, 1", "git 0123456789ab", "Fast CPU"):
        assert piece in table.provenance


def test_rows_and_columns_cross(tmp_path):
    frame = load_runs([sweep(tmp_path)])
    results = make_results(frame, rows=["parts"], cols=["cache"], values=["test_acc_at_best_val_pct"])
    (table,) = results.tables
    assert table.header == (
        "parts",
        "test_acc_at_best_val_pct, cache=lru_layer",
        "test_acc_at_best_val_pct, cache=none",
    )
    assert table.body == (("2", "72.50 ± 0.71 (2)", "72.50 ± 0.71 (2)"), ("10", "80.50 ± 0.71 (2)", "OOM"))


def test_settings_in_neither_rows_nor_columns_are_never_averaged_over(tmp_path):
    results = make_results(load_runs([sweep(tmp_path)]), rows=["cache"], values=["train_loss"])
    assert [table.caption for table in results.tables] == ["parts=2", "parts=10"]
    assert [len(table.body) for table in results.tables] == [2, 2]
    assert set(results.tidy["train_loss_n"]) == {2, 0}


def test_a_partly_failed_group_shows_both(tmp_path):
    make_run(tmp_path / "t-0", seed=0, accuracy=70)
    make_run(tmp_path / "t-1", seed=1, state="failed", exit_code=137)
    frame = load_runs([tmp_path])
    (table,) = make_results(frame, values=["test_acc_at_best_val_pct"]).tables
    assert table.body[0][-2:] == ("1, 1 OOM", "70.00 (1)")
    (table,) = make_results(frame, rows=["dataset"], cols=["cache"], values=["test_acc_at_best_val_pct"]).tables
    assert table.body[0][-1] == "70.00 (1), 1 OOM"


def test_seed_can_be_a_row_and_a_summary_key_a_column(tmp_path):
    frame = load_runs([sweep(tmp_path)])
    results = make_results(frame, rows=["parts", "cache", "seed"], values=["best_val_acc_pct", "exchange"])
    assert results.tables[0].body[0] == ("2", "lru_layer", "0", "1", "73.00 (1)", "gather (1)")
    (table,) = make_results(frame, rows=["parts", "cache"], cols=["exchange"], values=["alpha"]).tables
    # A run that failed before it chose an exchange has none.
    assert table.header[2:] == ("alpha, exchange=gather", "alpha, exchange=-")


def test_any_metric_of_summary_and_epochs_is_known_in_bytes_and_gib(tmp_path):
    make_run(tmp_path / "t-0")
    frame = load_runs([tmp_path])
    values = ["peak_host_bytes", "measured_read_gib", "read_gib", "num_nodes", "epochs", "parts"]
    (row,) = make_results(frame, values=values).tidy.to_dict("records")
    assert [row[f"{v}_mean"] for v in values] == [(1 << 30) // 8, 3.0, 0.5, 63436, 4, 8]
    assert row["num_nodes"] == "63436 (1)"


def test_repeats_of_a_seed_do_not_inflate_n(tmp_path):
    make_run(tmp_path / "20250101-old", seed=0, accuracy=10)
    make_run(tmp_path / "20250102-new", seed=0, accuracy=70)
    make_run(tmp_path / "20250103-failed", seed=0, state="failed", exit_code=6)
    results = make_results(load_runs([tmp_path]), values=["test_acc_at_best_val_pct"])
    assert results.tables[0].body[0][-2:] == ("1", "70.00 (1)")
    assert "2 older repeats" in results.tables[0].provenance


def test_other_data_are_no_repeat_and_no_seed(tmp_path):
    """The same keys, a file that changed: never one figure, unless asked for."""
    for at, (seed, data) in enumerate([(0, "old"), (0, "new"), (1, "new"), (1, None)]):
        state = {"state": "failed", "exit_code": 6} if data is None else {}
        make_run(tmp_path / f"{at}", seed=seed, environment=ENVIRONMENT | {"dataset_fingerprint": data}, **state)
    with pytest.raises(ConfigError, match=r"changed between \S+0 and \S+1; choose runs of one, or add --mix"):
        make_results(load_runs([tmp_path]))
    (table,) = make_results(load_runs([tmp_path]), mix=True).tables
    assert table.body[0][table.header.index("runs")] == "3" and "1 older repeats" in table.provenance
    (table,) = make_results(load_runs([tmp_path / f"{at}" for at in (1, 2, 3)])).tables
    assert table.body[0][table.header.index("runs")] == "2" and "1 older repeats" in table.provenance


def test_repeats_are_counted_table_by_table(tmp_path):
    for at, parts in enumerate([2, 2, 2, 4]):
        make_run(tmp_path / f"{at}", parts=parts)
    tables = make_results(load_runs([tmp_path]), rows=["model"]).tables
    assert ["2 older repeats" in table.provenance for table in tables] == [True, False]


def test_defaults_of_another_dataset_do_not_become_columns(tmp_path):
    make_run(tmp_path / "t-0", dataset={"name": "debian", "undirected": True})
    make_run(tmp_path / "t-1", dataset={"name": "karate"}, model={"dropout": 0.1})
    make_run(tmp_path / "t-2", dataset={"name": "karate"}, model={"dropout": 0.2})
    (table,) = make_results(load_runs([tmp_path])).tables
    assert table.header[:5] == ("dataset", "model", "parts", "cache", "model.dropout")
    assert len(table.body) == 3


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"git": {"sha": "f" * 20, "dirty": None}}, "git states"),
        ({"git": {"sha": ENVIRONMENT["git"]["sha"], "dirty": "abc"}}, "git states"),
        ({"cpu": "Slow CPU"}, "hardware"),
        ({"gpu": ["Some GPU"]}, "hardware"),
        ({"grinnder": "0.2.0"}, "versions"),
    ],
)
def test_mixed_provenance_is_refused_unless_asked_for(tmp_path, change, word):
    make_run(tmp_path / "t-0", seed=0)
    make_run(tmp_path / "t-1", seed=1, environment=ENVIRONMENT | change)
    make_run(tmp_path / "t-2", seed=2, environment=None, state="failed", exit_code=137)
    frame = load_runs([tmp_path])
    with pytest.raises(ConfigError, match=f"mix 2 .*{word}.*--mix"):
        make_results(frame)
    assert " | " in make_results(frame, mix=True).tables[0].provenance


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rows": ["prats"]}, "unknown key 'prats' in --rows; did you mean 'parts'"),
        ({"cols": ["dropout"]}, "unknown key 'dropout' in --cols; did you mean 'model.dropout'"),
        ({"values": ["train_los"]}, "unknown metric 'train_los' in --values; did you mean 'train_loss'"),
    ],
)
def test_unknown_names_get_the_nearest(tmp_path, arguments, says):
    make_run(tmp_path / "t-0")
    with pytest.raises(ConfigError, match=says):
        make_results(load_runs([tmp_path]), **arguments)


def test_only_failed_runs_still_make_a_table(tmp_path):
    make_run(tmp_path / "t-0", state="failed", exit_code=5, environment=None)
    (table,) = make_results(load_runs([tmp_path])).tables
    assert table.body[0][4] == "1 OOM" and set(table.body[0][5:]) == {"OOM"}
