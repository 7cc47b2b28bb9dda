//! E6 and the OB rows: statuses, events, metrics and health.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};

use tokio::time::timeout;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

use super::script::{Act, DURATION, STOP_AFTER, ScriptedStore, assert_about, executor, millis, seconds, until};
use crate::{
    ErrorKind, ForceRelease, LeaseAdmin, LeaseDuration, LeaseName, LeaseStore, LossReason, Operation, Role, Status,
    StopReason,
};

/// The events of this thread, as `LEVEL message field=value ..`.
#[derive(Clone, Debug, Default)]
struct Events(Arc<Mutex<Vec<(Level, String)>>>);

impl Events {
    fn capture() -> (Self, DefaultGuard) {
        let events = Self::default();
        let subscriber = tracing_subscriber::registry().with(events.clone());
        (events, tracing::subscriber::set_default(subscriber))
    }

    fn at_least(&self, level: Level) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|(of, _)| *of <= level).map(|(_, text)| text.clone()).collect()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push((*event.metadata().level(), text.0));
    }
}

fn name() -> LeaseName {
    LeaseName::new("job").unwrap()
}

/// E6, OB-02: the status of a name goes from idle over standby to holding, and says why it was stopped: taken over, expired with the
/// last error, forced out, or shut down are four different reasons.
#[tokio::test(start_paused = true)]
async fn a_status_tells_each_change_and_its_reason() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let job = executor.job("job").unwrap();
    let mut statuses = job.status();
    assert!(matches!(statuses.borrow().role, Role::Idle));
    assert!(store.rival("job").await.is_acquired());
    let run = tokio::spawn(job.run(|_| std::future::pending::<()>()));
    let waits = statuses.wait_for(|status| matches!(status.role, Role::Standby { .. })).await.unwrap().clone();
    let Role::Standby { holder } = waits.role else { unreachable!() };
    assert_eq!(holder.owner.unwrap().as_str(), "rival");

    for reason in ["taken_over", "deadline_passed", "forced_out", "shut_down"] {
        statuses.wait_for(|status| matches!(status.role, Role::Holding { token: Some(_), .. })).await.unwrap();
        match reason {
            "taken_over" => {
                store.rows.expire(&name());
                assert!(store.rival("job").await.is_acquired());
            }
            "deadline_passed" => store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable)),
            "forced_out" => drop(store.rows.force_release(&name(), ForceRelease::Now).await.unwrap()),
            _ => drop(executor.shutdown().await),
        }
        let told = |status: &Status| status.last_stop.as_ref().is_some_and(|stop| stop.as_str() == reason);
        let stop = timeout(2 * DURATION, statuses.wait_for(told)).await.unwrap().unwrap().last_stop.clone();
        match stop.unwrap() {
            StopReason::Lost(LossReason::TakenOver(by)) => assert_eq!(by.as_str(), "rival"),
            StopReason::DeadlinePassed { last_error, .. } => {
                assert_eq!(last_error.unwrap().kind(), ErrorKind::Unavailable);
            }
            other => assert!(matches!(other, StopReason::Lost(LossReason::ForcedOut) | StopReason::ShutDown)),
        }
        store.heal();
    }
    run.await.unwrap().unwrap_err();
}

/// E6, OB-04: one event for a gain and one for its end, whatever coincides, with name, owner and token.
#[tokio::test(start_paused = true)]
async fn each_term_has_one_first_and_one_last_event() {
    let (events, _guard) = Events::capture();
    let store = ScriptedStore::default();
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    let executor = executor(&store);
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    guard.cancelled().cancelled().await;
    let (owner, token) = (guard.owner().to_string(), guard.token().unwrap().to_string());
    store.rows.delete(&name());
    drop(guard);
    executor.shutdown().await;
    let told: Vec<_> = events.at_least(Level::INFO).into_iter().filter(|text| text.contains(&token)).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("lease acquired") && told[1].contains("lease lost"), "{told:#?}");
    assert!(told.iter().all(|text| text.contains(&owner) && text.contains("lease.name=job")), "{told:#?}");
}

/// OB-03: an hour of contention is not logged above debug, but for the one line that says who holds the lease.
#[tokio::test(start_paused = true)]
async fn contention_is_quiet_and_a_long_wait_is_said_once() {
    let (events, _guard) = Events::capture();
    let store = ScriptedStore::deaf();
    assert!(store.rival("job").await.is_acquired());
    let holder = crate::OwnerId::new("rival").unwrap();
    let standby = tokio::spawn(executor(&store).job("job").unwrap().run(|_| async {}));
    for _ in 0..180 {
        tokio::time::sleep(seconds(20)).await;
        let (name, duration) = (name(), LeaseDuration::new(DURATION).unwrap());
        let renewed = store.rows.renew(&name, &holder, duration);
        assert!(renewed.await.unwrap().is_renewed());
    }
    let loud = events.at_least(Level::INFO);
    assert_eq!(loud.len(), 1, "{loud:#?}");
    assert!(loud[0].contains("still waiting") && loud[0].contains("rival"), "OB-06: {loud:#?}");
    assert!(events.at_least(Level::DEBUG).len() > 1000);
    standby.abort();
}

/// The readiness probe: what is held, how near the stop point renewals land, failures in a row, and whether the heartbeat lives.
#[tokio::test(start_paused = true)]
async fn health_tells_how_the_heartbeat_does() {
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let health = executor.health();
    assert_eq!((health.held, health.smallest_margin, health.failures_in_a_row), (0, None, 0));
    assert!(health.heartbeat_lives, "nothing is to be kept alive");
    let guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    store.next(Operation::Renew, Act::DelayAnswer(seconds(3)));
    until(|| store.count(Operation::Renew) == 2).await;
    let sent = store.calls()[1].at.saturating_duration_since(store.calls()[0].at);
    let health = executor.health();
    assert!(health.held == 1 && health.heartbeat_lives);
    assert_about(health.smallest_margin.unwrap(), STOP_AFTER.saturating_sub(sent + seconds(3)));
    store.always(Operation::Renew, Act::Fail(ErrorKind::Unavailable));
    until(|| store.count(Operation::Renew) == 5).await;
    tokio::time::sleep(millis(1)).await;
    assert_eq!(executor.health().failures_in_a_row, 3);
    guard.cancelled().cancelled().await;
    assert_eq!(executor.health().held, 0);
}

/// A heartbeat that got no turn for too long does not live, as far as a probe can tell.
#[tokio::test(start_paused = true)]
async fn a_starved_heartbeat_does_not_live() {
    let executor = executor(&ScriptedStore::default());
    let _guard = executor.job("job").unwrap().acquire(None).await.unwrap();
    tokio::time::sleep(seconds(5)).await;
    assert!(executor.health().heartbeat_lives);
    crate::clock::simulate(millis(1001));
    assert!(!executor.health().heartbeat_lives);
}

/// OB-01: `lease.held` is 0 after a loss, an error, a shutdown and a panic, and each is counted by its reason.
#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn the_gauge_falls_after_every_kind_of_end() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = ScriptedStore::default();
    let executor = executor(&store);
    let held = || {
        let snapshot = snapshots.snapshot().into_vec();
        let gauge = snapshot.into_iter().find(|(key, ..)| key.key().name() == "lease.held");
        gauge.map(|(.., value)| value)
    };
    let mut reasons = Vec::new();
    for cause in ["loss", "error", "panic", "shutdown"] {
        let mut statuses = executor.job("job").unwrap().status();
        let run = tokio::spawn(executor.job("job").unwrap().try_run(move |lease| async move {
            if cause == "panic" {
                tokio::time::sleep(seconds(1)).await;
                panic!("out of paper");
            }
            lease.cancelled().cancelled().await;
        }));
        statuses.wait_for(|status| matches!(status.role, Role::Holding { .. })).await.unwrap();
        assert_eq!(held(), Some(DebugValue::Gauge(1.0.into())), "{cause}");
        match cause {
            "loss" => store.rows.delete(&name()),
            "error" => store.always(Operation::Renew, Act::Fail(ErrorKind::Busy)),
            "shutdown" => drop(executor.shutdown().await),
            _ => {}
        }
        drop(run.await.unwrap());
        store.heal();
        let snapshot = snapshots.snapshot().into_vec();
        for (key, _, _, value) in snapshot {
            if key.key().name() == "lease.held" {
                assert_eq!(value, DebugValue::Gauge(0.0.into()), "{cause}");
            } else if key.key().name() == "lease.stopped" && value != DebugValue::Counter(0) {
                reasons.extend(key.key().labels().map(|label| label.value().to_owned()));
            }
            assert!(key.key().labels().all(|label| !label.key().contains("owner") && !label.key().contains("token")));
        }
    }
    for reason in ["deleted", "deadline_passed", "ended", "shut_down"] {
        assert!(reasons.iter().any(|seen| seen == reason), "{reason} in {reasons:?}");
    }
}
