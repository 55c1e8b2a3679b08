"""The report, live: a person looks through a run and decides; every decision is on disk before the page says so."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
import threading
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from newfound.atomic import write_atomically
from newfound.errors import UserError, option
from newfound.methods import decide, method_of, own_settings
from newfound.report import NAME, look_through
from newfound.report.content import stability_of
from newfound.report.page import read_page, render_page
from newfound.review.server import create_app
from newfound.runs.decisions import DecisionLog
from newfound.runs.results import Results, read_results
from newfound.screen import Screen
from newfound.settings import DataFacts, Settings, method_name
from newfound.text import as_options, counted

HOST = "127.0.0.1"
SERVING: dict[str, Any] = {"log_level": "warning", "lifespan": "off", "server_header": False, "ws": "none"}


def review(
    run: Path | str, *, port: int = 0, open_browser: Callable[[str], Any] | None = webbrowser.open, screen: Screen
) -> None:
    """Serve the page until stopped, to this machine alone; port 0 is any that is free."""
    results = read_results(run)
    with results.run.held(), listening(port) as listener:
        log = DecisionLog(results)
        log.state()  # embeddings that cannot be read should show before anything is served
        content, thumbnails = pages_content(results, screen)
        token = secrets.token_urlsafe(24)
        port = listener.getsockname()[1]
        app = create_app(log, content, thumbnails, token=token, port=port)
        address = f"http://{HOST}:{port}/?token={token}"
        screen.say(f"Reviewing {results.run.path} at {address}")
        screen.say("Decisions are saved as you make them. Press Ctrl-C to stop.")
        if open_browser is not None:  # in a thread: some browsers take over the terminal until they are closed
            threading.Thread(target=open_browser, args=(address,), daemon=True).start()
        try:
            with suppress(KeyboardInterrupt):  # how a review ends
                _serve(uvicorn.Server(uvicorn.Config(app, **SERVING)), listener)
        finally:
            _finish(log, content, thumbnails, screen)


def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Until Ctrl-C. A notebook's own event loop is at work in this thread, so there the server has another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        server.run(sockets=[listener])
        return
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.run, sockets=[listener])
        try:
            while not serving.done():
                wait([serving], timeout=0.2)  # not for ever: on Windows nothing could interrupt that
        finally:
            server.should_exit = True
    serving.result()


def listening(port: int) -> socket.socket:
    """A socket of this machine alone; whoever connects before the server is up waits."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except (OSError, OverflowError, TypeError) as error:
        listener.close()
        raise UserError(f"{option('port', port)} cannot be used: {error}. Leave it out for any free port.") from error
    return listener


def pages_content(results: Results, screen: Screen) -> tuple[dict[str, Any], dict[int, bytes]]:
    """What the page shows: taken from the report if it is of these results, as it takes time to gather."""
    path = results.run.path / NAME
    if path.is_file():
        try:
            content, thumbnails = read_page(path)
            same_images = content["images"]["file"] == list(results.files)
            same_classes = len(content["classes"]) == len(results.assignment.class_names)
            complete = "large" in content["findings"]  # earlier versions did not look for it
            if complete and same_images and same_classes and content.get("stability") == stability_of(results):
                return content, thumbnails
        except (ValueError, KeyError, IndexError):
            screen.warn(f"{path} is malformed and will be written again")
    content, made = look_through(results, screen)
    return content, made.pictures


def _finish(log: DecisionLog, content: dict[str, Any], thumbnails: dict[int, bytes], screen: Screen) -> None:
    """The report as it stands now, and the command for the next round."""
    run = log.results.run.path
    with write_atomically(run / NAME) as file:
        file.write(render_page({**content, "live": False, "state": log.state()}, thumbnails))
    made = f"{counted(len(log.decisions), 'decision')} saved in {log.path}" if log.decisions else "No decisions made"
    screen.say(f"{made}; {run / NAME} is up to date")
    if log.decisions:
        screen.say(f"To start another round, with your decisions as labels:\n  {continue_command(log.results)}")


def continue_command(results: Results) -> str:
    """What takes the decisions on: the same command, with all settings that were chosen."""
    a, chosen = results.assignment, results.settings
    classes, labelled = chosen.classes or len(a.class_names), int((results.given >= 0).sum())
    known = min(a.n_known + len(a.unseen), classes)
    facts = DataFacts(max(len(results), classes), known, labelled, min(a.n_known, classes), classes)
    name, taken = method_name(chosen), method_of(chosen).NEEDS.first_training_from
    options: dict[str, object] = {} if name == Settings.method else {"method": name}
    usual = decide(Settings(method=name), facts)
    for there, default in ((chosen, usual), (own_settings(chosen), usual.method)):
        for setting, value in vars(there).items():
            if setting not in ("classes", "device", "method", taken) and value != getattr(default, setting):
                options[setting] = value
    words = ["newfound", "discover", str(results.root), "--continue", str(results.run.path), *as_options(options)]
    return shlex.join(words)
