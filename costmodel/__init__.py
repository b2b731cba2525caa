"""What does it cost? Latency, traffic, memory, area and communication as arrays over design points."""
