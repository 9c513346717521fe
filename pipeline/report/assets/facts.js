function vectorSection() {
  const { vectors } = content;
  if (!vectors) return null;
  const findings = vectors.findings.map(({ name, value, normal, healthy }) =>
    element(
      "div",
      { class: "finding" },
      element(
        "div",
        {},
        element("b", { class: healthy ? "good" : "bad" }, healthy ? "fine " : "look "),
        name,
      ),
      element("div", {}, value),
      quiet(normal),
    ),
  );
  const charts = [];
  if (vectors.cosines.counts.length) charts.push(histogram(vectors.cosines, "Cosines of random pairs"));
  return section(
    "Health of the vectors",
    quiet(`From ${whole(vectors.rows)} vectors.`),
    ...findings,
    element("div", { class: "columns" }, charts),
  );
}

function lengthSection() {
  const { lengths, tokens, unknown, counts, full_lengths: full, sampled } = content;
  if (!lengths.counts.length) return null;
  const { bin_tokens: bin, counts: documents } = lengths;
  const equal = lengths.equal_bins ?? documents.length;
  const { max_seq_length: most, long_text: long, chunk, chunk_context: contexts = [] } = content.run.settings;
  const before = contexts.filter((name) => name !== "document");
  const context = before.length ? `, each after its ${before.join(", ")}` : "";
  const shortened = content.cut_contexts ? ` Contexts of ${whole(content.cut_contexts)} documents were cut.` : "";
  // Where a bar begins: after those of equal width, four reach twice as far as all before them.
  const begin = (at) =>
    at <= equal ? at * bin : bin * equal * 2 ** Math.floor((at - equal) / 4) * (1 + ((at - equal) % 4) / 4);
  const label = (at) => `${whole(begin(at))} to ${whole(Math.min(begin(at + 1) - 1, longest))} tokens`;
  const cuts = long === "truncate" && !chunk;
  const longest = cuts ? most : Infinity;
  const last = begin(documents.length) - 1;
  const at = documents.findIndex((_, at) => begin(at + 1) > most);
  const place = at < 0 ? documents.length : at + (most + 0.5 - begin(at)) / (begin(at + 1) - begin(at));
  const line = cuts && counts.truncated && most <= last + bin ? place : null;
  return section(
    "Lengths and lost tokens",
    element(
      "p",
      {},
      cuts
        ? [
            "Texts are cut at ",
            String(most),
            " tokens: ",
            whole(counts.truncated),
            " documents and ",
            element("b", { id: "cut" }, percent(tokens.cut_share)),
            ` of the ${whole(tokens.full_tokens)} tokens of all texts.`,
          ]
        : `Nothing is cut: long texts are ${chunk ? `read in chunks by ${chunk}${context}` : long.startsWith("window") ? "read in windows" : "rejected"}.${shortened}`,
    ),
    bars(documents, "Documents by length", label, ["0 tokens", `${whole(Math.min(last, longest))} tokens`], line, `cut at ${most}`),
    quiet(full ? lengthsOf(full, sampled) : shares(lengths, cuts ? most : Infinity)),
    element(
      "p",
      {},
      `${percent(unknown.share)} of the tokens of all texts are [UNK], words that the model does not know.`,
    ),
  );
}

/** The lengths of texts before they were cut, of all documents or of those in the sample. */
function lengthsOf({ p50, p90, p99, longest }, { rows, total }) {
  const of = rows < total ? ` (of ${whole(rows)} in the sample)` : "";
  return `Before any cut, half of the documents have at most ${whole(p50)} tokens, 90% at most ${whole(p90)}, 99% at most ${whole(p99)}; the longest has ${whole(longest)}${of}.`;
}

/** The same by the bars alone, which end at a cut. */
function shares({ p50, p90, p99 }, most) {
  const upTo = (length) => whole(Math.min(length, most));
  return `Half of the documents have at most ${upTo(p50)} tokens, 90% at most ${upTo(p90)}, 99% at most ${upTo(p99)}.`;
}

function rejectedSection() {
  const { rejected, skipped_files: skipped, unfit } = content;
  const suffixes = Object.entries(skipped);
  const columns = Object.entries(unfit);
  if (!rejected.length && !suffixes.length && !columns.length) return null;
  const place = ({ source, id, detail, text }) =>
    element(
      "div",
      {},
      source,
      id !== null && id !== source ? ` (id ${id})` : "",
      detail ? `: ${detail}` : "",
      text ? element("div", { class: "quote" }, text) : null,
    );
  const parts = [];
  if (rejected.length) {
    parts.push(
      table(
        [
          ["reason", (each) => each.reason],
          ["records", (each) => whole(each.count), "number"],
          ["first places", (each) => each.places.map(place), "name"],
        ],
        rejected,
      ),
    );
    parts.push(
      quiet(
        "A place is a file and the line at which the record begins, or the byte or row. The folder rejected/ holds every record with its reason: correct them, and embed them into an output of their own.",
      ),
    );
  }
  if (columns.length) {
    parts.push(
      quiet(
        `Values that no column of the output could take: ${columns.map(([name, count]) => `${name} ${whole(count)}`).join(", ")}.`,
      ),
    );
  }
  if (suffixes.length) {
    parts.push(
      quiet(
        `Files that are hidden, of a run's output, or not text, and were skipped: ${suffixes.map(([suffix, count]) => `${suffix || "no suffix"} ${whole(count)}`).join(", ")}.`,
      ),
    );
  }
  return section("Rejected", ...parts);
}

function runSection() {
  const { run, written } = content;
  const rows = [
    ["output", run.output],
    ["model", `${run.model.name} (${run.model.source}), fingerprint ${run.model.fingerprint}`],
    [
      "settings",
      Object.entries(run.settings)
        .filter(([, value]) => value !== null && value !== "")
        .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(",") : value}`)
        .join(" · "),
    ],
    ["engine", run.engine ?? "chosen by the workers"],
    [
      "files",
      Object.entries(written)
        .map(([kind, each]) => `${kind}: ${whole(each.rows)} rows, ${whole(each.bytes)} bytes`)
        .join(" · ") || "none",
    ],
    ...run.tables.map((name) => ["table", name]),
    [
      "versions",
      Object.entries(run.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(" · "),
    ],
    ["run", run.fingerprint],
  ];
  return section(
    "The run",
    element("pre", { id: "command" }, run.command),
    table(
      [
        ["", (row) => row[0]],
        ["", (row) => row[1], "name"],
      ],
      rows,
    ),
  );
}
