"""Training: `transformers.Trainer` with one step of the algorithm as its training step."""

from vcsd.monitor.observation import Monitor, Observation
from vcsd.trainer.progress import Progress
from vcsd.trainer.trainer import VCSDTrainer

__all__ = ["Monitor", "Observation", "Progress", "VCSDTrainer"]
