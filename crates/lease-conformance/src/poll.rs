//! Futures that are polled a few times and then dropped, for the rule on cancel safety (S11).

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::time::timeout;

/// How long a future may go without completing before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls `future` at most `polls` times, each time when it asks to be, and then drops it. The answer is its output, or none when it
/// was dropped first.
///
/// # Panics
///
/// When the future neither completes nor is polled that often within a minute.
///
/// # Cancel safety
///
/// Dropping this future drops `future`.
///
/// # Examples
///
/// ```
/// use lease_conformance::poll::drop_after;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(drop_after(0, async { 7 }).await, None);
/// assert_eq!(drop_after(1, async { 7 }).await, Some(7));
///
/// let two_polls = || async { tokio::task::yield_now().await };
/// assert_eq!(drop_after(1, two_polls()).await, None);
/// assert_eq!(drop_after(2, two_polls()).await, Some(()));
/// # }
/// ```
pub async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    if polls == 0 {
        return None;
    }
    let mut future = pin!(future);
    let mut polled = 0;
    let polling = poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    timeout(LIMIT, polling).await.unwrap_or_else(|_| panic!("a future hung before its poll {polls}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Counts its polls, needs `of` of them, and counts its drop as 100.
    struct Counted {
        polls: Arc<AtomicUsize>,
        of: usize,
    }

    impl Future for Counted {
        type Output = ();

        fn poll(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
            if self.polls.fetch_add(1, Ordering::Relaxed) + 1 == self.of {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.polls.fetch_add(100, Ordering::Relaxed);
        }
    }

    /// S11: exactly as many polls as asked for, and the future is gone when the answer is there.
    #[tokio::test]
    async fn each_future_is_polled_and_dropped() {
        for (polls, of, expected, output) in
            [(0, 3, 100, None), (1, 3, 101, None), (2, 3, 102, None), (3, 3, 103, Some(())), (9, 3, 103, Some(()))]
        {
            let counter = Arc::new(AtomicUsize::new(0));
            let answer = drop_after(polls, Counted { polls: Arc::clone(&counter), of }).await;
            assert_eq!((answer, counter.load(Ordering::Relaxed)), (output, expected), "{polls} polls");
        }
    }

    /// S11, S12: a future that never wakes is reported and not waited for.
    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "hung before its poll 9")]
    async fn a_future_that_never_wakes_is_reported() {
        drop_after(9, std::future::pending::<()>()).await;
    }
}
