import dataclasses

import pytest

from vcsd.errors import DataError
from vcsd.types import Example, Rollout

IMAGE, TEXT = {"type": "image"}, {"type": "text", "text": "How many?"}


def user(content):
    return {"role": "user", "content": content}


def test_an_example_is_frozen():
    example = Example(id="a", images=[], prompt=[user("How many?")])
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.id = "b"


def test_plain_text_is_stored_as_one_text_part_and_other_keys_of_a_message_stay():
    message = {"role": "user", "name": "Ann", "content": "How many?"}
    assert Example(id="a", images=[], prompt=[message]).prompt == ({**message, "content": [TEXT]},)
    assert message["content"] == "How many?"


def test_places_and_images_are_counted_over_all_messages():
    prompt = [user([IMAGE, TEXT]), {"role": "assistant", "content": "Two."}, user([IMAGE, IMAGE, TEXT])]
    assert len(Example(id="a", images=["1", "2", "3"], prompt=prompt).images) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "needs a text as id"),
        ({"id": 3}, "needs a text as id"),
        ({"images": "a.png"}, "images = 'a.png' is not a list"),
        ({"images": None}, "images = None is not a list"),
        ({"answer": 7}, "answer = 7 is not text"),
        ({"images": b"a file"}, "images is bytes of 6 bytes, not a list"),
        ({"boxes": [(1, 2)]}, "is not left, top, right, bottom"),
        ({"boxes": [5]}, "the box 5 is not left, top, right, bottom"),
        ({"boxes": [("1", "2", "3", "4")]}, "is not left, top, right, bottom"),
        ({"prompt": []}, "the prompt has no messages"),
        ({"images": ["a.png", "b.png"]}, "places for 1 images, but 2 are given"),
        ({"images": []}, "places for 1 images, but 0 are given"),
        ({"prompt": [{"role": "user"}]}, "needs 'role' and 'content'"),
        ({"prompt": ["hello"]}, "needs 'role' and 'content'"),
        ({"prompt": [user(3)]}, "a string or a list of parts, not 3"),
        ({"prompt": [user(["text"])]}, "a string or a list of parts"),
        ({"prompt": [user([IMAGE, {"type": "text"}])]}, "a text part needs 'text'"),
        ({"prompt": [user([IMAGE, {"type": "text", "text": None}])]}, "a text part needs 'text'"),
        ({"prompt": [user([IMAGE, {"type": "text", "text": 5}])]}, "a text part needs 'text'"),
        ({"prompt": [user([IMAGE, {"type": "video", "video": "a.mp4"}])]}, "is an image or a text, not .*a.mp4"),
    ],
)
def test_a_malformed_example_is_refused_with_its_id(fields, message):
    good = {"id": "virl-1", "images": ["a.png"], "prompt": [user([IMAGE, TEXT])]}
    with pytest.raises(DataError, match=message) as error:
        Example(**{**good, **fields})
    assert error.value.example_id == str({**good, **fields}["id"])


def test_a_list_given_to_an_example_can_change_without_it():
    images = ["a.png"]
    example = Example(id="a", images=images, prompt=[user([IMAGE, TEXT])])
    images.append("b.png")
    assert example.images == ("a.png",)


@pytest.mark.parametrize(("index", "stop"), [(-1, "end"), (0, "banana")])
def test_a_rollout_that_cannot_be_is_refused(index, stop):
    with pytest.raises(AssertionError):
        Rollout("a", index, (1,), stop)


def test_a_rollout_compares_by_value():
    assert Rollout("a", 0, (1, 2), "end") == Rollout("a", 0, (1, 2), "end")
    assert Rollout("a", 0, (1, 2), "end") != Rollout("a", 0, (1, 2), "length")
    assert Rollout("a", 0, (1, 2), "end") != Rollout("a", 0, (1, 2), "broken")
