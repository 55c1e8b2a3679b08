"""How a run shows itself, and that names do nothing there but be read."""

import base64
import re
import shutil
from html.parser import HTMLParser

from PIL import Image

from helping.small_runs import write_run
from newfound import Discovery
from newfound.finished import display

HOSTILE = ('<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "{run}\x1b[31m\nnew")  # fmt: skip


class Tags(HTMLParser):
    """All tags with their attributes, and the text between them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_text_names_classes_with_their_sizes(small):
    assert repr(Discovery.load(small.run.path)) == (
        f"Discovery({str(small.run.path)!r}): 160 images, 40 labelled\n"
        "  2 known classes: cat (40), dog (40)\n"
        "  2 new classes: new-1 (40), new-2 (40)"
    )


def test_the_text_has_the_score_where_there_is_one(small):
    scored = Discovery(small.run.path, {"all": 0.931, "old": 0.5, "new": None, "nmi": 1.0})
    assert "160 images, 40 labelled, accuracy all 93.1 % / known 50.0 %\n" in repr(scored)


def test_of_many_classes_some_are_named(tmp_path):
    names = tuple(f"class {k}" for k in range(50))
    results = write_run(tmp_path, [f"{k}.png" for k in range(50)], list(range(50)), names, 1)
    found = Discovery.load(results.run.path)
    assert repr(found).endswith("class 12 (1), and 37 more")
    page = Tags(found._repr_html_())
    assert [tag for tag, _ in page.tags].count("tr") == display.ROWS
    assert "and 10 more classes" in page.text


def test_a_notebook_sees_pictures_that_come_with_the_page(small):
    page = Tags(Discovery.load(small.run.path)._repr_html_())
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 4 * display.PICTURES
    for picture in pictures:
        kind, _, data = picture["src"].partition(";base64,")
        assert kind == "data:image/webp"
        assert base64.b64decode(data, validate=True).startswith(b"RIFF")
        assert picture["title"].startswith("part ")
    assert not re.search(r"https?:|<script|<link|<style|url\(", Discovery.load(small.run.path)._repr_html_())
    assert "new-1new, 40 images" in page.text


def test_hostile_names_are_text(tmp_path):
    files = [f"{i} {name}.png".replace("/", "_") for i, name in enumerate(HOSTILE)]
    results = write_run(tmp_path, files, [0, 1, 2], HOSTILE, 2)
    found = Discovery.load(results.run.path)
    page = Tags(found._repr_html_())
    assert {tag for tag, _ in page.tags} == {"div", "p", "b", "table", "tr", "td", "br", "img"}
    assert {name for _, attributes in page.tags for name in attributes} == {"style", "src", "alt", "title"}
    assert all(name in page.text for name in HOSTILE[:2])
    assert r"{run}\x1b[31m\nnew" in page.text
    assert "\x1b" not in repr(found)
    assert repr(found).count("\n") == 2


def test_images_that_are_gone_have_no_picture(small, tmp_path):
    results = write_run(tmp_path, ["a.png", "b.png"], [0, 1], ("cat", "new-1"), 1)
    (results.root / "a.png").unlink()
    Image.new("RGB", (9, 9)).save(results.root / "b.png")
    page = Tags(Discovery.load(results.run.path)._repr_html_())
    assert [attributes["title"] for tag, attributes in page.tags if tag == "img"] == ["b.png"]


def test_to_look_at_a_damaged_run_is_no_error(small, tmp_path):
    shutil.copytree(small.run.path, tmp_path / "run")
    found = Discovery.load(tmp_path / "run")
    (tmp_path / "run" / "assignments.csv").write_text("nothing\n")
    assert "predict() needs the model alone" in repr(found)
    assert "predict() needs the model alone" in found._repr_html_()
