"""Views: what a model is shown, independent of whose weights score it.

A view is a pure function from an example to the example as it is shown, with its images loaded. It never sees a
response: the token ids of a rollout are the same under every view. Views compose: `black(crop(example))` is the
control of a crop.

    original                       the example itself
    black, noise, blur, no_image   controls: the example with the content of its images erased
    given                          a control that comes with the example, such as another picture
    hint                           adds the reference answer to the prompt
    crop, crop_added               shows the evidence box instead of the image, or next to it
    demonstration, feedback        adds a good response, or feedback on an earlier one, to the prompt
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from vcsd.types import Example
from vcsd.views import control, crop, hint, original, text

View = Callable[[Example], Example]

VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "original": original.original,
        "black": control.black,
        "noise": control.noise,
        "blur": control.blur,
        "no_image": control.no_image,
        "given": control.given,
        "hint": hint.hint,
        "crop": crop.crop,
        "crop_added": crop.crop_added,
        "demonstration": text.demonstration,
        "feedback": text.feedback,
    }
)
"""Every view by the name a method calls it. Read-only: a method accepts no other names."""

SAME_LAYOUT = ("black", "noise", "blur", "given")
"""The views that change pixel values only: image sizes, grid, tokens and positions stay those of the original."""

__all__ = ["SAME_LAYOUT", "VIEWS", "View"]
