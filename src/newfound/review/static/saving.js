// To the server and back. A decision counts once the server has it on disk; until then the page shows nothing of it.

const SAVED = "All decisions saved";
const AGAIN = 4000; // milliseconds between looks at what other windows have decided

const status = el("p", { class: "status", role: "status", text: SAVED });
let waiting = 0; // decisions that are on their way
let line = Promise.resolve(); // one after the other

function say(text, kind = "") {
  status.textContent = text;
  status.dataset.kind = kind;
}

/** The revision that a decision made now is about: the one in sight, once all that is on its way is saved. */
function revisionNow() {
  return newfound.state.revision + waiting;
}

/** Send a decision, or "undo" or "redo"; resolves to whether it was saved. Should one fail, those behind it do, too. */
function send(where, body = {}, revision = revisionNow()) {
  waiting += 1;
  say("Saving…");
  const sent = line.then(() => deliver(where, { ...body, revision }));
  line = sent.catch(() => {}).then(() => {
    waiting -= 1;
  });
  return sent;
}

function decide(decision, revision = revisionNow()) {
  return send("decisions", decision, revision);
}

async function deliver(where, body) {
  let response;
  let answered;
  try {
    response = await fetch(`api/${where}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    answered = await response.json();
  } catch {
    say("Not saved: newfound review has stopped. Start it again; what was saved before is kept.", "bad");
    return false;
  }
  if (response.ok) {
    take(answered);
    if (waiting === 1) say(SAVED); // the last one
    return true;
  }
  if (answered.state) take(answered.state);
  say(`Not saved: ${typeof answered.detail === "string" ? answered.detail : "the page and the server differ. Reload."}`, "bad");
  return false;
}

function take(state) {
  newfound.render(state);
}

/** What other windows decided meanwhile. */
async function look() {
  if (document.hidden || waiting) return;
  try {
    const asked = await fetch("api/revision");
    if (!asked.ok) return say("newfound review was started anew: open the address that it printed.", "bad");
    const { revision } = await asked.json();
    if (revision === newfound.state.revision || waiting) return;
    const state = await (await fetch("api/state")).json();
    if (waiting) return;
    take(state);
    say("Changed in another window");
  } catch {
    say("newfound review has stopped. What was saved is kept.", "bad");
  }
}

setInterval(look, AGAIN);
window.addEventListener("focus", look);
document.addEventListener("visibilitychange", look);
window.addEventListener("beforeunload", (event) => {
  if (waiting) event.preventDefault();
});
