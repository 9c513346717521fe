function nameOf(row) {
  const { ids, places, texts } = content.documents;
  const name = `${ids[row]}${places ? ` ${places[row]}` : ""}`;
  return texts?.[row]
    ? element(
        "div",
        {},
        element("div", { class: "clamped" }, texts[row]),
        element("div", { class: "quote" }, name),
      )
    : element("div", {}, name);
}

function clusterName(number) {
  const names = content.clusters.map(({ words = [] }) => words.slice(0, 3).join(", ") || "cluster");
  const alike = names.filter((name) => name === names[number]).length > 1;
  return alike || names[number] === "cluster" ? `${names[number]} ${number + 1}` : names[number];
}

function mapSection() {
  if (!content.map) {
    const kinds = Object.keys(content.written).filter((kind) => !["rejected", "deleted"].includes(kind));
    const why =
      content.vectors || !kinds.length || !content.counts.embedded
        ? "There are too few different vectors for a map."
        : `There is no map and no check of vectors: this run wrote ${kinds.join(" and ")}, no vector of a whole text.`;
    return section("Map", quiet(why));
  }
  const { rows, total } = content.sampled;
  const map = new DocumentMap(content, clusterName);
  const made = content.map.projections.map(({ name, package: from, version, parameters }) => {
    const settings = Object.entries(parameters).map(([key, value]) => `, ${key} ${value}`);
    return `${name} (${from} ${version}${settings.join("")})`;
  });
  const shown = content.documents.ids.length;
  const parts = [
    section(
      "Map",
      quiet(
        `Each point is a ${content.documents.places ? "piece of a document" : "document"}; near points have similar vectors. `,
        shown < total
          ? `${whole(shown)} of ${whole(total)}, spread over the whole output.`
          : `All ${whole(total)} are shown.`,
        textsNote(),
      ),
      ...map.parts(),
      quiet(
        `Drawn by ${made.join(" and ")}. Checks and clusters use ${whole(rows)}. `,
        tsneNote(),
      ),
    ),
    clusterSection(),
  ];
  requestAnimationFrame(() => {
    map.showLegend();
    map.draw();
  });
  document.addEventListener("theme", () => map.draw());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.draw());
  return parts;
}

/** How to get a map that shows groups more clearly, where PCA's is the only one. */
function tsneNote() {
  const { projections, lacks_tsne: lacks } = content.map;
  if (projections.length > 1 || content.documents.ids.length < 100) return "";
  const command = `bert-embed report ${content.run.output}`;
  return lacks
    ? `openTSNE is not installed, so there is no map by t-SNE, which shows groups more clearly: pip install openTSNE, then ${command}`
    : `${command} adds a map by t-SNE, which shows groups more clearly.`;
}

function textsNote() {
  const { texts } = content.documents;
  if (!texts) return " No texts are shown.";
  const shown = texts.filter(Boolean).length;
  return shown < texts.length ? ` Texts are shown of ${whole(shown)}.` : "";
}

function clusterSection() {
  const groups = content.clusters.map(({ size, words, central }, number) => {
    const title = words?.length ? words.join(", ") : `Cluster ${number + 1}`;
    const made = element(
      "div",
      {},
      element("h3", {}, title),
      quiet(`${whole(size)} in the sample`),
      ...central.slice(0, 2).map((row) => element("div", { class: "quote" }, nameOf(row))),
    );
    made.style.borderColor = COLOURS[number];
    return made;
  });
  const named = content.documents.texts
    ? "named by the words that set them apart (class-based TF-IDF), with the documents in their middle."
    : "with the documents in their middle.";
  return section(
    "What the corpus is about",
    quiet(`Clusters of similar vectors (k-means), ${named}`),
    element("div", { class: "groups" }, groups),
  );
}

function neighbourSection() {
  if (!content.neighbours?.length) return null;
  const rows = content.neighbours.map(({ row, near, equal }) =>
    element(
      "div",
      { class: "pair" },
      element("div", {}, nameOf(row), equal ? quiet(`and ${whole(equal)} with an equal vector`) : null),
      element(
        "div",
        {},
        near.map(([other, score]) =>
          element("div", { class: "hit" }, element("b", {}, score.toFixed(2)), nameOf(other)),
        ),
      ),
    ),
  );
  return section(
    "Nearest neighbours",
    quiet(
      "Ten documents, each beside those whose vectors are nearest among what was sampled, with the cosine; of equal vectors one is shown. Texts that stand together should be about the same.",
    ),
    ...rows,
  );
}
