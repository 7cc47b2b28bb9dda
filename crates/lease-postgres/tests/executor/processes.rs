//! Three instances in processes of their own, which are frozen, killed, and kept busy.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    children::Process,
    steps::{Step, Steps},
    support::{DURATION, Schema},
};

const INSTANCES: usize = 3;

/// What happens to the instance that runs the job.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It is stopped for two durations, and goes on as if nothing had been.
    Frozen,
    /// It is killed, and another process takes its place.
    Killed,
    /// Its job blocks the only thread of its runtime for two durations.
    Busy,
}

/// CT-16, RN-05, SL-01, E2, E3: no step is taken after another instance's first, whatever happens to the process that runs the job, and
/// somebody takes over every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    lease_no_postgres,
    ignore = "no PostgreSQL server: `LEASE_POSTGRES_URL=postgres://USER@HOST/DATABASE cargo xtask test`"
)]
async fn processes_take_over_and_never_overlap() {
    println!("gaps {:?}", torment(4).await);
}

/// The same, for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo test -p lease-postgres --test executor -- --ignored --nocapture processes::many"]
async fn many_takeovers_never_overlap() {
    println!("gaps {:?}", torment(50).await);
}

/// Takes each fault so often, and answers the pauses between the terms.
async fn torment(times: usize) -> Vec<Duration> {
    let schema = Schema::new().await;
    let steps = Arc::new(Steps::new());
    let mut processes: Vec<_> = (0..INSTANCES).map(|instance| Process::start(&schema, instance, &steps)).collect();
    let mut holder = steps.until("a first step", |_| true).await;
    for fault in [Fault::Frozen, Fault::Killed, Fault::Busy].repeat(times) {
        // At any instant of a beat.
        sleep(DURATION.mul_f64(fastrand::f64() / 2.0)).await;
        let victim = &mut processes[holder.instance];
        match fault {
            Fault::Frozen => victim.signal("STOP"),
            Fault::Killed => victim.signal("KILL"),
            Fault::Busy => victim.keep_busy(DURATION * 2),
        }
        let fallen = holder.instance;
        let taken_over = |step: &Step| step.token > holder.token && step.instance != fallen;
        let next = steps.until(&format!("taken over from {holder:?}, {fault:?}"), taken_over).await;
        match fault {
            Fault::Frozen => {
                sleep(DURATION / 2).await;
                processes[fallen].signal("CONT");
            }
            Fault::Killed => processes[fallen] = Process::start(&schema, fallen, &steps),
            Fault::Busy => {}
        }
        holder = next;
    }
    // The last to fall has its chance to do harm.
    sleep(DURATION).await;
    drop(processes);
    let gaps = steps.gaps().unwrap_or_else(|overlap| panic!("{overlap}"));
    assert!(gaps.len() >= times * 3, "{gaps:?}");
    gaps
}
