"""A script: runs commands of newfound in this one process, with every use of the network refused and noted.

Its first argument is a JSON file with the commands, a list of words each; what came of them goes to the second.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from http.client import HTTPConnection
from pathlib import Path

from helping.doubles import SMALL_WIDTH
from helping.patience import PATIENCE

WATCHED = {
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "socket.gethostbyaddr", "socket.getnameinfo", "urllib.Request", "http.client.connect", "ftplib.connect",
    "smtplib.connect", "webbrowser.open",
}  # fmt: skip
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

tried: list[str] = []
visitor = threading.local()  # whoever looks at the review's page, in place of a browser


def refuse(event: str, args: tuple[object, ...]) -> None:
    if event not in WATCHED or getattr(visitor, "here", False):
        return
    tried.append(f"{event} {args[1:] if isinstance(args[0], socket.socket) else args}")  # to where, not by what
    if event == "socket.bind" and args[1][0] == "127.0.0.1":  # type: ignore[index]
        return
    raise PermissionError(f"the test allows no {event}")


def loopback_up() -> None:
    """In a network namespace of our own even 127.0.0.1 is off at first."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        flags = struct.unpack("16sh", fcntl.ioctl(handle, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP))


def visit(said: io.StringIO, page: list[str], ended: threading.Event) -> None:
    """Fetch the page of a review as soon as it says where, then stop it as Ctrl-C does."""
    visitor.here = True
    try:
        while (found := re.search(r"http://(127\.0\.0\.1:\d+)(/\?token=\S+)", said.getvalue())) is None:
            if ended.wait(0.02):
                return  # it failed, and says why
        connection = HTTPConnection(found[1], timeout=PATIENCE)
        connection.request("GET", found[2])
        page.append(connection.getresponse().read().decode())
    finally:
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)


def run(words: list[str]) -> dict[str, object]:
    from newfound.app.commands.discover import Discover
    from newfound.app.main import main
    from newfound.settings import DEFAULTS

    DEFAULTS["projector_width"] = SMALL_WIDTH
    if words[0] == "demo":  # it unpacks the sample, and does what has been done by then
        Discover.run = lambda self, screen: screen.say("discover")  # type: ignore[method-assign]
    tried.clear()
    said, page = io.StringIO(), list[str]()
    status: object = 0
    began = time.monotonic()
    ended = threading.Event()
    thread = threading.Thread(target=visit, args=(said, page, ended))
    if words[0] == "review":
        thread.start()
    sys.argv = ["newfound", *words]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code
        except BaseException:
            status = traceback.format_exc()
    ended.set()
    if words[0] == "review":
        thread.join()
    seconds = time.monotonic() - began
    return {"status": status, "said": said.getvalue(), "tried": [*tried], "page": page, "seconds": seconds}


if __name__ == "__main__":
    if "own-network" in sys.argv[3:]:
        loopback_up()
    commands = json.loads(Path(sys.argv[1]).read_text())
    target = Path(sys.argv[2])
    interfaces = [name for _, name in socket.if_nameindex()]
    sys.addaudithook(refuse)
    time.sleep = lambda seconds, sleep=time.sleep: sleep(min(seconds, 0.05))  # type: ignore[assignment]
    target.write_text(json.dumps({"interfaces": interfaces, "commands": [run(words) for words in commands]}))
