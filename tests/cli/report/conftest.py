"""Reports as users see them."""

import pytest


@pytest.fixture(autouse=True)
def without_tsne() -> None:
    """Leaves the maps as they are."""
