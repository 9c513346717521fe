"""Makes report.html, which shows what a run embedded, what was lost, and its vectors."""

PCA, TSNE = PROJECTIONS = ("pca", "tsne")  # how vectors become places on a map
