// The page as a whole: head, search, detail, and drawing everything again from a state.

const SECTIONS = [
  ["summary", "Summary"],
  ["findings", "Worth a look"],
  ["classes", "Classes"],
  ["map", "Map"],
  ["numbers", "Numbers"],
  ["settings", "Settings"],
];

function renderSummary() {
  const { classes, class_of: classesOf } = newfound.state;
  const known = classes.filter((c) => c.kind === "known").length;
  const inNew = classesOf.filter((id) => classOf(id)?.kind === "new").length;
  const mean = images.confidence.reduce((sum, c) => sum + c, 0) / Math.max(total, 1);
  const figures = [
    ["Images", numbers.format(total)],
    ["Known classes", numbers.format(known)],
    ["New classes", numbers.format(classes.length - known)],
    ["Images in new classes", numbers.format(inNew)],
    ["Mean confidence", percent(mean)],
  ];
  byId("figures").replaceChildren(
    ...figures.map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", { text: value }))),
  );
  byId("sentences").replaceChildren(...content.summary.map((text) => el("li", { text })));
  const notices = [];
  if (content.oracle)
    notices.push("Oracle run: the true labels were used in training, for analysis. These are not results of a method.");
  if (newfound.state.revision)
    notices.push(
      "Changed in a review: the figures and galleries show the classes as they are now, the sentences what the model found.",
    );
  const { unreadable = 0, left_out: leftOut = 0 } = content.thumbnails ?? {};
  if (unreadable)
    notices.push(
      unreadable === total
        ? "There are no pictures: the images are not files in a folder, or have been moved since the run."
        : `${count(unreadable, "image")} could not be read when this page was made: moved, deleted or changed since the run.`,
    );
  if (leftOut)
    notices.push(
      `${count(leftOut, "image")} ${leftOut === 1 ? "has" : "have"} no picture here, to keep the page small.`,
    );
  byId("notices").replaceChildren(...notices.map((text) => el("p", { class: "notice", text })));
}

function renderNav() {
  byId("nav").replaceChildren(...SECTIONS.map(([id, text]) => el("li", {}, el("a", { href: `#${id}`, text }))));
  const links = new Map([...byId("nav").querySelectorAll("a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        for (const a of links.values()) a.removeAttribute("aria-current");
        const link = links.get(target.id);
        link.setAttribute("aria-current", "true");
        byId("nav").scrollLeft = link.offsetLeft - byId("nav").offsetLeft - 60; // where the list is wider than the window
      }
    },
    { rootMargin: "-20% 0px -75% 0px" },
  );
  for (const [id] of SECTIONS) seen.observe(byId(id));
}

function renderControls() {
  const kinds = [
    ["all", "All"],
    ["new", "New"],
    ["known", "Known"],
  ];
  byId("kinds").replaceChildren(
    ...kinds.map(([kind, text]) =>
      el("button", {
        type: "button",
        "aria-pressed": view.kind === kind,
        text,
        onclick: (event) => {
          view.kind = kind;
          for (const node of event.target.parentElement.children)
            node.setAttribute("aria-pressed", node === event.target);
          renderCards();
        },
      }),
    ),
  );
  byId("sort").replaceChildren(...Object.entries(SORTS).map(([value, text]) => el("option", { value, text })));
  byId("sort").addEventListener("change", (event) => {
    view.sort = event.target.value;
    renderCards();
  });
}

// Search: classes whose name has it stay, and images whose file name has it are listed above them

function renderSearch() {
  const wanted = view.search.toLowerCase();
  const box = byId("found");
  box.hidden = !wanted;
  renderCards();
  if (!wanted) {
    box.replaceChildren();
    return;
  }
  const found = [];
  for (let i = 0; i < total; i += 1) if (fileName(i).toLowerCase().includes(wanted)) found.push(i);
  box.replaceChildren(
    el("h3", { text: `${count(found.length, "file name")} with “${view.search}”` }),
    ...(found.length ? [filesFound(found)] : []),
  );
  announce(`${count(classesToShow().length, "class", "classes")} and ${count(found.length, "file")} found`);
}

/** A strip of them, so that the classes below stay in sight; all at a press. */
function filesFound(found) {
  const strip = tileList(found, "search", { label: "Files found" });
  if (found.length <= UP_FRONT) return strip;
  const box = el("div", {}, strip);
  const all = () => {
    box.replaceChildren(tileList(found, "search", { grid: true, label: "Files found" }));
    box.querySelector(".tile").focus();
  };
  const text = `Show all ${numbers.format(found.length)} files`;
  box.append(el("button", { type: "button", class: "quiet", "data-key": "search-all", text, onclick: all }));
  return box;
}

function listenToSearch() {
  const field = byId("search");
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      view.search = field.value.trim();
      renderSearch();
      if (view.search) byId("classes").scrollIntoView({ block: "start", behavior: "instant" });
    }, 150);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog"))
      return;
    event.preventDefault();
    field.focus();
  });
}

/** Make sure that a class's card is there to be scrolled to. */
function reveal(id) {
  if (cards.has(id)) return;
  view.kind = "all";
  view.search = byId("search").value = "";
  for (const node of byId("kinds").children)
    node.setAttribute("aria-pressed", node === byId("kinds").firstElementChild);
  renderSearch();
}

// One image in large

const shownNow = { image: null, list: [] };

function openDetail(i, list = [i]) {
  Object.assign(shownNow, { image: i, list });
  renderDetail();
  if (!byId("detail").open) byId("detail").showModal();
}

function renderDetail() {
  const { image: i, list } = shownNow;
  if (i === null) return;
  const at = list.indexOf(i);
  const id = newfound.state.class_of[i];
  const given = newfound.state.given[i];
  const verdict = newfound.state.verdict[i];
  const img = el("img", { alt: fileName(i) });
  const frame = el("div", { class: "enlarged" }, img);
  showPicture(img, i);
  const facts = el(
    "dl",
    { class: "facts" },
    fact("Class", id === NO_CLASS ? className(id) : detailLink(id)),
    fact("Confidence", percent(images.confidence[i])),
    fact(
      "Runner-up",
      className(images.runner_up[i]),
      images.runner_up_confidence ? percent(images.runner_up_confidence[i]) : null,
    ),
    fact("Given label", given >= 0 ? className(given) : "none", given >= 0 && given !== id ? "differs" : null),
    images.anchor[i] ? fact("Anchor", "yes") : null,
    verdict ? fact("Verdict", verdict > 0 ? "accepted" : "rejected") : null,
  );
  const step = (by, text, label) =>
    el("button", {
      type: "button",
      class: "quiet",
      "aria-label": label,
      disabled: !(at + by in list),
      text,
      onclick: () => stepDetail(by),
      "data-key": `step${by}`,
    });
  const focused = document.activeElement?.dataset?.key;
  byId("detail").replaceChildren(
    el(
      "div",
      { class: "detail-head" },
      el("h2", { id: "detail-name" }, ...breakable(fileName(i))),
      el("button", {
        type: "button",
        class: "quiet close",
        "aria-label": "Close",
        text: "✕",
        onclick: () => byId("detail").close(),
      }),
    ),
    frame,
    facts,
    el(
      "div",
      { class: "detail-foot" },
      step(-1, "← Previous", "Previous image"),
      el("span", {
        class: "aside",
        text: at >= 0 ? `${numbers.format(at + 1)} of ${numbers.format(list.length)}` : "",
      }),
      step(1, "Next →", "Next image"),
    ),
  );
  for (const hook of newfound.hooks.detail) hook(byId("detail"), i);
  const again = focused && byId("detail").querySelector(`[data-key="${CSS.escape(focused)}"]:not(:disabled)`);
  if (byId("detail").open) (again || byId("detail").querySelector(".close")).focus();
}

function detailLink(id) {
  const link = classLink(id);
  link.addEventListener("click", () => byId("detail").close());
  return link;
}

function stepDetail(by) {
  const next = shownNow.list[shownNow.list.indexOf(shownNow.image) + by];
  if (next === undefined) return;
  shownNow.image = next;
  renderDetail();
  announce(`${fileName(next)}, ${className(newfound.state.class_of[next])}`);
}

function listenToDetail() {
  const dialog = byId("detail");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    shownNow.image = null;
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) {
      event.preventDefault();
      stepDetail(by);
    }
  });
}

// Settings

function renderSettings() {
  const row = ([name, value]) =>
    el("tr", {}, el("th", { scope: "row", text: name.replaceAll("_", " ") }), el("td", { text: shown(value) }));
  const table = (caption, values) =>
    Object.keys(values ?? {}).length
      ? el(
          "div",
          { class: "panel" },
          el("h3", { text: caption }),
          el("table", {}, el("tbody", {}, Object.entries(values).map(row))),
        )
      : null;
  byId("settings-body").replaceChildren(
    el(
      "div",
      { class: "two" },
      ...[table("Run", content.settings), table("Versions", content.versions)].filter(Boolean),
    ),
  );
}

// Everything again, with focus and scrolling where they were

function keepingPlace(draw) {
  const key = document.activeElement?.dataset?.key;
  const card = document.activeElement?.closest?.(".class-card")?.id;
  const inSight = (node) => node.getBoundingClientRect().bottom > 80;
  const mark = window.scrollY > 0 && [...document.querySelectorAll(".class-card, .panel")].find(inSight);
  const top = mark && mark.getBoundingClientRect().top;
  draw();
  const same = mark && (mark.isConnected ? mark : mark.id && byId(mark.id));
  if (same) window.scrollBy({ top: same.getBoundingClientRect().top - top, behavior: "instant" });
  if (!key || document.activeElement?.dataset?.key === key) return;
  const again = document.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? (card && byId(card));
  again?.focus({ preventScroll: true });
}

/** Draw everything that depends on who is in which class. */
function render(state) {
  keepingPlace(() => {
    readState(state);
    renderSummary();
    renderFindings();
    renderSearch();
    renderMap();
    renderCharts();
    if (byId("detail").open) renderDetail();
    for (const hook of newfound.hooks.render) hook(state);
  });
}

Object.assign(newfound, { render, openDetail });

renderNav();
renderControls();
renderSettings();
listenToSearch();
listenToDetail();
// Once scripts that come after this one have put in their hooks
document.addEventListener("DOMContentLoaded", () => render(newfound.state));
