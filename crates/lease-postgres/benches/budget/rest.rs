//! What an executor costs that only holds its leases.

use std::{fs, time::Duration};

use lease_postgres::lease_core::{SingletonExecutor, SingletonOptions, clock::LocalInstant};
use rustix::time::{ClockId, clock_gettime};
use tokio::{task::JoinSet, time::sleep};

use crate::{Place, Result, report};

const LEASES: usize = 1000;
/// Twice the default duration, and eight beats.
const SPAN: Duration = Duration::from_secs(60);
const CPU_BUDGET: f64 = 0.01;

/// The share of a core that this process takes, with a thousand leases under the default options.
pub(crate) async fn measure(place: &Place) -> Result<bool> {
    let executor = SingletonExecutor::new(place.store().await?, SingletonOptions::enabled())?;
    let mut jobs = JoinSet::new();
    for index in 0..LEASES {
        let job = executor.job(format!("rest-{index}"))?;
        let (started, start) = tokio::sync::oneshot::channel::<()>();
        let mut started = Some(started);
        jobs.spawn(job.run(move |lease| {
            drop(started.take());
            async move { lease.cancelled().cancelled().await }
        }));
        let _ = start.await;
    }
    // The first beats bring the renewals together.
    sleep(SPAN / 4).await;
    let (before, memory, began) = (processor_time(), resident_kilobytes(), LocalInstant::now());
    sleep(SPAN).await;
    let took = LocalInstant::now().saturating_duration_since(began);
    let share = processor_time().saturating_sub(before).as_secs_f64() / took.as_secs_f64();
    let health = executor.health();
    assert_eq!((health.held, jobs.len()), (LEASES, LEASES), "{health:?}");
    let grown =
        memory.zip(resident_kilobytes()).map_or("unknown".into(), |(before, after)| format!("{before} to {after} kB"));
    let measured =
        format!("{:.2} % of a core over {took:.0?}, memory {grown}, budget {} %", share * 100.0, CPU_BUDGET * 100.0);
    executor.shutdown().await;
    Ok(report(&format!("{LEASES} leases at rest"), &measured, share < CPU_BUDGET))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// On Linux; elsewhere it is not measured.
fn resident_kilobytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
