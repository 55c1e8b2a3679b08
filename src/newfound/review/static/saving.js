// To the server and back. A decision counts once the server has it on disk; until then the page shows nothing of it.

const SAVED = "All decisions saved";
const SAVING = "Saving…";
const AGAIN = 4000; // milliseconds between looks at what other windows have decided

const status = el("p", { class: "status", role: "status", text: SAVED });
let waiting = 0; // decisions that are on their way
let failures = 0; // decisions that were not saved
let line = Promise.resolve(); // one after the other

function say(text, kind = "") {
  status.textContent = text;
  status.dataset.kind = kind;
}

/** What a decision made now is about: the state in sight, once all that is on its way is saved. */
function moment() {
  return { revision: newfound.state.revision + waiting, failures };
}

/** Send a decision, or "undo" or "redo"; resolves to whether it was saved. Should one fail, those behind it do, too. */
function send(where, body = {}, made = moment()) {
  waiting += 1;
  say(SAVING);
  const sent = line.then(async () => {
    if (made.failures !== failures) {
      // it was made on a state that never came to be
      if (status.textContent === SAVING) say("Not saved, because an earlier decision was not saved. Decide again.", "bad");
      return false;
    }
    const saved = await deliver(where, { ...body, revision: made.revision });
    if (!saved) failures += 1;
    return saved;
  });
  line = sent.catch(() => {}).then(() => {
    waiting -= 1;
  });
  return sent;
}

function decide(decision, made = moment()) {
  return send("decisions", decision, made);
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
    if (!asked.ok) return say("newfound review was restarted: open the address that it printed.", "bad");
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
