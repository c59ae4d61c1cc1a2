"""Tables as Markdown, LaTeX (booktabs) and CSV text."""

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from grinnder_cli.report.table import Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {character: rf"\{character}" for character in "&%$#_{}"}


def to_markdown(tables: Sequence[Table]) -> str:
    """Pipe tables, columns padded so that the source reads as a table too."""
    return "\n".join(_markdown(table) for table in tables)


def to_latex(tables: Sequence[Table]) -> str:
    """`table` environments with booktabs rules (needs \\usepackage{booktabs})."""
    return "\n".join(_latex(table) for table in tables)


def to_csv(tidy: pd.DataFrame) -> str:
    """Tidy rows; floats in their shortest exact form, an empty cell for what is absent."""
    lines = [",".join(map(_quote, tidy.columns))]
    lines += [",".join(_quote(csv_cell(value)) for value in row) for row in tidy.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def csv_cell(value: Any) -> str:
    """One value as the CSV holds it, before quoting."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def _markdown(table: Table) -> str:
    grid = [[cell.replace("|", "\\|") for cell in row] for row in (table.header, *table.body)]
    widths = [max(3, *(len(row[column]) for row in grid)) for column in range(len(table.header))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
    # Results align right, keys left.
    rules = ["-" * (w - 1) + (":" if at >= table.key_columns else "-") for at, w in enumerate(widths)]
    lines.insert(1, " | ".join(rules))
    caption = [f"**{table.caption}**", ""] if table.caption else []
    return "\n".join([*caption, *(f"| {line} |" for line in lines), "", f"{table.provenance}", ""])


def _latex(table: Table) -> str:
    columns = "l" * table.key_columns + "r" * (len(table.header) - table.key_columns)
    rows = [" & ".join(map(_escape, row)) + r" \\" for row in (table.header, *table.body)]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{_escape(table.caption)}}}"] if table.caption else []),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
            rf"\footnotesize {_escape(table.provenance)}",
            r"\end{table}",
            "",
        ]
    )


def _escape(text: str) -> str:
    # One pass: replacing character after character would escape the escapes. A row must not begin with
    # "[": after a line break LaTeX reads it as that break's argument.
    escaped = re.sub(r"[\\~^±<>|&%$#_{}]", lambda match: _LATEX[match[0]], text)
    return f"{{}}{escaped}" if escaped.startswith("[") else escaped


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n\r]', text) else text
