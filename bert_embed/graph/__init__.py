"""The model as a TensorFlow graph."""
