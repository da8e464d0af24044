"""The version of this program, as packages and results name it."""

VERSION = "0.1.0"
