// Tiles, strips of tiles, and a card for each class.

/** An image to click or to press Enter on. `list` is what the detail's arrows go through. */
function tile(i, list, key, note = null) {
  const given = newfound.state.given[i]; // as it counts now: a review may have merged its class
  const parts = [fileName(i), className(newfound.state.class_of[i]), percent(images.confidence[i])];
  const differs = given >= 0 && given !== newfound.state.class_of[i];
  if (given >= 0) parts.push(differs ? `≠ label ${className(given)}` : `labelled ${className(given)}`);
  const verdict = newfound.state.verdict[i];
  if (verdict) parts.push(verdict > 0 ? "accepted" : "rejected");
  const node = el(
    "button",
    {
      type: "button",
      class: "tile",
      "data-image": i,
      "data-key": `${key}-${i}`,
      "data-verdict": verdict || null,
      tabindex: -1,
      "aria-label": parts.join(", "),
      title: fileName(i),
      onclick: () => openDetail(i, list),
    },
    el("span", { class: "frame" }, picture(i)),
    el(
      "span",
      { class: "caption", "aria-hidden": "true" },
      el("span", { text: note ?? percent(images.confidence[i]) }),
      differs ? el("span", { class: "mark", title: `labelled ${className(given)}`, text: "≠ label" }) : null,
      verdict ? el("span", { class: "mark", text: verdict > 0 ? "✓" : "✗" }) : null,
    ),
  );
  for (const hook of newfound.hooks.tile) hook(node, i);
  return node;
}

/** Tiles in one row that scrolls, or in a grid: one tab stop, arrow keys move inside. */
function tileList(list, key, { grid = false, label, notes = null, through = list } = {}) {
  const box = el("div", { class: grid ? "grid" : "strip", role: "group", "aria-label": label, "data-strip": key });
  const first = list.slice(0, grid ? AT_ONCE : UP_FRONT);
  box.append(...first.map((i, n) => tile(i, through, key, notes?.[n])));
  if (box.firstElementChild) box.firstElementChild.tabIndex = 0;
  box.addEventListener("keydown", moveAmongTiles);
  box.addEventListener("focusin", keepOneTabStop);
  return grid && list.length > AT_ONCE ? el("div", {}, box, growing(box, list, key)) : box;
}

/** The button below a grid: adds more, also by itself when it comes into view. */
function growing(box, list, key) {
  const button = el("button", { type: "button", class: "quiet", "data-key": `${key}-more` });
  const label = () => {
    button.textContent = `Show more (${numbers.format(list.length - box.childElementCount)} left)`;
  };
  const add = () => {
    const from = box.childElementCount;
    const next = list.slice(from, from + AT_ONCE).map((i) => tile(i, list, key));
    box.append(...next);
    if (box.childElementCount < list.length) label();
    else {
      if (document.activeElement === button) next[0]?.focus();
      button.remove();
    }
  };
  button.addEventListener("click", add);
  label();
  return button;
}

function moveAmongTiles(event) {
  const tiles = [...event.currentTarget.querySelectorAll(":scope > .tile")];
  const at = tiles.indexOf(document.activeElement);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const columns = tiles.filter((node) => node.offsetTop === tiles[0].offsetTop).length;
  const steps = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
    Home: -at,
    End: tiles.length - 1 - at,
  };
  const vertical = event.key === "ArrowDown" || event.key === "ArrowUp";
  if (!(event.key in steps) || (vertical && columns === tiles.length)) return;
  const target = tiles[at + steps[event.key]];
  if (!target) return;
  event.preventDefault();
  target.focus();
}

function keepOneTabStop(event) {
  if (!event.target.classList.contains("tile")) return;
  for (const node of event.currentTarget.querySelectorAll(":scope > .tile"))
    node.tabIndex = node === event.target ? 0 : -1;
}

// Class cards. A card that would look the same is left in place: a change elsewhere moves neither focus nor scrolling.

const opened = new Set(); // ids of classes whose images are all shown
const cards = new Map(); // id: { node, signature, filled }
const nearCards = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) fillCard(Number(target.dataset.class));
  },
  { rootMargin: "600px" },
);

function renderCards() {
  const wanted = classesToShow();
  const box = byId("cards");
  for (const [id, card] of cards)
    if (!wanted.some((c) => c.id === id)) {
      card.node.remove();
      cards.delete(id);
    }
  wanted.forEach((c, place) => {
    const node = cardOf(c);
    if (box.children[place] !== node) box.insertBefore(node, box.children[place] ?? null);
  });
  byId("none").hidden = wanted.length > 0;
}

function cardOf(c) {
  const signature = signatureOf(c);
  const earlier = cards.get(c.id);
  if (earlier?.signature === signature) return earlier.node;
  const node = el(
    "section",
    { class: "class-card", "data-class": c.id, id: `class-${c.id}`, "aria-labelledby": `name-${c.id}`, tabindex: -1 },
    cardHead(c),
    el("div", { class: "galleries" }),
  );
  const rows = groupsOf(c).length;
  node.lastElementChild.style.setProperty("--rows", rows); // room for the strips before they are there
  cards.set(c.id, { node, signature, filled: false });
  if (earlier) {
    const scrolled = [...earlier.node.querySelectorAll(".strip")].map((strip) => [
      strip.dataset.strip,
      strip.scrollLeft,
    ]);
    earlier.node.replaceWith(node);
    if (earlier.filled) fillCard(c.id);
    for (const [key, left] of scrolled) {
      const strip = [...node.querySelectorAll(".strip")].find((s) => s.dataset.strip === key);
      if (strip) strip.scrollLeft = left;
    }
  }
  nearCards.observe(node);
  for (const hook of newfound.hooks.classCard) hook(node, c);
  return node;
}

/** Whatever a card shows: the same signature, the same card. */
function signatureOf(c) {
  const list = members.get(c.id) ?? [];
  const verdicts = list.map((i) => newfound.state.verdict[i]).join("");
  const around = twinsOf(c.id)
    .map((pair) => className(pair.other))
    .join("|");
  return JSON.stringify([c, list.join(), verdicts, nearestName(c.id), around, agreement.get(c.id), opened.has(c.id)]);
}

/** The class whose images lie closest, as the classes stand now; null for a class without images. */
function nearestClass(id) {
  const nearest = classOf(id)?.nearest ?? null;
  return nearest === null || !classOf(nearest) ? null : nearest;
}

function nearestName(id) {
  return nearestClass(id) === null ? null : className(nearestClass(id));
}

/** Suggested merges of classes that are still there, one still the nearest of the other. */
function mergesNow() {
  return content.findings.merges.filter(({ classes: [a, b] }) => nearestClass(a) === b || nearestClass(b) === a);
}

/** Those of one class. */
function twinsOf(id) {
  return mergesNow()
    .filter((pair) => pair.classes.includes(id))
    .map((pair) => ({ ...pair, other: pair.classes[0] === id ? pair.classes[1] : pair.classes[0] }));
}

/** "May be one with …", and why a class is named that is not the nearest. */
function twinsHint(id) {
  const twins = twinsOf(id);
  if (!twins.length) return null;
  const links = twins.map(({ other }) =>
    other === nearestClass(id) ? classLink(other) : el("span", {}, classLink(other), " (whose nearest class this is)"),
  );
  return el("p", { class: "hint" }, "May be one with ", ...joined(links), ".");
}

function cardHead(c) {
  const list = members.get(c.id) ?? [];
  const facts = el("dl", { class: "facts" }, fact("Images", numbers.format(list.length)));
  if (list.length)
    facts.append(
      fact("Mean confidence", percent(list.reduce((sum, i) => sum + images.confidence[i], 0) / list.length)),
    );
  const labels = agreement.get(c.id);
  if (labels)
    facts.append(
      fact(
        "Given labels kept",
        `${numbers.format(labels.kept)} of ${numbers.format(labels.given)}`,
        `(${percent(labels.kept / labels.given)})`,
      ),
    );
  const stability = stabilityOf(c.id);
  if (stability)
    facts.append(
      fact(
        "Found with",
        `${stability.found} of ${count(content.stability.seeds.length, "seed")}`,
        stability.together === null ? null : `(${percent(stability.together)} of pairs together)`,
      ),
    );
  if (nearestName(c.id) !== null) facts.append(fact("Nearest class", classLink(nearestClass(c.id))));
  return el(
    "header",
    {},
    el(
      "div",
      { class: "card-title" },
      el("h3", { id: `name-${c.id}`, text: className(c.id) }),
      badge(c.kind),
      isUnstable(c.id) ? badge("unstable") : null,
      el("div", { class: "card-actions" }),
    ),
    facts,
    content.findings.large.some((item) => item.class === c.id)
      ? el("p", { class: "hint", text: "Much larger than its labels suggest: it may have taken in a new class." })
      : null,
    twinsHint(c.id),
  );
}

function fact(term, value, aside = null) {
  return el(
    "div",
    {},
    el("dt", { text: term }),
    el("dd", {}, value, aside ? el("span", { class: "aside", text: ` ${aside}` }) : null),
  );
}

function joined(nodes) {
  return nodes.flatMap((node, n) => (n === 0 ? [node] : [n === nodes.length - 1 ? " or " : ", ", node]));
}

/** What a card shows before "show all": key, label, images up front, and all of those that the detail goes through. */
function groupsOf(c) {
  const list = members.get(c.id) ?? [];
  if (!list.length) return [];
  if (list.length <= UP_FRONT) return [["all", "All images", list, list]];
  const anchors = list.filter((i) => images.anchor[i]);
  const upwards = [...list].reverse();
  const groups = [
    ["sure", "Most certain", list.slice(0, UP_FRONT), list],
    ["unsure", "Least certain", upwards.slice(0, UP_FRONT), upwards],
  ];
  return anchors.length ? [["anchors", "Anchors", spread(anchors, UP_FRONT), anchors], ...groups] : groups;
}

/** Some of a list, evenly spaced: the most certain ones are shown anyway. */
function spread(list, wanted) {
  if (list.length <= wanted) return list;
  return Array.from({ length: wanted }, (_, n) => list[Math.round((n * (list.length - 1)) / (wanted - 1))]);
}

function fillCard(id) {
  const card = cards.get(id);
  const c = classOf(id) ?? asideClass(id);
  if (!card || card.filled || !c) return;
  card.filled = true;
  nearCards.unobserve(card.node);
  const list = members.get(id) ?? [];
  const box = card.node.querySelector(".galleries");
  if (!list.length) box.append(el("p", { class: "empty", text: "No image is in this class." }));
  for (const [key, label, some, through] of groupsOf(c)) {
    const strip = tileList(some, `${id}-${key}`, { label: `${label}: ${className(id)}`, through });
    box.append(el("div", { class: "row" }, el("h4", { text: label }), strip));
  }
  if (list.length > UP_FRONT) box.append(allOf(id, list));
}

/** The button that shows all images of a class, and the grid below it once pressed. */
function allOf(id, list) {
  const isOpen = opened.has(id);
  const box = el("div", { class: "all" });
  const button = el("button", {
    type: "button",
    class: "quiet",
    "aria-expanded": isOpen,
    "data-key": `all-${id}`,
    text: isOpen ? "Show fewer" : `Show all ${numbers.format(list.length)} images`,
  });
  const show = () => box.append(tileList(list, `${id}-each`, { grid: true, label: `All images: ${className(id)}` }));
  button.addEventListener("click", () => {
    const open = !opened.has(id);
    opened[open ? "add" : "delete"](id);
    button.setAttribute("aria-expanded", open);
    button.textContent = open ? "Show fewer" : `Show all ${numbers.format(list.length)} images`;
    if (open) show();
    else box.lastElementChild.remove();
    cards.get(id).signature = signatureOf(classOf(id) ?? asideClass(id));
  });
  box.append(button);
  if (isOpen) show();
  return box;
}

function asideClass(id) {
  return id === NO_CLASS && members.get(NO_CLASS)?.length ? { id: NO_CLASS, name: noClassName(), kind: "aside" } : null;
}

// Which classes, in which order

const view = { kind: "all", sort: "kind", search: "" };
const SORTS = { kind: "New first", size: "Size", sure: "Confidence, lowest first", name: "Name" };

function classesToShow() {
  const aside = asideClass(NO_CLASS);
  const all = aside ? [...newfound.state.classes, aside] : [...newfound.state.classes];
  const wanted = view.search.toLowerCase();
  return all
    .filter((c) => (view.kind === "all" || c.kind === view.kind) && className(c.id).toLowerCase().includes(wanted))
    .sort((a, b) => compare(a, b) || a.id - b.id);
}

function compare(a, b) {
  if ((a.id === NO_CLASS) !== (b.id === NO_CLASS)) return a.id === NO_CLASS ? 1 : -1;
  const size = (c) => members.get(c.id)?.length ?? 0;
  const sure = (c) =>
    (members.get(c.id) ?? []).reduce((sum, i) => sum + images.confidence[i], 0) / Math.max(size(c), 1);
  switch (view.sort) {
    case "size":
      return size(b) - size(a);
    case "sure":
      return sure(a) - sure(b);
    case "name":
      return className(a.id).localeCompare(className(b.id), "en", { numeric: true });
    default:
      return (a.kind === "known") - (b.kind === "known") || size(b) - size(a);
  }
}
