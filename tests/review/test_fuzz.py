"""The review's API under requests that nobody thought of, and any order of decisions against what is on disk."""

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import positive_data_acceptance

from helping.small_runs import small_run, write_run
from newfound.review import pages_content
from newfound.review.server import create_app
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import read_results
from newfound.screen import Screen

pytestmark = pytest.mark.long

PORT, TOKEN = 8000, "a-token"
BASE = f"http://127.0.0.1:{PORT}"
OWN = {"Cookie": f"newfound-review-{PORT}={TOKEN}", "Origin": BASE}
QUICK = {
    "deadline": None, "database": None, "derandomize": True, "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # to shorten an example that fails takes minutes: add Phase.shrink when one does
}  # fmt: skip
TAKES = {  # what there is, and whether it takes anything that could be wrong
    ("/", "GET"): False, ("/api/state", "GET"): False, ("/api/revision", "GET"): False,
    ("/thumbnails/{number}", "GET"): True, ("/images/{number}", "GET"): True,
    ("/api/decisions", "POST"): True, ("/api/undo", "POST"): True, ("/api/redo", "POST"): True,
}  # fmt: skip
SENSE = [(*operation, GenerationMode.POSITIVE) for operation in TAKES]
NONSENSE = [(*operation, GenerationMode.NEGATIVE) for operation, takes in TAKES.items() if takes]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The description of the API, the session that asks the application, and the log behind it."""
    results = small_run(tmp_path_factory.mktemp("fuzz"))
    log = DecisionLog(results)
    app = create_app(log, *pages_content(results, Screen(quiet=True)), token=TOKEN, port=PORT)
    with asgi.get_client(app) as session:
        session.headers.update(OWN)
        yield schemathesis.openapi.from_dict(app.openapi()), session, log


def test_everything_there_is_is_tried(served):
    assert {(o.ok().path, o.ok().method.upper()) for o in served[0].get_all_operations()} == set(TAKES)


@pytest.mark.parametrize(("path", "method", "mode"), SENSE + NONSENSE)
def test_whatever_is_asked_the_answer_is_as_described(served, path, method, mode):
    """Only declared status codes, media types and schemas, never a 5xx; what the description rules out is refused."""
    schema, session, log = served

    @settings(max_examples=30 if path == "/api/decisions" else 10, **QUICK)
    @given(case=schema[path][method].as_strategy(generation_mode=mode), in_time=st.booleans())
    def asked(case, in_time):
        if mode is GenerationMode.POSITIVE and method == "POST" and in_time:
            case.body["revision"] = log.revision
        before = log.revision
        # What is well formed may still make no sense as things stand: "nothing to undo"
        response = case.call_and_validate(base_url=BASE, session=session, excluded_checks=[positive_data_acceptance])
        assert response.headers["x-content-type-options"] == ["nosniff"]
        assert log.revision == before + (method == "POST" and response.status_code == 200)

    asked()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_no_other_method_does_anything(served, method):
    _, session, log = served
    before = log.revision
    for path, allowed in TAKES:
        if method == allowed:
            continue
        address = BASE + path.format(number=1)
        answer = session.request(method, address, json={"revision": before} if method == "POST" else None)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert answer.headers["content-type"] == "application/json"
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    assert log.revision == before


FILES = [f"{i:02d}.png" for i in range(12)]
NAMES = ("cat", "dog", "new-1", "new-2")
odd = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers()))
ODD_NAMES = ["", "none of these", "</script><b>", "caf\udce9", "x" * 201, *NAMES]
names = st.integers(0, 10**6).map("wasp {}".format) | st.sampled_from(ODD_NAMES)
maybe = st.none() | names


def decisions(classes):
    """Such as a person makes, with a few that cannot be: a class too many, an image too many, a name that is taken."""
    number = st.sampled_from([*classes, 99])
    images = st.lists(st.sampled_from([*range(len(FILES)), *range(len(FILES)), 12]), max_size=5)
    shapes = (
        {"action": st.just("rename"), "class": number, "name": names},
        {"action": st.just("merge"), "classes": st.lists(number, min_size=1, max_size=2), "into": number},
        {"action": st.just("split"), "class": number, "name": maybe},
        {"action": st.just("split"), "class": number, "images": images, "name": maybe},
        {"action": st.just("move"), "images": images, "to": number},
        {"action": st.just("move"), "images": images, "name": maybe},
        {"action": st.just("dismiss"), "class": number},
        {"action": st.just("judge"), "images": images, "verdict": st.integers(-1, 1)},
    )
    return st.one_of(*map(st.fixed_dictionaries, shapes))


fields = ("action", "class", "name", "classes", "into", "images", "to", "verdict", "revision")
nonsense = odd | st.dictionaries(st.sampled_from(fields), odd).map(lambda body: {**body, "more": 1})


class Deciding(RuleBasedStateMachine):
    """A person, or several, at the page; `past` and `future` are the states that undo and redo must bring back."""

    results = None  # set by the test

    def __init__(self):
        super().__init__()
        self.path = self.results.run.path / "decisions.json"
        self.path.unlink(missing_ok=True)
        app = create_app(DecisionLog(self.results), {}, {}, token=TOKEN, port=PORT)
        self.session = asgi.get_client(app)
        self.session.headers.update(OWN)
        self.state, self.past, self.future = self.served(), [], []

    def served(self):
        return self.session.get(f"{BASE}/api/state").json()

    def sent(self, where, body):
        """Whether it was taken; if not, nothing has changed, on disk or in what is served."""
        before = self.path.read_bytes() if self.path.exists() else None
        answer = self.session.post(
            f"{BASE}/api/{where}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        if answer.status_code == 200:
            assert answer.json() == self.served()
            assert answer.json()["revision"] == self.state["revision"] + 1
            return True
        assert answer.status_code in (400, 409, 422)
        assert (answer.status_code == 409) <= (answer.json().get("state") == self.state)
        assert (self.path.read_bytes() if self.path.exists() else None) == before
        assert self.served() == self.state
        return False

    @rule(data=st.data())
    def decide(self, data):
        decision = data.draw(decisions([c["id"] for c in self.state["classes"]]))
        if self.sent("decisions", {**decision, "revision": self.state["revision"]}):
            self.past.append(self.state)
            self.state, self.future = self.served(), []
            assert self.state["undo"] == decision["action"]

    @precondition(lambda self: self.past)
    @rule()
    def undo(self):
        assert self.sent("undo", {"revision": self.state["revision"]})
        self.future.append(self.state)
        self.state = self.served()
        assert seen(self.state) == seen(self.past.pop())

    @precondition(lambda self: self.future)
    @rule()
    def redo(self):
        assert self.sent("redo", {"revision": self.state["revision"]})
        self.past.append(self.state)
        self.state = self.served()
        assert seen(self.state) == seen(self.future.pop())

    @rule(where=st.sampled_from(["decisions", "undo", "redo"]), off=st.sampled_from([-1, 0, 1, 99]))
    def ask_for_what_cannot_be(self, where, off):
        """Of another state; or back where there is nothing to go back to."""
        if off == 0 and {"undo": self.past, "redo": self.future, "decisions": True}[where]:
            return
        body = {"revision": self.state["revision"] + off}
        assert not self.sent(where, {"action": "dismiss", "class": 2, **body} if where == "decisions" else body)

    @rule(where=st.sampled_from(["decisions", "undo", "redo"]), body=nonsense)
    def talk_nonsense(self, where, body):
        assert not self.sent(where, body)

    @invariant()
    def what_is_served_is_what_is_on_disk(self):
        assert self.served() == self.state == DecisionLog(read_results(self.results.run.path)).state()

    def teardown(self):
        self.session.close()


def seen(state):
    """What a person sees of it, and what could be undone."""
    return {name: value for name, value in state.items() if name not in ("revision", "redo")}


def test_any_order_of_decisions_is_on_disk_and_can_be_undone(tmp_path):
    given = [i % 4 if i % 4 < 2 and i < 6 else -1 for i in range(len(FILES))]
    results = write_run(tmp_path, FILES, [i % 4 for i in range(len(FILES))], NAMES, 2, given=given, side=4)
    machine = type("Machine", (Deciding,), {"results": results})
    run_state_machine_as_test(machine, settings=settings(max_examples=20, stateful_step_count=20, **QUICK))
