"""Makes evidence: tasks, model families, runs and their checkpoints."""

from training.checkpoint import Checkpoint
from training.config import ConfigError, RunConfig
from training.engine import train, train_many
from training.families import FAMILIES
from training.run import Run, open_run
from training.tasks import TASKS

__all__ = [
    "FAMILIES",
    "TASKS",
    "Checkpoint",
    "ConfigError",
    "Run",
    "RunConfig",
    "open_run",
    "train",
    "train_many",
]
