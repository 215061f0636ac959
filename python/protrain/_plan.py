"""Planning without training."""

import ctypes
import json

from ._library import library, taken_text
from ._options import Options
from ._progress import open_progress


class Plan:
    """Where every byte would live, how long a step would take, and what limits it."""

    fits: bool
    text: str
    reason: str

    def __init__(self, text, data, fits, reason):
        self.text, self.data, self.fits, self.reason = text, data, fits, reason

    @property
    def step_s(self):
        """Predicted time of a step; None if nothing fits."""
        return self.data.get('predicted', {}).get('step_s') if self.fits else None

    def __repr__(self):
        return self.text if self.fits else self.reason + '\n' + self.text

    def _repr_svg_(self):
        from ._picture import plan_svg

        return plan_svg(self)

    def _repr_html_(self):
        from ._picture import plan_html

        return plan_html(self)

    def save(self, path):
        """Writes the plan as JSON, for train(plan=path)."""
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(self.data, f, indent=2)


def plan(config=None, progress=None, **arguments):
    with Options('plan', arguments, config) as options:
        shown, pointer = open_progress(progress), ctypes.c_void_p()
        options.show(shown)
        try:
            code, reason = options.call('pt_plan_open', options.struct, ctypes.byref(pointer), may_fail=(-3,))
            text = taken_text(library().pt_plan_text(pointer))
            data = json.loads(taken_text(library().pt_plan_json(pointer)))
        finally:
            shown.close()
            library().pt_plan_close(pointer)
        return Plan(text, data, code == 0, reason)
