"""The tabs of the page and the panels they share: fields, their events, and what they show."""
