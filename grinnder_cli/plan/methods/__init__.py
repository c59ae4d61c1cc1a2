"""One module per planned method: each turns a model on a partition into steps."""
