"""What can be asked about a scene, and how it is answered."""
