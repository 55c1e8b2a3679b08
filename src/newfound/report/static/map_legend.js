// The legend of the map, which is also its filter, and the map as a table for those who cannot see it.

function choose(id) {
  if (id === null) plane.chosen.clear();
  else plane.chosen[plane.chosen.has(id) ? "delete" : "add"](id);
  renderLegend();
  renderMapTable();
  drawSoon();
}

function renderLegend() {
  const focused = document.activeElement?.dataset?.key;
  const all = asideClass(NO_CLASS) ? [...newfound.state.classes, asideClass(NO_CLASS)] : newfound.state.classes;
  byId("legend").replaceChildren(
    ...all.map((c) => {
      const swatch = el("i", { class: `swatch ${c.kind}` });
      swatch.style.background = colourOf(c.id);
      return el(
        "li",
        {},
        el(
          "button",
          {
            type: "button",
            "aria-pressed": plane.chosen.has(c.id),
            "data-key": `legend-${c.id}`,
            onclick: () => choose(c.id),
          },
          swatch,
          el("span", { class: "legend-name", text: className(c.id) }),
          el("small", { text: c.kind === "new" ? "new" : "" }),
          el("span", { class: "number", text: numbers.format(members.get(c.id)?.length ?? 0) }),
        ),
      );
    }),
  );
  byId("map-all").disabled = !plane.chosen.size;
  if (focused?.startsWith("legend-"))
    byId("legend")
      .querySelector(`[data-key="${CSS.escape(focused)}"]`)
      ?.focus();
}

// The table

const ROWS = 50;
let mapPage = 0;

function renderMapTable() {
  const details = byId("map-table");
  if (!details?.open) return;
  const rows = images.file
    .map((_, i) => i)
    .filter(isShown)
    .sort((a, b) => images.y[a] - images.y[b] || images.x[a] - images.x[b]);
  const pages = Math.max(1, Math.ceil(rows.length / ROWS));
  mapPage = Math.min(mapPage, pages - 1);
  const turn = (by, text) =>
    el("button", {
      type: "button",
      class: "quiet",
      text,
      "data-key": `turn${by}`,
      disabled: mapPage + by < 0 || mapPage + by >= pages,
      onclick: () => {
        mapPage += by;
        keepingPlace(renderMapTable);
      },
    });
  const body = rows
    .slice(mapPage * ROWS, (mapPage + 1) * ROWS)
    .map((i) =>
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          el("button", { type: "button", class: "link", text: fileName(i), onclick: () => openDetail(i, rows) }),
        ),
        el("td", { text: className(newfound.state.class_of[i]) }),
        el("td", { class: "number", text: percent(images.confidence[i]) }),
        el("td", { class: "number", text: images.x[i].toFixed(2) }),
        el("td", { class: "number", text: images.y[i].toFixed(2) }),
      ),
    );
  details.lastElementChild.replaceChildren(
    el(
      "div",
      { class: "scroller", tabindex: 0, role: "region", "aria-label": "Map as a table" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["File", "Class", "Confidence", "Across", "Down"].map((text) => el("th", { scope: "col", text })),
          ),
        ),
        el("tbody", {}, body),
      ),
    ),
    el(
      "div",
      { class: "detail-foot" },
      turn(-1, "← Previous"),
      el("span", { class: "aside", text: `page ${mapPage + 1} of ${pages}` }),
      turn(1, "Next →"),
    ),
  );
}
