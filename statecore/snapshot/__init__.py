"""State on disk: manifests, codecs, checkpoints and savepoints."""
