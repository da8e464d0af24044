"""One model's forward pass: token ids in, logits out."""
