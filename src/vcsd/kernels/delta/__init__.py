"""The gated delta rule as Triton kernels: chunks, the scan through them, and one decoding step."""
