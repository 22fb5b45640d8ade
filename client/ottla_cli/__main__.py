"""``ottla``, also as ``python -m ottla_cli``."""

from ottla_cli.start import loading


def main() -> None:
    loading()
    from ottla_cli.ottla import main as run

    run(prog_name="ottla")


if __name__ == "__main__":
    main()
