"""temporary"""

from pathlib import Path
from typing import Any

from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer, Qwen3VLProcessor

Processor = Any


class ImageOnlyQwenProcessor(Qwen3VLProcessor):
    def __init__(self, image_processor=None, tokenizer=None, chat_template=None):
        super().__init__(image_processor, tokenizer, chat_template=chat_template)
        self.video_processor = None


def load_processor(folder, *, min_pixels=None, max_pixels=None):
    ip = AutoImageProcessor.from_pretrained(folder, backend="pil", min_pixels=min_pixels, max_pixels=max_pixels)
    settings, _ = Qwen3VLProcessor.get_processor_dict(folder)
    if settings.get("processor_class") == "LlavaProcessor":
        processor = AutoProcessor.from_pretrained(folder)
        processor.image_processor = ip
        return processor
    tok = AutoTokenizer.from_pretrained(folder)
    return ImageOnlyQwenProcessor(ip, tok, chat_template=settings.get("chat_template") or tok.chat_template)
