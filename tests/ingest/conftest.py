"""What several test modules of the bridge share."""

import shutil
from collections.abc import Iterator

import pytest

from app import compiled
from ingest import quick


@pytest.fixture(params=["numpy", "C"], scope="module")
def by_both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Count without our library, and with it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(quick, "library", lambda: None)
        elif shutil.which(compiled.COMPILER) is None:
            pytest.skip("no C compiler")
        else:
            library = quick._opened(quick.LIBRARY.path(tmp_path_factory.mktemp("library")))
            patch.setattr(quick, "library", lambda: library)
        yield
