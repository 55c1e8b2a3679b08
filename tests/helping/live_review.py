"""A real review server: `newfound review` in a process of its own or, quicker, a thread of this one."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import uvicorn

from helping.patience import PATIENCE
from helping.preloaded import Program, newfound
from newfound.review import SERVING, listening, pages_content
from newfound.review.server import create_app
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import Results
from newfound.screen import Screen


class Server:
    """Where it listens, and how to ask it."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token
        self.address = f"http://127.0.0.1:{port}/?token={token}"

    def ask(
        self, method: str, path: str, body: object = None, *, cookie: bool = True, raw: bytes | None = None, **headers
    ):
        """Status, headers and content of one request, with the headers a page of ours sends unless told otherwise."""
        told = {
            "Host": f"127.0.0.1:{self.port}",
            "Cookie": f"newfound-review-{self.port}={self.token}" if cookie else None,
            "Origin": f"http://127.0.0.1:{self.port}" if method == "POST" else None,
            "Content-Type": "application/json" if method == "POST" else None,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if content is not None and "Content-Length" not in told and told.get("Transfer-Encoding") is None:
            told["Content-Length"] = str(len(content))
        for name, value in told.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return answer

    def state(self):
        return json.loads(self.ask("GET", "/api/state")[2])

    def decide(self, **decision):
        status, _, content = self.ask("POST", "/api/decisions", decision)
        return status, json.loads(content)


class Process(Server):
    """`newfound review`, to be stopped or killed."""

    def __init__(self, run: Path) -> None:
        self.process = Program(newfound, "review", str(run), "--no-browser")
        while (found := re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", self.process.output())) is None:
            assert self.process.poll() is None, f"it ended: {self.process.communicate()}"
            time.sleep(0.01)
        super().__init__(int(found.group(1)), found.group(2))

    def stop(self, how: int = signal.SIGINT) -> str:
        """What it said to the end."""
        self.process.send_signal(how)
        return "".join(self.process.communicate())


@contextmanager
def live(run: Path):
    """A process, killed at the end if it has not been stopped."""
    server = Process(run)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


@contextmanager
def in_thread(results: Results, thumbnails: dict[int, bytes] | None = None):
    """The same application in a thread; with these pictures instead of the report's."""
    listener = listening(0)
    address = Server(listener.getsockname()[1], "a-token")
    content, made = pages_content(results, Screen(quiet=True))
    pictures = made if thumbnails is None else thumbnails
    app = create_app(DecisionLog(results), content, pictures, token=address.token, port=address.port)
    server = uvicorn.Server(uvicorn.Config(app, **SERVING))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield address
    finally:  # or a test that fails would never end
        server.should_exit = True
        thread.join()
        listener.close()
