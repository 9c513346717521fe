"""Embeds a corpus and looks into what was written: `bert-embed`, or these functions in Python."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from bert_embed.base.errors import SettingError
from bert_embed.pipeline.errors import RunFailed

if TYPE_CHECKING:
    from bert_embed.pipeline.commands.compare import Comparison
    from bert_embed.pipeline.options.python_call import EmbedKeywords, Path
    from bert_embed.search.nearest import Hit

__all__ = ["RunFailed", "compare", "embed", "nearest"]


def embed(
    input: "Path | Sequence[Path] | None" = None,
    output: "Path | None" = None,
    *,
    show_progress: bool = True,
    **options: "Unpack[EmbedKeywords]",
) -> dict[str, Any]:
    """Embeds files or a BigQuery table, as `bert-embed embed` does, and waits for the end.

    The same call again continues a run that was interrupted, and does nothing for a complete one.
    It ends no process, and changes neither logging nor signals.

    Args:
        input: A file, folder, glob or table, or a list of them.
        output: Folder of the run, local or gs://.
        show_progress: Whether to print the plan, lines on the progress, and the summary.
        **options: The flags of `bert-embed embed` by their names without dashes, which
            `docs/options.md` lists. Several values are a list, a switch is True or False, and
            None leaves an option out. Beam's flags are the words of `beam_args`; as keywords they
            are taken, too, but a type checker does not know them.

    Returns:
        The run's record, a plain dict equal to `run.json` (`docs/report.md`). With `dry_run`
        it says what a run would do, its `status` is `planned`, and nothing is written.

    Raises:
        ValueError: An option is unknown or wrong, or contradicts input, model or output.
        RunFailed: The job failed, or more records were rejected than `max_rejected` allows.
        OSError: A store does not answer at this moment.

    Warns:
        UserWarning: Without `show_progress`, of what the summary warns of, such as many cut tokens.

    >>> embed(inptu="texts")
    Traceback (most recent call last):
    bert_embed.pipeline.errors.UsageError: unknown flag inptu; did you mean input?
    """
    from bert_embed.base.arguments import switch
    from bert_embed.pipeline.options.python_call import named_as_in_python, options_of_call

    shown = switch("show_progress", show_progress)
    with named_as_in_python():
        parsed = options_of_call({"input": input, "output": output, **options})
    from bert_embed.pipeline.console import undisturbed

    with undisturbed():
        from bert_embed.pipeline.job import (
            run_for_caller,  # imports Beam, so a wrong option comes first
        )

        return run_for_caller(parsed, shown)


def compare(
    old: "Path",
    new: "Path",
    *,
    queries: "Path | None" = None,
    sample: int | None = None,
    by: str | None = None,
    seed: int = 0,
    old_model: "Path | None" = None,
    new_model: "Path | None" = None,
) -> "Comparison":
    """Compares two outputs of the same documents, as `bert-embed compare` does.

    Args:
        old: Output of a run; of several, `export` to parquet makes one.
        new: Another, of whatever model, number type, dim or kind of vectors.
        queries: File of JSON lines, each with `text`, and optionally `relevant`, a list of ids;
            None draws documents that both outputs have.
        sample: How many documents to draw; None is 200.
        by: "dense", "sparse" or "multi"; None is what each output holds, dense first.
        seed: Of the documents drawn and of the confidence intervals.
        old_model: Where the model of `old` is, if it was moved; only for `queries`.
        new_model: Likewise of `new`.

    Returns:
        The figures, with confidence intervals (`docs/compare.md`).

    Raises:
        SettingError: An argument is wrong.
        InputError: The outputs cannot be compared, or are damaged.
    """
    from bert_embed.pipeline.options.commands import CompareOptions
    from bert_embed.pipeline.options.python_call import named_as_in_python

    with named_as_in_python():
        options = CompareOptions(
            *(old, new, queries, sample, by, seed, old_model, new_model)  # type: ignore[arg-type]
        )
        from bert_embed.pipeline.commands.compare import compared

        return compared(options)


def nearest(
    folders: "Path | Sequence[Path]",
    queries: Sequence[str],
    k: int = 10,
    *,
    by: str | None = None,
    model: "Path | None" = None,
    prompt: str | None = None,
) -> "list[list[Hit]]":
    """Finds the documents nearest to each text, as `bert-embed search` does.

    Args:
        folders: Output of a run, a folder of outputs or a glob, or a list of them.
        queries: Texts, which the outputs' model embeds with its prompt for queries.
        k: How many documents to find for each.
        by: "dense", "sparse" or "multi"; None is what the outputs hold, dense first.
        model: Where the model is, if it was moved.
        prompt: Before each query, in place of the model's own.

    Returns:
        The hits of each query, the nearest first, with score, id and text.

    Raises:
        SettingError: An argument is wrong.
        InputError: The outputs cannot be searched together, or are damaged.
    """
    from bert_embed.base.arguments import text_list
    from bert_embed.pipeline.options.commands import SearchOptions
    from bert_embed.pipeline.options.python_call import named_as_in_python, outputs_given

    if isinstance(queries, str):
        raise SettingError("queries", "must be a list of texts, got one text: put it in a list")
    texts = text_list("queries", queries)
    with named_as_in_python():
        options = SearchOptions(
            words=(*outputs_given("folders", folders), "queries"),
            k=k,
            by=by,
            model=model,  # type: ignore[arg-type]
            prompt=prompt,
        )
        from bert_embed.pipeline.commands.search import search
        from bert_embed.results.outputs import output_folders

        return search(output_folders(options.folders), texts, options)
