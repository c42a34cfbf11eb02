"""`python -m harness.cli`: the command without its installed script."""

from harness.cli.main import main

main()
