"""Which steps of a run are kept, and which are evaluated."""

from __future__ import annotations

from training.config import RunConfig

DOUBLING_END = 512


def checkpoint_steps(config: RunConfig) -> tuple[int, ...]:
    """0, 1, 2, 4, ..., 512, then every `checkpoints.every`, one's own list, and the last step."""
    kept = {0, config.steps, *config.checkpoints.steps}
    if config.checkpoints.doubling:
        kept |= {2**k for k in range(DOUBLING_END.bit_length())}
    if config.checkpoints.every is not None:
        kept |= set(range(0, config.steps + 1, config.checkpoints.every))
    return tuple(sorted(step for step in kept if step <= config.steps))


def evaluation_steps(config: RunConfig) -> tuple[int, ...]:
    """Multiples of `eval_every`, and every step that is kept."""
    regular = range(0, config.steps + 1, config.eval_every)
    return tuple(sorted({*regular, *checkpoint_steps(config)}))
