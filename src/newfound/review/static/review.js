// The actions: on classes, on images, and back again.

function plural(n, noun) {
  return `${n.toLocaleString("en-GB")} ${noun}${n === 1 ? "" : "s"}`;
}

// On classes

function rename(id) {
  const now = newfound.state.classes.find((c) => c.id === id);
  ask("Rename the class", [nameField(now.name)], "Rename", ({ name }, made) => {
    if (name.trim() !== now.name) decide({ action: "rename", class: id, name }, made);
  });
}

function merge(id) {
  if (newfound.state.classes.length < 2) return say("There is no other class", "bad");
  ask(
    `Merge “${className(id)}”`,
    [classField("into", id)],
    "Merge",
    ({ to }, made) => decide({ action: "merge", classes: [id], into: Number(to) }, made),
    "All its images move there, and this class disappears.",
  );
}

function split(id) {
  ask(
    `Split “${className(id)}” in two`,
    [],
    "Split",
    (_, made) => decide({ action: "split", class: id }, made),
    "Its images are clustered again, into two groups. The smaller one becomes a class of its own.",
  );
}

function dismiss(id) {
  ask(
    `“${className(id)}” is not a class`,
    [],
    "Not a class",
    (_, made) => decide({ action: "dismiss", class: id }, made),
    "Its images are set aside, in no class.",
  );
}

function action(text, key, id, run, title = null) {
  return el("button", { type: "button", class: "quiet", "data-key": `${key}-${id}`, title, text, onclick: () => run(id) });
}

newfound.hooks.classCard.push((card, c) => {
  if (c.id < 0) return;
  const buttons = [
    action("Rename", "rename", c.id, rename, "Shortcut: n"),
    action("Merge…", "merge", c.id, merge, "Shortcut: g"),
    action("Split", "split", c.id, split, "Shortcut: s"),
    c.kind === "new" ? action("Not a class", "dismiss", c.id, dismiss) : null,
  ];
  card.querySelector(".card-actions").append(...buttons.filter(Boolean));
});

/** Below each suggested merge, the button that does it: into the known one, else into the larger one. */
newfound.hooks.render.push(() => {
  for (const pair of document.querySelectorAll(".pair[data-pair]")) {
    const [a, b] = pair.dataset.pair.split(" ").map(Number);
    const known = [a, b].find((id) => newfound.state.classes.some((c) => c.id === id && c.kind === "known"));
    const into = known ?? (newfound.members(a).length >= newfound.members(b).length ? a : b);
    const gone = into === a ? b : a;
    pair.parentElement.append(
      el("button", {
        type: "button",
        class: "quiet",
        "data-key": `suggested-${a}-${b}`,
        text: `Merge into ${className(into)}`,
        onclick: () => decide({ action: "merge", classes: [gone], into }),
      }),
    );
  }
});

// On images

async function judge(verdict) {
  const images = subject();
  if (!images.length) return say("Select images first: click “Select”, or press x on an image", "bad");
  if (await decide({ action: "judge", images, verdict })) clearSelection();
}

const NEW = "new";

function move() {
  const images = subject();
  if (!images.length) return say("Select images first: click “Select”, or press x on an image", "bad");
  const name = nameField();
  const choice = classField(`Move ${plural(images.length, "image")} to`, null, [NEW, "a new class…"]);
  const show = () => {
    const isNew = choice.querySelector("select").value === NEW;
    name.hidden = !isNew;
    name.querySelector("input").disabled = !isNew;
  };
  choice.addEventListener("change", show);
  show();
  ask("Move", [choice, name], "Move", async ({ to, name: called }, made) => {
    const where = to === NEW ? { name: called } : { to: Number(to) };
    if (await decide({ action: "move", images, ...where }, made)) clearSelection();
  });
}

newfound.hooks.detail.push((dialog, i) => {
  const verdict = newfound.state.verdict[i];
  const inClass = newfound.state.class_of[i] >= 0;
  const button = (text, key, pressed, run) =>
    el("button", { type: "button", class: "quiet", "data-key": key, "aria-pressed": pressed, text, onclick: run });
  dialog.querySelector(".detail-foot").before(
    el(
      "div",
      { class: "detail-actions" },
      inClass ? button("✓ Accept", "accept", verdict > 0, () => judge(verdict > 0 ? 0 : 1)) : null,
      inClass ? button("✗ Reject", "reject", verdict < 0, () => judge(verdict < 0 ? 0 : -1)) : null,
      button("Move…", "move", null, move),
    ),
  );
  const img = dialog.querySelector(".enlarged img");
  if (img) img.src = newfound.address("images", i);
});

// The bar at the bottom

const ACTIONS = {
  rename: "rename",
  merge: "merge",
  split: "split",
  move: "move",
  dismiss: "“not a class”",
  judge: "verdict",
};

const bar = el("div", { class: "review-bar", role: "region", "aria-label": "Decisions" });
document.body.append(bar);

function barButton(text, key, run, { disabled = false, pressed = null, title = null } = {}) {
  const attributes = { type: "button", class: "quiet", "data-key": key, "aria-pressed": pressed, disabled, title };
  return el("button", { ...attributes, text, onclick: run });
}

function renderBar() {
  const { undo, redo } = newfound.state;
  const some = selected.size > 0;
  const focused = bar.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const parts = [
    barButton(undo ? `Undo ${ACTIONS[undo]}` : "Undo", "undo", undoLast, { disabled: !undo, title: "Shortcut: z" }),
    barButton(redo ? `Redo ${ACTIONS[redo]}` : "Redo", "redo", redoNext, { disabled: !redo, title: "Shortcut: y" }),
    barButton(picking ? "Done selecting" : "Select", "picking", togglePicking, { pressed: picking }),
    some ? el("span", { class: "selection", text: `${plural(selected.size, "image")}:` }) : null,
    some ? barButton("✓ Accept", "bar-accept", () => judge(1), { title: "Shortcut: a" }) : null,
    some ? barButton("✗ Reject", "bar-reject", () => judge(-1), { title: "Shortcut: r" }) : null,
    some ? barButton("Move…", "bar-move", move, { title: "Shortcut: m" }) : null,
    some ? barButton("Clear", "bar-clear", clearSelection, { title: "Shortcut: Escape" }) : null,
    status,
    barButton("?", "help", help, { title: "Keyboard shortcuts" }),
  ];
  bar.replaceChildren(...parts.filter(Boolean));
  if (focused) bar.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

// A decision that is still on its way can be undone, too

function undoLast() {
  if (newfound.state.undo || waiting) send("undo");
}

function redoNext() {
  if (newfound.state.redo || waiting) send("redo");
}

function togglePicking() {
  picking = !picking;
  document.body.classList.toggle("picking", picking);
  repaint();
}

newfound.hooks.render.push(() => {
  for (const i of [...selected]) if (!(i in newfound.state.class_of)) selected.delete(i);
  renderBar();
});

// Keys

const KEYS = [
  ["x", "select or deselect the image", () => subjectTile((i) => toggle(i))],
  ["a", "accept: it belongs to its class", () => judge(1)],
  ["r", "reject: it does not", () => judge(-1)],
  ["m", "move to another class, or a new one", move],
  ["n", "rename the class", () => subjectClass(rename)],
  ["g", "merge the class with another", () => subjectClass(merge)],
  ["s", "split the class in two", () => subjectClass(split)],
  ["z", "undo", undoLast],
  ["y", "redo", redoNext],
  ["?", "these keys", help],
];

function subjectTile(run) {
  const focused = document.activeElement?.closest?.(".tile[data-image]");
  if (focused) run(Number(focused.dataset.image));
}

/** The class of the card that has the focus. */
function subjectClass(run) {
  const id = Number(document.activeElement?.closest?.(".class-card")?.dataset.class ?? -1);
  if (id >= 0) run(id);
  else say("Go to a class first, with Tab", "bad");
}

function help() {
  const rows = [...KEYS.map(([key, text]) => [key, text]), ["/", "search"], ["Escape", "clear the selection"], ["arrows", "move from image to image"]];
  const table = el(
    "table",
    {},
    el("tbody", {}, rows.map(([key, text]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: key })), el("td", { text })))),
  );
  ask("Keys", [table], "Close", () => {}, "They act on the image or class that has the focus, or on the selected images.");
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || asking.open || event.target.closest("input, select, textarea")) return;
  if (event.ctrlKey || event.metaKey) {
    if (event.key.toLowerCase() !== "z") return;
    event.preventDefault();
    (event.shiftKey ? redoNext : undoLast)();
    return;
  }
  if (event.key === "Escape" && selected.size && !document.getElementById("detail").open) return clearSelection();
  const found = KEYS.find(([key]) => key === event.key);
  if (!found) return;
  event.preventDefault();
  found[2]();
});

history.replaceState(null, "", location.pathname + location.hash); // the token need not stay in sight
