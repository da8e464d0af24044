"""The work for visitors: the queue, each kind of job, their limits and their log."""
