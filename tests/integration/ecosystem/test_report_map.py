"""The map of a report by openTSNE: the same every time, and neighbours stay together."""

import numpy as np

from bert_embed.pipeline.report.sample import main_directions, projections


def test_tsne_keeps_groups_together_and_is_the_same_every_time():
    draw = np.random.default_rng(5)
    middles = draw.standard_normal((3, 64)) * 4
    of = np.arange(300) % 3
    vectors = (middles[of] + draw.standard_normal((300, 64))).astype(np.float32)
    directions = main_directions(vectors)
    first, second = projections(directions, "tsne")
    assert (first["name"], first["package"], second["name"]) == ("t-SNE", "openTSNE", "PCA")
    assert first["parameters"]["random_state"] == 42
    assert projections(directions, "tsne") == [first, second]
    places = np.array([first["x"], first["y"]]).T
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (of[distances.argmin(axis=1)] == of).mean() > 0.98
