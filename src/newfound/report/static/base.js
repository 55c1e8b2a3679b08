// What every part of the page uses: the data, elements, names, pictures.
// All files share one scope; what others may build on is in the global object `newfound`.

const content = JSON.parse(document.getElementById("content").textContent);
const images = content.images;
const total = images.file.length;

const newfound = {
  content,
  state: content.state,
  hooks: { classCard: [], tile: [], detail: [], render: [] },
};
globalThis.newfound = newfound;

const NO_CLASS = -1; // images that a person has taken out of every class, or that the model put into none
const UP_FRONT = 12; // tiles in a strip
const AT_ONCE = 120; // tiles that "show all" adds at a time

// Elements. Text never becomes HTML: every string goes through textContent or setAttribute.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element: `el("p", {class: "lead", onclick: f, text: "…"}, child, …)`. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element, alike. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** For screen readers. */
function announce(text) {
  byId("says").textContent = text;
}

// Names and numbers

const numbers = new Intl.NumberFormat("en-GB");

function count(n, noun, plural = `${noun}s`) {
  return `${numbers.format(n)} ${n === 1 ? noun : plural}`;
}

function percent(share) {
  const value = share * 100;
  return `${value > 99 && value < 100 ? "> 99" : value > 0 && value < 1 ? "< 1" : Math.round(value)}\u00a0%`;
}

/** A name as one can see it: bytes that are not UTF-8, control and direction marks are spelt out. */
function shown(name) {
  return String(name)
    .replace(/[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]/g, (c) =>
      c.length > 1 ? c : `\\x${(c.charCodeAt(0) & 0xff).toString(16)}`,
    )
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) =>
      c === "\n"
        ? "\\n"
        : c === "\t"
          ? "\\t"
          : c === "\r"
            ? "\\r"
            : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
}

function fileName(i) {
  return shown(images.file[i]);
}

/** A path that may break after a slash. */
function breakable(path) {
  return path.split(/(?<=\/)/).flatMap((part, n) => (n ? [el("wbr"), part] : [part]));
}

// Who is in which class: always asked of the state, which a review changes

let classById = new Map();
let members = new Map(); // class id: image numbers, the surest first
let agreement = new Map(); // class id: how many images were labelled as it, and how many of these are in it

function readState(state) {
  newfound.state = state;
  classById = new Map(state.classes.map((c) => [c.id, c]));
  members = new Map(state.classes.map((c) => [c.id, []]));
  agreement = new Map();
  state.class_of.forEach((id, i) => {
    if (!members.has(id)) members.set(id, []);
    members.get(id).push(i);
    const given = state.given[i];
    if (given < 0) return;
    const counts = agreement.get(given) ?? { given: 0, kept: 0 };
    agreement.set(given, { given: counts.given + 1, kept: counts.kept + (given === id) });
  });
  for (const list of members.values()) list.sort((a, b) => images.confidence[b] - images.confidence[a] || a - b);
}

/** Today's class of that number, or null if a review has dissolved it. */
function classOf(id) {
  return classById.get(id) ?? null;
}

function noClassName() {
  return content.none_of_these ? "none of these" : "not a class";
}

function className(id) {
  if (id === NO_CLASS) return noClassName();
  const now = classOf(id);
  if (now) return shown(now.name);
  const once = content.classes.find((c) => c.id === id);
  return once ? `${shown(once.name)} (dissolved)` : `class ${id}`;
}

const BADGES = { new: "New", known: "Known", aside: "Set aside", unstable: "Unstable" };

function badge(kind) {
  return el("span", { class: `badge ${kind}`, text: BADGES[kind] });
}

/** Of a class of the model, beside runs with other seeds, where there are any. */
function stabilityOf(id) {
  return content.stability?.classes[id] ?? null;
}

/** New, and with one seed at most. */
function isUnstable(id) {
  return stabilityOf(id)?.found <= 1 && classOf(id)?.kind === "new";
}

function classLink(id) {
  if (!classOf(id)) return el("span", { text: className(id) });
  return el("a", { href: `#class-${id}`, "data-key": `link-${id}`, text: className(id), onclick: () => reveal(id) });
}

// Pictures: a tile gets its own only when it comes near the window

let stored = null;

/** Of a picture on the server; with a mark of this run, or the browser might show one that it keeps of another. */
function address(kind, i) {
  return `${kind}/${i}?run=${content.live}`;
}

/** The address of a picture, or null where there is none. */
function thumbnail(i) {
  if (content.live) return address("thumbnails", i);
  stored ??= JSON.parse(byId("thumbnails").textContent);
  return stored.data[i] ? `data:${stored.type};base64,${stored.data[i]}` : null;
}

const nearWindow = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearWindow.unobserve(target);
      showPicture(target, Number(target.dataset.picture));
    }
  },
  { rootMargin: "300px" },
);

function picture(i) {
  const img = el("img", { alt: "", decoding: "async", "data-picture": i });
  nearWindow.observe(img);
  return img;
}

function showPicture(img, i) {
  const address = thumbnail(i);
  if (address === null) noPicture(img);
  else {
    img.addEventListener("error", () => noPicture(img), { once: true });
    img.src = address;
  }
}

function noPicture(img) {
  img.replaceWith(el("span", { class: "no-picture", text: "no picture" }));
}

Object.assign(newfound, { address, thumbnail, el, svg, announce, className, shown, members: (id) => members.get(id) ?? [] });
