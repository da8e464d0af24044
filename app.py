"""Starts the page: ``python app.py``, then open the address it prints."""

import sys

from specdec.cli import main

if __name__ == "__main__":
    main(["page", *sys.argv[1:]])
