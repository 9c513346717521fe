/**
 * A bar for each count, over the whole width. `label` names a bar by its number; `cut` is where a
 * line crosses the chart, in bars, with its name beside it.
 */
function bars(counts, title, label, ends, cut = null, cutName = "") {
  const most = Math.max(...counts, 1e-12);
  const chart = drawing("svg", {
    viewBox: `0 0 ${counts.length} 100`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": title,
  });
  counts.forEach((count, at) => {
    const height = count ? Math.max((100 * count) / most, 1) : 0;
    const about = drawing("title", {}, `${label(at)}: ${whole(count)}`);
    chart.append(drawing("rect", { x: at + 0.06, width: 0.88, y: 100 - height, height }, about));
  });
  if (cut !== null) chart.append(drawing("line", { class: "cut", x1: cut, x2: cut, y1: 0, y2: 100 }));
  const axis = element(
    "div",
    { class: "axis" },
    ends.map((end) => element("span", {}, end)),
  );
  const made = element("div", { class: "chart" }, chart, axis);
  if (cut !== null) {
    const name = element("span", { class: "cut" }, cutName);
    const share = cut / counts.length;
    name.style[share > 0.5 ? "right" : "left"] = `${100 * (share > 0.5 ? 1 - share : share)}%`;
    made.append(name);
  }
  return made;
}

/** A histogram as `{low, high, counts}`. */
function histogram(found, title) {
  const bin = (found.high - found.low) / found.counts.length;
  const label = (at) =>
    `${(found.low + at * bin).toPrecision(3)} to ${(found.low + (at + 1) * bin).toPrecision(3)}`;
  const ends = [found.low.toPrecision(4), found.high.toPrecision(4)];
  return element("div", {}, element("h3", {}, title), bars(found.counts, title, label, ends));
}
