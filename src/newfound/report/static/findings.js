// Findings: labels that look wrong, classes that are too large, may be one or depend on the seed, and copies.

const FIRST = 12; // findings of a kind before "show all"
const unfolded = new Set(); // kinds whose findings are all shown

function panel(id, title, lead, items, make) {
  const box = byId(id);
  const some = unfolded.has(id) ? items : items.slice(0, FIRST);
  const list = el(
    "ul",
    { class: `findings ${id}` },
    some.map((item) => el("li", {}, make(item))),
  );
  const more =
    items.length > FIRST
      ? el("button", {
          type: "button",
          class: "quiet",
          "data-key": `unfold-${id}`,
          "aria-expanded": unfolded.has(id),
          text: unfolded.has(id) ? "Show fewer" : `Show all ${numbers.format(items.length)}`,
          onclick: () => {
            unfolded[unfolded.has(id) ? "delete" : "add"](id);
            keepingPlace(() => {
              renderFindings();
              for (const hook of newfound.hooks.render) hook(newfound.state);
            });
          },
        })
      : null;
  box.replaceChildren(
    el(
      "div",
      { class: "panel-head" },
      el("h3", { id: `${id}-title`, text: title }),
      el("span", { class: "tally", text: numbers.format(items.length) }),
    ),
    el("p", { class: "lead", text: lead }),
    items.length ? list : el("p", { class: "empty", text: "Nothing found." }),
    ...(more ? [more] : []),
  );
  for (const group of box.querySelectorAll(".strip")) group.dataset.strip ||= id;
}

function renderFindings() {
  const { labels, large, duplicates } = content.findings;
  panel(
    "labels",
    "Given labels that look wrong",
    "The model clearly prefers another class, and most similar images are in that class too.",
    labels,
    (item) => labelFinding(item, labels),
  );
  panel(
    "large",
    "Known classes larger than their labels suggest",
    "Each may have absorbed a new class. These are the images least like its labelled ones.",
    large.filter((item) => classOf(item.class)),
    largeFinding,
  );
  panel(
    "merges",
    "Classes that may be one",
    "At least one class of each pair is new. Compare the pictures before you merge them.",
    mergesNow(),
    mergeFinding,
  );
  if (content.stability) renderSeeds(content.stability);
  panel(
    "duplicates",
    "Nearly the same picture",
    "Copies, even if scaled, compressed again or brightened. Cropped copies are not found.",
    duplicates,
    duplicateFinding,
  );
}

/** Classes of this run that one seed has at most, then those of single seeds that this run does not have. */
function renderSeeds({ seeds, classes, elsewhere }) {
  const own = classes.flatMap((c, id) => (isUnstable(id) ? [{ ...c, id }] : []));
  byId("seeds").hidden = false;
  panel(
    "seeds",
    "Classes that depend on the seed",
    `The run was repeated with ${count(seeds.length, "seed")}. These new classes were found with one seed at most, or are not among the classes of this run.`,
    [...own, ...elsewhere],
    (item) => seedFinding(item, seeds.length),
  );
}

function seedFinding(item, seeds) {
  const own = item.id !== undefined;
  const list = own ? (members.get(item.id) ?? []).slice(0, 8) : item.images;
  const name = own ? className(item.id) : `Not in this run (seed ${item.seed})`;
  const pairs = own && item.together !== null ? `; on average ${percent(item.together)} of its pairs are together` : "";
  const found = `with ${item.found} of ${seeds} seeds${pairs}.`;
  return [
    el("p", { class: "side-name" }, own ? classLink(item.id) : name, item.found <= 1 ? badge("unstable") : null),
    tileList(list, `seed-${own ? item.id : `${item.seed}-${list[0]}`}`, { label: name }),
    el("p", { class: "reason", text: own ? `Found ${found}` : `${count(item.size, "image")}, found ${found}` }),
  ];
}

function lone(i, list, key, note) {
  const node = tile(i, list, key, note);
  node.tabIndex = 0;
  return node;
}

function labelFinding(item, all) {
  const now = newfound.state.class_of[item.image];
  return [
    lone(
      item.image,
      all.map((other) => other.image),
      "wrong",
      percent(item.confidence),
    ),
    el(
      "dl",
      { class: "says" },
      el("div", {}, el("dt", { text: "Label" }), el("dd", {}, classLink(item.given))),
      el("div", {}, el("dt", { text: now === item.found ? "Model" : "Now" }), el("dd", {}, classLink(now))),
      el("div", {}, el("dt", { text: "Lookalikes" }), el("dd", { text: `${percent(item.neighbours)} agree` })),
    ),
  ];
}

function largeFinding(item) {
  return [
    el("p", { class: "side-name" }, classLink(item.class), badge(classOf(item.class).kind)),
    tileList(item.images, `large-${item.class}`, { label: className(item.class) }),
    el("p", { class: "reason", text: item.reason }),
  ];
}

function mergeFinding(pair) {
  const [a, b] = pair.classes;
  const side = (id) =>
    el(
      "div",
      { class: "side" },
      el("p", { class: "side-name" }, classLink(id), badge(classOf(id).kind)),
      tileList((members.get(id) ?? []).slice(0, 4), `pair-${a}-${b}-${id}`, { label: className(id) }),
    );
  return [
    el("div", { class: "pair", "data-pair": `${a} ${b}` }, side(a), side(b)),
    el("p", { class: "reason", text: pair.reason }),
  ];
}

function duplicateFinding(group) {
  const classes = new Set(group.images.map((i) => newfound.state.class_of[i]));
  const given = new Set(group.images.map((i) => newfound.state.given[i]).filter((id) => id >= 0));
  const warning = given.size > 1 ? "under different labels" : classes.size > 1 ? "in different classes" : null;
  return [
    tileList(group.images, `same-${group.images[0]}`, {
      label: "Nearly the same picture",
      notes: group.images.map((i) => className(newfound.state.class_of[i])),
    }),
    el(
      "p",
      { class: "reason" },
      count(group.images.length, "image"),
      warning ? el("strong", { text: `, ${warning}` }) : null,
    ),
  ];
}
