"""What a command made of one configuration; a sweep has one per member."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one run ended.

    Attributes:
        exit_code: interface.md's table; 0 also for a member that was skipped.
        status: complete, skipped, failed or interrupted.
        run_dir: its directory, None when there is none.
        message: the error's line, None when there was no error.
    """

    exit_code: int
    status: str
    run_dir: Path | None = None
    message: str | None = None

    @classmethod
    def of(cls, result: "Outcome | int") -> "Outcome":
        """A command that makes no run directory returns only its exit code."""
        if isinstance(result, Outcome):
            return result
        return cls(exit_code=result, status="failed" if result else "complete")
