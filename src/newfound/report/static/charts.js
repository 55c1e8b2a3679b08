// Small charts as SVG. Known classes are grey, new ones have the accent and a pattern: never colour alone.

const WIDE = 560;
const HIGH = 220;
const EDGE = { left: 56, right: 28, top: 22, bottom: 42 };

function chart(title, lead, drawing, legend = null) {
  return el(
    "figure",
    { class: "panel chart" },
    el("figcaption", {}, el("h3", { text: title }), el("p", { class: "lead", text: lead })),
    legend,
    drawing,
  );
}

function legendOf(...entries) {
  return el(
    "p",
    { class: "legend-line" },
    entries.map(([key, text]) => el("span", {}, el("i", { class: `key ${key}` }), text)),
  );
}

function canvasOf(label, xTitle, yTitle) {
  const root = svg(
    "svg",
    { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label },
    svg("text", {
      class: "axis-title",
      x: (EDGE.left + WIDE - EDGE.right) / 2,
      y: HIGH - 4,
      "text-anchor": "middle",
      text: xTitle,
    }),
  );
  root.append(svg("text", { class: "axis-title", x: 4, y: 12, text: yTitle }));
  return root;
}

/** From data to pixels, both ways as the axes run. */
function scales(xLow, xHigh, yLow, yHigh) {
  const x = (v) => EDGE.left + ((v - xLow) / (xHigh - xLow || 1)) * (WIDE - EDGE.left - EDGE.right);
  const y = (v) => HIGH - EDGE.bottom - ((v - yLow) / (yHigh - yLow || 1)) * (HIGH - EDGE.top - EDGE.bottom);
  return { x, y };
}

/** Round numbers between low and high, about `wanted` of them. */
function ticks(low, high, wanted = 4) {
  const rough = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
    found.push(Number(v.toPrecision(12)));
  return found;
}

function axes(root, { x, y }, xTicks, yTicks, xText, yText) {
  for (const v of yTicks) {
    root.append(
      svg("line", { class: "grid-line", x1: EDGE.left, x2: WIDE - EDGE.right, y1: y(v), y2: y(v) }),
      svg("text", { class: "tick", x: EDGE.left - 6, y: y(v) + 4, "text-anchor": "end", text: yText(v) }),
    );
  }
  for (const v of xTicks)
    root.append(
      svg("text", { class: "tick", x: x(v), y: HIGH - EDGE.bottom + 18, "text-anchor": "middle", text: xText(v) }),
    );
}

function line(points, kind) {
  return svg("polyline", {
    class: `line ${kind}`,
    points: points.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" "),
  });
}

// Confidence

const BINS = 20;

function confidenceChart() {
  const bins = { known: new Array(BINS).fill(0), new: new Array(BINS).fill(0) };
  newfound.state.class_of.forEach((id, i) => {
    const kind = classOf(id)?.kind;
    if (kind) bins[kind][Math.min(BINS - 1, Math.floor(images.confidence[i] * BINS))] += 1;
  });
  const most = Math.max(1, ...bins.known.map((n, b) => n + bins.new[b]));
  const scale = scales(0, 1, 0, most);
  const root = canvasOf("Histogram of confidence", "confidence", "images");
  axes(root, scale, [0, 0.25, 0.5, 0.75, 1], ticks(0, most), percent, (v) => numbers.format(v));
  for (let b = 0; b < BINS; b += 1) {
    const [left, right] = [scale.x(b / BINS) + 1, scale.x((b + 1) / BINS) - 1];
    const range = `${percent(b / BINS)} to ${percent((b + 1) / BINS)}`;
    let below = 0;
    for (const kind of ["known", "new"]) {
      const n = bins[kind][b];
      if (!n) continue;
      const [top, bottom] = [scale.y(below + n), scale.y(below)];
      root.append(
        svg(
          "rect",
          { class: `bar-${kind}`, x: left, width: right - left, y: top, height: bottom - top },
          svg("title", { text: `${range}: ${count(n, "image")} in ${kind} classes` }),
        ),
      );
      below += n;
    }
  }
  return chart(
    "Confidence",
    "How sure the model is of each image. Good for sorting; not a calibrated chance of being right.",
    root,
    legendOf(["known", "in known classes"], ["new", "in new classes"]),
  );
}

// Class sizes: bars as text rows, which a screen reader and a narrow window can take

function sizesChart() {
  const rows = [...newfound.state.classes]
    .map((c) => ({ c, n: members.get(c.id).length }))
    .sort((a, b) => b.n - a.n || a.c.id - b.c.id);
  const most = Math.max(1, ...rows.map((row) => row.n));
  const list = el(
    "ol",
    { class: "bars", tabindex: 0, "aria-label": "Class sizes, largest first" },
    rows.map(({ c, n }) => {
      const bar = el("i", { class: `fill ${c.kind}` });
      bar.style.width = `${(n / most) * 100}%`;
      return el(
        "li",
        {},
        el("span", { class: "bar-name" }, classLink(c.id), c.kind === "new" ? el("small", { text: " new" }) : null),
        el("span", { class: "track", "aria-hidden": "true" }, bar),
        el("span", { class: "number", text: numbers.format(n) }),
      );
    }),
  );
  return chart("Class sizes", "Images per class, largest first.", list, legendOf(["known", "known"], ["new", "new"]));
}

// How many classes there seem to be

function countChart() {
  const found = content.count;
  if (!found?.curve?.length) return null;
  const points = found.curve;
  const tree = found.tree?.curve ?? [];
  const xs = points.map((p) => p.classes);
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const scores = [...points.flatMap((p) => [p.score - p.spread, p.score + p.spread]), ...tree.map((p) => p.score)];
  const [bottom, top] = [Math.min(...scores), Math.max(...scores)];
  const scale = scales(low, high, bottom, top + (top - bottom) * 0.08);
  const root = canvasOf("Score of each number of classes", "number of classes", found.criterion ?? "score");
  root.append(
    svg(
      "rect",
      {
        class: "interval",
        x: scale.x(found.low),
        width: Math.max(2, scale.x(found.high) - scale.x(found.low)),
        y: EDGE.top,
        height: HIGH - EDGE.top - EDGE.bottom,
      },
      svg("title", { text: `${found.low} to ${found.high} plausible` }),
    ),
  );
  axes(
    root,
    scale,
    ticks(low, high, 6),
    ticks(bottom, top),
    (v) => numbers.format(v),
    (v) => (top - bottom < 0.05 ? v.toFixed(3) : v.toFixed(2)),
  );
  root.append(
    line(
      tree.map((p) => [scale.x(p.classes), scale.y(p.score)]),
      "second",
    ),
    line(
      points.map((p) => [scale.x(p.classes), scale.y(p.score)]),
      "first",
    ),
  );
  for (const p of points) {
    root.append(
      svg("line", {
        class: "whisker",
        x1: scale.x(p.classes),
        x2: scale.x(p.classes),
        y1: scale.y(p.score - p.spread),
        y2: scale.y(p.score + p.spread),
      }),
      svg(
        "circle",
        { class: "dot", cx: scale.x(p.classes), cy: scale.y(p.score), r: p.classes === found.best ? 5 : 2.5 },
        svg("title", { text: `${p.classes} classes: ${p.score.toFixed(3)} ± ${p.spread.toFixed(3)}` }),
      ),
    );
  }
  const best = scale.x(found.best);
  root.append(
    svg("text", {
      class: "label",
      x: best,
      y: EDGE.top + 10,
      "text-anchor": best > WIDE - 90 ? "end" : best < EDGE.left + 60 ? "start" : "middle",
      text: `about ${found.best}`,
    }),
  );
  return chart(
    "How many classes",
    `Not given, so it was estimated: about ${found.best}, with ${found.low} to ${found.high} plausible (shaded). ${found.known} are known.`,
    root,
    legendOf(["first", "k-means"], tree.length ? ["second", "tree of the images"] : ["interval", "plausible"]),
  );
}

// Anchors over the epochs

function anchorChart() {
  const lines = content.anchors;
  if (!lines.length) return null;
  const most = Math.max(1, ...lines.map((entry) => entry.anchors));
  const scale = scales(1, Math.max(2, lines.length), 0, most * 1.05);
  const root = canvasOf("Anchors by epoch", "epoch with anchors", "anchors");
  axes(
    root,
    scale,
    ticks(1, Math.max(2, lines.length), 6).filter(Number.isInteger),
    ticks(0, most),
    (v) => numbers.format(v),
    (v) => numbers.format(v),
  );
  root.append(
    line(
      lines.map((entry, n) => [scale.x(n + 1), scale.y(entry.anchors)]),
      "first",
    ),
  );
  const kept = lines.map((entry, n) => [entry.overlap, n]).filter(([share]) => typeof share === "number");
  root.append(
    line(
      kept.map(([share, n]) => [scale.x(n + 1), scale.y(share * lines[n].anchors)]),
      "second",
    ),
  );
  lines.forEach((entry, n) => {
    const parts = [`Epoch ${entry.epoch}: ${count(entry.anchors, "anchor")}`];
    if (typeof entry.overlap === "number") parts.push(`${percent(entry.overlap)} of them the same as in the epoch before`);
    if (typeof entry.clean === "number" && entry.overall) parts.push(`${percent(entry.clean / entry.overall)} right`);
    root.append(
      svg(
        "circle",
        { class: "dot", cx: scale.x(n + 1), cy: scale.y(entry.anchors), r: 3 },
        svg("title", { text: parts.join(", ") }),
      ),
    );
  });
  const last = lines.at(-1);
  const right =
    typeof last.clean === "number" && last.overall
      ? ` Against the truth, ${percent(last.clean / last.overall)} of the last ones are right.`
      : "";
  return chart(
    "Anchors",
    `Unlabelled images treated as labelled with a new class during training: ${numbers.format(last.anchors)} at the end.${right}`,
    root,
    legendOf(["first", "anchors"], ["second", "same as in the previous epoch"]),
  );
}

// Scores, where a truth was given

const SCORES = [
  ["all", "All images"],
  ["old", "Of known classes"],
  ["new", "Of new classes"],
];

function scoreTable() {
  const metrics = content.metrics;
  if (!metrics || typeof metrics.all !== "number") return null;
  const share = (value) => (typeof value === "number" ? `${(value * 100).toFixed(1)} %` : "–");
  const rows = SCORES.map(([key, text]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text }),
      el("td", { text: share(metrics[key]) }),
      el("td", { text: share(metrics[`kmeans_${key}`]) }),
    ),
  );
  const table = el(
    "table",
    {},
    el(
      "thead",
      {},
      el("tr", {}, el("td"), el("th", { scope: "col", text: "newfound" }), el("th", { scope: "col", text: "k-means" })),
    ),
    el("tbody", {}, rows),
  );
  return chart(
    "Against the truth",
    `Share of ${count(metrics.images_scored ?? 0, "unlabelled image")} in the right class, as the model left them. k-means: on the features training started from.`,
    table,
  );
}

function renderCharts() {
  byId("charts").replaceChildren(
    ...[confidenceChart(), sizesChart(), countChart(), anchorChart(), scoreTable()].filter(Boolean),
  );
}
