//! ZooKeeper's codec: bytes to requests, replies to bytes. Pure.
