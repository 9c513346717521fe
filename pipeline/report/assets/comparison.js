/** What `compare` found, with this run as NEW. */
function comparisonSection() {
  const { comparison } = content;
  if (!comparison) return null;
  const { old: before, new: after, relevance, clusters, changed } = comparison;
  const digits = (value, count = 3) => (value === null ? "–" : value.toFixed(count));
  const span = ({ low, high }) => (low === null ? "–" : `${digits(low)} to ${digits(high)}`);
  const wholeOr = (value) => (value === null ? "–" : whole(value));
  // An overlap of as many as there are is of all documents, which both have.
  const overlaps = [
    [1, "overlap of the first neighbour", comparison.overlap_at_1],
    [10, "overlap of the first 10", comparison.overlap_at_10],
    [100, "overlap of the first 100", comparison.overlap_at_100],
  ];
  const figures = overlaps.filter(([first]) => first < comparison.pool).map(([, ...row]) => row);
  figures.push(["rank correlation of the first 100", comparison.rank_correlation]);
  const measures = relevance
    ? [
        ["nDCG@10", relevance.ndcg_at_10],
        ["recall@100", relevance.recall_at_100],
        ["MRR", relevance.mrr],
      ]
    : [];
  const sides = [
    ["bytes of vectors", (side) => whole(side.bytes)],
    ["bytes a row", (side) => wholeOr(side.bytes_per_row)],
    ["tokens a second, last attempt", (side) => wholeOr(side.tokens_per_second)],
    ["tokens", (side) => whole(side.tokens)],
    ["tokens of a document: median, 90%", (side) => `${wholeOr(side.median_tokens)}, ${wholeOr(side.p90_tokens)}`],
    ["tokens cut", (side) => percent(side.cut_share)],
    ["tokens unknown", (side) => percent(side.unknown_share)],
    ["length (norm) of vectors: mean", (side) => digits(side.mean_norm)],
    ["documents that only the other has", (side) => whole(side.missing)],
  ];
  const named = ({ id, text }) => (text ? `${id}: ${text}` : String(id));
  return section(
    "Comparison",
    quiet(
      `OLD is ${before.outputs.join(", ")}, NEW ${after.outputs.join(", ")}. ${whole(comparison.queries)} queries in `,
      `${whole(comparison.pool)} documents that both have; 95% intervals.`,
    ),
    table(
      [
        ["of NEW and OLD", (row) => row[0], "name"],
        ["mean", (row) => digits(row[1].mean), "number"],
        ["interval", (row) => span(row[1]), "number"],
      ],
      figures,
    ),
    relevance
      ? table(
          [
            [`of ${whole(relevance.queries)} queries`, (row) => row[0], "name"],
            ["OLD", (row) => digits(row[1].old.mean), "number"],
            ["NEW", (row) => digits(row[1].new.mean), "number"],
            ["NEW - OLD", (row) => digits(row[1].difference.mean), "number"],
            ["interval", (row) => span(row[1].difference), "number"],
          ],
          measures,
        )
      : null,
    table(
      [
        ["", (row) => row[0], "name"],
        ["OLD", (row) => row[1](before), "number"],
        ["NEW", (row) => row[1](after), "number"],
      ],
      sides,
    ),
    clusters
      ? table(
          [
            [`clusters of OLD; ${percent(comparison.moved)} of NEW moved`, named, "name"],
            ["OLD", (row) => percent(row.old), "number"],
            ["NEW", (row) => percent(row.new), "number"],
          ],
          clusters.slice(0, 5),
        )
      : quiet(`Clusters are not comparable: ${comparison.not_comparable}.`),
    changed.length
      ? table(
          [
            ["neighbours changed most", (row) => (row.id === null ? row.text : named(row)), "name"],
            ["overlap", (row) => digits(row.overlap_at_10, 1), "number"],
            ["near in OLD only", (row) => row.lost.map(named).join(" · "), "name"],
            ["near in NEW only", (row) => row.gained.map(named).join(" · "), "name"],
          ],
          changed,
        )
      : null,
  );
}
