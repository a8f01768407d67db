"""One stack and one browser for all tests of the page."""

from tests.e2e.page_stack import browser, page, stack

__all__ = ["browser", "page", "stack"]
