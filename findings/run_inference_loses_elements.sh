#!/usr/bin/env bash
# Apache Beam 2.77.0 with torch 2.15.0 and transformers 5.24.0: RunInference of a model that returns more than one tensor.
#
# A BertModel gives the hidden states of all layers with `output_hidden_states=True`, and a tuple instead of a dictionary with
# `return_dict=False`. One would guess that each element gets its result in any case, or that the batch fails.
#
# Seen: of a batch of 8 elements 3 come out with the hidden states of a model of two layers (three states), and 2 with the tuple
# (two tensors). The others are gone without an error, and what came out holds numbers of the whole batch, not of its own
# element: the state of one layer for all eight, or one of the two tensors.
#
# Why: `_convert_to_result` of apache_beam/ml/inference/utils.py zips the batch with what the model returned. A tuple of
# tensors there counts as a column of as many rows, and zip ends with the shortest.
#
# For users: let the model return tensors whose first axis is the batch (`torch.stack(states, dim=1)`), and compare the number
# of results with that of the elements.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13, a package index and 7 GB.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-beam==2.77.0 torch==2.15.0 transformers==5.24.0 numpy==2.4.6
cd "$folder"
cat >infer.py <<'PROGRAM'
import json

import apache_beam as beam
import torch
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.inference.pytorch_inference import PytorchModelHandlerKeyedTensor
from transformers import BertConfig, BertModel

BATCH = 8
ROWS = [{"input_ids": torch.tensor([2, 5 + row, 3])} for row in range(BATCH)]


def shapes(result):
    output = result.inference
    return {name: list(value.shape) for name, value in output.items()} if isinstance(output, dict) else list(output.shape)


def outcome(name, **settings):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        **settings,
    )
    torch.save(BertModel(config).state_dict(), f"{name}.pt")
    handler = PytorchModelHandlerKeyedTensor(
        state_dict_path=f"{name}.pt",
        model_class=BertModel,
        model_params={"config": config},
        min_batch_size=BATCH,
        max_batch_size=BATCH,
    )
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(ROWS)
            | RunInference(handler)
            | beam.Map(shapes)
            | beam.combiners.ToList()
            | beam.Map(lambda results: print(name, len(results), json.dumps(results[-1]), flush=True))
        )


outcome("plain")
outcome("states", output_hidden_states=True)
outcome("tuple", return_dict=False)
PROGRAM
seen="$(venv/bin/python infer.py 2>log)" || { tail -n 5 log; exit 1; }
expected='plain 8 {"last_hidden_state": [3, 16], "pooler_output": [16]}
states 3 {"last_hidden_state": [3, 16], "pooler_output": [16], "hidden_states": [8, 3, 16]}
tuple 2 [8, 16]'
echo "$seen"
[[ "$seen" == "$expected" ]]
