//! Watches: who is told when which znode changes.
