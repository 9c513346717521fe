"""Reports as users see them."""

import pytest


@pytest.fixture
def unasked_tsne() -> bool:
    return True
