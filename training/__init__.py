"""Makes evidence: tasks, model families, runs and their checkpoints, N* and kappa."""

from training.audits.audit import Audit, audit, audit_read
from training.checkpoint import Checkpoint
from training.config import ConfigError, RunConfig
from training.engine import train, train_many
from training.families import FAMILIES, LSTM, AttentionOnly, DenseSSM, Mamba, Transformer
from training.prune import Pruned, prune
from training.run import Run, open_run
from training.sharing.beyond import accuracy_beyond
from training.sharing.factor import SharingFactor, searches_of
from training.sharing.n_star import NStar
from training.sharing.sample_size import sample_size
from training.sharing.search import sharing_factor
from training.sharing.searches import SEARCHES
from training.studies.scale_out import run_study
from training.studies.status import StudyStatus, study_status
from training.studies.study import KappaStudy, preset, presets
from training.tasks import (
    TASKS,
    AssociativeRecall,
    Batch,
    ConditionalRetrieval,
    InContextNgram,
    IndirectObject,
    KHop,
    ModularAddition,
    PermutationComposition,
    PermutationInversion,
    RelationRetrieval,
    StateTracking,
)

__all__ = [
    "FAMILIES",
    "LSTM",
    "SEARCHES",
    "TASKS",
    "AssociativeRecall",
    "AttentionOnly",
    "Audit",
    "Batch",
    "Checkpoint",
    "ConditionalRetrieval",
    "ConfigError",
    "DenseSSM",
    "InContextNgram",
    "IndirectObject",
    "KHop",
    "KappaStudy",
    "Mamba",
    "ModularAddition",
    "NStar",
    "PermutationComposition",
    "PermutationInversion",
    "Pruned",
    "RelationRetrieval",
    "Run",
    "RunConfig",
    "SharingFactor",
    "StateTracking",
    "StudyStatus",
    "Transformer",
    "accuracy_beyond",
    "audit",
    "audit_read",
    "open_run",
    "preset",
    "presets",
    "prune",
    "run_study",
    "sample_size",
    "searches_of",
    "sharing_factor",
    "study_status",
    "train",
    "train_many",
]
