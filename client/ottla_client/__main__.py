"""``ottla``, also as ``python -m ottla_client``."""

from ottla_client.start import loading


def main() -> None:
    loading()
    from ottla_client.cli import main as run

    run(prog_name="ottla")


if __name__ == "__main__":
    main()
