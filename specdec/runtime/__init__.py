"""What a pass is not: the tokens of a call, sampling, random draws and clocks."""
