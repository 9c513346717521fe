"""Imports models; the files of a model's folder decide which importer reads it."""
