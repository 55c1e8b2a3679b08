"""What can be typed after ``newfound``, a file each."""

from __future__ import annotations

from newfound.app.command import Command
from newfound.app.commands.bench import Bench
from newfound.app.commands.count import Count
from newfound.app.commands.demo import Demo
from newfound.app.commands.discover import Discover
from newfound.app.commands.export import Export
from newfound.app.commands.methods import Methods
from newfound.app.commands.predict import Predict
from newfound.app.commands.report import Report
from newfound.app.commands.resume import Resume
from newfound.app.commands.review import Review
from newfound.app.commands.study import Study
from newfound.app.commands.tune import Tune

COMMANDS: dict[str, type[Command]] = {
    "discover": Discover,
    "resume": Resume,
    "review": Review,
    "predict": Predict,
    "export": Export,
    "report": Report,
    "count": Count,
    "methods": Methods,
    "tune": Tune,
    "bench": Bench,
    "study": Study,
    "demo": Demo,
}
