"""The `krust` command, and `python -m krust`."""

from krust import import_quickly


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    import_quickly("krust.cli").main()


if __name__ == "__main__":
    main()
