// Which images a decision is about: the one shown in large, else the selected ones, else the one that has the focus.

const selected = new Set();
let picking = false; // a click selects instead of opening

function paint(node, i) {
  const is = selected.has(i);
  node.classList.toggle("selected", is);
  if (picking || is) node.setAttribute("aria-pressed", is);
  else node.removeAttribute("aria-pressed");
}

function repaint() {
  for (const node of document.querySelectorAll(".tile[data-image]")) paint(node, Number(node.dataset.image));
  renderBar();
}

function toggle(i) {
  selected[selected.has(i) ? "delete" : "add"](i);
  repaint();
  announce(`${selected.has(i) ? "Selected" : "No longer selected"}; ${selected.size} in total`);
}

function clearSelection() {
  selected.clear();
  repaint();
}

newfound.hooks.tile.push((node, i) => {
  paint(node, i);
  node.addEventListener(
    "click",
    (event) => {
      if (!picking && !event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.stopImmediatePropagation();
      if (event.shiftKey && !picking) selectUpTo(node);
      else toggle(i);
    },
    { capture: true },
  );
});

/** From the last selected tile of the same gallery to this one. */
function selectUpTo(node) {
  const tiles = [...node.parentElement.querySelectorAll(":scope > .tile")];
  const here = tiles.indexOf(node);
  const before = tiles.findLastIndex((other, n) => n < here && selected.has(Number(other.dataset.image)));
  for (const other of tiles.slice(before < 0 ? here : before, here + 1)) selected.add(Number(other.dataset.image));
  repaint();
}

/** The images that a key or a button is about. */
function subject() {
  const detail = document.getElementById("detail");
  if (detail.open) return [Number(detail.dataset.image)]; // what one sees, whatever is selected behind it
  if (selected.size) return [...selected];
  const focused = document.activeElement?.closest?.(".tile[data-image]");
  return focused ? [Number(focused.dataset.image)] : [];
}

newfound.hooks.detail.push((dialog, i) => {
  dialog.dataset.image = i;
});
