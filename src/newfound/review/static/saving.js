// To the server and back. A decision counts once the server has it on disk; until then the page shows nothing of it.

const SAVED = "All decisions saved";
const AGAIN = 4000; // milliseconds between looks at what other windows have decided

const status = el("p", { class: "status", role: "status", text: SAVED });
let waiting = 0; // decisions that are on their way
let line = Promise.resolve(); // one after the other: each is made on the state that the one before has left

function say(text, kind = "") {
  status.textContent = text;
  status.dataset.kind = kind;
}

/** Send a decision, or "undo" or "redo"; resolves to whether it was saved. */
function send(where, body = {}) {
  waiting += 1;
  say("Saving…");
  line = line.then(() => deliver(where, body)).finally(() => {
    waiting -= 1;
  });
  return line;
}

function decide(decision) {
  return send("decisions", decision);
}

async function deliver(where, body) {
  let response;
  let answered;
  try {
    response = await fetch(`api/${where}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, revision: newfound.state.revision }),
    });
    answered = await response.json();
  } catch {
    say("Not saved: newfound review has stopped. Start it again; what was saved before is kept.", "bad");
    return false;
  }
  if (response.ok) {
    take(answered);
    say(SAVED);
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
    const { revision } = await (await fetch("api/revision")).json();
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
