"""The links of Markdown texts, and what they name."""

import posixpath
import re

# What stands in code is none.
LINK = re.compile(r"^```.*?^```|`[^`\n]*`|(?P<words>\[[^][]*\])\((?P<file>[^)#\s]*)(?P<section>#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)


def found(text, name):
    """Of the document of that name: each link to a file, and the path that it leads to."""
    for link in LINK.finditer(text):
        if link["words"] and "://" not in link["file"]:
            yield link, path(link, name)


def path(link, name):
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link["file"])) if link["file"] else name


def without(text, name, is_there):
    """The same text, where a link to what is not there is words, which say where that is."""

    def said(link):
        if not link["words"] or "://" in link["file"] or is_there(path(link, name)):
            return link[0]
        return f"{link['words'][1:-1]} (`{path(link, name)}` of the sources)"

    return LINK.sub(said, text)


def sections(text):
    """What the headings of a document are called in a link."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
