"""`python -m krust`: the same as the `krust` command."""

from krust.cli import main

main()
