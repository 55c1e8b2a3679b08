"""The review's web server. It answers to this machine, to its own page, and to whoever holds the token; to nobody else.

Images are asked for by number, never by path, and leave as pictures encoded again.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from PIL import Image

from newfound.images.decode import Unreadable, open_image
from newfound.report.page import assembled, policy, render_page
from newfound.report.thumbnails import MEDIA_TYPE, thumbnail
from newfound.review.messages import OF_CHANGES, OF_PICTURES, REFUSALS, Answer, Revision, State, Step, Wish
from newfound.review.static import script, style
from newfound.runs.decisions import DecisionLog, Outdated
from newfound.runs.results import Results
from newfound.runs.review_state import Decision, Refused, halves

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig  # older releases have none, and take the argument all the same

LARGEST_BODY = 4_000_000  # bytes: all of 100,000 images fit in one decision
LONGEST_PLACE = 100  # characters of a field's name that a refusal repeats
LARGE = 1600  # pixels of the longer side of a picture in large
COOKIE = "newfound-review-{port}"  # several reviews may be open at once
UNFRAMED = "frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": f"default-src 'none'; {UNFRAMED}",  # the page has one of its own
    "Cache-Control": "no-store",
}
# FastAPI records requests wherever OpenTelemetry is set up in this process or by its environment: here never
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip

Next = Callable[[Request], Awaitable[Response]]


def create_app(
    log: DecisionLog, content: dict[str, Any], thumbnails: dict[int, bytes], *, token: str, port: int
) -> FastAPI:
    """The application; ``content`` and ``thumbnails`` are those of the report."""
    app = FastAPI(
        title="newfound review", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        responses=REFUSALS, telemetry=NO_TELEMETRY,
    )  # fmt: skip
    deciding = threading.Lock()  # one decision at a time
    mark = hashlib.sha256(token.encode()).hexdigest()[:12]  # of this review, in the addresses of pictures
    pages_policy = f"{policy(*assembled([script()], [style()]), live=True)}; {UNFRAMED}"

    @app.middleware("http")
    async def guard(request: Request, call_next: Next) -> Response:
        if (reason := _refusal(request, token, port)) is not None:
            return Answer({"detail": reason[1]}, reason[0], headers=HEADERS)
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(RequestValidationError)
    async def nonsense(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]  # without what was sent: not all of that is JSON
        where = ".".join(map(str, first["loc"]))[:LONGEST_PLACE]
        return Answer({"detail": f"{where}: {first['msg']}"}, 422)

    @app.exception_handler(Exception)
    async def mishap(_: Request, error: Exception) -> Response:  # what went wrong is printed where newfound runs
        return Answer({"detail": "an error in newfound; see its terminal"}, 500, headers=HEADERS)

    @app.get("/", response_class=HTMLResponse)
    def page() -> Response:
        live = {**content, "live": mark, "state": state_now()}
        response = HTMLResponse(render_page(live, {}, scripts=[script()], styles=[style()]))
        response.headers["Content-Security-Policy"] = pages_policy
        response.set_cookie(COOKIE.format(port=port), token, httponly=True, samesite="strict")
        return response

    @app.get("/thumbnails/{number}", response_class=Response, responses=OF_PICTURES)
    def small(number: int) -> Response:
        picture = thumbnails.get(number)
        if picture is None and (path := _inside(log.results, number)) is not None:
            picture = thumbnail(path)
        return _picture(picture, MEDIA_TYPE)

    @app.get("/images/{number}", response_class=Response, responses=OF_PICTURES)
    def large(number: int) -> Response:
        path = _inside(log.results, number)
        picture = None if path is None else _large(path)
        return small(number) if picture is None else _picture(picture, "image/jpeg")

    def state_now() -> dict[str, Any]:
        with deciding:
            return log.state()

    @app.get("/api/state", responses={200: {"model": State}})
    def state() -> Response:
        return Answer(state_now())

    @app.get("/api/revision", responses={200: {"model": Revision}})
    def revision() -> Response:
        return Answer({"revision": log.revision})

    def changed(change: Callable[[], None]) -> Response:
        with deciding:
            try:
                change()
            except Outdated as error:
                return Answer({"detail": str(error), "state": log.state()}, 409)
            except Refused as error:
                return Answer({"detail": str(error)}, 422)
            except OSError as error:
                return Answer({"detail": f"{log.path.name} cannot be written: {error.strerror}"}, 507)
            return Answer(log.state())

    @app.post("/api/decisions", responses=OF_CHANGES)
    def decide(wish: Wish) -> Response:
        return changed(lambda: log.decide(_decision(log, wish), wish.revision))

    @app.post("/api/undo", responses=OF_CHANGES)
    def undo(step: Step) -> Response:
        return changed(lambda: log.undo(step.revision))

    @app.post("/api/redo", responses=OF_CHANGES)
    def redo(step: Step) -> Response:
        return changed(lambda: log.redo(step.revision))

    return app


def _refusal(request: Request, token: str, port: int) -> tuple[int, str] | None:
    """Status and reason, if a request is none of ours."""
    own = {f"127.0.0.1:{port}", f"localhost:{port}"}
    if request.headers.get("host", "") not in own:
        return 421, "this server answers to 127.0.0.1 and localhost only"
    origin = request.headers.get("origin")
    if origin is not None and origin not in {f"http://{host}" for host in own}:
        return 403, "requests from other pages are refused"
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        top = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
        if not top:  # a link in another page may open this one: the token is asked for all the same
            return 403, "requests from other pages are refused"
    given = request.cookies.get(COOKIE.format(port=port), "")
    if request.url.path == "/" and "token" in request.query_params:
        given = request.query_params["token"]
    if not hmac.compare_digest(given.encode(), token.encode()):
        return 403, "open the address that newfound review printed: it has the token"
    return _refused_body(request) if request.method == "POST" else None


def _refused_body(request: Request) -> tuple[int, str] | None:
    if request.headers.get("origin") is None:
        return 403, "a decision has to say which page it comes from"
    if not request.headers.get("content-type", "").startswith("application/json"):
        return 415, "a decision is JSON"
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:  # which would go before any length
        return 411, "a decision has to say how long it is"
    return (413, f"a decision has at most {LARGEST_BODY:,} bytes") if int(length) > LARGEST_BODY else None


def _decision(log: DecisionLog, wish: Wish) -> Decision:
    """As it is written down: images by name, and a split with the images that leave."""
    decision: Decision = wish.model_dump(by_alias=True, exclude_none=True, exclude={"revision"})
    files = log.results.files
    if wish.images is not None:
        if outside := [number for number in wish.images if number >= len(files)]:
            raise Refused(f"there is no image number {outside[0]}")
        decision["images"] = [files[number] for number in wish.images]
    if wish.action == "split" and wish.images is None:
        if wish.class_ not in log.reviewed.names:
            raise Refused(f"there is no class number {wish.class_}")
        decision["images"] = halves(log.reviewed, wish.class_)
    return decision


def _inside(results: Results, number: int) -> Path | None:
    """Where an image lies, as long as there is one of that number inside the folder the run was made on."""
    if not 0 <= number < len(results):
        return None
    try:
        root = results.root.resolve()
        path = (root / results.files[number]).resolve()
    except (OSError, ValueError, RuntimeError):  # a name no file can have, or links in a circle
        return None
    return path if path.is_relative_to(root) else None


def _large(path: Path) -> bytes | None:
    try:
        image = open_image(path, LARGE)
    except (Unreadable, OSError, ValueError):  # gone or changed since the run: the page says so
        return None
    image.thumbnail((LARGE, LARGE), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=88)
    return stream.getvalue()


def _picture(content: bytes | None, kind: str) -> Response:
    if content is None:
        raise HTTPException(404, "the image no longer exists, or cannot be read")
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})
