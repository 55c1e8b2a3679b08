"""The page as one text: template, style, scripts and data, with a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from newfound.report.thumbnails import MEDIA_TYPE
from newfound.screen import shown

SCRIPTS = (  # in this order, one script
    "base.js", "gallery.js", "charts.js", "findings.js", "map.js", "map_input.js", "map_legend.js", "page.js",
)  # fmt: skip
# As JSON spells them
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render_page(
    content: Mapping[str, Any],
    thumbnails: Mapping[int, bytes],
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
) -> str:
    """The HTML of ``content``; ``scripts`` and ``styles`` are texts that come after the page's own."""
    script, style = assembled(scripts, styles)
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(static("page.html"))
    return template.render(
        title=shown(str(content["title"])),
        policy=policy(script, style, live=bool(content["live"])),
        style=Markup(style),
        script=Markup(script),
        content=Markup(json_for_html(content)),
        thumbnails=Markup(_thumbnails(thumbnails, len(content["images"]["file"]))),
    )


def assembled(scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> tuple[str, str]:
    """The page's one script and one style sheet, those given behind its own."""
    return _one_script([static(name) for name in SCRIPTS], scripts), "\n".join([static("page.css"), *styles])


def read_page(path: Path) -> tuple[dict[str, Any], dict[int, bytes]]:
    """What a page was rendered from: content and thumbnails."""
    text = path.read_text("utf-8")
    content, thumbnails = (json.loads(_block(text, name)) for name in ("content", "thumbnails"))
    return content, {i: base64.b64decode(data) for i, data in enumerate(thumbnails["data"]) if data is not None}


def _block(text: str, name: str) -> str:
    """Between the tags: nothing inside can look like one, see json_for_html."""
    return text.split(f'<script type="application/json" id="{name}">', 1)[1].split("</script>", 1)[0]


def policy(script: str, style: str, *, live: bool) -> str:
    """Content-Security-Policy: this very script and style, pictures inside the page, nothing from anywhere.

    A live page also fetches from where it came from.
    """
    parts = [
        "default-src 'none'",
        "img-src data:" + (" 'self'" if live else ""),
        f"style-src '{_hash(style)}'",
        f"script-src '{_hash(script)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, "connect-src 'self'"] if live else parts)


def json_for_html(value: Any) -> str:
    r"""JSON in ASCII that HTML cannot mistake for its own.

    >>> json_for_html({"name": "</script>&\u2028"})
    '{"name":"\\u003c/script\\u003e\\u0026\\u2028"}'
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def _one_script(own: Sequence[str], others: Sequence[str]) -> str:
    """The page's files share one scope, every other has its own; what they share is in the object ``newfound``."""
    return "\n".join(f'(() => {{\n"use strict";\n{part}\n}})();' for part in ["\n".join(own), *others])


def _thumbnails(pictures: Mapping[int, bytes], total: int) -> str:
    """Base64 needs no escaping."""
    encoded = (f'"{base64.b64encode(pictures[i]).decode()}"' if i in pictures else "null" for i in range(total))
    return f'{{"type":"{MEDIA_TYPE}","data":[{",".join(encoded)}]}}'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


@cache
def static(name: str) -> str:
    """A file of the page, by name."""
    return (files("newfound") / "report" / "static" / name).read_text("utf-8")
