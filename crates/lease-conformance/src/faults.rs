//! What goes wrong between a store and its server, on demand.

mod proxy;

pub use proxy::{Delay, Held, Proxy};
