"""Training: `transformers.Trainer` with one step of the algorithm as its training step."""

from vcsd.checkpoint.progress import Progress
from vcsd.monitor.observation import Monitor, Observation
from vcsd.trainer.trainer import DistillationTrainer
from vcsd.trainer.vcsd_trainer import VCSDTrainer

__all__ = ["DistillationTrainer", "Monitor", "Observation", "Progress", "VCSDTrainer"]
