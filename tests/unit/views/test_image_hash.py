"""Stored hashes stay valid: each kind is what it was when the files were written."""

import hashlib

from PIL import Image

from vcsd.evaluation.asking.predictions import image_identity
from vcsd.monitor.samples import image_reference
from vcsd.views.image_hash import image_hash

IMAGE = Image.frombytes("RGB", (2, 3), bytes(range(18)))


def test_answer_keys_hash_mode_size_and_pixels():
    expected = hashlib.sha256(b"RGB (2, 3) " + IMAGE.tobytes()).hexdigest()[:32]
    assert image_hash(IMAGE) == image_identity(IMAGE) == expected


def test_samples_hash_the_pixels_with_blake2b():
    expected = hashlib.blake2b(IMAGE.tobytes(), digest_size=16).hexdigest()
    assert image_reference(IMAGE)["blake2b"] == expected


def test_groups_of_questions_hash_to_sixteen_digits():
    pixels = IMAGE.tobytes()
    assert image_hash(IMAGE, num_digits=16, pixels_only=True) == hashlib.sha256(pixels).hexdigest()[:16]
    cell = image_hash(pixels, algorithm="blake2b", num_digits=16)
    assert cell == hashlib.blake2b(pixels, digest_size=8).hexdigest()
