"""`vcsd ui`: ask a model about an image in the browser, and change the target with sliders."""
