//! How long the same thing took, each time.

use std::{future::Future, time::Duration};

use lease_postgres::lease_core::clock::LocalInstant;

#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) async fn time<F: Future>(&mut self, call: F) -> F::Output {
        let called = LocalInstant::now();
        let output = call.await;
        self.add(LocalInstant::now().saturating_duration_since(called));
        output
    }

    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&mut self) -> Duration {
        self.quantile(0.5)
    }

    pub(crate) fn quantile(&mut self, part: f64) -> Duration {
        self.0.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (self.0.len() as f64 * part) as usize;
        self.0[index.min(self.0.len() - 1)]
    }
}
