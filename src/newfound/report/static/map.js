// The map: a canvas of points, and a card beside the one pointed to.

const plane = {
  scale: 1,
  x: 0.5, // of the middle
  y: 0.5,
  unit: 1,
  left: 0,
  top: 0,
  at: null, // the image pointed to
  chosen: new Set(), // ids of the classes shown, none: all
  names: new Map(), // where the name of each class stands
  canvas: null,
  points: el("canvas"), // all but the ring: drawn once, then copied
  stale: true,
  card: null,
  waiting: 0,
};
const dark = matchMedia("(prefers-color-scheme: dark)");
const CLOSE = 24; // pixels from a point at which it is meant

/** Hues by the golden angle: any number of classes, and neighbours in the list far apart. */
function colourOf(id, alpha = 1) {
  if (id === NO_CLASS) return dark.matches ? `rgb(140 140 140 / ${alpha})` : `rgb(120 120 120 / ${alpha})`;
  const hue = (id * 137.508 + 20) % 360;
  const light = (dark.matches ? 62 : 44) + (Math.floor(id / 8) % 3) * 7;
  return `hsl(${hue.toFixed(0)} ${dark.matches ? 62 : 58}% ${light}% / ${alpha})`;
}

function renderMap() {
  if (!plane.canvas) buildMap();
  for (const id of plane.chosen) if (!members.get(id)?.length) plane.chosen.delete(id);
  renderLegend();
  renderMapTable();
  placeNames();
  drawSoon();
}

function buildMap() {
  plane.canvas = el("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map of images",
    "data-key": "map",
    "aria-label":
      "Map of images. Arrow keys move to the next image, Enter opens it, plus and minus zoom, 0 shows all. The same as a table below.",
  });
  plane.card = el("div", { class: "map-card", hidden: true });
  const zoom = (text, label, by) =>
    el("button", { type: "button", class: "quiet", "aria-label": label, text, onclick: () => zoomBy(by) });
  const stage = el(
    "div",
    { class: "stage" },
    plane.canvas,
    plane.card,
    el(
      "div",
      { class: "zoom" },
      zoom("+", "Zoom in", 1.6),
      zoom("−", "Zoom out", 1 / 1.6),
      el("button", {
        type: "button",
        class: "quiet",
        "aria-label": "Show the whole map",
        text: "⤢",
        onclick: () => zoomBy(0),
      }),
    ),
  );
  byId("map-body").replaceChildren(
    stage,
    el(
      "div",
      { class: "legend" },
      el(
        "div",
        { class: "legend-head" },
        el("h3", { text: "Classes" }),
        el("button", { type: "button", class: "quiet", id: "map-all", text: "Show all", onclick: () => choose(null) }),
      ),
      el("ul", { id: "legend", "aria-label": "Show only these classes on the map" }),
    ),
    el(
      "details",
      { class: "as-table", id: "map-table", ontoggle: renderMapTable },
      el("summary", { text: "The map as a table" }),
      el("div"),
    ),
  );
  new ResizeObserver(() => drawSoon()).observe(plane.canvas);
  dark.addEventListener("change", () => {
    renderLegend();
    drawSoon();
  });
  listenToMap();
}

// Where a point is on the canvas, in CSS pixels

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return Math.max(high - low, 0.05);
}

const spans = [extent(images.x), extent(images.y)];

/** Pixels that the unit of the map takes. */
function unit() {
  const { clientWidth: w, clientHeight: h } = plane.canvas;
  return Math.min((w - 48) / spans[0], (h - 48) / spans[1]) * plane.scale;
}

function pixelsOf(px, py) {
  return [
    (px - plane.x) * unit() + plane.canvas.clientWidth / 2,
    (py - plane.y) * unit() + plane.canvas.clientHeight / 2,
  ];
}

function toPixels(i) {
  return [images.x[i] * plane.unit + plane.left, images.y[i] * plane.unit + plane.top];
}

/** What stays the same for all points of a drawing. */
function measure() {
  plane.unit = unit();
  [plane.left, plane.top] = pixelsOf(0, 0);
}

function isShown(i) {
  return !plane.chosen.size || plane.chosen.has(newfound.state.class_of[i]);
}

/** Before the next frame; `all` false: only the ring and the card have moved. */
function drawSoon(all = true) {
  plane.stale ||= all;
  cancelAnimationFrame(plane.waiting);
  plane.waiting = requestAnimationFrame(drawMap);
}

function drawMap() {
  const { canvas, points } = plane;
  const [w, h, density] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
  if (!w || !h) return;
  if (plane.stale) {
    plane.stale = false;
    measure();
    for (const each of [canvas, points]) {
      each.width = Math.round(w * density);
      each.height = Math.round(h * density);
      each.getContext("2d").scale(density, density);
    }
    drawPoints(points.getContext("2d"), w, h);
  }
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, w, h);
  pen.drawImage(points, 0, 0, w, h);
  if (plane.at !== null) ring(pen, plane.at);
  placeCard();
}

function radius() {
  return Math.min(5, Math.max(1.8, 130 / Math.sqrt(total + 200))) * Math.sqrt(plane.scale);
}

/** Classes that were not chosen are faint, and below the others. */
function drawPoints(pen, w, h) {
  const faint = dark.matches ? "rgb(255 255 255 / .10)" : "rgb(0 0 0 / .09)";
  const r = radius();
  for (const wanted of plane.chosen.size ? [false, true] : [true]) {
    for (const [id, list] of members) {
      pen.fillStyle = wanted ? colourOf(id, 0.8) : faint;
      pen.beginPath();
      for (const i of list) if (isShown(i) === wanted) mark(pen, ...toPixels(i), r, classOf(id)?.kind);
      pen.fill();
    }
  }
  drawNames(pen, w, h);
}

/** Known classes are discs, new ones diamonds. */
function mark(pen, x, y, r, kind) {
  if (kind === "known") {
    pen.moveTo(x + r, y);
    pen.arc(x, y, r, 0, 2 * Math.PI);
    return;
  }
  const d = r * 1.25;
  pen.moveTo(x, y - d);
  pen.lineTo(x + d, y);
  pen.lineTo(x, y + d);
  pen.lineTo(x - d, y);
  pen.closePath();
}

function ring(pen, i) {
  const [x, y] = toPixels(i);
  const style = getComputedStyle(document.documentElement);
  for (const [width, colour] of [
    [5, style.getPropertyValue("--surface")],
    [2.5, style.getPropertyValue("--text")],
  ]) {
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.beginPath();
    pen.arc(x, y, radius() + 4, 0, 2 * Math.PI);
    pen.stroke();
  }
}

/** A class's name stands at its most central image: the middle of the middles. */
function placeNames() {
  plane.names = new Map();
  const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  for (const [id, list] of members) {
    if (list.length) plane.names.set(id, [middle(list.map((i) => images.x[i])), middle(list.map((i) => images.y[i]))]);
  }
}

/** As many names as have room, large classes first. */
function drawNames(pen, w, h) {
  const taken = [];
  const style = getComputedStyle(document.documentElement);
  pen.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineWidth = 3.5;
  pen.lineJoin = "round";
  pen.strokeStyle = style.getPropertyValue("--surface");
  pen.fillStyle = style.getPropertyValue("--text");
  const order = [...plane.names]
    .filter(([id]) => !plane.chosen.size || plane.chosen.has(id))
    .sort((a, b) => members.get(b[0]).length - members.get(a[0]).length);
  for (const [id, [px, py]] of order) {
    const text = shortened(className(id), 22);
    const [x, y] = [pixelsOf(px, py)[0], pixelsOf(px, py)[1] - 12]; // above the middle, so that a small class is seen
    const half = pen.measureText(text).width / 2;
    const box = [x - half - 10, y - 18, x + half + 10, y + 18];
    const outside = box[0] < 0 || box[1] < 0 || box[2] > w || box[3] > h;
    if (outside || taken.some((t) => box[0] < t[2] && t[0] < box[2] && box[1] < t[3] && t[1] < box[3])) continue;
    taken.push(box);
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
}

function shortened(text, most) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

// The card beside the point under the pointer or the keys

function pointTo(i, say = false) {
  if (plane.at === i) return;
  plane.at = i;
  plane.card.hidden = i === null;
  if (i !== null) {
    const img = el("img", { alt: "" });
    plane.card.replaceChildren(
      el("span", { class: "frame" }, img),
      el("p", { class: "map-card-class", text: className(newfound.state.class_of[i]) }),
      el("p", { class: "aside", text: shortened(fileName(i).split("/").at(-1), 40) }),
      el("p", { class: "aside", text: `${percent(images.confidence[i])} sure` }),
    );
    showPicture(img, i);
    if (say) announce(`${fileName(i)}, ${className(newfound.state.class_of[i])}, ${percent(images.confidence[i])}`);
  }
  drawSoon(false);
}

function placeCard() {
  if (plane.at === null) return;
  const [x, y] = toPixels(plane.at);
  const { offsetWidth: w, offsetHeight: h } = plane.card;
  const left = x + 16 + w < plane.canvas.clientWidth ? x + 16 : x - 16 - w;
  plane.card.style.left = `${Math.max(4, Math.min(left, plane.canvas.clientWidth - w - 4))}px`;
  plane.card.style.top = `${Math.max(4, Math.min(y - h / 2, plane.canvas.clientHeight - h - 4))}px`;
}
