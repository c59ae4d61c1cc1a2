"""From a configuration to everything a run stands on: graph, partition, operator, model, plan.

Before a stage builds anything its host memory is compared with the budget, and before the first one the least that any
parts need, so that a run which cannot fit says so first.
"""

from grinnder_cli import dataset
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.run.refusal import afford, refuse_hopeless, require_fit
from grinnder_cli.run.stages import (
    Check,
    Preparation,
    Prepared,
    host_budget,
    require_training_rows,
)

__all__ = ["Prepared", "host_budget", "prepare_run", "require_fit"]


def prepare_run(config: RunConfig, *, first: int = 0, check: Check = lambda: None, training: bool = True) -> Prepared:
    """Load, partition and plan.

    Args:
        first: the epoch this process starts with, counted from 0.
        check: called between phases; raises to stop.
        training: False: plan evaluation forwards only.

    Raises:
        DoesNotFit: no parts can fit the budgets, or preparation needs more host memory; a plan that does not fit
            is returned, see `require_fit`.
        DataError: no labelled training node, or damaged data.
        ConfigError: parts and method contradict each other.
    """
    stages = Preparation(config, first=first, check=check, training=training)
    with dataset.remembered(stages.data_dir, trusted=False):
        refuse_hopeless(stages)
        stages.afford = afford(stages)
        graph = stages.graph()
        check()
        require_training_rows(graph)
        return stages.finished(graph, stages.search(graph).run())
