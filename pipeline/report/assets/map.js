const MARGIN = 16; // pixels between the points and the edge of the map
const NEAR = 14; // pixels within which a point is under the pointer
const DRAGGED = 4; // pixels that tell a drag from a click
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The map of the documents: a canvas, a search box, a choice of colours, a legend. */
class DocumentMap {
  constructor(content, nameCluster) {
    this.documents = content.documents;
    this.cluster = content.map.cluster;
    this.projections = content.map.projections;
    this.shown = this.projections[0];
    this.nameCluster = nameCluster;
    this.columns = this.documents.columns.filter((column) => column.kind !== "text");
    this.column = null; // null: clusters
    this.zoom = 1;
    this.middle = [5000, 5000];
    this.pressed = null; // the category that the legend highlights
    this.under = null; // the row under the pointer
    this.found = null; // rows that the search found
    this.haystack = null; // made at the first search
    this.canvas = element("canvas", {
      "aria-label": "Map of the documents: arrows go from point to point, plus and minus zoom",
      role: "application",
      tabindex: "0",
    });
    this.points = document.createElement("canvas"); // all points, drawn once for many pointer moves
    this.hover = element("div", { id: "hover", hidden: "", role: "status" });
    this.legend = element("div", { class: "legend" });
    this.count = element("span", { class: "dim", id: "found", role: "status" });
    this.listen();
  }

  parts() {
    const zoom = element(
      "div",
      { class: "zoom" },
      this.button("+", "Zoom in", () => this.scale(1.6)),
      this.button("−", "Zoom out", () => this.scale(1 / 1.6)),
    );
    return [
      element("div", { class: "controls" }, this.searchBox(), this.count, ...this.choices()),
      element("div", { class: "map" }, this.canvas, zoom, this.hover),
      this.legend,
    ];
  }

  button(text, title, act) {
    const made = element("button", { type: "button", title, "aria-label": title }, text);
    made.addEventListener("click", act);
    return made;
  }

  searchBox() {
    const what = this.documents.texts ? "texts and ids" : "ids";
    const box = element("input", {
      type: "search",
      id: "search",
      placeholder: `Search ${what}`,
      "aria-label": `Search ${what}`,
    });
    box.addEventListener("input", () => this.search(box.value));
    return box;
  }

  choices() {
    const made = [];
    if (this.columns.length) {
      const names = ["cluster", ...this.columns.map((column) => column.name)];
      made.push(
        this.select("colour", "Colour", names, (at) => {
          this.column = at ? this.columns[at - 1] : null;
          this.pressed = null;
          this.showLegend();
        }),
      );
    }
    if (this.projections.length > 1) {
      const names = this.projections.map((projection) => projection.name);
      made.push(
        this.select("projection", "Map", names, (at) => {
          this.shown = this.projections[at];
        }),
      );
    }
    return made;
  }

  select(id, title, names, choose) {
    const box = element(
      "select",
      { id },
      names.map((name) => element("option", {}, name)),
    );
    box.addEventListener("change", () => {
      choose(box.selectedIndex);
      this.draw();
    });
    return element("label", {}, title, box);
  }

  search(words) {
    const wanted = words.trim().toLowerCase();
    this.haystack ??= this.documents.ids.map((id, row) => this.words(row).join("\n").toLowerCase());
    this.found = wanted ? new Set() : null;
    if (wanted) {
      this.haystack.forEach((text, row) => text.includes(wanted) && this.found.add(row));
    }
    this.count.textContent = wanted ? `${whole(this.found.size)} found` : "";
    this.draw();
  }

  words(row) {
    const { ids, texts, columns } = this.documents;
    const values = columns.map((column) => String(valueOf(column, row)));
    return [ids[row], texts ? texts[row] : "", ...values];
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.grip = { x: event.clientX, y: event.clientY, middle: this.middle };
      this.move(event);
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.show(null);
      this.grip = null;
    });
    window.addEventListener("pointerup", () => (this.grip = null));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("blur", () => this.show(null));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  move(event) {
    const by = this.grip && [event.clientX - this.grip.x, event.clientY - this.grip.y];
    if (by && event.pointerType === "mouse" && Math.hypot(...by) > DRAGGED) {
      const unit = this.unit();
      const [x, y] = this.grip.middle;
      this.middle = [x - by[0] / unit, y + by[1] / unit];
      this.hover.hidden = true;
      this.draw();
      return;
    }
    this.show(this.nearest(event.offsetX, event.offsetY));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    if (key in ARROWS) this.step(...ARROWS[key]);
    else if (key === "+" || key === "=") this.scale(1.6);
    else if (key === "-") this.scale(1 / 1.6);
    else if (key === "Escape") this.show(null);
    else return;
    event.preventDefault();
  }

  /** Shows the next point to one side of the one that is shown, or else of the middle. */
  step(right, down) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const place = this.placer();
    const [fromX, fromY] = this.under === null ? [width / 2, height / 2] : place(this.under);
    let best = null;
    let least = Infinity;
    for (let row = 0; row < this.shown.x.length; row++) {
      if (row === this.under || !this.isLit(row)) continue;
      const [x, y] = place(row);
      const along = (x - fromX) * right + (y - fromY) * down;
      const aside = Math.abs((x - fromX) * down) + Math.abs((y - fromY) * right);
      const distance = this.under === null ? Math.hypot(along, aside) : along + 2 * aside;
      if ((this.under === null || along >= 1) && distance < least) [best, least] = [row, distance];
    }
    if (best === null) return;
    const [x, y] = place(best);
    if (x < 0 || y < 0 || x > width || y > height) {
      this.middle = [this.shown.x[best], this.shown.y[best]];
      this.draw();
    }
    this.show(best);
  }

  scale(factor) {
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), 60);
    if (this.zoom === 1) this.middle = [5000, 5000];
    this.draw();
  }

  /** Pixels that one unit of the map takes. */
  unit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const [across, up] = this.shown.extent;
    return this.zoom * Math.min((width - 2 * MARGIN) / across, (height - 2 * MARGIN) / up);
  }

  /** Gives the pixel of a row's point. */
  placer() {
    const unit = this.unit();
    const { x, y } = this.shown;
    const [across, up] = this.middle;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return (row) => [width / 2 + (x[row] - across) * unit, height / 2 - (y[row] - up) * unit];
  }

  nearest(x, y) {
    const place = this.placer();
    let best = null;
    let least = NEAR * NEAR;
    for (let row = 0; row < this.shown.x.length; row++) {
      if (!this.isLit(row)) continue;
      const [left, top] = place(row);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [best, least] = [row, distance];
    }
    return best;
  }

  show(row) {
    this.hover.hidden = row === null;
    if (row !== this.under) {
      this.under = row;
      this.paint();
    }
    if (row === null) return;
    const { ids, places, texts, columns } = this.documents;
    const place = places ? ` ${places[row]}` : "";
    const lines = columns.map((column) => `${column.name}: ${valueOf(column, row)}`);
    this.hover.replaceChildren(
      ...(texts?.[row] ? [element("p", {}, texts[row])] : []),
      quiet(dot(this.colour(row)), ` ${ids[row]}${place}`),
      ...lines.map((line) => quiet(line)),
    );
    const [left, top] = this.placer()(row);
    const width = this.hover.offsetWidth;
    const height = this.hover.offsetHeight;
    const right = left + 14 + width <= this.canvas.clientWidth;
    const beside = right || left - 14 - width >= 0;
    const most = this.canvas.clientHeight - height;
    const below = top + 16 <= most ? top + 16 : top - 16 - height;
    this.hover.style.left = `${Math.max(right ? left + 14 : left - width - 14, 0)}px`;
    this.hover.style.top = `${Math.max(0, beside ? Math.min(top - 10, most) : below)}px`;
  }

  isLit(row) {
    if (this.found && !this.found.has(row)) return false;
    return this.pressed === null || this.category(row) === this.pressed;
  }

  category(row) {
    return this.column ? this.column.values[row] : this.cluster[row];
  }

  colour(row) {
    if (!isScale(this.column)) return COLOURS[this.category(row) % COLOURS.length];
    const value = this.column.values[row];
    if (value === null) return COLOURS.at(-1);
    const [low, high] = this.range();
    return heat((value - low) / (high - low || 1));
  }

  range() {
    const present = this.column.values.filter((value) => value !== null);
    const least = (one, other) => Math.min(one, other);
    const most = (one, other) => Math.max(one, other);
    this.column.range ??= [present.reduce(least, Infinity), present.reduce(most, -Infinity)];
    return this.column.range;
  }

  showLegend() {
    if (isScale(this.column)) {
      const ramp = element("span", { class: "ramp" });
      ramp.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(heat)})`;
      const [low, high] = this.range().map((value) => shownIn(this.column, value));
      this.legend.replaceChildren(quiet(`${low} `), ramp, quiet(` ${high}`));
      return;
    }
    const names = this.column
      ? this.column.labels
      : [...new Set(this.cluster)].sort((one, other) => one - other).map(this.nameCluster);
    this.legend.replaceChildren(
      ...names.map((name, at) => {
        const pressed = this.pressed === at;
        const made = element("button", { type: "button", "aria-pressed": pressed }, dot(COLOURS[at]), name);
        made.addEventListener("click", () => {
          this.pressed = pressed ? null : at;
          this.showLegend();
          this.draw();
        });
        return made;
      }),
    );
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const sharp = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.points]) {
      canvas.width = width * sharp;
      canvas.height = height * sharp;
    }
    const pen = this.points.getContext("2d");
    const place = this.placer();
    pen.scale(sharp, sharp);
    const style = getComputedStyle(document.documentElement);
    const faded = style.getPropertyValue("--faded");
    const count = this.shown.x.length;
    const size = this.size();
    const some = this.found !== null || this.pressed !== null;
    for (const lit of some ? [false, true] : [true]) {
      pen.globalAlpha = lit ? 0.8 : 0.5;
      for (let row = 0; row < count; row++) {
        if (some && this.isLit(row) !== lit) continue;
        const [x, y] = place(row);
        pen.fillStyle = lit ? this.colour(row) : faded;
        pen.beginPath();
        pen.arc(x, y, some && lit ? size + 1 : size, 0, 2 * Math.PI);
        pen.fill();
      }
    }
    this.paint();
  }

  /** Pixels of a point's radius. */
  size() {
    const count = this.shown.x.length;
    return Math.min(Math.max(120 / Math.sqrt(count), 1.7), 6) * Math.min(this.zoom ** 0.4, 3);
  }

  /** Shows the points that are drawn, and a ring around the one under the pointer. */
  paint() {
    const sharp = window.devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.points.width && this.points.height) pen.drawImage(this.points, 0, 0);
    if (this.under === null) return;
    pen.scale(sharp, sharp);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(...this.placer()(this.under), this.size() + 3, 0, 2 * Math.PI);
    pen.stroke();
  }
}

/** A colour from blue over green to yellow, for a number from 0 to 1. */
function heat(share) {
  const hue = 250 - 195 * share;
  return `hsl(${hue.toFixed(0)} 62% ${(42 + 14 * share).toFixed(0)}%)`;
}

/** Whether a column's values are places on a scale: numbers, or dates as days since 1970. */
function isScale(column) {
  return column?.kind === "number" || column?.kind === "date";
}

function shownIn(column, value) {
  return column.kind === "date" ? new Date(86400000 * value).toISOString().slice(0, 10) : value;
}

function valueOf(column, row) {
  const value = column.values[row];
  if (column.kind === "category") return column.labels[value];
  return value === null ? "(none)" : shownIn(column, value);
}
