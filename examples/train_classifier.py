"""Train a classifier on the rows that `tokenize` wrote: tf.data in, Keras on top of BERT.

    bert-embed tokenize --input texts.jsonl --output build/examples
    bert-embed model export minilm build/minilm
    python -m examples.train_classifier --examples build/examples --labels labels.tsv \
        --model build/minilm

`labels.tsv` has an id and a label a line, with a tab between. The model is the one whose tokenizer
made the examples. Nothing of this project is imported: the files are plain TFRecord, the model is a
SavedModel as TF Hub has them.
"""

import argparse
import glob
import os
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
import tensorflow_hub as hub
import tf_keras as keras

_HELD_OUT = 5  # one of so many texts is not trained on
_FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.string),
    "input_ids": tf.io.RaggedFeature(tf.int64),
    "input_mask": tf.io.RaggedFeature(tf.int64),
    "segment_ids": tf.io.RaggedFeature(tf.int64),
}


def read_labels(path: str) -> dict[str, str]:
    """Reads ids and their labels from a file with one of each in a line, a tab between them."""
    labels = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            name, tab, label = line.rstrip("\n").partition("\t")
            if line.strip() and not tab:
                raise SystemExit(f"--labels {path}, line {number} has no tab between id and label")
            if tab:
                labels[name] = label
    return labels


def rows(folder: str, labels: dict[str, str], classes: Sequence[str]) -> tf.data.Dataset:
    """The labelled rows of a folder of examples: inputs of a BERT, the number of the class, the id.

    Rows have different lengths, nothing is filled yet.
    """
    files = sorted(glob.glob(os.path.join(folder, "examples", "part-*.tfrecord*")))
    if not files:
        raise SystemExit(f"--examples {folder} holds no files examples/part-*.tfrecord")
    numbers = {label: number for number, label in enumerate(classes)}
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            list(labels), [numbers[label] for label in labels.values()], tf.string, tf.int64
        ),
        default_value=-1,
    )

    def parsed(example: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        row = tf.io.parse_single_example(example, _FEATURES)
        inputs = {
            "input_word_ids": tf.cast(row["input_ids"], tf.int32),
            "input_mask": tf.cast(row["input_mask"], tf.int32),
            "input_type_ids": tf.cast(row["segment_ids"], tf.int32),
        }
        return inputs, table.lookup(row["id"]), row["id"]

    compression = "GZIP" if files[0].endswith(".gz") else ""
    records = tf.data.TFRecordDataset(files, compression_type=compression)
    return records.map(parsed).filter(lambda inputs, label, name: label >= 0)


def batches(data: tf.data.Dataset, held_out: bool, size: int) -> tf.data.Dataset:
    """Filled batches of the rows to train on, or of those held out; the id decides which."""

    def belongs(inputs: dict[str, tf.Tensor], label: tf.Tensor, name: tf.Tensor) -> tf.Tensor:
        return (tf.strings.to_hash_bucket_fast(name, _HELD_OUT) == 0) == held_out

    chosen = data.filter(belongs).map(lambda inputs, label, name: (inputs, label))
    if not held_out:
        chosen = chosen.shuffle(10_000, seed=1)
    return chosen.padded_batch(size).prefetch(tf.data.AUTOTUNE)


def check_enough(
    data: tf.data.Dataset,
    training: tf.data.Dataset,
    held_out: tf.data.Dataset,
    classes: Sequence[str],
) -> None:
    """Raises SystemExit unless there are two classes, rows to train on and rows to hold out."""
    if len(classes) < 2:
        raise SystemExit(f"--labels names {len(classes)} classes, a classifier needs at least 2")
    if not all(any(True for _ in part.take(1)) for part in (training, held_out)):
        rows_found = sum(1 for _ in data)
        raise SystemExit(
            f"{rows_found} rows of --examples have a label, too few to train on some and test on "
            f"others: one text of {_HELD_OUT} is held out, chosen by its id; label more texts"
        )


def classifier(saved_model: str, classes: int, train_bert: bool) -> keras.Model:
    """Softmax over the mean of the last layer's token vectors."""
    names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = {name: keras.Input([None], dtype=tf.int32, name=name) for name in names}
    states = hub.KerasLayer(saved_model, trainable=train_bert)(inputs)["sequence_output"]
    mask = tf.cast(inputs["input_mask"], tf.bool)
    mean = keras.layers.GlobalAveragePooling1D()(states, mask=mask)
    model = keras.Model(inputs, keras.layers.Dense(classes, "softmax")(mean))
    model.compile(keras.optimizers.Adam(1e-5 if train_bert else 1e-2), _LOSS, ["accuracy"])
    return model


_LOSS = "sparse_categorical_crossentropy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", required=True, metavar="DIR", help="output of `tokenize`")
    parser.add_argument("--labels", required=True, metavar="TSV", help="lines of id, tab, label")
    parser.add_argument("--model", required=True, metavar="DIR", help="what `model export` wrote")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--train_bert", action="store_true", help="its weights, too")
    parser.add_argument("--save", metavar="FILE.keras", help="where to save the classifier")
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    labels = read_labels(args.labels)
    classes = sorted(set(labels.values()))
    data = rows(args.examples, labels, classes)
    training = batches(data, held_out=False, size=args.batch_size)
    held_out = batches(data, held_out=True, size=args.batch_size)
    check_enough(data, training, held_out, classes)
    model = classifier(args.model, len(classes), args.train_bert)
    model.fit(training, epochs=args.epochs, verbose=0)
    _, accuracy = model.evaluate(held_out, verbose=0)
    print(f"classes {', '.join(classes)}")
    print(f"accuracy on texts held out {accuracy:.3f}")
    if args.save:
        model.save(args.save)


if __name__ == "__main__":
    main()
