"""What this machine can do: storage and kernels, measured, beside their ceilings."""
