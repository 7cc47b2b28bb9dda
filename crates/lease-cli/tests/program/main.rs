//! The program as its users meet it: real processes and signals, and a store of each kind.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail as loudly as the test")]

mod exit_codes;
mod freeze;
mod kill;
mod linux;
mod long;
mod loss;
mod mssql;
mod outage;
mod postgres;
mod run;
mod servers;
mod signals;
mod stores;
mod support;
mod terminal;
mod usage;
mod watchdog;
