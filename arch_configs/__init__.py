"""What may the hardware be? Accelerator and cluster descriptions, technology tables, presets, design spaces."""
