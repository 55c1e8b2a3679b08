"""The review's server: who may ask, what it gives, and that decisions are kept."""

import json
import shlex
import signal

import pytest
from PIL import Image

from helping.live_review import in_thread, live
from helping.small_runs import small_run
from newfound.app.commands.discover import Discover
from newfound.app.main import parsed
from newfound.errors import UserError
from newfound.report import write_report
from newfound.review import continue_command, review
from newfound.runs.decisions import reviewed_of
from newfound.runs.results import read_results
from newfound.screen import Screen


@pytest.fixture
def results(tmp_path):
    """A finished run with its report, to decide on."""
    found = small_run(tmp_path)
    write_report(found, Screen(quiet=True))
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for all tests that decide nothing."""
    results = small_run(tmp_path_factory.mktemp("served"))
    with in_thread(results) as server:
        yield server


def test_the_page_needs_the_token(served):
    assert served.ask("GET", "/", cookie=False)[0] == 403
    assert served.ask("GET", "/?token=wrong", cookie=False)[0] == 403
    assert served.ask("GET", f"/?token={served.token}%C3%A9", cookie=False)[0] == 403
    status, headers, content = served.ask("GET", f"/?token={served.token}", cookie=False)
    assert status == 200
    assert b"newfound" in content
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert served.ask("GET", "/")[0] == 200  # with the cookie


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/revision", "/thumbnails/0", "/images/0", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),  # without the port
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Cookie": "newfound-review=x"}, 403),
        ({"Cookie": None}, 403),
    ],
)
def test_strangers_are_refused(served, path, headers, status):
    found, given, _ = served.ask("GET", path, **headers)
    assert found == status
    assert given["x-content-type-options"] == "nosniff"


def test_a_link_elsewhere_may_open_the_page_but_not_the_data(served):
    crossing = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert served.ask("GET", f"/?token={served.token}", cookie=False, **crossing)[0] == 200
    assert served.ask("GET", "/", cookie=False, **crossing)[0] == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content_Type": "text/plain"}, 415),  # what a form of another page could send
        ({"Content_Length": "5000000"}, 413),
        ({"Content_Length": None, "Transfer_Encoding": "chunked"}, 411),
    ],
)
def test_decisions_of_strangers_are_refused(served, headers, status):
    body = b"" if "Content_Length" in headers else b'{"action": "dismiss", "class": 2, "revision": 0}'
    assert served.ask("POST", "/api/decisions", raw=body, **headers)[0] == status
    assert served.state()["revision"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"\xff"', b'{"revision": 0}', b'{"action": "dismiss", "revision": -1}',
        b'{"action": "nothing", "revision": 0}', b'{"action": "dismiss", "class": 2, "revision": 0, "more": 1}',
        b'{"action": "dismiss", "class": "2", "revision": 0}', b'{"action": "dismiss", "class": 1e400, "revision": 0}',
        b'{"action": "dismiss", "class": 99, "revision": 0}', b'{"action": "split", "class": 99, "revision": 0}',
        b'{"action": "judge", "images": [160], "verdict": 1, "revision": 0}',
        b'{"action": "judge", "images": [-1], "verdict": 1, "revision": 0}',
        b'{"action": "judge", "images": ["a"], "verdict": 1, "revision": 0}',
        b'{"action": "judge", "images": [0], "verdict": true, "revision": 0}',
        b'{"action": "judge", "images": [0], "verdict": 1.0, "revision": 0}',
        b'{"action": "move", "images": [], "to": 0, "revision": 0}', b'{"action": "split", "revision": 0}',
        b"[" * 5000,
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_a_reason(served, body):
    status, _, content = served.ask("POST", "/api/decisions", raw=body)
    assert status in (400, 422)
    assert json.loads(content)["detail"]
    assert served.state()["revision"] == 0


@pytest.mark.parametrize("path", ["/thumbnails/160", "/thumbnails/-1", "/images/160", "/images/99999999999999999999"])
def test_there_are_no_other_images(served, path):
    assert served.ask("GET", path)[0] == 404


@pytest.mark.parametrize("path", ["/static/page.js", "/docs", "/redoc", "/openapi.json"])
def test_there_is_nothing_but_the_page(served, path):
    assert served.ask("GET", path)[0] == 404


def test_pictures_are_encoded_again(served):
    status, headers, small = served.ask("GET", "/thumbnails/3")
    assert (status, headers["content-type"], small[:4]) == (200, "image/webp", b"RIFF")
    status, headers, large = served.ask("GET", "/images/3")
    assert (status, headers["content-type"], large[:3]) == (200, "image/jpeg", b"\xff\xd8\xff")


def test_an_image_that_leads_out_of_the_folder_is_not_served(tmp_path):
    results = small_run(tmp_path)
    write_report(results, Screen(quiet=True))
    outside = tmp_path / "secret.png"
    (results.root / results.files[0]).unlink()
    Image.new("RGB", (64, 64)).save(outside)
    (results.root / results.files[0]).symlink_to(outside)
    with in_thread(results) as server:
        status, headers, content = server.ask("GET", "/images/0")
        assert (status, headers["content-type"]) == (200, "image/webp")  # the picture that the report has
        assert content == server.ask("GET", "/thumbnails/0")[2]
        assert server.ask("GET", "/images/2")[1]["content-type"] == "image/jpeg"


def test_an_image_that_is_gone(tmp_path):
    results = small_run(tmp_path)
    (results.root / results.files[1]).unlink()
    with in_thread(results) as server:
        assert server.ask("GET", "/images/1")[0] == 404
        assert server.ask("GET", "/thumbnails/1")[0] == 404


def test_a_decision_is_on_disk_before_the_answer(results):
    with live(results.run.path) as server:
        status, state = server.decide(action="rename", **{"class": 2}, name="sea <b>otter</b>", revision=0)
        assert status == 200
        assert state["revision"] == 1
        server.stop(signal.SIGKILL)
    assert reviewed_of(results).names[2] == "sea <b>otter</b>"
    with live(results.run.path) as server:  # the lock of the dead one does not keep us out
        assert server.state() == state
        assert server.decide(action="split", **{"class": 3}, revision=1)[0] == 200
        assert json.loads(server.ask("POST", "/api/undo", {"revision": 2})[2])["redo"] == "split"
        output = server.stop()
        assert server.process.poll() == 0
    assert "1 decision saved in " in output
    assert f"newfound discover {results.root} --continue {results.run.path}" in output
    assert '"revision":3' in (results.run.path / "report.html").read_text()
    assert [path.name for path in results.run.path.rglob("*.tmp")] == []


def test_two_windows_do_not_overwrite_each_other(results):
    with in_thread(results) as server:
        assert server.decide(action="rename", **{"class": 2}, name="otter", revision=0)[0] == 200
        status, answer = server.decide(action="rename", **{"class": 2}, name="weasel", revision=0)
        assert status == 409
        assert answer["state"] == server.state()
        assert answer["state"]["classes"][2]["name"] == "otter"


def test_a_disk_that_is_full_is_reported(results):
    with in_thread(results) as server:
        (results.run.path / "decisions.json.tmp").mkdir()  # stands in the way of every file written
        status, answer = server.decide(action="dismiss", **{"class": 2}, revision=0)
        assert status == 507
        assert "decisions.json cannot be written" in answer["detail"]
        (results.run.path / "decisions.json.tmp").rmdir()
        assert server.decide(action="dismiss", **{"class": 2}, revision=0)[0] == 200


def test_a_port_that_is_taken(results, served):
    with pytest.raises(UserError, match=f"port={served.port} cannot be used"):
        review(results.run.path, port=served.port, open_browser=None, screen=Screen(quiet=True))
    with pytest.raises(UserError, match="port='http' cannot be used"):
        review(results.run.path, port="http", open_browser=None, screen=Screen(quiet=True))
    with pytest.raises(UserError, match="port=70000 cannot be used"):
        review(results.run.path, port=70000, open_browser=None, screen=Screen(quiet=True))


def test_the_next_command_keeps_what_was_chosen(tmp_path):
    results = small_run(tmp_path)
    config = results.run.path / "config.toml"
    text = config.read_text().replace("image_size = 224", "image_size = 128")
    config.write_text(text.replace("compile = false", "compile = true"))
    command = continue_command(read_results(results.run.path))
    assert "--image-size 128" in command
    assert "--epochs" not in command  # as usual


def test_the_next_command_can_be_typed(tmp_path):
    results = small_run(tmp_path)
    config = results.run.path / "config.toml"
    text = config.read_text().replace("compile = false", "compile = true").replace("k = 0.5", "k = 0.25")
    config.write_text(text)
    words = shlex.split(continue_command(read_results(results.run.path)))
    assert words[0] == "newfound"
    command = parsed(words[1:])
    assert isinstance(command, Discover)
    assert (command.folder, command.after) == (results.root, results.run.path)
    assert (command.settings.compile, command.settings.method.k) == (True, 0.25)
