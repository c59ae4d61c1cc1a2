"""What every runner returns for an epoch."""

from dataclasses import dataclass

from grinnder_cli.plan.simulate import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """One epoch.

    Attributes:
        epoch: counted from 0.
        train_loss: of the training forward, before the epoch's update.
        score_pct: the metric of (train, val, test) after the update, per cent; None when not evaluated, or where it is
            no share; an entry None without rows.
        mse: the same of metric=mse, as it is.
        epoch_time_s: training, evaluation excluded.
        forward_s, backward_s, eval_s: its parts.
        compute_s, gather_s, read_wait_s, write_wait_s, python_s: the same time by purpose, evaluation included.
        measured, predicted: bytes; None where a method moves none by plan.
        copy_s: time a device waited for copies over the bus.
        h2d_bytes, d2h_bytes, peak_device_bytes: bytes to and from a device, and its memory's peak in the epoch.
    """

    epoch: int
    train_loss: float
    epoch_time_s: float
    forward_s: float
    backward_s: float
    eval_s: float
    compute_s: float
    gather_s: float
    read_wait_s: float
    write_wait_s: float
    python_s: float
    measured: Traffic
    predicted: Traffic | None
    score_pct: tuple[float | None, ...] | None = None
    mse: tuple[float | None, ...] | None = None
    copy_s: float = 0.0
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    peak_device_bytes: int = 0
