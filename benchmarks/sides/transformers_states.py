"""Token ids and hidden states of transformers in the peers' environment, as a `measure.Child`.

A question has a family, the folder of its model, texts or pairs of texts, the most tokens of a row,
and a file for the answer: `ids/N` int64 `[tokens]`, and `states/N` float32
`[tokens, layers + 1, hidden]`.
"""

import inspect

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from benchmarks.measure import answer_lines
from tests.support.models.architectures import stretch


def main() -> None:
    """Answers until the input ends."""

    def answer(asked: tuple[str, str, list[list[str]], int, str]) -> str:
        family, folder, texts, most, path = asked
        model, loaded = AutoModel.from_pretrained(folder, output_loading_info=True)
        if any(loaded.values()):
            raise RuntimeError(f"{folder}: weights are missing or left over: {loaded}")
        if family == "new":
            stretch(model)
        known = inspect.signature(model.forward).parameters
        tokenizer = AutoTokenizer.from_pretrained(folder)
        arrays = {}
        for number, row in enumerate(texts):
            encoded = tokenizer(*row, return_tensors="pt", truncation=True, max_length=most)
            inputs = {name: values for name, values in encoded.items() if name in known}
            with torch.no_grad():
                outputs = model(**inputs, output_hidden_states=True)
            arrays[f"ids/{number}"] = encoded["input_ids"][0].numpy()
            states = torch.stack(outputs.hidden_states, dim=2)[0]
            arrays[f"states/{number}"] = states.float().numpy()
        np.savez(path, **arrays)
        return path

    answer_lines(answer)


if __name__ == "__main__":
    main()
