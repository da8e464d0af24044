"""How the embedded pair and its EAGLE-3 head were trained, and how they are evaluated."""
