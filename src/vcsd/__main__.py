"""`python -m vcsd` is `vcsd`."""

from vcsd.cli import main

if __name__ == "__main__":
    main()
