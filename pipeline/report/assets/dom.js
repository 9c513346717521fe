"use strict";

const COLOURS = [
  "#4e79a7",
  "#f28e2b",
  "#59a14f",
  "#e15759",
  "#b07aa1",
  "#3fa7a0",
  "#d4a72c",
  "#f27fa0",
  "#9c755f",
  "#8793a3",
];

/** Makes an element. Strings become text nodes, so that nothing in the data becomes markup. */
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A sentence in which names such as --long_text and max_seq_length do not break across lines. */
function unbroken(sentence) {
  return sentence
    .split(/(--\w+|\w+_\w+)/)
    .map((piece, at) => (at % 2 ? element("span", { class: "name" }, piece) : piece));
}

function whole(number) {
  return Math.round(number).toLocaleString("en");
}

function percent(share) {
  const digits = share > 0 && share < 0.001 ? 3 : 1;
  return `${(100 * share).toFixed(digits)}%`;
}

/** A table. Columns are [title, a row's cell, class of the cells]. */
function table(columns, rows) {
  const cells = (kind, content) =>
    columns.map(([, , style], at) => element(kind, style ? { class: style } : {}, content(at)));
  const head = columns.some(([title]) => title)
    ? element(
        "thead",
        {},
        element(
          "tr",
          {},
          cells("th", (at) => columns[at][0]),
        ),
      )
    : null;
  const body = rows.map((row) =>
    element(
      "tr",
      {},
      cells("td", (at) => columns[at][1](row)),
    ),
  );
  return element(
    "div",
    { class: "scroll", tabindex: "0" },
    element("table", {}, ...[head, element("tbody", {}, body)].filter(Boolean)),
  );
}

function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

function quiet(...children) {
  return element("p", { class: "dim" }, ...children);
}

function dot(colour) {
  const made = element("span", { class: "dot" });
  made.style.background = colour;
  return made;
}
