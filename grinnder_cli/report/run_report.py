"""The report of one run: report.md in its directory, and the same as a table for the screen."""

from pathlib import Path
from typing import TYPE_CHECKING

from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.report.facts import Section, sections, title
from grinnder_cli.run.atomic import write_text

if TYPE_CHECKING:
    from rich.table import Table


def write(run_dir: Path) -> str:
    """Write report.md into the run's directory.

    Returns:
        The Markdown that was written.

    Raises:
        DataError: a file of the run is damaged.
        EnvironmentProblem: the directory cannot be written to.
    """
    text = f"# {title(run_dir)}\n" + "".join(map(_markdown, sections(run_dir)))
    try:
        write_text(run_dir / "report.md", text)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {run_dir / 'report.md'}: {error.strerror}; free some space") from error
    return text


def render(run_dir: Path) -> "Table":
    """The report as a rich table: `rich.print(render(run_dir))`.

    Raises:
        DataError: a file of the run is damaged.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title(run_dir), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_column(overflow="fold")
    for section in sections(run_dir):
        for position, (label, value) in enumerate(section.rows):
            # Text, not str: a path with [brackets] is no markup.
            table.add_row(section.title if position == 0 else "", label, Text(value))
        table.add_section()
    return table


def _markdown(section: Section) -> str:
    """A list with aligned values: it reads the same in a terminal and rendered."""
    width = max(len(label) for label, _ in section.rows) + 1
    lines = [f"- {label + ':':<{width}} {value}" for label, value in section.rows]
    return "\n".join(["", f"## {section.title}", "", *lines, ""])
