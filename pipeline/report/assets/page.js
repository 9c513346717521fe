const content = JSON.parse(document.getElementById("content").textContent);

function subtitle() {
  const { model, settings, kind } = content.run;
  const shape = settings.shape ?? settings.token_shape;
  const parts = [model.source];
  if (kind === "vectors" && shape) parts.push(`${shape.join(" × ")} numbers, ${settings.output_dtype}`);
  parts.push(`finished ${content.timings.ended.replace("T", " ").replace("+00:00", " UTC")}`);
  return parts.join(" · ");
}

function overview() {
  const { counts, run, tokens, timings } = content;
  const done = run.kind === "vectors" ? "embedded" : "tokenized";
  const tile = (number, name, style) =>
    element("div", { class: "tile" }, element("b", style ? { class: style } : {}, whole(number)), element("span", {}, name));
  const sign = (text) => element("span", { class: "sign", "aria-hidden": "true" }, text);
  const rate = timings.documents_per_second;
  return element(
    "section", { id: "overview" },
    element(
      "div", { class: "sum", id: "counts" },
      tile(counts.records, "records read"), sign("="),
      tile(counts.embedded, done, "good"), sign("+"),
      tile(counts.rejected, "rejected", counts.rejected > counts.blank_lines ? "bad" : ""), sign("+"),
      tile(counts.skipped, "skipped, in an earlier output"),
    ),
    element("ul", { class: "notes" }, notes().map(([healthy, text]) =>
      element("li", healthy ? {} : { class: "bad" }, text))),
    quiet(
      `${whole(tokens.tokens)} tokens in ${whole(counts.parts)} parts; `,
      rate === null
        ? "earlier attempts had computed everything."
        : `${whole(rate)} documents and ${whole(timings.tokens_per_second)} tokens a second, for ${seconds(timings.elapsed_seconds)}.`,
    ),
  );
}

/** What a reader should know first: [whether it is fine, a sentence]. */
function notes() {
  const { counts, tokens, unknown, equal_texts: equal, duplicate_ids: doubled, vectors } = content;
  const made = [];
  const add = (healthy, text) => made.push([healthy, text]);
  if (!counts.records) add(false, "The input held no records.");
  else if (!counts.embedded && counts.rejected) add(false, "Nothing was embedded: see the reasons below.");
  if (counts.parts_reused) {
    add(true, `The run was resumed: ${whole(counts.parts_reused)} of ${whole(counts.parts)} parts were there before.`);
  }
  if (counts.embedded) {
    add(tokens.cut_share <= 0.05, counts.truncated
      ? `${percent(tokens.cut_share)} of the tokens were cut and have no part in the vectors.`
      : "No text was cut.");
    add(unknown.share <= 0.05, unknown.tokens
      ? `${percent(unknown.share)} of the tokens are words that the model does not know.`
      : "The model knows every word.");
  }
  if (equal?.surplus) add(true, `${equal.exact ? "" : "About "}${whole(equal.surplus)} texts are equal to another one.`);
  if (doubled) add(!doubled.ids, doubled.ids ? `${whole(doubled.ids)} ids occur more than once.` : "No id occurs twice.");
  if (content.removed) add(true, `${whole(content.removed)} documents of the earlier outputs are no longer in the input.`);
  if (vectors) {
    const odd = vectors.findings.filter((finding) => !finding.healthy).map((finding) => finding.name);
    add(!odd.length, odd.length ? `Look at the vectors: ${odd.join(", ")}.` : "The vectors look healthy.");
  }
  return made;
}

function nameOf(row) {
  const { ids, places, texts } = content.documents;
  const name = `${ids[row]}${places ? ` ${places[row]}` : ""}`;
  return texts
    ? element("div", {}, element("div", { class: "clamped" }, texts[row]), element("div", { class: "quote" }, name))
    : element("div", {}, name);
}

function clusterName(number) {
  const words = content.clusters[number].words ?? [];
  return words.slice(0, 3).join(", ") || `cluster ${number + 1}`;
}

function mapSection() {
  if (!content.map) {
    const kinds = Object.keys(content.written).filter((kind) => kind !== "rejected" && kind !== "removed");
    const why = content.vectors || !kinds.length || !content.counts.embedded
      ? "There are too few different vectors for a map."
      : `There is no map and no check of vectors: this run wrote ${kinds.join(" and ")}, no vector of a whole text.`;
    return section("Map", quiet(why));
  }
  const { rows, total } = content.sampled;
  const map = new DocumentMap(content, clusterName);
  const made = content.map.projections.map(({ name, package: from, version, parameters }) =>
    `${name} by ${from} ${version} (${Object.entries(parameters).map(([key, value]) => `${key} ${value}`).join(", ")})`);
  const shown = content.documents.ids.length;
  const parts = [
    section(
      "Map",
      quiet(`Each point is a ${content.documents.places ? "piece of a document" : "document"}; near points have similar vectors. `,
        shown < total ? `${whole(shown)} of ${whole(total)}, spread over the whole output.` : `All ${whole(total)} are shown.`,
        content.documents.texts ? "" : " Texts are not shown: the output does not hold them."),
      ...map.parts(),
      quiet(`Made with ${made.join("; ")}. Checks and clusters use ${whole(rows)}.`),
    ),
    clusterSection(),
  ];
  requestAnimationFrame(() => { map.showLegend(); map.draw(); });
  document.addEventListener("theme", () => map.draw());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.draw());
  return parts;
}

function clusterSection() {
  const groups = content.clusters.map(({ size, words, central }, number) => {
    const made = element(
      "div", {},
      element("h3", {}, words?.length ? words.join(", ") : `Cluster ${number + 1}`),
      quiet(`${whole(size)} in the sample`),
      ...central.slice(0, 2).map((row) => element("div", { class: "quote" }, nameOf(row))),
    );
    made.style.borderColor = COLOURS[number];
    return made;
  });
  const named = content.documents.texts
    ? "named by words that are more frequent in them than elsewhere, with the documents in their middle."
    : "with the documents in their middle.";
  return section("What the corpus is about", quiet(`Clusters of similar vectors (k-means), ${named}`),
    element("div", { class: "groups" }, groups));
}

function neighbourSection() {
  if (!content.neighbours?.length) return null;
  const rows = content.neighbours.map(({ row, near }) => element(
    "div", { class: "pair" },
    nameOf(row),
    element("div", {}, near.map(([other, score]) =>
      element("div", { class: "hit" }, element("b", {}, score.toFixed(2)), nameOf(other)))),
  ));
  return section(
    "Nearest neighbours",
    quiet("Ten documents, each beside those whose vectors are nearest among what was sampled, with the cosine. Texts that stand together should be about the same."),
    ...rows,
  );
}

function vectorSection() {
  const { vectors } = content;
  if (!vectors) return null;
  const findings = vectors.findings.map(({ name, value, normal, healthy }) => element(
    "div", { class: "finding" },
    element("div", {}, element("b", { class: healthy ? "good" : "bad" }, healthy ? "fine " : "look "), name),
    element("div", {}, value),
    quiet(normal),
  ));
  const charts = [];
  if (vectors.cosines.counts.length) charts.push(histogram(vectors.cosines, "Cosines of random pairs"));
  if (vectors.norms.counts.length) charts.push(histogram(vectors.norms, "Lengths of the vectors"));
  if (vectors.variances.length) {
    const shares = vectors.variances;
    const label = (at) => `direction ${at + 1}, thousandths of the variance`;
    charts.push(element("div", {}, element("h3", {}, "Variance by direction"),
      bars(shares.map((share) => 1000 * share), "Variance by direction", label, ["1st", `${shares.length}th`])));
  }
  return section("Health of the vectors", quiet(`From ${whole(vectors.rows)} vectors.`), ...findings,
    element("div", { class: "columns" }, charts));
}

function lengthSection() {
  const { lengths, tokens, unknown, counts } = content;
  if (!lengths.counts.length) return null;
  const { bin_tokens: bin, counts: documents } = lengths;
  const { max_seq_length: most, long_text: long, chunk } = content.run.settings;
  const label = (at) => `${at * bin} to ${(at + 1) * bin - 1} tokens`;
  const last = documents.length * bin - 1;
  const cuts = long === "truncate" && !chunk;
  const line = cuts && counts.truncated && most <= last + bin ? Math.min((most + 0.5) / bin, documents.length) : null;
  const files = unknown.files.map(({ file, tokens: count, share }) => [file, count, share]);
  return section(
    "Lengths and lost tokens",
    element("p", {}, cuts
      ? ["Texts are cut at ", String(most), " tokens: ", whole(counts.truncated), " documents and ", element("b", { id: "cut" }, percent(tokens.cut_share)), " of all tokens."]
      : `Nothing is cut: long texts are ${chunk ? `read in chunks by ${chunk}` : long === "window" ? "read in windows" : "rejected"}.`),
    bars(documents, "Documents by length", label, ["0 tokens", `${last} tokens`], line, `cut at ${most}`),
    quiet(`Half of the documents have at most ${lengths.p50} tokens, 90% at most ${lengths.p90}, 99% at most ${lengths.p99}.`),
    element("p", {}, `${percent(unknown.share)} of the tokens are [UNK], words that the model does not know`,
      `${Object.keys(unknown.scripts).length ? ` (${Object.keys(unknown.scripts).join(", ")})` : ""}. `,
      `${percent(tokens.padding_share)} of what the model computed was padding.`),
    files.length ? table([["files with most [UNK]", (each) => each[0], "name"], ["[UNK]", (each) => whole(each[1]), "number"],
      ["share", (each) => percent(each[2]), "number"]], files) : null,
  );
}

function rejectedSection() {
  const { rejected, skipped_files: skipped } = content;
  const suffixes = Object.entries(skipped);
  if (!rejected.length && !suffixes.length) return null;
  const place = ({ source, line, id, text }) => element(
    "div", {}, line ? `${source.slice(0, source.lastIndexOf(":"))}, line ${line}` : source, id !== null && id !== source ? ` (id ${id})` : "",
    text ? element("div", { class: "quote" }, text) : null,
  );
  const parts = [];
  if (rejected.length) {
    parts.push(table([
      ["reason", (each) => each.reason, "name"],
      ["stage", (each) => each.stage ?? ""],
      ["records", (each) => whole(each.count), "number"],
      ["first places", (each) => each.places.map(place), "name"],
    ], rejected));
    parts.push(quiet("A place is a file and the line, or the byte or row at which the record begins. The folder rejected/ holds every record."));
  }
  if (suffixes.length) {
    parts.push(quiet(`Files that are not text and were skipped: ${suffixes.map(([suffix, count]) => `${suffix || "no suffix"} ${whole(count)}`).join(", ")}.`));
  }
  return section("Rejected", ...parts);
}

function fileSection() {
  const { files } = content;
  if (!files?.length) return null;
  const number = (title, name) => [title, (each) => whole(each[name]), "number"];
  return section("By file", table([["file", (each) => each.files, "name"], number("records", "records"), number("embedded", "embedded"),
    number("rejected", "rejected"), number("skipped", "skipped"), number("cut", "truncated"), number("tokens", "tokens")], files));
}

function speedSection() {
  const { timings } = content;
  const spent = Object.entries(timings.stage_seconds).map(([stage, time]) => [stage, time, seconds(time)]);
  const over = timings.over_time;
  const parts = [];
  if (over) {
    const label = (at) => `second ${whole(at * over.seconds)} to ${whole((at + 1) * over.seconds)}, tokens a second`;
    const end = seconds(over.seconds * over.tokens.length);
    parts.push(element("div", {}, element("h3", {}, "Tokens a second, over time"),
      bars(over.tokens, "Tokens a second, over time", label, ["start", `at most ${whole(Math.max(...over.tokens))}`, end])));
  }
  parts.push(element("div", {}, element("h3", {}, "Seconds per stage, over all workers"), levels(spent)));
  const total = (each) => Object.values(each.seconds).reduce((sum, time) => sum + time, 0);
  const worst = (each) => Object.entries(each.seconds).sort((one, other) => other[1] - one[1])[0]?.[0] ?? "";
  const sampled = timings.parts_read < timings.parts
    ? `From the reports of ${whole(timings.parts_read)} of ${whole(timings.parts)} parts.` : "";
  return section(
    "Speed",
    quiet(over ? "" : "Too few parts to show the speed over time. ", sampled),
    element("div", { class: "columns" }, parts),
    timings.slowest.length ? table([["slowest blocks", (each) => `block ${each.block}, part ${each.part}`],
      ["seconds", (each) => total(each).toFixed(2), "number"], ["most in", worst], ["documents", (each) => whole(each.documents), "number"],
      ["tokens/s", (each) => whole(each.tokens / Math.max(total(each), 1e-9)), "number"]], timings.slowest) : null,
  );
}

function runSection() {
  const { run, written } = content;
  const rows = [
    ["output", run.output],
    ["model", `${run.model.name} (${run.model.source}), fingerprint ${run.model.fingerprint}`],
    ["settings", Object.entries(run.settings).filter(([, value]) => value !== null && value !== "")
      .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(",") : value}`).join(" · ")],
    ["engine", run.engine ?? "chosen by the workers"],
    ["files", Object.entries(written).map(([kind, each]) => `${kind}: ${whole(each.rows)} rows, ${whole(each.bytes)} bytes`).join(" · ") || "none"],
    ...run.tables.map((name) => ["table", name]),
    ["versions", Object.entries(run.versions).map(([name, version]) => `${name} ${version}`).join(" · ")],
    ["run", run.fingerprint],
  ];
  return section("The run", element("pre", { id: "command" }, run.command),
    table([["", (row) => row[0]], ["", (row) => row[1], "name"]], rows));
}

function chooseTheme() {
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
    document.dispatchEvent(new Event("theme"));
  });
  system.addEventListener("change", name);
  name();
}

document.title = `${content.run.name}: report`;
document.getElementById("title").textContent = content.run.name;
document.getElementById("subtitle").textContent = subtitle();
document.getElementById("main").append(...[
  overview(), mapSection(), neighbourSection(), rejectedSection(), lengthSection(),
  vectorSection(), fileSection(), speedSection(), runSection(),
].flat().filter(Boolean));
chooseTheme();
