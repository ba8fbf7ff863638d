"""Finds the links of Markdown texts and their targets."""

import posixpath
import re

# Matches code too, so that text in code does not count as a link.
LINK = re.compile(r"^```.*?^```|`[^`\n]*`|(?P<words>\[[^][]*\])\((?P<file>[^)#\s]*)(?P<section>#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)


def found(text, name):
    """Yields each link to a file in the document `name`, with its target path."""
    for link in LINK.finditer(text):
        if link["words"] and "://" not in link["file"]:
            yield link, path(link, name)


def path(link, name):
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link["file"])) if link["file"] else name


def without(text, name, is_there):
    """Returns the text with each link to an absent file replaced by words that name the file."""

    def said(link):
        if not link["words"] or "://" in link["file"] or is_there(path(link, name)):
            return link[0]
        return f"{link['words'][1:-1]} (`{path(link, name)}` of the sources)"

    return LINK.sub(said, text)


def sections(text):
    """Returns the link anchors of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
