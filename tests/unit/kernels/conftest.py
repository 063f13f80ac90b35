"""Without a GPU the Triton kernels are interpreted, which must be decided before they are defined."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
