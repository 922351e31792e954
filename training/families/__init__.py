"""Model families by name. A new family is one file here and one line in FAMILIES."""

from types import MappingProxyType

from training.families.attention_only import AttentionOnly
from training.families.base import Family, Params, Tap, no_tap
from training.families.dense_ssm import DenseSSM
from training.families.lstm import LSTM
from training.families.mamba import Mamba
from training.families.transformer import Transformer

FAMILIES = MappingProxyType(
    {
        "attention_only": AttentionOnly,
        "transformer": Transformer,
        "lstm": LSTM,
        "dense_ssm": DenseSSM,
        "mamba": Mamba,
    }
)

__all__ = [
    "FAMILIES",
    "LSTM",
    "AttentionOnly",
    "DenseSSM",
    "Family",
    "Mamba",
    "Params",
    "Tap",
    "Transformer",
    "no_tap",
]
