"""Starts the page: ``python app.py``, then open the address it prints."""

import sys

from specdec.cli.page import main

if __name__ == "__main__":
    main(sys.argv[1:])
