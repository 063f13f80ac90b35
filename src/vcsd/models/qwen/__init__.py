"""The Qwen families: a prompt computed once for all its responses, in attention, delta nets and the vision tower."""
