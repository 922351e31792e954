"""Makes evidence: tasks, model families, runs and their checkpoints, N* and kappa."""

from training.checkpoint import Checkpoint
from training.config import ConfigError, RunConfig
from training.engine import train, train_many
from training.families import FAMILIES, LSTM, AttentionOnly, DenseSSM, Mamba, Transformer
from training.n_star import NStar
from training.run import Run, open_run
from training.sample_size import sample_size
from training.sharing_factor import SharingFactor, sharing_factor
from training.tasks import TASKS, AssociativeRecall, Batch, ModularAddition

__all__ = [
    "FAMILIES",
    "LSTM",
    "TASKS",
    "AssociativeRecall",
    "AttentionOnly",
    "Batch",
    "Checkpoint",
    "ConfigError",
    "DenseSSM",
    "Mamba",
    "ModularAddition",
    "NStar",
    "Run",
    "RunConfig",
    "SharingFactor",
    "Transformer",
    "open_run",
    "sample_size",
    "sharing_factor",
    "train",
    "train_many",
]
