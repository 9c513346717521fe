"""sentence-transformers' `community_detection`: which rows are near the first of a community."""

import argparse

import numpy as np
from sentence_transformers.util import community_detection


def main() -> None:
    """Writes bool `[rows]`, whether a row is removed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--threshold", type=float, required=True)
    args = parser.parse_args()
    vectors = np.load(args.vectors)
    removed = np.zeros(len(vectors), bool)
    for community in community_detection(vectors, args.threshold, min_community_size=2):
        removed[community[1:]] = True
    np.save(args.output, removed)


if __name__ == "__main__":
    main()
