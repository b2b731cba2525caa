"""What must run? Operator graphs of training steps."""
