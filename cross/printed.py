"""The files of a tarball that the binary prints, with the arguments that print them."""

PRINTED = {
    "licences.txt": ["licences"],
    "zoolet.toml.example": ["config", "example"],
    "init/zoolet.service": ["unit", "systemd", "--binary", "/usr/local/bin/zoolet"],
    "init/zoolet": ["unit", "procd", "--binary", "/usr/bin/zoolet"],
    "completions/zoolet.bash": ["completions", "bash"],
    "completions/_zoolet": ["completions", "zsh"],
    "completions/zoolet.fish": ["completions", "fish"],
}
