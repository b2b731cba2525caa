"""Schedule the operators of one layer slice on one accelerator."""
