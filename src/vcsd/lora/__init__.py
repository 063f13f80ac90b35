"""LoRA through PEFT: student, teacher and rollouts share one frozen base, and the teacher averages adapters.

supported.py         which adapters can be trained, and why others cannot
attach.py            adapters on a model: a user's LoraConfig, or the layers and factors that a recipe trains
effective.py         what adapters add to the weights, and how far averaged factors are from averaged weights
base_record.py       where the base of a checkpoint's adapters is, and a hash to recognise it
adapter_files.py     adapters in PEFT's own format, and weights with the adapters merged into them

Every copy of the model is a module tree of its own, with its own adapters around the same tensors of the base
(`vcsd.models.freeze`). So no adapter is switched between the passes of teacher and student, and recomputation in the
backward pass cannot use the wrong one.
"""
