//! Speaks without waiting: a watchdog has no time for a standard error that nobody reads.

use std::{
    thread::{Builder, JoinHandle},
    time::Duration,
};

use nix::sys::signal::{SigSet, Signal};

use crate::exit::say;

/// How long a process that is done waits for what it said to be heard.
const LAST_WORDS: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);

/// Says each thing on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Voice(Vec<JoinHandle<()>>);

impl Voice {
    /// Says one line on standard error, now or whenever somebody makes room for it.
    pub(crate) fn say(&mut self, message: String) {
        let speech = Builder::new().spawn(move || {
            // A terminal may stop those who write from the background.
            let _ = SigSet::from(Signal::SIGTTOU).thread_block();
            say(&message);
        });
        self.0.extend(speech);
    }

    /// Waits until all was said, but not long.
    pub(crate) async fn finish(&self) {
        let mut left = LAST_WORDS;
        while !left.is_zero() && !self.0.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(LOOK).await;
            left = left.saturating_sub(LOOK);
        }
    }
}
