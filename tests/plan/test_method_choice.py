"""method=auto says why, with the paper's threshold between gathering again and keeping snapshots."""

import pytest

from grinnder_cli.config.schema import MethodConfig, ModelConfig, RunConfig
from grinnder_cli.plan.methods.choice import method_reason, resolved_method


def reason(alpha: float, *, model: str = "gcn", method: str = "auto") -> str:
    config = RunConfig(model=ModelConfig(name=model), method=MethodConfig(name=method))
    return method_reason(config, alpha, resolved_method(config))


@pytest.mark.parametrize("alpha,threshold", [(1, "1.00"), (1.587, "1.13"), (3, "1.33"), (6.89, "1.60")])
def test_the_threshold_is_the_papers(alpha, threshold):
    """2 (alpha + 1) / (alpha + 3), of GriNNder's comparison with snapshots."""
    for said in (reason(alpha), reason(alpha, model="custom"), reason(alpha, method="hongtu")):
        assert f"(regather) beats snapshots (hongtu) while host memory is more than {threshold} times" in said


def test_every_choice_has_its_own_reason():
    assert reason(2).startswith("one exchange per layer and direction")
    assert reason(2, model="custom").startswith("layers of your own are computed whole, which pull cannot;")
    assert reason(2, method="regather").startswith("asked for; gathering again")
    assert reason(2, method="pull") == "asked for"
    assert method_reason(RunConfig(), 1.0, "inmemory") == "everything fits in host memory"
