//! Wake-ups: one connection for each store that listens for releases, and finds its way back by itself.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use lease_core::{LeaseName, Wakeup};
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::{Pooler, longest_opening};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Those who watch a store's leases, and the task that wakes them. The task begins with the first of them, and ends with the store.
pub(crate) struct Listener {
    source: Source,
    watchers: Arc<Watchers>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Where wake-ups come from.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) driver: Config,
    pub(crate) tls: MakeRustlsConnect,
    /// The statement that begins to listen.
    pub(crate) listen: String,
    pub(crate) operation_timeout: Duration,
    pub(crate) pooler: Pooler,
}

impl Listener {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, watchers: Arc::default(), task: Mutex::default() }
    }

    /// Subscribes to the next release of `name`.
    pub(crate) fn watch(&self, name: &LeaseName) -> Wakeup {
        let (Ok(runtime), false) = (Handle::try_current(), self.source.pooler.is_known()) else {
            return Wakeup::never();
        };
        // First the subscription, then the task: whoever is subscribed when it begins to listen is woken.
        let watching = Watchers::subscribe(&self.watchers, name);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that has ended was another runtime's.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(runtime.spawn(listen(self.source.clone(), Arc::clone(&self.watchers))));
        }
        watching
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("watchers", &self.watchers.names().len()).finish_non_exhaustive()
    }
}

/// Listens for ever, with a pause after each connection that failed.
async fn listen(source: Source, watchers: Arc<Watchers>) {
    let mut pause = FIRST_PAUSE;
    while !source.pooler.is_known() {
        if listen_once(&source, &watchers).await {
            pause = FIRST_PAUSE;
        }
        sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Listens until the connection ends. Whether it ever listened.
async fn listen_once(source: &Source, watchers: &Watchers) -> bool {
    // Nobody waits for this, so it may take as long as any connection.
    let limit = longest_opening(source.operation_timeout);
    let connecting = timeout(limit, source.driver.connect(source.tls.clone()));
    let Ok(Ok((client, mut connection))) = connecting.await else {
        return false;
    };
    let mut messages = stream::poll_fn(|context| connection.poll_message(context));
    let mut beginning = pin!(timeout(source.operation_timeout, client.batch_execute(&source.listen)));
    let mut listens = false;
    loop {
        tokio::select! {
            begun = &mut beginning, if !listens => match begun {
                Ok(Ok(())) => {
                    listens = true;
                    // What was released before this moment has woken nobody.
                    watchers.wake_all();
                }
                _ => return false,
            },
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => watchers.wake(notification.payload()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return listens,
            },
        }
    }
}

/// The names that somebody watches, each with how many do.
#[derive(Default)]
struct Watchers(Mutex<HashMap<LeaseName, (Arc<Notify>, usize)>>);

impl Watchers {
    fn subscribe(watchers: &Arc<Self>, name: &LeaseName) -> Wakeup {
        let notify = {
            let mut names = watchers.names();
            let (notify, count) = names.entry(name.clone()).or_default();
            *count += 1;
            Arc::clone(notify)
        };
        // It receives `notify_waiters` from its creation on, polled or not.
        let notified = notify.notified_owned();
        let subscription = Subscription { watchers: Arc::clone(watchers), name: name.clone() };
        let mut notified = Box::pin(notified);
        Wakeup::new(async move {
            poll_fn(|context| notified.as_mut().poll(context)).await;
            drop(subscription);
        })
    }

    fn wake(&self, name: &str) {
        let notify =
            LeaseName::new(name).ok().and_then(|name| self.names().get(&name).map(|(notify, _)| notify.clone()));
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        let all: Vec<_> = self.names().values().map(|(notify, _)| Arc::clone(notify)).collect();
        for notify in all {
            notify.notify_waiters();
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<LeaseName, (Arc<Notify>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watcher's place, given up when it is dropped.
struct Subscription {
    watchers: Arc<Watchers>,
    name: LeaseName,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut names = self.watchers.names();
        if let Some((_, count)) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn name(text: &str) -> LeaseName {
        LeaseName::new(text).unwrap()
    }

    /// S3: a wake-up for a name wakes all its watchers, also before their first poll, and nobody else.
    #[test]
    fn a_name_wakes_its_own_watchers() {
        let watchers = Arc::new(Watchers::default());
        let (first, second) = (Watchers::subscribe(&watchers, &name("a")), Watchers::subscribe(&watchers, &name("a")));
        let mut other = Watchers::subscribe(&watchers, &name("b"));
        watchers.wake("a");
        let mut late = Watchers::subscribe(&watchers, &name("a"));
        watchers.wake("nobody's");
        watchers.wake("");
        assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
        assert!((&mut other).now_or_never().is_none() && (&mut late).now_or_never().is_none());
        watchers.wake_all();
        assert!(other.now_or_never().is_some() && late.now_or_never().is_some());
    }

    /// S11: a name that nobody watches any more is forgotten, however its watchers went.
    #[test]
    fn names_without_watchers_are_forgotten() {
        let watchers = Arc::new(Watchers::default());
        let (unpolled, mut polled) =
            (Watchers::subscribe(&watchers, &name("a")), Watchers::subscribe(&watchers, &name("a")));
        assert!((&mut polled).now_or_never().is_none());
        drop(unpolled);
        assert_eq!(watchers.names().len(), 1);
        drop(polled);
        assert_eq!(watchers.names().len(), 0);
        let woken = Watchers::subscribe(&watchers, &name("a"));
        watchers.wake("a");
        assert!(woken.now_or_never().is_some());
        assert_eq!(watchers.names().len(), 0);
    }
}
