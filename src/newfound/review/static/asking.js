// Questions to the person: a name, a class, or just yes. One dialog, which the keyboard can answer.

const { el, announce, className, shown } = newfound;

const asking = el("dialog", { id: "ask", "aria-labelledby": "ask-title" });
document.body.append(asking);

asking.addEventListener("click", (event) => {
  if (event.target === asking) asking.close();
});

/** Put a question; `fields` are nodes with names, `done` gets their values and the moment of the question. */
function ask(title, fields, button, done, lead = null) {
  const made = moment(); // should another window decide meanwhile, the answer is to an outdated question
  const form = el(
    "form",
    { method: "dialog", class: "ask" },
    el("h2", { id: "ask-title", text: title }),
    lead ? el("p", { class: "lead", text: lead }) : null,
    ...fields,
    el(
      "div",
      { class: "ask-foot" },
      el("button", { type: "button", class: "quiet", text: "Cancel", onclick: () => asking.close() }),
      el("button", { type: "submit", class: "quiet primary", text: button }),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    asking.close();
    done(values, made);
  });
  asking.replaceChildren(form);
  asking.showModal();
  const first = form.querySelector("input, select, .primary");
  first.focus();
  first.select?.();
}

function nameField(value = "") {
  return el(
    "label",
    { class: "ask-field" },
    "Name",
    el("input", { name: "name", type: "text", value, maxlength: 200, required: true, autocomplete: "off" }),
  );
}

/** All classes but `except`, known ones first; `also` is [value, text] of another choice. */
function classField(label, except, also = null) {
  const list = [...newfound.state.classes]
    .filter((c) => c.id !== except)
    .sort((a, b) => (a.kind === "new") - (b.kind === "new") || a.name.localeCompare(b.name, "en", { numeric: true }));
  const option = (c) => el("option", { value: c.id, text: `${shown(c.name)} (${c.kind})` });
  return el(
    "label",
    { class: "ask-field" },
    label,
    el("select", { name: "to" }, also ? el("option", { value: also[0], text: also[1] }) : null, list.map(option)),
  );
}
