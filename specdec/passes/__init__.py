"""One model's forward pass: ids in, logits and probabilities out."""
