"""The page of `vcsd ui`, made with Gradio. It listens on this machine only and requests nothing from elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vcsd.errors import ConfigError, VcsdError, install_command
from vcsd.inspect.opened import WORLD, world_question
from vcsd.inspect.ui.live_contrast import LiveContrast, answer_text, ask, error_html, live_html

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

    from vcsd.inspect.opened import OpenedModel

HOST = "127.0.0.1"

SESSIONS = 4
"""The most open pages whose log-probabilities are kept; each takes up to 1 GiB. Reloading opens a new page."""

DELETE_CACHE = (600, 3600)
"""Every ten minutes, uploaded images older than an hour are deleted from the disk; at the end, all of them are."""

NARROW = (
    "<style>@media(max-width:640px){.gradio-container>.main{padding:8px!important}"
    ".html-container{padding:0!important}}</style>"
)
"""On a phone, Gradio's margins would leave too little for a table."""

QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_SHARE": "False"}
"""Set before Gradio is imported: it sends nothing and asks no server for its latest version."""


def gradio() -> ModuleType:
    """Import Gradio with its telemetry off. Raise a ConfigError if it is not installed."""
    os.environ.update(QUIET)
    try:
        import gradio as module
    except ImportError as error:
        raise ConfigError([f"vcsd ui needs Gradio ({error}). Install the extra: {install_command('ui')}."]) from error
    return module


class Desk:
    """The model that is asked, and what its page shows. Does not use Gradio, so that it can be tested."""

    def __init__(self, opened: OpenedModel) -> None:
        self.opened = opened

    def first(self) -> tuple[Image | None, str]:
        """Return the picture and the question that the page starts with: the world has its own."""
        return world_question() if self.opened.name == WORLD else (None, "")

    def answer(
        self, image: Image | None, question: str, alpha: float, beta: float
    ) -> tuple[LiveContrast | None, str, str]:
        """Ask the model; return the answer to keep, its text, and the page about it."""
        if image is None or not question.strip():
            return None, "", error_html(ConfigError(["Drop an image and type a question."]))
        try:
            live = ask(self.opened, image, question)
        except VcsdError as error:
            return None, "", error_html(error)
        return live, answer_text(live, self.opened), live_html(live, alpha=alpha, beta=beta)

    def reshape(self, live: LiveContrast | None, alpha: float, beta: float) -> str:
        """Return the page for other values, from the stored log-probabilities."""
        return "" if live is None else live_html(live, alpha=alpha, beta=beta)


def build(desk: Desk) -> Any:
    """Build the page."""
    gr = gradio()
    picture, question = desk.first()
    with gr.Blocks(title="vcsd", analytics_enabled=False, delete_cache=DELETE_CACHE) as blocks:
        live = gr.State(None)
        gr.Markdown(f"## What does the image change?\nModel: `{desk.opened.name}`")
        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                # PNG, because Gradio's default format is lossy and would change the picture and so the numbers.
                sources = ["upload", "clipboard"]
                image = gr.Image(picture, type="pil", format="png", label="Image", sources=sources, height=260)
                asked = gr.Textbox(question, label="Question", lines=2)
                button = gr.Button("Ask", variant="primary")
                alpha = gr.Slider(0.0, 3.0, 1.0, step=0.05, label="alpha: strength of the contrast")
                beta = gr.Slider(0.0, 1.0, 0.1, step=0.01, label="beta: cut-off of the support")
                said = gr.Textbox(label="Answer", interactive=False)
            with gr.Column(scale=3, min_width=300):
                shown = gr.HTML()
        inputs = [image, asked, alpha, beta]
        for event in (button.click, asked.submit, blocks.load):
            event(desk.answer, inputs, [live, said, shown], api_visibility="private")
        for slider in (alpha, beta):
            slider.change(desk.reshape, [live, alpha, beta], shown, show_progress="hidden", api_visibility="private")
    return blocks


def serve(blocks: Any, port: int | None) -> str:
    """Serve the page on this machine, in the background; return its address."""
    gr = gradio()
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    try:
        _, address, _ = blocks.queue(default_concurrency_limit=1).launch(
            server_name=HOST,
            server_port=port,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            footer_links=[],
            state_session_capacity=SESSIONS,
            theme=gr.themes.Base(**fonts),
            head=NARROW,
            enable_monitoring=False,
            ssr_mode=False,
            mcp_server=False,
            pwa=False,
            run_history=False,
        )
    except OSError as error:
        raise ConfigError([f"the page cannot be served: {error}. Choose another --port."]) from error
    return str(address)
