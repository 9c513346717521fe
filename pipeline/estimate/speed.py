"""Measures how fast this machine embeds a sample."""

import time
from dataclasses import dataclass
from itertools import cycle

from bert_embed.engines.choose import find_device
from bert_embed.engines.cores import available_cores
from bert_embed.pipeline.estimate.sample import Sample
from bert_embed.pipeline.graph import model_handler
from bert_embed.pipeline.run import EmbedRun


@dataclass(frozen=True)
class Speed:
    """What tokenizing and the model, one after the other, took for some tokens on this machine."""

    tokens_per_second: float
    tokens: int
    seconds: float
    cores: int
    device: str


def measured_speed(run: EmbedRun, sample: Sample, tokens: float, seconds: float) -> Speed | None:
    """Embeds documents of a sample with the run's model for some seconds.

    Args:
        run: The run.
        sample: Its blocks are embedded.
        tokens: That the sample has, which took `sample.tokenize_seconds`.
        seconds: How long; a block that has begun is finished. 0 gives None, as no documents do.

    Raises:
        InputError: The model cannot be loaded here.
    """
    blocks = [block for block in sample.blocks if len(block)]
    if not blocks or not seconds:
        return None
    handler = model_handler(run)
    encoder = handler.load_model()
    handler.run_inference(blocks[-1], encoder)  # the first call fills caches
    done, started = 0, time.perf_counter()
    for block in cycle(blocks):
        handler.run_inference(block, encoder)
        done += int(block.num_tokens.sum())
        spent = time.perf_counter() - started
        if spent >= seconds:
            break
    seconds_per_token = spent / done + sample.tokenize_seconds / max(tokens, 1)
    device = find_device(run.options.precision, run.options.device)
    return Speed(1 / seconds_per_token, done, spent, available_cores(), device)
