//! The executor's rules with paused time and a scripted store: no database and no real waiting.

mod acquire;
mod at_least;
mod clock;
mod contention;
mod disabled;
mod every;
mod gate;
mod hand_over;
mod heartbeat;
mod leadership;
mod observability;
mod renewal;
mod script;
mod shutdown;
mod stop_chain;
