"""tarn from Python."""
