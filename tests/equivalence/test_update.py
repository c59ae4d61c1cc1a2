"""Learning rate, clipping and momentum: the epochs of many parts are those of torch's own schedulers and clipping."""

from dataclasses import replace
from itertools import pairwise

import lab
import pytest
import torch
import torch.nn.functional as F

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.update import learning_rate

EPOCHS = 12


def test_the_rate_is_a_function_of_the_epoch():
    settings = OptimizerConfig(lr=0.5, warmup=4)
    assert [learning_rate(settings, epoch, 8) for epoch in range(6)] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    falling = replace(settings, schedule="cosine")
    rates = [learning_rate(falling, epoch, 12) for epoch in range(12)]
    assert rates[3] == rates[4] == 0.5 and rates[8] == pytest.approx(0.25)
    assert all(a > b > 0 for a, b in pairwise(rates[4:]))


def by_torch(cfg) -> list[float]:
    """Losses of a plain loop with torch's own schedulers."""
    data = dict(lab.np.load(cfg.dataset.path))
    x, edges, weight = (torch.from_numpy(data[name]) for name in ("x", "edge_index", "edge_weight"))
    y, train = torch.from_numpy(data["y"]), torch.from_numpy(data["train_mask"])
    torch.manual_seed(cfg.seed)
    model = lab.Plain([11] + [cfg.hidden] * (cfg.layers - 1) + [5], cfg.model).double()
    wanted, losses = cfg.optimizer, []
    if wanted.name == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=wanted.lr, momentum=wanted.momentum)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=wanted.lr, weight_decay=wanted.weight_decay)
    schedules = torch.optim.lr_scheduler
    rise = schedules.LambdaLR(optimizer, lambda epoch: min((epoch + 1) / max(wanted.warmup, 1), 1.0))
    after = schedules.ConstantLR(optimizer, factor=1.0)
    if wanted.schedule == "cosine":
        after = schedules.CosineAnnealingLR(optimizer, EPOCHS - wanted.warmup)
    schedule = schedules.SequentialLR(optimizer, [rise, after], [wanted.warmup]) if wanted.warmup else after
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges, weight)[train], y[train])
        loss.backward()
        if wanted.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), wanted.clip)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("method", ["pull", "pyg"])
@pytest.mark.parametrize(
    "settings",
    [
        OptimizerConfig(name="sgd", lr=0.3, momentum=0.9, clip=0.05),
        OptimizerConfig(name="adamw", lr=0.05, weight_decay=0.1, schedule="cosine", warmup=3, clip=0.2),
        OptimizerConfig(name="sgd", lr=0.5, schedule="cosine"),
    ],
)
def test_losses_are_those_of_torch(tmp_path, settings, method):
    graph = lab.hard_graph(tmp_path / "g.npz")
    parts = 4 if method == "pull" else 1
    cfg = replace(lab.config(graph, tmp_path, parts=parts, epochs=EPOCHS, method=method), optimizer=settings)
    got, plain = lab.run(cfg), by_torch(cfg)
    assert got.losses == pytest.approx(plain, rel=1e-9)
    unlike = replace(cfg, optimizer=replace(settings, clip=0.0, schedule="constant", warmup=0))
    assert lab.run(unlike).losses != pytest.approx(plain, rel=1e-3), "the settings made no difference"


@pytest.mark.requires_gpu
def test_on_a_gpu_nothing_waits():
    from grinnder_cli.executor.update import Update
    from grinnder_cli.model.registry import build
    from grinnder_cli.model.spec import describe

    cfg = lab.RunConfig()
    model = build(describe(cfg, 8, 3), 0, torch.float32).cuda()
    update = Update(model, OptimizerConfig(clip=0.1, schedule="cosine", warmup=2), 5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    update.step(0)  # makes Adam's moments
    torch.cuda.set_sync_debug_mode("error")
    try:
        update.step(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
