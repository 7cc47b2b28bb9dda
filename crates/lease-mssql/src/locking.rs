//! How the statements lock.
#![doc = include_str!("../docs/locking.md")]
