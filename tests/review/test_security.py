"""What the review's server must withstand: other machines, other pages, other people, and clients that mean harm."""

import hmac
import json
import os
import re
import socket
from contextlib import closing
from pathlib import Path
from queue import Queue

import pytest
import uvicorn
from PIL import Image

from helping.live_review import in_thread, live
from helping.patience import PATIENCE
from helping.small_runs import small_run, write_run
from newfound.app.commands.review import Review
from newfound.errors import UserError
from newfound.review import listening, review, server
from newfound.runs.decisions import DecisionLog
from newfound.screen import Screen

EVERY_ANSWER = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
EVIL = ("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>')


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("security"))


@pytest.fixture(scope="module")
def served(results):
    with in_thread(results) as running:
        yield running


def raw(served, request: bytes) -> bytes:
    """All that comes back for bytes that no client would send."""
    with closing(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)) as connection:
        answer = b""
        try:
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:
            pass  # it may hang up in the middle of what it refuses
        return answer


def head(served, method: str, path: str, *more: str) -> bytes:
    """The head of a request that the page itself could have made."""
    own = f"127.0.0.1:{served.port}"
    cookie = f"newfound-review-{served.port}={served.token}"
    lines = [f"{method} {path} HTTP/1.1", f"Host: {own}", f"Cookie: {cookie}", f"Origin: http://{own}", *more]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


# Who can reach it


def test_it_listens_to_this_machine_alone(results):
    """On the address that is bound, not on what some option says; nor is there any option for another one."""
    with listening(0) as listener:
        assert listener.family == socket.AF_INET
        assert listener.getsockname()[0] == "127.0.0.1"
    with live(results.run.path) as process:
        listeners = listening_sockets(process.process.pid)
        assert [address for address, _ in listeners] == ["127.0.0.1"]
        for other in other_addresses():
            with pytest.raises(OSError, match=r"refused|timed out|[Nn]o route|unreachable"):
                socket.create_connection((other, process.port), timeout=PATIENCE).close()
        with pytest.raises(UserError, match="another run or review is at work"):  # and there is one at a time
            review(results.run.path, open_browser=None, screen=Screen(quiet=True))
    assert set(Review.__dataclass_fields__) == {"run_folder", "port", "browser"}


def listening_sockets(pid: int) -> list[tuple[str, int]]:
    """Address and port of all TCP sockets a process listens on, as the kernel says."""
    if not os.path.exists(f"/proc/{pid}/net/tcp"):
        pytest.skip("no /proc here")
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    found = []
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        path = f"/proc/{pid}/net/{table}"
        rows = Path(path).read_text().splitlines()[1:] if os.path.exists(path) else []
        for fields in map(str.split, rows):
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                address, port = fields[1].split(":")
                words = b"".join(bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8))
                found.append((socket.inet_ntop(family, words), int(port, 16)))
    return found


def other_addresses() -> list[str]:
    """127.0.0.2 is this machine, too, and so is what its name stands for."""
    try:
        own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        own = set()
    return sorted({"127.0.0.2", *own} - {"127.0.0.1"})


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1.:{port}", "[::1]:{port}", "0.0.0.0:{port}",
     "2130706433:{port}", "localhost.evil.example:{port}", "127.0.0.1:{port}@evil.example", ""],
)  # fmt: skip
def test_a_name_that_was_bent_to_this_machine_is_refused(served, host):
    """DNS rebinding: the browser believes that it talks to evil.example, and says so."""
    host = host.format(port=served.port)
    assert served.ask("GET", "/api/state", Host=host)[0] == 421
    assert served.ask("GET", f"/?token={served.token}", Host=host)[0] == 421
    assert served.ask("POST", "/api/undo", {"revision": 0}, Host=host)[0] == 421


def test_two_hosts_or_none_are_refused(served):
    twice = head(served, "GET", "/api/state", f"Host: 127.0.0.1:{served.port}")
    assert b" 400 " in raw(served, twice).splitlines()[0]
    assert b" 421 " in raw(served, b"GET /api/state HTTP/1.0\r\n\r\n").splitlines()[0]
    elsewhere = head(served, "GET", f"http://evil.example:{served.port}/api/state")
    assert b" 404 " in raw(served, elsewhere).splitlines()[0]


@pytest.mark.parametrize("origin", ["https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://localhost", "null", "x"])
def test_pages_from_elsewhere_cannot_decide(served, origin):
    origin = origin.format(port=served.port)
    for path in ("/api/decisions", "/api/undo", "/api/redo"):
        assert served.ask("POST", path, {"revision": 0}, Origin=origin)[0] == 403
    assert served.ask("POST", "/api/undo", {"revision": 0}, Sec_Fetch_Site="same-site")[0] == 403  # another port


def test_the_token_is_compared_as_a_whole(served, monkeypatch):
    """In a time that does not tell how much of it was right: by hmac.compare_digest, and nothing else."""
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return hmac_compare(one, other)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr(server.hmac, "compare_digest", compare)
    for guess in ("", "b", served.token[:-1], served.token + "x", "é"):
        assert served.ask("GET", "/api/state", Cookie=f"newfound-review-{served.port}={guess}".encode())[0] == 403
    assert served.ask("GET", "/api/state")[0] == 200
    assert len(compared) == 6
    assert {other for _, other in compared} == {served.token.encode()}
    assert served.ask("GET", f"/api/state?token={served.token}", cookie=False)[0] == 403  # only the page takes it


def test_every_review_has_a_token_of_its_own_in_the_address_that_is_opened(results, monkeypatch):
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    opened = Queue()
    for _ in range(2):
        review(results.run.path, open_browser=opened.put, screen=Screen(quiet=True))
    addresses = [opened.get(timeout=PATIENCE) for _ in range(2)]
    tokens = [re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=([\w-]{32,})", address)[1] for address in addresses]
    assert tokens[0] != tokens[1]


# What it gives


@pytest.mark.parametrize(
    "name",
    ["..", "../..", "../../etc/passwd", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2fetc%2fpasswd",
     "..%5c..%5cetc",
     "..\\..\\etc\\passwd", "%00", "0%00.png", "%2fetc%2fpasswd", "/etc/passwd", "%252e%252e%252f", "..%c0%af..%c0%af",
     "%ef%bc%8e%ef%bc%8e%ef%bc%8f", "part%200/image000.png", "C:%5cWindows%5cwin.ini", "file:%2f%2f%2fetc%2fpasswd",
     "%d9%a3x", "1e0", "0x1", "1;2", "~root", "%ff%fe"],
)  # fmt: skip
def test_no_path_leads_to_a_file(served, name):
    for kind in ("thumbnails", "images", "static", "."):
        answer = raw(served, head(served, "GET", f"/{kind}/{name}"))
        status, body = int(answer.split()[1]), answer.split(b"\r\n\r\n", 1)[1]
        assert status in (400, 404, 422)
        assert b"root:" not in body


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    """Of a file, of a folder above it, and in a circle."""
    results = write_run(tmp_path, ["a/0.png", "b/1.png", "c/2.png", "d/3.png"], [0, 0, 1, 1], ("cat", "new-1"), 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    Image.new("RGB", (64, 64), "red").save(outside / "0.png")
    (outside / "1.png").write_bytes((outside / "0.png").read_bytes())
    images = results.root
    (images / "a" / "0.png").unlink()
    (images / "a" / "0.png").symlink_to(outside / "0.png")
    (images / "b" / "1.png").unlink()
    (images / "b").rmdir()
    (images / "b").symlink_to(outside, target_is_directory=True)
    (images / "c" / "2.png").unlink()
    (images / "c" / "2.png").symlink_to("2.png")
    with in_thread(results, thumbnails={}) as running:  # so that the files themselves are asked for
        for kind in ("images", "thumbnails"):
            assert [running.ask("GET", f"/{kind}/{i}")[0] for i in range(4)] == [404, 404, 404, 200]


def test_every_answer_has_the_headers(served, monkeypatch):
    """Errors, too; and of a mistake in the server nothing is told but that there was one."""
    answers = {
        200: served.ask("GET", "/api/state"),
        403: served.ask("GET", "/api/state", cookie=False),
        404: served.ask("GET", "/nowhere"),
        405: served.ask("OPTIONS", "/api/decisions", Access_Control_Request_Method="POST"),
        411: served.ask("POST", "/api/undo"),
        413: served.ask("POST", "/api/undo", raw=b"", Content_Length="9999999"),
        415: served.ask("POST", "/api/undo", {}, Content_Type="text/plain"),
        421: served.ask("GET", "/", Host="evil.example"),
        422: served.ask("POST", "/api/undo", {}),
    }

    def broken(self):
        raise RuntimeError("a secret at /home/someone")

    monkeypatch.setattr(DecisionLog, "state", broken)
    answers[500] = served.ask("GET", "/api/state")
    for status, (found, headers, body) in answers.items():
        assert found == status
        assert headers["content-type"] == "application/json"
        assert {name: headers[name] for name in EVERY_ANSWER} == EVERY_ANSWER
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control-")]
        assert status == 200 or set(json.loads(body)) == {"detail"}
    assert b"secret" not in answers[500][2]
    assert b"Traceback" not in answers[500][2]


def test_the_pages_policy_is_a_header_too(served):
    _, headers, page = served.ask("GET", "/")
    assert {name: headers[name] for name in EVERY_ANSWER} == EVERY_ANSWER
    assert headers["cache-control"] == "no-store"
    parts = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert parts["default-src"] == parts["frame-ancestors"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts["connect-src"] == "'self'"
    for kind in ("script-src", "style-src"):
        assert parts[kind].startswith("'sha256-")
        assert "unsafe" not in parts[kind]
        assert " " not in parts[kind]
    inside = page.decode().split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert headers["content-security-policy"] == inside.replace("&#39;", "'") + "; frame-ancestors 'none'"


def test_names_do_not_become_html(tmp_path):
    """Of classes, of files, given in a rename: they are in the page as JSON that HTML cannot mistake for its own."""
    odd = [f"{name.replace('/', '')}{i}.png" for i, name in enumerate(EVIL * 2)]
    results = write_run(tmp_path, odd, [0, 0, 1, 1], EVIL, 1)
    with in_thread(results) as running:
        status, _ = running.decide(action="rename", **{"class": 1}, name=f"{EVIL[0]} again", revision=0)
        assert status == 200
        page = running.ask("GET", "/")[2].decode()
    assert "again" in page
    for text in ("<script>alert", "<img", "onerror=alert(1)>"):
        assert text not in page
    assert page.count("</script>") == 3  # two of data and the page's own


def test_a_name_that_is_not_utf8_is_served_and_decided_on(tmp_path):
    """As a folder may be called on Linux; the answer was a mistake of the server, after the decision was saved."""
    results = write_run(tmp_path, [f"{i}.png" for i in range(4)], [0, 0, 1, 1], (os.fsdecode(b"caf\xe9"), "new-1"), 1)
    with in_thread(results) as running:
        assert running.state()["classes"][0]["name"] == os.fsdecode(b"caf\xe9")
        status, state = running.decide(action="rename", **{"class": 1}, name="otter", revision=0)
        assert (status, state) == (200, running.state())


# What it takes


def test_a_body_in_chunks_cannot_outgrow_the_limit(served):
    """Chunks go before a Content-Length, whatever that says."""
    for length in ([], ["Content-Length: 14"]):
        start = head(
            served, "POST", "/api/undo", "Content-Type: application/json", "Transfer-Encoding: chunked", *length
        )
        answer = raw(served, start + b"e\r\n" + b'{"revision":0}' + b"\r\n")  # and no end
        assert b" 411 " in answer.splitlines()[0]


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"revision":0,"images":' + b"[" * 900 + b"]" * 900 + b"}",
     b'{"revision":' + b"9" * 100_000 + b"}", b'{"revision":1e999999}', b'{"revision":-0}' * 2, b'{"revision":NaN}',
     b'{"' + b"k" * 1_000_000 + b'":1,"revision":0}', b'{"\\ud800":1,"revision":0}', b"\xff\xfe\x00"],
)  # fmt: skip
def test_json_that_means_harm(served, body):
    for path in ("/api/decisions", "/api/undo"):
        status, _, answer = served.ask("POST", path, raw=body)
        assert status in (400, 422)
        assert json.loads(answer)["detail"]
        assert len(answer) < 1000


@pytest.mark.parametrize(
    "request_",
    [b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n"],
)  # fmt: skip
def test_requests_without_measure(served, request_):
    answer = raw(served, request_)
    if answer or len(request_) < 1000:  # in the middle of a longer one it may hang up
        assert answer.split()[1] == b"400"
    assert served.ask("GET", "/api/revision")[0] == 200


@pytest.mark.parametrize(
    ("length", "status"),
    [("14", 422), ("14, 15", 400), ("4000001", 413), ("9" * 19, 413), ("9" * 5000, 400), ("0" * 5000 + "14", 400),
     ("-1", 400), ("+14", 400), ("1e3", 400), ("0xe", 400), ("14.0", 400), ("1 4", 400), ("\xb9\xb2", 400), ("", 400)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_lengths_without_measure(served, length, status):
    """Of a body that the page itself could have sent; the right length comes as far as what it says."""
    start = head(served, "POST", "/api/undo", "Content-Type: application/json", f"Content-Length: {length}")
    answer = raw(served, start + b'{"revision":0}')
    assert int(answer.split()[1]) == status
    assert (b"there is nothing to undo" in answer) == (status == 422)
    assert served.ask("GET", "/api/revision")[0] == 200


def test_slow_clients_keep_nobody_waiting(results):
    """A hundred that never finish their request, some of them in the middle of a decision; it answers beside them."""
    with in_thread(results) as running:
        slow = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(100)]
        for n, connection in enumerate(slow):
            body = head(running, "POST", "/api/decisions", "Content-Type: application/json", "Content-Length: 1000")
            connection.sendall(body + b'{"action"' if n % 2 else body[:40])
        status, _ = running.decide(action="rename", **{"class": 2}, name="otter", revision=0)
        assert status == 200
        for connection in slow:
            with closing(connection), pytest.raises(BlockingIOError):
                connection.recv(1, socket.MSG_DONTWAIT)  # it has neither been answered nor given up
    (results.run.path / "decisions.json").unlink()
