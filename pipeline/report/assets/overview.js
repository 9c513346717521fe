function subtitle() {
  const { model, settings, kind } = content.run;
  const shape = settings.shape ?? settings.token_shape;
  const parts = [model.source];
  if (kind === "vectors" && shape && (settings.vectors ?? ["dense"]).includes("dense")) parts.push(`${shape.join(" × ")} numbers, computed in ${settings.precision}, stored as ${settings.output_dtype}`);
  parts.push(`finished ${content.ended.replace("T", " ").replace("+00:00", " UTC")}`);
  return parts.join(" · ");
}

function overview() {
  const { counts, run, tokens } = content;
  const done = run.kind === "vectors" ? "embedded" : "tokenized";
  const tile = (number, name, style) =>
    element(
      "div",
      { class: "tile" },
      element("b", style ? { class: style } : {}, whole(number)),
      element("span", {}, name),
    );
  const sign = (text) => element("span", { class: "sign", "aria-hidden": "true" }, text);
  const pieces = Object.entries(content.written).filter(([kind]) => kind === "chunks" || kind === "windows");
  return element(
    "section",
    { id: "overview" },
    element(
      "div",
      { class: "sum", id: "counts" },
      tile(counts.records, "records read"),
      sign("="),
      tile(counts.embedded, done, "good"),
      sign("+"),
      tile(counts.rejected, "rejected", counts.rejected > counts.blank_lines ? "bad" : ""),
      sign("+"),
      tile(counts.skipped, "skipped, in an earlier output"),
    ),
    element(
      "ul",
      { class: "notes" },
      notes().map(([healthy, text]) => element("li", healthy ? {} : { class: "bad" }, unbroken(text))),
    ),
    quiet(
      ...pieces.map(([kind, { rows }]) => `${whole(rows)} ${kind}, `),
      `${whole(tokens.tokens)} tokens in ${whole(counts.parts)} parts.`,
    ),
  );
}

/** The flags that help, where so much was lost that it is worth a look. */
function helps(share, what, most = 0.05) {
  return share > most ? `: ${content.advice[what]}` : "";
}

/** What a reader should know first: [whether it is fine, a sentence]. */
function notes() {
  const { changes, counts, foreign_texts: foreign, tokens, unknown, vectors } = content;
  const made = [];
  const add = (healthy, text) => made.push([healthy, text]);
  if (!counts.records) add(false, "The input held no records.");
  else if (!counts.embedded && counts.rejected) add(false, "Nothing was embedded: see the reasons below.");
  else if (content.refused) add(false, `${content.refused}.`);
  if (changes) {
    const kept = changes.withheld ? `, but kept, as ${changes.withheld}` : "";
    add(
      !changes.withheld,
      `${whole(changes.new)} documents are new, ${whole(changes.changed)} changed, and ${whole(changes.gone)} of ${whole(changes.earlier)} in earlier outputs are gone${kept}.`,
    );
  }
  if (counts.parts_reused) {
    add(
      true,
      `The run was resumed: ${whole(counts.parts_reused)} of ${whole(counts.parts)} parts were there before.`,
    );
  }
  if (counts.embedded) {
    add(
      tokens.cut_share <= 0.05,
      counts.truncated
        ? `${percent(tokens.cut_share)} of the tokens of all texts were cut and have no part in the vectors${helps(tokens.cut_share, "cut")}.`
        : "No text was cut.",
    );
    add(
      unknown.share <= 0.05,
      unknown.tokens
        ? `${percent(unknown.share)} of the tokens of all texts are words that the model does not know${helps(unknown.share, "unknown")}.`
        : "The model has a token for every word.",
    );
  }
  if (foreign) {
    const share = foreign / counts.embedded;
    add(
      share <= 0.1,
      `${whole(foreign)} ${foreign === 1 ? "text" : "texts"} (${percent(share)}) may be of languages that the model does not know, by their letters, or words in many pieces${helps(share, "unknown", 0.1)}.`,
    );
  }
  if (vectors) {
    const odd = vectors.findings.filter((finding) => !finding.healthy).map((finding) => finding.name);
    add(
      !odd.length,
      odd.length
        ? `Look at the vectors: ${odd.join(", ")} (see Health of the vectors).`
        : "The vectors look healthy.",
    );
  }
  return made;
}
